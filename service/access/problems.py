"""HTTP errors as problem details (RFC 9457, `application/problem+json`)."""

from __future__ import annotations

import logging
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class ProblemCode(StrEnum):
    """What went wrong with a request, for programs."""

    BAD_PARAMETER = "bad_parameter"
    UNKNOWN_MODEL = "unknown_model"
    BAD_UPLOAD = "bad_upload"
    UPLOAD_TOO_LARGE = "upload_too_large"
    AUDIO_TOO_LONG = "audio_too_long"
    UNDECODABLE = "undecodable"
    EMPTY_AUDIO = "empty_audio"
    BAD_SAMPLE_RATE = "bad_sample_rate"
    BAD_AUDIO = "bad_audio"
    TOO_MANY_NOTES = "too_many_notes"
    TOO_MANY_SESSIONS = "too_many_sessions"
    TOO_MANY_UPLOADS = "too_many_uploads"
    UNAUTHORIZED = "unauthorized"
    HOST_NOT_ALLOWED = "host_not_allowed"
    ORIGIN_NOT_ALLOWED = "origin_not_allowed"
    TOO_MANY_REQUESTS = "too_many_requests"
    CLIENT_LIMIT = "client_limit"
    NOT_READY = "not_ready"
    DRAINING = "draining"
    DISK_FULL = "disk_full"
    IDLE_TIMEOUT = "idle_timeout"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    INTERNAL = "internal"


STATUS: dict[ProblemCode, int] = {
    ProblemCode.BAD_PARAMETER: 422,
    ProblemCode.UNKNOWN_MODEL: 422,
    ProblemCode.BAD_UPLOAD: 400,
    ProblemCode.UPLOAD_TOO_LARGE: 413,
    ProblemCode.AUDIO_TOO_LONG: 413,
    ProblemCode.UNDECODABLE: 422,
    ProblemCode.EMPTY_AUDIO: 422,
    ProblemCode.BAD_SAMPLE_RATE: 422,
    ProblemCode.BAD_AUDIO: 422,
    ProblemCode.TOO_MANY_NOTES: 413,
    ProblemCode.TOO_MANY_SESSIONS: 503,
    ProblemCode.TOO_MANY_UPLOADS: 503,
    ProblemCode.UNAUTHORIZED: 401,
    ProblemCode.HOST_NOT_ALLOWED: 421,
    ProblemCode.ORIGIN_NOT_ALLOWED: 403,
    ProblemCode.TOO_MANY_REQUESTS: 429,
    ProblemCode.CLIENT_LIMIT: 429,
    ProblemCode.NOT_READY: 503,
    ProblemCode.DRAINING: 503,
    ProblemCode.DISK_FULL: 507,
    ProblemCode.IDLE_TIMEOUT: 408,
    ProblemCode.NOT_FOUND: 404,
    ProblemCode.METHOD_NOT_ALLOWED: 405,
    ProblemCode.INTERNAL: 500,
}


class ProblemDetails(BaseModel):
    """Body of every HTTP error."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: ProblemCode


class Problem(Exception):
    """An HTTP error to be answered; `extra` members go into the body, `headers` beside it."""

    def __init__(
        self,
        code: ProblemCode,
        detail: str,
        *,
        headers: dict[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.headers = headers or {}
        self.extra = extra

    @property
    def status(self) -> int:
        return STATUS[self.code]

    def response(self) -> Response:
        details = ProblemDetails(
            type=f"urn:rse-transcribe:problem:{self.code}",
            title=HTTPStatus(self.status).phrase,
            status=self.status,
            detail=self.detail,
            code=self.code,
            **self.extra,
        )
        return JSONResponse(
            details.model_dump(mode="json"), self.status, self.headers, media_type=MEDIA_TYPE
        )


def busy(code: ProblemCode, detail: str, retry_after_s: int) -> Problem:
    """A refusal for now, with the time after which to come back."""
    return Problem(code, detail, headers={"Retry-After": str(retry_after_s)})


def responses(*codes: ProblemCode) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries of an endpoint that may answer with these problems."""
    by_status: dict[int | str, list[ProblemCode]] = {}
    for code in codes:
        by_status.setdefault(STATUS[code], []).append(code)
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    return {
        status: {
            "description": "Problem: " + ", ".join(f"`{code}`" for code in here),
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status, here in by_status.items()
    }


_CODE_BY_STATUS = {
    400: ProblemCode.BAD_UPLOAD,
    404: ProblemCode.NOT_FOUND,
    405: ProblemCode.METHOD_NOT_ALLOWED,
    413: ProblemCode.UPLOAD_TOO_LARGE,
}


def install(app: FastAPI) -> None:
    """Make every HTTP error of `app` a problem document, the framework's own included."""

    async def on_problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _CODE_BY_STATUS.get(error.status_code, ProblemCode.INTERNAL)
        return Problem(code, str(error.detail), headers=dict(error.headers or {})).response()

    async def on_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        complaints = [
            f"{'.'.join(str(part) for part in entry['loc'][1:])}: {entry['msg']}"
            for entry in error.errors()
        ]
        return Problem(ProblemCode.BAD_PARAMETER, "; ".join(complaints)).response()

    async def on_fault(request: Request, error: Exception) -> Response:
        # Its text may name files and settings: that goes to the log, not to the client.
        return Problem(ProblemCode.INTERNAL, "the server failed; this was logged").response()

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(Exception, on_fault)
