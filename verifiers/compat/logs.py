"""Logging as classic code sets it up, and its ways to print a time or a sample of rollouts.

Importing this library installs no handler; only calling `setup_logging` does.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any

from verifiers.parsers import content_text, message_field

LOGGER_NAME = "verifiers"
_FORMAT = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"
_DATE_FORMAT = "%Y-%m-%d %H:%M:%S"

_logged: set[tuple[str, str]] = set()


def setup_logging(
    level: str | None = "INFO",
    log_format: str | None = None,
    date_format: str | None = None,
    log_file: str | None = None,
    console_logging: bool = True,
    file_logging: bool = False,
    json_logging: bool = False,
) -> None:
    """Sends the library's log lines to stderr, a file or both, in place of where they went; `None` silences them."""
    logger = logging.getLogger(LOGGER_NAME)
    if file_logging and log_file is None:
        raise ValueError("file_logging=True needs a log_file")
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.propagate = False
    if level is None:
        logger.addHandler(logging.NullHandler())
        return
    logger.setLevel(_number(level))
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)] if console_logging else []
    if file_logging and log_file is not None:
        handlers.append(logging.FileHandler(log_file, encoding="utf-8"))
    formatter = (
        JsonFormatter() if json_logging else logging.Formatter(log_format or _FORMAT, date_format or _DATE_FORMAT)
    )
    for handler in handlers:
        handler.setFormatter(formatter)
        logger.addHandler(handler)


@contextmanager
def log_level(level: str | int) -> Iterator[None]:
    """The library's log level, for as long as a `with` block lasts."""
    logger = logging.getLogger(LOGGER_NAME)
    before = logger.level
    logger.setLevel(_number(level))
    try:
        yield
    finally:
        logger.setLevel(before)


def quiet_verifiers() -> AbstractContextManager[None]:
    """Only warnings, for as long as a `with` block lasts."""
    return log_level(logging.WARNING)


@contextmanager
def quiet_datasets() -> Iterator[None]:
    """The same for the `datasets` library."""
    logger = logging.getLogger("datasets")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def log_once(logger: logging.Logger, level: int, msg: str) -> None:
    """Logs a message the first time that this process sends it to this logger."""
    if (logger.name, msg) not in _logged:
        _logged.add((logger.name, msg))
        logger.log(level, msg)


def warning_once(logger: logging.Logger, msg: str) -> None:
    log_once(logger, logging.WARNING, msg)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "name": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def print_time(time_s: float) -> str:
    """A duration in at most two units; it returns the text.

    >>> print_time(0.25), print_time(42), print_time(3725), print_time(90000)
    ('250ms', '42s', '1h 2m', '1d 1h')
    """
    if time_s < 1:
        return f"{time_s * 1000:.0f}ms"
    if time_s < 60:
        return f"{time_s:.0f}s"
    for (large, size), (small, part) in (
        (("d", 86_400), ("h", 3600)),
        (("h", 3600), ("m", 60)),
        (("m", 60), ("s", 1)),
    ):
        if time_s >= size:
            whole, rest = divmod(time_s, size)
            return f"{whole:.0f}{large}" + (f" {rest // part:.0f}{small}" if rest >= part else "")
    raise AssertionError(time_s)


def print_prompt_completions_sample(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    errors: Sequence[Any],
    rewards: Sequence[float | None],
    step: int,
    num_samples: int = 1,
) -> None:
    """Prints the first rollouts of a training step: prompt, completion or error, reward."""
    rows = list(zip(prompts, completions, strict=False))[:num_samples]
    print(f"step {step}: {len(rows)} of {len(prompts)} rollouts")
    for number, (prompt, completion) in enumerate(rows):
        reward = rewards[number] if number < len(rewards) else None
        error = errors[number] if number < len(errors) else None
        told = "" if error is None else f"\nerror: {error}"
        print(f"--- prompt\n{messages_text(prompt)}\n--- completion\n{messages_text(completion)}{told}")
        print(f"--- reward: {'unscored' if reward is None else f'{reward:.2f}'}")


def messages_text(messages: Any) -> str:
    """Messages as text to read: a line with the role, then what was said, then the calls."""
    if messages is None or isinstance(messages, str):
        return messages or ""
    parts = []
    for message in messages:
        text = content_text(message_field(message, "content"))
        calls = "".join(f"\n[calls {call}]" for call in message_field(message, "tool_calls") or ())
        parts.append(f"{message_field(message, 'role')}: {text}{calls}")
    return "\n".join(parts)


def truncate(s: str, limit: int = 200) -> str:
    return s if len(s) <= limit else f"{s[:limit]}..."


def _number(level: str | int) -> int:
    if isinstance(level, int):
        return level
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"no log level '{level}'; there are: {', '.join(logging.getLevelNamesMapping())}")
    return number
