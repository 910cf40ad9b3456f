"""Transcribes a recording with a service through ``POST /transcribe`` (PROTOCOL.md)."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from ssl import create_default_context
from types import SimpleNamespace
from typing import Any, BinaryIO

import httpx
import numpy as np

from model.config import PITCHES
from rse_transcribe.recordings import IncompleteError, open_file, progress_bar
from rse_transcribe.transcription import Transcription
from service.notes.events import BendEvent, Event, NoteEvent, PedalEvent
from service.notes.note_collector import NoteCollector
from service.protocol.command_line import START_HINT, api_key
from service.protocol.errors import ErrorCode
from service.protocol.server_messages import Totals
from service.stream.recording import TranscriptionResult

PATH = "/transcribe"
# Maximum time without data. Live sessions have priority, so a recording may wait for a long time.
SILENCE_TIMEOUT_S = 600.0
BUSY = (429, 502, 503, 504)  # statuses of a service that is full or restarting, or of its proxy
MAX_ATTEMPTS = 20  # maximum number of requests for a recording while the service is busy
RESTART_S = 5.0  # wait for a service that has shut down during the transcription


class ServiceError(RuntimeError):
    """The service has returned no result. ``retry_after_s`` is set if the service is busy or shuts
    down."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnreachableError(ServiceError):
    """The service accepts no connection."""


def transcribe(
    recording: str | os.PathLike[str] | BinaryIO,
    url: str,
    options: Mapping[str, Any],
    on_wait: Callable[[str], None],
) -> Transcription:
    """Send a recording to a service, with the API key in ``$RSE_KEY``. Return the transcription,
    without frame probabilities. If the service is busy or shuts down, try again later.

    Args:
        options: parameters of the request. Those that are None, False or empty are not sent.
        on_wait: called once with the reason of the first wait.

    Raises:
        ServiceError: the service returned no result.
        IncompleteError: the service transcribed only a part of the recording, because the rest is
            corrupt or exceeds a limit, or the model failed.
        OSError: the file cannot be opened.
        ValueError: the address of the service or the API key is invalid.
    """
    address, key, rejections = _address(url), api_key(), 0
    # A proxy that compresses may delay lines. An idle connection may break during a pause.
    headers = {"Accept-Encoding": "identity", "Connection": "close"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    client = httpx.Client(
        headers=headers,
        timeout=SILENCE_TIMEOUT_S,
        verify=create_default_context(),  # trusts the certificates of the system
        trust_env=False,  # proxies of the environment may not reach a service on this network
    )
    with open_file(recording) as file, progress_bar(file) as bar, client:
        while True:
            file.seek(0)
            messages = _request(client, address, file, options)
            try:
                return _collect(messages, lambda part: bar.update(part - bar.n))
            except ServiceError as error:
                delay_s = error.retry_after_s
                if rejections and isinstance(error, UnreachableError):
                    delay_s = RESTART_S  # the service that was busy restarts
                rejections += 1
                if delay_s is None or rejections == MAX_ATTEMPTS:
                    raise
                if rejections == 1:
                    on_wait(f"{error}; waiting")
                time.sleep(delay_s)
            except (json.JSONDecodeError, AttributeError, LookupError, TypeError) as error:
                message = f"{url} does not answer like an rse-transcribe service"
                raise ServiceError(message) from error


def _collect(
    messages: Iterator[dict[str, Any]], on_progress: Callable[[float], None]
) -> Transcription:
    """Return the transcription from a response. Raises ServiceError and IncompleteError."""
    collector, started = NoteCollector(), dict[str, Any]()
    error, retry_after_s = None, None
    ons: dict[int, NoteEvent] = {}  # by note ID
    for message in messages:
        match message.pop("type"):
            case "started":
                started = message
            case "note_on":
                ons[message["note_id"]] = on = NoteEvent("note_on", **_values(NoteEvent, message))
                collector.add([on])
            case "note_off" | "note_update" as kind:  # these have fewer fields than note_on
                values = {"instrument_probability": None, **_values(NoteEvent, message)}
                collector.add([replace(ons[message["note_id"]], kind=kind, **values)])
            case "note_bend":
                message["cents"] = tuple(message["cents"])
                collector.add([BendEvent(**_values(BendEvent, message))])
            case "pedal":
                collector.add([PedalEvent(**_values(PedalEvent, message))])
            case "progress":
                on_progress(message["fraction"] or 0.0)
            case "error":
                error = f"{message['message']} ({message['code']})"
                retry_after_s = RESTART_S if message["code"] == ErrorCode.DRAINING else None
            case "done":
                totals, title = Totals(**message["totals"]), started.pop("title", "")
                result = TranscriptionResult(
                    notes=collector.notes, pedal=collector.pedal, totals=totals, title=title
                )
                no_frames = np.zeros((0, PITCHES), np.float32)
                transcription = Transcription(result, no_frames, 0.0, started)
                if error is not None:
                    raise IncompleteError(error, transcription)
                return transcription
    raise ServiceError(error or "the service closed the connection", retry_after_s)


def _values(event: type[Event], message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a message for the fields of an event, without ``kind``. A newer service
    may send more fields."""
    names = {field.name for field in fields(event)} - {"kind"}
    return {name: value for name, value in message.items() if name in names}


def _request(
    client: httpx.Client, address: httpx.URL, file: BinaryIO, options: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Send the request and yield the messages of the response."""
    fields = {name: value for name, value in options.items() if value}
    fields |= {"answer": "ndjson", "updates": True}
    # Without a length, the body is sent in chunks: the file may grow during the upload.
    form: Any = {"file": ("recording", SimpleNamespace(read=file.read))}
    try:
        with client.stream("POST", address, params=fields, files=form) as response:
            if response.status_code == 200:
                yield from map(json.loads, response.iter_lines())
            else:
                response.read()
                raise _service_error(response)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        hint = START_HINT if "refused" in str(error) else ""
        host = address.netloc.decode()
        raise UnreachableError(f"cannot connect to {host}: {error}{hint}") from error
    except OSError as error:  # reading the file failed; httpx raises its own exception types
        raise ServiceError(f"cannot read the recording: {error}") from error
    except json.JSONDecodeError:
        raise  # the connection is intact
    except (httpx.RequestError, ValueError) as error:
        raise ServiceError(f"the connection was lost: {error}") from error


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url if "://" in url else f"http://{url}")
        if " " in url or address.scheme not in ("http", "https") or not address.host:
            raise httpx.InvalidURL(url)
    except httpx.InvalidURL:
        raise ValueError(f"invalid service address: {url!r}") from None
    return address.copy_with(path=address.path.rstrip("/") + PATH)


def _service_error(response: httpx.Response) -> ServiceError:
    try:  # a problem document (RFC 9457)
        problem = response.json()
        message = f"{problem['detail']} ({problem['code']})"
    except (ValueError, LookupError, TypeError):
        message = f"the service responded with {response.status_code} {response.reason_phrase}"
    if response.status_code in (404, 405):
        message = f"there is no service at {response.url.copy_with(query=None)}: {message}"
    delay_s = response.headers.get("Retry-After", "")
    is_busy = response.status_code in BUSY and delay_s.isdecimal()
    return ServiceError(message, float(delay_s) if is_busy else None)
