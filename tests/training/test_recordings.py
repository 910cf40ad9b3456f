"""Labels in every layout, and labels that are not."""

from __future__ import annotations

from pathlib import Path

import mido
import numpy as np
import pytest
import soundfile

from training.recordings import LabelError, read_midi, read_table, recordings, unlabelled


def silence(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros(800), 8000)


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_audio_and_labels_are_matched_by_stem_in_sub_folders(tmp_path: Path) -> None:
    silence(tmp_path / "flac" / "a.flac")
    silence(tmp_path / "b.wav")
    silence(tmp_path / "c.aiff")
    silence(tmp_path / "unlabelled.wav")
    text(tmp_path / "tsv" / "a.tsv", "# onset\toffset\tnote\tvelocity\n0.5\t1.0\t60.0\t64.0\n")
    text(tmp_path / "b.csv", "0.1,0.2,61\n")
    text(tmp_path / "c.csv", "0.1,0.2,61\n")
    found = {recording.name: recording for recording in recordings(tmp_path)}
    assert sorted(found) == ["a", "b", "c"]
    assert found["a"].notes.onset_s.tolist() == [0.5]
    assert found["a"].notes.velocity.tolist() == [64]
    assert found["b"].notes.pitch.tolist() == [61]
    assert unlabelled(tmp_path) == [tmp_path / "unlabelled.wav"]


def test_a_folder_without_labels_is_an_error(tmp_path: Path) -> None:
    silence(tmp_path / "a.wav")
    with pytest.raises(LabelError, match="no audio with labels"):
        list(recordings(tmp_path))


def test_a_folder_without_audio_is_an_error(tmp_path: Path) -> None:
    text(tmp_path / "a.csv", "0.1,0.2,61\n")
    with pytest.raises(LabelError, match=r"no audio \(.*\.flac.*\) below"):
        list(recordings(tmp_path))
    with pytest.raises(LabelError, match="is no folder"):
        list(recordings(tmp_path / "nowhere"))


def test_two_recordings_of_one_stem_are_an_error(tmp_path: Path) -> None:
    silence(tmp_path / "flac" / "a.flac")
    silence(tmp_path / "wav" / "a.wav")
    text(tmp_path / "a.csv", "0.1,0.2,61\n")
    with pytest.raises(LabelError, match="have the same stem"):
        list(recordings(tmp_path))


