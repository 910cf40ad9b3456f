"""Velocities as they are heard.

The gain of a recording is unknown, so a short window does not show the velocity that was played,
and a network trained on it predicts nearly the same for every note. It can only hear how loud a
note arrives. So labels shift all velocities of an excerpt by its level; the differences between its
notes stay as played.
"""

import numpy as np
from numpy.typing import NDArray

from training.music.synth.render import REFERENCE_VELOCITY, Voice
from training.music.targets import VELOCITY_SCALE

DYNAMIC_DB = Voice.dynamic_db
TYPICAL_DB = -10.0
"""Level of a passage played at REFERENCE_VELOCITY: played velocities are heard as they are."""
_BLOCK_S = 0.1
_LOUD = 90  # percentile of the blocks that gives the level, for music has rests


def heard_velocities(
    audio: NDArray[np.float32], sample_rate: int, velocity: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Velocities, [notes], 1 to 127, of an excerpt as recorded; 0, unknown, stays 0."""
    known = velocity > 0
    block = int(_BLOCK_S * sample_rate)
    count = len(audio) // block
    if not known.any() or not count:
        return velocity
    power = np.square(audio[: count * block].reshape(count, block)).mean(axis=1)
    level_db = 10 * np.log10(max(float(np.percentile(power, _LOUD)), 1e-12))
    played_db = DYNAMIC_DB * np.log10(float(velocity[known].mean()) / REFERENCE_VELOCITY)
    factor = 10 ** ((level_db - played_db - TYPICAL_DB) / DYNAMIC_DB)
    heard = np.clip(velocity * factor, 1, VELOCITY_SCALE)
    return np.where(known, heard, 0).astype(np.float32)
