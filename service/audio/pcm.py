"""PCM bytes of any chunking, of one or several channels, to mono float32 samples.

The mean of the channels suits most recordings. It loses level beside dead channels, and is silent
if a cable or a plug-in has inverted one of two. So each block of 100 ms is measured:

    their sum has less than a sixteenth of their power    the loudest channel alone
    else                                                  the sum / the number of those that sound

The sum includes silent channels: what enters is heard at once. Thresholds have hysteresis, and a
silent block changes nothing. The weights move evenly over a block, so that a change makes no sound
of its own: live over the block after the measured one; in a recording, which can be held back, over
the one before it, so that no beginning is lost.

The page's ``audio/downmix.js`` does the same to a microphone's channels.
"""

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, Encoding, Mix

# 36 dB above full scale. Beyond it lie integers sent as floats and numbers near the end of the
# float range, which would overflow in the resampler and silence the model for its whole window.
MAX_AMPLITUDE = 64.0

BLOCKS_PER_S = 10
MIX_MS = 2 * 1000.0 / BLOCKS_PER_S  # most that ``resumable`` goes back
_KEPT_BLOCKS = 40 * BLOCKS_PER_S  # whose mix ``resumable`` knows
# Powers relative to full scale: of the loudest channel of a block that is judged, and of a channel
# that certainly sounds.
_JUDGED, _AUDIBLE = 1e-8, 1e-6
_DEAD, _ALIVE = 1e-5, 1e-4  # relative to the loudest channel
_CANCELLED, _PRESENT = 0.06, 0.3  # of the sum, relative to all channels

_Weights = tuple[float, ...]
_WEIGHTS: dict[Mix, _Weights] = {
    Mix.MEAN: (0.5, 0.5),
    Mix.SUM: (1.0, 1.0),
    Mix.LEFT: (1.0, 0.0),
    Mix.RIGHT: (0.0, 1.0),
}
_MIXES = {weights: mix for mix, weights in _WEIGHTS.items()}
_NOTHING = np.empty(0, np.float32)


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


def check_and_mix(
    values: NDArray[np.float32],
    position: int,
    mix: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda mono: mono[:, 0],
) -> NDArray[np.float32]:
    """Mono samples of floats, [n, channels]. Raises BadAudioError.

    position: index of the first of them in the stream, for the message of an error.
    """
    good = np.abs(values) <= MAX_AMPLITUDE  # False for NaN too
    if good.all():
        return mix(values)
    index, channel = np.argwhere(~good)[0]
    bad = float(values[index, channel])
    before = mix(values[:index])
    raise BadAudioError(position + int(index), bad, before, dropped=len(values) - int(index))


class PcmDecoder:
    """Mono samples of a PCM byte stream; partial samples wait for the next chunk.

    downmix: how its channels are mixed.
    """

    def __init__(self, audio: AudioFormat, position: int = 0, mix: Mix = Mix.MEAN) -> None:
        """Args:
        position: index of the first sample in the stream.
        mix: of two channels there; both from ``resumable``.
        """
        self.downmix = Downmix(audio.sample_rate_hz, position, mix)
        self._audio = audio
        self._dtype = np.dtype("<i2" if audio.encoding is Encoding.PCM_S16LE else "<f4")
        self._carry = b""

    @property
    def pending_bytes(self) -> int:
        """Bytes of a sample that is not complete yet."""
        return len(self._carry)

    def resumable(self, sample: int) -> tuple[int, Mix]:
        """Where another decoder can begin, to give the same from ``sample`` on."""
        return self.downmix.resumable(sample) if self._audio.channels == 2 else (sample, Mix.MEAN)

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
            return self.downmix(values.astype(np.float32) / np.float32(2**15))
        try:
            return check_and_mix(values, self.downmix.position, self.downmix)
        except BadAudioError:
            self._carry = b""
            raise


class _Told:
    """Attributes:
    mix: of two channels at present; ``mean`` of any other number.
    told: what a user is told: the channel taken because the two cancel each other, if ever, else
        the mix.
    """

    def __init__(self, rate_hz: int, mix: Mix = Mix.MEAN) -> None:
        self.mix = self.told = mix
        self._block = rate_hz // BLOCKS_PER_S  # samples per channel

    def _next(self, weights: _Weights, block: NDArray[np.float32]) -> _Weights:
        weights = _next(weights, block)
        self.mix = _MIXES.get(weights, Mix.MEAN)
        if self.told not in (Mix.LEFT, Mix.RIGHT):
            self.told = self.mix
        return weights


