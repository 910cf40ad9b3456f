"""The pitch of notes from frame to frame."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.bends import BATCH_FRAMES, MAX_SEMITONES, BendTracker, Curve, lag
from service.notes.events import BendEvent, Event, NoteEvent
from service.notes.resume import ResumePoint
from service.protocol.client_messages import Checkpoint
from service.stream.resume import checkpoint_of, resume_point

FRAME_S = 0.01
PITCH = 60


def row_of(curve: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the row of a tone with this deviation from PITCH in cents in each frame: the nearest
    peak at every pitch, at most half a semitone away."""
    away = np.clip(100 * PITCH + curve[:, None] - 100 * np.arange(PITCHES), -50, 50)
    return (0.5 + away / 200).astype(np.float32)


def note(kind: Any, frame: int, note_id: int = 0, pitch: int = PITCH) -> NoteEvent:
    return NoteEvent(kind, note_id, pitch, 75, 0.9, frame, frame * FRAME_S)


def run(
    tracker: BendTracker,
    rows: NDArray[np.float32],
    events: dict[int, list[NoteEvent]],
    sizes: list[int],
    first: int = 0,
) -> list[Event]:
    """Return the bends reported for rows in blocks of these sizes, used in turn. Events are keyed
    by the frame at which they were decided."""
    out: list[Event] = []
    sizes = sizes * len(rows)
    while first < len(rows):
        block = rows[first : first + sizes.pop()]
        tracker.append_rows(block, 0.0)
        for frame in range(first, first + len(block)):
            out += tracker.step(frame, events.get(frame, []))
        first += len(block)
    return out


def curve_of(events: list[Event]) -> list[float]:
    """The bends of one note, whose pieces follow each other."""
    out: list[float] = []
    first = None
    for event in events:
        if isinstance(event, BendEvent):
            first = event.frame if first is None else first
            assert event.frame == first + len(out)
            assert event.time_s == round(event.frame * FRAME_S, 6)
            out += event.cents
    return out


def test_vibrato_and_a_glide_beyond_half_a_semitone_are_followed() -> None:
    wanted = 130 * np.sin(np.arange(80) / 6)
    late = np.concatenate([np.zeros(lag(PITCH)), wanted])
    events = {12: [note("note_on", 5)], 75: [note("note_off", 70)]}
    reported = run(BendTracker(FRAME_S), row_of(late), events, [7])
    found = curve_of(reported)
    assert np.abs(np.array(found) - wanted[5:][: len(found)]).max() <= 0.1
    assert 70 - 5 <= len(found) <= 75 - 5
    assert isinstance(reported[-1], NoteEvent)  # nothing follows the end


def test_bends_count_from_the_same_pitch_when_the_filterbank_is_read_higher() -> None:
    glide = np.linspace(-60, 60, 80)
    row = row_of(np.concatenate([glide[:40], glide[40:] - 33]))  # selected from frame 40 on
    tracker = BendTracker(FRAME_S)
    tracker.append_rows(row[:40], 0.0)
    tracker.append_rows(row[40:], 33.0)
    tracker.resume(80, [note("note_on", 0)], {0: Curve(0)})
    found = curve_of(tracker.step(79, []))
    wanted = np.concatenate([glide[lag(PITCH) :]])
    assert np.abs(np.array(found) - wanted[: len(found)]).max() <= 0.1


def test_no_curve_leaves_its_note() -> None:
    away = np.linspace(0, 700, 60)
    found = curve_of(run(BendTracker(FRAME_S), row_of(away), {0: [note("note_on", 0)]}, [1]))
    assert max(found) <= 100 * MAX_SEMITONES + 50
    silence = np.zeros((40, PITCHES), np.float32)
    assert set(curve_of(run(BendTracker(FRAME_S), silence, {0: [note("note_on", 0)]}, [4]))) == {
        0.0
    }


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
    st.integers(0, 119),
    st.integers(0, 2**32 - 1),
)
def test_blocks_do_not_matter_and_a_resumed_stream_goes_on_alike(
    sizes: list[int], cut: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0.25, 0.75, (120, PITCHES)).astype(np.float32)
    events = {
        20: [note("note_on", 10)],
        31: [note("note_on", 28, 1, 40)],
        60: [note("note_off", 55), note("note_on", 57, 2)],
        100: [note("note_off", 99, 1, 40)],
    }
    whole = run(BendTracker(FRAME_S), rows, events, [120])
    assert run(BendTracker(FRAME_S), rows, events, sizes) == whole

    one, other = BendTracker(FRAME_S), BendTracker(FRAME_S)
    before = run(one, rows[:cut], events, sizes)
    ons = {e.note_id: e for e in before if isinstance(e, NoteEvent) and e.kind == "note_on"}
    ended = {e.note_id for e in before if isinstance(e, NoteEvent) and e.kind == "note_off"}
    sounding = tuple(event for number, event in ons.items() if number not in ended)
    point = ResumePoint(frames=cut, notes=3, sounding=sounding, curves=dict(one.curves))
    sent = checkpoint_of("0", point).model_dump_json()
    received = resume_point(Checkpoint.model_validate_json(sent))
    assert received.curves == point.curves
    first = max(0, cut - 40)
    other.resume(first, received.sounding, received.curves)
    other.append_rows(rows[first:cut], 0.0)
    assert [*before, *run(other, rows, events, sizes, cut)] == whole
    assert BATCH_FRAMES <= 40
