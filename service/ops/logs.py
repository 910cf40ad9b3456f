"""Formats logs as text or as one JSON object per line (`RSE_LOG_FORMAT`).

Each line about a session contains the session's ID. Keys, tokens and the queries of URLs, which may
contain keys, are never logged. Line breaks in a client's text are escaped.
"""

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

from service.protocol.command_line import one_line

# Session ID of the current task, which the tasks that it starts inherit.
session_id: ContextVar[str] = ContextVar("session_id", default="")


class TextFormatter(logging.Formatter):
    """Formats records as text: time, level, logger, message, session ID and extra fields."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = f"{record.asctime} {record.levelname} {record.name}: {record.message}"
        if session := session_id.get():
            line += f" [{session}]"
        fields = getattr(record, "fields", {})
        return one_line(line + "".join(f" {name}={value}" for name, value in fields.items()))

    def formatException(self, ei: Any) -> str:
        return "\n".join(f"  {line}" for line in super().formatException(ei).splitlines())

    def usesTime(self) -> bool:
        return True


class JsonFormatter(logging.Formatter):
    """Formats records as JSON: time (RFC 3339, UTC), level, logger, message, session_id, exception
    and extra fields (`extra={"fields": ...}`)."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if session := session_id.get():
            line["session_id"] = session
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({**line, **getattr(record, "fields", {}), **line}, default=str)


def configure(log_format: Literal["text", "json"]) -> None:
    """Log messages of level INFO and above to standard error. The library does not call this."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # uvicorn would log every handshake with its query. The service logs rejections and sessions.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