class Downmix(_Told):
    """Mono samples of a live stream, bit for bit the same for any chunks.

    position: index of the next sample.
    """

    def __init__(self, rate_hz: int, position: int = 0, mix: Mix = Mix.MEAN) -> None:
        """Args:
        position, mix: of two channels, where ``resumable`` allows another to begin.
        """
        super().__init__(rate_hz, mix)
        self.position = position
        self._before = self._weights = _WEIGHTS[mix]
        self._measured = np.empty((0, 2), np.float32)  # of the present block
        self._chosen = deque([mix], _KEPT_BLOCKS)  # up to the present block

    def resumable(self, sample: int) -> tuple[int, Mix]:
        """Where another can begin, to give the same from ``sample`` on, up to 40 s back."""
        begin = max(0, sample // self._block - 1) * self._block
        back = (self.position - begin) // self._block
        return begin, self._chosen[max(-len(self._chosen), -1 - back)]

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """[n, channels] -> [n]"""
        if values.shape[1] == 1:
            self.position += len(values)
            return np.ascontiguousarray(values[:, 0])
        if values.shape[1] != self._measured.shape[1]:
            self._before = self._weights = _mean(values)
            self._measured = values[:0]
        mono = [_NOTHING]
        while len(values):
            within = self.position % self._block
            part, values = np.split(values, [self._block - within])
            mono.append(_mixed(part, self._before, self._weights, self._block, within))
            self._measured = np.concatenate([self._measured, part])
            self.position += len(part)
            if self.position % self._block == 0:
                self._before = self._weights
                self._weights = self._next(self._weights, self._measured)
                self._measured = self._measured[:0]
                self._chosen.append(self.mix)
        return np.concatenate(mono)


class RecordingDownmix(_Told):
    """Mono samples of a recording: up to two blocks are held back until ``finish``."""

    def __init__(self, rate_hz: int) -> None:
        super().__init__(rate_hz)
        self._held = np.empty((0, 1), np.float32)
        self._weights: _Weights | None = None  # of the first block that is held

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """[n, channels] -> [m]"""
        mono = [_NOTHING]
        if values.shape[1] != self._held.shape[1]:
            mono.append(self.finish())
            self._held = values[:0]
        if values.shape[1] == 1:
            return np.concatenate([*mono, values[:, 0]])
        self._held = np.concatenate([self._held, values])
        if self._weights is None and len(self._held) >= self._block:
            self._weights = self._next(_mean(values), self._held[: self._block])
        while self._weights and len(self._held) >= 2 * self._block:
            block, self._held = np.split(self._held, [self._block])
            here = self._next(self._weights, self._held[: self._block])
            mono.append(_mixed(block, self._weights, here, self._block))
            self._weights = here
        return np.concatenate(mono)

    def finish(self) -> NDArray[np.float32]:
        """What is held back."""
        held, here = self._held, self._weights
        self._held, self._weights = held[:0], None
        if not len(held):
            return _NOTHING
        here = here or self._next(_mean(held), held)
        return _mixed(held, here, here, self._block)


def _mean(values: NDArray[np.float32]) -> _Weights:
    return (1 / values.shape[1],) * values.shape[1]


def _mixed(
    values: NDArray[np.float32], there: _Weights, here: _Weights, block: int, within: int = 0
) -> NDArray[np.float32]:
    """Part of a block, from sample ``within`` of it on, over which weights move to ``here``."""
    if there == here == _mean(values):
        return values.mean(axis=1, dtype=np.float32)
    moved = np.arange(within, within + len(values), dtype=np.float32) / np.float32(block)
    mono = np.zeros(len(values), np.float32)
    for channel, (first, last) in enumerate(zip(there, here, strict=True)):
        mono += values[:, channel] * (np.float32(first) + moved * np.float32(last - first))
    return mono


def _next(weights: _Weights, block: NDArray[np.float32]) -> _Weights:
    """The weights that a block, [n, channels], calls for after these."""
    channels = len(weights)
    powers = block.var(axis=0, dtype=np.float64)  # an offset, as of an open input, is no sound
    loudest = powers.max()
    if loudest < _JUDGED:
        return weights
    alone = 0.0 in weights
    least_power = (_PRESENT if alone else _CANCELLED) * powers.sum()
    if block.sum(axis=1, dtype=np.float64).var() < least_power:
        if alone:
            return weights
        return tuple(float(channel == powers.argmax()) for channel in range(channels))
    least = np.sum((powers >= _AUDIBLE) & (powers >= _ALIVE * loudest))
    most = np.sum((powers >= _AUDIBLE) | (powers >= _DEAD * loudest))
    sounding = channels if alone else round(1 / weights[0])
    return (1 / int(np.clip(sounding, max(1, least), most)),) * channels
