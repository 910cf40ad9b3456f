"""Tests of ``rse-transcribe --server``: its output files, retries and error messages."""

import errno
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import soundfile

from rse_transcribe import command, remote
from service.access.keys import hash_key
from tests.clients.fake_service import unused_address
from tests.fakes import FakeTranscriber
from tests.service.apps import RATE_HZ, melody
from tests.service.servers import TONES, server_starter

KEY = "rse_secret"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_starter(tmp_path_factory.mktemp("server")) as start:
        yield start(*TONES, RSE_KEYS=f"alice:{hash_key(KEY).hex()}").url


@pytest.fixture
def song(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("rse_transcribe.recordings.as_model", lambda *_, **__: FakeTranscriber())
    monkeypatch.setenv("RSE_KEY", KEY + "\n")  # as read from a file
    soundfile.write(tmp_path / "song.flac", melody(), RATE_HZ)
    return tmp_path / "song.flac"


@pytest.mark.parametrize("ending", ["mid", "json", "csv"])
@pytest.mark.parametrize("damaged", [False, True])
def test_server_option_gives_the_files_of_a_local_run(
    url: str, song: Path, capsys: pytest.CaptureFixture[str], ending: str, damaged: bool
) -> None:
    data = song.read_bytes()
    if damaged:
        song.write_bytes(data[: len(data) * 2 // 3] + bytes(1000) + data[-200:])
    output: list[str] = []
    results: list[bytes] = []
    for location in ([], ["--server", url]):
        out = song.with_name(f"{len(results)}.{ending}")
        options = ["-o", str(out), "--lookahead-ms", "150", "--bends"]
        assert command.main([str(song), *options, *location]) == damaged
        output.append(capsys.readouterr().err.replace(" (undecodable)", ""))
        results.append(out.read_bytes())
    assert results[0] == results[1]
    assert output[0] == output[1]


def test_rejected_key_and_missing_service_keep_the_old_file(
    url: str, song: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    song.with_suffix(".mid").write_text("of yesterday")
    monkeypatch.setenv("RSE_KEY", "wrong")
    assert command.main([str(song), "--force", "--server", url]) == 1
    output = capsys.readouterr().err
    assert output == f"{song}: no valid API key or token (unauthorized)\n"
    with unused_address() as empty:
        assert command.main([str(song), "--force", "--server", empty]) == 1
    output = capsys.readouterr().err
    assert "cannot connect" in output
    assert output.endswith("; `rse-transcribe serve` starts a service\n")
    assert song.with_suffix(".mid").read_text() == "of yesterday"


@pytest.mark.parametrize(("rejections", "status"), [(3, 0), (remote.MAX_ATTEMPTS, 1)])
def test_busy_service_is_retried(
    url: str,
    song: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    rejections: int,
    status: int,
) -> None:
    send_request = remote._response_lines
    errors = [remote.ServiceError("no slot is free", 0.0)] * rejections

    def respond(connection: Any, target: str, file: BinaryIO, key: str) -> Iterator[dict[str, Any]]:
        if errors:
            file.read(1000)
            raise errors.pop()
        return send_request(connection, target, file, key)

    monkeypatch.setattr(remote, "_response_lines", respond)
    assert command.main([str(song), "--server", url]) == status
    assert not errors
    assert capsys.readouterr().err.count("no slot is free") == 1 + status


@pytest.mark.parametrize("url", ["http://localhost:80x", "http://my host:8000", "ws://a"])
def test_invalid_address_is_reported(
    song: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert command.main([str(song), "--server", url]) == 1
    assert f"invalid service address: {url!r}" in capsys.readouterr().err


def test_invalid_key_is_not_printed(
    url: str, song: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RSE_KEY", "rse_geheim\u00df")
    assert command.main([str(song), "--server", url]) == 1
    output = capsys.readouterr().err
    assert "RSE_KEY is not an API key" in output
    assert "geheim" not in output


def test_unreadable_recording_is_not_a_lost_connection(url: str, song: Path) -> None:
    class Unreadable(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if size:
                raise OSError(errno.EIO, "input/output error")
            return b""

    with pytest.raises(remote.ServiceError, match="cannot read the recording: .*input/output"):
        remote.transcribe(Unreadable(song.read_bytes()), url, {}, print)
