"""Tests of the event detector: notes with instruments, and the pedal."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import HEADS
from service.notes.event_detector import EventDetector
from service.notes.events import UPDATE_S, NoteEvent
from service.notes.instrument_classifier import RESET_S, InstrumentClassifier
from service.notes.tracker_settings import TrackerSettings
from tests.service.notes.synthetic_notes import (
    FRAME_S,
    Probabilities,
    add_note,
    checkpoint_at,
    silence,
)

UPDATE_FRAMES = round(UPDATE_S / FRAME_S)


def detector(instruments: tuple[str, ...] = (), line: bool = False) -> EventDetector:
    thresholds, biases = {"violin": 0.3, "piano": 0.6}, {"violin": -1.0, "piano": 1.0}
    settings = TrackerSettings(onset_thresholds=thresholds, end_biases=biases, line=line)
    return EventDetector(settings, FRAME_S, HEADS, instruments)


def detect(probabilities: Probabilities, instruments: tuple[str, ...] = ()) -> list[Any]:
    events = detector(instruments)
    return [*events.push(0, probabilities), *events.finish(probabilities.shape[1])]


def silent_heads(frames: int) -> Probabilities:
    return silence(frames, len(HEADS))


def add_labelled_note(
    probabilities: Probabilities, pitch: int, onset: int, offset: int, **instruments: float
) -> None:
    """Add a note, and the probabilities of instruments around its onset."""
    add_note(probabilities, pitch, onset, offset)
    for name, probability in instruments.items():
        row = HEADS.index(f"instrument:{name}")
        probabilities[row, max(0, onset - 2) : onset + 5, pitch] = probability


@st.composite
def performances(draw: st.DrawFn) -> Probabilities:
    """Draw notes with uncertain instruments, some silences, and a random pedal."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    frames = draw(st.integers(20, 400))
    out = silent_heads(frames)
    out[len(("frame", "onset", "velocity", "offset")) + 1 :] = rng.random(
        (len(HEADS) - 5, frames, 128), np.float32
    ) ** draw(st.sampled_from([1, 3]))
    out[HEADS.index("pedal")] = rng.random(-(-frames // 9), np.float32).repeat(9)[:frames, None]
    for _ in range(frames // 12):
        onset = int(rng.integers(frames))
        pitch = int(rng.choice([40, 60, 61, 76]))
        add_note(out, pitch, onset, onset + int(rng.integers(3, 90)))
    return out


@settings(max_examples=25)
@given(performances(), st.data())
def test_resumed_detector_returns_the_same_events(
    probabilities: Probabilities, data: st.DataObject
) -> None:
    frames = probabilities.shape[1]
    cut = data.draw(st.integers(1, frames - 1))
    line = data.draw(st.booleans())
    uncut = detector(line=line)
    before = uncut.push(0, probabilities[:, :cut])
    ons = {e.note_id: e for e in before if isinstance(e, NoteEvent) and e.kind != "note_off"}
    ended = {e.note_id for e in before if e.kind == "note_off"}
    resumed = detector(line=line)
    first = max(0, cut - resumed.history_frames - data.draw(st.integers(0, 30)))
    sounding = [event for event in ons.values() if event.note_id not in ended]
    resumed.resume(first, checkpoint_at(cut, sounding, notes=len(ons), **uncut.state))
    assert resumed.push(first, probabilities[:, first:cut]) == []
    assert resumed.push(cut, probabilities[:, cut:]) == uncut.push(cut, probabilities[:, cut:])
    assert resumed.state == uncut.state
    assert resumed.finish(frames) == uncut.finish(frames)


@settings(max_examples=25)
@given(performances())
def test_each_note_has_at_most_one_label_correction(probabilities: Probabilities) -> None:
    names: dict[int, str | None] = {}
    corrected: set[int] = set()
    for event in detect(probabilities, instruments=("violin", "flute", "horn")):
        if event.kind == "pedal":
            continue
        assert event.instrument in ("violin", "flute", "horn")
        assert event.instrument_probability is not None
        assert 1 / 3 - 1e-4 <= event.instrument_probability <= 1
        if event.kind == "note_on":
            names[event.note_id] = event.instrument
        elif event.kind == "note_update":
            assert event.instrument != names[event.note_id]
            assert event.note_id not in corrected
            corrected.add(event.note_id)
            names[event.note_id] = event.instrument
        else:
            assert names.pop(event.note_id) == event.instrument
    assert not names


def test_most_probable_requested_instrument_labels_the_note() -> None:
    probabilities = silent_heads(120)
    add_labelled_note(probabilities, 60, 20, 60, violin=0.6, viola=0.3, oboe=0.9)
    (on, _) = detect(probabilities)
    assert (on.instrument, on.frame) == ("oboe", 20)
    (on, _) = detect(probabilities, instruments=("viola", "violin"))
    assert on.instrument == "violin"
    assert on.instrument_probability == pytest.approx(2 / 3, abs=1e-3)
    (on, _) = detect(probabilities, instruments=("viola",))
    assert (on.instrument, on.instrument_probability) == ("viola", 1.0)


def test_later_notes_correct_the_label_of_a_sounding_note() -> None:
    probabilities = silent_heads(200)
    add_labelled_note(probabilities, 60, 20, 150, violin=0.5, viola=0.51)
    for number in range(4):
        onset = 26 + 8 * number
        add_labelled_note(probabilities, 70 + number, onset, onset + 6, violin=0.9, viola=0.01)
    events = detect(probabilities)
    first = [(event.kind, event.instrument) for event in events if event.note_id == 0]
    assert first == [("note_on", "viola"), ("note_update", "violin"), ("note_off", "violin")]
    short = probabilities.copy()
    short[0, 20 + UPDATE_FRAMES - 6 :, 60] = 0
    assert [e.kind for e in detect(short)].count("note_update") == 0


def test_keyboards_have_no_monophonic_delay() -> None:
    polyphonic = detector()
    assert detector(line=True).on_delay_frames > polyphonic.on_delay_frames
    assert detector(("piano", "voice"), line=True).on_delay_frames > polyphonic.on_delay_frames
    assert detector(("piano", "organ"), line=True).on_delay_frames == polyphonic.on_delay_frames
    assert detector(line=True).off_delay_frames == polyphonic.off_delay_frames


def test_long_silence_resets_the_instrument_belief() -> None:
    pause = round(RESET_S / FRAME_S)
    for gap, name in ((pause - 10, "violin"), (pause + 10, "viola")):
        probabilities = silent_heads(400 + gap)
        for number in range(12):
            add_labelled_note(
                probabilities, 60, 10 + 20 * number, 20 + 20 * number, violin=0.9, viola=0.01
            )
        add_labelled_note(probabilities, 60, 240 + gap, 260 + gap, violin=0.45, viola=0.55)
        (*_, last, _) = detect(probabilities)
        assert last.instrument == name


def test_pedal_events_require_an_instrument_with_a_pedal() -> None:
    probabilities = silent_heads(100)
    row = HEADS.index("pedal")
    probabilities[row, 30:50] = 0.9
    probabilities[row, 33:47:4] = 0.2  # too short for a pedal event
    probabilities[row, 80:] = 0.9
    assert detect(probabilities) == []
    add_labelled_note(probabilities, 60, 5, 20, piano=0.9)
    pedal = [event for event in detect(probabilities) if event.kind == "pedal"]
    assert [event.down for event in pedal] == [True, False, True, False]
    assert [event.frame for event in pedal] == pytest.approx([30, 50, 80, 100], abs=3)
    assert pedal[0].time_s == pytest.approx(pedal[0].frame * FRAME_S, abs=1e-6)


def test_nan_probabilities_are_silence() -> None:
    probabilities = silent_heads(60)
    add_note(probabilities, 60, 10, 50)
    probabilities[:, 30:] = np.nan
    assert [event.frame for event in detect(probabilities)] == [10, 30]


@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_belief_stays_within_the_bounds_of_a_checkpoint(notes: int, seed: int) -> None:
    settings, rng = TrackerSettings(), np.random.default_rng(seed)
    classifier = InstrumentClassifier(HEADS, FRAME_S, (), settings)
    for frame in range(notes):
        classifier.append(frame, rng.random((len(HEADS), 1, 128), np.float32), 1)
        classifier.step(frame, [NoteEvent("note_on", frame, 60, 80, 0.9, frame, frame * FRAME_S)])
    weights = classifier.belief.weights.values()
    assert sum(weights) <= 1 / (1 - settings.belief_kept) + 18 * 1e-4
    for weight in weights:
        assert weight > 0
        assert float(f"{weight:.4f}") == weight  # sent with 4 digits
