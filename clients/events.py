"""Events that the client adds to those of the service, and exceptions of the client."""

from dataclasses import dataclass

from service.protocol.server_messages import Done, Error, Ready, SessionEvent


class TranscriptionError(Exception):
    """A session failed. ``done`` has the notes up to the failure, if the server sent it."""

    def __init__(self, message: str, *, retryable: bool = False, done: Done | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.done = done


class ConnectError(TranscriptionError):
    """The service is unreachable or busy."""


class ConnectionLostError(TranscriptionError):
    """The connection broke, or the server became unresponsive, before ``done``."""


class ServerError(TranscriptionError):
    """The server ended the session. ``code`` is an error code of PROTOCOL.md."""

    def __init__(self, error: Error, done: Done | None = None) -> None:
        super().__init__(f"{error.message} ({error.code})", retryable=error.retryable, done=done)
        self.code = error.code


class SessionEndedError(TranscriptionError):
    """The session accepts no audio and has no result, because it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A session has started. ``resumed`` is True if it continues the previous session."""

    ready: Ready
    resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected:
    """A session was lost or rejected. The client retries after ``retry_s``."""

    error: TranscriptionError
    retry_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Audio was dropped: ``lost_samples`` samples before ``time_s`` seconds of the performance."""

    lost_samples: int
    time_s: float


Event = SessionEvent | Connected | Disconnected | Gap
