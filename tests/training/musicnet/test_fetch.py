"""Fetching the archive, from a server of our own."""

from __future__ import annotations

import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.training.musicnet.conftest import write_archive
from training.musicnet import fetch as fetching
from training.musicnet.fetch import FILE, main
from training.musicnet.layout import find


class Record:
    """A record on the web that can misbehave."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.checksum = f"md5:{hashlib.md5(content).hexdigest()}"
        self.files = [FILE]
        self.break_after: int | None = None  # bytes of an answer, the rest of which is lost
        self.knows_ranges = True
        self.status = 200
        self.asked: list[str] = []  # the ranges of each request of the file
        self.url = ""

    def describe(self) -> bytes:
        files = [
            {
                "key": key,
                "size": len(self.content),
                "checksum": self.checksum,
                "links": {"self": f"{self.url}/file"},
            }
            for key in self.files
        ]
        return json.dumps({"files": files}).encode()


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    archive = write_archive(tmp_path / "made" / "musicnet")
    with tarfile.open(tmp_path / FILE, "w:gz", compresslevel=1) as packed:
        packed.add(archive, "musicnet")
    served = Record((tmp_path / FILE).read_bytes())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/record":
                body = served.describe()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return
            asked = self.headers.get("Range", "")
            served.asked.append(asked)
            begin = int(asked[len("bytes=") : -1]) if asked and served.knows_ranges else 0
            body = served.content[begin:]
            self.send_response(served.status if not begin else 206)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if served.break_after is None else body[: served.break_after])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _no_pause_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PAUSE_S", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def run(record: Record, folder: Path, *options: str) -> int:
    return main([str(folder), "--record", f"{record.url}/record", *options])


def test_what_is_fetched_can_be_trained_on(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deep" / "data"
    assert run(record, folder) == 0
    assert "7 recordings" in capsys.readouterr().out
    assert find(folder).keys() == find(tmp_path / "made").keys()
    for number, source in find(tmp_path / "made").items():
        assert find(folder)[number].audio.read_bytes() == source.audio.read_bytes()
    assert {path.name for path in folder.iterdir()} == {
        *("train_data", "train_labels", "test_data", "test_labels")
    }
    assert run(record, folder) == 0  # nothing to do
    assert record.asked == [""]


def test_a_broken_connection_goes_on_where_it_broke(record: Record, tmp_path: Path) -> None:
    record.break_after = len(record.content) // 3
    assert run(record, tmp_path / "data", "--keep") == 0
    third = record.break_after
    assert record.asked[:3] == ["", f"bytes={third}-", f"bytes={2 * third}-"]
    assert (tmp_path / "data" / FILE).read_bytes() == record.content


def test_a_server_without_ranges_starts_over(record: Record, tmp_path: Path) -> None:
    record.knows_ranges = False
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / f"{FILE}.partial").write_bytes(b"x" * 1000)
    assert run(record, tmp_path / "data") == 0
    assert record.asked == ["bytes=1000-"]


def test_a_connection_that_brings_nothing_is_given_up_and_keeps_what_came(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    partial = tmp_path / "data" / f"{FILE}.partial"
    partial.write_bytes(record.content[:1000])
    record.break_after = 0
    assert run(record, tmp_path / "data") == 1
    assert f"broke off at 1000 of {len(record.content)} bytes" in capsys.readouterr().err
    assert len(record.asked) == fetching.ATTEMPTS
    assert partial.read_bytes() == record.content[:1000]


def test_damage_on_the_way_is_noticed(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / f"{FILE}.partial").write_bytes(b"x" * 1000)
    assert run(record, tmp_path / "data") == 1
    assert "was damaged on its way" in capsys.readouterr().err
    assert not list((tmp_path / "data").iterdir())
    assert run(record, tmp_path / "data") == 0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("no checksum", "unknown checksum"),
        ("not found", "404"),
        ("another archive", "is not MusicNet"),
        ("no archive", "not a gzip file|could not be opened"),
        ("no space", "GB free"),
        ("nobody there", "refused"),
    ],
)
def test_what_goes_wrong_is_a_message_and_a_status(
    record: Record,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    message: str,
) -> None:
    match fault:
        case "no checksum":
            record.checksum = "nothing"
        case "not found":
            record.status = 404
        case "another archive":
            with tarfile.open(tmp_path / "other.tar.gz", "w:gz") as packed:
                packed.add(tmp_path / "made" / "musicnet" / "test_data", "elsewhere")
            record.content = (tmp_path / "other.tar.gz").read_bytes()
        case "no archive":
            record.content = b"a page instead of an archive"
        case "no space":
            monkeypatch.setattr("shutil.disk_usage", lambda _: type("Full", (), {"free": 10}))
        case "nobody there":
            record.url = "http://127.0.0.1:1"
    if record.checksum != "nothing":
        record.checksum = f"md5:{hashlib.md5(record.content).hexdigest()}"
    assert run(record, tmp_path / "data") == 1
    error = capsys.readouterr().err
    assert any(part in error for part in message.split("|"))
    assert not (tmp_path / "data" / "train_data").exists()


def test_other_schemes_than_the_webs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "data"), "--record", "file:///etc/hostname"]) == 1
    assert "not an address on the web" in capsys.readouterr().err
