"""Tests of note tables, MIDI files and folders of recordings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import symusic

from model.config import INSTRUMENTS
from tests.training.conftest import Event, write_midi
from training.music.recordings import LabelError, read_collection, read_midi, read_table


def write_text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        "0.5,1.5,60,90\n\n",
        "\ufeffonset,offset,pitch,velocity\r\n0.5,1.5,60,90\r\n",
        "Start\tend\tnote\tvelocity\tprogram\n0.5\t1.5\t60\t90\t0\n",
        "# velocities are guesses\n0.5,1.5,60,90\n",
        " onset, offset, pitch, velocity\n0.5, 1.5, 60, 90\n",
        "OnsetTime\tOffsetTime\tMidiPitch\n0.5\t1.5\t60\t90\n",
        "onset_s, offset_s, midi_pitch, velocity, program\n0.5,1.5,60,90,0\n",
    ],
)
def test_tables_in_common_formats_are_read(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode())
    notes = read_table(path)
    columns = notes.onset, notes.offset, notes.pitch, notes.velocity
    assert [column.tolist() for column in columns] == [[0.5], [1.5], [60], [90]]
    path.write_text("0.5,1.5,60")
    assert read_table(path).velocity.tolist() == [0]  # unknown


@pytest.mark.parametrize(
    "header",
    [
        "onset,offset,velocity,pitch",
        "# onset,offset,velocity,pitch",
        "onset,duration,pitch",
        "onset,offset,pitch,channel",
        "start_time,end_time,instrument,note",
        "onset,offset",
    ],
)
def test_tables_with_other_columns_are_rejected(tmp_path: Path, header: str) -> None:
    path = write_text(tmp_path / "a.csv", f"{header}\n0.5,1.5,60,90\n")
    with pytest.raises(LabelError, match="a.csv:1: expected onset, offset, pitch, velocity"):
        read_table(path)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        *(((head,), "a.csv:1") for head in (b"id,onset,offset,velocity", b"0.5 1.5 60", b"names")),
        *(
            ((b"0.1,0.2,60,64", row), "a.csv:2")
            for row in (
                b"0.5,0.6,60,64,128",
                b"0.5,0.4,60,64",
                b"0.5,1.0",
                b"0,1,127.7",
                b"0.5,x,60,64",
            )
        ),
        ((b"\xff\xfe\x00\x01",), "cannot read .*a.csv"),
    ],
)
def test_errors_name_the_line_of_invalid_tables(
    tmp_path: Path, rows: tuple[bytes, ...], problem: str
) -> None:
    (tmp_path / "a.csv").write_bytes(b"\n".join(rows))
    with pytest.raises(LabelError, match=problem):
        read_table(tmp_path / "a.csv")


def notes_with_pedal(path: Path, *parts: list[Event], pedal: tuple[float, float]) -> list[Event]:
    """Return the notes of a MIDI file whose first part has the pedal."""
    write_midi(path, [(0, part) for part in parts], [pedal])
    notes = read_midi(path)
    columns = notes.onset.round(3), notes.offset.round(3), notes.pitch, notes.velocity
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_the_pedal_extends_notes_to_the_next_onset(tmp_path: Path) -> None:
    played = [(0.5, 0.75, 60, 70), (1.0, 1.25, 62, 70), (1.5, 2.5, 60, 70)]
    held = [(0.5, 1.5, 60, 70), (1.0, 2.0, 62, 70), (1.5, 2.5, 60, 70)]
    assert notes_with_pedal(tmp_path / "a.mid", played, pedal=(0.0, 2.0)) == held


def test_the_pedal_extends_only_notes_of_its_track(tmp_path: Path) -> None:
    tracks = [(0.5, 1.0, 72, 70)], [(0.5, 1.0, 60, 70)]
    held = {(0.5, 1.0, 60, 70), (0.5, 1.5, 72, 70)}
    assert set(notes_with_pedal(tmp_path / "a.mid", *tracks, pedal=(0.0, 1.5))) == held


def test_a_pedal_without_release_lasts_to_the_end(tmp_path: Path) -> None:
    track: Any = symusic.Track(program=0)
    track.notes.extend([symusic.Note(0, 480, 60, 70), symusic.Note(480, 1440, 64, 70)])
    changes = (0, 127), (240, 0), (360, 100), (400, 110)
    track.controls.extend([symusic.ControlChange(time, 64, value) for time, value in changes])
    score: Any = symusic.Score(480)
    score.tracks.append(track)
    path = tmp_path / "a.mid"
    path.write_bytes(score.dumps_midi())
    assert read_midi(path).offset.tolist() == pytest.approx([2.0, 2.0])  # 960 ticks per second


@pytest.mark.parametrize("content", [b"no music", b"MThd\0\0\0\x06\0\x01\0\x01\xe2\x50MTrk"])
def test_errors_name_invalid_midi_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.mid"
    path.write_bytes(content)
    with pytest.raises(LabelError, match="a.mid"):
        read_midi(path)


def test_midi_programs_determine_instruments(tmp_path: Path) -> None:
    section = 48, [(1.5, 2.0, 62, 70)]
    write_midi(tmp_path / "a.mid", [(40, [(0.5, 1.0, 60, 70)]), section])
    assert read_midi(tmp_path / "a.mid").instrument.tolist() == [INSTRUMENTS.index("violin"), -1]


def write_silence(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros(800), 8000)


def test_audio_and_labels_are_matched_by_stem(tmp_path: Path) -> None:
    write_silence(tmp_path / "flac" / "a.flac")
    write_silence(tmp_path / "b.wav")
    write_silence(tmp_path / "c.aiff")
    write_silence(tmp_path / "unlabelled.wav")
    write_text(tmp_path / "tsv" / "a.tsv", "# onset,offset,note,velocity\n0.5\t1.0\t60.0\t64.0\n")
    write_text(tmp_path / "b.csv", "0.1,0.2,61\n")
    write_text(tmp_path / "c.csv", "0.1,0.2,61\n")
    for name in ("._a.wav", "._a.mid"):  # macOS writes such files
        write_text(tmp_path / name, "attributes")
    collection = read_collection(tmp_path)
    recordings = {recording.name: recording for recording in collection.recordings}
    assert sorted(recordings) == ["a", "b", "c"]
    assert recordings["a"].notes.onset.tolist() == [0.5]
    assert recordings["a"].notes.velocity.tolist() == [64]
    assert recordings["b"].notes.pitch.tolist() == [61]
    assert collection.unlabelled == [tmp_path / "unlabelled.wav"]
    assert collection.failures == {}


def test_ambiguous_files_are_rejected(tmp_path: Path) -> None:
    for name in ("a.wav", "b.wav", "b.flac"):
        write_silence(tmp_path / name)
    for name in ("a.tsv", "a.mid", "b.csv"):  # a score, or an earlier output
        write_text(tmp_path / name, "0.1,0.2,61\n")
    collection = read_collection(tmp_path)
    assert collection.recordings == []
    assert "several label files" in collection.failures["a"]
    assert "have the same stem" in collection.failures["b"]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["a.wav"], "no audio with labels"),
        (["a.csv"], r"no audio \(.*\.flac.*\) below"),
        ([], "is not a folder"),
    ],
)
def test_folders_without_recordings_are_rejected(
    tmp_path: Path, names: list[str], problem: str
) -> None:
    for path in (tmp_path / "given" / name for name in names):
        write_text(path, "0.1,0.2,61\n") if path.suffix == ".csv" else write_silence(path)
    with pytest.raises(LabelError, match=problem):
        read_collection(tmp_path / "given")


def test_alignments_are_relative_to_the_start_in_info(tmp_path: Path) -> None:
    write_silence(tmp_path / "audio" / "x.ogg")
    write_text(tmp_path / "alignments" / "x.csv", "start,end\n1.0,1.5\n1.5,2.0\n")
    write_text(
        tmp_path / "notes" / "x.csv", "onset,offset,pitch,velocity\n0,12,71,64\n12,24,74,64\n"
    )
    write_text(tmp_path / "info.csv", "filename,start\nx,0:01:02\n")
    (recording,) = read_collection(tmp_path).recordings
    assert recording.notes.onset.tolist() == [63.0, 63.5]
    assert recording.notes.pitch.tolist() == [71, 74]
    deeper = tmp_path / "deeper"
    for name in ("alignments", "notes", "audio"):
        (deeper / name).mkdir(parents=True)
        (tmp_path / name).rename(deeper / name / "collection")
    (tmp_path / "info.csv").rename(deeper / "info.csv")
    (recording,) = read_collection(tmp_path).recordings
    assert recording.notes.onset.tolist() == [63.0, 63.5]
    write_text(deeper / "info.csv", "filename,start\nx,early\n")
    assert "cannot read" in read_collection(tmp_path).failures["x"]
