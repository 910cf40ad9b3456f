"""Clients: API keys or, without keys, addresses."""

import ipaddress
from dataclasses import dataclass
from typing import Any, Self

from starlette.types import Scope

from service.access.keys import ApiKey

_SCOPE_KEY = "rse.client"


@dataclass(frozen=True, slots=True)
class Client:
    """A client, counted by name, with the limits of its key."""

    name: str
    max_sessions: int | None = None
    max_requests_per_s: float | None = None

    @classmethod
    def of_key(cls, key: ApiKey) -> Self:
        return cls(f"key {key.name}", key.max_sessions, key.max_requests_per_s)

    @classmethod
    def of_address(cls, scope: Scope) -> Self:
        """The peer; an IPv6 /64 network, which has one owner, is one client."""
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
    """The client that the gate (`service.access.gate`) identified."""
    client: Any = scope[_SCOPE_KEY]
    assert isinstance(client, Client)
    return client


def set_client(scope: Scope, client: Client) -> None:
    scope[_SCOPE_KEY] = client
