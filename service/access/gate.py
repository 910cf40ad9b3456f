"""Access control before every endpoint: `Host`, `Origin`, and a key or token.

Any web page may open a websocket to any address, and a site whose name resolves to 127.0.0.1 (DNS
rebinding) even has the same origin as a service there. A service on loopback without keys therefore
accepts only known host names, and every service rejects sockets and uploads from pages of other
sites. Headers that cannot be parsed are rejected. The page's files need no key.

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

# Machines poll these under any host name. The responses contain no private data.
PROBES = frozenset({"/healthz", "/readyz"})
DESCRIPTIONS = frozenset({"/docs", "/docs/oauth2-redirect", "/openapi.json"})
# Any page can make a browser send these requests, but cannot read the responses.
_HARMLESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
TOKEN_SUBPROTOCOL = "rse.token."

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_DEFAULT_PORTS = {"http": 80, "https": 443}
# RFC 3986, section 3.2, without user names and escapes, which neither header may have.
_AUTHORITY = re.compile(
    r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:(?P<port>[0-9]{1,5}))?", re.IGNORECASE
)


@dataclass
class Gate:
    """ASGI application that forwards a request or rejects it. ``routes`` distinguishes endpoints
    from the page's files; ``refused`` counts rejections by error code."""

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
            logger.warning("no API keys: anyone who can reach %s may use the service", host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A proxy may serve the application below a path, which is then part of the request's path.
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
        if len(headers.getlist("host")) > 1:  # a proxy may have checked the other one
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
        """Set the client's name if the path requires a key or token. Return an error if the key or
        token is missing or invalid."""
        # Every path that matches no route belongs to the page.
        is_open = path in DESCRIPTIONS or all(
            route.matches(scope)[0] is Match.NONE for route in self.routes.routes
        )
        if is_open or not self.keys:
            return None
        client = None
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
    """Return the name of the client at an address. A /64 network of IPv6 usually has one owner, so
    it counts as one client."""
    address = peer[0] if peer else "unknown"
    with suppress(ValueError):
        mapped = ipaddress.IPv6Address(address).ipv4_mapped  # a dual-stack socket maps IPv4
        address = mapped or ipaddress.IPv6Network((address, 64), strict=False)
    return f"address {address}"


def host_allowed(host: str | None, allowed: Collection[str]) -> bool:
    """True if a `Host` header, with any port, is allowed. `*.example.org` matches subdomains. An
    empty list allows every name."""
    name, _ = _split(host)
    return not allowed or any(fnmatchcase(name, entry) for entry in allowed)


def origin_allowed(origin: str | None, host: str | None, allowed: Collection[str]) -> bool:
    """True if a request comes from a program, which sends no `Origin`, from the service's page,
    whose origin is the `Host`, or from an allowed page. Schemes are not compared, because a proxy
    may terminate TLS."""
    if origin is None or origin in allowed:
        return True
    scheme, _, authority = origin.partition("://")
    default = _DEFAULT_PORTS.get(scheme.lower(), 0)
    name, port = _split(authority)
    own_name, own_port = _split(host)
    return bool(name and default) and (name, port or default) == (own_name, own_port or default)


def _split(authority: str | None) -> tuple[str, int]:
    """Return the host name in lower case without brackets, or "" if it cannot be parsed, and the
    port or 0."""
    match = _AUTHORITY.fullmatch(authority or "")
    port = int(match["port"] or 0) if match else 0
    if match is None or port > 65535:
        return "", 0
    return match["name"].lower().strip("[]"), port
