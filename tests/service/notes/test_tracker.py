"""Note tracking: the notes that were drawn are found, each for its reason."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.notes.anytime import AnytimeTracker
from service.notes.dynamics import MEAN_VELOCITY
from service.notes.resume import ResumePoint
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings
from tests.service.notes.drawn_notes import (
    ALL_HEADS,
    FRAME_S,
    HEADS,
    Probabilities,
    check_laws,
    draw,
    events_of,
    hear,
    random_classifier,
    silence,
    sounding_after,
    track,
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
    draw(drawn, 60, 30.25, 60)
    events = track(drawn, (), TrackerSettings(release_frames=6))
    assert [(e.kind, e.note_id) for e in events] == [
        ("note_on", 0),
        ("note_off", 0),
        ("note_on", 1),
        ("note_off", 1),
    ]
    assert events[1].time_s == pytest.approx(end * FRAME_S, abs=1e-5)
    assert events[2].time_s == pytest.approx(30.25 * FRAME_S, abs=1e-5)


@pytest.mark.parametrize(
    "tracker", [NoteTracker, partial(AnytimeTracker, last_age=8)], ids=["block", "anytime"]
)
@pytest.mark.parametrize(
    ("threshold", "height", "begun"),
    [(None, 0.6, [10, 40]), (0.7, 0.6, [10]), (0.7, 0.8, [10, 40])],
)
def test_a_weak_peak_is_not_a_strike_of_a_note_that_sounds(
    tracker: Any, threshold: float | None, height: float, begun: list[int]
) -> None:
    drawn = silence(80)
    draw(drawn, 60, 10, 70)
    drawn[1, 40, 60] = height  # as of strings that beat
    draw(drawn, 64, 40, 70, height=0.6)  # begins a note: this pitch is silent
    events = hear(tracker(TrackerSettings(restrike_threshold=threshold), FRAME_S, HEADS), drawn)
    begins = [(event.pitch, event.frame) for event in events if event.kind == "note_on"]
    assert sorted(begins) == [*((60, frame) for frame in begun), (64, 40)]


def test_onset_times_are_corrected_and_ends_are_not() -> None:
    drawn = silence(60)
    draw(drawn, 60, 10.25, 30)
    on, off = track(drawn, (), TrackerSettings(onset_correction_frames=0.4))
    assert on.time_s == pytest.approx(10.65 * FRAME_S, abs=1e-6)
    assert on.frame == 10
    assert off.time_s == pytest.approx(30 * FRAME_S, abs=1e-6)


def test_hysteresis_keeps_a_fading_note() -> None:
    drawn = silence(100)
    draw(drawn, 60, 10, 80)
    drawn[0, 10:80, 60] = np.linspace(0.9, 0.0, 70)
    _, off = track(drawn, (), TrackerSettings(frame_off_threshold=0.2))
    assert drawn[0, off.frame, 60] < 0.2 <= drawn[0, off.frame - 1, 60]
    drawn[0, 25:27, 60] = 0.0  # a dip too short to be an end
    assert track(drawn, (), TrackerSettings(frame_off_threshold=0.2))[-1] == off


@pytest.mark.parametrize(
    "tracker", [NoteTracker, partial(AnytimeTracker, last_age=8)], ids=["block", "anytime"]
)
@pytest.mark.parametrize(("pedal", "threshold"), [(0.0, 0.3), (1.0, 0.1)])
def test_a_note_ends_at_a_lower_probability_while_the_pedal_is_down(
    tracker: Any, pedal: float, threshold: float
) -> None:
    drawn = silence(100, heads=len(ALL_HEADS))
    draw(drawn, 60, 10, 80)
    drawn[0, 10:80, 60] = np.linspace(0.9, 0.0, 70)
    drawn[ALL_HEADS.index("pedal")] = pedal
    chosen = TrackerSettings(frame_off_threshold=0.3, pedal_frame_off_threshold=0.1)
    off = hear(tracker(chosen, FRAME_S, ALL_HEADS), drawn)[-1]
    assert drawn[0, off.frame, 60] < threshold <= drawn[0, off.frame - 1, 60]


def test_the_offset_head_ends_a_note_that_still_rings() -> None:
    drawn = silence(80, heads=len(ALL_HEADS))
    draw(drawn, 60, 10, 60)
    drawn[0, 40:60, 60] = 0.35  # between the two thresholds of the frames
    drawn[3, 39:42, 60] = 0.6, 0.9, 0.6
    drawn[3, 20, 60] = 0.9  # while it sounds in full: not believed
    ends = {
        threshold: track(drawn, (), TrackerSettings(offset_threshold=threshold), ALL_HEADS)[
            -1
        ].frame
        for threshold in (None, 0.5, 0.95)
    }
    assert ends == {None: 60, 0.5: 40, 0.95: 60}


def test_a_strong_note_with_a_missed_onset_begins_by_its_frames() -> None:
    drawn = silence(60)
    drawn[0, 20:50, 60] = 0.9
    drawn[0, 20:24, 72] = 0.9  # too short to be believed
    on, off = track(drawn)
    assert on.frame == 20 + TrackerSettings().frame_start_frames - 1 - 2
    assert (on.pitch, off.frame) == (60, 50)
    assert on.confidence == pytest.approx(0.9)
    assert track(drawn, (), TrackerSettings(frame_start_threshold=None)) == []


def test_a_model_without_onset_head() -> None:
    drawn = silence(60, heads=1)
    drawn[0, 20:40, 60] = 0.6
    on, off = track(drawn, (), None, heads=("frame",))
    assert (on.frame, off.frame) == (20, 40)
    assert on.velocity == TrackerSettings().default_velocity


def test_a_card_sets_what_it_names() -> None:
    card = {"tracker": {"onset_threshold": 0.31}}
    assert TrackerSettings.from_card(card) == TrackerSettings(onset_threshold=0.31)
    assert TrackerSettings.from_card({}) == TrackerSettings()
    with pytest.raises(ValueError, match="^unknown field: onset$"):
        TrackerSettings.from_card({"tracker": {"onset": 0.31}})


# -- what holds for any probabilities -------------------------------------------------------------


@st.composite
def wild_probabilities(draw_from: st.DrawFn) -> Probabilities:
    """Probabilities of a few busy pitches, with runs, jumps and plateaus."""
    seed = draw_from(st.integers(0, 2**32 - 1))
    frames = draw_from(st.integers(0, 80))
    levels = draw_from(st.integers(2, 40))
    rng = np.random.default_rng(seed)
    out = silence(frames, heads=len(ALL_HEADS))
    steps = rng.integers(0, levels + 1, (len(ALL_HEADS), frames, 4)) / levels
    hold = rng.random((len(ALL_HEADS), frames, 4)) < draw_from(st.floats(0, 0.95))
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
    pedal_frame_off_threshold=st.none() | st.just(0.0),
    offset_threshold=st.none() | st.floats(0.1, 0.9),
    frame_start_threshold=st.none() | st.floats(0.3, 0.9),
    frame_start_frames=st.integers(1, 8),
    min_note_frames=st.integers(2, 8),
)


judged_settings = st.builds(
    lambda chosen, radius, seed: replace(
        chosen, onset_radius_frames=radius, onset_classifier=random_classifier(seed)
    ),
    tracker_settings,
    st.integers(2, 4),
    st.integers(0, 2**32 - 1),
)
any_settings = tracker_settings | judged_settings


@settings(max_examples=80)
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


@settings(max_examples=80)
@given(wild_probabilities(), any_settings, st.lists(st.integers(0, 9), max_size=30))
def test_events_do_not_depend_on_how_frames_are_pushed(
    probabilities: Probabilities, chosen: TrackerSettings, chunks: list[int]
) -> None:
    whole = track(probabilities, (), chosen, ALL_HEADS)
    assert track(probabilities, chunks, chosen, ALL_HEADS) == whole


@settings(max_examples=80)
@given(wild_probabilities(), any_settings, st.data())
def test_another_tracker_goes_on_where_one_stopped(
    probabilities: Probabilities, chosen: TrackerSettings, data: st.DataObject
) -> None:
    frames = probabilities.shape[1]
    cut = data.draw(st.integers(0, frames))
    one = NoteTracker(chosen, FRAME_S, ALL_HEADS)
    first = max(0, cut - one.history_frames - data.draw(st.integers(0, 3)))
    events = events_of(one.push(probabilities[:, :cut]))
    notes, sounding = sounding_after(events)
    other = NoteTracker(chosen, FRAME_S, ALL_HEADS)
    point = ResumePoint(frames=cut, notes=notes, sounding=sounding, dynamics=one.dynamics)
    other.resume(first, point)
    assert other.push(probabilities[:, first:cut]) == []
    events += events_of([*other.push(probabilities[:, cut:]), *other.finish(frames)])
    assert events == track(probabilities, (), chosen, ALL_HEADS)


@settings(max_examples=80)
@given(wild_probabilities(), any_settings, st.integers(0, 80))
def test_events_are_known_within_the_stated_delay(
    probabilities: Probabilities, chosen: TrackerSettings, cut: int
) -> None:
    """What is said neither waits for nor depends on frames beyond the delay of its kind."""
    cut = min(cut, probabilities.shape[1])
    tracker = NoteTracker(chosen, FRAME_S, ALL_HEADS)
    early = events_of(tracker.push(probabilities[:, :cut]))
    whole = track(probabilities, (), chosen, ALL_HEADS)
    assert early == whole[: len(early)]  # what follows the cut changes nothing
    latest_s = {"note_on": tracker.on_delay_frames, "note_off": tracker.off_delay_frames}
    for event in whole[len(early) :]:  # not said by frame cut - 1: too near to it
        assert event.time_s > (cut - 1 - latest_s[event.kind]) * FRAME_S - 1e-6
