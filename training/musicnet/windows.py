"""Cuts labelled recordings into windows, as the paper's released code does.

Window j of a recording starts at sample ``rate + j * stride``, because the first second is skipped.
Frame i of a window describes sample HOP * (i + 1) of the window. A note sounds in this frame if
begin <= sample < end::

    recording  0 ........ rate ........ rate + stride ...
    window 0              |--128--|--128--|-- ... --|      8192 samples
    frames                        0       1        62
"""

import logging
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from model.config import CENTRE_FRAME, HOP, WINDOW
from model.storage import replace_file
from model.transcriber import TranscriptionModel
from training.arrays import F32, I64
from training.music.metrics import frame_average_precision
from training.music.notes import Notes, notes_of
from training.music.recordings import Collection, Recording
from training.music.synth.dataset import Batch, empty_batch
from training.music.targets import ONSET_HOPS, segment_labels
from training.musicnet.layout import (
    SOURCE_RATE,
    TEST,
    VALIDATION,
    Source,
    Use,
    find,
    read_intervals,
    split,
)

logger = logging.getLogger(__name__)

TRAIN_STRIDE = 512  # samples, as in the released code
TEST_STRIDE = 128
BATCH = 64  # windows predicted at once


@dataclass(frozen=True)
class Track:
    """A recording at the model's rate, with its labels."""

    number: int
    audio: F32  # (samples,), memory-mapped
    intervals: I64
    """(n, 3): begin, end (exclusive) and MIDI note, sorted by begin, in samples of ``audio``."""


def open_tracks(sources: Sequence[Source], rate: int, cache: Path) -> list[Track]:
    """Return the recordings at ``rate`` Hz, with channels averaged. First resamples recordings that
    are not in the cache, with a progress bar. Raises ArchiveError for corrupt files."""
    intervals = [read_intervals(source) for source in sources]  # raises before slow resampling
    paths = [cache / f"{source.number}.npy" for source in sources]
    new = [pair for pair in zip(sources, paths, strict=True) if not pair[1].exists()]
    for source, path in tqdm(new, f"resampling to {rate} Hz", unit=" recordings", disable=not new):
        samples, _ = soundfile.read(source.audio, dtype="float32", always_2d=True)
        audio = soxr.resample(samples.mean(axis=1), SOURCE_RATE, rate, quality="VHQ")
        replace_file(path, partial(np.save, arr=audio))
    for notes in intervals:
        notes[:, :2] = notes[:, :2] * rate // SOURCE_RATE  # rounded down, as in the released code
    return [
        Track(source.number, np.load(path, mmap_mode="r"), notes)
        for source, path, notes in zip(sources, paths, intervals, strict=True)
    ]


