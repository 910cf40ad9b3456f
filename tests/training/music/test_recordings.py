"""Folders of recordings: audio and labels in every layout, and what lacks or is damaged."""

from pathlib import Path

import numpy as np
import pretty_midi
import pytest
import soundfile

from tests.training.music.test_label_tables import text
from training.music.label_files import LabelError
from training.music.recordings import read_collection


def silence(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros(800), 8000)


def test_audio_and_labels_are_matched_by_stem_in_sub_folders(tmp_path: Path) -> None:
    silence(tmp_path / "flac" / "a.flac")
    silence(tmp_path / "b.wav")
    silence(tmp_path / "c.aiff")
    silence(tmp_path / "unlabelled.wav")
    text(tmp_path / "tsv" / "a.tsv", "# onset\toffset\tnote\tvelocity\n0.5\t1.0\t60.0\t64.0\n")
    text(tmp_path / "b.csv", "0.1,0.2,61\n")
    text(tmp_path / "c.csv", "0.1,0.2,61\n")
    collection = read_collection(tmp_path)
    found = {recording.name: recording for recording in collection.recordings}
    assert sorted(found) == ["a", "b", "c"]
    assert found["a"].notes.onset_s.tolist() == [0.5]
    assert found["a"].notes.velocity.tolist() == [64]
    assert found["b"].notes.pitch.tolist() == [61]
    assert collection.unlabelled == [tmp_path / "unlabelled.wav"]
    assert collection.failures == {}


def test_which_of_two_label_files_is_not_guessed(tmp_path: Path) -> None:
    silence(tmp_path / "a.wav")
    text(tmp_path / "a.tsv", "0.1,0.2,61\n")
    pretty_midi.PrettyMIDI().write(str(tmp_path / "a.mid"))  # its score, or an earlier output
    collection = read_collection(tmp_path)
    assert collection.recordings == []
    assert "several files of labels" in collection.failures["a"]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["a.wav"], "no audio with labels"),
        (["a.csv"], r"no audio \(.*\.flac.*\) below"),
        ([], "is not a folder"),
        (["flac/a.flac", "wav/a.wav", "a.csv"], "have the same stem"),
    ],
)
def test_a_folder_without_recordings_is_an_error(
    tmp_path: Path, names: list[str], problem: str
) -> None:
    for path in (tmp_path / "given" / name for name in names):
        text(path, "0.1,0.2,61\n") if path.suffix == ".csv" else silence(path)
    with pytest.raises(LabelError, match=problem):
        read_collection(tmp_path / "given")


def test_alignments_count_from_the_start_that_info_gives(tmp_path: Path) -> None:
    silence(tmp_path / "audio" / "x.ogg")
    text(tmp_path / "alignments" / "x.csv", "start,end\n1.0,1.5\n1.5,2.0\n")
    text(tmp_path / "notes" / "x.csv", "onset,offset,pitch,velocity\n0,12,71,64\n12,24,74,64\n")
    text(tmp_path / "info.csv", "filename,start\nx,0:01:02\n")
    (recording,) = read_collection(tmp_path).recordings
    assert recording.notes.onset_s.tolist() == [63.0, 63.5]
    assert recording.notes.pitch.tolist() == [71, 74]
    deeper = tmp_path / "deeper"
    for name in ("alignments", "notes", "audio"):
        (deeper / name).mkdir(parents=True)
        (tmp_path / name).rename(deeper / name / "collection")
    (tmp_path / "info.csv").rename(deeper / "info.csv")
    (recording,) = read_collection(tmp_path).recordings
    assert recording.notes.onset_s.tolist() == [63.0, 63.5]
    text(deeper / "info.csv", "filename,start\nx,early\n")
    assert "no start as hours:minutes:seconds" in read_collection(tmp_path).failures["x"]
    text(deeper / "alignments" / "collection" / "x.csv", "start,end\n1.0,1.5\n")
    text(deeper / "info.csv", "filename,start\nx,0:01:02\n")
    assert "argument 2 is longer" in read_collection(tmp_path).failures["x"]
