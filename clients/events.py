"""Events for the caller of a client, from the service and from the connection."""

from dataclasses import dataclass

from clients.errors import TranscriptionError
from service.protocol.server_messages import Ready, SessionEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A session has begun; ``resumed`` if it continues the notes of the previous one."""

    ready: Ready
    resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected:
    """A session was lost or refused; the next attempt follows in ``retry_s`` seconds."""

    error: TranscriptionError
    retry_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Audio was lost: ``lost_samples`` of it, up to ``time_s`` seconds of the performance."""

    lost_samples: int
    time_s: float


Event = SessionEvent | Connected | Disconnected | Gap
