"""``rse-transcribe --server``: what it sends, what it writes, how it fails."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from rse_transcribe import command, remote
from tests.clients.fakes.fake_service import nobody
from tests.service.apps import pitches_of
from tests.service.library.fake_uploads import STARTED, Uploads

RATE = 16_000


def write(path: Path) -> Path:
    soundfile.write(path, 0.3 * np.sin(np.arange(3 * RATE) / 5), RATE)
    return path


def run(service: Uploads, *arguments: str | Path) -> int:
    return command.main([*map(str, arguments), "--server", service.url])


def test_a_recording_becomes_midi_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RSE_KEY", "secret")
    song, out, notes = write(tmp_path / "song.wav"), tmp_path / "o.mid", tmp_path / "o.json"
    with Uploads().running() as service:
        assert run(service, song, "-o", out, "--lookahead-ms", "50") == 0
        service.url += "/music/"  # of a service behind a proxy
        assert run(service, song, "-o", notes, "--instruments", "violin,cello") == 0
    assert service.paths == ["/transcribe", "/music/transcribe"]
    first, second = service.queries
    assert first == {"answer": "ndjson", "lookahead_ms": "50.0", "updates": "true"}
    assert second["instruments"] == "violin,cello"
    assert service.keys[0] == "Bearer secret"
    assert service.bodies == [song.read_bytes()] * 2
    assert pitches_of(out.read_bytes()) == [60, 61, 62]
    described = json.loads(notes.read_text())
    assert [(n["pitch"], n["onset_s"], n["offset_s"]) for n in described["notes"]] == [
        (60 + k, k + 0.25, k + 0.75) for k in range(3)
    ]
    assert described["pedal"] == [{"onset_s": 0.5, "offset_s": 1.5}]
    assert STARTED.items() <= described.items()
    assert capsys.readouterr().out.splitlines()[0] == f"{song}: 3 notes -> {out}"


def test_a_recording_comes_through_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audio = write(tmp_path / "song.wav").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(audio)))
    with Uploads().running() as service:
        assert run(service, "-", "-o", tmp_path / "out.mid") == 0
    assert service.bodies == [audio]
    assert (tmp_path / "out.mid").exists()


@pytest.mark.parametrize(
    ("service", "complaint"),
    [
        (Uploads(fail_at_s=1), "NaN in audio (bad_audio)"),
        (Uploads(drop_at_s=2), "the service closed the connection"),
    ],
)
def test_what_breaks_off_keeps_the_notes_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], service: Uploads, complaint: str
) -> None:
    song, out = write(tmp_path / "song.wav"), tmp_path / "o.mid"
    with service.running():
        assert run(service, song, "-o", out) == 1
    assert capsys.readouterr().err == f"{song}: {complaint}; incomplete: 2 notes\n"
    assert pitches_of(out.read_bytes()) == [60, 61]


def test_a_full_or_absent_service_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    song = write(tmp_path / "song.wav")
    with Uploads(status=503).running() as service:
        assert run(service, song) == command.NO_SERVICE
        assert "all places are taken" in capsys.readouterr().err
    song.with_suffix(".mid").write_text("of yesterday")
    with Uploads(drop_at_s=0).running() as service:
        assert run(service, song, "--force") == 1
    assert song.with_suffix(".mid").read_text() == "of yesterday"
    with nobody() as service.url:
        assert run(service, song, "--force") == command.NO_SERVICE
    reported = capsys.readouterr().err
    assert "cannot connect" in reported
    assert reported.endswith("; `rse-transcribe serve` starts a service\n")
    with Uploads(status=422).running() as service:
        assert run(service, song, "--force") == command.INCOMPLETE


@pytest.mark.parametrize(("refusals", "status"), [(3, 0), (remote.BUSY_TRIES, 3)])
def test_a_recording_that_has_no_room_yet_is_sent_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refusals: int, status: int
) -> None:
    song = write(tmp_path / "song.wav")
    with Uploads(refusals=refusals).running() as service:
        assert run(service, song) == status
    assert service.bodies == [song.read_bytes()] * min(refusals + 1, remote.BUSY_TRIES)
    assert song.with_suffix(".mid").exists() == (status == 0)
    assert capsys.readouterr().err.count("all places are taken") == (1 if status == 0 else 2)


@pytest.mark.parametrize("url", ["http://localhost:80x", "http://my host:8000", "ws://a"])
def test_an_impossible_address_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert command.main([str(write(tmp_path / "a.wav")), "--server", url]) == 1
    assert f"not a service address: {url!r}" in capsys.readouterr().err
