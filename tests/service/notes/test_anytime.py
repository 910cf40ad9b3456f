"""Tests of the tracker that reports a note once its confidence passes the threshold."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import HOP
from service.notes.anytime import AnytimeTracker
from service.notes.event_detector import EventDetector
from service.notes.events import Event, NoteEvent
from service.notes.frames import as_probabilities
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import MAX_ANYTIME_BLOCK_FRAMES
from service.stream.windows import WindowSchedule
from tests.service.notes.synthetic_notes import (
    ALL_HEADS,
    FRAME_S,
    HEADS,
    add_note,
    check_events,
    check_resume,
    push,
    random_probabilities,
    silence,
    tracker_settings,
)

Windows = list[NDArray[np.float32]]


def windows_of(
    probabilities: NDArray[np.float32], tracker: AnytimeTracker, clarity: tuple[float, ...] = ()
) -> Windows:
    """Return the windows of a stream of ``probabilities`` [heads, n, 128], which ends in silence.
    Probabilities of frames that are 0, 1, ... frames old are multiplied by ``clarity``."""
    frames = probabilities.shape[1]
    columns = tracker.columns
    factor = np.ones(columns, np.float32)
    factor[: len(clarity)] = clarity[:columns]
    padded = np.concatenate([silence(columns - 1, len(probabilities)), probabilities], axis=1)
    return [
        as_probabilities(
            padded[:, n : n + columns] * factor[::-1][: frames + columns - 1 - n, None]
        )
        for n in range(frames + tracker.last_age)
    ]


def track(tracker: AnytimeTracker, windows: Windows) -> list[list[NoteEvent]]:
    """Return the events of each window, then those of the end."""
    events = [push(tracker, window) for window in windows]
    return [*events, tracker.finish(len(windows) - tracker.last_age)]


cases = st.tuples(
    random_probabilities(),
    tracker_settings,
    st.integers(0, 15),
    st.lists(st.floats(0, 1.2), max_size=8).map(tuple),
    st.sampled_from([ALL_HEADS, HEADS, HEADS[:2]]),
)
Case = tuple[NDArray[np.float32], TrackerSettings, int, tuple[float, ...], tuple[str, ...]]


def open_case(case: Case) -> tuple[AnytimeTracker, Windows]:
    probabilities, options, last_age, clarity, heads = case
    tracker = AnytimeTracker(options, FRAME_S, heads, last_age)
    return tracker, windows_of(probabilities[: len(heads)], tracker, clarity)


@settings(max_examples=30)
@given(
    tracker_settings,
    st.integers(1, MAX_ANYTIME_BLOCK_FRAMES),
    st.integers(1, 40),
    st.integers(0, 15),
    st.integers(0, 2**32 - 1),
)
def test_events_are_valid_for_windows_that_disagree(
    options: TrackerSettings, block_frames: int, frames: int, last_age: int, seed: int
) -> None:
    detector = EventDetector(options, FRAME_S, ALL_HEADS, last_age=last_age)
    history = detector.columns - 1
    schedule = WindowSchedule(2, block_frames, history, last_age)
    rng = np.random.default_rng(seed)
    events: list[Event] = []
    for block in range(schedule.blocks(HOP * frames)):
        first = schedule.first_frame(block)
        window = rng.random((len(ALL_HEADS), history + block_frames, 128), np.float32)
        events += detector.push(first, window[:, : frames - (first - history)], block_frames)
    events += detector.finish(frames)
    check_events((event for event in events if isinstance(event, NoteEvent)), options, frames)


@settings(max_examples=30)
@given(cases)
def test_events_are_decided_within_the_guaranteed_delay(case: Case) -> None:
    tracker, windows = open_case(case)
    reported = track(tracker, windows)
    max_delay = {"note_on": tracker.on_delay_frames, "note_off": tracker.off_delay_frames}
    for n, events in enumerate(reported[:-1]):
        for event in events:
            assert event.frame <= n
            assert n - tracker.last_age - event.time_s / FRAME_S <= max_delay[event.kind] + 1e-3
    check_events(chain(*reported), tracker.settings, case[0].shape[1])


@settings(max_examples=30)
@given(cases, st.floats(0, 1), st.integers(0, 3))
def test_resume_changes_no_event(case: Case, share: float, extra_frames: int) -> None:
    windows = open_case(case)[1]
    cut = int(share * len(windows))
    check_resume(lambda: open_case(case)[0], windows, cut, extra_frames, case[0].shape[1])


def test_higher_confidence_is_reported_earlier() -> None:
    options = TrackerSettings(onset_threshold=0.3, early_odds=(3.0, 2.2, 1.7, 1.25))
    delays = {}
    for height in (0.95, 0.65, 0.35):
        probabilities = silence(60)
        add_note(probabilities, 60, onset=20, offset=40, height=height)
        tracker = AnytimeTracker(options, FRAME_S, HEADS, last_age=10)
        events = track(tracker, windows_of(probabilities, tracker))
        window, on = next(
            (n, e) for n, reported in enumerate(events) for e in reported if e.kind == "note_on"
        )
        assert on.frame == 20
        delays[height] = window - 20
    assert delays == {0.95: 0, 0.65: 3, 0.35: 4}


@pytest.mark.parametrize("drift", [-2, -1, 1, 2])
def test_onset_with_moving_peak_is_reported_once(drift: int) -> None:
    tracker = AnytimeTracker(TrackerSettings(), FRAME_S, HEADS, last_age=12)
    early, late = silence(60), silence(60)
    add_note(early, 60, onset=20 + drift, offset=45)
    add_note(late, 60, onset=20, offset=45)
    early[0] = late[0]
    first, second = windows_of(early, tracker), windows_of(late, tracker)
    # From the window of frame 24 on, the predicted onset is at frame 20.
    events = track(tracker, [*first[:24], *second[24:]])
    assert [e.kind for reported in events for e in reported] == ["note_on", "note_off"]
