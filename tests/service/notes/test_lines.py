"""Single lines: what the best path finds, and where polyphony takes over."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.notes.events import NoteEvent
from service.notes.lines import PIANO
from service.notes.resume import ResumePoint
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import LineSettings, TrackerSettings
from tests.service.notes.drawn_notes import (
    FRAME_S,
    HEADS,
    Probabilities,
    check_laws,
    draw,
    events_of,
    silence,
    sounding_after,
)

LINE_HEADS = (*HEADS, PIANO)
CHOSEN = TrackerSettings(line=LineSettings(memory_frames=40), min_note_frames=4)
NO_LINES = replace(CHOSEN, line=None)


def track(
    drawn: Probabilities, chosen: TrackerSettings = CHOSEN, chunks: tuple[int, ...] = ()
) -> list[NoteEvent]:
    tracker = NoteTracker(chosen, FRAME_S, LINE_HEADS[: len(drawn)])
    known = []
    for part in np.split(drawn, np.cumsum(chunks), axis=1):
        known += tracker.push(part)
    return events_of([*known, *tracker.finish(drawn.shape[1])])


def notes(events: list[NoteEvent]) -> list[tuple[int, int, int]]:
    """Pitch, first frame and end of each note."""
    ends = {event.note_id: event.frame for event in events if event.kind == "note_off"}
    begins = [event for event in events if event.kind == "note_on"]
    return [(on.pitch, on.frame, ends[on.note_id]) for on in begins]


def sung(pitches: list[int], frames: int = 30, sureness: float = 0.3) -> Probabilities:
    """Connected notes that a network hardly hears, without onsets, after 20 silent frames."""
    drawn = silence(20 + frames * len(pitches) + 40)
    for number, pitch in enumerate(pitches):
        drawn[0, 20 + frames * number :][:frames, pitch] = sureness
    return drawn


def test_doubtful_connected_notes_are_found_that_have_no_onsets() -> None:
    drawn = sung([60, 62, 59])
    found = notes(track(drawn))
    assert [pitch for pitch, *_ in found] == [60, 62, 59]
    assert [onset for _, onset, _ in found] == pytest.approx([20, 50, 80], abs=2)
    assert found[-1][2] == pytest.approx(110, abs=2)
    assert track(drawn, NO_LINES) == []


def test_vibrato_is_one_note() -> None:
    drawn = sung([60], frames=96)
    for at in range(26, 116, 16):  # a semitone up for 8 of 16 frames
        drawn[0, at : at + 8, 61], drawn[0, at : at + 8, 60] = 0.3, 0.15
    assert [pitch for pitch, *_ in notes(track(drawn))] == [60]


def test_a_note_begins_at_its_onset_and_is_struck_again() -> None:
    drawn = silence(140)
    draw(drawn, 60, 20.3, 50)
    draw(drawn, 60, 50, 90)
    draw(drawn, 67, 90.4, 120)
    events = track(drawn)
    assert notes(events) == [(60, 20, 50), (60, 50, 90), (67, 90, pytest.approx(120, abs=2))]
    begins = [event.time_s / FRAME_S for event in events if event.kind == "note_on"]
    assert begins == pytest.approx([20.3, 50, 90.4], abs=0.15)


def test_who_is_surely_heard_is_believed_to_stop() -> None:
    """The bias follows the doubt of the latest frames."""
    ends = []
    for sureness in (0.9, 0.3):
        drawn = sung([60, 64, 60, 64], frames=50, sureness=sureness)
        drawn[0, 220:232, 64] = 0.15  # a room, or doubt
        ends.append(notes(track(drawn))[-1][2])
    assert ends[0] == pytest.approx(220, abs=3)
    assert ends[1] == pytest.approx(232, abs=3)


def duet() -> Probabilities:
    """A line, two lines with the first, and a line again."""
    drawn = silence(300)
    for number in range(12):
        draw(drawn, 60 + 2 * (number % 3), 10 + 20 * number, 30 + 20 * number)
    for number in range(4):
        draw(drawn, 77 + number, 75 + 20 * number, 93 + 20 * number)
    return drawn


def test_a_second_line_takes_nothing_from_either() -> None:
    found = notes(track(duet()))
    assert len(found) == 16
    expected = [(60 + 2 * (n % 3), 10 + 20 * n) for n in range(12)]
    expected += [(77 + n, 75 + 20 * n) for n in range(4)]
    assert sorted((onset, pitch) for pitch, onset, _ in found) == sorted(
        (onset, pitch) for pitch, onset in expected
    )


def test_a_piano_is_read_like_several_lines() -> None:
    drawn = np.concatenate([duet(), np.full((1, 300, 128), 0.9, np.float32)])
    assert track(drawn) == track(drawn, NO_LINES)
    assert track(duet()) != track(duet(), NO_LINES)


# -- what holds for any probabilities -------------------------------------------------------------


@st.composite
def restless_probabilities(draw_from: st.DrawFn) -> Probabilities:
    """One line, sometimes two, of doubtful and sure notes, with wild onsets."""
    rng = np.random.default_rng(draw_from(st.integers(0, 2**32 - 1)))
    out = silence(draw_from(st.integers(0, 120)), len(LINE_HEADS))
    frames = out.shape[1]
    out[:3] += 0.2 * rng.random((3, frames, 128), np.float32) ** 8
    for _ in range(frames // 8):
        onset, length = int(rng.integers(frames)), int(rng.integers(2, 60))
        pitch = int(rng.choice([0, 59, 60, 61, 72, 78, 127]))
        out[0, onset : onset + length, pitch] = rng.random()
        out[1, onset, pitch] = rng.random()
        out[3, onset : onset + length] = rng.random() < 0.1
    return out


chosen_settings = st.builds(
    lambda line, radius, correction: replace(
        CHOSEN, line=line, onset_radius_frames=radius, onset_correction_frames=correction
    ),
    st.builds(
        LineSettings,
        second_threshold=st.floats(0.2, 0.8),
        second_frames=st.integers(1, 12),
        memory_frames=st.integers(1, 60),
        ahead_frames=st.integers(4, 16),
        bias=st.floats(-1, 3),
        doubt_bias=st.floats(0, 9),
        cost=st.floats(0, 20),
        onset_weight=st.floats(0, 4),
        again_threshold=st.floats(0.1, 0.9),
        least_frames=st.integers(4, 9),
    ),
    st.integers(1, 4),
    st.floats(-0.49, 0.49),
)


@settings(max_examples=40)
@given(restless_probabilities(), chosen_settings)
def test_the_laws_of_events(drawn: Probabilities, chosen: TrackerSettings) -> None:
    check_laws(track(drawn, chosen), chosen, drawn.shape[1])


@settings(max_examples=40)
@given(restless_probabilities(), chosen_settings)
def test_a_line_has_one_note_at_a_time(drawn: Probabilities, chosen: TrackerSettings) -> None:
    drawn[0] = np.where(drawn[0] == drawn[0].max(axis=1, keepdims=True), drawn[0], 0)
    drawn[3] = 0
    kinds = [event.kind for event in track(drawn, chosen)]
    assert kinds == ["note_on", "note_off"] * (len(kinds) // 2)


@settings(max_examples=40)
@given(
    restless_probabilities(), chosen_settings, st.lists(st.integers(0, 40), max_size=8)
)
def test_events_do_not_depend_on_how_frames_are_pushed(
    drawn: Probabilities, chosen: TrackerSettings, chunks: list[int]
) -> None:
    assert track(drawn, chosen, tuple(chunks)) == track(drawn, chosen)


@settings(max_examples=60)
@given(restless_probabilities(), chosen_settings, st.data())
def test_another_tracker_goes_on_where_one_stopped(
    drawn: Probabilities, chosen: TrackerSettings, data: st.DataObject
) -> None:
    frames = drawn.shape[1]
    cut = data.draw(st.integers(0, frames))
    one, other = (NoteTracker(chosen, FRAME_S, LINE_HEADS) for _ in range(2))
    first = max(0, cut - one.history_frames - data.draw(st.integers(0, 3)))
    events = events_of(one.push(drawn[:, :cut]))
    begun, sounding = sounding_after(events)
    other.resume(
        first, ResumePoint(frames=cut, notes=begun, sounding=sounding, dynamics=one.dynamics)
    )
    assert other.push(drawn[:, first:cut]) == []
    events += events_of([*other.push(drawn[:, cut:]), *other.finish(frames)])
    assert events == track(drawn, chosen)


@settings(max_examples=40)
@given(restless_probabilities(), chosen_settings, st.integers(0, 120))
def test_events_are_known_within_the_stated_delay(
    drawn: Probabilities, chosen: TrackerSettings, cut: int
) -> None:
    cut = min(cut, drawn.shape[1])
    tracker = NoteTracker(chosen, FRAME_S, LINE_HEADS)
    early = events_of(tracker.push(drawn[:, :cut]))
    whole = track(drawn, chosen)
    assert early == whole[: len(early)]  # what follows the cut changes nothing
    latest = {"note_on": tracker.on_delay_frames, "note_off": tracker.off_delay_frames}
    for event in whole[len(early) :]:
        assert event.time_s > (cut - 1 - latest[event.kind]) * FRAME_S - 1e-6


@given(restless_probabilities(), st.integers(0, 120))
def test_all_notes_end_if_the_stream_breaks_off(drawn: Probabilities, cut: int) -> None:
    tracker = NoteTracker(CHOSEN, FRAME_S, LINE_HEADS)
    events = [*events_of(tracker.push(drawn[:, :cut])), *tracker.close()]
    begun, sounding = sounding_after(events)
    assert not sounding
    assert 2 * begun == len(events)
