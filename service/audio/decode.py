"""Decodes recordings to mono samples, block by block.

The memory in use does not depend on the duration.
"""

import io
from collections.abc import Callable, Iterator
from itertools import chain
from typing import BinaryIO, Self

import av
import numpy as np
from numpy.typing import NDArray

from service.audio.container import Container
from service.audio.pcm import MAX_AMPLITUDE, Downmix
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, Encoding, Mix

BLOCK_SAMPLES = 1 << 14  # samples per channel in each block of a ``SampleArray``


class SampleArray:
    """Samples in memory, with the interface of ``service.audio.container.Container``."""

    may_exceed_full_scale = True
    corruption: str | None = None
    title = ""

    def __init__(self, samples: NDArray[np.float32], rate_hz: int) -> None:
        """samples: shape [n] or [n, channels], full scale 1."""
        self._samples = samples[:, None] if samples.ndim == 1 else samples
        self.rate_hz = rate_hz
        self.header_duration_s = len(samples) / rate_hz

    def frames(self) -> Iterator[tuple[NDArray[np.float32], int]]:
        for start in range(0, len(self._samples), BLOCK_SAMPLES):
            yield self._samples[start : start + BLOCK_SAMPLES], self.rate_hz

    def close(self) -> None:
        """Do nothing: there is no file."""


class AudioDecoder:
    """Decoder of a recording to mono float32 samples. Iterate once over its blocks, shape [n].

    Invalid samples (not finite, or far beyond full scale) become silence. Corrupt parts become
    silence if timestamps, or the number of corrupt bytes (MP3, AC-3), show a gap of less than 10 s.
    Otherwise they are missing. If a float file exceeds full scale, it is scaled to a peak of 1. The
    iteration raises ProtocolError if the duration exceeds its limit, and after the last block if a
    part was corrupt or a sample invalid.
    """

    def __init__(
        self,
        recording: BinaryIO | SampleArray,
        max_duration_s: float | None = None,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        """Raises ProtocolError for an unsupported format or sample rate, for a recording that has
        no audio or cannot be decoded at all, and for a duration above ``max_duration_s`` in the
        header or, for float files, in the samples.

        Args:
            recording: samples, or a seekable file at its start, which is not closed.
            on_progress: called often during the search for the peak of a float file.
        """
        self._on_progress = on_progress
        self._max_duration_s = max_duration_s
        self._container = _open(recording)
        self._gain = np.float32(1)
        try:
            self.title = self._container.title
            self.header_duration_s = self._container.header_duration_s
            """Duration in the header; None if not stated. A corrupt file may have less audio."""
            self.audio = AudioFormat(
                encoding=Encoding.PCM_F32LE, sample_rate_hz=self._container.rate_hz, channels=1
            )
            self._check_duration((self.header_duration_s or 0.0) * self.audio.sample_rate_hz)
            if self._container.may_exceed_full_scale:
                self._gain = np.float32(1 / max(1.0, self._peak()))
                self._container.close()
                self._container = _open(recording)
            self._downmix = Downmix(self.audio.sample_rate_hz, recording=True)
            blocks = self._blocks()
            block = next(blocks, None)  # fails at once if nothing can be decoded
            if block is None:
                raise ProtocolError(ErrorCode.EMPTY_AUDIO, "the recording has no audio")
            self._rest = chain([block], blocks)
        except BaseException:
            self.close()
            raise

    @property
    def mix(self) -> Mix:
        """Mix of two channels (``Downmix.reported_mix``)."""
        return self._downmix.reported_mix

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return self._rest

    def close(self) -> None:
        """Release the file without closing it."""
        self._container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _peak(self) -> float:
        """Return the maximum magnitude of the valid samples. Raises ProtocolError if the duration
        exceeds its limit."""
        peak = samples = 0.0
        for values, frame_rate_hz in self._container.frames():
            samples += len(values) * self.audio.sample_rate_hz / frame_rate_hz
            self._check_duration(samples)
            self._on_progress()
            levels = np.abs(values)
            peak = max(peak, float(levels.max(initial=0, where=levels <= MAX_AMPLITUDE)))
        return peak

    def _blocks(self) -> Iterator[NDArray[np.float32]]:
        samples = 0
        for block in self._mono():
            samples += len(block)
            self._check_duration(samples)
            if len(block):
                yield block

    def _mono(self) -> Iterator[NDArray[np.float32]]:
        """Yield mono samples at the rate of the first frame."""
        rate_hz = self.audio.sample_rate_hz
        read_s, replaced, first_s = 0.0, 0, 0.0
        resampler, input_rate_hz = None, rate_hz
        for values, frame_rate_hz in self._container.frames():
            if frame_rate_hz != input_rate_hz:
                yield _resampled(resampler, self._downmix.finish(), input_rate_hz, is_last=True)
                is_changed, input_rate_hz = frame_rate_hz != rate_hz, frame_rate_hz
                resampler = av.AudioResampler("flt", "mono", rate_hz) if is_changed else None
            valid = np.abs(values) <= MAX_AMPLITUDE  # False for NaN as well
            if not valid.all():
                if not replaced:
                    first_s = read_s + float(np.argmin(valid.all(axis=1))) / frame_rate_hz
                replaced += int(valid.size - valid.sum())
                values = np.where(valid, values, np.float32(0))
            yield _resampled(resampler, self._downmix(self._gain * values), input_rate_hz)
            read_s += len(values) / frame_rate_hz
        yield _resampled(resampler, self._downmix.finish(), input_rate_hz, is_last=True)
        if self._container.corruption is not None:
            raise ProtocolError(ErrorCode.UNDECODABLE, self._container.corruption)
        if replaced:
            detail = (
                f"invalid samples replaced by silence: {replaced}, the first at {first_s:.1f} s"
            )
            raise ProtocolError(ErrorCode.BAD_AUDIO, detail)

    def _check_duration(self, samples: float) -> None:
        max_s = self._max_duration_s
        if max_s is not None and samples > max_s * self.audio.sample_rate_hz:
            message = f"the recording is longer than the limit of {max_s / 60:g} min"
            raise ProtocolError(ErrorCode.AUDIO_TOO_LONG, message)


def _open(recording: BinaryIO | SampleArray) -> Container | SampleArray:
    if isinstance(recording, SampleArray):
        return recording
    if not recording.seek(0, io.SEEK_END):
        raise ProtocolError(ErrorCode.EMPTY_AUDIO, "the file is empty")
    return Container(recording)


def _resampled(
    resampler: av.AudioResampler | None,
    samples: NDArray[np.float32],
    rate_hz: int,
    is_last: bool = False,
) -> NDArray[np.float32]:
    """Convert samples at ``rate_hz`` to the resampler's rate. ``service.audio.resample`` would
    import SciPy, for which the process that decodes a file has too little memory."""
    if resampler is None:
        return samples
    frames: list[av.AudioFrame | None] = []
    if len(samples):
        frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
        frame.sample_rate = rate_hz
        frames.append(frame)
    if is_last:
        frames.append(None)  # returns the samples that the resampler still holds
    blocks = [block.to_ndarray()[0] for frame in frames for block in resampler.resample(frame)]
    return np.concatenate([np.zeros(0, np.float32), *blocks])
