"""Access control before every endpoint. Checks `Host`, `Origin`, and the API key or token.

Any web page can open a websocket to any address. If the site's name resolves to 127.0.0.1 (DNS
rebinding), the page even has the same origin as a service on that address. A service on loopback
without keys therefore accepts only allowed host names. From pages of other sites, every service
accepts only GET, HEAD and OPTIONS, unless RSE_ALLOWED_ORIGINS lists the site. An `Origin` that
cannot be parsed counts as another site. The files of the service's own page need no key.

This is plain ASGI, because the framework's middleware skips websockets.
"""

import ipaddress
import logging
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from prometheus_client import Counter
from starlette.datastructures import Headers
from starlette.routing import Match, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from service.access.keys import SCOPE_KEY, Keys
from service.access.problems import problem_response, record_rejection, reject_websocket
from service.access.tokens import Tokens
from service.protocol.errors import ErrorCode, ProtocolError
from service.settings import Settings, is_loopback

logger = logging.getLogger(__name__)

# Load balancers poll these paths with any host name. The responses contain no private data.
PROBES = frozenset({"/healthz", "/readyz"})
DESCRIPTIONS = frozenset({"/docs", "/docs/oauth2-redirect", "/openapi.json"})
# A page of any site can make a browser send these requests, but cannot read the responses.
_HARMLESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
TOKEN_SUBPROTOCOL = "rse.token."

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_DEFAULT_PORTS = {"http": 80, "https": 443}
# Host and port (RFC 3986, section 3.2). `Host` and `Origin` contain no user names or escapes.
_AUTHORITY = re.compile(
    r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:(?P<port>[0-9]{1,5}))?", re.IGNORECASE
)


@dataclass
class Gate:
    """ASGI application that forwards a request or rejects it. ``routes`` contains the endpoints.
    All other paths belong to the page. ``refused`` counts rejections by error code."""

    app: ASGIApp
    routes: Router
    settings: Settings
    keys: Keys
    tokens: Tokens
    refused: Counter

    def __post_init__(self) -> None:
        self._hosts = self.settings.allowed_hosts
        if self.keys:
            return
        host = self.settings.host
        if is_loopback(host):  # otherwise DNS rebinding would give any page access
            self._hosts += LOOPBACK_HOSTS
        else:
            logger.warning(
                "no API keys: the service listens on %s, and anyone who can reach it may use it",
                host,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # If a proxy serves the application below a path, the request's path starts with that path.
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if scope["type"] not in ("http", "websocket") or path in PROBES:
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope[SCOPE_KEY] = client_name_for(scope.get("client"))
        error = self._check_host_and_origin(scope, headers) or self._authenticate(
            scope, path, headers
        )
        if error is None:
            await self.app(scope, receive, send)
            return
        record_rejection(self.refused, error, scope[SCOPE_KEY])
        if scope["type"] == "http":
            await problem_response(error)(scope, receive, send)
        else:
            await reject_websocket(WebSocket(scope, receive, send), error)

    def _check_host_and_origin(self, scope: Scope, headers: Headers) -> ProtocolError | None:
        host = headers.get("host")
        if len(headers.getlist("host")) > 1:  # a proxy may have checked a different one
            return ProtocolError(ErrorCode.HOST_NOT_ALLOWED, "the request has several Host headers")
        if not host_allowed(host, self._hosts):
            return ProtocolError(
                ErrorCode.HOST_NOT_ALLOWED, "this host is not in RSE_ALLOWED_HOSTS"
            )
        if scope["type"] == "http" and scope["method"] in _HARMLESS_METHODS:
            return None
        if not origin_allowed(headers.get("origin"), host, self.settings.allowed_origins):
            message = "this origin is not in RSE_ALLOWED_ORIGINS"
            return ProtocolError(ErrorCode.ORIGIN_NOT_ALLOWED, message)
        return None

    def _authenticate(self, scope: Scope, path: str, headers: Headers) -> ProtocolError | None:
        """Store the client's name in the scope if the path requires a key or token. Return an error
        if the key or token is missing or invalid."""
        # Every path that matches no route belongs to the page.
        is_open = path in DESCRIPTIONS or all(
            route.matches(scope)[0] is Match.NONE for route in self.routes.routes
        )
        if is_open or not self.keys:
            return None
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            client = self.keys.client(secret.strip())
        else:
            offered = scope.get("subprotocols", ())
            token = next((name for name in offered if name.startswith(TOKEN_SUBPROTOCOL)), "")
            client = self.tokens.owner(token.removeprefix(TOKEN_SUBPROTOCOL))
        # The key may have been removed after the token was issued.
        if client is None or not self.keys.has_client(client):
            return ProtocolError(ErrorCode.UNAUTHORIZED, "no valid API key or token")
        scope[SCOPE_KEY] = client
        return None


def client_name_for(peer: Sequence[Any] | None) -> str:
    """Return a name for the client at an address. All addresses of an IPv6 /64 network have the
    same name, because such a network usually has one owner."""
    address = peer[0] if peer else "unknown"
    with suppress(ValueError):
        mapped = ipaddress.IPv6Address(address).ipv4_mapped  # IPv4 on a dual-stack socket
        address = mapped or ipaddress.IPv6Network((address, 64), strict=False)
    return f"address {address}"


def host_allowed(host: str | None, allowed: Collection[str]) -> bool:
    """True if the name in a `Host` header is allowed, with any port. `*.example.org` matches
    subdomains. If ``allowed`` is empty, every name is allowed."""
    name, _ = _split(host)
    return not allowed or any(fnmatchcase(name, entry) for entry in allowed)


def origin_allowed(origin: str | None, host: str | None, allowed: Collection[str]) -> bool:
    """True if a request comes from a program (no `Origin`), from an allowed origin, or from the
    service's own page (`Origin` is the `Host`). For this page, `http` and `https` are not
    distinguished, except for their default ports, because a proxy may terminate TLS. Other schemes
    are rejected."""
    if origin is None or origin in allowed:
        return True
    scheme, _, authority = origin.partition("://")
    default = _DEFAULT_PORTS.get(scheme.lower(), 0)
    name, port = _split(authority)
    own_name, own_port = _split(host)
    return bool(name and default) and (name, port or default) == (own_name, own_port or default)


def _split(authority: str | None) -> tuple[str, int]:
    """Return the host name, in lower case without brackets, and the port, which is 0 if missing.
    Return ("", 0) if the authority cannot be parsed."""
    match = _AUTHORITY.fullmatch(authority or "")
    port = int(match["port"] or 0) if match else 0
    if match is None or port > 65535:
        return "", 0
    return match["name"].lower().strip("[]"), port
