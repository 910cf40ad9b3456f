"""How a session with the service can fail."""

from service.protocol.server_messages import Done, Error


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