class Windows:
    """All windows of some recordings, numbered consecutively."""

    def __init__(self, tracks: Sequence[Track], rate: int, stride: int, context: int = 0) -> None:
        """context: number of samples to read before each window. Raises ValueError if all
        recordings are too short for a window."""
        self.tracks, self.rate, self.stride, self.context = tracks, rate, stride, context
        counts = [max(0, (len(t.audio) - rate - WINDOW) // stride + 1) for t in tracks]
        self.ends = np.cumsum(counts)  # number of windows up to the end of each recording
        if not len(self):
            raise ValueError(f"recordings are too short for windows of {WINDOW} samples")

    def __len__(self) -> int:
        return int(self.ends[-1])

    def read(self, numbers: Sequence[int] | NDArray[np.integer]) -> Batch:
        """Return audio and targets of these windows, in the order of ``numbers``."""
        batch = empty_batch(len(numbers), self.context)
        for row, number in enumerate(numbers):
            index = int(np.searchsorted(self.ends, number, side="right"))
            before = int(self.ends[index - 1]) if index else 0
            track = self.tracks[index]
            begin = self.rate + (int(number) - before) * self.stride
            audio = track.audio[max(0, begin - self.context) : begin + WINDOW]
            batch.audio[row, -len(audio) :] = audio
            notes = notes_near(track.intervals, begin, self.rate)
            labels = segment_labels(notes, self.rate, begin)
            for target, label in zip(batch.targets, labels, strict=True):
                target[row] = label
        return batch


def notes_near(intervals: I64, begin: int, rate: int) -> Notes:
    """Return the notes in the window from sample ``begin``, and notes whose onset targets extend
    into the window. Times are in seconds from the start of the recording."""
    margin = (ONSET_HOPS + 1) * HOP
    reach = np.maximum(intervals[:, 1], intervals[:, 0] + margin)
    near = intervals[(intervals[:, 0] < begin + WINDOW + margin) & (reach > begin - margin)]
    return notes_of(near[:, 0] / rate, near[:, 1] / rate, near[:, 2])


class Archive:
    """The archive's recordings at a network's rate."""

    def __init__(self, root: Path, rate: int, context: int = 0) -> None:
        """context: number of samples before each window. Raises ArchiveError if the archive is
        missing or incomplete."""
        self.root, self.rate, self.context = root, rate, context
        sources = find(root)
        self.split = split(sources)
        missing = [n for n in (*VALIDATION, *TEST) if n not in sources]
        if missing:
            logger.warning("%s lacks the recordings %s", root, missing)

    def windows(self, use: Use, stride: int) -> Windows:
        """Return the windows of a split. Its recordings are resampled on first use."""
        cache = self.root / f"resampled-{self.rate}"
        tracks = open_tracks(self.split[use], self.rate, cache)
        return Windows(tracks, self.rate, stride, self.context)

    def batches(
        self, batch_size: int, seed: int, step: int, readers: int
    ) -> Generator[Batch, None, None]:
        """Return an endless stream of batches. Windows are drawn with replacement from the training
        recordings. A batch depends only on the seed and its step. ``readers`` threads read batches
        in advance, so that a slow disk does not delay training."""
        windows = self.windows("train", TRAIN_STRIDE)
        logger.info("%d recordings, %d windows", len(windows.tracks), len(windows))
        ahead = 2 * max(1, readers)

        def draw(at: int) -> Batch:
            numbers = np.random.default_rng((seed, at)).integers(0, len(windows), batch_size)
            return windows.read(numbers)

        def stream() -> Generator[Batch, None, None]:
            with ThreadPoolExecutor(max(1, readers)) as pool:
                waiting = deque(pool.submit(draw, at) for at in range(step, step + ahead))
                try:
                    for at in count(step + ahead):
                        batch = waiting.popleft().result()
                        waiting.append(pool.submit(draw, at))
                        yield batch
                finally:
                    pool.shutdown(cancel_futures=True)

        return stream()

    def validation(self, max_count: int) -> Batch:
        """Return at most ``max_count`` windows, evenly distributed over the validation set."""
        windows = self.windows("validation", TEST_STRIDE)
        count = len(windows)
        return windows.read(np.linspace(0, count - 1, min(max_count, count)).astype(np.int64))

    def card(self) -> dict[str, Any]:
        return {
            "archive": "MusicNet",
            "recordings": len(self.split["train"]),
            "validation": [source.number for source in self.split["validation"]],
            "test": [source.number for source in self.split["test"]],
        }


def labelled_test_set(root: Path) -> Collection:
    """Return the recordings of the paper's test set with their notes. Raises ArchiveError."""
    out = []
    for source in split(find(root))["test"]:
        begin, end, pitch = read_intervals(source).T
        notes = notes_of(begin / SOURCE_RATE, end / SOURCE_RATE, pitch)
        out.append(Recording(str(source.number), source.audio, notes))
    return Collection("MusicNet, test recordings", out, {})


def paper_metrics(transcriber: TranscriptionModel, root: Path, stride: int) -> dict[str, Any]:
    """Return the paper's metric (section "MusicNet") for all test recordings together and for each
    of them. It is the average precision of the windows' middle frames. stride: number of samples
    from one window to the next. Raises ArchiveError."""
    device = next(transcriber.parameters()).device
    archive = Archive(root, transcriber.config.sample_rate, transcriber.config.context)
    windows = archive.windows("test", stride)
    predicted, labels = [], []
    for begin in tqdm(range(0, len(windows), BATCH), unit="batch"):
        batch = windows.read(range(begin, min(begin + BATCH, len(windows))))
        heads = transcriber.predict(torch.from_numpy(batch.audio).to(device))
        predicted.append(heads[:, 0, CENTRE_FRAME].float().cpu().numpy())
        labels.append(batch.targets.frame[:, CENTRE_FRAME] > 0)
    pooled = np.concatenate(predicted), np.concatenate(labels)
    parts = zip(*(np.split(values, windows.ends[:-1]) for values in pooled), strict=True)
    return {
        "average_precision": frame_average_precision(*pooled),
        "stride": stride,
        "windows": len(windows),
        "recordings": {
            str(track.number): frame_average_precision(*part)
            for track, part in zip(windows.tracks, parts, strict=True)
        },
    }
