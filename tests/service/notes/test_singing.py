"""Tests of the spans of singers, which are steps of a pitch curve."""

import numpy as np
import pytest

from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings
from tests.service.notes.synthetic_notes import FRAME_S, SINGER_HEADS, run_tracker, spans, sung

SETTINGS = TrackerSettings(line=True)


def singer(instrument: str = "voice") -> NoteTracker:
    tracker = NoteTracker(SETTINGS, FRAME_S, SINGER_HEADS)
    tracker.set_instrument_weights({instrument: 5.0})
    return tracker


SILENCE = np.full(20, np.nan)


def test_wide_vibrato_is_one_note_for_a_singer() -> None:
    wave = 60.2 + 0.6 * np.sin(np.arange(150) * 2 * np.pi / 15)
    probs = sung(np.concatenate([SILENCE, wave, SILENCE]))
    ((pitch, start, end),) = spans(run_tracker(singer(), probs))
    assert pitch == 60
    assert (start, end) == pytest.approx((20, 170), abs=2)
    assert len(spans(run_tracker(singer("saxophone"), probs))) > 1


def test_steps_of_the_pitch_curve_are_notes() -> None:
    levels = (60.3, 62.2, 61.2, 57.4)
    probs = sung(np.concatenate([SILENCE, *(np.full(40, level) for level in levels), SILENCE]), 1)
    detected = spans(run_tracker(singer(), probs))
    assert [pitch for pitch, *_ in detected] == [60, 62, 61, 57]
    assert [start for _, start, _ in detected] == pytest.approx([20, 60, 100, 140], abs=1)
    assert detected[-1][2] == pytest.approx(180, abs=1)


def test_note_after_a_glide_has_the_target_pitch() -> None:
    glide = np.concatenate([np.linspace(58.5, 60, 5), np.full(60, 60.0)])
    assert [
        pitch for pitch, *_ in spans(run_tracker(singer(), sung(np.append(SILENCE, glide))))
    ] == [60]


def test_change_of_tuning_starts_no_note() -> None:
    probs = sung(np.concatenate([SILENCE, np.full(60, 60.45), SILENCE]))
    tracker, events = singer(), []
    for first in range(0, probs.shape[1], 4):
        tracker.read(probs[:, first : first + 4], 4, 33.0 if first >= 60 else 0.0)
        events += [event for _ in range(4) for event in tracker.step()]
    assert len(spans(events + tracker.finish(probs.shape[1]))) == 1


def test_low_confidence_starts_no_note() -> None:
    assert run_tracker(singer(), sung(np.append(SILENCE, np.full(60, 60.0)), 0.12)) == []
    assert len(run_tracker(singer(), sung(np.append(SILENCE, np.full(60, 60.0)), 0.5))) == 2
