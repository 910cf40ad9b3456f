"""Synthetic probabilities of notes, and helpers that run trackers on them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import CENTS, PITCHES
from service.notes.base_tracker import Tracker
from service.notes.events import NoteEvent
from service.notes.monophonic import PIANO
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings
from service.protocol.checkpoint import Checkpoint

FRAME_S = 128 / 11_025
HEADS = ("frame", "onset", "velocity")
ALL_HEADS = (*HEADS, "pedal", PIANO, "offset")
SINGER_HEADS = (*HEADS, CENTS)
Probabilities = NDArray[np.float32]


def track(
    probabilities: Probabilities,
    settings: TrackerSettings | None = None,
    heads: tuple[str, ...] = HEADS,
) -> list[NoteEvent]:
    """Return the events of a note tracker."""
    return run_tracker(NoteTracker(settings or TrackerSettings(), FRAME_S, heads), probabilities)


def push(tracker: Tracker, block: Probabilities) -> list[NoteEvent]:
    """Return the events of new frames. In anytime mode the block is one window."""
    new = block.shape[1] if tracker.columns == 1 else 1
    tracker.read(block, new)
    return [event for _ in range(new) for event in tracker.step()]


def run_tracker(tracker: Tracker, probs: Probabilities) -> list[NoteEvent]:
    """Return the events of a complete stream whose windows agree about each frame."""
    frames, columns = probs.shape[1], tracker.columns
    if columns == 1:
        return push(tracker, probs) + tracker.finish(frames)
    padded = np.pad(probs, ((0, 0), (columns - 1, tracker.last_age), (0, 0)))
    windows = (padded[:, newest : newest + columns] for newest in range(frames))
    events = [event for window in windows for event in push(tracker, window)]
    return events + tracker.finish(frames)


def check_resume(
    open_tracker: Callable[[], Tracker],
    blocks: list[Probabilities],
    cut: int,
    extra_frames: int,
    frames: int,
) -> None:
    """Check that a resume changes no event. The first tracker stops after ``cut`` blocks of one
    frame. The second one receives the required history, preceded by ``extra_frames`` frames."""
    uncut = open_tracker()
    expected = [event for block in blocks for event in push(uncut, block)] + uncut.finish(frames)
    stopped, resumed = open_tracker(), open_tracker()
    events = [event for block in blocks[:cut] for event in push(stopped, block)]
    ons = [event for event in events if event.kind == "note_on"]
    ended = {event.note_id for event in events if event.kind == "note_off"}
    first = max(0, cut - stopped.history_frames - extra_frames)
    sounding = [event for event in ons if event.note_id not in ended]
    state = {"dynamics": stopped.dynamics, "free": stopped.earliest_onset_frames}
    resumed.resume(first, checkpoint_at(cut, sounding, notes=len(ons), **state))
    assert [event for block in blocks[first:cut] for event in push(resumed, block)] == []
    events += [event for block in blocks[cut:] for event in push(resumed, block)]
    assert events + resumed.finish(frames) == expected


def checkpoint_at(
    frames: int, sounding: Sequence[NoteEvent], *, notes: int = 3, **state: Any
) -> Checkpoint:
    """Return a checkpoint after ``frames`` frames. state: further fields."""
    start = {"session_id": "0", "from_sample": 0, "sounding": tuple(sounding)}
    return Checkpoint.model_validate({**start, "frames": frames, "notes": notes, **state})


def spans(events: Iterable[NoteEvent]) -> list[tuple[int, int, int]]:
    """Return (pitch, first frame, end frame) of each note."""
    events = list(events)
    ends = {event.note_id: event.frame for event in events if event.kind == "note_off"}
    ons = [event for event in events if event.kind == "note_on"]
    return [(on.pitch, on.frame, ends[on.note_id]) for on in ons]


def silence(frames: int, heads: int = 3) -> Probabilities:
    return np.zeros((heads, frames, PITCHES), np.float32)


def add_note(
    probabilities: Probabilities,
    pitch: int,
    onset: float,
    offset: int,
    velocity: int = 100,
    height: float = 0.95,
) -> None:
    """Add a note in the shape of the training targets. Its onset is a triangle 6 frames wide."""
    frame = np.arange(probabilities.shape[1])
    triangle = np.clip(1 - np.abs(frame - onset) / 3, 0, 1)
    probabilities[0, (frame >= round(onset)) & (frame < offset), pitch] = 0.9
    probabilities[1, :, pitch] = np.maximum(probabilities[1, :, pitch], height * triangle)
    probabilities[2, triangle > 0, pitch] = velocity / 127


def sung(curve: NDArray[np.float64], confidence: float = 0.8) -> Probabilities:
    """Return the outputs for a voice whose MIDI pitch per frame is ``curve``; NaN is silence. Its
    probability is spread over the two nearest semitones, as a network predicts it."""
    probs = silence(len(curve), len(SINGER_HEADS))
    for frame, pitch in enumerate(curve):
        if not np.isnan(pitch):
            low, share = int(pitch), pitch % 1
            probs[0, frame, low : low + 2] = confidence * (1 - share), confidence * share
            nearest = round(pitch)
            probs[3, frame, nearest] = 0.5 + (pitch - nearest) / 2
    return probs


def check_events(events: Iterable[NoteEvent], settings: TrackerSettings, frames: int) -> None:
    """Check the properties that events of any probabilities of ``frames`` frames have."""
    open_notes: dict[int, NoteEvent] = {}
    ended_s: dict[int, float] = {}
    note_ids: list[int] = []
    for event in events:
        assert type(event.time_s) is type(event.confidence) is float  # not NumPy: JSON
        assert type(event.frame) is type(event.pitch) is type(event.velocity) is int
        assert 0 <= event.frame <= frames
        max_shift_frames = 0.5 + abs(settings.onset_correction_frames)
        assert abs(event.time_s - event.frame * FRAME_S) <= max_shift_frames * FRAME_S + 1e-6
        if event.kind == "note_on":
            assert event.pitch not in open_notes
            assert ended_s.get(event.pitch, 0.0) <= event.time_s
            assert event.frame < frames
            assert 1 <= event.velocity <= 127
            assert 0 <= event.confidence <= 1
            open_notes[event.pitch] = event
            note_ids.append(event.note_id)
        else:
            on = open_notes.pop(event.pitch)
            assert on.note_id == event.note_id
            assert on.time_s < event.time_s
            assert event.frame - on.frame >= settings.min_note_frames or event.frame == frames
            ended_s[event.pitch] = event.time_s
    assert open_notes == {}
    assert note_ids == list(range(len(note_ids)))


@st.composite
def random_probabilities(draw: st.DrawFn) -> Probabilities:
    """Draw probabilities of four pitches, with jumps and plateaus."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    frames, levels = draw(st.integers(0, 80)), draw(st.integers(2, 40))
    out = silence(frames, len(ALL_HEADS))
    steps = rng.integers(0, levels + 1, (len(ALL_HEADS), frames, 4)) / levels
    hold = rng.random((len(ALL_HEADS), frames, 4)) < draw(st.floats(0, 0.95))
    for i in range(1, frames):
        steps[:, i] = np.where(hold[:, i], steps[:, i - 1], steps[:, i])
    out[:, :, [0, 60, 61, 127]] = steps
    return out


