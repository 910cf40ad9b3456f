"""A second look at onsets: what it reads, and what it does to notes."""

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.notes.anytime import AnytimeTracker
from service.notes.onsets import (
    AFTER,
    HISTORY,
    INPUTS,
    OnsetClassifier,
    cell_rows,
    peaks,
    surroundings,
)
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings
from tests.service.notes.drawn_notes import (
    ALL_HEADS,
    FRAME_S,
    draw,
    hear,
    random_classifier,
    silence,
    track,
)

ROWS = cell_rows(ALL_HEADS)


def always(probability: float) -> OnsetClassifier:
    bias = float(np.log(probability / (1 - probability)))
    return OnsetClassifier((((tuple([0.0] * INPUTS),), (bias,)),))


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 6))
def test_a_peak_is_the_first_of_the_highest_nearby(seed: int, radius: int, levels: int) -> None:
    steps = np.random.default_rng(seed).integers(0, levels + 1, (30, 3))
    onset = steps.astype(np.float32) / np.float32(levels)
    found = peaks(onset, radius, 0.2)
    for frame, pitch in np.ndindex(*onset.shape):
        here = onset[frame, pitch]
        before = onset[max(0, frame - radius) : frame, pitch]
        after = onset[frame + 1 : frame + 1 + radius, pitch]
        expected = here >= 0.2 and (before < here).all() and (after <= here).all()
        assert found[frame, pitch] == expected


def test_the_classifier_decides_and_its_probability_is_the_confidence() -> None:
    drawn = silence(120, heads=len(ALL_HEADS))
    draw(drawn, 60, 30, 60, height=0.1)  # too weak by itself
    plain = TrackerSettings(frame_start_threshold=None)
    assert track(drawn, (), plain, ALL_HEADS) == []
    for tracker in (NoteTracker, AnytimeTracker):
        sure = dataclasses.replace(plain, onset_classifier=always(0.8))
        ages = (8,) if tracker is AnytimeTracker else ()
        found = hear(tracker(sure, FRAME_S, ALL_HEADS, *ages), drawn)
        assert [(e.kind, e.frame, e.confidence) for e in found] == [
            ("note_on", 30, 0.8),
            ("note_off", 60, 0.8),
        ]
        never = dataclasses.replace(plain, onset_classifier=always(0.2))
        assert hear(tracker(never, FRAME_S, ALL_HEADS, *ages), drawn) == []


def test_of_windows_that_agree_it_reads_the_stream_about_a_peak() -> None:
    frames, last_age = 40, 6
    drawn = np.random.default_rng(0).random((len(ALL_HEADS), frames, 128), np.float32)
    judge = random_classifier(seed=1)
    easy = TrackerSettings(
        onset_classifier=judge, onset_threshold=1e-9, frame_on_threshold=1e-9, frame_off_threshold=0
    )
    tracker = AnytimeTracker(easy, FRAME_S, ALL_HEADS, last_age)
    padded = np.pad(drawn, ((0, 0), (tracker.columns - 1, 0), (0, 0)))
    for newest in range(frames):
        found = tracker.onset_peaks(padded[:, newest : newest + tracker.columns])
        ages, pitches, chances = (np.array(part) for part in zip(*found, strict=True))
        known = np.pad(drawn[:, : newest + 1], ((0, 0), (HISTORY, AFTER), (0, 0)))
        at = HISTORY + newest - ages
        inputs = surroundings(known, ROWS, at, pitches, np.minimum(AFTER, ages))
        np.testing.assert_allclose(chances, judge(inputs), rtol=1e-6)
