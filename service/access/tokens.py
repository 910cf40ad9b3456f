"""`POST /token`: a short-lived token with which a page opens a websocket.

A page cannot set headers of a websocket's handshake, and URLs end up in logs and histories. So it
sends its key here and offers the token as a subprotocol. Tokens are signed with a secret that
follows from the keys: every process with the same keys accepts them.
"""

import hashlib
import secrets
from dataclasses import asdict

from fastapi import APIRouter, Request, Response
from itsdangerous import BadData, URLSafeTimedSerializer

from service.access.clients import Client, client_of
from service.access.keys import Keys

LIFETIME_S = 30


class Tokens:
    """Issues tokens and tells their owners."""

    def __init__(self, keys: Keys) -> None:
        # The digests do not reveal the keys, nor a hash of them the digests.
        secret = hashlib.sha256(b"".join(sorted(keys))).digest() if keys else secrets.token_bytes()
        self._signer = URLSafeTimedSerializer(secret, salt="token")

    def issue(self, client: Client) -> str:
        # A subprotocol may hold no "=", which the serializer does not use.
        return str(self._signer.dumps(asdict(client)))

    def owner(self, token: str) -> Client | None:
        """None if it is forged or expired."""
        try:
            return Client(**self._signer.loads(token, max_age=LIFETIME_S))
        except (BadData, TypeError, UnicodeError):
            return None


def token_router(tokens: Tokens) -> APIRouter:
    router = APIRouter()

    @router.post("/token")
    async def new_token(request: Request, response: Response) -> dict[str, str | int]:
        response.headers["Cache-Control"] = "no-store"
        return {"token": tokens.issue(client_of(request.scope)), "expires_in_s": LIFETIME_S}

    return router
