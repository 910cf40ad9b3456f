"""Decodes PCM bytes, and mixes their channels to mono float32 samples.

The mean of the channels suits most recordings. It is too quiet if some channels are silent, and is
silent if one of two channels has inverted polarity (cable or plug-in). The weights of the channels
are therefore chosen for each block of 100 ms:

    power of the sum < 0.06 times the channels' power    use the loudest channel alone
    otherwise                                            use the sum / number of active channels

The sum includes silent channels, so that a channel is audible as soon as it becomes active. The
thresholds have hysteresis, and a silent block changes nothing. To avoid clicks, the weights change
linearly. In a stream they change during the block after the measured block. A recording is mixed
with a delay. Its weights change during the block before the measured block, so no onset is lost.

The page mixes a microphone's channels by the same rules (``audio/downmix.js``).
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, Encoding, Mix

# Maximum magnitude of a sample, 36 dB above full scale. Larger values are usually integers sent as
# floats. Extreme values would overflow in the resampler and invalidate a complete window.
MAX_AMPLITUDE = 64.0

BLOCKS_PER_S = 10
MIX_MS = 2 * 1000.0 / BLOCKS_PER_S  # maximum time from ``restart_position`` to its sample
_HISTORY_BLOCKS = 40 * BLOCKS_PER_S  # number of blocks whose mix is stored
# Powers relative to full scale. A block below _JUDGED does not change the mix. A channel below
# _AUDIBLE does not become active, and a channel above _AUDIBLE stays active.
_JUDGED, _AUDIBLE = 1e-8, 1e-6
# Powers relative to the loudest channel: inactive below _DEAD, active above _ALIVE.
_DEAD, _ALIVE = 1e-5, 1e-4
# Powers of the sum relative to all channels. Below _CANCELLED the channels cancel each other. They
# count as cancelled until the power exceeds _PRESENT.
_CANCELLED, _PRESENT = 0.06, 0.3

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
    """A sample is NaN, infinite, or far beyond full scale. The rest of its chunk is dropped.

    Attributes:
        samples: mono samples of the chunk before the invalid sample.
        dropped: number of dropped samples per channel, including the invalid sample.
    """

    def __init__(
        self, position: int, value: float, samples: NDArray[np.float32], dropped: int
    ) -> None:
        super().__init__(
            ErrorCode.BAD_AUDIO,
            f"sample {position} is {value:g}: samples must be finite, and at most "
            f"{MAX_AMPLITUDE:g} times full scale, which is 1.0",
        )
        self.samples = samples
        self.dropped = dropped


class PcmDecoder:
    """Decodes a PCM byte stream to mono samples. An incomplete PCM frame waits for the next
    call."""

    def __init__(self, audio: AudioFormat, position: int = 0, mix: Mix = Mix.MEAN) -> None:
        """position, mix: see ``restart_position``."""
        self.downmix = Downmix(audio.sample_rate_hz, position, mix)
        self._audio = audio
        self._dtype = np.dtype("<i2" if audio.encoding is Encoding.PCM_S16LE else "<f4")
        self._carry = b""

    @property
    def incomplete(self) -> ProtocolError | None:
        """Error if the audio so far ends in the middle of a PCM frame."""
        received, size = len(self._carry), self._audio.pcm_frame_bytes
        if not received:
            return None
        message = f"the last PCM frame is incomplete: received {received} of {size} bytes"
        return ProtocolError(ErrorCode.ODD_BYTES, message)

    def restart_position(self, sample: int) -> tuple[int, Mix]:
        """See ``Downmix.restart_position``."""
        if self._audio.channels != 2:
            return sample, Mix.MEAN
        return self.downmix.restart_position(sample)

    def decode(self, data: bytes) -> NDArray[np.float32]:
        """Return the mono float32 samples [n], full scale 1.0, that ``data`` completes. Raises
        BadAudioError."""
        data = self._carry + data
        complete = len(data) - len(data) % self._audio.pcm_frame_bytes
        values = np.frombuffer(data, self._dtype, count=complete // self._dtype.itemsize)
        values = values.reshape(-1, self._audio.channels)
        self._carry = b""  # stays empty if a sample is invalid
        if self._audio.encoding is Encoding.PCM_S16LE:
            mono = self.downmix(values.astype(np.float32) / np.float32(2**15))
        else:
            mono = self.check_and_mix(values)
        self._carry = data[complete:]
        return mono

    def check_and_mix(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Mix the next float samples, [n, channels], to mono, [n]. Raises BadAudioError."""
        valid = np.abs(values) <= MAX_AMPLITUDE  # False for NaN
        if valid.all():
            return self.downmix(values)
        position = self.downmix.position
        index, channel = map(int, np.argwhere(~valid)[0])
        before, dropped = self.downmix(values[:index]), len(values) - index
        raise BadAudioError(position + index, float(values[index, channel]), before, dropped)


