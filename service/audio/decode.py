"""Audio files to mono samples, block by block: WAV, FLAC, OGG, MP3 and more (libsndfile).

Memory is bounded by one block, regardless of the length in the header.
"""

import io
import re
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, Self

import numpy as np
import soundfile
from numpy.typing import NDArray

from service.audio.pcm import check_and_mix
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, Encoding

_BLOCK_SAMPLES = 1 << 14  # of all channels together; where a file is damaged, a block is lost
_MOST_HEADER_BYTES = 1 << 12  # of a WAV without audio
_UNKNOWN_LENGTH = 1 << 62  # libsndfile gives more than this if the header has no length
# Bytes of audio by a header, and in the file: from libsndfile's log, as its length is the latter.
_CUT_OFF = re.compile(r"^ *(?:data|SSND|Data Size) *: (\d+) \(should be (\d+)\)", re.MULTILINE)
_UNKNOWN_BYTES = 0x7F000000  # what a pipe's header states at least, when the length is unknown
_TOLERANCE_S = 0.1  # headers that are a little wrong are not damage


class _ForwardSoundFile(soundfile.SoundFile):  # type: ignore[misc]  # it has no types
    """A sound file that is read from the beginning to the end.

    soundfile seeks after every read of a seekable file. That restarts the decoder: at every block
    an MP3 would lose the bits that frames borrow from earlier ones (an audible gap).
    """

    def seekable(self) -> bool:
        return False


class AudioDecoder:
    """Mono float32 samples of an audio file, in blocks.

    Thread-safety: ``read`` and ``close`` may be called from different threads; ``close`` waits
    for a ``read`` under way.
    """

    def __init__(
        self,
        file: BinaryIO,
        max_duration_s: float | None = None,
        pcm: AudioFormat | None = None,
    ) -> None:
        """Args:
            file: seekable, at its beginning; it is not closed.
            pcm: the format of a file that is raw PCM without a header.
            max_duration_s: seconds of audio that are accepted; more are an error, at once where
                the file's header says so, else when they have been read.

        Raises:
            ProtocolError: not an audio file that libsndfile knows, or one without a sample.
            OptionsError: a sample rate that the resampler is not made for.
        """
        self._lock = threading.Lock()
        self._max_duration_s = max_duration_s
        self._position = 0
        size = file.seek(0, io.SEEK_END)
        counted = _frames_are_counted(file)
        file.seek(0)
        if not size:
            raise ProtocolError(ErrorCode.EMPTY_AUDIO, "the file is empty")
        if pcm is not None and size % pcm.frame_bytes:
            message = "the PCM ends within a sample: are encoding and channels right?"
            raise ProtocolError(ErrorCode.UNDECODABLE, message)
        try:
            self._sound = _ForwardSoundFile(file, **_raw(pcm))
        except (soundfile.SoundFileError, TypeError, ValueError) as error:
            message = f"not a readable audio file: {_reason(error)}"
            raise ProtocolError(ErrorCode.UNDECODABLE, message) from error
        try:
            self.audio = AudioFormat(
                encoding=Encoding.PCM_F32LE, sample_rate_hz=self._sound.samplerate, channels=1
            )
            if self.stated_duration_s is not None:
                self._check_duration(self._sound.frames)
            self._promised_s = self._promise(counted)
            # Some headers state no length, or a wrong one: only reading shows that there is audio.
            self._first: NDArray[np.float32] | None = self._read_values()
            if len(self._first) == 0:
                message = "the file holds no audio"
                # A WAV's recorder writes the length at the end.
                if size > _MOST_HEADER_BYTES and "data : 0\n" in self._sound.extra_info:
                    message += " by its header, as if its recorder had been interrupted"
                raise ProtocolError(ErrorCode.EMPTY_AUDIO, message)
        except ValueError:
            self._sound.close()
            raise

    @property
    def stated_duration_s(self) -> float | None:
        """Length by the header, None if not stated; a damaged file may give less."""
        if not 0 < self._sound.frames < _UNKNOWN_LENGTH:
            return None
        return float(self._sound.frames / self._sound.samplerate)

    def read(self) -> NDArray[np.float32] | None:
        """The next block, shape [n], the channels mixed; None at the end or once closed.

        Raises:
            ProtocolError: the file is damaged or cut off here, or the limit is passed. All blocks
                before were good.
            BadAudioError: a sample of a float file is NaN or infinite.
        """
        with self._lock:
            if self._sound.closed:
                return None
            values, self._first = self._first, None
            if values is None:
                values = self._read_values()
        if len(values) == 0:
            if self._promised_s > self._position / self._sound.samplerate + _TOLERANCE_S:
                raise self._damaged(f"its header states {self._promised_s:.1f} s")
            return None
        self._check_duration(self._position + len(values))
        samples = check_and_mix(values, self._position)
        self._position += len(samples)
        return samples

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        while (block := self.read()) is not None:
            yield block

    def close(self) -> None:
        """Release the file without closing it; idempotent."""
        with self._lock:
            self._sound.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_values(self) -> NDArray[np.float32]:
        """The next block as it is in the file, [n, channels]."""
        frames = max(1, _BLOCK_SAMPLES // self._sound.channels)
        try:
            return self._sound.read(frames, dtype="float32", always_2d=True)
        except soundfile.SoundFileError as error:
            raise self._damaged(_reason(error)) from error

    def _damaged(self, reason: str) -> ProtocolError:
        at_s = self._position / self._sound.samplerate
        message = f"the file is damaged after {at_s:.1f} s: {reason}"
        return ProtocolError(ErrorCode.UNDECODABLE, message)

    def _promise(self, counted: bool) -> float:
        """Seconds that a whole file would have by its header; 0 where that is not known."""
        length_s = self.stated_duration_s or 0.0
        if cut := _CUT_OFF.search(self._sound.extra_info):
            stated, there = map(int, cut.groups())
            return length_s * stated / there if there and stated < _UNKNOWN_BYTES else 0.0
        return length_s if counted or self._sound.format == "FLAC" else 0.0

    def _check_duration(self, samples: int) -> None:
        most_s = self._max_duration_s
        if most_s is not None and samples > most_s * self._sound.samplerate:
            limit = f"{most_s:g} seconds"
            for unit_s, units in ((60, "minutes"), (3600, "hours")):
                if most_s >= 2 * unit_s:
                    limit = f"{most_s / unit_s:g} {units}"
            message = f"the recording is longer than {limit}"
            raise ProtocolError(ErrorCode.AUDIO_TOO_LONG, message)


def _frames_are_counted(file: BinaryIO) -> bool:
    """Whether it is an MP3 whose first frame counts the others; elsewhere libsndfile guesses."""
    file.seek(0)
    tag = file.read(10)
    length = 0
    if tag[:3] == b"ID3" and len(tag) == 10:
        for seven_bits in tag[6:]:
            length = length << 7 | seven_bits
        length += len(tag)
    file.seek(length)
    frame = file.read(64)
    return frame[:1] == b"\xff" and (b"Xing" in frame or b"Info" in frame)


def _raw(pcm: AudioFormat | None) -> dict[str, Any]:
    """The format of a headerless file, for libsndfile."""
    if pcm is None:
        return {}
    return {
        "format": "RAW",
        "subtype": "PCM_16" if pcm.encoding is Encoding.PCM_S16LE else "FLOAT",
        "endian": "LITTLE",
        "samplerate": pcm.sample_rate_hz,
        "channels": pcm.channels,
    }


def _reason(error: Exception) -> str:
    """libsndfile's own words, without the address of a Python object."""
    return str(getattr(error, "error_string", error)).strip()
