"""Who uses the service: an API key, or else an address; and the places each may hold."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

from service.access.keys import ApiKey

_SCOPE_KEY = "rse.client"


@dataclass(frozen=True, slots=True)
class Client:
    """A client by the name under which it is counted; limits of its own come with its key."""

    name: str
    max_sessions: int | None = None
    max_requests_per_s: float | None = None

    @classmethod
    def of_key(cls, key: ApiKey) -> Client:
        return cls(f"key {key.name}", key.max_sessions, key.max_requests_per_s)

    @classmethod
    def of_address(cls, scope: Scope) -> Client:
        """The peer; addresses of one IPv6 /64 network are one client, who owns them all."""
        peer = scope.get("client")
        try:
            address = ipaddress.ip_address(peer[0] if peer else "")
        except ValueError:
            return cls("address unknown")
        if address.version == 6:
            network = ipaddress.ip_network((address, 64), strict=False)
            return cls(f"address {network.network_address}/64")
        return cls(f"address {address}")


def client_of(scope: Scope) -> Client:
    """The client that the gate (`service.access.gate`) has found."""
    client: Any = scope[_SCOPE_KEY]
    assert isinstance(client, Client)
    return client


def set_client(scope: Scope, client: Client) -> None:
    """For the gate."""
    scope[_SCOPE_KEY] = client


class ClientPlaces:
    """How many places each client holds."""

    def __init__(self, each: int) -> None:
        self.each = each
        self._taken: Counter[str] = Counter()

    @contextmanager
    def take(self, client: Client, most: int | None = None) -> Iterator[bool]:
        """Holds a place while the block runs; yields False, and holds none, where all are taken."""
        if self._taken[client.name] >= (most or self.each):
            yield False
            return
        self._taken[client.name] += 1
        try:
            yield True
        finally:
            self._taken[client.name] -= 1
            if not self._taken[client.name]:
                del self._taken[client.name]
