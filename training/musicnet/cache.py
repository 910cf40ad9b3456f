"""Recordings resampled once and kept as memory-mapped float32 files."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray
from tqdm import tqdm

from model.storage import replace_file
from training.musicnet.layout import SOURCE_RATE, ArchiveError, Source, audio_length, read_intervals


@dataclass(frozen=True)
class Track:
    """One recording, ready to be cut."""

    number: int
    audio: NDArray[np.float32]
    """(samples,), memory-mapped."""
    intervals: NDArray[np.int64]
    """(count, 3): begin, end (exclusive), MIDI note; by begin, in samples like the audio."""


def open_tracks(sources: Sequence[Source], rate: int, cache: Path) -> list[Track]:
    """The recordings at `rate`; missing ones are resampled, with a progress bar.

    Raises ArchiveError for damaged recordings.
    """
    intervals = [read_intervals(source) for source in sources]  # all errors before hours of work
    stale = [source for source in sources if not _is_fresh(source, cache)]
    for source in tqdm(stale, f"resampling to {rate} Hz", unit=" recordings", disable=not stale):
        if not _is_fresh(source, cache):  # another process may have been faster
            audio = resample(source.audio, rate)
            replace_file(_path(source, cache), partial(np.save, arr=audio))
    return [
        Track(source.number, np.load(_path(source, cache), mmap_mode="r"), scaled(notes, rate))
        for source, notes in zip(sources, intervals, strict=True)
    ]


def scaled(intervals: NDArray[np.int64], rate: int) -> NDArray[np.int64]:
    """Intervals at SOURCE_RATE at another rate, rounded down (released code)."""
    out = intervals.copy()
    out[:, :2] = out[:, :2] * rate // SOURCE_RATE
    return out


def resample(path: Path, rate: int) -> NDArray[np.float32]:
    """A recording at another rate, its channels averaged: (samples,). Raises ArchiveError."""
    length = audio_length(path)
    samples, _ = soundfile.read(path, dtype="float32", always_2d=True)
    if len(samples) < length:
        raise ArchiveError(f"{path} ends after {len(samples)} of {length} samples")
    return np.asarray(soxr.resample(samples.mean(axis=1), SOURCE_RATE, rate, quality="VHQ"))


def _path(source: Source, cache: Path) -> Path:
    return cache / f"{source.number}.npy"


def _is_fresh(source: Source, cache: Path) -> bool:
    """Whether the cache holds a complete copy that is not older than the recording."""
    path = _path(source, cache)
    try:
        np.load(path, mmap_mode="r")
        return path.stat().st_mtime_ns >= source.audio.stat().st_mtime_ns
    except (OSError, ValueError):
        return False
