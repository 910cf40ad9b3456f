"""Turns errors into HTTP problem documents (RFC 9457, `application/problem+json`), and rejects
websockets."""

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
MAX_ERRORS = 10  # maximum number of validation errors that a response contains

_FRAMEWORK_CODES = (ErrorCode.BAD_UPLOAD, ErrorCode.NOT_FOUND, ErrorCode.METHOD_NOT_ALLOWED)


def problem_response(error: ProtocolError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the problem document of an error, with `Retry-After` if the error is retryable."""
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
    """Return the response to an exception of an endpoint or the framework."""
    match error:
        case ProtocolError():
            return problem_response(error)
        case HTTPException():
            codes = (code for code in _FRAMEWORK_CODES if code.status == error.status_code)
            code = next(codes, ErrorCode.INTERNAL)
            return problem_response(ProtocolError(code, str(error.detail)), error.headers)
        case RequestValidationError():
            messages = [
                format_error({**e, "loc": e["loc"][1:]}) for e in error.errors()[:MAX_ERRORS]
            ]
            return problem_response(ProtocolError(ErrorCode.BAD_PARAMETER, "; ".join(messages)))
        case _:  # not sent: the exception's message may contain names of files or settings
            return problem_response(server_error(error))


HANDLERS: dict[int | type[Exception], Any] = dict.fromkeys(
    (ProtocolError, HTTPException, RequestValidationError, Exception), handle_exception
)
"""Exception handlers that turn every HTTP error of an application into a problem document."""


def record_rejection(refused: Counter, error: ProtocolError, client: str) -> None:
    refused.labels(error.code).inc()
    logger.info("rejected: %s", error, extra={"fields": {"code": error.code, "client": client}})


async def reject_websocket(websocket: WebSocket, error: ProtocolError) -> None:
    """Reject a websocket with an HTTP response, or accept it and send the error as a message.

    Browsers, which send `Origin`, hide the HTTP response from the page, so they get the message,
    unless the host or origin is not allowed or a proxy can try another server (docker/nginx.conf).
    """
    code = error.code
    is_foreign = code.close_code == CloseCode.FORBIDDEN
    as_status = "origin" not in websocket.headers or is_foreign or proxy_can_retry(websocket, error)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        if as_status:
            await websocket.send_denial_response(problem_response(error))
            return
        await websocket.accept(subprotocol=chosen_subprotocol(websocket))
        await websocket.send_text(Error.of(error).model_dump_json())
        await websocket.close(code.close_code, code)


def proxy_can_retry(websocket: WebSocket, error: ProtocolError) -> bool:
    """True if a proxy tries another server when it receives the status of this error."""
    is_full = error.code.status == HTTPStatus.SERVICE_UNAVAILABLE
    return is_full and websocket.headers.get("x-refuse-with") == "status"


def chosen_subprotocol(websocket: WebSocket) -> str | None:
    """Return the subprotocol to accept, or None. A browser that offers subprotocols requires that
    the server accepts one. The server never accepts the token, which is also offered as a
    subprotocol."""
    return SUBPROTOCOL if SUBPROTOCOL in websocket.scope["subprotocols"] else None
