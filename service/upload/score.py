"""`POST /score`: notes in, a score out: engraved, or as a file (PROTOCOL.md).

Writing a score keeps a processor busy for seconds: a process of its own does it, for one request at
a time, so that live streams do not wait for it.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import anyio
from anyio import to_process
from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import JSONResponse, Response

from service.access.keys import SCOPE_KEY
from service.protocol.faults import ErrorCode, ProtocolError
from service.score.beats import BeatHints
from service.score.document import ScoreDocument
from service.score.live import LiveBeat
from service.score.sheet import ScoreExtraMissing
from service.state import ServiceState
from service.upload.answer import MUSICXML, file_name

router = APIRouter()

_MEDIA = {"musicxml": MUSICXML, "pdf": "application/pdf"}
MAX_NOTES = 20_000  # of one score: half an hour of dense piano music
MAX_BYTES = 4 << 20


class ScoreNote(BaseModel):
    """A note as the JSON answer of an upload has it; other fields are ignored."""

    onset_s: float = Field(ge=0, le=86_400)
    offset_s: float = Field(ge=0, le=86_400)
    pitch: int = Field(ge=0, le=127)
    velocity: int = Field(default=64, ge=1, le=127)
    instrument: str | None = Field(default=None, max_length=40)


class ScoreRequest(BeatHints):
    """Notes and what their listener knows of the beat; ``beats`` are kept as they are."""

    notes: list[ScoreNote] = Field(min_length=1, max_length=MAX_NOTES)
    beats: list[LiveBeat] | None = Field(default=None, max_length=MAX_NOTES)
    title: str = Field(default="", max_length=200)


class ScoreChoices(BaseModel):
    """The query: a form, and for `svg` the width of the page in tenths of a millimetre."""

    form: Literal["svg", "musicxml", "pdf"] = "svg"
    width: int = Field(default=2100, ge=500, le=10_000)


@router.post("/score")
async def write_score(request: Request, choices: Annotated[ScoreChoices, Query()]) -> Response:
    """`svg` answers with JSON: the engraved score, its beats and its bars."""
    received = bytearray()
    async for piece in request.stream():
        received += piece
        if len(received) > MAX_BYTES:
            detail = f"more than {MAX_BYTES >> 20} MiB of notes"
            raise ProtocolError(ErrorCode.UPLOAD_TOO_LARGE, detail)
    try:
        body = ScoreRequest.model_validate_json(bytes(received))
    except ValidationError as error:
        faults = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(faults) from None
    state: ServiceState = request.app.state.service
    with state.upload_place(request.scope[SCOPE_KEY]):
        score = partial(ScoreDocument, body.notes, body, body.title, body.beats)
        made = await written(state.scores, score, choices.form, choices.width)
    if isinstance(made, dict):
        return JSONResponse(made)
    name = file_name(f"{body.title}.x", f".{choices.form}")
    return Response(made, media_type=_MEDIA[choices.form], headers=name)


async def written(
    limiter: anyio.CapacityLimiter, score: Callable[[], ScoreDocument], form: str, width: int = 0
) -> bytes | dict[str, Any]:
    """A score, made in a process of its own. Raises ProtocolError."""
    run = partial(to_process.run_sync, cancellable=True, limiter=limiter)
    try:
        return await run(_write, score, form, width)
    except ScoreExtraMissing as missing:
        raise ProtocolError(ErrorCode.BAD_PARAMETER, str(missing)) from None


def _write(make: Callable[[], ScoreDocument], form: str, width: int) -> bytes | dict[str, Any]:
    score = make()
    if form != "svg":
        return score.musicxml if form == "musicxml" else score.pdf()
    analysis, beats = score.analysis, score.analysis.beats
    return {
        "svg": score.svg(width)[0],
        "steady": analysis.steady,
        "confidence": beats.confidence,
        "bpm": beats.bpm,
        "signature": beats.signature(beats.beats_per_bar),
        "key": analysis.key.name,
        "beats": analysis.said,
        "bars_s": score.bars_s,
    }
