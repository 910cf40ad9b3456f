"""Training and validation data from the MusicNet archive."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.loop.parallel import Share
from training.music.synth.dataset import Batch
from training.musicnet.layout import TEST, VALIDATION, Split, TestSet, find, split
from training.musicnet.windows import (
    TEST_STRIDE,
    TRAIN_STRIDE,
    Windows,
    open_tracks,
    random_batches,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArchiveConfig:
    """The location of the archive and its split."""

    root: Path = Path("data/musicnet")
    """Folder with train_data, train_labels, test_data and test_labels."""
    cache: Path | None = None
    """Folder for the resampled recordings (5 GB); None uses one in `root`."""
    test: TestSet = "paper"
    """Test recordings: the paper's three, or the archive's ten, as in later work."""
    stride: int = TRAIN_STRIDE
    """Samples between the beginnings of training windows."""

    def cached(self, rate: int) -> Path:
        """Folder of the recordings at a rate in Hz."""
        return (self.cache or self.root) / f"resampled-{rate}"


class Archive:
    """The archive's recordings at a network's rate, opened on first use."""

    def __init__(self, config: ArchiveConfig, rate: int, context: int = 0) -> None:
        """context: samples before each window. Raises ArchiveError if the archive is missing or
        incomplete."""
        self.config, self.rate, self.context = config, rate, context
        found = find(config.root)
        self.split: Split = split(found, config.test)
        missing = [n for n in (*VALIDATION, *TEST[config.test]) if n not in found]
        if missing:
            logger.warning("%s lacks the recordings %s", config.root, missing)

    def batches(
        self, batch_size: int, seed: int, step: int, share: Share, readers: int
    ) -> contextlib.AbstractContextManager[Iterator[Batch]]:
        """Endless random windows of the training recordings, a function of seed and step."""
        tracks = open_tracks(self.split.train, self.rate, self.config.cached(self.rate))
        windows = Windows(tracks, self.rate, self.config.stride, self.context)
        logger.info("%d recordings, %d windows", len(tracks), len(windows))
        return random_batches(windows, batch_size, seed, step, share, max(1, readers))

    def validation(self, most: int) -> Batch:
        """Up to `most` windows, evenly spread over the validation recordings."""
        tracks = open_tracks(self.split.validation, self.rate, self.config.cached(self.rate))
        windows = Windows(tracks, self.rate, TEST_STRIDE, self.context)
        return windows.read(windows.spread(most))

    def card(self) -> dict[str, Any]:
        return {
            "archive": "MusicNet",
            "recordings": len(self.split.train),
            "validation": [source.number for source in self.split.validation],
            "test": [source.number for source in self.split.test],
        }