def test_a_header_may_name_the_columns(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", "Velocity,note,start,end\n90,60,0.5,1.5\n\n")
    notes = read_table(path)
    row = notes.onset_s[0], notes.offset_s[0], notes.pitch[0], notes.velocity[0]
    assert row == (0.5, 1.5, 60, 90)


@pytest.mark.parametrize(
    "content",
    [
        "0.5;1.5;60;90\n",
        "\ufeff0.5,1.5,60,90\n",
        "\ufeffonset,offset,pitch,velocity\r\n0.5,1.5,60,90\r\n",
        "id,onset_time,offset_time,midi_pitch,velocity\n0,0.5,1.5,60,90\n",
        "OnsetTime\tOffsetTime\tMidiPitch\tvelocity\n0.5\t1.5\t60\t90\n",
        "# played\n\n# Velocity,note,start (s),end (s)\n90\t60\t0.5\t1.5\n",
        "onset,duration,pitch,velocity\n0.5,1.0,60,90\n",
        "a,b,c,d\n0.5,1.5,60,90\n",
        "start_time,end_time,instrument,note,velocity\n0.5,1.5,1,60,90\n",
    ],
)
def test_tables_as_programs_write_them(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode())
    notes = read_table(path)
    columns = notes.onset_s, notes.offset_s, notes.pitch, notes.velocity
    assert [column.tolist() for column in columns] == [[0.5], [1.5], [60], [90]]


@pytest.mark.parametrize("head", ["id,onset,offset,velocity", "0.5 1.5 60", "names"])
def test_a_header_that_names_too_little_is_an_error(tmp_path: Path, head: str) -> None:
    with pytest.raises(LabelError, match="a.csv:1: names no onset"):
        read_table(text(tmp_path / "a.csv", f"{head}\n0.5,1.5,60,90\n"))


def test_tables_of_musicnet_count_samples(tmp_path: Path) -> None:
    head = "start_time,end_time,instrument,note,start_beat,end_beat,note_value"
    notes = read_table(text(tmp_path / "1.csv", f"{head}\n22050,66150,1,60,0,1,Quarter\n"))
    assert (notes.onset_s[0], notes.offset_s[0], notes.pitch[0]) == (0.5, 1.5, 60)


def test_a_table_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(LabelError, match="cannot read .*a.csv"):
        read_table(path)


@pytest.mark.parametrize(
    "row", ["0.5,0.4,60,64", "0.5,1.0,128,64", "0.5,1.0", "0.5,x,60,64", "nan,1,60,64"]
)
def test_bad_rows_are_named(tmp_path: Path, row: str) -> None:
    path = text(tmp_path / "a.csv", f"0.1,0.2,60,64\n{row}\n")
    with pytest.raises(LabelError, match="a.csv:2"):
        read_table(path)


def test_alignments_count_from_the_start_that_info_gives(tmp_path: Path) -> None:
    silence(tmp_path / "audio" / "x.ogg")
    text(tmp_path / "alignments" / "x.csv", "start,end\n1.0,1.5\n1.5,2.0\n")
    text(tmp_path / "notes" / "x.csv", "onset,offset,pitch,velocity\n0,12,71,64\n12,24,74,64\n")
    text(tmp_path / "info.csv", "filename,start\nx,0:01:02\n")
    (recording,) = recordings(tmp_path)
    assert recording.notes.onset_s.tolist() == [63.0, 63.5]
    assert recording.notes.pitch.tolist() == [71, 74]
    deeper = tmp_path / "deeper"
    for name in ("alignments", "notes", "audio"):
        (deeper / name).mkdir(parents=True)
        (tmp_path / name).rename(deeper / name / "collection")
    (tmp_path / "info.csv").rename(deeper / "info.csv")
    assert [each.notes.onset_s.tolist() for each in recordings(tmp_path)] == [[63.0, 63.5]]
    for name in ("alignments", "notes", "audio"):
        (deeper / name / "collection").rename(tmp_path / name)
    text(tmp_path / "info.csv", "filename,start\nx,0:01:02\n")
    text(tmp_path / "alignments" / "x.csv", "start,end\n1.0,1.5\n")
    with pytest.raises(LabelError, match="differ in length"):
        list(recordings(tmp_path))
    text(tmp_path / "alignments" / "x.csv", "begin,end\n1.0,1.5\n1.5,2.0\n")
    with pytest.raises(LabelError, match="cannot read .*KeyError"):
        list(recordings(tmp_path))
    text(tmp_path / "info.csv", "filename,start\nx,early\n")
    with pytest.raises(LabelError, match="no start as hours:minutes:seconds"):
        list(recordings(tmp_path))


def test_the_pedal_lengthens_midi_notes_up_to_the_next_strike(tmp_path: Path) -> None:
    track = mido.MidiTrack()
    for message, seconds in (
        (mido.Message("control_change", control=64, value=127), 0.0),
        (mido.Message("note_on", note=60, velocity=70), 0.5),
        (mido.Message("note_off", note=60), 0.25),
        (mido.Message("note_on", note=62, velocity=70), 0.25),
        (mido.Message("note_off", note=62), 0.25),
        (mido.Message("note_on", note=60, velocity=70), 0.25),
        (mido.Message("control_change", control=64, value=0), 0.5),
        (mido.Message("note_off", note=60), 0.5),
    ):
        track.append(message.copy(time=round(seconds * 960)))
    file = mido.MidiFile(ticks_per_beat=480)
    file.tracks.append(track)
    file.save(tmp_path / "a.mid")
    notes = read_midi(tmp_path / "a.mid")
    assert notes.pitch.tolist() == [60, 62, 60]
    np.testing.assert_allclose(notes.onset_s, [0.5, 1.0, 1.5], atol=1e-6)
    np.testing.assert_allclose(notes.offset_s, [1.5, 2.0, 2.5], atol=1e-6)


def test_a_midi_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = text(tmp_path / "a.mid", "no music")
    with pytest.raises(LabelError, match="a.mid"):
        read_midi(path)
