"""Tests of ``rse-transcribe --server``: its output files, retries and error messages."""

import http
import io
import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import soundfile

from rse_transcribe import command, remote
from service.access.keys import hash_key
from service.notes.events import PedalPress
from tests.clients.fake_service import unused_address
from tests.commands import run
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
    monkeypatch.setenv("RSE_KEY", KEY + "\n")  # a key read from a file ends so
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # it shows progress bars
    samples = melody()
    with soundfile.SoundFile(tmp_path / "song.flac", "w", RATE_HZ, 1) as file:
        file.title = "K\u00f6chel\u2028525"  # with a line separator of Unicode
        file.write(samples)
    return tmp_path / "song.flac"


@pytest.mark.parametrize(("ending", "damaged"), [("mid", False), ("json", True), ("csv", False)])
def test_server_option_gives_the_files_of_a_local_run(
    url: str, song: Path, ending: str, damaged: bool
) -> None:
    data = song.read_bytes()
    if damaged:
        song.write_bytes(data[: len(data) * 2 // 3] + bytes(1000) + data[-200:])
    output: list[str] = []
    results: list[bytes] = []
    for location in ([], ["--server", url]):
        out = song.with_name(f"{len(results)}.{ending}")
        options = ["-o", out, "--lookahead-ms", 150, *([] if ending == "csv" else ["--bends"])]
        status, _, error = run(command.main, song, *options, *location)
        assert status == damaged
        output.append(error.replace(" (undecodable)", ""))
        results.append(out.read_bytes())
    assert results[0] == results[1]
    assert output[0] == output[1]


def test_rejected_key_and_missing_service_keep_the_old_file(
    url: str, song: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    song.with_suffix(".mid").write_text("of yesterday")
    monkeypatch.setenv("RSE_KEY", "wrong")
    status, _, error = run(command.main, song, "--force", "--server", url)
    assert (status, error) == (1, f"{song}: no valid API key or token (unauthorized)\n")
    with unused_address() as empty:
        status, _, error = run(command.main, song, "--force", "--server", empty)
    assert status == 1
    assert "cannot connect" in error
    assert error.endswith("; `rse-transcribe serve` starts a service\n")
    assert song.with_suffix(".mid").read_text() == "of yesterday"


Respond = Callable[[socket.socket], object]
HEAD = b"HTTP/1.1 %s\r\nConnection: close\r\n%s\r\n"
LINE = b'{"type": "progress", "fraction": 0.5}\n'
PROGRESS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(LINE), LINE)


@contextmanager
def scripted_service(*script: Respond, port: int | None = None) -> Iterator[str]:
    """Yield the address of a service that passes each connection to the next function of a script,
    and then closes it."""

    def serve() -> None:
        for respond in script:
            with listener.accept()[0] as connection:
                respond(connection)

    with (
        socket.create_server(("127.0.0.1", port or 0)) as listener,
        ThreadPoolExecutor(1) as threads,
    ):
        served = threads.submit(serve)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        served.result(timeout=60)


def read_chunked(connection: socket.socket) -> bytes:
    message = b""
    while not message.endswith(b"\r\n0\r\n\r\n"):  # a head may end with a boundary that ends with 0
        assert (data := connection.recv(1 << 16))
        message += data
    return message


def forward_to(url: str) -> Respond:
    def forward(connection: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as service:
            service.sendall(read_chunked(connection))
            connection.sendall(read_chunked(service))

    return forward


@pytest.mark.parametrize(
    ("status", "header", "body", "error", "delay_s"),
    [
        (b"413", b"", b'{"code": "big", "detail": "too large"}', "too large (big)", None),
        (b"503", b"Retry-After: 7\r\n", b"[]", "responded with 503 Service Unavailable", 7.0),
        (b"503", b"Retry-After: \xb2\r\n", b"", "responded with 503", None),
        (b"500", b"Retry-After: 7\r\n", b"[]", "responded with 500", None),
        (b"307", b"Location: /\r\n", b"", "responded with 307 Temporary Redirect", None),
        (b"405", b"", b"[]", "/transcribe: the service responded with 405 Method Not", None),
    ],
)
def test_response_before_the_end_of_the_recording_states_the_reason(
    monkeypatch: pytest.MonkeyPatch,
    status: bytes,
    header: bytes,
    body: bytes,
    error: str,
    delay_s: float | None,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")  # is not used
    monkeypatch.setattr(remote, "MAX_ATTEMPTS", 1)
    reason = http.HTTPStatus(int(status)).phrase.encode()

    def respond(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(HEAD % (status + b" " + reason, header) + body)

    with (
        scripted_service(respond) as url,
        open("/dev/zero", "rb") as endless,
        pytest.raises(remote.ServiceError, match=re.escape(error)) as raised,
    ):
        remote.transcribe(endless, url, {}, print)
    assert raised.value.retry_after_s == delay_s


FULL = HEAD % (b"503 Busy", b"Retry-After: 0\r\n") + b'{"code": "x", "detail": "no slot is free"}'
DRAINED = (
    HEAD % (b"200 OK", b"")
    + LINE
    + b'{"type": "error", "code": "draining", "message": "no slot is free", "retryable": true}\n'
)


@pytest.mark.parametrize("rejection", [FULL, DRAINED], ids=["full", "drained"])
@pytest.mark.parametrize(("rejections", "status"), [(3, 0), (remote.MAX_ATTEMPTS, 1)])
def test_busy_service_is_retried(
    url: str,
    song: Path,
    monkeypatch: pytest.MonkeyPatch,
    rejection: bytes,
    rejections: int,
    status: int,
) -> None:
    monkeypatch.setattr(remote, "RESTART_S", 0.0)

    def reject(connection: socket.socket) -> None:
        read_chunked(connection)
        connection.sendall(rejection)

    with scripted_service(*[reject] * rejections, *[forward_to(url)] * (1 - status)) as busy:
        outcome = run(command.main, song, "--server", busy)
    assert outcome.status == status
    assert outcome.error.count("no slot is free") == 1 + status


def test_service_that_restarts_is_awaited(
    url: str, song: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shuts down during the transcription, and then accepts no connection for a while."""
    attempts = 0

    def drain(connection: socket.socket) -> None:
        read_chunked(connection)
        connection.sendall(DRAINED)

    def sleep(_: float) -> None:
        nonlocal attempts
        attempts += 1
        stack.close()
        if attempts == 2:
            stack.enter_context(scripted_service(forward_to(url), port=httpx.URL(first).port))

    monkeypatch.setattr(remote, "time", SimpleNamespace(sleep=sleep))
    with ExitStack() as stack:
        first = stack.enter_context(scripted_service(drain))
        outcome = run(command.main, song, "--server", first)
    assert (outcome.status, attempts) == (0, 2)


def test_messages_arrive_as_the_service_sends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording grows while it is sent. At the end the service is silent for too long."""
    monkeypatch.setattr(remote, "SILENCE_TIMEOUT_S", 3.0)
    received, requests = threading.Event(), list[bytes]()
    bar = SimpleNamespace(n=0, update=lambda _: received.set())
    monkeypatch.setattr(remote, "progress_bar", lambda _: nullcontext(bar))

    class Growing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() == 4:
                self.write(b"grown")
                self.seek(4)
            return super().read(size)

    def respond(connection: socket.socket) -> None:
        requests.append(read_chunked(connection))
        connection.sendall(PROGRESS)
        assert received.wait(60)
        connection.recv(1)  # until the client closes the connection

    options = {"bends": True, "model": None}
    with (
        scripted_service(respond) as url,
        pytest.raises(remote.ServiceError, match="connection was lost: timed out"),
    ):
        remote.transcribe(Growing(b"song"), f"{url}/base/", options, print)
    (request,) = requests
    assert request.startswith(b"POST /base/transcribe?bends=true&answer=ndjson&updates=true HTTP")
    assert b"grown" in request


def test_fields_of_a_newer_service_are_ignored() -> None:
    note = {"note_id": 0, "pitch": 60, "frame": 2, "time_s": 0.25, "kind": "new", "new": 1}
    onset = {"velocity": 64, "confidence": 0.5, "instrument": "piano"}
    totals = {"notes": 1, "frames": 9, "audio_s": 1.0, "received_samples": 9, "dropped_samples": 0}
    messages = [
        {"type": "started", "title": "song", "new": 1},
        {"type": "pedal", "down": True, "frame": 1, "time_s": 0.125, "kind": "new", "new": 1},
        {"type": "note_on", **note, **onset},
        {"type": "new", "new": 1},
        {"type": "note_update", **note, "instrument": "organ", "instrument_probability": 0.75},
        {"type": "note_bend", **note, "cents": [1.5]},
        {"type": "note_off", **note, "frame": 4, "time_s": 0.5},
        {"type": "pedal", "down": False, "frame": 4, "time_s": 0.5, "new": 1},
        {"type": "done", "totals": totals | {"new": 1}, "new": 1},
    ]
    body = b"".join(json.dumps(message).encode() + b"\n" for message in messages)

    def respond(connection: socket.socket) -> None:
        read_chunked(connection)
        connection.sendall(HEAD % (b"200 OK", b"") + body)

    with scripted_service(respond) as url:
        result = remote.transcribe(io.BytesIO(b"song"), url, {}, print).performance
    (sounded,) = result.notes
    assert (sounded.pitch, sounded.onset_s, sounded.offset_s) == (60, 0.25, 0.5)
    assert (sounded.instrument, sounded.bends) == ("organ", (1.5,))
    assert result.pedal == [PedalPress(0.125, 0.5)]


def test_connection_that_breaks_is_reported() -> None:
    def respond(connection: socket.socket) -> None:
        read_chunked(connection)
        connection.sendall(PROGRESS)

    with (
        scripted_service(respond) as url,
        pytest.raises(remote.ServiceError, match="connection was lost: "),
    ):
        remote.transcribe(io.BytesIO(b"song"), url, {}, print)


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]\n", b"{}\n", b'{"type": "note_off"}\n', b'{"type": "done"}\n']
)
def test_server_of_another_kind_is_reported(body: bytes) -> None:
    def respond(connection: socket.socket) -> None:
        read_chunked(connection)
        connection.sendall(HEAD % (b"200 OK", b"") + body)

    with (
        scripted_service(respond) as url,
        pytest.raises(remote.ServiceError, match=f"^{url} does not answer like an rse-transcribe"),
    ):
        remote.transcribe(io.BytesIO(b"song"), url, {}, print)


@pytest.mark.parametrize(
    "url", ["http://localhost:80x", "http://my host:8000", "ws://a", "http://:80"]
)
def test_invalid_address_is_reported(song: Path, url: str) -> None:
    status, _, error = run(command.main, song, "--server", url)
    assert status == 1
    assert f"invalid service address: {url!r}" in error


def test_a_device_with_a_service_is_rejected(url: str, song: Path) -> None:
    status, _, error = run(command.main, song, "--server", url, "--device", "cpu")
    assert status == 2
    assert "--device has no effect with --server" in error


def test_invalid_key_is_not_printed(url: str, song: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSE_KEY", "rse_geheim\u00df")
    status, _, error = run(command.main, song, "--server", url)
    assert status == 1
    assert "RSE_KEY is not an API key" in error
    assert "geheim" not in error


def test_unreadable_recording_is_not_a_lost_connection(url: str, song: Path) -> None:
    with (
        open("/proc/self/mem", "rb") as unreadable,  # its first page is not mapped
        pytest.raises(remote.ServiceError, match="cannot read the recording: .*Input/output"),
    ):
        remote.transcribe(unreadable, url, {}, print)
