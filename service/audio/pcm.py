"""PCM bytes of any chunking to mono float32 samples."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from service.audio.channels import Downmix
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, Encoding, Mix

INT16_FULL_SCALE = 32_768.0
# 36 dB above full scale. Beyond it lie integers sent as floats and numbers near the end of the
# float range, which would overflow in the resampler and silence the model for its whole window.
MAX_AMPLITUDE = 64.0


class BadAudioError(ProtocolError):
    """An invalid sample: NaN, infinite, or far beyond full scale.

    Attributes:
        samples: the mono samples of the chunk that lie before it.
        dropped: samples of the chunk from it on, per channel.
    """

    def __init__(
        self, position: int, value: float, samples: NDArray[np.float32], dropped: int
    ) -> None:
        super().__init__(
            ErrorCode.BAD_AUDIO,
            f"sample {position} is {value:g}: samples must be finite, with full scale 1.0 "
            f"(at most {MAX_AMPLITUDE:g})",
        )
        self.samples = samples
        self.dropped = dropped


class PcmDecoder:
    """Mono samples of a PCM byte stream; partial samples wait for the next chunk."""

    def __init__(self, audio: AudioFormat, position: int = 0, mix: Mix = Mix.MEAN) -> None:
        """Args:
        position: index of the first sample in the stream.
        mix: of two channels there; both from ``resumable``.
        """
        self._downmix = Downmix(audio.sample_rate_hz, position, mix)
        self._audio = audio
        self._dtype = np.dtype("<i2" if audio.encoding is Encoding.PCM_S16LE else "<f4")
        self._carry = b""
        self._position = position

    @property
    def pending_bytes(self) -> int:
        """Bytes of a sample that is not complete yet."""
        return len(self._carry)

    @property
    def mix(self) -> Mix:
        """How two channels are mixed (``Downmix.told``)."""
        return self._downmix.told

    def resumable(self, sample: int) -> tuple[int, Mix]:
        """Where another decoder can begin, to give the same from ``sample`` on."""
        if self._audio.channels == 2:
            return self._downmix.resumable(sample)
        return sample, Mix.MEAN

    def decode(self, data: bytes) -> NDArray[np.float32]:
        """Mono float32 samples, shape [n], that ``data`` completes; full scale is 1.0.

        Raises:
            BadAudioError: with the samples before the bad one; the rest of ``data`` is dropped.
        """
        data = self._carry + data
        whole = len(data) - len(data) % self._audio.frame_bytes
        self._carry = data[whole:]
        values = np.frombuffer(data, self._dtype, count=whole // self._dtype.itemsize)
        values = values.reshape(-1, self._audio.channels)
        if self._audio.encoding is Encoding.PCM_S16LE:
            samples = self._downmix(values.astype(np.float32) / np.float32(INT16_FULL_SCALE))
        else:
            try:
                samples = check_and_mix(values, self._position, self._downmix)
            except BadAudioError as error:
                self._position += len(error.samples)
                self._carry = b""
                raise
        self._position += len(samples)
        return samples


def check_and_mix(
    values: NDArray[np.float32],
    position: int,
    mix: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda mono: mono[:, 0],
) -> NDArray[np.float32]:
    """Mono samples of checked floats.

    Args:
        values: float32, shape [n, channels].
        position: index of the first of them in the stream, for the message of an error.

    Raises:
        BadAudioError: with the samples before the bad one.
    """
    good = np.abs(values) <= MAX_AMPLITUDE  # False for NaN too
    if good.all():
        return mix(values)
    index, channel = np.argwhere(~good)[0]
    bad = float(values[index, channel])
    before = mix(values[:index])
    raise BadAudioError(position + int(index), bad, before, dropped=len(values) - int(index))
