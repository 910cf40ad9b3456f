"""Tests of the alignment of scores, with predictions of an ideal model for a synthetic piece."""

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import HOP, PITCHES, SAMPLE_RATE
from training.music.aligner import (
    MAX_UNDETECTED_CONFIDENCE,
    MIN_ONSET_PROBABILITY,
    PEAK_LEAD_S,
    Aligned,
    align,
)
from training.music.notes import Notes, notes_of_rows

FRAME_S = HOP / SAMPLE_RATE
LEAD_S = 2.0  # silence before the music
SLOWDOWN = 1.25  # duration of the performance divided by that of the score


def performance_s(score_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert times in the score to times in the performance, at a varying tempo."""
    return LEAD_S + SLOWDOWN * score_s + 0.15 * np.sin(score_s)


Activations = tuple[NDArray[np.float32], NDArray[np.float32]]  # sounding, onset


def ideal_activations(notes: Notes, seconds: float) -> Activations:
    """Return training labels as probabilities, with the delay of a model."""
    frames = int(seconds / FRAME_S)
    onset = np.zeros((frames, PITCHES), np.float32)
    for time_s, pitch in zip(notes.onset, notes.pitch, strict=True):
        distance = np.abs(np.arange(frames) - (time_s - PEAK_LEAD_S) / FRAME_S)
        onset[:, pitch] = np.maximum(onset[:, pitch], 0.9 * np.maximum(0, 1 - distance / 3))
    return notes.roll(frames, FRAME_S).astype(np.float32), onset


@pytest.fixture(scope="module")
def score() -> Notes:
    """Score of 30 s with chords and runs. Its pitches are at least 3 semitones apart."""
    rng = np.random.default_rng(5)
    rows = []
    for beat in range(60):
        size = 1 + beat % 3
        for pitch in 40 + 3 * rng.choice(14, size, replace=False):
            rows.append((beat / 2, beat / 2 + 0.4, pitch, 70))
    return notes_of_rows(np.array(rows))


@pytest.fixture(scope="module")
def performance(score: Notes) -> Notes:
    """Notes of the performance. Each differs by up to 30 ms from the time of its chord."""
    jitter = np.random.default_rng(6).uniform(-0.03, 0.03, len(score))
    onset = performance_s(score.onset) + jitter
    return score.replaced(onset=onset, offset=performance_s(score.offset))


@pytest.fixture(scope="module")
def activations(performance: Notes) -> Activations:
    return ideal_activations(performance, 45.0)


def errors_s(aligned: Aligned, performance: Notes) -> np.ndarray:
    """Return the distance of each aligned note from its onset in the performance."""
    truth = np.lexsort((performance.onset, performance.pitch))
    order = np.lexsort((aligned.notes.onset, aligned.notes.pitch))
    assert (aligned.notes.pitch[order] == performance.pitch[truth]).all()
    return np.abs(aligned.notes.onset[order] - performance.onset[truth])


def test_each_note_is_aligned_with_its_onset(
    score: Notes, performance: Notes, activations: Activations
) -> None:
    aligned = align(score, *activations)
    assert errors_s(aligned, performance).max() < FRAME_S
    assert aligned.detected.all()
    assert aligned.confidence.min() > 2 * MIN_ONSET_PROBABILITY
    assert (np.diff(aligned.audio_s) >= 0).all()
    assert (aligned.notes.offset > aligned.notes.onset).all()


def test_an_undetected_note_has_its_chord_onset_and_low_confidence(
    score: Notes, performance: Notes, activations: Activations
) -> None:
    sounding, onset = activations[0], activations[1].copy()
    undetected = 31  # a note of a chord of two
    frame = int(performance.onset[undetected] / FRAME_S)
    onset[frame - 10 : frame + 10, performance.pitch[undetected]] = 0
    aligned = align(score, sounding, onset)
    (index,) = np.flatnonzero(~aligned.detected)
    assert aligned.notes.pitch[index] == performance.pitch[undetected]
    assert abs(aligned.notes.onset[index] - performance.onset[undetected]) < 0.06
    assert MIN_ONSET_PROBABILITY / 2 < aligned.confidence[index] <= MAX_UNDETECTED_CONFIDENCE
    assert aligned.confidence[index] == aligned.confidence.min()


def test_onsets_missing_from_the_score_are_reported(score: Notes, activations: Activations) -> None:
    sounding, onset = activations[0], activations[1].copy()
    onset[1000, 100] = 0.8
    extra = align(score, sounding, onset).unwritten
    assert extra.shape == (1, 3)
    assert extra[0] == pytest.approx([1000 * FRAME_S, 100, 0.8])
