"""A small server that takes recordings, for tests without the service."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

STARTED = {"model": "fake", "mode": "block", "lookahead_ms": 197.0, "block_frames": 16}
_TOTALS = {"notes": 3, "audio_s": 3.0, "frames": 258, "received_samples": 1, "dropped_samples": 0}


@dataclass
class Uploads:
    """A service that hears three notes: at k + 0.25 s pitch 60 + k, for half a second.

    Attributes:
        status: of the answer.
        refusals: how many requests are refused first, to be made again at once.
        fault: what is said of the recording after the notes.
        breaks_off: whether the answer ends before it is done.
        asked: path and query of each request.
    """

    status: int = 200
    refusals: int = 0
    fault: str = ""
    breaks_off: bool = False
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def running(self) -> Iterator[Self]:
        uploads = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                uploads.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            self.url = f"http://127.0.0.1:{server.server_port}"
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        target = urlsplit(request.path)
        self.asked.append((target.path, parse_qs(target.query)))
        self.keys.append(request.headers.get("Authorization", ""))
        body = b""
        while size := int(request.rfile.readline() or b"0", 16):
            body += request.rfile.read(size)
            request.rfile.readline()
        request.rfile.readline()
        boundary = request.headers["Content-Type"].partition("boundary=")[2].encode()
        head, _, rest = body.partition(b"\r\n\r\n")
        assert b'name="file"' in head
        self.bodies.append(rest.removesuffix(b"\r\n--" + boundary + b"--\r\n"))
        lines: list[dict[str, Any]] = list(self.lines())
        busy = len(self.bodies) <= self.refusals
        request.send_response(429 if busy else self.status)
        if busy:
            request.send_header("Retry-After", "0")
        if busy or self.status != 200:
            lines = [{"detail": "all places are taken", "code": "too_many_uploads"}]
        request.end_headers()
        request.wfile.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    def lines(self) -> Iterator[dict[str, Any]]:
        yield {"type": "started", **STARTED}
        yield {"type": "pedal", "down": True, "frame": 2, "time_s": 0.5}
        yield {"type": "pedal", "down": False, "frame": 6, "time_s": 1.5}
        for second in range(3):
            note = {"note_id": second, "pitch": 60 + second}
            on = {**note, "velocity": 80, "confidence": 0.9}
            yield {"type": "note_on", **on, "frame": 4 * second + 1, "time_s": second + 0.25}
            yield {"type": "progress", "frames": 9, "time_s": second + 0.5, "fraction": 0.5}
            yield {"type": "note_off", **note, "frame": 4 * second + 3, "time_s": second + 0.75}
            yield {"type": "of a newer protocol"}
        if self.fault:
            yield {"type": "error", "code": "bad_audio", "message": self.fault}
        if not self.breaks_off:
            yield {"type": "done", "reason": "stop", "totals": _TOTALS, "midi_base64": ""}
