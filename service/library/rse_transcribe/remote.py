"""A recording through ``POST /transcribe`` of a service (PROTOCOL.md)."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import chain
from typing import Any, BinaryIO
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import numpy as np

from model.config import PITCHES
from rse_transcribe.recordings import IncompleteError, open_file, progress_bar
from rse_transcribe.transcription import Transcription
from service.notes.events import BendEvent, NoteEvent, PedalEvent
from service.notes.note_collector import NoteCollector
from service.protocol.server_messages import Totals
from service.stream.recording import TranscriptionResult

PATH = "/transcribe"
# Live streams are served first: a recording may wait a long time for its first answer.
SILENCE_TIMEOUT_S = 600.0
MAX_ATTEMPTS = 20
_CHUNK_BYTES = 1 << 16


class ServiceError(RuntimeError):
    """No answer from the service, or a refusal; ``retry_after_s`` if it is only busy."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def transcribe(
    recording: str | os.PathLike[str] | BinaryIO,
    url: str,
    options: Mapping[str, Any],
    on_wait: Callable[[str], None],
) -> Transcription:
    """Send a recording to a service and return its notes, without frame probabilities.

    If the service is busy, wait for the time in `Retry-After` and send the recording again.

    Args:
        url: any address of the service; ``$RSE_KEY`` is its API key.
        options: parameters of the request; one that is None or false is left to the service.
        on_wait: called with what there is to wait for.

    Raises:
        ServiceError: nothing was transcribed.
        IncompleteError: the recording is damaged.
        ValueError: impossible address.
    """
    refusals = 0
    with open_file(recording) as file, progress_bar(file) as bar:
        while True:
            try:
                return _collect(_request(file, url, options), lambda part: bar.update(part - bar.n))
            except ServiceError as error:
                refusals += 1
                if error.retry_after_s is None or refusals == MAX_ATTEMPTS:
                    raise
                if refusals == 1:
                    on_wait(f"{error}; waiting")
                time.sleep(error.retry_after_s)
                file.seek(0)


def _collect(
    messages: Iterator[dict[str, Any]], on_progress: Callable[[float], None]
) -> Transcription:
    score, started, fault = NoteCollector(), dict[str, Any](), None
    for message in messages:
        match message.pop("type"):
            case "started":
                started = message
            case "note_on":
                score.add([NoteEvent("note_on", **message)])
            case "note_off" | "note_update" as kind:  # these have fewer fields than note_on
                (on,) = (n for n in score.sounding if n.note_id == message["note_id"])
                score.add([replace(on, kind=kind, **message)])
            case "note_bend":
                score.add([BendEvent(**{**message, "cents": tuple(message["cents"])})])
            case "pedal":
                score.add([PedalEvent(**message)])
            case "progress":
                on_progress(message["fraction"] or 0.0)
            case "error":
                fault = f"{message['message']} ({message['code']})"
            case "done":
                score.settle_instruments()
                totals = Totals(**message["totals"])
                performance = TranscriptionResult(
                    notes=score.notes, pedal=score.pedal, totals=totals
                )
                nothing = np.zeros((0, PITCHES), np.float32)
                transcription = Transcription(performance, nothing, 0.0, started)
                if fault is not None:
                    raise IncompleteError(fault, transcription)
                return transcription
    raise ServiceError(fault or "the service closed the connection")


def _request(file: BinaryIO, url: str, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of the answer."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    kind = {"http": HTTPConnection, "https": HTTPSConnection}.get(parts.scheme)
    try:
        if kind is None or not parts.hostname:
            raise HTTPException
        connection = kind(parts.netloc, timeout=SILENCE_TIMEOUT_S)
    except HTTPException:  # of a port that is no number, too
        raise ValueError(f"not a service address: {url!r}") from None
    chosen = {name: "true" if value is True else value for name, value in options.items() if value}
    query = urlencode({**chosen, "answer": "ndjson", "updates": "true"}, doseq=True)
    try:
        connection.connect()
    except OSError as error:
        refused = isinstance(error, ConnectionRefusedError)
        hint = "; `rse-transcribe serve` starts a service" if refused else ""
        raise ServiceError(f"cannot connect to {parts.netloc}: {error}{hint}") from error
    try:
        yield from _response_lines(connection, f"{parts.path.rstrip('/')}{PATH}?{query}", file)
    except (OSError, HTTPException, ValueError) as error:
        raise ServiceError(f"the connection was lost: {error}") from error
    finally:
        connection.close()


def _response_lines(
    connection: HTTPConnection, target: str, file: BinaryIO
) -> Iterator[dict[str, Any]]:
    boundary = uuid4().hex
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    if key := os.environ.get("RSE_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    disposition = 'Content-Disposition: form-data; name="file"; filename="recording"'
    head = f"--{boundary}\r\n{disposition}\r\n\r\n".encode()
    pieces = iter(partial(file.read, _CHUNK_BYTES), b"")
    try:  # in chunks
        form = chain([head], pieces, [f"\r\n--{boundary}--\r\n".encode()])
        connection.request("POST", target, form, headers)
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before its end: the answer says why
    answer = connection.getresponse()
    if answer.status == 200:
        yield from map(json.loads, answer)
        return
    try:  # a problem document (RFC 9457)
        problem = json.loads(answer.read())
        words = f"{problem['detail']} ({problem['code']})"
    except (ValueError, LookupError, TypeError):
        words = f"the service answered {answer.status} {answer.reason}"
    later = answer.getheader("Retry-After", "")
    raise ServiceError(words, float(later) if later.isdigit() else None)
