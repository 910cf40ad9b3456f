"""Clients: API keys or, without keys, addresses; and room for their sessions and uploads."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from starlette.types import Scope

from service.protocol.faults import ErrorCode, ProtocolError

SCOPE_KEY = "rse.client"
_ROUNDING = 1e-6  # of sums of sizes


@dataclass(frozen=True, slots=True)
class Client:
    """A client, counted by name, with the limits of its key."""

    name: str
    max_sessions: int | None = None

    @classmethod
    def of_address(cls, scope: Scope) -> Self:
        """The peer; an IPv6 /64 network, which has one owner, is one client."""
        peer = scope.get("client")
        try:
            address = ipaddress.ip_address(peer[0] if peer else "")
        except ValueError:
            return cls("address unknown")
        address = getattr(address, "ipv4_mapped", None) or address  # ::ffff:a.b.c.d of a proxy
        if address.version == 6:
            network = ipaddress.ip_network((address, 64), strict=False)
            return cls(f"address {network.network_address}/64")
        return cls(f"address {address}")


def client_of(scope: Scope) -> Client:
    """The client that the gate (`service.access.gate`) identified."""
    client: Client = scope[SCOPE_KEY]
    return client


class Room:
    """Limited room, taken without waiting; each client has its share of it."""

    noun = "upload"

    def __init__(self, total: float) -> None:
        self.total = total
        self.taken = 0.0  # of the total
        self._clients: Counter[str] = Counter()  # reservations of each
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def count(self) -> int:
        """Reservations."""
        return self._clients.total()

    def has(self, size: float = 1.0, held: float = 0.0) -> bool:
        """Whether there is room for this size; ``held``: what a reservation takes up already."""
        return self.taken - held + size <= self.total + _ROUNDING

    @contextmanager
    def take(self, client: Client, most: int, size: float = 1.0) -> Iterator[Reservation]:
        """Hold room while the block runs. Raises ProtocolError if there is not enough, or the
        client has ``most`` reservations."""
        if not self.has(size):
            raise self.refusal()
        if self._clients[client.name] >= most:
            message = f"you already have {most} {self.noun}{'s' * (most > 1)}, the maximum"
            raise ProtocolError(ErrorCode.CLIENT_LIMIT, message)
        place = Reservation(self, size)
        self._clients[client.name] += 1
        self.taken += size
        self._empty.clear()
        try:
            yield place
        finally:
            self._clients[client.name] -= 1
            self._clients += Counter()  # forgets those that have none
            self.taken = self.taken - place.size if self._clients else 0.0
            if not self._clients:
                self._empty.set()

    def refusal(self) -> ProtocolError:
        """Why there is no room."""
        others = f"{self.count} other {self.noun}{'s' * (self.count != 1)}"
        return ProtocolError(ErrorCode.TOO_MANY_UPLOADS, f"the server is busy with {others}")

    async def wait_until_empty(self) -> None:
        await self._empty.wait()


class Reservation:
    def __init__(self, room: Room, size: float) -> None:
        self._room = room
        self.size = size

    def resize(self, size: float) -> bool:
        """Change the room that it takes up; False, and no change, if there is not enough."""
        if not self._room.has(size, self.size):
            return False
        self._room.taken += size - self.size
        self.size = size
        return True
