"""Recordings as a client sends them: sound files, and raw PCM from a pipe."""

from __future__ import annotations

import asyncio
import glob
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import soundfile

from clients.protocol import MAX_CHANNELS, StartOptions

SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"})


class Source(Protocol):
    """Audio with an end.

    Attributes:
        path: names it and its results.
        sample_rate: in Hz.
        duration_s: None where it is not known before the end.
    """

    path: Path
    sample_rate: int
    duration_s: float | None

    def options(self, **wanted: Any) -> StartOptions:
        """What to ``start`` with, ``wanted`` being the fields about transcription."""

    def blocks(self, seconds: float) -> AsyncIterator[bytes]:
        """PCM in pieces of at most about ``seconds``."""

    def close(self) -> None:
        """Give the file back."""


class UnreadableError(Exception):
    """A recording that cannot be decoded or sent."""


class _SequentialFile(soundfile.SoundFile):  # type: ignore[misc]
    """A sound file that is read from beginning to end.

    soundfile seeks to where it is after every read of a seekable file; in an MP3 that loses the
    decoder's state, and each block but the first begins with noise.
    """

    def seekable(self) -> bool:
        return False


class Recording:
    """An audio file, decoded block by block into what the service takes.

    Raises:
        UnreadableError: no such file, no audio, or empty.
        ValueError: a sample rate that the service does not take.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():  # libsndfile says "System error"
            raise UnreadableError("is not a file" if path.exists() else "does not exist")
        try:
            self._file = _SequentialFile(path)
        except (soundfile.LibsndfileError, OSError) as error:
            reason = str(getattr(error, "error_string", error)).rstrip(".")
            raise UnreadableError(f"cannot be read: {reason}") from None
        if self._file.frames == 0:
            self._file.close()
            raise UnreadableError("holds no audio")
        # 16-bit samples travel as they are; all others keep their precision as float.
        self._dtype = "int16" if self._file.subtype == "PCM_16" else "float32"
        self.sample_rate: int = self._file.samplerate
        self.duration_s: float | None = self._file.frames / self.sample_rate
        self.channels: int = self._file.channels if self._file.channels <= MAX_CHANNELS else 1
        if self._file.channels != self.channels:
            self._dtype = "float32"  # the mean of many channels is no 16-bit number

    def options(self, **wanted: Any) -> StartOptions:
        """What to ``start`` with, ``wanted`` being the fields about transcription."""
        encoding = "pcm_s16le" if self._dtype == "int16" else "pcm_f32le"
        return StartOptions(
            encoding=encoding, sample_rate=self.sample_rate, channels=self.channels, **wanted
        )

    async def blocks(self, seconds: float) -> AsyncIterator[bytes]:
        """PCM in pieces of about ``seconds``, decoded outside of the event loop."""
        frames = max(1, round(seconds * self.sample_rate))
        while True:
            block = await asyncio.to_thread(self._read, frames)
            if not block:
                return
            yield block

    def _read(self, frames: int) -> bytes:
        try:
            samples = self._file.read(frames, dtype=self._dtype, always_2d=True)
        except soundfile.LibsndfileError as error:
            raise UnreadableError(f"is damaged: {error.error_string}") from None
        if samples.shape[1] != self.channels:
            samples = samples.mean(axis=1, dtype=np.float32)
        little_endian = samples.dtype.newbyteorder("<")
        return bytes(np.ascontiguousarray(samples, dtype=little_endian))

    def close(self) -> None:
        self._file.close()


class PcmPipe:
    """Raw PCM as it comes through a pipe, of the format that its reader is told.

    Args:
        pipe: read to its end; standard input's buffer, say.
        encoding, sample_rate, channels: as in ``StartOptions``.
    """

    def __init__(self, pipe: BinaryIO, encoding: str, sample_rate: int, channels: int) -> None:
        self.path = Path("stdin")
        self.sample_rate = sample_rate
        self.duration_s: float | None = None
        self._pipe = pipe
        self._encoding = encoding
        self._channels = channels

    def options(self, **wanted: Any) -> StartOptions:
        return StartOptions(
            encoding=self._encoding,
            sample_rate=self.sample_rate,
            channels=self._channels,
            **wanted,
        )

    async def blocks(self, seconds: float) -> AsyncIterator[bytes]:
        """What is there already, at most so much: a live pipe is not waited for.

        Raises:
            UnreadableError: the pipe ended within a sample, or before the first.
        """
        frame_bytes = self.options().frame_bytes
        size = frame_bytes * max(1, round(seconds * self.sample_rate))
        total = 0
        while block := await asyncio.to_thread(self._read, size):
            total += len(block)
            yield block
        if total == 0:
            raise UnreadableError("holds no audio")
        if total % frame_bytes:
            raise UnreadableError("ended within a sample: are --encoding and --channels right?")

    def _read(self, size: int) -> bytes:
        # Of a buffered pipe ``read1`` gives what is there; ``read`` would wait for all of it.
        read: Any = getattr(self._pipe, "read1", self._pipe.read)
        return bytes(read(size))

    def close(self) -> None:
        self._pipe.close()


def find_recordings(arguments: Iterable[str]) -> list[Path]:
    """The files that arguments name: themselves, folders (searched to the bottom) and patterns.

    What names nothing comes back as it is, for its opening to complain of.
    """
    found: list[Path] = []
    for argument in arguments:
        path = Path(argument)
        if path.is_dir():
            inside = (p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            found += sorted(inside)
        elif not path.exists() and glob.has_magic(argument):
            matches = [Path(match) for match in glob.glob(argument, recursive=True)]
            found += sorted(match for match in matches if match.is_file()) or [path]
        else:
            found.append(path)
    return list(dict.fromkeys(found))
