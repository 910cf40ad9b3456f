"""Note tracking: what holds for any probabilities."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings
from tests.service.notes.drawn_notes import (
    ALL_HEADS,
    FRAME_S,
    HEADS,
    Probabilities,
    check_laws,
    silence,
    sounding_after,
    track,
)


@st.composite
def wild_probabilities(draw_from: st.DrawFn) -> Probabilities:
    """Probabilities of a few busy pitches, with runs, jumps and plateaus."""
    seed = draw_from(st.integers(0, 2**32 - 1))
    frames = draw_from(st.integers(0, 80))
    levels = draw_from(st.integers(2, 40))
    rng = np.random.default_rng(seed)
    out = silence(frames, heads=4)
    steps = rng.integers(0, levels + 1, (4, frames, 4)) / levels
    hold = rng.random((4, frames, 4)) < draw_from(st.floats(0, 0.95))
    for i in range(1, frames):
        steps[:, i] = np.where(hold[:, i], steps[:, i - 1], steps[:, i])
    out[:, :, [0, 60, 61, 127]] = steps
    return out


tracker_settings = st.builds(
    TrackerSettings,
    onset_threshold=st.floats(0.1, 0.9),
    restrike_threshold=st.none() | st.floats(0.1, 1.0),
    onset_radius_frames=st.integers(1, 4),
    onset_correction_frames=st.floats(-0.49, 0.49),
    frame_on_threshold=st.floats(0.3, 0.9),
    frame_off_threshold=st.floats(0.0, 0.3),
    release_frames=st.integers(1, 8),
    offset_threshold=st.none() | st.floats(0.1, 0.9),
    frame_start_threshold=st.none() | st.floats(0.3, 0.9),
    frame_start_frames=st.integers(1, 8),
    min_note_frames=st.integers(2, 8),
)


@settings(max_examples=80, deadline=None)
@given(
    wild_probabilities(),
    tracker_settings,
    st.sampled_from([ALL_HEADS, HEADS, HEADS[:2], HEADS[:1]]),
)
def test_the_laws_of_events(
    probabilities: Probabilities, chosen: TrackerSettings, heads: tuple[str, ...]
) -> None:
    frames = probabilities.shape[1]
    events = track(probabilities[: len(heads)], (), chosen, heads)
    check_laws(events, chosen, frames)
    begun_s = [event.time_s for event in events if event.kind == "note_on"]
    assert begun_s == sorted(begun_s)


@settings(max_examples=80, deadline=None)
@given(wild_probabilities(), tracker_settings, st.lists(st.integers(0, 9), max_size=30))
def test_events_do_not_depend_on_how_frames_are_pushed(
    probabilities: Probabilities, chosen: TrackerSettings, chunks: list[int]
) -> None:
    whole = track(probabilities, (), chosen, ALL_HEADS)
    assert track(probabilities, chunks, chosen, ALL_HEADS) == whole


@settings(max_examples=80, deadline=None)
@given(wild_probabilities(), tracker_settings, st.data())
def test_another_tracker_goes_on_where_one_stopped(
    probabilities: Probabilities, chosen: TrackerSettings, data: st.DataObject
) -> None:
    frames = probabilities.shape[1]
    cut = data.draw(st.integers(0, frames))
    one = NoteTracker(chosen, FRAME_S, ALL_HEADS)
    first = max(0, cut - one.history_frames - data.draw(st.integers(0, 3)))
    events = one.push(0, probabilities[:, :cut])
    notes, sounding = sounding_after(events)
    other = NoteTracker(chosen, FRAME_S, ALL_HEADS)
    other.resume(first, cut, notes, sounding)
    assert other.push(first, probabilities[:, first:cut]) == []
    events += other.push(cut, probabilities[:, cut:])
    events += other.finish(frames)
    assert events == track(probabilities, (), chosen, ALL_HEADS)


@settings(max_examples=80, deadline=None)
@given(wild_probabilities(), tracker_settings, st.integers(0, 80))
def test_events_are_known_within_the_stated_delay(
    probabilities: Probabilities, chosen: TrackerSettings, cut: int
) -> None:
    """What is said neither waits for nor depends on frames beyond the delay of its kind."""
    cut = min(cut, probabilities.shape[1])
    tracker = NoteTracker(chosen, FRAME_S, ALL_HEADS)
    early = tracker.push(0, probabilities[:, :cut])
    whole = track(probabilities, (), chosen, ALL_HEADS)
    assert early == whole[: len(early)]  # what follows the cut changes nothing
    latest_s = {"note_on": tracker.on_delay_frames, "note_off": tracker.off_delay_frames}
    for event in whole[len(early) :]:  # not said by frame cut - 1: too near to it
        assert event.time_s > (cut - 1 - latest_s[event.kind]) * FRAME_S - 1e-6
