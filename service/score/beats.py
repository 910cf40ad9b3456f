"""Data types: beats and bars of a performance, and the user's beat hints."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import floor

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from service.protocol.tempo import FASTEST_BPM, SLOWEST_BPM

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

MAX_BEATS_PER_BAR = 12  # maximum number in a hint
MIN_STEADY_CONFIDENCE = 0.5  # confidence below which the rhythm is free


@dataclass(frozen=True)
class Beats:
    """Beats of a performance.

    Attributes:
        time_s: [beats], ascending, at least two.
        bar: [beats] position of each beat in its bar, from 0.
        beats_per_bar: number of beats of most bars.
        subdivision: parts of a beat, 2 or 3. A bar of two beats of three parts is written as 6/8.
        confidence: 0 to 1. Below ``MIN_STEADY_CONFIDENCE`` the performance has no steady beat.
    """

    time_s: F64
    bar: I64
    beats_per_bar: int
    subdivision: int
    confidence: float

    @property
    def quarters(self) -> Fraction:
        """Written length of a beat in quarter notes."""
        return Fraction(1) if self.subdivision == 2 else Fraction(3, 2)

    def signature(self, beats: int) -> tuple[int, int]:
        """Return the numerator and denominator of a bar of ``beats`` beats."""
        return (beats, 4) if self.subdivision == 2 else (3 * beats, 8)

    @property
    def bpm(self) -> float:
        return 60 / float(np.median(np.diff(self.time_s)))

    def position(self, time_s: F64) -> F64:
        """Convert seconds to beats. Outside of the beats, the first and the last tempo continue."""
        first, last = self.time_s[1] - self.time_s[0], self.time_s[-1] - self.time_s[-2]
        inside = np.interp(time_s, self.time_s, np.arange(len(self.time_s)))
        early = np.minimum(time_s - self.time_s[0], 0) / first
        return inside + early + np.maximum(time_s - self.time_s[-1], 0) / last

    def time(self, position: F64) -> F64:
        """Convert beats to seconds, the inverse of ``position``."""
        whole = np.clip(np.floor(position).astype(int), 0, len(self.time_s) - 2)
        begin, end = self.time_s[whole], self.time_s[whole + 1]
        return begin + (position - whole) * (end - begin)

    def bars(self, begin: Fraction | int, end: Fraction | int) -> list[tuple[Fraction, int]]:
        """Return the first beat and the number of beats of each bar from beat ``begin`` to beat
        ``end``. The first bar may be shortened to a pickup. Bars before the first and after the
        last detected downbeat have ``beats_per_bar`` beats."""
        downs = [int(beat) for beat in np.flatnonzero(self.bar == 0)] or [0]
        while downs[0] > begin:
            downs.insert(0, downs[0] - self.beats_per_bar)
        while downs[-1] < end:
            downs.append(downs[-1] + self.beats_per_bar)
        (start, count), *rest = (
            (Fraction(a), b - a) for a, b in pairwise(downs) if b > begin and a < end
        )
        skipped = floor(begin - start)
        return [(start + skipped, count - skipped), *rest]


def smoothest(cost: F64, change: float | F64) -> I64:
    """Return the columns, one for each row, with the minimum total cost (Viterbi algorithm).

    Args:
        cost: [rows, columns].
        change: cost of a column other than that of the row before: a number, or [rows].
    """
    total, back = cost[0], []
    for row, price in zip(cost[1:], np.broadcast_to(change, len(cost))[1:], strict=True):
        stays = total <= total.min() + price
        back.append(np.where(stays, np.arange(len(row)), total.argmin()))
        total = np.where(stays, total, total.min() + price) + row
    columns = [int(total.argmin())]
    for before in back[::-1]:
        columns.append(int(before[columns[-1]]))
    return np.array(columns[::-1])


class BeatHints(BaseModel):
    """The user's beat hints.

    Attributes:
        bpm: beats per minute.
        beats_per_bar: number of beats in a bar.
        subdivision: number of parts of a beat. 4 beats of 3 parts are 12/8.
        first_downbeat_s: time of the first beat of a bar.
        fixed_tempo: True if the tempo is constant.
        chords: True for chord symbols in all music, False for none. None for chord symbols only if
            several notes often sound at once in the performance.
    """

    bpm: float | None = Field(default=None, ge=SLOWEST_BPM, le=FASTEST_BPM)
    beats_per_bar: int | None = Field(default=None, ge=2, le=MAX_BEATS_PER_BAR)
    # Not a Literal, which would reject the strings of a query.
    subdivision: int | None = Field(default=None, ge=2, le=3)
    first_downbeat_s: float | None = Field(default=None, ge=0, le=86_400)
    fixed_tempo: bool = False
    chords: bool | None = None


NO_BEAT_HINTS = BeatHints()
