"""How far a performance is from A4 = 440 Hz, and the shift of the filterbank that follows it.

A performance in another tuning has its notes between the network's pitches. Its spectral peaks are
equally far from the nearest pitches, on average. So a block of audio gives a vector, the mean of
exp(2 pi i deviation / 100 cents) over them (``service.audio.tuning``). The sum of these vectors,
which slowly forgets, points to the deviation; the more they agree, the longer it is. The network
then reads its filters so many bins higher that what is left is less than half of one (33 cents
apart, with three in a semitone)::

    deviation   -50        -33        -17         0         17         33         50 cents
    shift         -1 or 1  |    -1     |           0          |     1     |   -1 or 1

A whole semitone cannot be told from none: who drifts by more than a half is heard a semitone off
from there on. The rule is causal, and live streams and recordings follow it alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

CONCERT_HZ = 440.0
KEPT = 0.97  # of the vectors so far, from block to block: half of the sum is 8.5 s old or newer
LEAST_SUM, LEAST_AGREEMENT = 3.0, 0.15
"""Length of the sum, and of the sum per block, below which nothing follows: instruments reach 0.3
to 0.9 per block, and are followed after 1 to 4 s; singers alone 0.1 to 0.3, noise next to none."""
TOLERANCE_CENTS = 17.0  # deviation that is not followed: half a bin
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Tuning:
    """What is known of a performance's tuning at one moment.

    Attributes:
        along, across: the sum of the blocks' vectors.
        blocks: how many blocks with sound it remembers, older ones less.
        shift: bins by which the filterbank is read higher.
    """

    along: float = 0.0
    across: float = 0.0
    blocks: float = 0.0
    shift: int = 0

    def after(self, vector: complex, bins_per_semitone: int) -> Tuning:
        """With one more block, which had sound."""
        total = KEPT * complex(self.along, self.across) + vector
        blocks = KEPT * self.blocks + 1
        shift = self.shift
        if abs(total) >= max(LEAST_SUM, LEAST_AGREEMENT * blocks):
            bin_cents = 100.0 / bins_per_semitone
            deviation = 100 * math.atan2(total.imag, total.real) / math.tau
            left = (deviation - bin_cents * shift + 50) % 100 - 50
            if abs(left) > TOLERANCE_CENTS:
                shift += round(left / bin_cents)
                half = bins_per_semitone // 2
                shift = (shift + half) % bins_per_semitone - half
        along, across = round(total.real, _DIGITS), round(total.imag, _DIGITS)
        return Tuning(along, across, round(blocks, _DIGITS), shift)


UNKNOWN = Tuning()


def fixed_shift(tuning_hz: float, bins_per_semitone: int) -> int:
    """The shift for a performance whose A4 is known."""
    return round(12 * bins_per_semitone * math.log2(tuning_hz / CONCERT_HZ))
