"""Audio files to mono samples, block by block.

Memory is bounded by a block and what FFmpeg needs for one, regardless of the length in the header.
"""

import io
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from service.audio.beginnings import after_another, after_rubbish, is_cut
from service.audio.channels import RecordingDownmix
from service.audio.container import Container, NotAudioError
from service.audio.pcm import BadAudioError, check_and_mix
from service.audio.resample import Resampler
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, Encoding, Mix

_BLOCK_SAMPLES = 1 << 14  # at least, but for the last
_FALSE_BEGINNINGS = 4  # that are tried


class AudioDecoder:
    """Mono float32 samples of an audio file: iterate once over its blocks, shape [n].

    Files in one, such as the links of a chained OGG, are read one after the other, at the rate of
    the first. What is damaged is silent. After the last block the iteration raises

    - ProtocolError: the limit is passed, or the file was damaged;
    - BadAudioError: a sample of a float file is NaN or infinite.
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
            max_duration_s: seconds of audio that are accepted; more are an error, at once if the
                file's header says so, else when they have been read.

        Raises:
            ProtocolError: not an audio file of a known kind, or one without a sample.
            OptionsError: a sample rate that the resampler is not made for.
        """
        self._file, self._max_duration_s = file, max_duration_s
        self._position = self._count = 0  # samples given, and read
        size = file.seek(0, io.SEEK_END)
        if not size:
            raise ProtocolError(ErrorCode.EMPTY_AUDIO, "the file is empty")
        if pcm is not None and size % pcm.frame_bytes:
            message = "the PCM ends within a sample: are encoding and channels right?"
            raise ProtocolError(ErrorCode.UNDECODABLE, message)
        self._container = _first(file, pcm)
        try:
            self.stated_duration_s = self._container.stated_s
            """Length by the header, None if not stated; a damaged file may give less."""
            self.audio = AudioFormat(
                encoding=Encoding.PCM_F32LE, sample_rate_hz=self._container.rate_hz, channels=1
            )
            self._check_duration((self.stated_duration_s or 0.0) * self.audio.sample_rate_hz)
            self._downmix = RecordingDownmix(self.audio.sample_rate_hz)
            blocks = self._blocks(chained=pcm is None)
            block = next(blocks, None)  # what cannot be decoded at all is known at once
            if block is None:
                raise ProtocolError(ErrorCode.EMPTY_AUDIO, "the file holds no audio")
            self._rest = chain([block], blocks)
        except BaseException:
            self.close()
            raise

    @property
    def mix(self) -> Mix:
        """How two channels were mixed (``RecordingDownmix.told``)."""
        return self._downmix.told

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return self._rest

    def close(self) -> None:
        """Release the file without closing it."""
        self._container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _blocks(self, chained: bool) -> Iterator[NDArray[np.float32]]:
        parts: list[NDArray[np.float32]] = []
        fault: ProtocolError | None = None
        try:
            for part in self._mono(chained):
                self._check_duration(self._position + len(part))
                self._position += len(part)
                if len(part):
                    parts.append(part)
                if sum(map(len, parts)) >= _BLOCK_SAMPLES:
                    yield np.concatenate(parts)
                    parts = []
        except ProtocolError as error:
            fault = error
        if parts:
            yield np.concatenate(parts)
        if fault is not None:
            raise fault

    def _mono(self, chained: bool) -> Iterator[NDArray[np.float32]]:
        """The mixed frames of all containers, at the rate of the first. Raises ProtocolError, after
        the last if one was damaged."""
        rate_hz, damage = self.audio.sample_rate_hz, ""
        more: Container | None = self._container
        while more is not None:
            begin_s, self._container = self._position / rate_hz, more
            resampler = Resampler(more.rate_hz, rate_hz)
            for values, frame_rate_hz in more.frames():
                if frame_rate_hz != resampler.input_rate_hz:
                    yield self._rest_of(resampler)
                    resampler = Resampler(frame_rate_hz, rate_hz)
                yield resampler.process(self._mixed(values))
            yield self._rest_of(resampler)
            if more.fault is not None and not damage:
                at_s, reason = more.fault
                damage = f"the file is damaged after {begin_s + at_s:.1f} s: {reason}"
            before = more
            begins = after_another(self._file, before.begin, before.end)
            more = _readable(self._file, begins) if chained else None
            if more is not None:
                before.close()
        if not damage and is_cut(self._file, before.begin):
            at_s = self._position / rate_hz
            damage = f"the file is damaged after {at_s:.1f} s: its end is missing"
        if damage:
            raise ProtocolError(ErrorCode.UNDECODABLE, damage)

    def _mixed(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        position, self._count = self._count, self._count + len(values)
        try:
            return check_and_mix(values, position, self._downmix)
        except BadAudioError as error:
            error.samples = np.concatenate([error.samples, self._downmix.finish()])
            raise

    def _rest_of(self, resampler: Resampler) -> NDArray[np.float32]:
        return np.concatenate([resampler.process(self._downmix.finish()), resampler.finish()])

    def _check_duration(self, samples: float) -> None:
        most_s = self._max_duration_s
        if most_s is not None and samples > most_s * self.audio.sample_rate_hz:
            limit = f"{most_s:g} seconds"
            for unit_s, units in ((60, "minutes"), (3600, "hours")):
                if most_s >= 2 * unit_s:
                    limit = f"{most_s / unit_s:g} {units}"
            message = f"the recording is longer than {limit}"
            raise ProtocolError(ErrorCode.AUDIO_TOO_LONG, message)


def _first(file: BinaryIO, pcm: AudioFormat | None) -> Container:
    """The container of a file, perhaps after some rubbish. Raises NotAudioError."""
    try:
        return Container(file, 0, pcm)
    except NotAudioError:
        found = _readable(file, after_rubbish(file))
        if found is None:
            raise
        return found


def _readable(file: BinaryIO, begins: Iterator[int]) -> Container | None:
    """The first container at one of these bytes."""
    for begin in islice(begins, _FALSE_BEGINNINGS):
        with suppress(NotAudioError):
            return Container(file, begin)
    return None
