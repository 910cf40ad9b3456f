"""`POST /transcribe`: a recording in, notes out (PROTOCOL.md).

The body is counted as it arrives and spooled to disk, decoded and transcribed block by block; of
the whole recording only its notes are held in memory.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, replace
from pathlib import PurePath
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from service.client_messages import Choices
from service.clients import client_of
from service.decode import DecodeError
from service.engine import EngineBusyError
from service.events import NoteEvent
from service.limits import SessionLimits, TooManyNotesError
from service.negotiation import choose
from service.options import FILE_OPTIONS, SampleRateError, StreamOptions
from service.pcm import BadAudioError
from service.problems import Problem, ProblemCode, busy, responses
from service.server_messages import Done, Totals, note_message
from service.settings import Settings
from service.state import ServiceState
from service.transcribe import FileProgress, Performance, transcribe_file

logger = logging.getLogger(__name__)
router = APIRouter(tags=["recordings"])

MIDI = "audio/midi"
JSON = "application/json"
NDJSON = "application/x-ndjson"
OFFERED = (MIDI, JSON, NDJSON)

# A form field is not what we came for; a few small ones do no harm.
MAX_FIELDS = 8
MAX_FIELD_BYTES = 16 * 1024

Items = AsyncGenerator[NoteEvent | FileProgress | Performance, None]


class NoteBody(BaseModel):
    """A note of a recording; times in seconds and in frames."""

    note_id: int
    pitch: int
    velocity: int
    confidence: float
    onset_s: float
    offset_s: float
    onset_frame: int
    offset_frame: int


class Transcript(BaseModel):
    """A transcribed recording."""

    notes: list[NoteBody]
    duration_s: float
    frames: int
    model: str
    mode: str
    lookahead_ms: float
    block_frames: int


MULTIPART = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "string",
                            "contentMediaType": "application/octet-stream",
                            "description": "WAV, FLAC, OGG or MP3",
                        }
                    },
                }
            }
        },
    }
}

ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The notes, in the form that `Accept` asks for",
        "content": {
            MIDI: {"schema": {"type": "string", "contentMediaType": MIDI}},
            JSON: {"schema": {"$ref": "#/components/schemas/Transcript"}},
            NDJSON: {"schema": {"type": "string", "description": "one JSON object a line"}},
        },
    },
    **responses(
        ProblemCode.BAD_PARAMETER,
        ProblemCode.UNKNOWN_MODEL,
        ProblemCode.BAD_UPLOAD,
        ProblemCode.UPLOAD_TOO_LARGE,
        ProblemCode.AUDIO_TOO_LONG,
        ProblemCode.TOO_MANY_NOTES,
        ProblemCode.UNDECODABLE,
        ProblemCode.EMPTY_AUDIO,
        ProblemCode.BAD_SAMPLE_RATE,
        ProblemCode.BAD_AUDIO,
        ProblemCode.NOT_ACCEPTABLE,
        ProblemCode.TOO_MANY_UPLOADS,
        ProblemCode.CLIENT_LIMIT,
        ProblemCode.TOO_MANY_REQUESTS,
        ProblemCode.UNAUTHORIZED,
        ProblemCode.ORIGIN_NOT_ALLOWED,
        ProblemCode.NOT_READY,
        ProblemCode.DRAINING,
        ProblemCode.DISK_FULL,
        ProblemCode.IDLE_TIMEOUT,
        ProblemCode.INTERNAL,
    ),
}


@router.post(
    "/transcribe",
    summary="Transcribe a recording",
    response_class=Response,
    responses=ANSWERS,
    openapi_extra=MULTIPART,
)
async def transcribe_recording(request: Request, choices: Annotated[Choices, Query()]) -> Response:
    """Transcribes the file in the multipart field `file`."""
    state: ServiceState = request.app.state.service
    media_type = choose(request.headers.get("accept"), OFFERED)
    if media_type is None:
        offered = ", ".join(OFFERED)
        raise Problem(ProblemCode.NOT_ACCEPTABLE, f"the answer can be one of {offered}")
    async with AsyncExitStack() as stack:
        placed = stack.enter_context(state.uploads.take())
        client = client_of(request.scope)
        client_placed = stack.enter_context(state.client_uploads.take(client))
        refusal = state.upload_refusal(placed, client_placed)
        if refusal is not None:
            state.metrics.refused.labels(refusal.code).inc()
            raise refusal
        if not state.knows(choices.model):
            loaded = state.loaded().config.name  # not the path that it may come from
            raise Problem(ProblemCode.UNKNOWN_MODEL, f"only the model {loaded} is loaded here")
        options = choices.options(replace(FILE_OPTIONS, mode=state.settings.mode))
        upload = await receive_file(request, state.settings, stack)
        items = await stack.enter_async_context(
            aclosing(start_transcription(state, upload.file, options))
        )
        if media_type == NDJSON:
            # Bad files mostly show at once: then there is still a status to say so.
            try:
                first = await anext(items)
            except Exception as error:
                problem = as_problem(error, state)
                count(state, None, problem)
                raise problem from error
            lines = write_lines(first, items, state)
            return HoldingResponse(lines, stack.pop_all(), state.settings.send_timeout_s)
        performance = await run(request, items, state)
        if media_type == JSON:
            return JSONResponse(describe(performance, options, state))
        return Response(performance.midi, media_type=MIDI, headers=file_name(upload.filename))


# -- receiving ------------------------------------------------------------------------------------


async def receive_file(request: Request, settings: Settings, stack: AsyncExitStack) -> UploadFile:
    """The file of the form, spooled; it lives as long as the stack."""
    max_bytes, patience_s = settings.max_upload_bytes, settings.idle_timeout_s
    too_large = Problem(
        ProblemCode.UPLOAD_TOO_LARGE, f"the upload is larger than {max_bytes} bytes"
    )
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > max_bytes:
        raise too_large
    received = 0

    async def counted() -> Message:
        nonlocal received
        try:
            async with asyncio.timeout(patience_s):
                message = await request.receive()
        except TimeoutError:
            detail = f"nothing of the upload came for {patience_s:g} s"
            raise Problem(ProblemCode.IDLE_TIMEOUT, detail) from None
        received += len(message.get("body", b""))
        if received > max_bytes:
            raise too_large
        return message

    bounded = Request(request.scope, counted)
    try:
        form = await stack.enter_async_context(
            bounded.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
        )
    except ClientDisconnect:
        raise Problem(ProblemCode.BAD_UPLOAD, "the upload broke off") from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Problem(ProblemCode.DISK_FULL, "no room to hold the upload") from error
    upload = form.get("file")
    if not isinstance(upload, UploadFile):
        raise Problem(
            ProblemCode.BAD_UPLOAD, "expected a multipart form with the recording in field file"
        )
    return upload


# -- transcribing ---------------------------------------------------------------------------------


def start_transcription(state: ServiceState, file: BinaryIO, options: StreamOptions) -> Items:
    engine, settings = state.loaded(), state.settings
    return transcribe_file(
        file,
        engine,
        options,
        max_duration_s=settings.max_upload_s,
        limits=SessionLimits(
            max_notes=settings.max_notes,
            max_pending_windows=engine.settings.max_file_batch_windows,
        ),
    )


def as_problem(error: Exception, state: ServiceState, **extra: Any) -> Problem:
    """What a fault of a recording, or of ours, is to the client."""
    match error:
        case Problem():
            return error
        case DecodeError():
            return Problem(ProblemCode(error.code), str(error), **extra)
        case SampleRateError():
            return Problem(ProblemCode.BAD_SAMPLE_RATE, str(error), **extra)
        case BadAudioError():
            return Problem(ProblemCode.BAD_AUDIO, str(error), **extra)
        case TooManyNotesError():
            return Problem(ProblemCode.TOO_MANY_NOTES, str(error), **extra)
        case EngineBusyError():
            later = state.settings.retry_after_s
            return busy(ProblemCode.TOO_MANY_UPLOADS, "the model is overloaded", later)
    logger.error("an upload failed", exc_info=error)
    return Problem(ProblemCode.INTERNAL, "the server failed; this was logged", **extra)


async def run(request: Request, items: Items, state: ServiceState) -> Performance:
    """The whole recording at once; a fault on the way is a problem that holds what came before."""
    performance: Performance | None = None

    async def listen() -> None:
        nonlocal performance
        async for item in items:
            if isinstance(item, Performance):
                performance = item

    listening = asyncio.create_task(listen())
    leaving = asyncio.create_task(wait_until_gone(request))
    try:
        # The model may be busy with others for long; whoever has gone holds no place meanwhile.
        await asyncio.wait([listening, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            raise Problem(ProblemCode.BAD_UPLOAD, "the client has gone")
        await listening
    except Exception as error:
        extra = {"midi_base64": _base64(performance.midi)} if performance else {}
        problem = as_problem(error, state, **extra)
        count(state, performance, problem)
        raise problem from error
    finally:
        for task in (listening, leaving):
            task.cancel()
        await asyncio.wait([listening, leaving])
    assert performance is not None
    count(state, performance, None)
    return performance


async def wait_until_gone(request: Request) -> None:
    """Returns once the client has closed the connection; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def count(state: ServiceState, performance: Performance | None, problem: Problem | None) -> None:
    """Puts a recording that is done with into the metrics."""
    outcome = problem.code if problem is not None else "done"
    state.metrics.uploads_ended.labels(outcome).inc()
    if performance is not None:
        state.metrics.audio_s.labels("file").inc(performance.totals.audio_s)


