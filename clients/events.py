"""Exceptions of the client, and events that it emits in addition to the service's events."""

from dataclasses import dataclass

from service.protocol.server_messages import Done, Error, Ready, SessionEvent


class TranscriptionError(Exception):
    """The transcription failed. ``done`` contains the notes up to the failure, or is None if the
    server did not send them. If ``retryable`` is True, another session may succeed."""

    def __init__(self, message: str, *, retryable: bool = False, done: Done | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.done = done


class ConnectError(TranscriptionError):
    """The service is unreachable, or it rejected the connection."""


class ConnectionLostError(TranscriptionError):
    """The connection broke or was too slow, or the server became unresponsive, before ``done``."""


class ServerError(TranscriptionError):
    """The server ended the session with an error. ``code`` is one of the codes in PROTOCOL.md."""

    def __init__(self, error: Error, done: Done | None = None) -> None:
        super().__init__(f"{error.message} ({error.code})", retryable=error.retryable, done=done)
        self.code = error.code


class SessionEndedError(TranscriptionError):
    """The session has ended, the client was closed, or the service is shutting down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A session has started. ``resumed`` is True if it continues the previous session."""

    ready: Ready
    resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected:
    """A session failed or could not be opened. The client retries after ``retry_s`` seconds."""

    error: TranscriptionError
    retry_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The client dropped ``lost_samples`` samples per channel. The gap ends at ``time_s``."""

    lost_samples: int
    time_s: float


Event = SessionEvent | Connected | Disconnected | Gap
