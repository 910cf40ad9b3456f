"""Scores aligned with the predictions of an ideal model for a synthetic piece."""

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import HOP, PITCHES, SAMPLE_RATE
from training.music.aligner import FOUND, PEAK_LEAD_S, PLACED, Aligned, align
from training.music.notes import Notes, notes_of_rows

FRAME_S = HOP / SAMPLE_RATE
LEAD_S = 2.0  # silence before the music
PACE = 1.25  # it is played so much slower than written


def played_s(written_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the time in the performance of a time in the score, at a varying tempo."""
    return LEAD_S + PACE * written_s + 0.15 * np.sin(written_s)


Activations = tuple[NDArray[np.float32], NDArray[np.float32]]  # sounding, onset


def ideal_activations(notes: Notes, seconds: float) -> Activations:
    """Return the labels of training as probabilities, with the delay of a model."""
    frames = int(seconds / FRAME_S)
    onset = np.zeros((frames, PITCHES), np.float32)
    for time_s, pitch in zip(notes.onset, notes.pitch, strict=True):
        at = np.arange(frames) - (time_s - PEAK_LEAD_S) / FRAME_S
        onset[:, pitch] = np.maximum(onset[:, pitch], 0.9 * np.maximum(0, 1 - np.abs(at) / 3))
    return notes.roll(frames, FRAME_S).astype(np.float32), onset


@pytest.fixture(scope="module")
def score() -> Notes:
    """30 s of chords and runs; every third pitch, so that no two are confused."""
    rng = np.random.default_rng(5)
    rows = []
    for beat in range(60):
        size = 1 + beat % 3
        for pitch in 40 + 3 * rng.choice(14, size, replace=False):
            rows.append((beat / 2, beat / 2 + 0.4, pitch, 70))
    return notes_of_rows(np.array(rows))


@pytest.fixture(scope="module")
def played(score: Notes) -> Notes:
    """The score as it is played: each note up to 30 ms from its chord."""
    jitter = np.random.default_rng(6).uniform(-0.03, 0.03, len(score))
    onset = played_s(score.onset) + jitter
    return score.moved(onset=onset, offset=played_s(score.offset))


@pytest.fixture(scope="module")
def activations(played: Notes) -> Activations:
    return ideal_activations(played, 45.0)


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
    assert aligned.detected.all()
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
    (missed,) = np.flatnonzero(~aligned.detected)
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
