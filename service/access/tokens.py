"""`POST /token`: a short-lived token with which a page opens one websocket.

A page cannot set headers of a websocket's handshake, and URLs end up in logs and histories. So it
sends its key here and offers the token as a subprotocol.

A token states its owner and expiry, signed with a secret. Replicas of a cluster share the secret,
since a page's two requests may reach two of them; each remembers the tokens that it accepted. (What
itsdangerous would do of this is ten lines.)
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import asdict
from time import monotonic

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from service.access.clients import Client, client_of
from service.access.problems import Problem, asks_for_status, responses
from service.protocol.faults import ErrorCode

MAX_SPENT = 10_000  # used tokens remembered until they expire; beyond it no token is valid

_MAC_BYTES = hashlib.sha256().digest_size


class TokenBook:
    """Issues tokens and accepts each one once."""

    def __init__(
        self,
        lifetime_s: float,
        secret: bytes | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Args:
        secret: shared by the replicas of a cluster; None makes one for this process.
        clock: on a cluster wall-clock time, roughly equal on all nodes.
        """
        self.lifetime_s = lifetime_s
        self._secret = secret or secrets.token_bytes(32)
        self._clock = clock
        self._spent: dict[bytes, float] = {}  # expiry times, oldest first

    def issue(self, client: Client) -> str:
        claims = {
            "client": asdict(client),
            "expires_s": self._clock() + self.lifetime_s,
            "nonce": secrets.token_hex(16),
        }
        message = json.dumps(claims).encode()
        return base64.urlsafe_b64encode(self._mac(message) + message).decode().rstrip("=")

    def owner(self, token: str) -> Client | None:
        """The owner of a token; None if it is forged, already used here or expired."""
        message = self._signed(token)
        if message is None:
            return None
        claims = json.loads(message)
        spent = self._is_full() or message in self._spent
        too_old = self._clock() >= claims["expires_s"]
        return None if spent or too_old else Client(**claims["client"])

    def spend(self, token: str) -> None:
        message = self._signed(token)
        if message is not None and not self._is_full():
            self._spent[message] = self._clock() + self.lifetime_s

    def _is_full(self) -> bool:
        """Whether no more used tokens can be remembered."""
        now_s = self._clock()
        while self._spent and next(iter(self._spent.values())) <= now_s:
            del self._spent[next(iter(self._spent))]
        return len(self._spent) >= MAX_SPENT

    def _signed(self, token: str) -> bytes | None:
        try:
            signed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except ValueError:
            return None
        mac, message = signed[:_MAC_BYTES], signed[_MAC_BYTES:]
        return message if hmac.compare_digest(mac, self._mac(message)) else None

    def _mac(self, message: bytes) -> bytes:
        return hmac.digest(self._secret, message, "sha256")


class Token(BaseModel):
    """Opens one websocket with the subprotocols `rse.v1` and `rse.token.TOKEN`."""

    token: str
    expires_in_s: float


def token_router(tokens: TokenBook, full: Callable[[], Problem | None]) -> APIRouter:
    """The endpoint; `full` returns why no session can begin now."""
    router = APIRouter(tags=["access"])

    @router.post(
        "/token",
        summary="A token for one websocket",
        responses=responses(
            ErrorCode.UNAUTHORIZED,
            ErrorCode.TOO_MANY_REQUESTS,
            ErrorCode.TOO_MANY_SESSIONS,
            ErrorCode.NOT_READY,
            ErrorCode.DRAINING,
        ),
    )
    async def new_token(request: Request, response: Response) -> Token:
        """For pages, which cannot send a key with a websocket's handshake.

        Servers behind a proxy do not share tokens, so a full one makes the proxy try another.
        """
        if asks_for_status(request.headers) and (refusal := full()) is not None:
            raise refusal
        response.headers["Cache-Control"] = "no-store"
        return Token(token=tokens.issue(client_of(request.scope)), expires_in_s=tokens.lifetime_s)

    return router
