"""Errors of sessions and requests: a code for programs, a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class ErrorCode(StrEnum):
    """Why a session or request was refused or ended, over websocket and HTTP."""

    # the client's messages
    BAD_MESSAGE = "bad_message"
    BAD_START = "bad_start"
    UNSUPPORTED_ENCODING = "unsupported_encoding"
    BAD_SAMPLE_RATE = "bad_sample_rate"
    BAD_CHANNELS = "bad_channels"
    BAD_MODE = "bad_mode"
    BAD_LOOKAHEAD = "bad_lookahead"
    BAD_BLOCK_FRAMES = "bad_block_frames"
    BAD_INSTRUMENTS = "bad_instruments"
    BAD_RESUME = "bad_resume"
    UNKNOWN_MODEL = "unknown_model"
    NOT_STARTED = "not_started"
    ALREADY_STARTED = "already_started"
    MESSAGE_TOO_BIG = "message_too_big"
    # the client's audio
    BAD_AUDIO = "bad_audio"
    ODD_BYTES = "odd_bytes"
    TOO_MANY_NOTES = "too_many_notes"
    # limits of time and place
    IDLE_TIMEOUT = "idle_timeout"
    SESSION_TOO_LONG = "session_too_long"
    SLOW_READER = "slow_reader"
    TOO_MANY_SESSIONS = "too_many_sessions"
    # access
    UNAUTHORIZED = "unauthorized"
    HOST_NOT_ALLOWED = "host_not_allowed"
    ORIGIN_NOT_ALLOWED = "origin_not_allowed"
    TOO_MANY_REQUESTS = "too_many_requests"
    CLIENT_LIMIT = "client_limit"
    TOO_SLOW = "too_slow"
    # the server's own state
    NOT_READY = "not_ready"
    DRAINING = "draining"
    INTERNAL = "internal"
    # uploads
    BAD_PARAMETER = "bad_parameter"
    BAD_UPLOAD = "bad_upload"
    UPLOAD_TOO_LARGE = "upload_too_large"
    AUDIO_TOO_LONG = "audio_too_long"
    UNDECODABLE = "undecodable"
    EMPTY_AUDIO = "empty_audio"
    TOO_MANY_UPLOADS = "too_many_uploads"
    DISK_FULL = "disk_full"
    # any request
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"


class CloseCode:
    """Numbers in the websocket's close frame."""

    NORMAL = 1000
    GOING_AWAY = 1001
    INTERNAL = 1011
    BAD_REQUEST = 4400
    UNAUTHORIZED = 4401
    FORBIDDEN = 4403
    TIMEOUT = 4408
    TOO_BIG = 4413
    BUSY = 4429


CLOSE_CODES: Mapping[ErrorCode, int] = {
    ErrorCode.BAD_MESSAGE: CloseCode.BAD_REQUEST,
    ErrorCode.BAD_START: CloseCode.BAD_REQUEST,
    ErrorCode.UNSUPPORTED_ENCODING: CloseCode.BAD_REQUEST,
    ErrorCode.BAD_SAMPLE_RATE: CloseCode.BAD_REQUEST,
    ErrorCode.BAD_CHANNELS: CloseCode.BAD_REQUEST,
    ErrorCode.BAD_MODE: CloseCode.BAD_REQUEST,
    ErrorCode.BAD_LOOKAHEAD: CloseCode.BAD_REQUEST,
    ErrorCode.BAD_BLOCK_FRAMES: CloseCode.BAD_REQUEST,
    ErrorCode.BAD_INSTRUMENTS: CloseCode.BAD_REQUEST,
    ErrorCode.BAD_RESUME: CloseCode.BAD_REQUEST,
    ErrorCode.UNKNOWN_MODEL: CloseCode.BAD_REQUEST,
    ErrorCode.NOT_STARTED: CloseCode.BAD_REQUEST,
    ErrorCode.ALREADY_STARTED: CloseCode.BAD_REQUEST,
    ErrorCode.BAD_AUDIO: CloseCode.BAD_REQUEST,
    ErrorCode.ODD_BYTES: CloseCode.BAD_REQUEST,
    ErrorCode.MESSAGE_TOO_BIG: CloseCode.TOO_BIG,
    ErrorCode.TOO_MANY_NOTES: CloseCode.TOO_BIG,
    ErrorCode.IDLE_TIMEOUT: CloseCode.TIMEOUT,
    ErrorCode.SESSION_TOO_LONG: CloseCode.TIMEOUT,
    ErrorCode.SLOW_READER: CloseCode.TIMEOUT,
    ErrorCode.TOO_MANY_SESSIONS: CloseCode.BUSY,
    ErrorCode.UNAUTHORIZED: CloseCode.UNAUTHORIZED,
    ErrorCode.HOST_NOT_ALLOWED: CloseCode.FORBIDDEN,
    ErrorCode.ORIGIN_NOT_ALLOWED: CloseCode.FORBIDDEN,
    ErrorCode.TOO_MANY_REQUESTS: CloseCode.BUSY,
    ErrorCode.CLIENT_LIMIT: CloseCode.BUSY,
    ErrorCode.TOO_SLOW: CloseCode.BUSY,
    ErrorCode.NOT_READY: CloseCode.BUSY,
    ErrorCode.DRAINING: CloseCode.GOING_AWAY,
    ErrorCode.INTERNAL: CloseCode.INTERNAL,
}
"""Close code of each error of the live protocol; the HTTP statuses are in `access.problems`."""

RETRYABLE = frozenset(
    {
        ErrorCode.IDLE_TIMEOUT,
        ErrorCode.SESSION_TOO_LONG,
        ErrorCode.SLOW_READER,
        ErrorCode.TOO_MANY_SESSIONS,
        ErrorCode.TOO_MANY_REQUESTS,
        ErrorCode.CLIENT_LIMIT,
        ErrorCode.NOT_READY,
        ErrorCode.DRAINING,
        ErrorCode.INTERNAL,
    }
)
"""Errors after which the same client may succeed with the same audio."""


class ProtocolError(Exception):
    """A fault that ends a session: a code for programs and a sentence for people."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def close_code(self) -> int:
        return CLOSE_CODES[self.code]

    @property
    def retryable(self) -> bool:
        return self.code in RETRYABLE
