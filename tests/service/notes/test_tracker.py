"""Note tracking: the notes that were drawn are found, each for its reason."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.notes.anytime import AnytimeTracker
from service.notes.event_detector import EventDetector
from service.notes.events import NoteEvent
from service.notes.monophonic import PIANO
from service.notes.resume import MEAN_VELOCITY
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import DEFAULT_VELOCITY, LineSettings, TrackerSettings
from tests.service.notes.drawn_notes import (
    ALL_HEADS,
    FRAME_S,
    HEADS,
    Probabilities,
    check_laws,
    draw,
    hear,
    line_settings,
    lines,
    push,
    same_when_resumed,
    silence,
    track,
    tracker_settings,
    wild_probabilities,
)

both = pytest.mark.parametrize(
    "tracker", [NoteTracker, partial(AnytimeTracker, last_age=8)], ids=["block", "anytime"]
)


def test_drawn_notes_are_found_at_their_times() -> None:
    drawn = silence(120)
    draw(drawn, 60, 10.3, 40, velocity=30)
    draw(drawn, 64, 11.0, 60, velocity=40)
    draw(drawn, 67, 50.5, 118, velocity=20)
    events = track(drawn)
    found = [(e.kind, e.pitch, round(e.time_s / FRAME_S, 2)) for e in events]
    assert found == [
        ("note_on", 60, 10.3),
        ("note_on", 64, 11.0),
        ("note_off", 60, 40.0),
        ("note_on", 67, 50.5),
        ("note_off", 64, 60.0),
        ("note_off", 67, 118.0),
    ]
    first, loudest, softest = (e.velocity for e in events if e.kind == "note_on")
    assert softest < first == MEAN_VELOCITY < loudest


@pytest.mark.parametrize(
    ("fell", "end"),
    [(60, 30.25), (27, 27)],  # after a gap too short to be an end by itself
)
def test_a_note_struck_again_ends_where_it_fell_or_the_next_begins(fell: int, end: float) -> None:
    drawn = silence(80)
    draw(drawn, 60, 10, fell)
    drawn[0, fell:60, 60] = 0.3
    draw(drawn, 60, 30.25, 60)
    events = track(drawn)
    assert [(e.kind, e.note_id) for e in events] == [
        ("note_on", 0),
        ("note_off", 0),
        ("note_on", 1),
        ("note_off", 1),
    ]
    assert events[1].time_s == pytest.approx(end * FRAME_S, abs=1e-5)
    assert events[2].time_s == pytest.approx(30.25 * FRAME_S, abs=1e-5)


def test_onset_times_are_corrected_and_ends_are_not() -> None:
    drawn = silence(60)
    draw(drawn, 60, 10.25, 30)
    on, off = track(drawn, TrackerSettings(onset_correction_frames=0.4))
    assert on.time_s == pytest.approx(10.65 * FRAME_S, abs=1e-6)
    assert on.frame == 10
    assert off.time_s == pytest.approx(30 * FRAME_S, abs=1e-6)


def fading() -> Probabilities:
    drawn = silence(140)
    draw(drawn, 60, 10, 110)
    drawn[0, 70:110, 60] = np.linspace(0.95, 0.0, 40)
    return drawn


@both
@pytest.mark.parametrize("bias", [-2.0, 0.0, 2.0])
def test_a_note_ends_where_its_evidence_is_greatest(tracker: Any, bias: float) -> None:
    drawn = fading()
    drawn[0, 35:37, 60] = 0.1  # a dip that is made up for
    *_, off = hear(tracker(TrackerSettings(end_bias=bias), FRAME_S, HEADS), drawn)
    even = 1 / (1 + np.exp(bias))  # log-odds of -bias
    assert drawn[0, off.frame, 60] < even <= drawn[0, off.frame - 1, 60]


@both
def test_an_overtone_needs_more_than_a_note(tracker: Any) -> None:
    drawn = silence(80)
    draw(drawn, 48, 10, 40, height=0.95)
    draw(drawn, 60, 11, 40, height=0.55)  # with its octave below
    draw(drawn, 60, 50, 70, height=0.55)
    events = hear(tracker(TrackerSettings(onset_threshold=0.5), FRAME_S, HEADS), drawn)
    begins = [(event.pitch, event.frame) for event in events if event.kind == "note_on"]
    assert begins == [(48, 10), (60, 50)]


def fading_with_offset() -> Probabilities:
    """The offset head predicts the offset at frame 50, before the frame probability falls."""
    drawn = np.concatenate([fading(), silence(140, 1)])
    drawn[3, 49:52, 60] = 0.6, 0.9, 0.6
    return drawn


@both
def test_the_offset_head_ends_a_note_whose_probability_falls_slowly(tracker: Any) -> None:
    frames = []
    for weight in (0.0, 2.0):
        chosen = tracker(TrackerSettings(offset_weight=weight), FRAME_S, (*HEADS, "offset"))
        *_, off = hear(chosen, fading_with_offset())
        frames.append(off.frame)
    assert frames[0] > 70
    assert frames[1] == 49


def named(chosen: TrackerSettings, name: str, drawn: Probabilities, kind: str = "note_on") -> Any:
    """Events of this kind if only one instrument is considered."""
    heads = (*(*HEADS, "offset")[: len(drawn)], "instrument:organ", "instrument:flute")
    undecided = np.full((2, *drawn.shape[1:]), 0.5, np.float32)
    detector = EventDetector(chosen, FRAME_S, heads, instruments=(name,))
    events = detector.push(0, np.concatenate([drawn, undecided]))
    return [event for event in events if event.kind == kind]


def test_each_instrument_has_a_bias_of_its_own() -> None:
    chosen = TrackerSettings(end_bias=-1.0, end_biases={"organ": 2.0})
    (organ,), (flute,) = (named(chosen, name, fading(), "note_off") for name in ("organ", "flute"))
    assert organ.frame > flute.frame + 10


def test_the_offset_head_counts_for_instruments_with_a_pedal_alone() -> None:
    (off,) = named(TrackerSettings(offset_weight=4.0), "organ", fading_with_offset(), "note_off")
    assert off.frame > 70


def test_each_instrument_has_an_onset_threshold_of_its_own() -> None:
    chosen = TrackerSettings(onset_threshold=0.4, onset_thresholds={"organ": 0.6, "flute": 0.2})
    drawn = silence(400)
    for number in range(6):
        draw(drawn, 60, 20 + 30 * number, 40 + 30 * number)
    for number, height in enumerate((0.25, 0.35, 0.5, 0.65)):
        draw(drawn, 70, 220 + 30 * number, 240 + 30 * number, height=height)
    begun = {
        name: [on.pitch for on in named(chosen, name, drawn)] for name in chosen.onset_thresholds
    }
    assert {name: pitches.count(70) for name, pitches in begun.items()} == {"organ": 1, "flute": 4}


def test_doubt_ends_a_note_in_the_end() -> None:
    drawn = silence(140)
    draw(drawn, 60, 10, 70)
    drawn[0, 70:, 60] = 0.49  # falls by little, for long
    tracker = NoteTracker(TrackerSettings(), FRAME_S, HEADS)
    events = push(tracker, drawn[:, : 71 + int(tracker.off_delay_frames)])
    assert [(event.kind, event.frame) for event in events] == [("note_on", 10), ("note_off", 70)]


def test_a_model_without_onset_head() -> None:
    drawn = silence(60, heads=1)
    drawn[0, 20:40, 60] = 0.6
    for chunks in ((), (21,), (7, 8, 9)):
        detector, first, events = EventDetector(TrackerSettings(), FRAME_S, ("frame",)), 0, []
        for part in np.split(drawn, np.cumsum(chunks), axis=1):
            events += detector.push(first, part)
            first += part.shape[1]
        on, off = events
        assert isinstance(on, NoteEvent)
        assert (on.frame, off.frame) == (20, 40)
        assert on.velocity == DEFAULT_VELOCITY


def test_a_card_sets_what_it_names() -> None:
    card = {"tracker": {"onset_threshold": 0.31, "onset_radius_frames": 2}}
    assert TrackerSettings.from_card(card) == TrackerSettings(onset_threshold=0.31)
    lined = {"tracker": {"line": {"cost": 12.0, "ahead_frames": 8}}}
    assert TrackerSettings.from_card(lined).line == LineSettings(cost=12.0)
    assert TrackerSettings.from_card({}) == TrackerSettings()
    with pytest.raises(ValueError, match="^unknown field: onset$"):
        TrackerSettings.from_card({"tracker": {"onset": 0.31}})


# -- a single line ---------------------------------------------------------------------------------

LINE = TrackerSettings(line=LineSettings())
NO_LINE = replace(LINE, line=None)


def line(drawn: Probabilities, chosen: TrackerSettings = LINE) -> list[NoteEvent]:
    return track(drawn, chosen, (*HEADS, PIANO)[: len(drawn)])


def notes(events: list[NoteEvent]) -> list[tuple[int, int, int]]:
    """Pitch, first frame and end of each note."""
    ends = {event.note_id: event.frame for event in events if event.kind == "note_off"}
    begins = [event for event in events if event.kind == "note_on"]
    return [(on.pitch, on.frame, ends[on.note_id]) for on in begins]


def sung(pitches: list[int], frames: int = 30, sureness: float = 0.3) -> Probabilities:
    """Return legato notes with low probabilities, without onsets, after 20 silent frames."""
    drawn = silence(20 + frames * len(pitches) + 40)
    for number, pitch in enumerate(pitches):
        drawn[0, 20 + frames * number :][:frames, pitch] = sureness
    return drawn


def test_doubtful_connected_notes_are_found_that_have_no_onsets() -> None:
    drawn = sung([60, 62, 59])
    found = notes(line(drawn))
    assert [pitch for pitch, *_ in found] == [60, 62, 59]
    assert [onset for _, onset, _ in found] == pytest.approx([20, 50, 80], abs=2)
    assert found[-1][2] == pytest.approx(110, abs=2)
    assert line(drawn, NO_LINE) == []


def test_what_is_hardly_heard_is_no_note() -> None:
    assert line(sung([60], sureness=0.12)) == []
    assert len(line(sung([60], sureness=0.2))) == 2


def test_vibrato_is_one_note() -> None:
    drawn = sung([60], frames=96)
    for at in range(26, 116, 16):  # a semitone up for 8 of 16 frames
        drawn[0, at : at + 8, 61], drawn[0, at : at + 8, 60] = 0.3, 0.15
    assert [pitch for pitch, *_ in notes(line(drawn))] == [60]


def test_a_note_begins_at_its_onset_and_is_struck_again() -> None:
    drawn = silence(140)
    draw(drawn, 60, 20.3, 50)
    draw(drawn, 60, 50, 90)
    draw(drawn, 67, 90.4, 120)
    events = line(drawn)
    assert notes(events) == [(60, 20, 50), (60, 50, 90), (67, 90, pytest.approx(120, abs=2))]
    begins = [event.time_s / FRAME_S for event in events if event.kind == "note_on"]
    assert begins == pytest.approx([20.3, 50, 90.4], abs=0.15)


def test_who_is_surely_heard_is_believed_to_stop() -> None:
    """The bias follows the doubt of the latest frames."""
    ends = []
    for sureness in (0.9, 0.3):
        drawn = sung([60, 64, 60, 64], frames=50, sureness=sureness)
        drawn[0, 220:232, 64] = 0.15  # a room, or doubt
        ends.append(notes(line(drawn))[-1][2])
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
    found = notes(line(duet()))
    assert len(found) == 16
    expected = [(60 + 2 * (n % 3), 10 + 20 * n) for n in range(12)]
    expected += [(77 + n, 75 + 20 * n) for n in range(4)]
    assert sorted((onset, pitch) for pitch, onset, _ in found) == sorted(
        (onset, pitch) for pitch, onset in expected
    )


def test_a_piano_is_read_like_several_lines() -> None:
    drawn = np.concatenate([duet(), np.full((1, 300, 128), 0.9, np.float32)])
    assert line(drawn) == line(drawn, NO_LINE)
    assert line(duet()) != line(duet(), NO_LINE)


# -- what holds for any probabilities -------------------------------------------------------------

Case = tuple[Probabilities, TrackerSettings]
cases = st.tuples(wild_probabilities(), tracker_settings) | st.tuples(lines(), line_settings)


def opened(case: Case) -> NoteTracker:
    return NoteTracker(case[1], FRAME_S, ALL_HEADS)


@settings(max_examples=50)
@given(cases, st.sampled_from([ALL_HEADS, HEADS, HEADS[:2]]))
def test_the_laws_of_events(case: Case, heads: tuple[str, ...]) -> None:
    probabilities, chosen = case
    events = track(probabilities[: len(heads)], chosen, heads)
    check_laws(events, chosen, probabilities.shape[1])
    begun_s = [event.time_s for event in events if event.kind == "note_on"]
    assert begun_s == sorted(begun_s) or chosen.line


@settings(max_examples=50)
@given(cases, st.lists(st.integers(0, 9), max_size=30))
def test_events_do_not_depend_on_how_frames_are_pushed(case: Case, chunks: list[int]) -> None:
    assert track(case[0], case[1], ALL_HEADS, chunks) == hear(opened(case), case[0])


@settings(max_examples=50)
@given(cases, st.floats(0, 1), st.integers(0, 3))
def test_another_tracker_goes_on_where_one_stopped(case: Case, part: float, further: int) -> None:
    frames = case[0].shape[1]
    blocks = np.split(case[0], range(1, frames), axis=1)
    same_when_resumed(lambda: opened(case), blocks, int(part * frames), further, frames)


@settings(max_examples=50)
@given(cases, st.integers(0, 120))
def test_events_are_known_within_the_stated_delay(case: Case, cut: int) -> None:
    """Events neither wait for nor depend on frames beyond the delay of their kind."""
    cut = min(cut, case[0].shape[1])
    tracker = opened(case)
    early = push(tracker, case[0][:, :cut])
    whole = hear(opened(case), case[0])
    assert early == whole[: len(early)]  # what follows the cut changes nothing
    latest_s = {"note_on": tracker.on_delay_frames, "note_off": tracker.off_delay_frames}
    for event in whole[len(early) :]:  # not said by frame cut - 1: too near to it
        assert event.time_s > (cut - 1 - latest_s[event.kind]) * FRAME_S - 1e-6
    kinds = [event.kind for event in [*early, *tracker.end_all(tracker.decided_frames)]]
    assert kinds.count("note_on") == kinds.count("note_off")


@settings(max_examples=25)
@given(lines(), line_settings)
def test_a_line_has_one_note_at_a_time(drawn: Probabilities, chosen: TrackerSettings) -> None:
    drawn[0] = np.where(drawn[0] == drawn[0].max(axis=1, keepdims=True), drawn[0], 0)
    drawn[4] = 0
    events = hear(NoteTracker(chosen, FRAME_S, ALL_HEADS), drawn)
    kinds = [event.kind for event in events]
    assert kinds == ["note_on", "note_off"] * (len(kinds) // 2)
