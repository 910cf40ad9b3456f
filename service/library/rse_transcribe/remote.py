"""A recording through ``POST /transcribe`` of a service (PROTOCOL.md)."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, BinaryIO
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import numpy as np

from model.config import PITCHES
from rse_transcribe.recordings import IncompleteError
from rse_transcribe.transcription import Transcription
from service.notes.events import BendEvent, NoteEvent, PedalEvent
from service.notes.score import Score
from service.protocol.server_messages import Totals
from service.stream.recording import Performance

PATH = "/transcribe"
# Live streams are served first: a recording may wait a long time for its first answer.
SILENCE_TIMEOUT_S = 600.0
BUSY_TRIES = 20
_PIECE_BYTES = 1 << 16


class ServiceError(RuntimeError):
    """The service refused the recording, or the connection to it broke before the first note."""


class NoServiceError(ServiceError):
    """The service is unreachable, or has no room; ``retry_after_s`` if it may have soon."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def transcribe(
    file: BinaryIO,
    url: str,
    options: Mapping[str, Any],
    progress: Callable[[float], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Transcription:
    """Send a recording and gather its notes. Its frame probabilities stay with the service.

    A service that is busy is asked again, as late as it says, if the file can be read again.

    Args:
        url: any address of the service; ``$RSE_KEY`` is its API key.
        options: parameters of the request; None leaves the choice to the service.
        progress: called with the part that has been heard, 0 to 1.
        say: called with what there is to wait for.

    Raises:
        NoServiceError, ServiceError: nothing was transcribed.
        IncompleteError: the recording is damaged, or the answer broke off.
        ValueError: impossible address.
    """
    for tries in range(BUSY_TRIES - 1):
        try:
            return _gather(_messages(file, url, options), progress)
        except NoServiceError as error:
            if error.retry_after_s is None or not file.seekable():
                raise
            if not tries:
                say(f"{error}; waiting")
            time.sleep(error.retry_after_s)
            file.seek(0)
    return _gather(_messages(file, url, options), progress)


def _gather(messages: Iterator[dict[str, Any]], progress: Callable[[float], None]) -> Transcription:
    score, started, totals, fault = Score(), dict[str, Any](), None, None
    frame, time_s = 0, 0.0
    try:
        for message in messages:
            match message.pop("type"):
                case "started":
                    started = message
                case "note_on":
                    score.add([NoteEvent("note_on", **message)])
                case "note_off" | "note_update" as kind:  # which have less than the note_on
                    (on,) = (n for n in score.sounding if n.note_id == message["note_id"])
                    score.add([replace(on, kind=kind, **message)])
                case "note_bend":
                    score.add([BendEvent(**{**message, "cents": tuple(message["cents"])})])
                case "pedal":
                    score.add([PedalEvent(**message)])
                case "progress":
                    frame, time_s = message["frames"], message["time_s"]
                    progress(message["fraction"] or 0.0)
                case "error":
                    fault = f"{message['message']} ({message['code']})"
                case "done":
                    totals = Totals(**message["totals"])
    except ServiceError as error:
        if not started:
            raise
        fault = fault or str(error)
    if totals is None:
        fault = fault or "the service closed the connection"
        for note in score.sounding:
            frame, time_s = max(frame, note.frame), max(time_s, note.time_s)
            score.add([replace(note, kind="note_off", frame=frame, time_s=time_s)])
        totals = Totals(
            notes=score.begun, frames=frame, audio_s=time_s, received_samples=0, dropped_samples=0
        )
    performance = Performance(
        notes=score.notes, pedal=score.pedal, totals=totals, midi=score.midi()
    )
    nothing = np.zeros((0, PITCHES), np.float32)
    transcription = Transcription(performance, nothing, 0.0, started)
    if fault is not None:
        raise IncompleteError(fault, transcription)
    return transcription


def _messages(file: BinaryIO, url: str, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of the answer."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not a service address: {url!r}")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    try:
        connection = kind(parts.netloc, timeout=SILENCE_TIMEOUT_S)
    except HTTPException:  # such as a port that is no number
        raise ValueError(f"not a service address: {url!r}") from None
    chosen = {name: value for name, value in options.items() if value is not None}
    chosen |= {"answer": "ndjson", "updates": "true"}
    target = f"{parts.path.rstrip('/')}{PATH}?{urlencode(chosen)}"
    try:
        _connect(connection)
        answer = _ask(connection, target, file)
        if answer.status != 200:
            raise _refused(answer)
        for line in answer:
            yield json.loads(line)
    except (OSError, HTTPException, ValueError) as error:
        raise ServiceError(f"the connection was lost: {error}") from error
    finally:
        connection.close()


def _connect(connection: HTTPConnection) -> None:
    try:
        connection.connect()
    except OSError as error:
        where = f"{connection.host}:{connection.port}"
        refused = isinstance(error, ConnectionRefusedError)
        hint = "; `rse-transcribe serve` starts a service" if refused else ""
        raise NoServiceError(f"cannot connect to {where}: {error}{hint}") from error


def _ask(connection: HTTPConnection, target: str, file: BinaryIO) -> HTTPResponse:
    boundary = uuid4().hex
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    if key := os.environ.get("RSE_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request("POST", target, _form(file, boundary), headers)  # sent in chunks
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before its end: the answer says why
    return connection.getresponse()


def _form(file: BinaryIO, boundary: str) -> Iterable[bytes]:
    # ``read1`` returns what a pipe has; ``read`` would wait for a full piece.
    read: Any = getattr(file, "read1", file.read)
    disposition = 'Content-Disposition: form-data; name="file"; filename="recording"'
    yield f"--{boundary}\r\n{disposition}\r\n\r\n".encode()
    while piece := read(_PIECE_BYTES):
        yield piece
    yield f"\r\n--{boundary}--\r\n".encode()


def _refused(answer: HTTPResponse) -> ServiceError:
    """The error for a refused upload, from its problem document (RFC 9457)."""
    try:
        problem = json.loads(answer.read())
        words = f"{problem['detail']} ({problem['code']})"
    except (ValueError, LookupError, TypeError):
        words = f"the service answered {answer.status} {answer.reason}"
    if answer.status == 429 or answer.status > 500:  # full, going down, or behind a proxy
        later = answer.getheader("Retry-After", "")
        return NoServiceError(words, float(later) if later.isdigit() else None)
    return ServiceError(words)
