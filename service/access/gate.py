"""The gate before every endpoint: `Host`, `Origin`, key or token.

Plain ASGI, since framework middleware skips websockets. Endpoints get their client from
`service.access.clients.client_of`.

The page's files are open to everyone.
"""

import logging
from dataclasses import dataclass

from prometheus_client import Counter
from starlette.datastructures import Headers
from starlette.routing import Match, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from service.access.clients import SCOPE_KEY, Client, client_of
from service.access.keys import Keys, hash_key
from service.access.origins import LOOPBACK_HOSTS, host_allowed, host_is_private, origin_allowed
from service.access.problems import answer_to, deny, offered_token, record_refusal, refuse
from service.access.tokens import Tokens
from service.protocol.faults import ErrorCode, ProtocolError
from service.settings import Settings, is_loopback

logger = logging.getLogger(__name__)

# Polled by machines under any host name; the answers reveal next to nothing.
PROBES = frozenset({"/healthz", "/readyz"})

# Any page can make a browser send these, but cannot read the answers.
_HARMLESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass
class Gate:
    """Passes a request on, or refuses it with a reason that its client sees.

    Attributes:
        routes: of the application, to tell its endpoints from the page.
        refused: counts refusals by their code.
    """

    app: ASGIApp
    routes: Router
    settings: Settings
    keys: Keys
    tokens: Tokens
    refused: Counter

    def __post_init__(self) -> None:
        settings = self.settings
        self._hosts = settings.allowed_hosts
        # Without keys, DNS rebinding would give any page access: restrict the host names.
        self._open = not self.keys and not is_loopback(settings.host)
        if not self.keys and is_loopback(settings.host):
            self._hosts += LOOPBACK_HOSTS
        if self._open:
            logger.warning(
                "there are no API keys: anyone who can reach %s may use the service, under %s",
                settings.host,
                "the names of RSE_ALLOWED_HOSTS" if self._hosts else "any address or private name",
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in PROBES:
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope[SCOPE_KEY] = Client.of_address(scope)
        fault = self._foreign(scope, headers)
        if fault is not None:
            await self._answer(fault, scope, receive, send, hidden=True)
            return
        # Everything that no route matches is the page.
        if any(route.matches(scope)[0] is not Match.NONE for route in self.routes.routes):
            client = self._authenticate(scope, headers)
            if client is None:
                fault = ProtocolError(ErrorCode.UNAUTHORIZED, "a valid API key or token is needed")
                await self._answer(fault, scope, receive, send)
                return
            scope[SCOPE_KEY] = client
        await self.app(scope, receive, send)

    def _foreign(self, scope: Scope, headers: Headers) -> ProtocolError | None:
        """A fault if the request is meant for another server or comes from a foreign page."""
        host = headers.get("host")
        any_private = self._open and not self._hosts
        if not (host_is_private(host) if any_private else host_allowed(host, self._hosts)):
            message = "this host is not in RSE_ALLOWED_HOSTS"
            return ProtocolError(ErrorCode.HOST_NOT_ALLOWED, message)
        if scope["type"] == "http" and scope["method"] in _HARMLESS_METHODS:
            return None
        if not origin_allowed(headers.get("origin"), host, self.settings.allowed_origins):
            message = "this origin is not in RSE_ALLOWED_ORIGINS"
            return ProtocolError(ErrorCode.ORIGIN_NOT_ALLOWED, message)
        return None

    def _authenticate(self, scope: Scope, headers: Headers) -> Client | None:
        """The authenticated client; without keys, the address."""
        if not self.keys:
            return Client.of_address(scope)
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.keys.get(hash_key(secret.strip()))
        token = offered_token(scope)
        return self.tokens.owner(token) if token is not None else None

    async def _answer(
        self, fault: ProtocolError, scope: Scope, receive: Receive, send: Send, hidden: bool = False
    ) -> None:
        """Refuses; `hidden` does not open a socket to tell a page the reason."""
        record_refusal(self.refused, fault, client_of(scope))
        if scope["type"] == "http":
            await answer_to(fault)(scope, receive, send)
        else:
            websocket = WebSocket(scope, receive, send)
            await (deny if hidden else refuse)(websocket, fault)
