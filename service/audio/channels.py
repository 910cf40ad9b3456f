"""Several channels to one, also if some are silent or two cancel each other.

The mean of the channels suits most recordings. It lowers the level beside a dead channel, and is
silence if a cable or a plug-in has inverted one of two. So each block of 100 ms is measured, and
the next block is mixed accordingly:

    one channel is silent       left + right: the level of the other; what enters is heard at once
    mid 15 dB below the two     the louder one
    else                        (left + right) / 2

More than two are summed and divided by the number of those that are not silent. At the beginning,
and after a silent block, sound is measured after 10 ms already: an onset is not lost.

Thresholds have hysteresis, and a silent block changes nothing. The weights move evenly over a
block (10 ms at an onset), so that a change makes no sound of its own.

The mix of a block depends on what came before it alone: bit for bit the same for any chunks, live
or from a file.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from service.protocol.options import Mix

BLOCKS_PER_S = 10
_STEPS = 10  # of a block that follows a silent one
MIX_MS = 2 * 1000.0 / BLOCKS_PER_S
"""Most that ``resumable`` goes back."""
_KEPT_BLOCKS = 40 * BLOCKS_PER_S  # whose mix ``resumable`` knows
_FULL_SCALE = 32_768.0
_LOUDEST = 4.0  # more is measured as this: the sums below stay exact
# Powers relative to full scale, or to the channels'.
_AUDIBLE = 1e-6
_DEAD, _ALIVE = 1e-5, 1e-4
_CANCELLED, _PRESENT = 0.03, 0.15

_WEIGHTS = {
    Mix.MEAN: np.array((0.5, 0.5), np.float32),
    Mix.SUM: np.array((1, 1), np.float32),
    Mix.LEFT: np.array((1, 0), np.float32),
    Mix.RIGHT: np.array((0, 1), np.float32),
}


def block_samples(rate_hz: int) -> int:
    """Samples, per channel, of a block."""
    return rate_hz // BLOCKS_PER_S


def mean(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean of any number of channels: [n, channels] -> [n]."""
    if values.shape[1] == 1:
        return np.ascontiguousarray(values[:, 0])
    return values.mean(axis=1, dtype=np.float32)


