"""Notes drawn as the heads of a model are trained to show them, and a tracker that finds them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.events import NoteEvent
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings

FRAME_S = 128 / 11_025
HEADS = ("frame", "onset", "velocity")
ALL_HEADS = (*HEADS, "offset")
Probabilities = NDArray[np.float32]


def track(
    probabilities: Probabilities,
    chunks: Iterable[int] = (),
    tracker_settings: TrackerSettings | None = None,
    heads: tuple[str, ...] = HEADS,
) -> list[NoteEvent]:
    tracker = NoteTracker(tracker_settings or TrackerSettings(), FRAME_S, heads)
    events, start = [], 0
    for size in [*chunks, probabilities.shape[1]]:
        part = probabilities[:, start : start + size]
        events += tracker.push(start, part)
        start += part.shape[1]
    return [*events, *tracker.finish(probabilities.shape[1])]


def silence(frames: int, heads: int = 3) -> Probabilities:
    return np.zeros((heads, frames, PITCHES), np.float32)


def draw(
    probabilities: Probabilities,
    pitch: int,
    onset: float,
    offset: int,
    velocity: int = 100,
    height: float = 0.95,
) -> None:
    """A note as the heads are trained to show it: a triangle of 3 frames about the onset."""
    at = np.arange(probabilities.shape[1])
    triangle = np.clip(1 - np.abs(at - onset) / 3, 0, 1)
    probabilities[0, (at >= round(onset)) & (at < offset), pitch] = 0.9
    probabilities[1, :, pitch] = np.maximum(probabilities[1, :, pitch], height * triangle)
    probabilities[2, triangle > 0, pitch] = velocity / 127
