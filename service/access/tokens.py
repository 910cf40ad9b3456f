"""`POST /token`: a short-lived token, good for one websocket, for pages.

A browser lets a page set no header of a websocket's handshake, and an address is written to logs
and histories; a subprotocol is neither. So a page shows its key here and its token there.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from time import monotonic

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from service.access.clients import Client, client_of
from service.access.problems import ProblemCode, busy, responses
from service.live.refusal import asks_for_status

router = APIRouter(tags=["access"])


class TokenBook:
    """The tokens that are out, by the hash of each, oldest first; each can be taken once."""

    def __init__(
        self, lifetime_s: float, max_tokens: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self.lifetime_s = lifetime_s
        self._max_tokens = max_tokens
        self._clock = clock
        self._issued: dict[bytes, tuple[float, Client]] = {}

    def issue(self, client: Client) -> str | None:
        """A token for this client; None while too many are out."""
        now_s = self._clock()
        for digest, (expires_s, _) in list(self._issued.items()):
            if expires_s > now_s:
                break
            del self._issued[digest]
        if len(self._issued) >= self._max_tokens:
            return None
        token = secrets.token_urlsafe(32)
        self._issued[_digest(token)] = (now_s + self.lifetime_s, client)
        return token

    def owner(self, token: str) -> Client | None:
        """Whose token this is; None where it is unknown, spent or too old."""
        expires_s, client = self._issued.get(_digest(token), (0.0, None))
        return client if self._clock() < expires_s else None

    def spend(self, token: str) -> None:
        """From here on it is nobody's."""
        self._issued.pop(_digest(token), None)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", errors="surrogateescape")).digest()


class Token(BaseModel):
    """Opens one websocket: offer the subprotocols `rse.v1` and `rse.token.` with the token."""

    token: str
    expires_in_s: float


@router.post(
    "/token",
    summary="A token for one websocket",
    responses=responses(
        ProblemCode.UNAUTHORIZED,
        ProblemCode.TOO_MANY_REQUESTS,
        ProblemCode.TOO_MANY_SESSIONS,
        ProblemCode.NOT_READY,
        ProblemCode.DRAINING,
    ),
)
async def new_token(request: Request, response: Response) -> Token:
    """For pages, which cannot send a key with a websocket's handshake.

    It is good at this server alone, so that a proxy is sent to one with room for the session.
    """
    state = request.app.state.service
    later = state.settings.retry_after_s
    if asks_for_status(request.headers):
        refusal = state.session_refusal(placed=state.sessions.free, client_placed=True)
        if refusal is not None:
            raise busy(ProblemCode(refusal.code), refusal.message, later)
    token = state.tokens.issue(client_of(request.scope))
    if token is None:
        raise busy(ProblemCode.TOO_MANY_REQUESTS, "too many tokens are out", later)
    response.headers["Cache-Control"] = "no-store"
    return Token(token=token, expires_in_s=state.tokens.lifetime_s)
