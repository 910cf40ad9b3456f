"""Properties of the note tracker that hold for any probabilities."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings
from tests.service.notes.synthetic_notes import (
    ALL_HEADS,
    FRAME_S,
    SINGER_HEADS,
    Probabilities,
    check_events,
    check_resume,
    line_settings,
    melodies,
    push,
    random_probabilities,
    run_tracker,
    songs,
    tracker_settings,
)


class Case(NamedTuple):
    """Probabilities of polyphonic music, of a melody, or of a singer, and their tracker."""

    probabilities: Probabilities
    settings: TrackerSettings
    heads: tuple[str, ...]
    is_sung: bool = False

    def open(self) -> NoteTracker:
        tracker = NoteTracker(self.settings, FRAME_S, self.heads)
        if self.is_sung:
            tracker.set_instrument_weights({"voice": 5.0})
        return tracker


MONOPHONIC = TrackerSettings(line=True)
CASES = {
    "polyphonic": st.tuples(random_probabilities(), tracker_settings, st.just(ALL_HEADS)),
    "melody": st.tuples(melodies(), line_settings, st.just(ALL_HEADS)),
    "singer": st.tuples(songs(), st.just(MONOPHONIC), st.just(SINGER_HEADS), st.just(True)),
}
any_kind = pytest.mark.parametrize("kind", CASES)


def draw_case(data: st.DataObject, kind: str) -> Case:
    return Case(*data.draw(CASES[kind]))


@any_kind
@settings(max_examples=25)
@given(st.data(), st.integers(2, len(ALL_HEADS)))
def test_events_of_any_probabilities_are_valid(kind: str, data: st.DataObject, heads: int) -> None:
    case = draw_case(data, kind)
    case = case._replace(probabilities=case.probabilities[:heads], heads=case.heads[:heads])
    events = run_tracker(case.open(), case.probabilities)
    check_events(events, case.settings, case.probabilities.shape[1])
    onsets_s = [event.time_s for event in events if event.kind == "note_on"]
    assert onsets_s == sorted(onsets_s) or case.settings.line


@any_kind
@settings(max_examples=25)
@given(st.data(), st.lists(st.integers(0, 40), max_size=30))
def test_block_sizes_do_not_change_events(kind: str, data: st.DataObject, sizes: list[int]) -> None:
    case = draw_case(data, kind)
    tracker = case.open()
    blocks = np.split(case.probabilities, np.cumsum(sizes, dtype=int), axis=1)
    events = [event for block in blocks for event in push(tracker, block)]
    events += tracker.finish(case.probabilities.shape[1])
    assert events == run_tracker(case.open(), case.probabilities)


@any_kind
@settings(max_examples=30)
@given(st.data(), st.floats(0, 1), st.integers(0, 3))
def test_resume_changes_no_event(
    kind: str, data: st.DataObject, share: float, extra_frames: int
) -> None:
    case = draw_case(data, kind)
    frames = case.probabilities.shape[1]
    blocks = np.split(case.probabilities, range(1, frames), axis=1)
    check_resume(case.open, blocks, int(share * frames), extra_frames, frames)


@any_kind
@settings(max_examples=25)
@given(st.data(), st.integers(0, 200))
def test_events_are_decided_within_the_guaranteed_delay(
    kind: str, data: st.DataObject, cut: int
) -> None:
    """Events do not depend on frames that are later than the maximum delay of their kind."""
    case = draw_case(data, kind)
    cut = min(cut, case.probabilities.shape[1])
    tracker = case.open()
    early = push(tracker, case.probabilities[:, :cut])
    expected = run_tracker(case.open(), case.probabilities)
    assert early == expected[: len(early)]
    max_delay = {"note_on": tracker.on_delay_frames, "note_off": tracker.off_delay_frames}
    for event in expected[len(early) :]:  # too late for a decision in frame cut - 1
        assert event.time_s > (cut - 1 - max_delay[event.kind]) * FRAME_S - 1e-6
    kinds = [event.kind for event in [*early, *tracker.end_all(tracker.decided_frames)]]
    assert kinds.count("note_on") == kinds.count("note_off")


@settings(max_examples=25)
@given(melodies(), line_settings)
def test_line_has_one_note_at_a_time(probs: Probabilities, line: TrackerSettings) -> None:
    probs[0] = np.where(probs[0] == probs[0].max(axis=1, keepdims=True), probs[0], 0)
    probs[4] = 0
    events = run_tracker(NoteTracker(line, FRAME_S, ALL_HEADS), probs)
    kinds = [event.kind for event in events]
    assert kinds == ["note_on", "note_off"] * (len(kinds) // 2)
