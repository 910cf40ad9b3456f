"""Notes reported as soon as they are certain enough: what holds for any windows."""

from itertools import chain
from typing import Any

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
from tests.service.notes.drawn_notes import (
    ALL_HEADS,
    FRAME_S,
    HEADS,
    check_laws,
    draw,
    push,
    same_when_resumed,
    silence,
    tracker_settings,
    wild_probabilities,
)

Windows = list[NDArray[np.float32]]


def windows_of(
    probabilities: NDArray[np.float32], tracker: AnytimeTracker, clarity: tuple[float, ...] = ()
) -> Windows:
    """The windows of a stream of these frames, [heads, n, 128], and of the silence after it.
    clarity: what a window makes of a probability whose frame is 0, 1, ... frames old; 1 after."""
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
    """The events of each window, and last those of the end."""
    events = [push(tracker, window) for window in windows]
    return [*events, tracker.finish(len(windows) - tracker.last_age)]


def _wild(chosen: st.SearchStrategy[TrackerSettings], *heads: tuple[str, ...]) -> Any:
    ages = st.integers(0, 15)
    clarity = st.lists(st.floats(0, 1.2), max_size=8).map(tuple)
    return st.tuples(wild_probabilities(), chosen, ages, clarity, st.sampled_from(heads))


wild_windows = _wild(tracker_settings, ALL_HEADS, HEADS, HEADS[:2])
Wild = tuple[NDArray[np.float32], TrackerSettings, int, tuple[float, ...], tuple[str, ...]]


def opened(wild: Wild) -> tuple[AnytimeTracker, Windows]:
    probabilities, chosen, last_age, clarity, heads = wild
    tracker = AnytimeTracker(chosen, FRAME_S, heads, last_age)
    return tracker, windows_of(probabilities[: len(heads)], tracker, clarity)


@settings(max_examples=30)
@given(
    tracker_settings,
    st.integers(1, MAX_ANYTIME_BLOCK_FRAMES),
    st.integers(1, 40),
    st.integers(0, 15),
    st.integers(0, 2**32 - 1),
)
def test_the_laws_of_events_hold_for_windows_that_disagree(
    chosen: TrackerSettings, block_frames: int, frames: int, last_age: int, seed: int
) -> None:
    detector = EventDetector(chosen, FRAME_S, ALL_HEADS, last_age=last_age)
    again = detector.columns - 1
    schedule = WindowSchedule(2, block_frames, again, last_age)
    rng = np.random.default_rng(seed)
    events: list[Event] = []
    for block in range(schedule.blocks(HOP * frames)):
        first = schedule.first_frame(block)
        window = rng.random((len(ALL_HEADS), again + block_frames, 128), np.float32)
        events += detector.push(first, window[:, : frames - (first - again)], block_frames)
    events += detector.finish(frames)
    check_laws((event for event in events if isinstance(event, NoteEvent)), chosen, frames)


@settings(max_examples=30)
@given(wild_windows)
def test_events_are_known_within_the_stated_delay(wild: Wild) -> None:
    tracker, windows = opened(wild)
    reported = track(tracker, windows)
    most = {"note_on": tracker.on_delay_frames, "note_off": tracker.off_delay_frames}
    for n, events in enumerate(reported[:-1]):
        for event in events:
            assert event.frame <= n
            assert n - tracker.last_age - event.time_s / FRAME_S <= most[event.kind] + 1e-3
    check_laws(chain(*reported), tracker.settings, wild[0].shape[1])


@settings(max_examples=30)
@given(wild_windows, st.floats(0, 1), st.integers(0, 3))
def test_another_tracker_goes_on_where_one_stopped(wild: Wild, part: float, further: int) -> None:
    windows = opened(wild)[1]
    cut = int(part * len(windows))
    same_when_resumed(lambda: opened(wild)[0], windows, cut, further, wild[0].shape[1])


def test_the_surer_the_sooner() -> None:
    chosen = TrackerSettings(onset_threshold=0.3, early_odds=(3.0, 2.2, 1.7, 1.25))
    reported = {}
    for height in (0.95, 0.65, 0.35):
        probabilities = silence(60)
        draw(probabilities, 60, onset=20, offset=40, height=height)
        tracker = AnytimeTracker(chosen, FRAME_S, HEADS, last_age=10)
        events = track(tracker, windows_of(probabilities, tracker))
        at, on = next(
            (n, e) for n, reported in enumerate(events) for e in reported if e.kind == "note_on"
        )
        assert on.frame == 20
        reported[height] = at - 20
    assert reported == {0.95: 0, 0.65: 3, 0.35: 4}


@pytest.mark.parametrize("drift", [-2, -1, 1, 2])
def test_an_onset_whose_peak_moves_is_begun_once(drift: int) -> None:
    tracker = AnytimeTracker(TrackerSettings(), FRAME_S, HEADS, last_age=12)
    early, late = silence(60), silence(60)
    draw(early, 60, onset=20 + drift, offset=45)
    draw(late, 60, onset=20, offset=45)
    early[0] = late[0]
    first, second = windows_of(early, tracker), windows_of(late, tracker)
    # From the window of frame 24 on, the network is of another mind.
    events = track(tracker, [*first[:24], *second[24:]])
    assert [e.kind for reported in events for e in reported] == ["note_on", "note_off"]
