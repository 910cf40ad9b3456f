"""A synthetic piece, its performance, and the output of an ideal model."""

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import HOP, PITCHES, SAMPLE_RATE
from training.music.aligner import HEARD_EARLY_S
from training.music.notes import Notes, notes_of_rows

FRAME_S = HOP / SAMPLE_RATE
LEAD_S = 2.0  # of silence before the music
PACE = 1.25  # it is played so much slower than written


def played_s(written_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where the player is at a time of the score, at a varying tempo."""
    return LEAD_S + PACE * written_s + 0.15 * np.sin(written_s)


Activations = tuple[NDArray[np.float32], NDArray[np.float32]]  # sounding, onset


def ideal_activations(notes: Notes, seconds: float) -> Activations:
    """Probabilities as the labels of training would have them, as early as a model hears."""
    frames = int(seconds / FRAME_S)
    onset = np.zeros((frames, PITCHES), np.float32)
    for time_s, pitch in zip(notes.onset, notes.pitch, strict=True):
        at = np.arange(frames) - (time_s - HEARD_EARLY_S) / FRAME_S
        onset[:, pitch] = np.maximum(onset[:, pitch], 0.9 * np.maximum(0, 1 - np.abs(at) / 3))
    return notes.roll(frames, FRAME_S).astype(np.float32), onset


@pytest.fixture(scope="session")
def score() -> Notes:
    """30 s of chords and runs; every third pitch, so that no two are confused."""
    rng = np.random.default_rng(5)
    rows = []
    for beat in range(60):
        size = 1 + beat % 3
        for pitch in 40 + 3 * rng.choice(14, size, replace=False):
            rows.append((beat / 2, beat / 2 + 0.4, pitch, 70))
    return notes_of_rows(np.array(rows))


@pytest.fixture(scope="session")
def played(score: Notes) -> Notes:
    """The score as it is played: each note up to 30 ms from its chord."""
    jitter = np.random.default_rng(6).uniform(-0.03, 0.03, len(score))
    onset = played_s(score.onset) + jitter
    return score.moved(onset=onset, offset=played_s(score.offset))


@pytest.fixture(scope="session")
def activations(played: Notes) -> Activations:
    return ideal_activations(played, 45.0)
