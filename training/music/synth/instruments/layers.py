"""Dynamics between recorded layers: a mix of two adjacent layers of a pitch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.music.synth.instruments.bank import Instrument

SAME_PITCH = 0.6
"""Recorded notes within this many semitones count as one pitch."""
LEAST = 0.1
"""Smaller shares would be inaudible and are left out."""

COHERENT = 0.6
"""Smallest correlation for mixing two recordings: below it, partials would cancel."""
COMPARED = 4096
"""Samples over which the correlation is computed."""


def neighbours(
    instrument: Instrument, pick: NDArray[np.intp], velocity: NDArray[np.floating[Any]]
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """For n notes that play recording ``pick``: the recording to mix with it, and its share, [n].

    It is of the same pitch, from the layer next to the picked one on the side of the note's
    velocity. The share grows in proportion from 0 at the picked layer to 1 at the other, and is 0
    where there is no such recording.
    """
    recorded = instrument.velocity
    away = velocity - recorded[pick]
    # Distance of every recording from the picked one, in the direction of the note's velocity.
    distance = (recorded[None, :] - recorded[pick][:, None]) * np.sign(away)[:, None]
    near = np.abs(instrument.midi[None, :] - instrument.midi[pick][:, None]) < SAME_PITCH
    distance = np.where(near & (distance > 0), distance, np.inf)
    other = distance.argmin(axis=1)
    share = np.minimum(1, np.abs(away) / distance[np.arange(len(pick)), other])
    return other, np.where(share < LEAST, 0, share).astype(np.float32)


def mixed(
    sound: NDArray[np.float32], other: NDArray[np.float32], share: float
) -> NDArray[np.float32]:
    """``share`` of ``other`` in ``sound``, equally long and aligned at their onsets.

    Incoherent recordings are not mixed; one of opposite polarity is inverted.
    """
    head, second = sound[:COMPARED], other[:COMPARED]
    strength = float(np.linalg.norm(head) * np.linalg.norm(second))
    correlation = float(head @ second) / max(strength, 1e-9)
    if abs(correlation) < COHERENT:
        return sound
    return sound + np.float32(share) * (np.float32(np.sign(correlation)) * other - sound)
