"""Notes drawn as the heads of a model are trained to show them, and a tracker that finds them."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.anytime import AnytimeTracker
from service.notes.base_tracker import Known
from service.notes.events import NoteEvent
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings

FRAME_S = 128 / 11_025
HEADS = ("frame", "onset", "velocity")
ALL_HEADS = (*HEADS, "offset", "pedal")
Probabilities = NDArray[np.float32]


def track(
    probabilities: Probabilities,
    chunks: Iterable[int] = (),
    tracker_settings: TrackerSettings | None = None,
    heads: tuple[str, ...] = HEADS,
) -> list[NoteEvent]:
    tracker = NoteTracker(tracker_settings or TrackerSettings(), FRAME_S, heads)
    known, start = [], 0
    for size in [*chunks, probabilities.shape[1]]:
        part = probabilities[:, start : start + size]
        known += tracker.push(part)
        start += part.shape[1]
    return events_of([*known, *tracker.finish(probabilities.shape[1])])


def hear(tracker: NoteTracker | AnytimeTracker, drawn: Probabilities) -> list[NoteEvent]:
    """Of a whole stream, of which a window shows each frame as the others do."""
    frames = drawn.shape[1]
    if isinstance(tracker, NoteTracker):
        return events_of([*tracker.push(drawn), *tracker.finish(frames)])
    columns = tracker.columns
    padded = np.pad(drawn, ((0, 0), (columns - 1, tracker.last_age), (0, 0)))
    known: Known = []
    for newest in range(frames):
        known += tracker.push(padded[:, newest : newest + columns])
    return events_of([*known, *tracker.finish(frames)])


def events_of(known: Known) -> list[NoteEvent]:
    return [event for _, event in known]


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


def check_laws(events: Iterable[NoteEvent], chosen: TrackerSettings, frames: int) -> None:
    """What holds for the events of any probabilities of ``frames`` frames."""
    open_notes: dict[int, NoteEvent] = {}
    ended_s: dict[int, float] = {}
    begun: list[int] = []
    for event in events:
        assert type(event.time_s) is type(event.confidence) is float  # plain: they become JSON
        assert type(event.frame) is type(event.pitch) is type(event.velocity) is int
        assert 0 <= event.frame <= frames
        off_frame = 0.5 + abs(chosen.onset_correction_frames)
        assert abs(event.time_s - event.frame * FRAME_S) <= off_frame * FRAME_S + 1e-6
        if event.kind == "note_on":
            assert event.pitch not in open_notes
            assert ended_s.get(event.pitch, 0.0) <= event.time_s
            assert event.frame < frames
            assert 1 <= event.velocity <= 127
            assert 0 <= event.confidence <= 1
            open_notes[event.pitch] = event
            begun.append(event.note_id)
        else:
            on = open_notes.pop(event.pitch)
            assert on.note_id == event.note_id
            assert on.time_s < event.time_s
            assert event.frame - on.frame >= chosen.min_note_frames or event.frame == frames
            ended_s[event.pitch] = event.time_s
    assert open_notes == {}
    assert begun == list(range(len(begun)))


def sounding_after(events: Iterable[NoteEvent]) -> tuple[int, tuple[NoteEvent, ...]]:
    """How many notes have begun, and the beginnings of those that sound."""
    sounding: dict[int, NoteEvent] = {}
    notes = 0
    for event in events:
        if event.kind == "note_on":
            notes += 1
            sounding[event.note_id] = event
        else:
            del sounding[event.note_id]
    return notes, tuple(sounding.values())
