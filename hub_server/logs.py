"""Logs: one JSON object a line on standard error, without secrets."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, BinaryIO, cast

import msgspec
import structlog

from hub_server.redaction import may_hide, redacted

Logger = structlog.typing.FilteringBoundLogger

_ENCODER = msgspec.json.Encoder(enc_hook=repr)


def logger(level: str = "INFO", file: BinaryIO | None = None) -> Logger:
    """Writes to `file`, else to standard error as it is now."""
    return structlog.wrap_logger(
        structlog.BytesLogger(file or sys.stderr.buffer),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            line,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=True,
    ).bind()


def line(_logger: Any, _method: str, event: Any) -> bytes:
    """The last step: everything that will be written passes through the redaction, tracebacks too."""
    encoded = _ENCODER.encode(event)
    return _ENCODER.encode(_without_secrets(event)) if may_hide(encoded.decode()) else encoded


def _without_secrets(value: Any) -> Any:
    """Text by text and not in the finished line, whose quotes and backslashes are JSON's."""
    if isinstance(value, dict):
        return {key: _without_secrets(inner) for key, inner in cast("dict[str, Any]", value).items()}
    if value is None or isinstance(value, bool | int | float):
        return value
    return redacted(value if isinstance(value, str) else repr(value))


class LibraryLines(logging.Formatter):
    """Records of libraries (uvicorn, SQLAlchemy) in the same shape."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + "Z",
            "logger": record.name,
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return line(None, "", event).decode()


def take_over(level: str) -> None:
    """Sends what libraries log through here; for a process that is a hub and nothing else."""
    formatter = LibraryLines()
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.getLevelNamesMapping()[level.upper()], logging.INFO))
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        # The hub logs requests itself (`door.py`): a second line for each would cost a third of an index page.
        logging.getLogger(name).propagate = name != "uvicorn.access"
