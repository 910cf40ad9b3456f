"""Single lines: what the best path finds, and where polyphony takes over."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from service.notes.events import NoteEvent
from service.notes.tracker import PIANO, NoteTracker
from service.notes.tracker_settings import LineSettings, TrackerSettings
from tests.service.notes.drawn_notes import (
    ALL_HEADS,
    FRAME_S,
    HEADS,
    Probabilities,
    draw,
    hear,
    line_settings,
    lines,
    silence,
)

CHOSEN = TrackerSettings(line=LineSettings())
NO_LINES = replace(CHOSEN, line=None)


def track(drawn: Probabilities, chosen: TrackerSettings = CHOSEN) -> list[NoteEvent]:
    return hear(NoteTracker(chosen, FRAME_S, (*HEADS, PIANO)[: len(drawn)]), drawn)


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


def test_what_is_hardly_heard_is_no_note() -> None:
    assert track(sung([60], sureness=0.12)) == []
    assert len(track(sung([60], sureness=0.2))) == 2


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


@settings(max_examples=40)
@given(lines(), line_settings)
def test_a_line_has_one_note_at_a_time(drawn: Probabilities, chosen: TrackerSettings) -> None:
    drawn[0] = np.where(drawn[0] == drawn[0].max(axis=1, keepdims=True), drawn[0], 0)
    drawn[4] = 0
    events = hear(NoteTracker(chosen, FRAME_S, ALL_HEADS), drawn)
    kinds = [event.kind for event in events]
    assert kinds == ["note_on", "note_off"] * (len(kinds) // 2)
