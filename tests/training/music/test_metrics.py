"""Tests of the metrics of a transcription."""

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import INSTRUMENTS
from training.music.metrics import (
    confusion,
    frame_average_precision,
    matched_onsets,
    recording_metrics,
    velocity_f1,
)
from training.music.notes import Notes, notes_of_rows

FRAME_S = 0.01
SCALE = notes_of_rows(np.array([(0.1 * i, 0.1 * i + 0.08, 60 + i, 80) for i in range(10)]))


def metrics_of(reference: Notes, detected: Notes, probabilities: NDArray) -> dict[str, float]:
    matched = matched_onsets(reference, detected)
    return recording_metrics(reference, detected, matched, probabilities, FRAME_S)


def test_a_perfect_transcription_has_the_maximum_scores() -> None:
    roll = SCALE.roll(120, FRAME_S)
    assert metrics_of(SCALE, SCALE, roll.astype(float)) == pytest.approx(
        {"frame_ap": 1.0, "frame_f1": 1.0, "onset_f1": 1.0, "onset_offset_f1": 1.0}
    )


def test_offsets_count_only_if_requested() -> None:
    long = notes_of_rows(np.stack([SCALE.onset, SCALE.onset + 0.5, SCALE.pitch, SCALE.velocity], 1))
    assert len(matched_onsets(SCALE, long)) == len(SCALE)
    assert len(matched_onsets(SCALE, long, offsets=True)) == 0


def test_average_precision_is_pooled_over_frames_and_notes() -> None:
    roll = np.zeros((2, 128), bool)
    roll[0, 60] = roll[1, 61] = True
    probabilities = np.zeros((2, 128))
    probabilities[0, 60], probabilities[1, 90], probabilities[1, 61] = 0.9, 0.8, 0.7
    assert frame_average_precision(probabilities, roll) == pytest.approx(0.5 + 0.5 * 2 / 3)
    assert np.isnan(frame_average_precision(probabilities, np.zeros((2, 128), bool)))


def test_transcriptions_without_notes_score_zero() -> None:
    no_notes = notes_of_rows(np.zeros((0, 4)))
    assert matched_onsets(SCALE, no_notes).shape == (0, 2)
    assert velocity_f1(SCALE, no_notes) == 0
    assert metrics_of(no_notes, no_notes, np.zeros((5, 128)))["frame_f1"] == 0


def test_velocity_scores_require_labelled_velocities() -> None:
    rows = np.stack([SCALE.onset, SCALE.offset, SCALE.pitch, np.arange(10, 110, 10)], axis=1)
    played = notes_of_rows(rows)
    roll = played.roll(120, FRAME_S).astype(float)
    assert "onset_velocity_f1" not in metrics_of(SCALE, played, roll)
    assert metrics_of(played, played, roll)["onset_velocity_f1"] == pytest.approx(1.0)
    rows[:5, 3] = 100  # Half of the notes are too loud at any scale.
    assert velocity_f1(played, notes_of_rows(rows)) < 0.8


def test_instrument_accuracy_counts_matched_notes() -> None:
    violin, viola = INSTRUMENTS.index("violin"), INSTRUMENTS.index("viola")
    rows = [(0.2 * i, 0.2 * i + 0.1, 60 + i, 80, violin) for i in range(4)]
    played = notes_of_rows(np.array(rows))
    # One note of another instrument, one missed note, one extra note.
    detected = notes_of_rows(
        np.array([*rows[:2], (*rows[2][:4], viola), (2.0, 2.1, 90, 80, violin)])
    )
    figures = metrics_of(played, detected, played.roll(300, FRAME_S).astype(float))
    assert figures["instrument_accuracy"] == pytest.approx(2 / 3)
    counts = confusion(played, detected, matched_onsets(played, detected))
    assert (counts[violin, violin], counts[violin, viola], counts.sum()) == (2, 1, 3)
