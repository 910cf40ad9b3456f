"""Metrics of transcriptions with known scores."""

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


def scored(reference: Notes, found: Notes, probabilities: NDArray) -> dict[str, float]:
    matched = matched_onsets(reference, found)
    return recording_metrics(reference, found, matched, probabilities, FRAME_S)


def test_a_perfect_transcription_scores_one_everywhere() -> None:
    roll = SCALE.roll(120, FRAME_S)
    assert scored(SCALE, SCALE, roll.astype(float)) == pytest.approx(
        {"frame_ap": 1.0, "frame_f1": 1.0, "onset_f1": 1.0, "onset_offset_f1": 1.0}
    )


def test_wrong_offsets_matter_only_where_asked() -> None:
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


def test_nothing_scores_nothing() -> None:
    nothing = notes_of_rows(np.zeros((0, 4)))
    assert matched_onsets(SCALE, nothing).shape == (0, 2)
    assert velocity_f1(SCALE, nothing) == 0
    assert scored(nothing, nothing, np.zeros((5, 128)))["frame_f1"] == 0


def test_velocities_count_where_labels_have_them() -> None:
    rows = np.stack([SCALE.onset, SCALE.offset, SCALE.pitch, np.arange(10, 110, 10)], axis=1)
    played = notes_of_rows(rows)
    roll = played.roll(120, FRAME_S).astype(float)
    assert "onset_velocity_f1" not in scored(SCALE, played, roll)
    assert scored(played, played, roll)["onset_velocity_f1"] == pytest.approx(1.0)
    rows[:5, 3] = 100  # half of the notes are far too loud, whatever the scale
    assert velocity_f1(played, notes_of_rows(rows)) < 0.8


def test_instruments_that_agree_and_that_do_not() -> None:
    violin, viola = INSTRUMENTS.index("violin"), INSTRUMENTS.index("viola")
    rows = [(0.2 * i, 0.2 * i + 0.1, 60 + i, 80, violin) for i in range(4)]
    played = notes_of_rows(np.array(rows))
    # One of another instrument, one missed, one too many.
    found = notes_of_rows(np.array([*rows[:2], (*rows[2][:4], viola), (2.0, 2.1, 90, 80, violin)]))
    figures = scored(played, found, played.roll(300, FRAME_S).astype(float))
    assert figures["instrument_accuracy"] == pytest.approx(2 / 3)
    counts = confusion(played, found, matched_onsets(played, found))
    assert (counts[violin, violin], counts[violin, viola], counts.sum()) == (2, 1, 3)
