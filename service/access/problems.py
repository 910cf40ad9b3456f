"""Refusals: HTTP errors as problem details (RFC 9457, `application/problem+json`), and refused
websockets, with a reason that the client sees."""

import contextlib
import logging
from http import HTTPStatus
from time import monotonic
from typing import Any, Self

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import Counter
from pydantic import BaseModel, ConfigDict
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from model.ranges import explained
from service.access.clients import Client
from service.protocol.faults import ErrorCode, ProtocolError, internal_error
from service.protocol.server_messages import Error

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class ProblemDetails(BaseModel):
    """Body of every HTTP error."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: ErrorCode


class Problem(ProtocolError):
    """An HTTP error; `extra` members go into the body."""

    def __init__(
        self, code: ErrorCode, message: str, headers: dict[str, str] | None = None, **extra: Any
    ) -> None:
        super().__init__(code, message)
        self.headers = headers or {}
        self.extra = extra

    @classmethod
    def of(cls, error: ProtocolError) -> Self:
        return cls(error.code, error.message)

    def response(self) -> Response:
        status = self.code.status
        details = ProblemDetails(
            type=f"urn:rse-transcribe:problem:{self.code}",
            title=HTTPStatus(status).phrase,
            status=status,
            detail=self.message,
            code=self.code,
            **self.extra,
        )
        return JSONResponse(
            details.model_dump(mode="json"), status, self.headers, media_type=MEDIA_TYPE
        )


RETRY_AFTER_S = 5

_LOGGED_EACH_S = 1.0
_unlogged = [0.0, 0]  # when a refusal was logged last, and how many were not since then


def busy(code: ErrorCode, message: str) -> Problem:
    return Problem(code, message, {"Retry-After": str(RETRY_AFTER_S)})


def record_refusal(refused: Counter, error: ProtocolError, client: Client) -> None:
    """Counts a refusal, and logs one a second at most, with the number of those left out."""
    refused.labels(error.code).inc()
    now_s = monotonic()
    if now_s < _unlogged[0] + _LOGGED_EACH_S:
        _unlogged[1] += 1
        return
    fields = {"code": error.code, "client": client.name, "more": _unlogged[1]}
    _unlogged[:] = now_s, 0
    logger.info("refused: %s", error, extra={"fields": fields})


_DOCUMENTED = {
    "description": "A problem (PROTOCOL.md): `code` says which",
    "model": ProblemDetails,
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
}
RESPONSES: dict[int | str, dict[str, Any]] = {"4XX": _DOCUMENTED, "5XX": _DOCUMENTED}
"""Of every endpoint, for OpenAPI."""

_CODE_BY_STATUS = {
    400: ErrorCode.BAD_UPLOAD,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.METHOD_NOT_ALLOWED,
    413: ErrorCode.UPLOAD_TOO_LARGE,
}


def install(app: FastAPI) -> None:
    """Makes every HTTP error of `app` a problem document, including the framework's."""

    @app.exception_handler(Problem)
    async def on_problem(request: Request, error: Problem) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        code = _CODE_BY_STATUS.get(error.status_code, ErrorCode.INTERNAL)
        return Problem(code, str(error.detail), dict(error.headers or {})).response()

    @app.exception_handler(RequestValidationError)
    async def on_validation(request: Request, error: RequestValidationError) -> Response:
        complaints = [explained({**one, "loc": one["loc"][1:]}) for one in error.errors()]
        return Problem(ErrorCode.BAD_PARAMETER, "; ".join(complaints)).response()

    @app.exception_handler(Exception)
    async def on_fault(request: Request, error: Exception) -> Response:
        # The text may name files and settings: it is logged, not sent.
        return Problem.of(internal_error()).response()


def asks_for_status(headers: Headers) -> bool:
    """Whether a proxy that can try another server sent the request (docker/nginx.conf).

    Any other client that sends the header only changes its own answer.
    """
    return headers.get("x-refuse-with") == "status"


async def refuse(websocket: WebSocket, error: Problem) -> None:
    """Refuses before the upgrade, or for a browser on an accepted socket.

    Browsers hide the HTTP answer to a handshake from the page; only they send `Origin`.
    """
    elsewhere = error.code.status == HTTPStatus.SERVICE_UNAVAILABLE
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        if "origin" in websocket.headers and not (elsewhere and asks_for_status(websocket.headers)):
            await websocket.accept(subprotocol=chosen_subprotocol(websocket))
            await websocket.send_text(Error.of(error).model_dump_json())
            await websocket.close(error.code.close_code, error.code)
        else:
            await deny(websocket, error)


async def deny(websocket: WebSocket, error: Problem) -> None:
    """Answers the handshake with an HTTP error."""
    await websocket.send_denial_response(error.response())


SUBPROTOCOL = "rse.v1"
TOKEN_SUBPROTOCOL = "rse.token."


def chosen_subprotocol(websocket: WebSocket) -> str | None:
    """The subprotocol to accept: a browser that offers any requires one; never its token."""
    return SUBPROTOCOL if SUBPROTOCOL in websocket.scope["subprotocols"] else None


def offered_token(scope: Scope) -> str | None:
    """The token among the offered subprotocols, if any."""
    for offered in scope.get("subprotocols", ()):
        if offered.startswith(TOKEN_SUBPROTOCOL):
            return str(offered.removeprefix(TOKEN_SUBPROTOCOL))
    return None
