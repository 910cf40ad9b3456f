"""Tests of MusicNet's archive and of its windows, also against the released code."""

import itertools
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.config import PITCHES, WINDOW
from model.front_end.strided import interleaved_spectrum
from tests.training.musicnet.conftest import EXTENDED, SECONDS, TEST, TRAIN, VALIDATION, scale
from training.musicnet.layout import ArchiveError, find, read_intervals, split
from training.musicnet.stand_in import HEADER, write_recording
from training.musicnet.windows import Archive, Track, Windows

RELEASED_RATE = 11_000


def assert_labels(frame: NDArray[np.uint8], rows: NDArray[np.float32]) -> None:
    """Compare labels (windows, frames, PITCHES) with rows of the released code, which stores 1 plus
    the label of each frame, and then 0."""
    np.testing.assert_array_equal(rows[:, :-PITCHES], 1 + frame.reshape(len(frame), -1))
    assert not rows[:, -PITCHES:].any()


def test_windows_equal_the_released_code(shared_dir: Path) -> None:
    path = shared_dir / "reference" / "oracles" / "musicnet_windows_example.npz"
    if not path.is_file():
        pytest.skip(f"no file {path}")
    with np.load(path) as file:
        x, intervals = file["x"], file["intervals"]
        raw, spectra = file["raw"], file["fourier1"]
    track = Track(0, x, intervals)
    windows = Windows([track], RELEASED_RATE, 512)
    assert len(windows) == len(raw)
    batch = windows.read(range(len(raw)))
    assert np.array_equal(batch.audio, raw[:, 0])
    assert_labels(batch.targets.frame, raw[:, 1])

    windows = Windows([track], RELEASED_RATE, 1024, context=300)
    start = RELEASED_RATE + 1024
    expected = track.audio[start - 300 : start + WINDOW]
    np.testing.assert_array_equal(windows.read([1]).audio[0], expected)
    windows = Windows([track], RELEASED_RATE, 1024)
    batch = windows.read(range(len(windows)))
    spectrum = interleaved_spectrum(torch.from_numpy(batch.audio)).numpy()
    np.testing.assert_allclose(spectrum, spectra[:, 0], atol=1e-4)
    assert_labels(batch.targets.frame, spectra[:, 1])


def test_windows_are_numbered_across_recordings() -> None:
    rate = RELEASED_RATE
    lengths = (rate + WINDOW - 1, rate + WINDOW + 1023, rate + WINDOW)
    no_notes = np.zeros((0, 3), np.int64)
    tracks = [
        Track(i, np.arange(length, dtype=np.float32) + 100_000 * i, no_notes)
        for i, length in enumerate(lengths)
    ]
    windows = Windows(tracks, rate, 512)
    assert len(windows) == 0 + 2 + 1
    first_samples = windows.read(range(3)).audio[:, 0]
    assert first_samples.tolist() == [100_000 + rate, 100_000 + rate + 512, 200_000 + rate]
    with pytest.raises(ValueError, match="too short"):
        Windows(tracks[:1], rate, 512)


def test_batches_depend_on_seed_and_step_only(archive: Path) -> None:
    windows = Archive(archive, 11_025)

    def audio(step: int, readers: int, seed: int = 3) -> list[NDArray[np.float32]]:
        with closing(windows.batches(6, seed, step, readers)) as stream:
            return [batch.audio for batch in itertools.islice(stream, 4)]

    first = audio(0, readers=1)
    resumed = audio(2, readers=3)
    assert np.array_equal(resumed[:2], first[2:])
    batch = windows.validation(50)
    assert batch.targets.onset.any()
    assert not batch.targets.velocity.any()  # the archive has no velocities
    assert not np.array_equal(audio(0, 1, seed=4)[0], first[0])


def test_the_split_equals_that_of_the_paper(archive: Path) -> None:
    for name in ("train_data/._1727.wav", "train_labels/._1727.csv", "test_data/tuning fork.wav"):
        (archive / name).write_bytes(b"not a recording of the archive")
    sets = split(find(archive))
    assert [source.number for source in sets["train"]] == [*TRAIN, EXTENDED]
    assert [source.number for source in sets["validation"]] == list(VALIDATION)
    assert [source.number for source in sets["test"]] == list(TEST)


def test_errors_name_empty_sets_and_incomplete_pairs(tmp_path: Path) -> None:
    write_recording(tmp_path, "train", TRAIN[0], scale(TRAIN[0]), SECONDS)
    with pytest.raises(ArchiveError, match="no recording for validation .of 2131"):
        split(find(tmp_path))
    write_recording(tmp_path, "train", TRAIN[1], scale(TRAIN[1]), SECONDS)
    (tmp_path / "train_labels" / "1727.csv").unlink()
    (tmp_path / "train_data" / "1728.wav").unlink()
    with pytest.raises(ArchiveError, match="incomplete.*1727, 1728"):
        find(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("onset,offset,pitch\n1,2,3\n", "not a MusicNet label table"),
        (f"{HEADER}\n0,100,1,60,0,1,Quarter\n200,30", "1727.csv is not"),
        (f"{HEADER}\n100,50,1,60,0,1,Quarter\n", "out of range"),
    ],
)
def test_errors_name_corrupt_labels(archive: Path, text: str, message: str) -> None:
    (archive / "train_labels" / "1727.csv").write_text(text)
    with pytest.raises(ArchiveError, match=message):
        read_intervals(find(archive)[1727])
