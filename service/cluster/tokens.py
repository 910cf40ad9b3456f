"""Tokens of `POST /token` that any ingress replica takes, whichever gave them.

A page's two requests come to two replicas. So a token says whose it is and until when, signed
with a secret that the replicas share; each replica remembers the ones that it has let in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict

from service.access.clients import Client
from service.access.tokens import TokenBook

_MAC_BYTES = hashlib.sha256().digest_size


class SharedTokenBook(TokenBook):
    """Implements the book of a single process; a token is taken once by each replica."""

    def __init__(
        self,
        secret: bytes,
        lifetime_s: float,
        max_tokens: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Args:
        max_tokens: spent ones that are remembered; beyond it none is good until some expire.
        clock: that of the wall, about the same on all nodes.
        """
        super().__init__(lifetime_s, max_tokens, clock)
        self._secret = secret
        self._spent: dict[str, float] = {}  # until when, the oldest first

    def issue(self, client: Client) -> str:
        """A token for this client."""
        claims = {
            "client": asdict(client),
            "expires_s": self._clock() + self.lifetime_s,
            "nonce": secrets.token_hex(16),
        }
        message = json.dumps(claims).encode()
        return base64.urlsafe_b64encode(self._mac(message) + message).decode().rstrip("=")

    def owner(self, token: str) -> Client | None:
        """Whose token this is; None where it is forged, spent here or too old."""
        message = self._signed(token)
        if message is None:
            return None
        claims = json.loads(message)
        spent = self._is_full() or _name(message) in self._spent
        too_old = self._clock() >= claims["expires_s"]
        return None if spent or too_old else Client(**claims["client"])

    def spend(self, token: str) -> None:
        """From here on it is nobody's, at this replica."""
        message = self._signed(token)
        if message is not None and not self._is_full():
            self._spent[_name(message)] = self._clock() + self.lifetime_s

    def _is_full(self) -> bool:
        """Whether as many spent ones are remembered as may be, without those that are too old."""
        now_s = self._clock()
        while self._spent and next(iter(self._spent.values())) <= now_s:
            del self._spent[next(iter(self._spent))]
        return len(self._spent) >= self._max_tokens

    def _signed(self, token: str) -> bytes | None:
        """What a token says, if one of us has said it."""
        try:
            signed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except ValueError:
            return None
        mac, message = signed[:_MAC_BYTES], signed[_MAC_BYTES:]
        return message if hmac.compare_digest(mac, self._mac(message)) else None

    def _mac(self, message: bytes) -> bytes:
        return hmac.digest(self._secret, message, "sha256")


def _name(message: bytes) -> str:
    return hashlib.sha256(message).hexdigest()
