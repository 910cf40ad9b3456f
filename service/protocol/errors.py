"""Errors of sessions and requests: a code for programs and a message for people."""

from __future__ import annotations

import errno
from enum import StrEnum


class CloseCode:
    """Status codes of a websocket's close frame."""

    NORMAL = 1000
    GOING_AWAY = 1001
    INTERNAL = 1011
    BAD_REQUEST = 4400
    UNAUTHORIZED = 4401
    FORBIDDEN = 4403
    TIMEOUT = 4408
    REPLACED = 4409
    TOO_BIG = 4413
    BUSY = 4429


class ErrorCode(StrEnum):
    """Reason why a session or request was rejected or ended.

    Attributes:
        close_code: close code of the websocket; 0 if the error does not occur on websockets. A
            handshake that is rejected with FORBIDDEN always gets an HTTP response.
        status: HTTP status; 0 if the error occurs on a websocket only.
        retryable: True if the client may send the same audio again later.
    """

    close_code: int
    status: int
    retryable: bool

    def __new__(
        cls, value: str, close_code: int, status: int = 0, retryable: bool = False
    ) -> ErrorCode:
        code = str.__new__(cls, value)
        code._value_ = value
        code.close_code, code.status, code.retryable = close_code, status, retryable
        return code

    # the client's messages
    BAD_MESSAGE = "bad_message", CloseCode.BAD_REQUEST
    BAD_START = "bad_start", CloseCode.BAD_REQUEST
    BAD_RESUME = "bad_resume", CloseCode.BAD_REQUEST
    UNKNOWN_MODEL = "unknown_model", CloseCode.BAD_REQUEST, 422
    NOT_STARTED = "not_started", CloseCode.BAD_REQUEST
    ALREADY_STARTED = "already_started", CloseCode.BAD_REQUEST
    MESSAGE_TOO_BIG = "message_too_big", CloseCode.TOO_BIG
    # the client's audio
    BAD_AUDIO = "bad_audio", CloseCode.BAD_REQUEST, 422
    ODD_BYTES = "odd_bytes", CloseCode.BAD_REQUEST
    TOO_MANY_NOTES = "too_many_notes", CloseCode.TOO_BIG, 413
    # limits of time and capacity
    IDLE_TIMEOUT = "idle_timeout", CloseCode.TIMEOUT, 408, True
    SESSION_TOO_LONG = "session_too_long", CloseCode.TIMEOUT, 0, True
    SLOW_READER = "slow_reader", CloseCode.TIMEOUT, 0, True
    TOO_MANY_SESSIONS = "too_many_sessions", CloseCode.BUSY, 503, True
    CLIENT_LIMIT = "client_limit", CloseCode.BUSY, 429, True
    TOO_SLOW = "too_slow", CloseCode.BUSY
    # access
    UNAUTHORIZED = "unauthorized", CloseCode.UNAUTHORIZED, 401
    HOST_NOT_ALLOWED = "host_not_allowed", CloseCode.FORBIDDEN, 421
    ORIGIN_NOT_ALLOWED = "origin_not_allowed", CloseCode.FORBIDDEN, 403
    # state of the session
    REPLACED = "replaced", CloseCode.REPLACED
    # state of the server
    NOT_READY = "not_ready", CloseCode.BUSY, 503, True
    DRAINING = "draining", CloseCode.GOING_AWAY, 503, True
    INTERNAL = "internal", CloseCode.INTERNAL, 500, True
    # uploads
    BAD_PARAMETER = "bad_parameter", 0, 422
    BAD_UPLOAD = "bad_upload", 0, 400
    UPLOAD_TOO_LARGE = "upload_too_large", 0, 413
    AUDIO_TOO_LONG = "audio_too_long", 0, 413
    UNDECODABLE = "undecodable", 0, 422
    BAD_SAMPLE_RATE = "bad_sample_rate", 0, 422
    EMPTY_AUDIO = "empty_audio", 0, 422
    DISK_FULL = "disk_full", 0, 507, True
    SCORE_TIMEOUT = "score_timeout", 0, 422
    TOO_MANY_UPLOADS = "too_many_uploads", 0, 503, True
    WORKERS_EXITED = "workers_exited", 0, 500
    # any request
    NOT_FOUND = "not_found", 0, 404
    METHOD_NOT_ALLOWED = "method_not_allowed", 0, 405


class ProtocolError(ValueError):
    """An error that ends a session or request. ``extra`` is added to the HTTP problem document."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message
        self.extra: dict[str, str] = {}

    def __str__(self) -> str:
        return self.message


def server_error(error: Exception) -> ProtocolError:
    """Return the error for a client whose request failed because of an exception in the server."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ProtocolError(ErrorCode.DISK_FULL, "the server's disk is full")
    return internal_error()


def internal_error() -> ProtocolError:
    return ProtocolError(ErrorCode.INTERNAL, "internal server error; the server log has details")
