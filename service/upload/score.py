"""`POST /score`: render notes as a score (PROTOCOL.md).

A score takes seconds to render. The service renders scores in separate processes of low priority,
one at a time for each client, so that live streams and other clients do not wait. It kills a
process after RENDER_TIMEOUT_S and when the client disconnects. It also kills it when the service
drains, unless the score is the response to an upload, which the drain waits for.
"""

import asyncio
import pickle
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from anyio import CapacityLimiter, to_process
from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from service import helper_process
from service.access.keys import SCOPE_KEY
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import Instrument
from service.score.beats import BeatHints
from service.score.document import ScoreDocument
from service.score.live import LiveBeat
from service.score.sheet import ScoreExtraMissingError, ScoreTooLongError
from service.state import ServiceState
from service.upload.answer import MUSICXML, file_name
from service.upload.body import LimitedBody

router = APIRouter()

_MEDIA = {"svg": "application/json", "musicxml": MUSICXML, "pdf": "application/pdf"}
MAX_NOTES = 20_000  # half an hour of dense piano music
MAX_BYTES = 4 << 20  # maximum size of the request body
MAX_PARTS, MAX_PART_NAME = 32, 50  # maximum number of parts, and of characters of a name
MIN_PITCH = 12  # C0, 16 Hz: MusicXML has no lower octave
MIN_BEAT_S = 0.05  # minimum interval between beats, which limits how many beats can fill a gap
RENDER_TIMEOUT_S = 60.0  # without the time that a score waits for other scores


class _Span(BaseModel):
    onset_s: float = Field(ge=0, le=86_400)
    offset_s: float = Field(ge=0, le=86_400)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.offset_s < self.onset_s:
            raise ValueError("offset_s must not be less than onset_s")
        return self


class ScoreNote(_Span):
    """A note, in the JSON format of `POST /transcribe`. Other fields are ignored. ``part`` is the
    name of its part, or "" for the part of its ``instrument``."""

    pitch: int = Field(ge=MIN_PITCH, le=127)
    velocity: int = Field(default=64, ge=1, le=127)
    instrument: Instrument | None = None
    part: str = Field(default="", max_length=MAX_PART_NAME)


class ScorePress(_Span):
    """Period in which the sustain pedal is down, in the JSON format of `POST /transcribe`."""


def _few_parts(notes: list[ScoreNote]) -> list[ScoreNote]:
    if len({note.part or note.instrument for note in notes}) > MAX_PARTS:
        raise ValueError(f"the notes must have at most {MAX_PARTS} parts")
    return notes


def _in_order(beats: list[LiveBeat]) -> list[LiveBeat]:
    if any(b.time_s - a.time_s < MIN_BEAT_S for a, b in pairwise(beats)):
        raise ValueError(f"the times of the beats must increase by at least {MIN_BEAT_S:g} s")
    return beats


Beats = Annotated[
    list[LiveBeat], Field(max_length=MAX_NOTES, fail_fast=True), AfterValidator(_in_order)
]


class ScoreRequest(BeatHints):
    """Notes, pedal presses and beat hints. If ``beats`` is set, the score uses these beats. With
    ``live``, the performance is in progress (``ScoreDocument``)."""

    notes: Annotated[
        list[ScoreNote],
        Field(min_length=1, max_length=MAX_NOTES, fail_fast=True),
        AfterValidator(_few_parts),
    ]
    pedal: list[ScorePress] = Field(default=[], max_length=MAX_NOTES, fail_fast=True)
    beats: Beats | None = None
    live: bool = False
    title: str = ""


class ScoreQuery(BaseModel):
    """Query parameters: the output format, and the page width of `svg` in tenths of a mm."""

    model_config = ConfigDict(extra="forbid")

    form: Literal["svg", "musicxml", "pdf"] = "svg"
    width: int = Field(default=2100, ge=500, le=10_000)


_EXAMPLE = {"notes": [{"pitch": 69, "onset_s": 0.5, "offset_s": 1.0, "velocity": 80}], "bpm": 120}
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"example": _EXAMPLE}}}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "JSON with an SVG, MusicXML or PDF, depending on the parameter `form`",
        "content": {"application/json": {}, MUSICXML: {}, "application/pdf": {}},
    }
}