class Downmix:
    """Mixes channels to mono. The result does not depend on the sizes of chunks, bit for bit. In a
    recording with several channels the output is delayed by two blocks, and ``finish`` returns the
    rest.

    Attributes:
        position: index of the next sample.
        mix: current mix of two channels; MEAN for any other number of channels.
        reported_mix: mix that is reported to the user: the first LEFT or RIGHT if the channels have
            ever cancelled each other, else the current mix.
    """

    def __init__(
        self, rate_hz: int, position: int = 0, mix: Mix = Mix.MEAN, recording: bool = False
    ) -> None:
        """position, mix: see ``restart_position``."""
        self.position = position
        self.mix = self.reported_mix = mix
        self._block = rate_hz // BLOCKS_PER_S  # samples per channel
        self._within = position % self._block
        self._delay = 2 * self._block if recording else 0
        self._before = self._weights = _WEIGHTS[mix]
        self._delayed = self._measured = np.empty((0, 2), np.float32)  # _measured: current block
        self._mixes = deque([mix], _HISTORY_BLOCKS)  # up to the current block

    def restart_position(self, sample: int) -> tuple[int, Mix]:
        """Return the position and the mix with which a new mixer returns the same samples from
        ``sample`` on. ``sample`` must be at most 39.8 s old."""
        start = max(0, sample // self._block - 1) * self._block
        back = (self.position - start) // self._block
        return start, self._mixes[max(-len(self._mixes), -1 - back)]

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Mix samples [n, channels] to mono, [n]. In a recording, the delay makes the number of
        returned samples differ from n."""
        mono = [_NOTHING]
        if values.shape[1] != self._delayed.shape[1]:
            mono.append(self.finish())
            self._restart(values[:0])
        self.position += len(values)
        if values.shape[1] == 1:
            return np.concatenate([*mono, values[:, 0]])
        while len(values):
            part, values = np.split(values, [self._block - self._within])
            delayed = np.concatenate([self._delayed, part])
            ready = max(0, len(delayed) - self._delay)
            mono.append(self._mix(delayed[:ready], self._before, self._within))
            self._delayed = delayed[ready:]
            self._measured = np.concatenate([self._measured, part])
            self._within += len(part)
            if self._within == self._block:
                self._before = self._weights
                self._update_weights(self._measured)
                self._measured, self._within = self._measured[:0], 0
        return np.concatenate(mono)

    def finish(self) -> NDArray[np.float32]:
        """Return the samples that were still delayed, and restart."""
        delayed = self._delayed
        if 0 < len(delayed) < self._block:
            self._update_weights(delayed)
        moving, rest = np.split(delayed, [max(0, len(delayed) - self._block - self._within)])
        mono = self._mix(moving, self._before, self._within), self._mix(rest, self._weights)
        self._restart(delayed[:0])
        return np.concatenate(mono)

    def _restart(self, empty: NDArray[np.float32]) -> None:
        self._before = self._weights = _mean(empty.shape[1])
        self._delayed = self._measured = empty
        self._within = 0

    def _update_weights(self, block: NDArray[np.float32]) -> None:
        self._weights = _next(self._weights, block)
        self.mix = _MIXES.get(self._weights, Mix.MEAN)
        if self.reported_mix not in (Mix.LEFT, Mix.RIGHT):
            self.reported_mix = self.mix
        self._mixes.append(self.mix)

    def _mix(
        self, values: NDArray[np.float32], start: _Weights, within: int = 0
    ) -> NDArray[np.float32]:
        """Mix a part of a block with weights interpolated from ``start`` to the current weights.
        within: index of the part's first sample in the block."""
        end = self._weights
        if start == end == _mean(values.shape[1]):
            return values.mean(axis=1, dtype=np.float32)
        ramp = np.arange(within, within + len(values), dtype=np.float32) / np.float32(self._block)
        mono = np.zeros(len(values), np.float32)
        for channel, (before, after) in enumerate(zip(start, end, strict=True)):
            mono += values[:, channel] * (np.float32(before) + ramp * np.float32(after - before))
        return mono


def _mean(channels: int) -> _Weights:
    return (1 / channels,) * channels


def _next(weights: _Weights, block: NDArray[np.float32]) -> _Weights:
    """Return the weights after a block [n, channels], given the weights before it."""
    channels = len(weights)
    powers = block.var(axis=0, dtype=np.float64)  # ignores the DC offset of unconnected inputs
    loudest = powers.max()
    if loudest < _JUDGED:
        return weights
    alone = 0.0 in weights
    min_power = (_PRESENT if alone else _CANCELLED) * powers.sum()
    if block.sum(axis=1, dtype=np.float64).var() < min_power:
        if alone:
            return weights
        return tuple(float(channel == powers.argmax()) for channel in range(channels))
    min_active = np.sum((powers >= _AUDIBLE) & (powers >= _ALIVE * loudest))
    max_active = np.sum((powers >= _AUDIBLE) | (powers >= _DEAD * loudest))
    active = channels if alone else round(1 / weights[0])
    return (1 / int(np.clip(active, max(1, min_active), max_active)),) * channels
