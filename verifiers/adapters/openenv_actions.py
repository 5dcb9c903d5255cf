"""What an OpenEnv environment and a model say to each other, as the other one reads it: actions from text, observations
as text. Plain functions of plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from verifiers.adapters.mcp import content_of
from verifiers.errors import EnvironmentFault

Schema = Mapping[str, Any]

_NUMBERS = {"integer": int, "number": float}
_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def is_tool_call(schema: Schema) -> bool:
    """Whether such an action is the call of a tool, with its name and arguments."""
    fields = schema.get("properties") or {}
    return ("tool_name" in fields and "arguments" in fields) or "call_tool" in _constants(schema)


def _constants(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [found for item in value for found in _constants(item)]
    if not isinstance(value, Mapping):
        return []
    here = [value["const"]] if "const" in value else list(value.get("enum") or ())
    return here + [found for item in value.values() for found in _constants(item)]


def action_in(text: str, schema: Schema) -> dict[str, Any]:
    """The action that `text` means: a JSON object, or the value of the one field that there is to fill.

    Raises ValueError, saying what is expected.

    >>> guess = {"properties": {"number": {"type": "integer"}}, "required": ["number"]}
    >>> action_in("7", guess), action_in('{"number": 7}', guess)
    ({'number': 7}, {'number': 7})
    """
    text = without_fence(text.strip())
    fields, only = fields_of(schema), only_field(schema)
    found = _object_in(text)
    if found is not None and (only is None or not set(found) - set(schema.get("properties") or found)):
        return found
    if not text or only is None:
        raise ValueError(expected(schema))
    kind = _kind(fields[only], schema)
    try:
        if kind in _NUMBERS:
            return {only: _NUMBERS[kind](text)}
        if kind == "boolean":
            return {only: _WORDS[text.lower()]}
        return {only: text if kind in ("string", None) else json.loads(text)}
    except (ValueError, LookupError):
        raise ValueError(expected(schema)) from None


def expected(schema: Schema) -> str:
    """What a reply should be, to be told to the model.

    >>> expected({"properties": {"x": {"type": "integer"}, "why": {"type": "string"}}, "required": ["x"]})
    'reply with one JSON object: {"x": integer, "why": string, may be left out}'
    """
    fields, only = fields_of(schema), only_field(schema)
    kinds = {name: _described(field, schema) for name, field in fields.items()}
    if only is not None and len(fields) == 1:
        return f"reply with the {only} alone" + ("" if kinds[only] == "string" else f" ({kinds[only]})")
    required = schema.get("required") or ()
    shown = [f'"{n}": {kind}' + ("" if n in required else ", may be left out") for n, kind in kinds.items()]
    return f"reply with one JSON object: {{{', '.join(shown)}}}"


def fields_of(schema: Schema) -> dict[str, Schema]:
    """The fields that say something: not the metadata that every action may have, nor a type that never varies."""
    fields = schema.get("properties") or {}
    return {name: field for name, field in fields.items() if name != "metadata" and "const" not in field}


def only_field(schema: Schema) -> str | None:
    """The one field that must be filled; where none must, the one that can."""
    fields = fields_of(schema)
    required = [name for name in schema.get("required") or () if name in fields]
    names = required or list(fields)
    return names[0] if len(names) == 1 else None


def without_fence(text: str) -> str:
    """The text without the fence that stands around all of it."""
    lines = text.splitlines()
    if len(lines) < 2 or not lines[0].startswith("```") or lines[-1].strip() != "```":
        return text
    return "\n".join(lines[1:-1]).strip()


def _object_in(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _kind(field: Schema, schema: Schema) -> str | None:
    """The JSON type of a field, references and "or null" looked through; None for anything goes."""
    if "$ref" in field:
        name = str(field["$ref"]).rpartition("/")[2]
        field = (schema.get("$defs") or {}).get(name) or {}
    options = [option for option in field.get("anyOf") or () if option.get("type") != "null"]
    if len(options) == 1:
        return _kind(options[0], schema)
    kind = field.get("type")
    return kind if isinstance(kind, str) else None


def _described(field: Schema, schema: Schema) -> str:
    if "$ref" in field:
        return _described((schema.get("$defs") or {}).get(str(field["$ref"]).rpartition("/")[2]) or {}, schema)
    if choices := field.get("enum"):
        return " or ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
    return _kind(field, schema) or "any value"


def worded(observation: Any) -> str:
    """An observation in words: its text where there is nothing else in it, otherwise JSON.

    >>> worded({"text": "Too low.", "hint": None}), worded({"left": 3, "text": "Go."})
    ('Too low.', '{"left": 3, "text": "Go."}')
    """
    if isinstance(observation, Mapping):
        said = [value for value in observation.values() if value not in (None, "", [], {})]
        if len(said) == 1 and isinstance(said[0], str):
            return said[0]
    return observation if isinstance(observation, str) else json.dumps(observation, ensure_ascii=False)


def tool_answer(observation: Any) -> Any:
    """The observation after a tool call as the content of its message. Raises EnvironmentFault for a broken server."""
    if not isinstance(observation, Mapping) or "tool_name" not in observation:
        return worded(observation)
    error, result = observation.get("error"), observation.get("result")
    if error is not None:
        kind, said = (error.get("error_type"), error.get("message")) if isinstance(error, Mapping) else (None, error)
        if kind == "transport_error":  # between the environment and its own tools: nothing that the model did
            raise EnvironmentFault(f"the environment does not reach its tool '{observation['tool_name']}': {said}")
        return f"Error: {said}"
    if not isinstance(result, Mapping) or not isinstance(result.get("content"), list):
        return worded(result)
    if result.get("is_error"):
        return f"Error: {content_of({'content': result['content']})}"
    if result["content"]:
        return content_of({"content": [_as_sent(block) for block in result["content"]]})
    return worded(result.get("data"))


def _as_sent(block: Mapping[str, Any]) -> dict[str, Any]:
    """A content block under the names of the protocol: the server writes them as Python does."""
    renamed = {**block, "mimeType": block.get("mimeType") or block.get("mime_type")}
    if isinstance(block.get("resource"), Mapping):
        renamed["resource"] = _as_sent(block["resource"])
    return renamed
