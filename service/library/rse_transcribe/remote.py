"""Transcribes a recording with a service through ``POST /transcribe`` (PROTOCOL.md)."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
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
from service.protocol.command_line import api_key
from service.protocol.server_messages import Totals
from service.stream.recording import TranscriptionResult

PATH = "/transcribe"
# Maximum time without data. Live sessions have priority, so a recording may wait for a long time.
SILENCE_TIMEOUT_S = 600.0
MAX_ATTEMPTS = 20  # maximum number of requests for a recording while the service is busy
_CHUNK_BYTES = 1 << 16


class ServiceError(RuntimeError):
    """The service has returned no result. ``retry_after_s`` is set if the service is busy."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def transcribe(
    recording: str | os.PathLike[str] | BinaryIO,
    url: str,
    options: Mapping[str, Any],
    on_wait: Callable[[str], None],
) -> Transcription:
    """Send a recording to a service, with the API key in ``$RSE_KEY``. Return the transcription,
    without frame probabilities. If the service is busy, try again after `Retry-After`.

    Args:
        options: parameters of the request. Those that are None, False or empty are not sent.
        on_wait: called once with the reason if the service is busy.

    Raises:
        ServiceError: the service returned no result.
        IncompleteError: the service transcribed only a part of the recording, because the rest is
            corrupt or exceeds a limit, or the model failed.
        OSError: the file cannot be opened.
        ValueError: the address of the service or the API key is invalid.
    """
    rejections = 0
    with open_file(recording) as file, progress_bar(file) as bar:
        while True:
            file.seek(0)
            try:
                return _collect(_request(file, url, options), lambda part: bar.update(part - bar.n))
            except ServiceError as error:
                rejections += 1
                if error.retry_after_s is None or rejections == MAX_ATTEMPTS:
                    raise
                if rejections == 1:
                    on_wait(f"{error}; waiting")
                time.sleep(error.retry_after_s)


def _collect(
    messages: Iterator[dict[str, Any]], on_progress: Callable[[float], None]
) -> Transcription:
    """Return the transcription from the messages of a response. Raises ServiceError and
    IncompleteError."""
    collector, started, error = NoteCollector(), dict[str, Any](), None
    for message in messages:
        match message.pop("type"):
            case "started":
                started = message
            case "note_on":
                collector.add([NoteEvent("note_on", **message)])
            case "note_off" | "note_update" as kind:  # these have fewer fields than note_on
                (on,) = (n for n in collector.sounding if n.note_id == message["note_id"])
                collector.add([replace(on, kind=kind, **message)])
            case "note_bend":
                collector.add([BendEvent(**{**message, "cents": tuple(message["cents"])})])
            case "pedal":
                collector.add([PedalEvent(**message)])
            case "progress":
                on_progress(message["fraction"] or 0.0)
            case "error":
                error = f"{message['message']} ({message['code']})"
            case "done":
                collector.settle_instruments()
                totals, title = Totals(**message["totals"]), started.pop("title", "")
                result = TranscriptionResult(
                    notes=collector.notes, pedal=collector.pedal, totals=totals, title=title
                )
                no_frames = np.zeros((0, PITCHES), np.float32)
                transcription = Transcription(result, no_frames, 0.0, started)
                if error is not None:
                    raise IncompleteError(error, transcription)
                return transcription
    raise ServiceError(error or "the service closed the connection")


def _request(file: BinaryIO, url: str, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Send the request and yield the messages of the response."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    make_connection = {"http": HTTPConnection, "https": HTTPSConnection}.get(parts.scheme)
    try:
        if make_connection is None or not parts.hostname:
            raise HTTPException
        connection = make_connection(parts.netloc, timeout=SILENCE_TIMEOUT_S)
    except HTTPException:  # raised above, or because the port is not a number
        raise ValueError(f"invalid service address: {url!r}") from None
    key = api_key()
    fields = {name: "true" if value is True else value for name, value in options.items() if value}
    query = urlencode({**fields, "answer": "ndjson", "updates": "true"}, doseq=True)
    try:
        connection.connect()
    except OSError as error:
        refused = isinstance(error, ConnectionRefusedError)
        hint = "; `rse-transcribe serve` starts a service" if refused else ""
        raise ServiceError(f"cannot connect to {parts.netloc}: {error}{hint}") from error
    try:
        target = f"{parts.path.rstrip('/')}{PATH}?{query}"
        yield from _response_lines(connection, target, file, key)
    except (OSError, HTTPException, ValueError) as error:
        raise ServiceError(f"the connection was lost: {error}") from error
    finally:
        connection.close()


def _response_lines(
    connection: HTTPConnection, target: str, file: BinaryIO, key: str
) -> Iterator[dict[str, Any]]:
    boundary = uuid4().hex
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    disposition = 'Content-Disposition: form-data; name="file"; filename="recording"'
    head = f"--{boundary}\r\n{disposition}\r\n\r\n".encode()
    try:
        form = chain([head], _chunks(file), [f"\r\n--{boundary}--\r\n".encode()])
        connection.request("POST", target, form, headers)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the service has rejected the recording, and its response states the reason
    response = connection.getresponse()
    if response.status == 200:
        yield from map(json.loads, response)
        return
    try:  # a problem document (RFC 9457)
        problem = json.loads(response.read())
        message = f"{problem['detail']} ({problem['code']})"
    except (ValueError, LookupError, TypeError):
        message = f"the service responded with {response.status} {response.reason}"
    delay_s = response.getheader("Retry-After", "")
    raise ServiceError(message, float(delay_s) if delay_s.isdigit() else None)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file. Raises ServiceError if the file cannot be read. An OSError would
    be reported as a lost connection."""
    try:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
    except OSError as error:
        raise ServiceError(f"cannot read the recording: {error}") from error
