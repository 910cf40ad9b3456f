"""``rse-transcribe``: recordings to files, one clear line for what goes wrong."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import mido
import pytest
import soundfile

from rse_transcribe import Note, command
from tests.fakes import FakeTranscriber
from tests.paths import REPOSITORY
from tests.service.apps import PITCHES, RATE_HZ, melody, pitches_of


@pytest.fixture(autouse=True)
def _tones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rse_transcribe.recordings.loaded", lambda *_: FakeTranscriber())


@pytest.fixture
def album(tmp_path: Path) -> Path:
    folder = tmp_path / "album"
    folder.mkdir()
    for name in ("one", "two"):
        soundfile.write(folder / f"{name}.wav", melody(), RATE_HZ)
    return folder


def test_a_recording_becomes_a_midi_file(
    album: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "song.mid"
    assert command.main([str(album / "one.wav"), "-o", str(target)]) == 0
    assert pitches_of(target.read_bytes()) == PITCHES
    assert capsys.readouterr().out == f"{album / 'one.wav'}: 3 notes -> {target}\n"
    assert command.main([str(album / "one.wav"), "-o", str(tmp_path / "song.midi")]) == 0
    assert (tmp_path / "song.midi").read_bytes() == target.read_bytes()
    assert command.main([str(album / "one.wav"), "-o", str(tmp_path / "song.json")]) == 0
    assert len(json.loads((tmp_path / "song.json").read_text())["notes"]) == 3


@pytest.mark.parametrize("out", ["midi", "midi.2024/"])
def test_folders_and_patterns(album: Path, tmp_path: Path, out: str) -> None:
    assert command.main([str(album), "-o", str(tmp_path / "both")]) == 0
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == ["one.mid", "two.mid"]
    assert command.main([str(album / "t*.wav"), "-o", f"{tmp_path}/{out}"]) == 0
    assert pitches_of((tmp_path / out / "two.mid").read_bytes()) == PITCHES


def test_each_instrument_has_its_file(
    album: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = ("frame", "onset", "velocity", "instrument:piano", "instrument:violin")
    monkeypatch.setattr("rse_transcribe.recordings.loaded", lambda *_: FakeTranscriber(heads))
    song, whole = album / "one.wav", album / "one.mid"
    whole.write_text("of yesterday")
    assert command.main([str(song), "--split"]) == 0
    made = sorted(path for path in album.glob("one.*.mid"))
    assert made
    assert capsys.readouterr().out.endswith(f" -> {', '.join(map(str, made))}\n")
    assert sum((pitches_of(path.read_bytes()) for path in made), []) == PITCHES
    assert whole.read_text() == "of yesterday"
    assert command.main([str(song), "--split"]) == 1
    assert f"{made[0]} exists" in capsys.readouterr().err


def test_the_tempo_of_the_file_is_chosen_or_missed_aloud(
    album: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(album / "one.wav"), "--tempo", "96"]) == 0
    assert command.main([str(album / "two.wav"), "--tempo", "auto"]) == 0  # three notes
    for name, bpm in (("one", 96), ("two", 120)):
        reported = [m.tempo for m in mido.MidiFile(album / f"{name}.mid") if m.type == "set_tempo"]
        assert reported == [60_000_000 // bpm]
    words = f"{album / 'two.wav'}: no steady beat: written at 120 beats per minute\n"
    assert capsys.readouterr().err == words


def test_files_that_exist_are_kept_unless_forced(
    album: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = album / "one.mid"
    kept.mkdir()
    assert command.main([str(album / "one.wav"), "--force"]) == 1
    assert capsys.readouterr().err == f"{album / 'one.wav'}: {kept} is a folder\n"
    kept.rmdir()
    kept.write_text("of yesterday")
    assert command.main([str(album)]) == 1
    assert (album / "two.mid").exists()
    assert kept.read_text() == "of yesterday"
    assert capsys.readouterr().err == f"{album / 'one.wav'}: {kept} exists; --force replaces it\n"
    assert command.main([str(album / "one.wav"), "-o", str(kept)]) == 1
    assert kept.read_text() == "of yesterday"
    assert command.main([str(album), "--force"]) == 0
    assert pitches_of(kept.read_bytes()) == PITCHES


def test_standard_output_gets_a_table(album: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(album / "one.wav"), "-o", "-"]) == 0
    head, *rows = csv.reader(capsys.readouterr().out.splitlines())
    assert head == list(Note._fields)
    assert [int(row[2]) for row in rows] == PITCHES


FAKE = """if True:
    import sys, rse_transcribe.recordings
    from rse_transcribe import command
    from tests.fakes import FakeTranscriber

    rse_transcribe.recordings.loaded = lambda *_: FakeTranscriber()
    sys.exit(command.main())
