"""Events of the client in addition to those of the service, and its exceptions."""

from dataclasses import dataclass

from service.protocol.server_messages import Done, Error, Ready, SessionEvent


class TranscriptionError(Exception):
    """A session failed. ``done``, if the server sent it, has the MIDI up to the failure."""

    def __init__(self, message: str, *, retryable: bool = False, done: Done | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.done = done


class ConnectError(TranscriptionError):
    """The service cannot be reached or accepts no session now."""


class ConnectionLostError(TranscriptionError):
    """The connection broke, or the server fell silent, before the session was done."""


class ServerError(TranscriptionError):
    """The server ended the session; ``code`` is one of PROTOCOL.md's."""

    def __init__(self, error: Error, done: Done | None = None) -> None:
        super().__init__(f"{error.message} ({error.code})", retryable=error.retryable, done=done)
        self.code = error.code


class SessionEndedError(TranscriptionError):
    """Audio was sent after the end of the session."""


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
