"""`POST /transcribe`: transcribe a recording (PROTOCOL.md).

The server checks the limits of the request body while it arrives, and stores the recording on disk.
It then decodes and transcribes the recording in blocks, and keeps only the notes in memory.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, aclosing, closing
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, Literal

import anyio
from fastapi import APIRouter, Query, Request
from pydantic_core import to_json
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import Response

from model.instruments import predicted_instruments
from service.access.keys import SCOPE_KEY
from service.protocol.client_messages import RequestOptions
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import FILE_OPTIONS, check_instruments
from service.score.beats import BeatHints
from service.score.document import ScoreDocument
from service.state import ServiceState
from service.stream.recording import RecordingStep, transcribe_recording
from service.stream.setup import describe_options
from service.stream.stream import MAX_NOTES
from service.upload.answer import (
    MUSICXML,
    NDJSON,
    NdjsonResponse,
    UploadLog,
    file_name,
    log_upload,
    write_lines,
)
from service.upload.body import LimitedBody
from service.upload.score import render_score

router = APIRouter()

# Limits of the form's other fields, which the endpoint ignores.
MAX_FIELDS = 8
MAX_FIELD_BYTES = 16 * 1024
# Parts of the API documentation at /docs that FastAPI cannot derive from the function.
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "MIDI file, JSON, NDJSON or MusicXML, depending on the parameter `answer`",
        "content": {"audio/midi": {}, "application/json": {}, NDJSON: {}, MUSICXML: {}},
    }
}
EXPECTED = "expected a multipart form with the recording in its field `file`"


class UploadQuery(RequestOptions, BeatHints):
    """Query parameters of an upload."""

    answer: Literal["midi", "json", "ndjson", "musicxml"] = "midi"


@router.post("/transcribe", openapi_extra=_BODY, responses=_ANSWERS, response_class=Response)
async def transcribe_upload(request: Request, query: Annotated[UploadQuery, Query()]) -> Response:
    """Transcribe the file in the multipart field `file`."""
    state: ServiceState = request.app.state.service
    client, settings, pool = request.scope[SCOPE_KEY], state.settings, state.pool
    async with AsyncExitStack() as stack:
        stack.enter_context(state.reserve_upload(client))
        config = pool.config
        state.check_model(query.model)
        try:
            options = query.options(FILE_OPTIONS)
            check_instruments(options.instruments, predicted_instruments(config.heads))
        except ProtocolError as error:
            raise ProtocolError(ErrorCode.BAD_PARAMETER, error.message) from None
        log = stack.enter_context(log_upload(state, client))
        upload = await receive_file(request, state, stack, log)
        recording = transcribe_recording(
            upload.file,
            pool,
            options,
            max_duration_s=settings.max_upload_s,
            max_notes=MAX_NOTES,
            sandboxed=True,
        )
        description = describe_options(options, config)
        steps = await stack.enter_async_context(
            aclosing(iterate_in_thread(recording, query, log, state))
        )
        if query.answer == "ndjson":
            # Most invalid files fail in the first step, before the status of the response is sent.
            first = await anext(steps)
            held = stack.pop_all()
            lines = write_lines(first, steps, log, held, description, query.updates)
            return NdjsonResponse(lines, held)
        async for _ in steps:
            if await request.is_disconnected():
                return Response()
        result = log.result
        assert result is not None
        if query.answer == "json":
            # A thread, and a fast serialiser: thousands of notes would block the event loop.
            fields = await run_in_threadpool(result.to_json)
            body = to_json({**fields, "chords": log.chords, **description})
            return Response(body, media_type="application/json")
        stem = PurePath(upload.filename or "").stem
        if query.answer == "midi":
            return Response(log.midi, media_type="audio/midi", headers=file_name(stem, ".mid"))
        title = result.title or stem
        score = partial(ScoreDocument, result.notes, query, title, pedal=result.pedal)
        xml = await render_score(request, state, score, "musicxml", of_upload=True)
        return Response(xml, media_type=MUSICXML, headers=file_name(stem, ".musicxml"))


async def receive_file(
    request: Request, state: ServiceState, stack: AsyncExitStack, log: UploadLog
) -> UploadFile:
    """Receive the form and return its file, which ``stack`` closes. Raises ProtocolError."""
    body = LimitedBody(request, state, state.settings.max_upload_bytes)
    stack.callback(lambda: setattr(log, "received", body.received))
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise ProtocolError(ErrorCode.BAD_UPLOAD, EXPECTED)
    limited = Request(request.scope, body.receive)
    try:
        form = await stack.enter_async_context(
            limited.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
        )
    except HTTPException as error:  # the form is malformed
        raise ProtocolError(ErrorCode.BAD_UPLOAD, error.detail) from None
    except UnicodeError:
        message = "the charset of the form does not decode its names; use utf-8"
        raise ProtocolError(ErrorCode.BAD_UPLOAD, message) from None
    upload = form.get("file")
    if not isinstance(upload, UploadFile):
        raise ProtocolError(ErrorCode.BAD_UPLOAD, EXPECTED)
    return upload


async def iterate_in_thread(
    steps: Generator[RecordingStep, None, None],
    hints: BeatHints,
    log: UploadLog,
    state: ServiceState,
) -> AsyncGenerator[RecordingStep, None]:
    """Yield the steps of a recording, which are computed and recorded in a thread."""

    def recorded() -> Generator[RecordingStep, None, None]:
        with closing(steps):
            for step in steps:
                log.record(step, hints)
                yield step

    in_thread = recorded()
    try:
        async for step in iterate_in_threadpool(in_thread):
            yield step
    finally:
        with anyio.CancelScope(shield=True):
            try:
                await run_in_threadpool(in_thread.close)
            except ValueError:  # a step is still running, because the server cancelled this task
                # A draining process could not exit while the step waits for its decoder.
                if state.draining.is_set():
                    from service.audio.sandbox import kill_children  # loads FFmpeg

                    kill_children()
