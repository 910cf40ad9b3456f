"""Training and validation data from the MusicNet archive."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.loop.parallel import Share
from training.music.synth.dataset import Batch
from training.musicnet.layout import TEST, VALIDATION, TestSet, Use, find, split
from training.musicnet.windows import (
    TEST_STRIDE,
    TRAIN_STRIDE,
    Track,
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


class Archive:
    """The archive's recordings at a network's rate."""

    def __init__(self, config: ArchiveConfig, rate: int, context: int = 0) -> None:
        """context: samples before each window. Raises ArchiveError if the archive is missing or
        incomplete."""
        self.config, self.rate, self.context = config, rate, context
        found = find(config.root)
        self.split = split(found, config.test)
        missing = [n for n in (*VALIDATION, *TEST[config.test]) if n not in found]
        if missing:
            logger.warning("%s lacks the recordings %s", config.root, missing)

    def tracks(self, use: Use) -> list[Track]:
        """Recordings, resampled on first use."""
        folder = self.config.cache or self.config.root
        return open_tracks(self.split[use], self.rate, folder / f"resampled-{self.rate}")

    def batches(
        self, batch_size: int, seed: int, step: int, share: Share, readers: int
    ) -> contextlib.AbstractContextManager[Iterator[Batch]]:
        """Endless random windows of the training recordings, a function of seed and step."""
        windows = Windows(self.tracks("train"), self.rate, self.config.stride, self.context)
        logger.info("%d recordings, %d windows", len(windows.tracks), len(windows))
        return random_batches(windows, batch_size, seed, step, share, max(1, readers))

    def validation(self, most: int) -> Batch:
        """Up to `most` windows, evenly spread over the validation recordings."""
        windows = Windows(self.tracks("validation"), self.rate, TEST_STRIDE, self.context)
        return windows.read(windows.spread(most))

    def card(self) -> dict[str, Any]:
        return {
            "archive": "MusicNet",
            "recordings": len(self.split["train"]),
            "validation": [source.number for source in self.split["validation"]],
            "test": [source.number for source in self.split["test"]],
        }
