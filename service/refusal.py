"""How a websocket is refused where its client can see it."""

from __future__ import annotations

import contextlib
from http import HTTPStatus

from starlette.websockets import WebSocket, WebSocketDisconnect

from service.faults import ProtocolError
from service.problems import STATUS, Problem, ProblemCode
from service.server_messages import Error

# A proxy before several servers asks for a status, `X-Refuse-With: status`, and then another server
# (docker/nginx.conf). Whoever else says so changes nothing but its own answer.
REFUSE_WITH = "x-refuse-with"


async def refuse(
    websocket: WebSocket, error: ProtocolError, headers: dict[str, str] | None = None
) -> None:
    """Refuses before the upgrade; a browser is told on an accepted socket.

    A browser hides the HTTP answer to a handshake from its page; only browsers send `Origin`.
    """
    another_may_take_it = (
        STATUS[ProblemCode(error.code)] == HTTPStatus.SERVICE_UNAVAILABLE
        and websocket.headers.get(REFUSE_WITH) == "status"
    )
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        if "origin" in websocket.headers and not another_may_take_it:
            await websocket.accept(subprotocol=chosen_subprotocol(websocket))
            await websocket.send_text(Error.of(error).model_dump_json())
            await websocket.close(error.close_code, error.code)
        else:
            await deny(websocket, error, headers)


async def deny(
    websocket: WebSocket, error: ProtocolError, headers: dict[str, str] | None = None
) -> None:
    """Answers the handshake with an HTTP error, whoever asks."""
    problem = Problem(ProblemCode(error.code), error.message, headers=headers)
    await websocket.send_denial_response(problem.response())


SUBPROTOCOL = "rse.v1"
TOKEN_SUBPROTOCOL = "rse.token."


def chosen_subprotocol(websocket: WebSocket) -> str | None:
    """A browser that offers subprotocols gives up where none is chosen; its token is never said."""
    return SUBPROTOCOL if SUBPROTOCOL in websocket.scope["subprotocols"] else None
