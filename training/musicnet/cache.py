"""Recordings resampled once and kept as memory-mapped float32 files."""

import logging
from collections.abc import Iterator, Sequence
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

logger = logging.getLogger(__name__)

BLOCK = 30 * SOURCE_RATE  # samples resampled at once


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
    if stale:
        _resample_all(stale, rate, cache)
    return [
        Track(source.number, np.load(_path(source, cache), mmap_mode="r"), scaled(notes, rate))
        for source, notes in zip(sources, intervals, strict=True)
    ]


def scaled(intervals: NDArray[np.int64], rate: int) -> NDArray[np.int64]:
    """Intervals at SOURCE_RATE at another rate, rounded down (released code)."""
    out = intervals.copy()
    out[:, :2] = out[:, :2] * rate // SOURCE_RATE
    return out


def resample(path: Path, rate: int) -> Iterator[NDArray[np.float32]]:
    """A recording at another rate, block by block, its channels averaged."""
    stream = soxr.ResampleStream(SOURCE_RATE, rate, 1, dtype="float32", quality="VHQ")
    with soundfile.SoundFile(path) as file:
        while file.tell() < file.frames:
            block = file.read(BLOCK, dtype="float32", always_2d=True)
            if not len(block):
                raise ArchiveError(f"{path} ends after {file.tell()} of {file.frames} samples")
            yield stream.resample_chunk(block.mean(axis=1), last=file.tell() >= file.frames)


def _resample_all(sources: list[Source], rate: int, cache: Path) -> None:
    lengths = [audio_length(source.audio) for source in sources]
    seconds = sum(lengths) // SOURCE_RATE
    bar = tqdm(total=seconds, unit=" s of audio", desc=f"resampling to {rate} Hz")
    with bar:
        for source, length in zip(sources, lengths, strict=True):
            if not _is_fresh(source, cache):  # another process may have been faster
                audio = np.concatenate(list(resample(source.audio, rate)))
                replace_file(_path(source, cache), partial(np.save, arr=audio))
            bar.update(length // SOURCE_RATE)


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
