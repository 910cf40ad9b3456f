"""Refusals of websockets, with a reason that the client sees."""

import contextlib
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from service.access.problems import Problem
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.server_messages import Error


def asks_for_status(headers: Headers) -> bool:
    """Whether a proxy that can try another server sent the request (docker/nginx.conf).

    Any other client that sends the header only changes its own answer.
    """
    return headers.get("x-refuse-with") == "status"


async def refuse(
    websocket: WebSocket, error: ProtocolError, headers: dict[str, str] | None = None
) -> None:
    """Refuses before the upgrade, or for a browser on an accepted socket.

    Browsers hide the HTTP answer to a handshake from the page; only they send `Origin`.
    """
    status = error.code.status
    token_of_another = error.code is ErrorCode.UNAUTHORIZED and offered_token(websocket.scope)
    by_status = asks_for_status(websocket.headers) and (
        status == HTTPStatus.SERVICE_UNAVAILABLE or token_of_another
    )
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        if by_status:
            # nginx can try the next server after a 403, but not after a 401.
            await deny(websocket, error, headers, 403 if token_of_another else status)
        elif "origin" in websocket.headers:
            await websocket.accept(subprotocol=chosen_subprotocol(websocket))
            await websocket.send_text(Error.of(error).model_dump_json())
            await websocket.close(error.code.close_code, error.code)
        else:
            await deny(websocket, error, headers)


async def deny(
    websocket: WebSocket,
    error: ProtocolError,
    headers: dict[str, str] | None = None,
    status: int | None = None,
) -> None:
    """Answers the handshake with an HTTP error; `status` replaces the error's own."""
    response = Problem(error.code, error.message, headers=headers).response()
    response.status_code = status or response.status_code
    await websocket.send_denial_response(response)


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
