"""Scores by octave and polyphony against those of all notes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.evaluation.reports.report import (
    OCTAVES,
    POLYPHONY,
    Counts,
    breakdowns,
    pooled_figures,
)
from training.music.metrics import (
    NoteList,
    frame_average_precision,
    frame_f1,
    matched_onsets,
    note_list,
)

FRAME_S = 0.01


def notes(rows: list[tuple[float, float, int]]) -> NoteList:
    return note_list(np.array([(*row, 80) for row in rows]))


def random_notes(rng: np.random.Generator, count: int) -> NoteList:
    onset = rng.uniform(0, 0.9, count)
    length = rng.uniform(0.02, 0.2, count)
    pitch = rng.integers(30, 80, count)
    return note_list(np.stack([onset, onset + length, pitch, np.full(count, 80)], axis=1))


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_groups_add_up_to_the_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    reference, estimated = random_notes(rng, 12), random_notes(rng, 9)
    probabilities = (rng.integers(0, 11, (100, 128)) / 10).astype(np.float32)
    matched = matched_onsets(reference, estimated)
    label, drawn = reference.roll(100, FRAME_S), estimated.roll(100, FRAME_S)
    found = breakdowns(reference, estimated, matched, probabilities, FRAME_S)
    for names, groups in zip((OCTAVES, POLYPHONY), found, strict=True):
        assert groups is not None
        assert groups.notes.sum() == len(reference)
        assert groups.estimated.sum() == len(estimated)
        assert groups.matched.sum() == len(matched)
        twice = pooled_figures(names, [groups, groups])
        assert sum(figures["notes"] for figures in twice.values()) == 2 * len(reference)
        total = Counts(*(column.sum(axis=0, keepdims=True) for column in groups))
        of_all = pooled_figures(("all",), [total])["all"]
        assert of_all["frame_f1"] == pytest.approx(frame_f1(drawn, label))


def test_an_octave_counts_its_own_notes() -> None:
    reference = notes([(0.1, 0.5, 60), (0.2, 0.6, 71), (0.2, 0.6, 72)])
    estimated = notes([(0.1, 0.5, 60), (0.2, 0.6, 72), (0.7, 0.8, 72)])
    probabilities = estimated.roll(100, FRAME_S).astype(np.float32)
    matched = matched_onsets(reference, estimated)
    counts, _ = breakdowns(reference, estimated, matched, probabilities, FRAME_S)
    groups = pooled_figures(OCTAVES, [counts])
    assert list(groups) == ["C4 to B4", "C5 to B5"]
    low, high = groups.values()
    assert (low["onset_recall"], low["onset_precision"]) == (0.5, 1.0)
    assert (high["onset_recall"], high["onset_precision"]) == (1.0, 0.5)
    octave = slice(60, 72)
    label = reference.roll(100, FRAME_S)[:, octave]
    assert low["frame_ap"] == pytest.approx(
        frame_average_precision(probabilities[:, octave], label), abs=1e-6
    )
