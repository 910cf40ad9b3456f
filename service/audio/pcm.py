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

from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, Encoding, Mix

# 36 dB above full scale. Beyond it lie integers sent as floats and numbers near the end of the
# float range, which would overflow in the resampler and silence the model for its whole window.
MAX_AMPLITUDE = 64.0

BLOCKS_PER_S = 10
MIX_MS = 2 * 1000.0 / BLOCKS_PER_S  # most that ``restart_position`` goes back
_KEPT_BLOCKS = 40 * BLOCKS_PER_S  # whose mix ``restart_position`` knows
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
        mix: of two channels there; both from ``restart_position``.
        """
        self.downmix = Downmix(audio.sample_rate_hz, position, mix)
        self._audio = audio
        self._dtype = np.dtype("<i2" if audio.encoding is Encoding.PCM_S16LE else "<f4")
        self._carry = b""

    @property
    def pending_bytes(self) -> int:
        """Bytes of a sample that is not complete yet."""
        return len(self._carry)

    def restart_position(self, sample: int) -> tuple[int, Mix]:
        """Where another decoder can begin, to give the same from ``sample`` on."""
        if self._audio.channels != 2:
            return sample, Mix.MEAN
        return self.downmix.restart_position(sample)

    def decode(self, data: bytes) -> NDArray[np.float32]:
        """Mono float32 samples, shape [n], that ``data`` completes; full scale is 1.0.

        Raises:
            BadAudioError: with the samples before the bad one; the rest of ``data`` is dropped.
        """
        data = self._carry + data
        whole = len(data) - len(data) % self._audio.pcm_frame_bytes
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


class Downmix:
    """Mono samples, bit for bit the same for any chunks. Of a recording, two blocks are held back
    until ``finish``.

    Attributes:
        position: index of the next sample.
        mix: of two channels at present; ``mean`` of any other number.
        reported_mix: the mix reported to the user: `left` or `right` if the channels have ever
            cancelled each other, else the present mix.
    """

    def __init__(
        self, rate_hz: int, position: int = 0, mix: Mix = Mix.MEAN, recording: bool = False
    ) -> None:
        """position, mix: of two channels, where ``restart_position`` allows another to begin."""
        self.position = position
        self.mix = self.reported_mix = mix
        self._block = rate_hz // BLOCKS_PER_S  # samples per channel
        self._within = position % self._block
        self._delay = 2 * self._block if recording else 0
        self._before = self._weights = _WEIGHTS[mix]
        self._held = self._measured = np.empty((0, 2), np.float32)  # held back; of this block
        self._chosen = deque([mix], _KEPT_BLOCKS)  # up to the present block

    def restart_position(self, sample: int) -> tuple[int, Mix]:
        """Where another can begin, to give the same from ``sample`` on, up to 40 s back."""
        begin = max(0, sample // self._block - 1) * self._block
        back = (self.position - begin) // self._block
        return begin, self._chosen[max(-len(self._chosen), -1 - back)]

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """[n, channels] -> [n], or less of a recording."""
        mono = [_NOTHING]
        if values.shape[1] != self._held.shape[1]:
            mono.append(self.finish())
            self._restart(values[:0])
        self.position += len(values)
        if values.shape[1] == 1:
            return np.concatenate([*mono, values[:, 0]])
        while len(values):
            part, values = np.split(values, [self._block - self._within])
            held = np.concatenate([self._held, part])
            ready = max(0, len(held) - self._delay)
            mono.append(self._mixed(held[:ready], self._before, self._within))
            self._held = held[ready:]
            self._measured = np.concatenate([self._measured, part])
            self._within += len(part)
            if self._within == self._block:
                self._before = self._weights
                self._judge(self._measured)
                self._measured, self._within = self._measured[:0], 0
        return np.concatenate(mono)

    def finish(self) -> NDArray[np.float32]:
        """What is held back."""
        held = self._held
        if 0 < len(held) < self._block:
            self._judge(held)
        moving, rest = np.split(held, [max(0, len(held) - self._block - self._within)])
        mono = self._mixed(moving, self._before, self._within), self._mixed(rest, self._weights)
        self._restart(held[:0])
        return np.concatenate(mono)

    def _restart(self, none: NDArray[np.float32]) -> None:
        self._before = self._weights = _mean(none.shape[1])
        self._held = self._measured = none
        self._within = 0

    def _judge(self, block: NDArray[np.float32]) -> None:
        self._weights = _next(self._weights, block)
        self.mix = _MIXES.get(self._weights, Mix.MEAN)
        if self.reported_mix not in (Mix.LEFT, Mix.RIGHT):
            self.reported_mix = self.mix
        self._chosen.append(self.mix)

    def _mixed(
        self, values: NDArray[np.float32], there: _Weights, within: int = 0
    ) -> NDArray[np.float32]:
        """Part of a block, from sample ``within`` of it on, over which weights move from some."""
        here = self._weights
        if there == here == _mean(values.shape[1]):
            return values.mean(axis=1, dtype=np.float32)
        moved = np.arange(within, within + len(values), dtype=np.float32) / np.float32(self._block)
        mono = np.zeros(len(values), np.float32)
        for channel, (first, last) in enumerate(zip(there, here, strict=True)):
            mono += values[:, channel] * (np.float32(first) + moved * np.float32(last - first))
        return mono


def _mean(channels: int) -> _Weights:
    return (1 / channels,) * channels


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
