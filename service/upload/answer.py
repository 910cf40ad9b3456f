"""Writes the streamed responses of `POST /transcribe`, and the log of uploads."""

import asyncio
import base64
import contextlib
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import quote

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from service.notes.events import is_optional_event
from service.protocol.errors import ErrorCode, ProtocolError, server_error
from service.protocol.server_messages import Done, DoneReason, Error, event_message
from service.score.analysis import analyse
from service.score.beats import BeatHints
from service.state import ServiceState
from service.stream.recording import RecordingStep, TranscriptionResult
from service.stream.windows import WorkersExitedError

logger = logging.getLogger(__name__)

NDJSON = "application/x-ndjson"
MUSICXML = "application/vnd.recordare.musicxml+xml"

SEND_TIMEOUT_S = 10.0  # maximum time for sending a line to a client that does not read


@dataclass
class UploadLog:
    """Results of an upload, for its log line, metrics and response.

    ``outcome`` is `done`, an error code, or `vanished` if the client disconnected or did not read
    during the transcription. ``received`` is the number of bytes of the request body. ``beats`` and
    ``chords`` are JSON.
    """

    outcome: str = "vanished"
    received: int = 0
    audio_s: float = 0.0
    result: TranscriptionResult | None = None
    midi: bytes = b""
    beats: Sequence[dict[str, float]] = ()
    chords: Sequence[dict[str, Any]] = ()

    def record(self, step: RecordingStep, hints: BeatHints) -> None:
        """Record a step of the recording. After the last step, create the MIDI file."""
        if step.progress is not None:
            self.audio_s = step.progress.time_s
        if (result := step.result) is not None:
            analysis = analyse(result.notes, hints)
            self.midi = result.midi(analysis.tempo)
            self.beats, self.chords = analysis.beats_json, analysis.chords_json
            self.result, self.audio_s, self.outcome = result, result.totals.audio_s, "done"


@contextmanager
def log_upload(state: ServiceState, client: str) -> Iterator[UploadLog]:
    """Log an upload and update the metrics when the block ends. Convert an exception to
    ProtocolError, whose ``extra`` contains the MIDI file if there is one. An upload that is
    cancelled at the end of the drain is rejected, so that the client may send it again."""
    log, started_s, metrics = UploadLog(), monotonic(), state.metrics
    try:
        yield log
    except asyncio.CancelledError:
        if state.draining.is_set():
            log.outcome = ErrorCode.DRAINING
        state.check_draining()
        raise
    except Exception as error:
        problem = as_problem(error)
        log.outcome = problem.code
        if log.midi:
            problem.extra["midi_base64"] = base64.b64encode(log.midi).decode()
        raise problem from error
    finally:
        metrics.uploads_ended.labels(log.outcome).inc()
        metrics.audio_s.labels("file").inc(log.audio_s)
        fields = {
            "outcome": str(log.outcome),
            "client": client,
            "duration_s": round(monotonic() - started_s, 3),
            "bytes": log.received,
            "audio_s": round(log.audio_s, 3),
        }
        logger.info("upload ended", extra={"fields": fields})


class NdjsonResponse(StreamingResponse):
    """NDJSON response that closes ``held`` when it ends, even if it has sent no line. If the drain
    ends it, its last line is an error."""

    def __init__(self, lines: AsyncIterator[str], held: AsyncExitStack) -> None:
        # A proxy that buffers the response would delay all notes until its end.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(lines, media_type=NDJSON, headers=headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await send(message)

        try:
            async with self._held:
                try:
                    await super().__call__(scope, receive, send_in_time)
                except TimeoutError:
                    logger.info("response aborted: the client does not read")
        except ProtocolError as problem:  # from ``log_upload``
            line = error_line(problem).encode()
            with contextlib.suppress(TimeoutError):
                await send_in_time({"type": "http.response.body", "body": line})


async def write_lines(
    first: RecordingStep,
    steps: AsyncGenerator[RecordingStep, None],
    log: UploadLog,
    held: AsyncExitStack,
    description: dict[str, Any],
    updates: bool,
) -> AsyncIterator[str]:
    """Yield the lines of an NDJSON response. Before the last lines, close ``held``. This releases
    the upload's slot, so that the client can send another recording immediately after `done`."""
    step: RecordingStep | None = first
    problem: ProtocolError | None = None
    yield json.dumps({"type": "started", "title": first.title, **description}) + "\n"
    while step is not None:
        for event in step.events:
            if updates or not is_optional_event(event):
                message = event_message(event)
                yield message.model_dump_json(exclude={"seq"}, exclude_none=True) + "\n"
        if step.progress is not None:
            yield step.progress.model_dump_json() + "\n"
        try:
            step = await anext(steps, None)
        except Exception as error:
            problem, step = as_problem(error), None
            log.outcome = problem.code
    await held.aclose()
    if problem is not None:
        yield error_line(problem)
    if log.result is not None:
        for beat in log.beats if updates else ():
            yield json.dumps({"type": "beat", **beat}) + "\n"
        reason: DoneReason = "stop" if problem is None else "error"
        encoded = base64.b64encode(log.midi).decode()
        done = Done(reason=reason, totals=log.result.totals, midi_base64=encoded)
        yield done.model_dump_json(exclude={"seq"}) + "\n"


def error_line(problem: ProtocolError) -> str:
    return Error.of(problem).model_dump_json(exclude={"seq"}) + "\n"


def file_name(stem: str, suffix: str) -> dict[str, str]:
    """Return the header (RFC 6266) that suggests a name for the file. Characters that file systems
    reject become dots. Leading dots are removed, because they would hide the file."""
    valid = re.sub(r'[/\\:*?"<>|\0-\x1f]+', ".", stem[:100]).lstrip(". ") or "transcription"
    name = quote(f"{valid}{suffix}", safe="", errors="replace")
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}


def as_problem(error: Exception) -> ProtocolError:
    """Return the error for the client. Log the exception if it is an error of the server."""
    if isinstance(error, ProtocolError) and error.code.status:
        return error
    if isinstance(error, WorkersExitedError):
        return ProtocolError(ErrorCode.WORKERS_EXITED, str(error))
    problem = server_error(error)
    if problem.code is ErrorCode.DISK_FULL:
        logger.error("an upload failed: %s", error)
    else:
        logger.error("an upload failed", exc_info=error)
    return problem
