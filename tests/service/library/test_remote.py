"""``rse-transcribe --server``: what it sends, what it writes, how it fails."""

import io
import json
import sys
from pathlib import Path

import pytest

from rse_transcribe import command, remote
from tests.clients.fakes.fake_service import nobody
from tests.service.apps import pitches_of
from tests.service.library.fake_uploads import STARTED, Uploads

NOTES = [60, 61, 62]


@pytest.fixture
def song(tmp_path: Path) -> Path:
    path = tmp_path / "song.wav"
    path.write_bytes(bytes(range(256)) * 1000)
    return path


def run(service: Uploads, *arguments: str | Path) -> int:
    return command.main([*map(str, arguments), "--server", service.url])


def test_a_recording_becomes_midi_and_json(
    song: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RSE_KEY", "secret")
    out, table = song.with_name("o.mid"), song.with_name("o.json")
    with Uploads().running() as service:
        assert run(service, song, "-o", out, "--lookahead-ms", "50") == 0
        service.url += "/music/"  # of a service behind a proxy
        assert run(service, song, "-o", table, "--instruments", "violin,cello", "--bends") == 0
    (path, query), (below, chosen) = service.asked
    assert (path, below) == ("/transcribe", "/music/transcribe")
    assert query == {"answer": ["ndjson"], "lookahead_ms": ["50.0"], "updates": ["true"]}
    assert (chosen["instruments"], chosen["bends"]) == (["violin", "cello"], ["true"])
    assert service.keys[0] == "Bearer secret"
    assert service.bodies == [song.read_bytes()] * 2
    assert pitches_of(out.read_bytes()) == NOTES
    described = json.loads(table.read_text())
    assert [(n["pitch"], n["onset_s"], n["offset_s"]) for n in described["notes"]] == [
        (60 + k, k + 0.25, k + 0.75) for k in range(3)
    ]
    assert described["pedal"] == [{"onset_s": 0.5, "offset_s": 1.5}]
    assert STARTED.items() <= described.items()
    assert capsys.readouterr().out.splitlines()[0] == f"{song}: 3 notes -> {out}"


def test_a_recording_comes_through_a_pipe(song: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(song.read_bytes())))
    with Uploads().running() as service:
        assert run(service, "-", "-o", song.with_name("out.mid")) == 0
    assert service.bodies == [song.read_bytes()]


def test_what_fails_is_said_and_a_damaged_recording_keeps_its_notes(
    song: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = song.with_suffix(".mid")
    with Uploads(fault="NaN in audio").running() as service:
        assert run(service, song) == 1
    assert capsys.readouterr().err == f"{song}: NaN in audio (bad_audio); incomplete: 3 notes\n"
    assert pitches_of(out.read_bytes()) == NOTES
    out.write_text("of yesterday")
    for service, words in (
        (Uploads(status=503), "all places are taken (too_many_uploads)"),
        (Uploads(breaks_off=True), "the service closed the connection"),
    ):
        with service.running():
            assert run(service, song, "--force") == 1
        assert capsys.readouterr().err == f"{song}: {words}\n"
    with nobody() as service.url:
        assert run(service, song, "--force") == 1
    said = capsys.readouterr().err
    assert "cannot connect" in said
    assert said.endswith("; `rse-transcribe serve` starts a service\n")
    assert out.read_text() == "of yesterday"


@pytest.mark.parametrize(("refusals", "status"), [(3, 0), (remote.BUSY_TRIES, 1)])
def test_a_recording_that_has_no_room_yet_is_sent_again(
    song: Path, capsys: pytest.CaptureFixture[str], refusals: int, status: int
) -> None:
    with Uploads(refusals=refusals).running() as service:
        assert run(service, song) == status
    assert service.bodies == [song.read_bytes()] * min(refusals + 1, remote.BUSY_TRIES)
    assert song.with_suffix(".mid").exists() == (status == 0)
    assert capsys.readouterr().err.count("all places are taken") == 1 + status


@pytest.mark.parametrize("url", ["http://localhost:80x", "http://my host:8000", "ws://a"])
def test_an_impossible_address_is_named(
    song: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert command.main([str(song), "--server", url]) == 1
    assert f"not a service address: {url!r}" in capsys.readouterr().err
