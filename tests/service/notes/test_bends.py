"""Tests of the pitch curves of notes."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.bends import MAX_SEMITONES, BendTracker, lag
from service.notes.events import BendEvent, Event, NoteEvent
from service.notes.note_collector import NoteCollector
from service.protocol.checkpoint import Checkpoint, Curve
from tests.service.notes.synthetic_notes import checkpoint_at

FRAME_S = 0.01
PITCH = 60


def rows_of(curve: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the cents outputs of a tone. ``curve`` is its deviation from PITCH in cents in each
    frame. Each pitch shows the tone, clipped to half a semitone."""
    deviation = np.clip(100 * PITCH + curve[:, None] - 100 * np.arange(PITCHES), -50, 50)
    return (0.5 + deviation / 200).astype(np.float32)


def note(kind: Any, frame: int, note_id: int = 0, pitch: int = PITCH) -> NoteEvent:
    return NoteEvent(kind, note_id, pitch, 75, 0.9, frame, frame * FRAME_S)


def run_bends(
    tracker: BendTracker,
    rows: NDArray[np.float32],
    events: dict[int, list[NoteEvent]],
    sizes: list[int],
    first: int = 0,
) -> list[Event]:
    """Return the events reported for rows in blocks of ``sizes``, which repeat. The keys of
    ``events`` are the frames in which they were decided."""
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
    """Return the bends of one note. Check that its batches are contiguous."""
    out: list[float] = []
    first = None
    for event in events:
        if isinstance(event, BendEvent):
            first = event.frame if first is None else first
            assert event.frame == first + len(out)
            assert event.time_s == round(event.frame * FRAME_S, 6)
            out += event.cents
    return out


def test_curve_follows_vibrato_beyond_half_a_semitone() -> None:
    expected = 130 * np.sin(np.arange(80) / 6)
    delayed = np.concatenate([np.zeros(lag(PITCH)), expected])
    events = {12: [note("note_on", 5)], 75: [note("note_off", 70)]}
    reported = run_bends(BendTracker(FRAME_S), rows_of(delayed), events, [7])
    curve = curve_of(reported)
    assert np.abs(np.array(curve) - expected[5:][: len(curve)]).max() <= 0.1
    assert 70 - 5 <= len(curve) <= 75 - 5
    assert isinstance(reported[-1], NoteEvent)  # no bend follows the note_off


def test_bends_of_a_resumed_note_are_omitted_if_the_first_are_missing() -> None:
    collector = NoteCollector(2, [note("note_on", 100, 0), note("note_on", 108, 1, 62)])
    collector.add(BendEvent(n, pitch, 108, 1.08, (9.0,) * 5) for n, pitch in ((0, PITCH), (1, 62)))
    collector.add([note("note_off", 110, 0), note("note_off", 110, 1, 62)])
    assert [completed.bends for completed in collector.notes] == [None, (9.0, 9.0)]


def test_no_empty_bend_is_reported_at_the_end_of_a_stream() -> None:
    tracker = BendTracker(FRAME_S)
    tracker.append_rows(rows_of(np.zeros(100)), 0.0)
    events = [note("note_on", 97, 0, 40), note("note_off", 100, 0, 40)]
    assert tracker.step(100, events) == events  # the values of pitch 40 are read 3 frames later


def test_resume_accepts_a_curve_that_starts_long_before_it() -> None:
    tracker, end = BendTracker(FRAME_S), note("note_off", 900)
    tracker.resume(900, checkpoint_at(900, [note("note_on", 0)], curves={0: Curve(0)}))
    assert tracker.step(900, [end])[-1] == end


def test_shift_of_the_filterbank_does_not_change_bends() -> None:
    glide = np.linspace(-60, 60, 80)
    rows = rows_of(np.concatenate([glide[:40], glide[40:] - 33]))  # shifted from frame 40 on
    tracker = BendTracker(FRAME_S)
    tracker.append_rows(rows[:40], 0.0)
    tracker.append_rows(rows[40:], 33.0)
    tracker.resume(80, checkpoint_at(80, [note("note_on", 0)], curves={0: Curve(0)}))
    curve = curve_of(tracker.step(79, []))
    assert np.abs(np.array(curve) - glide[lag(PITCH) :][: len(curve)]).max() <= 0.1


def test_curve_is_bounded_and_zero_in_silence() -> None:
    events = {0: [note("note_on", 0)]}
    rising = run_bends(BendTracker(FRAME_S), rows_of(np.linspace(0, 700, 60)), events, [1])
    assert max(curve_of(rising)) <= 100 * MAX_SEMITONES + 50
    silence = np.zeros((40, PITCHES), np.float32)
    assert set(curve_of(run_bends(BendTracker(FRAME_S), silence, events, [4]))) == {0.0}


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
    st.integers(0, 119),
    st.integers(0, 2**32 - 1),
)
def test_block_sizes_and_resume_change_no_bend(sizes: list[int], cut: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0.25, 0.75, (120, PITCHES)).astype(np.float32)
    events = {
        20: [note("note_on", 10)],
        31: [note("note_on", 28, 1, 40)],
        60: [note("note_off", 55), note("note_on", 57, 2)],
        100: [note("note_off", 99, 1, 40)],
    }
    expected = run_bends(BendTracker(FRAME_S), rows, events, [120])
    assert run_bends(BendTracker(FRAME_S), rows, events, sizes) == expected

    stopped, resumed = BendTracker(FRAME_S), BendTracker(FRAME_S)
    before = run_bends(stopped, rows[:cut], events, sizes)
    ons = {e.note_id: e for e in before if isinstance(e, NoteEvent) and e.kind == "note_on"}
    ended = {e.note_id for e in before if isinstance(e, NoteEvent) and e.kind == "note_off"}
    sounding = [event for note_id, event in ons.items() if note_id not in ended]
    checkpoint = checkpoint_at(cut, sounding, curves=stopped.curves)
    received = Checkpoint.model_validate_json(checkpoint.model_dump_json())
    assert received.curves == stopped.curves
    first = max(0, cut - 40)
    resumed.resume(first, received)
    resumed.append_rows(rows[first:cut], 0.0)
    assert [*before, *run_bends(resumed, rows, events, sizes, cut)] == expected
