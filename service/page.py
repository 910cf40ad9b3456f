"""The page at / and its assets, with headers that let it load nothing from elsewhere."""

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from service.access.problems import answer_to
from service.protocol.faults import ErrorCode, ProtocolError

STATIC = Path(__file__).parent / "static"

HEADERS = {
    "Cache-Control": "no-cache",  # kept, but compared by ETag
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self), midi=(self)",
}


class PageFiles(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


def serve(app: FastAPI) -> None:
    """Serves the page at every address that no endpoint has. As the router's fallback, not as a
    mount at /: that would also answer for endpoints that are asked with the wrong method."""
    files = PageFiles(directory=STATIC, html=True)
    not_found = app.router.not_found

    async def page_or_nothing(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await files(scope, receive, send)
        elif scope["type"] == "websocket":
            fault = ProtocolError(ErrorCode.NOT_FOUND, "there is no websocket at this address")
            await WebSocket(scope, receive, send).send_denial_response(answer_to(fault))
        else:
            await not_found(scope, receive, send)

    app.router.default = page_or_nothing
