"""What is left out of the loss, and what is not."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import HOP, SAMPLE_RATE
from training.music.aligner import RELEASE_S, Aligned
from training.music.real import DOUBT, HELD, UNWRITTEN, UNWRITTEN_WITH_ORNAMENTS, doubts_of
from training.music.targets import Targets, segment_labels

SECONDS = 20.0


def evidence(*notes: tuple[float, float, int]) -> Aligned:
    """Notes (onset, offset, pitch) that are all heard; the score is at half of the tempo."""
    onset, offset, pitch = (np.array(column) for column in zip(*notes, strict=True))
    count = len(notes)
    chords = np.array([0.0, 10.0]), np.array([0.0, 20.0])
    heard = np.full(count, 0.9), np.ones(count, bool)
    return Aligned(onset, offset, pitch, *heard, *chords, np.zeros((0, 3)), 0.05)


def targets(
    made: Aligned,
    signs_s: tuple[float, ...] = (),
    ornamented: bool = False,
) -> Targets[NDArray[np.uint8]]:
    rows = doubts_of(made, np.array(signs_s), ornamented)
    frames = int(SECONDS * SAMPLE_RATE / HOP)
    return segment_labels(made.notes, SAMPLE_RATE, -HOP, frames, unknown=rows)


def frame(second: float) -> int:
    return round(second * SAMPLE_RATE / HOP)


def span(mask: NDArray[np.uint8]) -> tuple[float, float]:
    """First and last second of a mask."""
    frames = np.flatnonzero(mask)
    return frames[0] * HOP / SAMPLE_RATE, (frames[-1] + 1) * HOP / SAMPLE_RATE


def test_a_release_is_unknown_and_the_strike_is_not() -> None:
    made = targets(evidence((2.0, 4.0, 60)))
    assert not made.onset_unknown.any()
    assert np.flatnonzero(made.frame_unknown.any(axis=0)).tolist() == [60]
    assert span(made.frame_unknown[:, 60]) == pytest.approx((2 + 2 * HELD, 4 + RELEASE_S), abs=0.03)


def test_a_note_in_doubt_is_neither_taught_as_played_nor_as_silence() -> None:
    both = evidence((2.0, 4.0, 60), (2.0, 4.0, 64))
    made = targets(replace(both, confidence=np.array([0.9, DOUBT / 2])))
    assert made.onset_unknown[frame(2.0), 64]
    assert made.frame_unknown[frame(2.0) : frame(5.0), 64].all()
    assert not made.onset_unknown[:, 60].any()
    assert not made.frame_unknown[frame(2.5), 60]


@pytest.mark.parametrize(
    ("probability", "ornamented", "masked"),
    [
        (UNWRITTEN + 0.01, False, True),
        (UNWRITTEN - 0.01, False, False),
        (UNWRITTEN - 0.01, True, True),
        (UNWRITTEN_WITH_ORNAMENTS - 0.01, True, False),
    ],
)
def test_a_loud_onset_that_is_not_written_may_be_played(
    probability: float, ornamented: bool, masked: bool
) -> None:
    heard = replace(evidence((2.0, 3.0, 60)), unwritten=np.array([[8.0, 70, probability]]))
    made = targets(heard, ornamented=ornamented)
    assert bool(made.onset_unknown[frame(8.0), 70]) is masked
    assert bool(made.frame_unknown[frame(8.1), 70]) is masked


def test_where_few_notes_are_heard_nothing_is_taught() -> None:
    notes = [(1.0 + 0.5 * i, 1.4 + 0.5 * i, 60 + i) for i in range(30)]
    heard = np.arange(30) < 15
    made = targets(replace(evidence(*notes), heard=heard))
    assert made.onset_unknown[frame(12.0)].all()
    assert made.frame_unknown[frame(12.0)].all()
    assert not made.onset_unknown[frame(4.0)].any()
