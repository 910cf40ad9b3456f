"""How loud a note is within its performance.

The velocity head hears how loud a note arrives, which depends on microphone and gain as much as on
the player. So velocities are relative to the recent notes of the performance: with h what the head
says of a note, 0 to 1, and w the number of recent notes, older ones counting less,

    w'        kept w + 1
    level'    (kept w level + log h) / w'
    velocity  MEAN_VELOCITY h / exp(level')

The first note of a performance is thus of mean velocity, whatever the gain, and a crescendo over
many notes shows. The level has a lower bound, so that faint noise stays soft. Live streams and
recordings follow the same rule. The level is rounded, so that a resume point carries all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from service.notes.tracker_settings import MAX_VELOCITY

MEAN_VELOCITY = 75
"""Geometric mean of the velocities of rendered performances (77 in validation pieces)."""
KEPT = 0.99
"""Of the weight of earlier notes, from note to note: half of it is 69 notes old or newer. The
correlation with played velocities is the same from 0.98 to 1 and lower below."""
LOWEST_LEVEL = math.log(0.02)  # 40 dB below the usual
_SOFTEST = 1e-4  # of the head, so that its logarithm exists
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Dynamics:
    """The level of a performance at one moment.

    Attributes:
        level: mean logarithm of what the velocity head said of the recent notes.
        notes: how many recent notes that is, at most 1 / (1 - KEPT).
    """

    level: float = 0.0
    notes: float = 0.0

    def after(self, loudness: float) -> Dynamics:
        """With one more note, of this output of the velocity head."""
        kept = KEPT * self.notes
        notes = kept + 1
        level = (kept * self.level + math.log(max(loudness, _SOFTEST))) / notes
        return Dynamics(round(level, _DIGITS), round(notes, _DIGITS))

    def velocity(self, loudness: float) -> int:
        """MIDI velocity, 1 to 127, of a note that is part of the level."""
        relative = loudness / math.exp(max(self.level, LOWEST_LEVEL))
        return max(1, min(MAX_VELOCITY, math.floor(MEAN_VELOCITY * relative + 0.5)))
