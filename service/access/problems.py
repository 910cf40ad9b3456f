"""Refusals: HTTP errors as problem details (RFC 9457, `application/problem+json`), and refused
websockets, with a reason that the client sees."""

import contextlib
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import Counter
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from model.validation import format_error
from service.protocol.errors import CloseCode, ErrorCode, ProtocolError, server_error
from service.protocol.server_messages import Error

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5
SUBPROTOCOL = "rse.v1"

_OF_FRAMEWORK = (ErrorCode.BAD_UPLOAD, ErrorCode.NOT_FOUND, ErrorCode.METHOD_NOT_ALLOWED)


def problem_response(error: ProtocolError, headers: Mapping[str, str] | None = None) -> Response:
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


async def handle_exception(request: Request, error: Exception) -> Response:
    """The answer to what an endpoint or the framework raised."""
    match error:
        case ProtocolError():
            return problem_response(error)
        case HTTPException():
            known = (code for code in _OF_FRAMEWORK if code.status == error.status_code)
            code = next(known, ErrorCode.INTERNAL)
            return problem_response(ProtocolError(code, str(error.detail)), error.headers)
        case RequestValidationError():
            complaints = [format_error({**one, "loc": one["loc"][1:]}) for one in error.errors()]
            return problem_response(ProtocolError(ErrorCode.BAD_PARAMETER, "; ".join(complaints)))
        case _:  # its text may name files and settings: it is logged, not sent
            return problem_response(server_error(error))


HANDLERS: dict[int | type[Exception], Any] = dict.fromkeys(
    (ProtocolError, HTTPException, RequestValidationError, Exception), handle_exception
)
"""Make every HTTP error of an application a problem document."""


def record_rejection(refused: Counter, error: ProtocolError, client: str) -> None:
    refused.labels(error.code).inc()
    logger.info("refused: %s", error, extra={"fields": {"code": error.code, "client": client}})


async def reject_websocket(websocket: WebSocket, error: ProtocolError) -> None:
    """Refuses before the upgrade, or for a browser on an accepted socket. Browsers hide the HTTP
    answer to a handshake from the page; only they send `Origin`. A proxy that can try another
    server asks for a status (docker/nginx.conf)."""
    code, headers = error.code, websocket.headers
    foreign = code.close_code == CloseCode.FORBIDDEN  # no socket opens to tell its page the reason
    full = code.status == HTTPStatus.SERVICE_UNAVAILABLE
    for_proxy = full and headers.get("x-refuse-with") == "status"
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        if "origin" not in headers or foreign or for_proxy:
            await websocket.send_denial_response(problem_response(error))
            return
        await websocket.accept(subprotocol=chosen_subprotocol(websocket))
        await websocket.send_text(Error.of(error).model_dump_json())
        await websocket.close(code.close_code, code)


def chosen_subprotocol(websocket: WebSocket) -> str | None:
    """The subprotocol to accept: a browser that offers any requires one; never its token."""
    return SUBPROTOCOL if SUBPROTOCOL in websocket.scope["subprotocols"] else None