tracker_settings = st.builds(
    TrackerSettings,
    onset_threshold=st.floats(0.1, 0.9),
    onset_thresholds=st.just({}) | st.just({"piano": 0.6, "voice": 0.2}),
    end_biases=st.just({}) | st.just({"piano": 1.0, "voice": -1.0}),
    onset_correction_frames=st.floats(-0.49, 0.49),
    frame_on_threshold=st.floats(0.3, 0.9),
    end_bias=st.floats(-3, 3),
    pedal_end_bias=st.floats(-1, 3),
    offset_weight=st.floats(0, 4),
    min_note_frames=st.integers(2, 8),
)


@st.composite
def melodies(draw: st.DrawFn) -> Probabilities:
    """Draw one or two melodies, with notes of any confidence and random onsets."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    out = silence(draw(st.integers(0, 260)), len(ALL_HEADS))
    frames = out.shape[1]
    out[:3] += 0.2 * rng.random((3, frames, PITCHES), np.float32) ** 8
    for _ in range(frames // 8):
        onset, length = int(rng.integers(frames)), int(rng.integers(2, 60))
        pitch = int(rng.choice([0, 59, 60, 61, 72, 78, 127]))
        out[0, onset : onset + length, pitch] = rng.random()
        out[1, onset, pitch] = rng.random()
        out[4, onset : onset + length] = rng.random() < 0.1
    return out


@st.composite
def songs(draw: st.DrawFn) -> Probabilities:
    """Draw a voice with steps, glides, vibrato and silences, and sometimes a second voice."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    curve = np.zeros(0)
    while len(curve) < draw(st.integers(0, 300)):
        target, length = rng.uniform(50, 70), int(rng.integers(3, 60))
        start = curve[-1] if len(curve) and rng.random() < 0.5 else target
        part = np.interp(np.arange(length), [0, length / 3], [start, target])
        part = part + rng.uniform(0, 1) * np.sin(np.arange(length) / rng.uniform(1, 4))
        curve = np.append(curve, part if rng.random() < 0.8 else np.full(length, np.nan))
    out = sung(curve, rng.uniform(0.1, 1))
    out[0] *= rng.random((out.shape[1], 1)) ** draw(st.sampled_from([0, 0.3, 1]))
    out[1] = out[0] * rng.random(out[0].shape) ** 3
    for _ in range(draw(st.integers(0, 2))):
        onset = int(rng.integers(0, max(1, out.shape[1])))
        out[0, onset : onset + 12, int(rng.integers(72, PITCHES))] = 0.9
    return out


line_settings = st.builds(
    TrackerSettings,
    onset_correction_frames=st.floats(-0.49, 0.49),
    min_note_frames=st.just(4),
    line=st.just(True),
)
