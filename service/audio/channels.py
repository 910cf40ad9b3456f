"""Two channels to one, also if one is silent or the two cancel each other.

The mean of two channels suits most recordings. It halves the level beside a dead channel, and is
silence if a cable or a plug-in has inverted one. So each block of 100 ms is measured, and the next
block is mixed accordingly:

    one channel is silent       left + right: the level of the other; what enters is heard at once
    mid 15 dB below the two     the louder one
    else                        (left + right) / 2

Thresholds have hysteresis, and a silent block changes nothing. The weights move evenly over a
block, so that a change makes no sound of its own.

The mix of a block depends on the blocks before it alone: bit for bit the same for any chunks, live
or from a file.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from service.protocol.options import Mix

BLOCKS_PER_S = 10
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
    """Mono samples of two channels, chunk by chunk; of any other number, their mean.

    Attributes:
        mix: of the present block.
        told: what a user is told: the channel taken because the two cancel each other, if ever,
            else the mix.
    """

    def __init__(self, rate_hz: int, position: int = 0, mix: Mix = Mix.MEAN) -> None:
        """Args:
        position, mix: where ``resumable`` allows another to begin.
        """
        self._block = block_samples(rate_hz)
        self._position = position
        self._before = self.mix = mix
        # Of left, right and mid in this block, and of their squares, in 16-bit steps.
        self._sums = np.zeros((2, 3))
        self._chosen = deque([mix], _KEPT_BLOCKS)  # up to the present block
        self._cancelled: Mix | None = None

    def resumable(self, sample: int) -> tuple[int, Mix]:
        """Where another can begin, to give the same from ``sample`` on, up to 40 s back."""
        begin = max(0, sample // self._block - 1) * self._block
        back = (self._position - begin) // self._block
        return begin, self._chosen[max(-len(self._chosen), -1 - back)]

    @property
    def told(self) -> Mix:
        return self._cancelled or self.mix

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """[n, channels] -> [n]"""
        if values.shape[1] != 2:
            return mean(values)
        mono = np.empty(len(values), np.float32)
        start = 0
        while start < len(values):
            within = self._position % self._block
            stop = min(len(values), start + self._block - within)
            mono[start:stop] = self._mixed(values[start:stop], within)
            self._measure(values[start:stop])
            self._position += stop - start
            if self._position % self._block == 0:
                self._choose()
            start = stop
        return mono

    def _mixed(self, values: NDArray[np.float32], within: int) -> NDArray[np.float32]:
        """values: part of a block, from sample ``within`` of it on."""
        if self._before is self.mix is Mix.MEAN:
            return mean(values)
        here = _WEIGHTS[self.mix]
        if self._before is self.mix:
            return values[:, 0] * here[0] + values[:, 1] * here[1]
        there = _WEIGHTS[self._before]
        moved = np.arange(within, within + len(values), dtype=np.float32) / np.float32(self._block)
        weights = there + moved[:, None] * (here - there)
        return values[:, 0] * weights[:, 0] + values[:, 1] * weights[:, 1]

    def _measure(self, values: NDArray[np.float32]) -> None:
        # Whole numbers below 2 ** 53, so that their sums do not depend on the order.
        steps = np.rint(np.clip(values, -_LOUDEST, _LOUDEST) * np.float64(_FULL_SCALE))
        each = np.vstack([steps.T, steps.mean(axis=1)])
        self._sums += each.sum(axis=1), (each * each).sum(axis=1)

    def _choose(self) -> None:
        means, squares = self._sums / self._block
        # An offset is no sound: an open input may have one.
        left, right, mid = (squares - means**2) / _FULL_SCALE**2
        self._sums[:] = 0
        self._before = self.mix
        self.mix = _next(self.mix, left, right, mid)
        self._chosen.append(self.mix)
        if self.mix in (Mix.LEFT, Mix.RIGHT):
            self._cancelled = self._cancelled or self.mix


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
