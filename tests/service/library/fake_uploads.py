"""A small server that takes recordings, for tests without the service."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

STARTED = {"model": "fake", "mode": "block", "lookahead_ms": 197.0, "block_frames": 16}


@dataclass
class Uploads:
    """A service that hears three notes: at k + 0.25 s pitch 60 + k, for half a second.

    Attributes:
        status: of the answer.
        refusals: how many requests are refused first, to be made again at once.
        fail_at_s, drop_at_s: where the recording turns bad, where the answer breaks off.
    """

    status: int = 200
    refusals: int = 0
    fail_at_s: int | None = None
    drop_at_s: int | None = None
    queries: list[dict[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
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
        query = parse_qs(urlsplit(request.path).query)
        self.queries.append({name: values[0] for name, values in query.items()})
        self.paths.append(urlsplit(request.path).path)
        self.headers.append(dict(request.headers))
        body = b""
        while size := int(request.rfile.readline() or b"0", 16):
            body += request.rfile.read(size)
            request.rfile.readline()
        request.rfile.readline()
        boundary = request.headers["Content-Type"].partition("boundary=")[2].encode()
        head, _, rest = body.partition(b"\r\n\r\n")
        assert b'name="file"' in head
        self.bodies.append(rest.removesuffix(b"\r\n--" + boundary + b"--\r\n"))
        refused = len(self.bodies) <= self.refusals
        request.send_response(429 if refused else self.status)
        if refused:
            request.send_header("Retry-After", "0")
        request.end_headers()
        if refused or self.status != 200:
            problem = {"detail": "all places are taken", "code": "too_many_uploads"}
            request.wfile.write(json.dumps(problem).encode())
            return
        for line in self.lines():
            request.wfile.write(json.dumps(line).encode() + b"\n")

    def lines(self) -> Iterator[dict[str, Any]]:
        yield {"type": "started", **STARTED}
        yield {"type": "pedal", "down": True, "frame": 2, "time_s": 0.5}
        yield {"type": "pedal", "down": False, "frame": 6, "time_s": 1.5}
        for second in range(3):
            if second == self.drop_at_s:
                return
            note = {"note_id": second, "pitch": 60 + second}
            on = {"type": "note_on", **note, "velocity": 80, "confidence": 0.9}
            frame, time_s = 4 * second + 1, second + 0.25
            yield {**on, "frame": frame, "time_s": time_s}
            frame, time_s = frame + 1, time_s + 0.25
            if second == self.fail_at_s:
                yield {"type": "note_off", **note, "frame": frame, "time_s": time_s}
                yield {"type": "error", "code": "bad_audio", "message": "NaN in audio"}
                break
            yield {"type": "progress", "frames": frame, "time_s": time_s, "fraction": time_s / 3}
            frame, time_s = frame + 1, time_s + 0.25
            if second + 1 != self.drop_at_s:
                yield {"type": "note_off", **note, "frame": frame, "time_s": time_s}
            yield {"type": "of a newer protocol"}
        totals = {"notes": 3, "audio_s": 3.0, "frames": 258}
        totals |= {"received_samples": 48_000, "dropped_samples": 0}
        midi = base64.b64encode(b"MThd").decode()
        yield {"type": "done", "reason": "stop", "totals": totals, "midi_base64": midi}