# -- answering ------------------------------------------------------------------------------------


class HoldingResponse(StreamingResponse):
    """A stream that lets go of what it needs when it ends, even if it never began."""

    def __init__(
        self, lines: AsyncIterator[str], held: AsyncExitStack, send_timeout_s: float
    ) -> None:
        # Proxies that buffer would keep the notes until the end.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(lines, media_type=NDJSON, headers=headers)
        self._held = held
        self._send_timeout_s = send_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._send_timeout_s):
                await send(message)

        try:
            async with self._held:
                await super().__call__(scope, receive, send_in_time)
        except TimeoutError:
            logger.info("gave up on an answer that its client does not read")


async def write_lines(
    first: NoteEvent | FileProgress | Performance, items: Items, state: ServiceState
) -> AsyncIterator[str]:
    """The lines of an NDJSON answer; the last is `done` unless the server itself failed."""
    item: NoteEvent | FileProgress | Performance | None = first
    performance: Performance | None = None
    problem: Problem | None = None
    while item is not None:
        if isinstance(item, NoteEvent):
            yield note_message(item).model_dump_json(exclude={"seq"}) + "\n"
        elif isinstance(item, FileProgress):
            yield json.dumps({"type": "progress", **asdict(item)}) + "\n"
        else:
            performance = item
        try:
            item = await anext(items, None)
        except Exception as error:
            problem, item = as_problem(error, state), None
    count(state, performance, problem)
    if problem is not None:
        yield (
            json.dumps(
                {
                    "type": "error",
                    "code": problem.code,
                    "message": problem.detail,
                    "retryable": False,
                }
            )
            + "\n"
        )
    if performance is not None:
        done = Done(
            reason="stop" if problem is None else "error",
            totals=Totals.model_validate(performance.totals),
            midi_base64=_base64(performance.midi),
        )
        yield done.model_dump_json(exclude={"seq"}) + "\n"


def describe(
    performance: Performance, options: StreamOptions, state: ServiceState
) -> dict[str, Any]:
    """The body of a JSON answer."""
    config = state.loaded().config
    return Transcript(
        notes=[NoteBody.model_validate(note, from_attributes=True) for note in performance.notes],
        duration_s=performance.totals.audio_s,
        frames=performance.totals.frames,
        model=config.name,
        mode=options.mode,
        lookahead_ms=round(options.actual_lookahead_ms(config.sample_rate), 3),
        block_frames=options.frames_per_window,
    ).model_dump(mode="json")


def file_name(uploaded: str | None) -> dict[str, str]:
    """Suggests the recording's own name with the ending .mid (RFC 6266)."""
    stem = PurePath((uploaded or "").replace("\\", "/")).stem or "transcription"
    name = quote(f"{stem[:100]}.mid", safe="", errors="replace")
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}


def _base64(midi: bytes) -> str:
    return base64.b64encode(midi).decode()
