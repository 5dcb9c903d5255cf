"""Values in a record whose shape nobody promised: contents of messages, tool calls, infos."""

from __future__ import annotations

import json
from typing import Any, cast


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is a dict, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_json(value: Any) -> str:
    """A value spread over lines."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "(nested too deeply to be shown)"


def text_of(content: Any) -> str:
    """A message's content as text: its text parts joined.

    >>> text_of([{"type": "text", "text": "a"}, {"type": "image_url"}, {"text": "b"}]), text_of(None), text_of(3)
    ('a\\nb', '', '3')
    """
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [as_dict(part).get("text") for part in as_list(content)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return "" if content is None else as_json(content)
