"""`Tool` definitions from functions, and tool-call arguments as models really write them."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec

from verifiers.calls import name_of
from verifiers.errors import ToolParseError
from verifiers.types import Tool

MAX_KEPT_ARGUMENTS = 64_000  # characters of tool-call arguments that stay in the conversation
_KEPT_OF_HUGE = 1_000


def tool_from(func: Callable[..., Any], skip: tuple[str, ...] | list[str] = ()) -> Tool:
    """The definition of `func` as a tool: schema from its annotations, texts from its docstring.

    `skip` hides arguments from the model. Raises TypeError for `*args` and for an annotation that has no JSON Schema.

    >>> def add(a: int, b: int = 0) -> int:
    ...     '''Add two numbers.
    ...
    ...     Args:
    ...         a: The first.
    ...     '''
    >>> tool_from(add).parameters["properties"]["a"]
    {'type': 'integer', 'description': 'The first.'}
    """
    plain = _plain_function(func)
    summary, texts = parse_docstring(inspect.getdoc(plain) or inspect.getdoc(func) or "")
    try:
        hints = get_type_hints(plain)
    except Exception:  # an annotation that names something not importable here
        hints = {}
    properties: dict[str, Any] = {}
    required: list[str] = []
    definitions: dict[str, Any] = {}
    for parameter in inspect.signature(func).parameters.values():
        if parameter.name in skip or parameter.name == "self" or parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise TypeError(f"tool {name_of(func)}: '{parameter}' cannot be filled by name; models call tools by name")
        schema, found = _schema_of(hints.get(parameter.name, Any), f"tool {name_of(func)}, argument {parameter.name}")
        definitions.update(found)
        if parameter.name in texts:
            schema = {**schema, "description": texts[parameter.name]}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif parameter.default is not None and isinstance(parameter.default, (str, int, float, bool)):
            schema = {**schema, "default": parameter.default}
        properties[parameter.name] = schema
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if definitions:
        parameters["$defs"] = definitions
    return Tool(name=name_of(func), description=summary, parameters=parameters)


def as_tool(definition: Any) -> Tool:
    """A `Tool` from our own, a flat dict, an OpenAI-shaped one ("function" inside), or an object with attributes."""
    if isinstance(definition, Tool):
        return definition
    if not isinstance(definition, Mapping):
        definition = definition.model_dump() if hasattr(definition, "model_dump") else vars(definition)
    inner = definition.get("function")
    return Tool(**dict(inner if isinstance(inner, Mapping) else definition))


def _plain_function(func: Callable[..., Any]) -> Callable[..., Any]:
    func = getattr(func, "func", func)  # functools.partial
    return func if inspect.isroutine(func) else func.__call__


def _schema_of(annotation: Any, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """JSON Schema of an annotation and the definitions it refers to."""
    if annotation is Any or annotation is inspect.Parameter.empty:
        return {}, {}
    try:
        (schema,), found = msgspec.json.schema_components([annotation], ref_template="#/$defs/{name}")
        return schema, found
    except TypeError:
        pass
    from pydantic import TypeAdapter  # for pydantic models as arguments

    try:
        schema = TypeAdapter(annotation).json_schema(ref_template="#/$defs/{model}")
    except Exception as error:
        raise TypeError(f"{where}: no JSON Schema for the annotation {annotation!r} ({error})") from error
    found = schema.pop("$defs", {})
    schema.pop("title", None)
    return schema, found


_SECTION = re.compile(r"^(args|arguments|parameters|params|returns?|yields?|raises|examples?|notes?)\s*:?\s*$", re.I)
_SPHINX = re.compile(r"^\s*:param\s+(?:[\w\[\], |.]+\s+)?(\w+)\s*:\s*(.*)$")
_GOOGLE = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


def parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """(what comes before the first section, texts of the arguments): Google, NumPy or Sphinx style."""
    lines, summary, texts = text.splitlines(), [], {}
    index = 0
    while index < len(lines) and not _SECTION.match(lines[index].strip()) and not _SPHINX.match(lines[index]):
        summary.append(lines[index])
        index += 1
    section, current, indent = "", "", 0
    for line in lines[index:]:
        stripped = line.strip()
        if _SECTION.match(stripped):
            section, current = stripped.rstrip(":").lower(), ""
            continue
        if set(stripped) == {"-"}:
            continue
        depth = len(line) - len(line.lstrip())
        if match := _SPHINX.match(line):
            current, texts[match[1]], indent = match[1], match[2], depth
        elif section.startswith(("arg", "param")) and stripped:
            numpy = re.match(r"^(\w+)\s*(?::\s*\S.*)?$", stripped) if depth == 0 else None
            match = _GOOGLE.match(line) if depth and (not current or depth <= indent) else None
            if numpy:
                current, texts[numpy[1]], indent = numpy[1], "", depth
            elif match:
                current, texts[match[1]], indent = match[1], match[2], depth
            elif current:
                texts[current] = f"{texts[current]} {stripped}".strip()
    return "\n".join(summary).strip(), {name: value for name, value in texts.items() if value}


def parse_arguments(text: Any) -> dict[str, Any]:
    """The arguments of a tool call as a dict.

    Models and servers write an object, an object encoded twice, nothing at all, `null`, or an object followed by stray
    quotes; each of these is understood. Raises ToolParseError for anything else, with what was found.

    >>> parse_arguments('"{\\\\"x\\\\": 1}"'), parse_arguments('{}""'), parse_arguments("")
    ({'x': 1}, {}, {})
    """
    value = text
    if type(text) is str and text[:1] == "{":  # nearly all of them
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            pass
    for _ in range(3):  # at most encoded twice
        if isinstance(value, Mapping):
            return dict(value)
        if value is None:
            return {}
        if not isinstance(value, str):
            raise ToolParseError(f"the arguments must be a JSON object, got {_kind(value)}: {json.dumps(value)[:80]}")
        value = _decode(value)
    raise ToolParseError(f"the arguments must be a JSON object, got text: {text[:80]!r}")


def _decode(text: str) -> Any:
    stripped = text.strip()
    if not stripped:
        return None
    try:
        return json.loads(stripped, strict=False)  # models put raw newlines into strings
    except RecursionError:
        raise ToolParseError("the arguments are nested too deeply") from None
    except ValueError as error:
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode(stripped)
        except (ValueError, RecursionError):
            raise ToolParseError(f"the arguments are no valid JSON ({error}): {stripped[:120]!r}") from None
        if stripped[end:].strip(" \t\r\n\"'"):
            raise ToolParseError(f"the arguments are no valid JSON ({error}): {stripped[:120]!r}") from None
        return value


def _kind(value: Any) -> str:
    return {list: "a list", bool: "a boolean", int: "a number", float: "a number"}.get(
        type(value), type(value).__name__
    )


def kept_arguments(text: Any) -> str:
    """Arguments as they may stay in the conversation: an object, as JSON text, and not huge.

    What a model wrote is sent back to the server in every later turn. Servers whose chat template decodes arguments
    answer 400 to broken ones, and a huge call fills the context: either would end the rollout.
    """
    try:
        arguments = parse_arguments(text)
    except ToolParseError:
        return json.dumps({"invalid_arguments": cut(str(text), _KEPT_OF_HUGE)})
    whole = text if isinstance(text, str) and _is_strict_object(text) else json.dumps(_without_nan(arguments))
    return whole if len(whole) <= MAX_KEPT_ARGUMENTS else json.dumps({"cut_arguments": cut(whole, _KEPT_OF_HUGE)})


def _is_strict_object(text: str) -> bool:
    """Whether any server can decode it: then the model's own spelling stays."""
    try:
        return type(msgspec.json.decode(text)) is dict
    except (ValueError, RecursionError):
        return False


def _without_nan(value: Any) -> Any:
    """NaN and infinities, which Python's decoder takes and JSON does not have, as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, list) else value


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text) - length} more characters)"
