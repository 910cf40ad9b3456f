"""`POST /token`: a short-lived token with which a page opens a websocket.

A page cannot set headers of a websocket's handshake, and URLs end up in logs and histories. So it
sends its key here and offers the token as a subprotocol. Tokens are signed with a secret that
follows from the keys: every process with the same keys accepts them.
"""

from dataclasses import asdict

from fastapi import APIRouter, Request, Response
from itsdangerous import BadData, URLSafeTimedSerializer
from pydantic import BaseModel

from service.access.clients import Client, client_of
from service.access.keys import KeyRing

LIFETIME_S = 30


class Tokens:
    """Issues tokens and tells their owners."""

    def __init__(self, keys: KeyRing) -> None:
        self._signer = URLSafeTimedSerializer(keys.secret, salt="token")

    def issue(self, client: Client) -> str:
        # A subprotocol may hold no "=", which the serializer does not use.
        return str(self._signer.dumps(asdict(client)))

    def owner(self, token: str) -> Client | None:
        """None if it is forged or expired."""
        try:
            return Client(**self._signer.loads(token, max_age=LIFETIME_S))
        except (BadData, TypeError, UnicodeError):
            return None


class Token(BaseModel):
    """Opens a websocket with the subprotocols `rse.v1` and `rse.token.TOKEN`."""

    token: str
    expires_in_s: float


def token_router(tokens: Tokens) -> APIRouter:
    router = APIRouter(tags=["access"])

    @router.post("/token", summary="A token for a websocket")
    async def new_token(request: Request, response: Response) -> Token:
        """For pages, which cannot send a key with a websocket's handshake."""
        response.headers["Cache-Control"] = "no-store"
        return Token(token=tokens.issue(client_of(request.scope)), expires_in_s=LIFETIME_S)

    return router
