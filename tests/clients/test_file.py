"""The file client as a command: what it writes, how it fails."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mido
import numpy as np
import pytest
import soundfile

from clients import file
from clients.errors import ConnectionLostError, TranscriptionError
from clients.file import main
from clients.upload import transcribe
from tests.clients.fakes.fake_service import nobody
from tests.clients.fakes.fake_uploads import STARTED, Uploads
from tests.paths import REPOSITORY

RATE = 16_000


def write(path: Path) -> Path:
    soundfile.write(path, 0.3 * np.sin(np.arange(3 * RATE) / 5), RATE)
    return path


def run(service: Uploads, *arguments: str | Path) -> int:
    return main([*map(str, arguments), "--url", service.url])


def test_a_recording_becomes_midi_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RSE_KEY", "secret")
    song, out, notes = write(tmp_path / "song.wav"), tmp_path / "o.mid", tmp_path / "o.json"
    with Uploads().running() as service:
        assert run(service, song, "-o", out, "--json", notes, "--lookahead-ms", "50") == 0
    assert service.queries == [{"answer": "ndjson", "lookahead_ms": "50.0", "updates": "True"}]
    assert service.headers[0]["Authorization"] == "Bearer secret"
    assert service.bodies == [song.read_bytes()]
    assert [m.note for m in mido.MidiFile(out) if m.type == "note_on"] == [60, 61, 62]
    described = json.loads(notes.read_text())
    times = {"onset_s": 0.25, "onset_frame": 1, "offset_s": 0.75, "offset_frame": 3}
    note = {"note_id": 0, "pitch": 60, "velocity": 80, "confidence": 0.9, **times}
    assert described["notes"][0] == note
    assert [(n["pitch"], n["onset_s"], n["offset_s"]) for n in described.pop("notes")] == [
        (60, 0.25, 0.75),
        (61, 1.25, 1.75),
        (62, 2.25, 2.75),
    ]
    assert described == {
        "file": "song.wav",
        "complete": True,
        "duration_s": 3.0,
        "frames": 258,
        "pedal": [{"onset_s": 0.5, "offset_s": 1.5}],
        **STARTED,
    }
    assert "3 notes" in capsys.readouterr().out


def test_one_bad_file_of_a_folder_does_not_stop_the_rest(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    album, out = tmp_path / "album", tmp_path / "midi"
    (album / "encore").mkdir(parents=True)
    for name in ("b.wav", "a.FLAC", "encore/c.wav"):
        write(album / name)
    with Uploads().running() as service:
        assert run(service, tmp_path / "none.wav", album, "-o", out, "--jobs", "2") == 1
    names = ["a.mid", "b.mid", "encore/c.mid"]
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.mid")) == names
    reported = capfd.readouterr()
    assert reported.out.count("3 notes") == 3
    assert "none.wav" in reported.err.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{tmp}/a.wav", "-o", "n.txt"], "n.txt should end in .mid, .midi, .json, or in / for"),
        (["-"], "- needs --rate"),
        (["{tmp}/a.wav", "-o", "n.json", "--split"], "--split and --tempo need a MIDI file"),
    ],
)
def test_wrong_usage_is_reported_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    write(tmp_path / "a.wav")
    with pytest.raises(SystemExit) as caught:
        main([argument.format(tmp=tmp_path) for argument in arguments])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-o", "--json"])
def test_files_that_exist_are_kept_unless_forced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], option: str
) -> None:
    first, second = write(tmp_path / "a.wav"), write(tmp_path / "b.wav")
    out = tmp_path / "out"
    out.mkdir()
    kept = out / ("a.mid" if option == "-o" else "a.json")
    kept.write_text("of yesterday")
    with Uploads().running() as service:
        assert run(service, first, second, option, out) == 1
        assert len(service.bodies) == 1
        assert kept.read_text() == "of yesterday"
        assert f"{first}: {kept} exists; --force replaces it" in capfd.readouterr().err
        assert run(service, first, option, out, "--force") == 0
    assert kept.read_text(errors="replace") != "of yesterday"


def test_raw_pcm_comes_through_a_pipe(tmp_path: Path) -> None:
    audio = np.arange(2 * 2 * RATE).astype("<f4").tobytes()  # two seconds, two channels
    out = tmp_path / "out.mid"
    how = ["--rate", str(RATE), "--channels", "2", "--encoding", "pcm_f32le"]
    with Uploads().running() as service:
        command = [sys.executable, "-m", "clients.file", "-", "--url", service.url, *how]
        done = subprocess.run(
            [*command, "-o", str(out)], input=audio, cwd=REPOSITORY, check=True, capture_output=True
        )
    assert b"3 notes" in done.stdout
    (query,) = service.queries
    assert (query["encoding"], query["sample_rate"]) == ("pcm_f32le", str(RATE))
    assert query["channels"] == "2"
    assert service.bodies == [audio]
    assert out.exists()


@pytest.mark.parametrize(
    ("service", "complaint"),
    [
        (Uploads(fail_at_s=1), "NaN in audio (bad_audio)"),
        (Uploads(drop_at_s=2), "the service closed the connection"),
    ],
)
def test_what_breaks_off_keeps_the_notes_before(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    service: Uploads,
    complaint: str,
) -> None:
    song, out, notes = write(tmp_path / "song.wav"), tmp_path / "o.mid", tmp_path / "o.json"
    with service.running():
        assert run(service, song, "-o", out, "--json", notes) == 1
    reported = capfd.readouterr()
    assert f"{complaint}; incomplete: 2 notes" in reported.err.replace("\n", " ")
    assert reported.out == ""
    described = json.loads(notes.read_text())
    assert not described["complete"]
    assert [note["offset_s"] for note in described["notes"]] == [0.75, 1.5]
    assert [m.note for m in mido.MidiFile(out) if m.type == "note_on"] == [60, 61]


def test_ctrl_c_keeps_the_notes_before(tmp_path: Path) -> None:
    first, last, out = write(tmp_path / "a.wav"), write(tmp_path / "b.wav"), tmp_path / "midi"
    with Uploads(hang_at_s=2).running() as service:
        command = [sys.executable, "-m", "clients.file", first, last, "-o", out]
        with subprocess.Popen(
            [*map(str, command), "--url", service.url],
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert service.hanging.wait(100)
            process.send_signal(signal.SIGINT)
            _, reported = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "incomplete: 2 notes" in reported
    assert "Traceback" not in reported
    assert [path.name for path in out.iterdir()] == ["a.mid"]
    assert [m.note for m in mido.MidiFile(out / "a.mid") if m.type == "note_on"] == [60, 61]


def test_a_full_or_absent_service_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    song = write(tmp_path / "song.wav")
    with Uploads(status=503).running() as service:
        assert run(service, song) == file.NO_SERVICE
        assert "all places are taken" in capfd.readouterr().err
    song.with_suffix(".mid").write_text("of yesterday")
    with Uploads(drop_at_s=0).running() as service:
        assert run(service, song, "--force") == 1
    assert song.with_suffix(".mid").read_text() == "of yesterday"
    with nobody() as service.url:
        assert run(service, song, "--force") == file.NO_SERVICE
    reported = capfd.readouterr().err
    assert "cannot connect" in reported
    assert reported.endswith("; `rse-transcribe serve` starts a service\n")
    with Uploads(status=507).running() as service:
        assert run(service, song, "--force") == file.NO_SERVICE
    with Uploads(status=422).running() as service:
        assert run(service, song, "--force") == file.INCOMPLETE


@pytest.mark.parametrize(("refusals", "status"), [(3, 0), (file.BUSY_TRIES, file.NO_SERVICE)])
def test_a_recording_that_has_no_room_yet_is_sent_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], refusals: int, status: int
) -> None:
    song = write(tmp_path / "song.wav")
    with Uploads(refusals=refusals).running() as service:
        assert run(service, song) == status
    assert service.bodies == [song.read_bytes()] * min(refusals + 1, file.BUSY_TRIES)
    assert song.with_suffix(".mid").exists() == (status == 0)
    assert capfd.readouterr().err.count("all places are taken") == (1 if status == 0 else 2)


def test_a_terminal_keeps_the_results_and_no_bar(tmp_path: Path) -> None:
    """What stays on a screen: the last text of each line, less what was drawn over."""
    song = write(tmp_path / "song.wav")
    reading, terminal = os.openpty()
    with Uploads().running() as service:
        command = [sys.executable, "-m", "clients.file", str(song), "--url", service.url]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, stderr=terminal, stdout=subprocess.PIPE
        )
    os.close(terminal)
    drawn = b""
    with contextlib.suppress(OSError):  # at the end
        while part := os.read(reading, 1 << 16):
            drawn += part
    os.close(reading)
    assert done.stdout.decode() == f"{song}: 3 notes -> {song.with_suffix('.mid')}\n"
    assert b"song.wav" not in drawn.rpartition(b"\x1b[2K")[2]


def test_a_recording_that_cannot_be_read_is_not_a_lost_connection(tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield b"RIFF"
        raise OSError("input/output error")

    with (
        Uploads().running() as service,
        pytest.raises(TranscriptionError, match="cannot be read: input/output error") as caught,
    ):
        list(transcribe(service.url, failing(), {}))
    assert not isinstance(caught.value, ConnectionLostError)


@pytest.mark.parametrize("url", ["http://localhost:80x", "http://my host:8000"])
def test_an_impossible_address_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], url: str
) -> None:
    assert main([str(write(tmp_path / "a.wav")), "--url", url]) == 1
    assert f"not a service address: {url!r}" in capfd.readouterr().err