class Downmix:
    """Mono samples of any number of channels, chunk by chunk.

    Attributes:
        mix: of two channels in the present block.
        told: what a user is told: the channel taken because the two cancel each other, if ever,
            else the mix.
    """

    def __init__(self, rate_hz: int, position: int = 0, mix: Mix = Mix.MEAN) -> None:
        """Args:
        position, mix: of two channels, where ``resumable`` allows another to begin.
        """
        self._block = block_samples(rate_hz)
        self._step = self._block // _STEPS
        self._position = position
        self.mix = mix
        self._begin(2)
        self._after_silence = position == 0  # and nothing heard in this block
        self._chosen = deque([mix], _KEPT_BLOCKS)  # up to the present block
        self._cancelled: Mix | None = None

    def _begin(self, channels: int) -> None:
        """Take this number of channels from here on."""
        self._heard = np.ones(channels, bool)  # those that are not silent
        self._before = self._weights = self._chosen_weights()
        self._ramp = 0, self._block  # where in the block weights begin to move, and for how long
        # Of the channels and their mid in this block, and of their squares, in 16-bit steps.
        self._sums = np.zeros((2, channels + 1))
        self._measured = 0
        self._after_silence = True

    def resumable(self, sample: int) -> tuple[int, Mix]:
        """Where another can begin, to give the same from ``sample`` on, up to 40 s back."""
        begin = max(0, sample // self._block - 1) * self._block
        if begin == 0:
            return 0, Mix.MEAN
        back = (self._position - begin) // self._block
        return begin, self._chosen[max(-len(self._chosen), -1 - back)]

    @property
    def told(self) -> Mix:
        return self._cancelled or self.mix

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """[n, channels] -> [n]"""
        if values.shape[1] == 1:
            return mean(values)
        if values.shape[1] != len(self._heard):
            self._begin(values.shape[1])
        mono = np.empty(len(values), np.float32)
        start = 0
        while start < len(values):
            within, end = self._position % self._block, self._block
            if self._after_silence:
                end = min(end, (within // self._step + 1) * self._step)
            stop = min(len(values), start + end - within)
            mono[start:stop] = self._mixed(values[start:stop], within)
            self._measure(values[start:stop])
            self._position += stop - start
            if within + stop - start == end:
                self._choose(end)
            start = stop
        return mono

    def _mixed(self, values: NDArray[np.float32], within: int) -> NDArray[np.float32]:
        """values: part of a block, from sample ``within`` of it on."""
        there, here = self._before, self._weights
        weights = here[None]
        if not np.array_equal(there, here):
            begin, length = self._ramp
            at = np.arange(within - begin, within - begin + len(values), dtype=np.float32)
            moved = np.clip(at / np.float32(length), 0, 1)
            weights = there + moved[:, None] * (here - there)
        elif (here == np.float32(1 / len(here))).all():
            return mean(values)
        mono = values[:, 0] * weights[:, 0]
        for channel in range(1, len(here)):
            mono += values[:, channel] * weights[:, channel]
        return mono

    def _measure(self, values: NDArray[np.float32]) -> None:
        # Whole numbers below 2 ** 53, so that their sums do not depend on the order.
        steps = np.rint(np.clip(values, -_LOUDEST, _LOUDEST) * np.float64(_FULL_SCALE))
        each = np.vstack([steps.T, steps[:, :2].mean(axis=1)])
        self._sums += each.sum(axis=1), (each * each).sum(axis=1)
        self._measured += len(values)

    def _choose(self, end: int) -> None:
        """end: of what was measured of this block, from its beginning."""
        means, squares = self._sums / self._measured
        # An offset is no sound: an open input may have one.
        powers = (squares - means**2) / _FULL_SCALE**2
        silent = powers[:-1].max() < _AUDIBLE
        if end < self._block:
            if silent or end + self._step > self._block:
                return
            self._ramp, self._after_silence = (end, self._step), False
        else:
            self._ramp, self._after_silence = (0, self._block), bool(silent)
            self._sums[:], self._measured = 0, 0
        if len(self._heard) == 2:
            self.mix = _next(self.mix, *powers)
        elif not silent:
            self._heard = _not_silent(self._heard, powers[:-1])
        self._before, self._weights = self._weights, self._chosen_weights()
        if end < self._block:
            self._chosen[-1] = self.mix
        else:
            self._chosen.append(self.mix)
        if self.mix in (Mix.LEFT, Mix.RIGHT):
            self._cancelled = self._cancelled or self.mix

    def _chosen_weights(self) -> NDArray[np.float32]:
        if len(self._heard) == 2:
            return _WEIGHTS[self.mix]
        return np.full(len(self._heard), 1 / self._heard.sum(), np.float32)


def _not_silent(heard: NDArray[np.bool_], powers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of more than two channels sound, after those that did before."""
    strong, audible = powers.max(), powers >= _AUDIBLE
    stays, enters = audible | (powers >= _DEAD * strong), audible & (powers >= _ALIVE * strong)
    return np.where(heard, stays, enters)


def _next(now: Mix, left: float, right: float, mid: float) -> Mix:
    """The mix after a block of these powers."""
    weak, strong = min(left, right), max(left, right)
    if strong < _AUDIBLE:
        return now
    if weak < _AUDIBLE and weak < _DEAD * strong:
        return Mix.SUM
    if now is Mix.SUM and (weak < _AUDIBLE or weak < _ALIVE * strong):
        return Mix.SUM
    alone = now in (Mix.LEFT, Mix.RIGHT)
    if mid < (_PRESENT if alone else _CANCELLED) * (left + right) / 2:
        if alone:
            return now
        return Mix.LEFT if left >= right else Mix.RIGHT
    return Mix.MEAN
