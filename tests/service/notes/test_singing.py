"""Tests of the spans of singers, which are steps of a pitch curve."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import CENTS, PITCHES
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import LineSettings, TrackerSettings
from tests.service.notes.synthetic_notes import (
    FRAME_S,
    Probabilities,
    check_events,
    check_resume,
    push,
    run_tracker,
    silence,
    spans,
)

HEADS = ("frame", "onset", "velocity", CENTS)
SETTINGS = TrackerSettings(line=LineSettings())


def singer(instrument: str = "voice") -> NoteTracker:
    tracker = NoteTracker(SETTINGS, FRAME_S, HEADS)
    tracker.set_instrument_weights({instrument: 5.0})
    return tracker


def sung(curve: NDArray[np.float64], confidence: float = 0.8) -> Probabilities:
    """Return the outputs for a voice whose MIDI pitch per frame is ``curve``; NaN is silence. Its
    probability is spread over the two nearest semitones, as a network predicts it."""
    probs = silence(len(curve), len(HEADS))
    for frame, pitch in enumerate(curve):
        if not np.isnan(pitch):
            low, share = int(pitch), pitch % 1
            probs[0, frame, low : low + 2] = confidence * (1 - share), confidence * share
            nearest = round(pitch)
            probs[3, frame, nearest] = 0.5 + (pitch - nearest) / 2
    return probs


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
    out = sung(np.nan_to_num(curve, nan=np.nan), rng.uniform(0.1, 1))
    out[0] *= rng.random((out.shape[1], 1)) ** draw(st.sampled_from([0, 0.3, 1]))
    out[1] = out[0] * rng.random(out[0].shape) ** 3
    for _ in range(draw(st.integers(0, 2))):
        onset = int(rng.integers(0, max(1, out.shape[1])))
        out[0, onset : onset + 12, int(rng.integers(72, PITCHES))] = 0.9
    return out


@settings(max_examples=30)
@given(songs(), st.integers(1, 40))
def test_block_size_does_not_change_events(song: Probabilities, size: int) -> None:
    frames, tracker = song.shape[1], singer()
    blocks = np.split(song, range(size, frames, size), axis=1)
    events = [event for block in blocks for event in push(tracker, block)] + tracker.finish(frames)
    assert events == run_tracker(singer(), song)
    check_events(events, SETTINGS, frames)


@settings(max_examples=30)
@given(songs(), st.floats(0, 1), st.integers(0, 3))
def test_a_resumed_tracker_returns_the_same_events(
    song: Probabilities, share: float, extra_frames: int
) -> None:
    frames = song.shape[1]
    blocks = np.split(song, range(1, frames), axis=1)
    check_resume(singer, blocks, int(share * frames), extra_frames, frames)


@settings(max_examples=25)
@given(songs(), st.integers(0, 200))
def test_events_are_decided_within_the_guaranteed_delay(song: Probabilities, cut: int) -> None:
    cut = min(cut, song.shape[1])
    tracker = singer()
    early, expected = push(tracker, song[:, :cut]), run_tracker(singer(), song)
    assert early == expected[: len(early)]
    max_delay = {"note_on": tracker.on_delay_frames, "note_off": tracker.off_delay_frames}
    for event in expected[len(early) :]:
        assert event.time_s > (cut - 1 - max_delay[event.kind]) * FRAME_S - 1e-6
