"""What is found in an archive, and what is said of one that is not as it should be."""

from pathlib import Path

import pytest

from tests.training.musicnet.conftest import (
    EXTENDED,
    HEADER,
    TEST,
    TRAIN,
    VALIDATION,
    scale,
    write_recording,
)
from training.musicnet.layout import ArchiveError, find, read_intervals, split


def test_the_paper_trains_on_most_of_the_test_folder(archive: Path) -> None:
    sets = split(find(archive))
    assert [source.number for source in sets["train"]] == [*TRAIN, EXTENDED]
    assert [source.number for source in sets["validation"]] == list(VALIDATION)
    assert [source.number for source in sets["test"]] == list(TEST)


def test_sets_without_recordings_and_lonely_files_are_named(tmp_path: Path) -> None:
    write_recording(tmp_path, "train", TRAIN[0], scale(TRAIN[0]))
    with pytest.raises(ArchiveError, match="no recording for validation .of 2131"):
        split(find(tmp_path))
    write_recording(tmp_path, "train", TRAIN[1], scale(TRAIN[1]))
    (tmp_path / "train_labels" / "1727.csv").unlink()
    (tmp_path / "train_data" / "1728.wav").unlink()
    with pytest.raises(ArchiveError, match="incomplete.*1727, 1728"):
        find(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("onset,offset,pitch\n1,2,3\n", "not a MusicNet label table"),
        (f"{HEADER}\n0,100,1,60,0,1,Quarter\n200,30", "1727.csv is not"),
        (f"{HEADER}\n100,50,1,60,0,1,Quarter\n", "impossible"),
    ],
)
def test_damaged_labels_are_named(archive: Path, text: str, message: str) -> None:
    (archive / "train_labels" / "1727.csv").write_text(text)
    with pytest.raises(ArchiveError, match=message):
        read_intervals(find(archive)[1727])
