"""Training targets on the frames of the network.

Frame i of a segment that starts at sample s describes sample ``s + HOP * (i + 1)``::

    sample  s        s+128     s+256              s+8064   s+8192
            |----------|---------|---- ... ---------|--------|
    frame              0         1                  62

Values are stored as bytes, which keeps batches small on their way between processes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.config import FRAMES, HOP, PITCHES
from training.music.synth.scores import Notes

ONSET_HOPS = 3
"""Onset and offset targets fall linearly from 1 at the event to 0 at this distance."""
ONSET_SCALE = 255
"""Stored value of an onset or offset target of 1."""
VELOCITY_SCALE = 127

Targets = tuple[NDArray[np.uint8], ...]


def segment_labels(
    notes: Notes, sample_rate: int, start_sample: int = 0, frames: int = FRAMES
) -> Targets:
    """Frame, onset, velocity and offset targets, each uint8 of shape [frames, PITCHES].

    ``frame`` is 1 where onset <= t < offset. ``onset`` is ONSET_SCALE times
    ``max(0, 1 - |t - onset| / (ONSET_HOPS hops))``, the largest over the notes of a pitch;
    ``velocity`` is that note's MIDI velocity and 0 where the onset target is 0. ``offset`` is like
    ``onset`` around the ends of notes.
    """
    frame = np.zeros((frames, PITCHES), np.uint8)
    # In units of frames: note positions become comparable with frame numbers directly.
    scale = sample_rate / HOP
    shift = start_sample / HOP + 1
    begin = notes.onset * scale - shift
    end = notes.offset * scale - shift
    pitch = notes.pitch.astype(np.intp)
    # A tiny tolerance, so that a note exactly on a frame survives the rounding of its seconds.
    first = np.clip(np.ceil(begin - 1e-6), 0, frames).astype(np.intp)
    last = np.clip(np.ceil(end - 1e-6), 0, frames).astype(np.intp)
    for i in np.flatnonzero(last > first):
        frame[first[i] : last[i], pitch[i]] = 1
    onset, velocity = _triangles(begin, pitch, notes.velocity, frames)
    offset, _ = _triangles(end, pitch, notes.velocity, frames)
    return frame, onset, velocity, offset


def _triangles(
    moment: NDArray[np.float64],
    pitch: NDArray[np.intp],
    velocity: NDArray[np.float32],
    frames: int,
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Triangles around the moments (in frames), and the velocity of the nearest of each pitch."""
    near = np.floor(moment).astype(np.intp)
    height = np.zeros((frames, PITCHES), np.float64)
    loudness = np.zeros((frames, PITCHES), np.uint8)
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
        loudness[cells] = np.clip(np.rint(velocity[keep][better]), 1, VELOCITY_SCALE)
    target = np.rint(height * ONSET_SCALE).astype(np.uint8)
    loudness[target == 0] = 0
    return target, loudness
