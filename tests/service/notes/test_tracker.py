"""Tests of the note tracker. Three of them also use the anytime tracker."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from service.notes.anytime import AnytimeTracker
from service.notes.dynamics import MEAN_VELOCITY
from service.notes.event_detector import EventDetector
from service.notes.events import NoteEvent
from service.notes.monophonic import PIANO
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import DEFAULT_VELOCITY, TrackerSettings
from tests.service.notes.synthetic_notes import (
    FRAME_S,
    HEADS,
    Probabilities,
    add_note,
    push,
    run_tracker,
    silence,
    spans,
    track,
)

both = pytest.mark.parametrize(
    "tracker", [NoteTracker, partial(AnytimeTracker, last_age=8)], ids=["block", "anytime"]
)


def test_notes_are_detected_at_their_times() -> None:
    probs = silence(120)
    add_note(probs, 60, 10.3, 40, velocity=30)
    add_note(probs, 64, 11.0, 60, velocity=40)
    add_note(probs, 67, 50.5, 118, velocity=20)
    events = track(probs)
    assert [(e.kind, e.pitch, round(e.time_s / FRAME_S, 2)) for e in events] == [
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
    ("fall", "end"),
    [(60, 30.25), (27, 27)],  # after 27, the gap alone is too short to end the note
)
def test_repeated_note_ends_the_first_at_its_fall_or_the_onset(fall: int, end: float) -> None:
    probs = silence(80)
    add_note(probs, 60, 10, fall)
    probs[0, fall:60, 60] = 0.3
    add_note(probs, 60, 30.25, 60)
    events = track(probs)
    assert [(e.kind, e.note_id) for e in events] == [
        ("note_on", 0),
        ("note_off", 0),
        ("note_on", 1),
        ("note_off", 1),
    ]
    assert events[1].time_s == pytest.approx(end * FRAME_S, abs=1e-5)
    assert events[2].time_s == pytest.approx(30.25 * FRAME_S, abs=1e-5)


@pytest.mark.parametrize(("distance", "onsets"), [(7, [10]), (8, [10, 18])])
def test_note_starts_again_after_the_minimum_duration(distance: int, onsets: list[int]) -> None:
    probs = silence(60)
    add_note(probs, 60, 10, 30)
    add_note(probs, 60, 10 + distance, 40)
    events = track(probs, TrackerSettings(min_note_frames=8))
    assert [event.frame for event in events if event.kind == "note_on"] == onsets


def test_onset_correction_shifts_only_onsets() -> None:
    probs = silence(60)
    add_note(probs, 60, 10.25, 30)
    on, off = track(probs, TrackerSettings(onset_correction_frames=0.4))
    assert on.time_s == pytest.approx(10.65 * FRAME_S, abs=1e-6)
    assert on.frame == 10
    assert off.time_s == pytest.approx(30 * FRAME_S, abs=1e-6)


def fading() -> Probabilities:
    probs = silence(140)
    add_note(probs, 60, 10, 110)
    probs[0, 70:110, 60] = np.linspace(0.95, 0.0, 40)
    return probs


@both
@pytest.mark.parametrize("bias", [-2.0, 0.0, 2.0])
def test_note_ends_where_its_log_odds_change_sign(tracker: Any, bias: float) -> None:
    probs = fading()
    probs[0, 35:37, 60] = 0.1  # a dip that later frames outweigh
    *_, off = run_tracker(tracker(TrackerSettings(end_bias=bias), FRAME_S, HEADS), probs)
    threshold = 1 / (1 + np.exp(bias))
    assert probs[0, off.frame, 60] < threshold <= probs[0, off.frame - 1, 60]


@both
def test_overtones_need_a_higher_onset_probability(tracker: Any) -> None:
    probs = silence(80)
    add_note(probs, 48, 10, 40, height=0.95)
    add_note(probs, 60, 11, 40, height=0.55)  # simultaneous with the octave below
    add_note(probs, 60, 50, 70, height=0.55)
    events = run_tracker(tracker(TrackerSettings(onset_threshold=0.5), FRAME_S, HEADS), probs)
    assert [(pitch, onset) for pitch, onset, _ in spans(events)] == [(48, 10), (60, 50)]


def fading_with_offset() -> Probabilities:
    """Return a note whose offset probability peaks before its frame probability falls."""
    probs = np.concatenate([fading(), silence(140, 1)])
    probs[3, 49:52, 60] = 0.6, 0.9, 0.6
    return probs


@both
def test_offset_head_ends_a_slowly_fading_note(tracker: Any) -> None:
    frames = []
    for weight in (0.0, 2.0):
        weighted = tracker(TrackerSettings(offset_weight=weight), FRAME_S, (*HEADS, "offset"))
        *_, off = run_tracker(weighted, fading_with_offset())
        frames.append(off.frame)
    assert frames[0] > 70
    assert frames[1] == 49


def detect(settings: TrackerSettings, instrument: str, probs: Probabilities, kind: str) -> Any:
    """Return the events of one kind if ``instrument`` is the only option."""
    heads = (*(*HEADS, "offset")[: len(probs)], "instrument:organ", "instrument:flute")
    undecided = np.full((2, *probs.shape[1:]), 0.5, np.float32)
    detector = EventDetector(settings, FRAME_S, heads, instruments=(instrument,))
    events = detector.push(0, np.concatenate([probs, undecided]))
    return [event for event in events if event.kind == kind]


def test_end_bias_depends_on_the_instrument() -> None:
    settings = TrackerSettings(end_bias=-1.0, end_biases={"organ": 2.0})
    (organ,) = detect(settings, "organ", fading(), "note_off")
    (flute,) = detect(settings, "flute", fading(), "note_off")
    assert organ.frame > flute.frame + 10


def test_offset_head_requires_an_instrument_with_a_pedal() -> None:
    (off,) = detect(TrackerSettings(offset_weight=4.0), "organ", fading_with_offset(), "note_off")
    assert off.frame > 70


def test_onset_threshold_depends_on_the_instrument() -> None:
    settings = TrackerSettings(onset_threshold=0.4, onset_thresholds={"organ": 0.6, "flute": 0.2})
    probs = silence(400)
    for number in range(6):
        add_note(probs, 60, 20 + 30 * number, 40 + 30 * number)
    for number, height in enumerate((0.25, 0.35, 0.5, 0.65)):
        add_note(probs, 70, 220 + 30 * number, 240 + 30 * number, height=height)
    for instrument, expected in (("organ", 1), ("flute", 4)):
        pitches = [on.pitch for on in detect(settings, instrument, probs, "note_on")]
        assert pitches.count(70) == expected


def test_long_low_probability_ends_a_note() -> None:
    probs = silence(140)
    add_note(probs, 60, 10, 70)
    probs[0, 70:, 60] = 0.49
    tracker = NoteTracker(TrackerSettings(), FRAME_S, HEADS)
    events = push(tracker, probs[:, : 71 + int(tracker.off_delay_frames)])
    assert [(event.kind, event.frame) for event in events] == [("note_on", 10), ("note_off", 70)]


def test_model_without_an_onset_head_is_supported() -> None:
    probs = silence(60, heads=1)
    probs[0, 20:40, 60] = 0.6
    for size in (7, 21, 60):
        detector, events = EventDetector(TrackerSettings(), FRAME_S, ("frame",)), []
        for first in range(0, 60, size):
            events += detector.push(first, probs[:, first : first + size])
        on, off = events
        assert isinstance(on, NoteEvent)
        assert (on.frame, off.frame) == (20, 40)
        assert on.velocity == DEFAULT_VELOCITY


def test_model_card_overrides_settings() -> None:
    card = {"tracker": {"onset_threshold": 0.31}}
    assert TrackerSettings.from_card(card) == TrackerSettings(onset_threshold=0.31)
    assert TrackerSettings.from_card({}) == TrackerSettings()
    with pytest.raises(ValueError, match="^unknown field: onset$"):
        TrackerSettings.from_card({"tracker": {"onset": 0.31}})


# -- monophonic music -----------------------------------------------------------------------------

MONOPHONIC = TrackerSettings(line=True)
POLYPHONIC = replace(MONOPHONIC, line=False)


def track_line(probs: Probabilities, settings: TrackerSettings = MONOPHONIC) -> list[NoteEvent]:
    return track(probs, settings, (*HEADS, PIANO)[: len(probs)])


def legato(pitches: list[int], frames: int = 30, probability: float = 0.3) -> Probabilities:
    """Return legato spans without onset probability, after 20 silent frames."""
    probs = silence(20 + frames * len(pitches) + 40)
    for number, pitch in enumerate(pitches):
        probs[0, 20 + frames * number :][:frames, pitch] = probability
    return probs


def test_uncertain_legato_notes_are_detected() -> None:
    probs = legato([60, 62, 59])
    detected = spans(track_line(probs))
    assert [pitch for pitch, *_ in detected] == [60, 62, 59]
    assert [onset for _, onset, _ in detected] == pytest.approx([20, 50, 80], abs=2)
    assert detected[-1][2] == pytest.approx(110, abs=2)
    assert track_line(probs, POLYPHONIC) == []


def test_very_low_probability_starts_no_note() -> None:
    assert track_line(legato([60], probability=0.12)) == []
    assert len(track_line(legato([60], probability=0.2))) == 2


def test_vibrato_is_one_note() -> None:
    probs = legato([60], frames=96)
    for start in range(26, 116, 16):  # a semitone up for 8 of 16 frames
        probs[0, start : start + 8, 60:62] = 0.15, 0.3
    assert [pitch for pitch, *_ in spans(track_line(probs))] == [60]


def test_onsets_start_and_repeat_notes_of_a_line() -> None:
    probs = silence(140)
    add_note(probs, 60, 20.3, 50)
    add_note(probs, 60, 50, 90)
    add_note(probs, 67, 90.4, 120)
    events = track_line(probs)
    assert spans(events) == [(60, 20, 50), (60, 50, 90), (67, 90, pytest.approx(120, abs=2))]
    onsets = [event.time_s / FRAME_S for event in events if event.kind == "note_on"]
    assert onsets == pytest.approx([20.3, 50, 90.4], abs=0.15)


def test_confident_notes_end_at_a_higher_probability() -> None:
    """The end bias depends on the confidence of the previous frames."""
    ends = []
    for probability in (0.9, 0.3):
        probs = legato([60, 64, 60, 64], frames=50, probability=probability)
        probs[0, 220:232, 64] = 0.15  # reverberation, or uncertainty
        ends.append(spans(track_line(probs))[-1][2])
    assert ends[0] == pytest.approx(220, abs=3)
    assert ends[1] == pytest.approx(232, abs=3)


def duet() -> Probabilities:
    """Return a melody, of which the middle part has a second melody above."""
    probs = silence(300)
    for number in range(12):
        add_note(probs, 60 + 2 * (number % 3), 10 + 20 * number, 30 + 20 * number)
    for number in range(4):
        add_note(probs, 77 + number, 75 + 20 * number, 93 + 20 * number)
    return probs


def test_two_simultaneous_melodies_are_detected() -> None:
    expected = [(60 + 2 * (n % 3), 10 + 20 * n) for n in range(12)]
    expected += [(77 + n, 75 + 20 * n) for n in range(4)]
    assert sorted((pitch, onset) for pitch, onset, _ in spans(track_line(duet()))) == sorted(
        expected
    )


def test_piano_is_tracked_as_polyphonic() -> None:
    probs = np.concatenate([duet(), np.full((1, 300, 128), 0.9, np.float32)])
    assert track_line(probs) == track_line(probs, POLYPHONIC)
    assert track_line(duet()) != track_line(duet(), POLYPHONIC)
