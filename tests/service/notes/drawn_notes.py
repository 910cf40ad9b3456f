"""Notes drawn as the heads of a model are trained to show them, wild ones, and trackers of both."""

from collections.abc import Callable, Iterable

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.base_tracker import Tracker
from service.notes.events import NoteEvent
from service.notes.monophonic import PIANO
from service.notes.resume import ResumePoint
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import LineSettings, TrackerSettings

FRAME_S = 128 / 11_025
HEADS = ("frame", "onset", "velocity")
ALL_HEADS = (*HEADS, "pedal", PIANO, "offset")
Probabilities = NDArray[np.float32]


def track(
    probabilities: Probabilities,
    chosen: TrackerSettings | None = None,
    heads: tuple[str, ...] = HEADS,
    chunks: Iterable[int] = (),
) -> list[NoteEvent]:
    tracker = NoteTracker(chosen or TrackerSettings(), FRAME_S, heads)
    parts = np.split(probabilities, np.cumsum(list(chunks)), axis=1)
    events = [event for part in parts for event in push(tracker, part)]
    return events + tracker.finish(probabilities.shape[1])


def push(tracker: Tracker, block: Probabilities) -> list[NoteEvent]:
    """The events of new frames, in anytime mode those of one window."""
    new = block.shape[1] if tracker.columns == 1 else 1
    tracker.read(block, new)
    return [event for _ in range(new) for event in tracker.step()]


def hear(tracker: Tracker, drawn: Probabilities) -> list[NoteEvent]:
    """Return the events of a complete stream whose windows agree on each frame."""
    frames, columns = drawn.shape[1], tracker.columns
    if columns == 1:
        return push(tracker, drawn) + tracker.finish(frames)
    padded = np.pad(drawn, ((0, 0), (columns - 1, tracker.last_age), (0, 0)))
    windows = (padded[:, newest : newest + columns] for newest in range(frames))
    events = [event for window in windows for event in push(tracker, window)]
    return events + tracker.finish(frames)


def same_when_resumed(
    opened: Callable[[], Tracker], blocks: list[Probabilities], cut: int, further: int, frames: int
) -> None:
    """Stop a tracker after ``cut`` blocks of one frame. Resume with another tracker, which gets the
    history that it needs and ``further`` frames."""
    whole = opened()
    expected = [event for block in blocks for event in push(whole, block)] + whole.finish(frames)
    one, other = opened(), opened()
    events = [event for block in blocks[:cut] for event in push(one, block)]
    begins = [event for event in events if event.kind == "note_on"]
    ended = {event.note_id for event in events if event.kind == "note_off"}
    first = max(0, cut - one.history_frames - further)
    point = ResumePoint(
        frames=cut,
        notes=len(begins),
        sounding=tuple(event for event in begins if event.note_id not in ended),
        dynamics=one.dynamics,
        free=one.earliest_onset_frames,
    )
    other.resume(first, point)
    assert [event for block in blocks[first:cut] for event in push(other, block)] == []
    events += [event for block in blocks[cut:] for event in push(other, block)]
    assert events + other.finish(frames) == expected


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
    """Check what holds for the events of any probabilities of ``frames`` frames."""
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


@st.composite
def wild_probabilities(draw_from: st.DrawFn) -> Probabilities:
    """Probabilities of a few busy pitches, with runs, jumps and plateaus."""
    rng = np.random.default_rng(draw_from(st.integers(0, 2**32 - 1)))
    frames, levels = draw_from(st.integers(0, 80)), draw_from(st.integers(2, 40))
    out = silence(frames, len(ALL_HEADS))
    steps = rng.integers(0, levels + 1, (len(ALL_HEADS), frames, 4)) / levels
    hold = rng.random((len(ALL_HEADS), frames, 4)) < draw_from(st.floats(0, 0.95))
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
def lines(draw_from: st.DrawFn) -> Probabilities:
    """One line, sometimes two, of doubtful and sure notes, with wild onsets."""
    rng = np.random.default_rng(draw_from(st.integers(0, 2**32 - 1)))
    out = silence(draw_from(st.integers(0, 260)), len(ALL_HEADS))
    frames = out.shape[1]
    out[:3] += 0.2 * rng.random((3, frames, PITCHES), np.float32) ** 8
    for _ in range(frames // 8):
        onset, length = int(rng.integers(frames)), int(rng.integers(2, 60))
        pitch = int(rng.choice([0, 59, 60, 61, 72, 78, 127]))
        out[0, onset : onset + length, pitch] = rng.random()
        out[1, onset, pitch] = rng.random()
        out[4, onset : onset + length] = rng.random() < 0.1
    return out


line_settings = st.builds(
    TrackerSettings,
    onset_correction_frames=st.floats(-0.49, 0.49),
    min_note_frames=st.just(4),
    line=st.builds(
        LineSettings,
        bias=st.floats(-1, 3),
        doubt_bias=st.floats(0, 9),
        cost=st.floats(0, 20),
        onset_weight=st.floats(0, 4),
        again_threshold=st.floats(0.1, 0.9),
    ),
)
