"""Short-lived tokens that let pages open websockets.

A page cannot set the headers of a websocket handshake, and a key in the URL would end up in logs.
The page therefore sends its key to `POST /token`, which returns a signed token, and offers the
token as a websocket subprotocol. Every process with the same secret accepts the token.
"""

import logging
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from fastapi import APIRouter, Request, Response
from itsdangerous import BadData, URLSafeTimedSerializer

from service.access.keys import SCOPE_KEY, KeysError

logger = logging.getLogger(__name__)

TOKEN_LIFETIME_S = 30
MIN_SECRET_CHARACTERS = 32


def read_secret(setting: str, keys_file: str) -> str:
    """Return the secret that signs tokens: the setting or, if it is empty, the content of the file
    KEYS_FILE.secret. If this file is missing, create it with mode 600. Without a keys file, or if
    the file cannot be created, return a random secret for this process. Raises KeysError if the
    secret is too short or the file is unreadable."""
    secret, path = setting, Path(f"{keys_file}.secret")
    if not secret:
        if keys_file:
            with suppress(OSError):
                _make_secret(path)
        if not keys_file or not path.exists():
            logger.info("no RSE_SECRET: tokens are valid only for this process")
            return secrets.token_hex()
        try:
            secret = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise KeysError(f"cannot read the token secret: {error}") from None
    if len(secret) < MIN_SECRET_CHARACTERS:
        raise KeysError(f"the token secret has fewer than {MIN_SECRET_CHARACTERS} characters")
    return secret


def _make_secret(path: Path) -> None:
    """Write a random secret to the file atomically, unless the file exists. Raises OSError."""
    if path.exists():
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # with mode 600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_hex() + "\n")
        os.link(name, path)  # fails if the file exists
    finally:
        os.unlink(name)


class Tokens:
    """Issues and checks tokens."""

    def __init__(self, secret: str) -> None:
        self._signer = URLSafeTimedSerializer(secret, salt="token")

    def issue(self, client: str) -> str:
        # A subprotocol must not contain "=". The serializer's output does not.
        return str(self._signer.dumps(client))

    def owner(self, token: str) -> str | None:
        """Return the client that owns a token, or None if the token is invalid or expired."""
        try:
            return str(self._signer.loads(token, max_age=TOKEN_LIFETIME_S))
        except (BadData, UnicodeError):
            return None


router = APIRouter()


@router.post("/token")
async def new_token(request: Request, response: Response) -> dict[str, str | int]:
    response.headers["Cache-Control"] = "no-store"
    tokens: Tokens = request.app.state.service.tokens
    return {"token": tokens.issue(request.scope[SCOPE_KEY]), "expires_in_s": TOKEN_LIFETIME_S}
