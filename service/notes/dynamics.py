"""Loudness of a performance, to which the velocities of its notes are relative.

The velocity head predicts the loudness of a note in the recording. This loudness depends on the
microphone and the gain as much as on the performer. Let h be the head's output for a note, 0 to 1,
and w the number of recent notes, in which older notes count less. Each note updates w and the
level, which is the mean of log h. Its velocity follows from h and the level:

    w'        decay w + 1
    level'    (decay w level + log h) / w'
    velocity  MEAN_VELOCITY h / exp(level')

The first note of a performance has the mean velocity, regardless of the gain. A crescendo over many
notes is preserved. Velocities use a lower bound of the level, so that faint noise stays soft. The
level is rounded, so that a checkpoint contains it exactly.
"""

import math

from service.notes.tracker_settings import MAX_VELOCITY
from service.protocol.checkpoint import Dynamics

MEAN_VELOCITY = 75
"""Geometric mean of the velocities in rendered performances (77 in validation pieces)."""
MIN_LEVEL = math.log(0.02)  # lower bound of the level in ``velocity_of``
_DECAY = 0.99
"""Factor by which each note reduces the weights of the earlier notes. The latest 69 notes then have
half of the total weight. Factors from 0.98 to 1 were equally good: the detected velocities had the
same correlation with the true velocities. Smaller factors were worse."""
_MIN_LOUDNESS = 1e-4  # minimum output of the velocity head, so that its logarithm exists
_DIGITS = 6


def add_note(dynamics: Dynamics, loudness: float) -> Dynamics:
    """Return the state after one more note. loudness: output of the velocity head."""
    weight = _DECAY * dynamics.notes
    level = (weight * dynamics.level + math.log(max(loudness, _MIN_LOUDNESS))) / (weight + 1)
    return Dynamics(round(level, _DIGITS), round(weight + 1, _DIGITS))


def velocity_of(dynamics: Dynamics, loudness: float) -> int:
    """Return the MIDI velocity, 1 to 127, of a note that the level already includes."""
    relative = loudness / math.exp(max(dynamics.level, MIN_LEVEL))
    return max(1, min(MAX_VELOCITY, math.floor(MEAN_VELOCITY * relative + 0.5)))
