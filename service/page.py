"""The page at / and its assets, with headers that let it load nothing from elsewhere."""

from pathlib import Path

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from service.access.problems import deny
from service.protocol.faults import ErrorCode, ProtocolError

STATIC = Path(__file__).parent / "static"

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self), midi=(self)",
}


class PageFiles(StaticFiles):
    """Static files, asked for again after an upgrade."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"  # kept, but compared by ETag
        return response


class SecurityHeaders:
    """Adds the headers to every HTTP response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def serve(app: FastAPI) -> None:
    """Serves the page at every address that no endpoint has.

    As the router's fallback, not as a mount at /: that would also answer for endpoints that are
    asked with the wrong method.
    """
    files = PageFiles(directory=STATIC, html=True)
    not_found = app.router.not_found

    async def page_or_nothing(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await files(scope, receive, send)
        elif scope["type"] == "websocket":
            fault = ProtocolError(ErrorCode.NOT_FOUND, "there is no websocket at this address")
            await deny(WebSocket(scope, receive, send), fault)
        else:
            await not_found(scope, receive, send)

    app.router.default = page_or_nothing
    app.add_middleware(SecurityHeaders)
