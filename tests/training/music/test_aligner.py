"""Scores aligned with what a model hears."""

import numpy as np
import pytest

from tests.training.music.conftest import FRAME_S, Activations
from training.music.aligner import (
    FOUND,
    PLACED,
    Aligned,
    align,
)
from training.music.notes import Notes


def errors_s(aligned: Aligned, score: Notes, played: Notes) -> np.ndarray:
    """How far each note lies from where it is played; both have the score's notes."""
    truth = np.lexsort((played.onset, played.pitch))
    found = np.lexsort((aligned.notes.onset, aligned.notes.pitch))
    assert (aligned.notes.pitch[found] == played.pitch[truth]).all()
    return np.abs(aligned.notes.onset[found] - played.onset[truth])


def test_each_note_goes_to_its_own_onset(
    score: Notes, played: Notes, activations: Activations
) -> None:
    aligned = align(score, *activations, FRAME_S)
    assert errors_s(aligned, score, played).max() < FRAME_S
    assert aligned.heard.all()
    assert aligned.confidence.min() > 2 * FOUND
    assert (np.diff(aligned.audio_s) >= 0).all()
    assert (aligned.notes.offset > aligned.notes.onset).all()


def test_a_note_that_is_not_heard_is_placed_by_its_chord_and_in_doubt(
    score: Notes, played: Notes, activations: Activations
) -> None:
    sounding, onset = activations[0], activations[1].copy()
    deaf = 31  # a note of a chord of two
    at = int(played.onset[deaf] / FRAME_S)
    onset[at - 10 : at + 10, played.pitch[deaf]] = 0
    aligned = align(score, sounding, onset, FRAME_S)
    (missed,) = np.flatnonzero(~aligned.heard)
    assert aligned.notes.pitch[missed] == played.pitch[deaf]
    assert abs(aligned.notes.onset[missed] - played.onset[deaf]) < 0.06
    assert FOUND / 2 < aligned.confidence[missed] <= PLACED
    assert aligned.confidence[missed] == aligned.confidence.min()


def test_an_unwritten_onset_is_reported(score: Notes, activations: Activations) -> None:
    sounding, onset = activations[0], activations[1].copy()
    onset[1000, 100] = 0.8
    extra = align(score, sounding, onset, FRAME_S).unwritten
    assert extra.shape == (1, 3)
    assert extra[0] == pytest.approx([1000 * FRAME_S, 100, 0.8])
