"""What networks learn to say about each frame.

Values are stored as bytes, so batches between processes are small.
"""

from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

ONSET_HOPS = 3
"""Onset and offset targets fall linearly from 1 at the event to 0 at this distance."""
ONSET_SCALE = 255
"""Stored value of an onset or offset target of 1."""
VELOCITY_SCALE = 127
PEDAL_SCALE = 254
"""Stored value of a fully pressed pedal."""
PEDAL_UNKNOWN = 255

T = TypeVar("T", NDArray[np.uint8], Tensor, int)


class Targets(NamedTuple, Generic[T]):
    """Targets of some frames, of shape [frames, PITCHES] except ``pedal``; in a batch, with the
    windows before it. As arrays they are uint8; as tensors for a loss, floats divided by SCALES."""

    frame: T
    """1 where onset <= t < offset."""
    onset: T
    """ONSET_SCALE times ``max(0, 1 - |t - onset| / (ONSET_HOPS hops))``, the largest over the
    notes of a pitch."""
    velocity: T
    """MIDI velocity of that note; 0 where ``onset`` is 0 or the velocity is unknown."""
    offset: T
    """Like ``onset`` around the ends of notes."""
    instrument: T
    """1 + class number of that note; 0 like ``velocity``."""
    pedal: T
    """[frames], depth of the sustain pedal times PEDAL_SCALE, or PEDAL_UNKNOWN."""
    frame_unknown: T
    """1 where ``frame`` and ``offset`` are doubtful."""
    onset_unknown: T
    """1 where ``onset`` is doubtful."""


SCALES = Targets(1, ONSET_SCALE, VELOCITY_SCALE, ONSET_SCALE, 1, PEDAL_SCALE, 1, 1)
"""What the stored values are divided by; an unknown pedal is then above 1."""
