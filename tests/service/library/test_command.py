"""Tests of the command ``rse-transcribe``: its output files and failures."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mido
import pytest
import soundfile

from rse_transcribe import command
from rse_transcribe.files import find_recordings, targets
from rse_transcribe.transcription import CSV_FIELDS
from service.stream.windows import EngineError
from tests.commands import run
from tests.fakes import FakeTranscriber
from tests.paths import REPOSITORY
from tests.service.apps import PITCHES, RATE_HZ, melody, pitches_of, sound_file


@pytest.fixture(autouse=True)
def _tones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rse_transcribe.recordings.as_model", lambda *_, **__: FakeTranscriber())


@pytest.fixture
def album(tmp_path: Path) -> Path:
    folder = tmp_path / "album"
    folder.mkdir()
    for name in ("one", "two"):
        soundfile.write(folder / f"{name}.wav", melody(), RATE_HZ)
    return folder


def test_output_file_has_the_format_of_its_name(album: Path, tmp_path: Path) -> None:
    song, target = album / "one.wav", tmp_path / "song.mid"
    assert run(command.main, song, "-o", target) == (0, f"{song}: 3 notes -> {target}\n", "")
    assert pitches_of(target.read_bytes()) == PITCHES
    assert run(command.main, song, "-o", tmp_path / "song.midi").status == 0
    assert (tmp_path / "song.midi").read_bytes() == target.read_bytes()
    assert run(command.main, song, "-o", tmp_path / "song.json").status == 0
    assert len(json.loads((tmp_path / "song.json").read_text())["notes"]) == 3


def test_bpm_sets_the_tempo_of_the_midi_file(album: Path) -> None:
    assert run(command.main, album / "one.wav", "--bpm", 96).status == 0
    assert run(command.main, album / "two.wav").status == 0  # three notes
    for name, bpm in (("one", 96), ("two", 120)):
        reported = [m.tempo for m in mido.MidiFile(album / f"{name}.mid") if m.type == "set_tempo"]
        assert reported == [60_000_000 // bpm]


def test_existing_files_are_replaced_only_with_force(album: Path) -> None:
    song, target = album / "one.wav", album / "one.mid"
    target.mkdir()
    assert run(command.main, song, "--force") == (1, "", f"{song}: {target} is a folder\n")
    target.rmdir()
    target.write_text("of yesterday")
    status, _, error = run(command.main, album)
    assert (status, error) == (1, f"{song}: {target} exists; use --force to replace it\n")
    assert (album / "two.mid").exists()
    assert target.read_text() == "of yesterday"
    linked = target.rename(album / "linked.mid")
    target.symlink_to(linked)
    assert run(command.main, album, "--force").status == 0
    assert target.is_symlink()
    assert pitches_of(linked.read_bytes()) == PITCHES


def test_standard_input_becomes_csv_on_standard_output(
    album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (album / "one.wav").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    head, *rows = csv.reader(run(command.main, "-", "-o", "-").output.splitlines())
    assert head == list(CSV_FIELDS)
    assert [int(row[2]) for row in rows] == PITCHES


@pytest.mark.parametrize("is_empty", [False, True])
def test_ctrl_c_ends_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_empty: bool
) -> None:
    """A recorder writes more than a pipe holds while the model loads. Then Ctrl-C ends the input,
    whose header promises more data."""
    data = bytearray(sound_file())
    size = data.index(b"data") + 4
    data[size : size + 4] = b"\xff\xff\xff\x7f"
    reading, writing = map(os.fdopen, os.pipe(), ("rb", "wb"))
    assert len(data) > 1 << 16

    def load(*_: object, **__: object) -> FakeTranscriber:
        if is_empty:
            signal.raise_signal(signal.SIGINT)
        writing.write(data)
        writing.flush()
        while True:
            try:
                signal.raise_signal(signal.SIGINT)
                return FakeTranscriber()
            except KeyboardInterrupt:  # no data have been read yet
                time.sleep(0.01)

    monkeypatch.setattr("rse_transcribe.recordings.as_model", load)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=reading))
    target = tmp_path / "take.mid"
    handler = signal.getsignal(signal.SIGINT)
    try:
        with reading, writing:
            assert run(command.main, "-", "-o", target).status == (130 if is_empty else 0)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert target.exists() == (not is_empty)
    if not is_empty:
        assert pitches_of(target.read_bytes()) == PITCHES


def test_closed_standard_input_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run(command.main, "-", "-o", "-") == (1, "", "-: standard input is closed\n")


def test_empty_argument_is_not_the_current_folder(
    album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(album)
    assert run(command.main, "") == (1, "", "'': No such file or directory\n")
    assert len(list(album.iterdir())) == 2


def test_chord_options_apply_to_json(tmp_path: Path) -> None:
    song, target = tmp_path / "song.wav", tmp_path / "song.json"
    soundfile.write(song, melody(), RATE_HZ)
    for option, has_chords in (("--chords", True), ("--no-chords", False)):
        assert run(command.main, song, "-o", target, option, "--force").status == 0
        assert bool(json.loads(target.read_text())["chords"]) == has_chords


@pytest.mark.parametrize("kind", ["csv", "mxl"])
def test_format_option_applies_to_all_files(album: Path, tmp_path: Path, kind: str) -> None:
    assert run(command.main, album, "-o", tmp_path / "out", "--format", kind).status == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {f"one.{kind}", f"two.{kind}"}


def test_format_that_contradicts_the_output_is_rejected(album: Path, tmp_path: Path) -> None:
    song, score = album / "one.wav", tmp_path / "song.xml"
    for target in (tmp_path / "song.mid", "-"):
        status, _, error = run(command.main, song, "-o", target, "--format", "pdf")
        assert status == 2
        assert "omit --format pdf" in error
    assert run(command.main, song, "-o", score, "--format", "musicxml").status == 0
    assert score.read_bytes().startswith(b"<?xml")


ENVIRONMENT = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'service' / 'library'}"}
FAKE_COMMAND = """if True:
    import sys, rse_transcribe.recordings
    from rse_transcribe import command
    from tests.fakes import FakeTranscriber

    rse_transcribe.recordings.as_model = lambda *_, **__: FakeTranscriber()
    status = command.main()
    assert "httpx" not in sys.modules  # only --server needs it
    sys.exit(status)
