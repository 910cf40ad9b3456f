"""A miniature of the MusicNet archive in exactly its layout."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile

from training.musicnet.layout import SOURCE_RATE

HEADER = "start_time,end_time,instrument,note,start_beat,end_beat,note_value"
SECONDS = 3.0
TRAIN, VALIDATION, TEST = (1727, 1728), (2131, 1792), (2303, 1819)
EXTENDED = 2556  # of the archive's test folder and the ten, but not of the paper's three

Note = tuple[int, int, int]  # begin and end in samples at SOURCE_RATE, MIDI note


def scale(number: int) -> list[Note]:
    """A quarter of a second each of a few notes, another lowest one in each recording."""
    step = SOURCE_RATE // 4
    return [(i * step, (i + 1) * step, 60 + number % 7 + 2 * i) for i in range(int(4 * SECONDS))]


def write_recording(
    root: Path, part: str, number: int, notes: Sequence[Note], seconds: float = SECONDS
) -> None:
    time = np.arange(int(seconds * SOURCE_RATE)) / SOURCE_RATE
    audio = np.zeros_like(time)
    for begin, end, note in notes:
        frequency = 440 * 2 ** ((note - 69) / 12)
        audio[begin:end] += 0.2 * np.sin(2 * np.pi * frequency * time[begin:end])
    for kind in ("data", "labels"):
        (root / f"{part}_{kind}").mkdir(parents=True, exist_ok=True)
    soundfile.write(root / f"{part}_data" / f"{number}.wav", audio, SOURCE_RATE)
    rows = [
        f"{begin},{end},1,{note},{i}.0,{i + 1}.0,Quarter"
        for i, (begin, end, note) in enumerate(notes)
    ]
    (root / f"{part}_labels" / f"{number}.csv").write_text("\n".join([HEADER, *rows]) + "\n")


def write_archive(root: Path) -> None:
    for number in (*TRAIN, *VALIDATION):
        write_recording(root, "train", number, scale(number))
    for number in (*TEST, EXTENDED):
        write_recording(root, "test", number, scale(number))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    root = tmp_path / "archive"
    write_archive(root)
    return root
