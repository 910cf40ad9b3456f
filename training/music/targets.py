"""Training targets of each frame, computed from notes.

Frame i of a segment that starts at sample s describes sample ``s + HOP * (i + 1)``. Values are
stored as bytes, so that worker processes can send batches cheaply.
"""

from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from model.config import FRAMES, HOP, PITCHES
from training.arrays import F64
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, Notes

ONSET_HOPS = 3  # onset and offset targets fall linearly from 1 at the event to 0 at this distance
ONSET_SCALE = 255  # stored value of an onset or offset target of 1
VELOCITY_SCALE = 127
PEDAL_SCALE = 254  # stored value of a fully pressed pedal
PEDAL_UNKNOWN = 255

T = TypeVar("T", NDArray[np.uint8], Tensor, int)


class Targets(NamedTuple, Generic[T]):
    """Targets of consecutive frames, [frames, PITCHES] except for ``pedal``. Batches have an
    additional first axis for windows. Arrays are uint8. Tensors are float32, divided by SCALES."""

    frame: T  # 1 where a note sounds, i.e. onset <= t < offset at the time t of the frame
    onset: T
    """ONSET_SCALE times ``max(0, 1 - |t - onset| / (ONSET_HOPS hops))``, the maximum over the notes
    of a pitch."""
    velocity: T
    """MIDI velocity of the nearest note; 0 where ``onset`` is 0 or the velocity is unknown."""
    offset: T  # like ``onset``, but around the offsets of notes
    instrument: T  # 1 + class number of the nearest note; 0 without an onset or a class
    pedal: T  # [frames], depth of the sustain pedal times PEDAL_SCALE, or PEDAL_UNKNOWN
    frame_unknown: T  # 1 where ``frame`` and ``offset`` are uncertain
    onset_unknown: T  # 1 where ``onset`` is uncertain


SCALES = Targets(1, ONSET_SCALE, VELOCITY_SCALE, ONSET_SCALE, 1, PEDAL_SCALE, 1, 1)
"""Divisors of the stored values. An unknown pedal becomes a value above 1."""


def segment_labels(
    notes: Notes,
    sample_rate: int,
    start_sample: int = 0,
    frames: int = FRAMES,
    pedal: F64 | None = None,
    unknown: F64 | None = None,
) -> Targets[NDArray[np.uint8]]:
    """Return the targets of a segment. For ``pedal`` and ``unknown`` see ``render.Rendered``."""

    def position(seconds: F64) -> F64:  # in frames
        return seconds * (sample_rate / HOP) - (start_sample / HOP + 1)

    def span(begin_s: float, end_s: float) -> slice:
        # Times in seconds are rounded, so notes that start exactly on a frame need a tolerance.
        within = np.clip(np.ceil(position(np.array([begin_s, end_s])) - 1e-6), 0, frames)
        return slice(*within.astype(int))

    frame = np.zeros((frames, PITCHES), np.uint8)
    pitch = notes.pitch.astype(np.intp)
    for begin_s, end_s, at in zip(notes.onset, notes.offset, pitch, strict=True):
        frame[span(begin_s, end_s), at] = 1
    onset, note = _triangles(position(notes.onset), pitch, frames)
    offset, _ = _triangles(position(notes.offset), pitch, frames)
    # Cells without a note have the index -1, i.e. the last element, which is 0.
    velocity = np.append(np.clip(np.rint(notes.velocity), 0, VELOCITY_SCALE), 0).astype(np.uint8)
    instrument = np.append(notes.instrument + 1, 0).astype(np.uint8)
    depth = np.full(frames, PEDAL_UNKNOWN if pedal is None else 0, np.uint8)
    for begin_s, end_s, press_depth in () if pedal is None else pedal:
        press = depth[span(begin_s, end_s)]
        np.maximum(press, np.uint8(np.rint(press_depth * PEDAL_SCALE)), out=press)
    uncertain = np.zeros((2, frames, PITCHES), np.uint8)
    for begin_s, end_s, at, bits in () if unknown is None else unknown:
        pitches = slice(None) if at < 0 else int(at)
        for row, bit in enumerate((FRAME_UNKNOWN, ONSET_UNKNOWN)):
            if int(bits) & bit:
                uncertain[row, span(begin_s, end_s), pitches] = 1
    return Targets(frame, onset, velocity[note], offset, instrument[note], depth, *uncertain)


def _triangles(
    moment: F64, pitch: NDArray[np.intp], frames: int
) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Return triangular targets around each ``moment``, [n], which is in frames. Also return for
    each cell the index of the nearest moment, or -1. Both arrays are [frames, PITCHES]."""
    near = np.floor(moment).astype(np.intp)
    height = np.zeros((frames, PITCHES), np.float64)
    nearest = np.full((frames, PITCHES), -1, np.intp)
    for step in range(1 - ONSET_HOPS, ONSET_HOPS + 1):
        at = near + step
        value = 1.0 - np.abs(at - moment) / ONSET_HOPS
        keep = np.flatnonzero((at >= 0) & (at < frames) & (value > 0))
        # Ascending order: where two moments share a cell, the higher target is written last.
        keep = keep[np.argsort(value[keep], kind="stable")]
        cells = (at[keep], pitch[keep])
        better = value[keep] >= height[cells]
        cells = (cells[0][better], cells[1][better])
        height[cells] = value[keep][better]
        nearest[cells] = keep[better]
    target = np.rint(height * ONSET_SCALE).astype(np.uint8)
    nearest[target == 0] = -1
    return target, nearest
