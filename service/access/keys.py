"""API keys, and the short-lived tokens with which pages open websockets.

`rse-transcribe keys new NAME` makes a key; the server keeps only hashes. A line of the keys file,
or an entry of `RSE_KEYS`, is `NAME:SHA256`:

    alice:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae

A key has 256 random bits, so a plain hash is safe; slow hashes are for passwords.

A page cannot set headers of a websocket's handshake, and URLs end up in logs. So it sends its key
to `POST /token` and offers the token as a subprotocol. Tokens are signed with a secret that follows
from the keys: every process with the same keys accepts them.
"""

import argparse
import hashlib
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from fastapi import APIRouter, Request, Response
from itsdangerous import BadData, URLSafeTimedSerializer

PREFIX = "rse_"  # recognised by scanners for leaked secrets
TOKEN_LIFETIME_S = 30
SCOPE_KEY = "rse.client"  # the name of a request's client, set by the gate

_ENTRY = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63}):([0-9a-f]{64})")

Keys = dict[bytes, str]  # the names of clients by the SHA-256 of their keys


class KeysError(ValueError):
    """The keys file or setting is invalid; names the place, never a key."""


def hash_key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", errors="surrogateescape")).digest()


def read_keys(text: str, path: str) -> Keys:
    """The keys of a setting (separated by spaces) and of a file (one per line, `#` comments).

    Raises:
        KeysError: the file cannot be read, or an entry is malformed.
    """
    entries = [(f"entry {n}", entry) for n, entry in enumerate(text.split(), 1)]
    if path:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise KeysError(f"the keys file cannot be read: {error}") from None
        stripped = ((n, line.partition("#")[0].strip()) for n, line in enumerate(lines, 1))
        entries += [(f"line {n} of the keys file", entry) for n, entry in stripped if entry]
    clients: Keys = {}
    for where, entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise KeysError(f"{where} is not NAME:SHA256, as `rse-transcribe keys new` prints it")
        name = f"key {match[1]}"
        if name in clients.values():
            raise KeysError(f"{where}: the name {match[1]} occurs twice")
        clients[bytes.fromhex(match[2])] = name
    if (text or path) and not clients:
        raise KeysError("there are no keys in it, so every client would be refused")
    return clients


def main(arguments: Sequence[str] | None = None, prog: str = "rse-transcribe keys") -> int:
    """Makes a key; returns the exit status."""
    about = f"`{prog} new NAME >> keys` shows the key and appends its hash to the file."
    parser = argparse.ArgumentParser(prog=prog, description=about)
    parser.add_argument("command", choices=["new"])
    parser.add_argument("name", help="name of its owner; shown in logs")
    name = parser.parse_args(arguments).name
    secret = PREFIX + secrets.token_urlsafe(32)
    line = f"{name}:{hash_key(secret).hex()}"
    if _ENTRY.fullmatch(line) is None:
        print(
            f"a name is up to 64 letters, digits, '.', '_' and '-', not {name!r}", file=sys.stderr
        )
        return 2
    print(line)
    print(f"The key of {name}, shown only once: {secret}", file=sys.stderr)
    return 0


class Tokens:
    """Issues tokens and tells their owners."""

    def __init__(self, keys: Keys) -> None:
        # The digests do not reveal the keys, nor a hash of them the digests.
        secret = hashlib.sha256(b"".join(sorted(keys))).digest() if keys else secrets.token_bytes()
        self._signer = URLSafeTimedSerializer(secret, salt="token")

    def issue(self, client: str) -> str:
        # A subprotocol may hold no "=", which the serializer does not use.
        return str(self._signer.dumps(client))

    def owner(self, token: str) -> str | None:
        """None if it is forged or expired."""
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