"""


HELP_COMMAND = "import sys; from rse_transcribe import command; sys.exit(command.main())"


@pytest.mark.parametrize(
    ("program", "arguments"),
    [(FAKE_COMMAND, ["album/one.wav", "-o", "-"]), (HELP_COMMAND, ["--help"])],
)
def test_closed_output_pipe_prints_no_traceback(
    album: Path, program: str, arguments: list[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed:
        completed = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=album.parent,
            env=ENVIRONMENT,
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (completed.returncode, completed.stderr) == (1, "")


def test_file_name_that_stdout_cannot_encode_is_escaped(
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


def test_batch_continues_after_bad_files(
    album: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (album / "text.wav").write_text("no sound")
    soundfile.write(album / "low.wav", melody()[:8_000], 3_000)
    (album / "Sonata No. 5 in C").write_bytes((album / "one.wav").read_bytes())
    (album / "one.flac").write_bytes(sound_file(kind="FLAC"))
    (album / "cover\n.jpg").touch()
    (album / "one.mid").touch()
    os.mkfifo(album / "pipe.wav")  # without a writer
    for number in range(3):
        (album / f"z{number}.txt").touch()
    (album / "locked").mkdir()
    long, out = "a" * 252, tmp_path / "midi"
    (album / long).write_bytes((album / "one.wav").read_bytes())  # the name plus .mid is too long
    (out / "two.mid").mkdir(parents=True)
    scandir = os.scandir

    def guarded(path: str) -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    paths = [album, album / "Sonata No. 5 in C", "b" * 300, "https://a.org/b.wav", album / long]
    status, _, error = run(command.main, *paths, album / "gone.wav", "-o", out)
    assert status == 1
    assert sorted(path.name for path in out.iterdir()) == [
        "Sonata No. 5 in C.mid",
        "one.flac.mid",
        "one.wav.mid",
        "two.mid",
    ]
    assert error.splitlines() == [
        f"{album / 'locked'}: Permission denied",
        f"{'b' * 300}: File name too long",
        "https://a.org/b.wav: not a file; download the recording first",
        f"{album / 'gone.wav'}: No such file or directory",
        f"{album / 'two.wav'}: {out / 'two.mid'} is a folder",
        f"{album / long}: {out / long}.mid: File name too long",
        f"{album / 'low.wav'}: sample_rate must be an integer from 4000 to 384000 Hz, not 3000",
        f"{album / 'text.wav'}: not a readable audio file; use WAV, FLAC, MP3, M4A, OGG, "
        "WebM or similar",
        f"skipped, not audio or video: {album}/cover\\n.jpg, {album}/pipe.wav, {album}/z0.txt, "
        f"{album}/z1.txt, {album}/z2.txt",
    ]


def test_overlapping_folders_are_searched_once(album: Path) -> None:
    (album / "disc").mkdir()
    (album / "disc" / "cover.jpg").touch()
    (album / "disc" / "three.wav").touch()
    (album / "link").symlink_to(album / "disc")
    arguments = [str(album / "disc"), str(album), str(album), str(album / "one.wav")]
    arguments += [str(album / "link"), os.path.relpath(album), os.path.relpath(album / "two.wav")]
    inputs = find_recordings(arguments)
    assert inputs.skipped == [album / "disc" / "cover.jpg", album / "link"]
    assert [str(path) for path in inputs.recordings.values()] == ["three.wav", "one.wav", "two.wav"]


@pytest.mark.parametrize("option", ["--bends", "--bpm=90", "--fixed-tempo", "--no-chords"])
def test_csv_rejects_options_without_effect(album: Path, option: str) -> None:
    status, _, error = run(command.main, album / "one.wav", "-o", "-", option)
    assert (status, error.count("\n")) == (2, 1)
    assert "CSV has no beats, chords or bends" in error


def test_outputs_differ_in_more_than_case(album: Path) -> None:
    paths = [album / name for name in ("Song.wav", "song.mp3", "tune.wav")]
    names = [target.name for target in targets({path: path for path in paths}, None).values()]
    assert names == ["Song.wav.mid", "song.mp3.mid", "tune.mid"]


def test_second_recording_with_the_same_output_is_skipped(album: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other, out = tmp_path / "other" / "one.wav", tmp_path / "midi"
    shutil.copy(album / "one.wav", other)
    status, _, error = run(
        command.main, album / "one.wav", other, album / "two.wav", "-o", f"{out}/"
    )
    reason = f"skipped, because {album / 'one.wav'} also writes to {out / 'one.wav.mid'}"
    assert (status, error) == (1, f"{other}: {reason}; rename one\n")
    assert sorted(path.name for path in out.iterdir()) == ["one.wav.mid", "two.mid"]


@pytest.mark.parametrize("error", [EngineError("the worker\ndied"), OSError(11, "no process")])
def test_worker_start_failure_is_one_line(
    album: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def start(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("rse_transcribe.recordings.Transcriber", start)
    message = f"rse-transcribe: {error}\n".replace("r\nd", "r\\nd")
    assert run(command.main, album) == (1, "", message)


def test_unwritable_output_is_reported_before_loading(
    album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr("rse_transcribe.recordings.as_model", pytest.fail)
    song = album / "one.wav"
    assert run(command.main, song) == (1, "", f"{song}: {album}: Permission denied\n")


def test_full_disk_leaves_the_old_file(album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for ending in ("mid", "json", "csv"):
        song, result = album / "one.wav", album / f"one.{ending}"
        result.write_text("of yesterday")
        message = f"{song}: {result}: No space left on device\n"
        assert run(command.main, song, "-o", result, "--force") == (1, "", message)
        assert result.read_text() == "of yesterday"
    assert len(list(album.iterdir())) == 5