"""


@pytest.mark.parametrize("arguments", [["album/one.wav", "-o", "-"], ["--help"]])
def test_a_reader_that_goes_away_gets_no_traceback(album: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as gone:
        done = subprocess.run(
            [sys.executable, "-c", FAKE, *arguments],
            cwd=album.parent,
            env={"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'service' / 'library'}"},
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_a_name_that_the_output_cannot_take_is_escaped(
    album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = os.fsdecode(b"caf\xe9")  # Latin-1, as on an old disk
    (album / "one.wav").rename(album / f"{name}.wav")
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="strict")
    monkeypatch.setattr(sys, "stdout", out)
    assert command.main([str(album)]) == 0
    assert sorted(path.name for path in album.glob("*.mid")) == [f"{name}.mid", "two.mid"]
    out.seek(0)
    assert "caf\\udce9.wav: 3 notes" in out.read()


def test_one_bad_recording_does_not_stop_the_others(
    album: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (album / "text.wav").write_text("no sound")
    soundfile.write(album / "low.wav", melody()[:8_000], 4_000)
    assert command.main([str(album), str(album / "gone.wav")]) == 1
    said = capsys.readouterr()
    assert said.out.count("3 notes") == 2
    assert said.err.splitlines() == [
        f"{album / 'low.wav'}: sample_rate must be a whole number from 8000 to 192000 Hz, not 4000",
        f"{album / 'text.wav'}: not a readable audio file: Format not recognised.",
        f"{album / 'gone.wav'}: does not exist",
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["{empty}"], "no recordings in {empty}"),
        (["{one}", "-o", "{empty}/gone/x.mid"], "there is no folder {empty}/gone"),
        (
            ["{one}", "-o", "x.ogg"],
            "x.ogg should end in .mid, .midi, .json, .csv, or in / for a folder",
        ),
        (["{album}", "-o", "{one}"], "{one} cannot be a folder: File exists"),
        (["{album}", "-o", "name.mid"], "2 recordings need a folder, not name.mid"),
        (
            ["{one}", "{empty}/../album/one.wav", "-o", "{empty}"],
            "{one} and {empty}/../album/one.wav would both be written to {empty}/one.mid",
        ),
        (["{one}", "-o", "x.json", "--split"], "--split and --tempo need a MIDI file as output"),
        (["{one}", "-o", "-", "--tempo", "120"], "--split and --tempo need a MIDI file as output"),
        (["{one}", "--lookahead-ms", "0"], "lookahead_ms must be 46 to 372 ms, not 0.0"),
        (["{one}", "--instruments", "piano, kazoo"], "instruments must be among piano, "),
        (["{one}", "--tempo", "fast"], "argument --tempo: auto, or a number from 20 to 400, not"),
        ([], "the following arguments are required: RECORDING"),
    ],
)
def test_wrong_usage_is_one_line(
    album: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    (tmp_path / "empty").mkdir()
    names = {"empty": str(tmp_path / "empty"), "one": str(album / "one.wav")}
    names["album"] = str(album)
    with pytest.raises(SystemExit) as end:
        command.main([argument.format(**names) for argument in arguments])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"rse-transcribe: {complaint.format(**names)}")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "serve", "live", "keys", "keys new", "train", "train musicnet --preset live"),
        *("evaluate", "evaluate real", "evaluate instruments", "evaluate errors"),
        *("evaluate junk", "evaluate musicnet"),
    ],
)
def test_help_of_every_program_fits_a_screen(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        command.main([*arguments.split(), "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: rse-transcribe {arguments.partition(' ')[0]}")
    assert len(said.splitlines()) <= 24
    assert max(map(len, said.splitlines())) < 80


def test_a_program_ends_with_its_own_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["keys", "new", "a:b"]) == 2
    assert command.main(["evaluate", "junk", "--model", "nothing"]) == 1
    assert "rse-transcribe evaluate: no weights 'nothing'" in capsys.readouterr().err


def test_a_missing_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.delitem(sys.modules, "training.run", raising=False)
    assert command.main(["train", "--help"]) == 1
    assert "pip install 'rse-transcribe[training]'" in capsys.readouterr().err