@router.post("/score", openapi_extra=_BODY, responses=_ANSWERS, response_class=Response)
async def write_score(request: Request, query: Annotated[ScoreQuery, Query()]) -> Response:
    """Render a score. With `form=svg` the response is JSON with the SVG, beats, bars and chords."""
    state: ServiceState = request.app.state.service
    with state.reserve_score(request.scope[SCOPE_KEY]):
        limited = LimitedBody(request, state, MAX_BYTES)
        received = await Request(request.scope, limited.receive).body()
        try:
            # In a thread, because thousands of notes would block the event loop.
            body = await run_in_threadpool(ScoreRequest.model_validate_json, received)
        except ValidationError as error:
            errors = [{**e, "loc": ("body", *e["loc"])} for e in error.errors()]
            raise RequestValidationError(errors) from None
        beats, pedal, live = body.beats, body.pedal, body.live
        score = partial(ScoreDocument, body.notes, body, body.title, beats, pedal, is_live=live)
        rendered = await render_score(request, state, score, query.form, query.width)
    headers = {} if query.form == "svg" else file_name(body.title, f".{query.form}")
    return Response(rendered, media_type=_MEDIA[query.form], headers=headers)


async def render_score(
    request: Request,
    state: ServiceState,
    score: Callable[[], ScoreDocument],
    form: str,
    width: int = 0,
    *,
    of_upload: bool = False,
) -> bytes:
    """Render a score in a separate process. Kill the process and raise ProtocolError if it takes
    too long, the client disconnects, or the service drains. With ``of_upload``, also render while
    the service drains. Also raises ProtocolError if the score extra is missing or the score has too
    many bars."""
    turn = state.score_turns.setdefault(request.scope[SCOPE_KEY], asyncio.Lock())

    async def render() -> bytes:
        # In a thread, because thousands of notes would block the event loop.
        pickled = await run_in_threadpool(pickle.dumps, score)
        async with turn, state.scores, asyncio.timeout(RENDER_TIMEOUT_S):
            # Its own limiter, because the score already has its turn.
            return await to_process.run_sync(
                _write, pickled, form, width, cancellable=True, limiter=CapacityLimiter(1)
            )

    rendering = asyncio.create_task(render())
    disconnected = asyncio.create_task(_wait_for_disconnect(request))
    try:
        ended = asyncio.wait([rendering, disconnected], return_when="FIRST_COMPLETED")
        await (ended if of_upload else state.wait_for(ended))
        if not rendering.done():
            raise ProtocolError(ErrorCode.BAD_UPLOAD, "the client disconnected")
        return rendering.result()
    except TimeoutError:
        detail = f"the score is not finished after {RENDER_TIMEOUT_S:g} s; send fewer notes"
        raise ProtocolError(ErrorCode.SCORE_TIMEOUT, detail) from None
    except (ScoreExtraMissingError, ScoreTooLongError) as error:
        raise ProtocolError(ErrorCode.BAD_PARAMETER, str(error)) from None
    finally:
        rendering.cancel()
        disconnected.cancel()
        await asyncio.wait([rendering])  # wait until the process has exited


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _write(pickled: bytes, form: str, width: int) -> bytes:
    helper_process.prepare()
    score: ScoreDocument = pickle.loads(pickled)()
    if form != "svg":
        return score.musicxml if form == "musicxml" else score.pdf()
    analysis, beats = score.analysis, score.analysis.beats
    svg, notes_s = score.timed_svg(width)
    fields = {
        "svg": svg,
        "steady": analysis.steady,
        "confidence": beats.confidence,
        "bpm": beats.bpm,
        "signature": beats.signature(beats.beats_per_bar),
        "key": analysis.key.name,
        "beats": analysis.beats_json,
        "bars_s": score.bars_s,
        "notes_s": notes_s,
        "chords": analysis.chords_json,
        "undrawable": score.undrawable,
    }
    return to_json(fields)  # here, because megabytes of JSON would block the event loop
