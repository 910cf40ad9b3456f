"""``rse-transcribe --server``: the files of the command alone, and what goes wrong on the way."""

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
    monkeypatch.setenv("RSE_KEY", KEY)
    soundfile.write(tmp_path / "song.flac", melody(), RATE_HZ)
    return tmp_path / "song.flac"


@pytest.mark.parametrize("ending", ["mid", "json", "csv"])
@pytest.mark.parametrize("damaged", [False, True])
def test_the_files_are_those_of_the_command_alone(
    url: str, song: Path, capsys: pytest.CaptureFixture[str], ending: str, damaged: bool
) -> None:
    data = song.read_bytes()
    if damaged:
        song.write_bytes(data[: len(data) * 2 // 3] + bytes(1000) + data[-200:])
    said: list[str] = []
    made: list[bytes] = []
    for where in ([], ["--server", url]):
        out = song.with_name(f"{len(made)}.{ending}")
        options = ["-o", str(out), "--lookahead-ms", "150", "--bends"]
        assert command.main([str(song), *options, *where]) == damaged
        said.append(capsys.readouterr().err.replace(" (undecodable)", ""))
        made.append(out.read_bytes())
    assert made[0] == made[1]
    assert said[0] == said[1]


def test_a_refusal_and_a_service_that_is_not_there(
    url: str, song: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    song.with_suffix(".mid").write_text("of yesterday")
    monkeypatch.setenv("RSE_KEY", "wrong")
    assert command.main([str(song), "--force", "--server", url]) == 1
    said = capsys.readouterr().err
    assert said == f"{song}: no valid API key or token (unauthorized)\n"
    with unused_address() as empty:
        assert command.main([str(song), "--force", "--server", empty]) == 1
    said = capsys.readouterr().err
    assert "cannot connect" in said
    assert said.endswith("; `rse-transcribe serve` starts a service\n")
    assert song.with_suffix(".mid").read_text() == "of yesterday"


@pytest.mark.parametrize(("refusals", "status"), [(3, 0), (remote.MAX_ATTEMPTS, 1)])
def test_a_busy_service_is_asked_again(
    url: str,
    song: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    refusals: int,
    status: int,
) -> None:
    ask, busy = (
        remote._response_lines,
        [remote.ServiceError("all places are taken", 0.0)] * refusals,
    )

    def answer(connection: Any, target: str, file: BinaryIO) -> Iterator[dict[str, Any]]:
        if busy:
            file.read(1000)
            raise busy.pop()
        return ask(connection, target, file)

    monkeypatch.setattr(remote, "_response_lines", answer)
    assert command.main([str(song), "--server", url]) == status
    assert not busy
    assert capsys.readouterr().err.count("all places are taken") == 1 + status


@pytest.mark.parametrize("url", ["http://localhost:80x", "http://my host:8000", "ws://a"])
def test_an_impossible_address_is_named(
    song: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert command.main([str(song), "--server", url]) == 1
    assert f"invalid service address: {url!r}" in capsys.readouterr().err
