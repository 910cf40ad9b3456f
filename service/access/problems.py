"""Refusals: HTTP errors as problem details (RFC 9457, `application/problem+json`), and refused
websockets, with a reason that the client sees."""

import contextlib
import logging
from collections.abc import Mapping
from http import HTTPStatus
from time import monotonic

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import Counter
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
RETRY_AFTER_S = 5


def answer_to(error: ProtocolError, headers: Mapping[str, str] | None = None) -> Response:
    """A problem document, which says when to try again if that may help."""
    code, fields = error.code, dict(headers or {})
    if code.retryable:
        fields["Retry-After"] = str(RETRY_AFTER_S)
    if code is ErrorCode.UNAUTHORIZED:
        fields["WWW-Authenticate"] = "Bearer"
    problem = {
        "type": f"urn:rse-transcribe:problem:{code}",
        "title": HTTPStatus(code.status).phrase,
        "status": code.status,
        "detail": error.message,
        "code": code,
        **error.extra,
    }
    return JSONResponse(problem, code.status, fields, media_type=MEDIA_TYPE)


_LOGGED_EACH_S = 1.0
_unlogged = [0.0, 0]  # when a refusal was logged last, and how many were not since then


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


_CODE_BY_STATUS = {
    400: ErrorCode.BAD_UPLOAD,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.METHOD_NOT_ALLOWED,
}


def install(app: FastAPI) -> None:
    """Makes every HTTP error of `app` a problem document, including the framework's."""

    @app.exception_handler(ProtocolError)
    async def on_problem(request: Request, error: ProtocolError) -> Response:
        return answer_to(error)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        code = _CODE_BY_STATUS.get(error.status_code, ErrorCode.INTERNAL)
        return answer_to(ProtocolError(code, str(error.detail)), error.headers)

    @app.exception_handler(RequestValidationError)
    async def on_validation(request: Request, error: RequestValidationError) -> Response:
        complaints = [explained({**one, "loc": one["loc"][1:]}) for one in error.errors()]
        return answer_to(ProtocolError(ErrorCode.BAD_PARAMETER, "; ".join(complaints)))

    @app.exception_handler(Exception)
    async def on_fault(request: Request, error: Exception) -> Response:
        # The text may name files and settings: it is logged, not sent.
        return answer_to(internal_error())


async def refuse(websocket: WebSocket, error: ProtocolError) -> None:
    """Refuses before the upgrade, or for a browser on an accepted socket. Browsers hide the HTTP
    answer to a handshake from the page; only they send `Origin`. A proxy that can try another
    server asks for a status (docker/nginx.conf)."""
    full = error.code.status == HTTPStatus.SERVICE_UNAVAILABLE
    for_proxy = full and websocket.headers.get("x-refuse-with") == "status"
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        if "origin" in websocket.headers and not for_proxy:
            await websocket.accept(subprotocol=chosen_subprotocol(websocket))
            await websocket.send_text(Error.of(error).model_dump_json())
            await websocket.close(error.code.close_code, error.code)
        else:
            await deny(websocket, error)


async def deny(websocket: WebSocket, error: ProtocolError) -> None:
    """Answers the handshake with an HTTP error."""
    await websocket.send_denial_response(answer_to(error))


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
