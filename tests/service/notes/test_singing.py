"""Singers: notes are steps of a pitch curve, whatever the semitones it lies between."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import CENTS, PITCHES
from service.notes.events import NoteEvent
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import LineSettings, TrackerSettings
from tests.service.notes.drawn_notes import (
    FRAME_S,
    Probabilities,
    check_laws,
    hear,
    push,
    same_when_resumed,
    silence,
)

HEADS = ("frame", "onset", "velocity", CENTS)
SETTINGS = TrackerSettings(line=LineSettings())


def singer(instrument: str = "voice") -> NoteTracker:
    tracker = NoteTracker(SETTINGS, FRAME_S, HEADS)
    tracker.set_instrument_weights({instrument: 5.0})
    return tracker


def sung(curve: NDArray[np.float64], certainty: float = 0.8) -> Probabilities:
    """A voice with this MIDI pitch in each frame, NaN where it is silent, as a network shows it:
    spread over the two nearest semitones."""
    drawn = silence(len(curve), len(HEADS))
    for frame, pitch in enumerate(curve):
        if not np.isnan(pitch):
            low, share = int(pitch), pitch % 1
            drawn[0, frame, low : low + 2] = certainty * (1 - share), certainty * share
            nearest = round(pitch)
            drawn[3, frame, nearest] = 0.5 + (pitch - nearest) / 2
    return drawn


def notes(events: list[NoteEvent]) -> list[tuple[int, int, int]]:
    """Pitch, first frame and end of each note."""
    ends = {event.note_id: event.frame for event in events if event.kind == "note_off"}
    starts = [event for event in events if event.kind == "note_on"]
    return [(on.pitch, on.frame, ends[on.note_id]) for on in starts]


SILENCE = np.full(20, np.nan)


def test_a_wide_vibrato_about_no_semitone_is_one_note_of_a_singer() -> None:
    wave = 60.2 + 0.6 * np.sin(np.arange(150) * 2 * np.pi / 15)
    drawn = sung(np.concatenate([SILENCE, wave, SILENCE]))
    ((pitch, start, end),) = notes(hear(singer(), drawn))
    assert pitch == 60
    assert (start, end) == pytest.approx((20, 170), abs=2)
    assert len(notes(hear(singer("saxophone"), drawn))) > 1


def test_steps_of_the_pitch_curve_are_notes() -> None:
    levels = (60.3, 62.2, 61.2, 57.4)
    drawn = sung(np.concatenate([SILENCE, *(np.full(40, level) for level in levels), SILENCE]), 1)
    found = notes(hear(singer(), drawn))
    assert [pitch for pitch, *_ in found] == [60, 62, 61, 57]
    assert [start for _, start, _ in found] == pytest.approx([20, 60, 100, 140], abs=1)
    assert found[-1][2] == pytest.approx(180, abs=1)


def test_a_note_after_a_glide_has_the_pitch_that_the_glide_leads_to() -> None:
    glide = np.concatenate([np.linspace(58.5, 60, 5), np.full(60, 60.0)])
    assert [pitch for pitch, *_ in notes(hear(singer(), sung(np.append(SILENCE, glide))))] == [60]


def test_the_tuning_shifts_the_pitch_curve() -> None:
    """A pitch curve between two semitones belongs to the one that the tuning makes nearest, and a
    change of tuning within a note starts no note."""
    drawn = sung(np.concatenate([SILENCE, np.full(60, 60.45), SILENCE]))
    tracker, events = singer(), []
    for first in range(0, drawn.shape[1], 4):
        tracker.read(drawn[:, first : first + 4], 4, 33.0 if first >= 60 else 0.0)
        events += [event for _ in range(4) for event in tracker.step()]
    assert len(notes(events + tracker.finish(drawn.shape[1]))) == 1


def test_a_doubtful_voice_starts_no_note() -> None:
    assert hear(singer(), sung(np.append(SILENCE, np.full(60, 60.0)), 0.12)) == []
    assert len(hear(singer(), sung(np.append(SILENCE, np.full(60, 60.0)), 0.5))) == 2


# -- properties -----------------------------------------------------------------------------------


@st.composite
def songs(draw: st.DrawFn) -> Probabilities:
    """A voice that steps, glides, wavers and falls silent, and sometimes a second one."""
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
def test_events_do_not_depend_on_the_size_of_blocks(song: Probabilities, size: int) -> None:
    frames, tracker = song.shape[1], singer()
    parts = np.split(song, range(size, frames, size), axis=1)
    events = [event for part in parts for event in push(tracker, part)] + tracker.finish(frames)
    assert events == hear(singer(), song)
    check_laws(events, SETTINGS, frames)


@settings(max_examples=30)
@given(songs(), st.floats(0, 1), st.integers(0, 3))
def test_a_resumed_tracker_returns_the_same_events(
    song: Probabilities, part: float, further: int
) -> None:
    frames = song.shape[1]
    blocks = np.split(song, range(1, frames), axis=1)
    same_when_resumed(singer, blocks, int(part * frames), further, frames)


@settings(max_examples=25)
@given(songs(), st.integers(0, 200))
def test_events_are_decided_within_the_stated_delay(song: Probabilities, cut: int) -> None:
    cut = min(cut, song.shape[1])
    tracker = singer()
    early, whole = push(tracker, song[:, :cut]), hear(singer(), song)
    assert early == whole[: len(early)]
    latest = {"note_on": tracker.on_delay_frames, "note_off": tracker.off_delay_frames}
    for event in whole[len(early) :]:
        assert event.time_s > (cut - 1 - latest[event.kind]) * FRAME_S - 1e-6
