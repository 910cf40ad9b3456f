"""Fixture of a small MusicNet archive in the original layout."""

from pathlib import Path

import pytest

from training.musicnet.layout import SOURCE_RATE
from training.musicnet.stand_in import Note, write_recording

SECONDS = 3.0
TRAIN, VALIDATION, TEST = (1727, 1728), (2131, 1792), (2303, 1819)
EXTENDED = 2556  # in the test folder and the extended test set, but not in the paper's test set


def scale(number: int) -> list[Note]:
    """Return a rising scale of notes of 0.25 s. The lowest note depends on the recording."""
    step = SOURCE_RATE // 4
    return [(i * step, (i + 1) * step, 60 + number % 7 + 2 * i) for i in range(int(4 * SECONDS))]


def write_archive(root: Path) -> None:
    for number in (*TRAIN, *VALIDATION):
        write_recording(root, "train", number, scale(number), SECONDS)
    for number in (*TEST, EXTENDED):
        write_recording(root, "test", number, scale(number), SECONDS)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    root = tmp_path / "archive"
    write_archive(root)
    return root
