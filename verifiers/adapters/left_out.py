"""What of a `TrainConfig` another trainer is not told: nothing that a file says goes missing without a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

import msgspec

from verifiers.rl.train_config import TrainConfig


def left_out(config: TrainConfig, said: Sequence[str], why: Mapping[str, str]) -> list[str]:
    """A line for each setting that is not its default and fits no pattern of `said`, with what `why` has of it.

    Names are dotted. Those of tables in a list have no number: `env.weight = 0.4, 0.6` is of two environments.
    """
    found: dict[str, list[str]] = {}
    for name, value in _given(config, ""):
        if not any(fnmatchcase(name, pattern) for pattern in said):
            found.setdefault(name, []).append(repr(value))
    return [
        f"{name} = {', '.join(dict.fromkeys(values))}: "
        + next((text for pattern, text in why.items() if fnmatchcase(name, pattern)), "no counterpart")
        for name, values in found.items()
    ]


def shared(name: str, values: Sequence[Any], notes: list[str]) -> Any:
    """The value that all tables have, or the first one's, with a note where they differ."""
    others = [value for value in values if value != values[0]]
    if others:
        notes.append(f"{name}: {values[0]!r} for all; there is one value, and some tables have {others[0]!r}")
    return values[0]


def _given(table: Any, place: str) -> Iterator[tuple[str, Any]]:
    for name, default in _defaults(table):
        value = getattr(table, name)
        several = cast(list[Any], value) if isinstance(value, list) else [value]
        inner = [one for one in several if is_dataclass(one) or isinstance(one, msgspec.Struct)]
        for one in inner:
            yield from _given(one, f"{place}{name}.")
        if not inner and value != default:
            yield place + name, value


def _defaults(table: Any) -> list[tuple[str, Any]]:
    """Fields and defaults; a field that must be given has one that is equal to nothing."""
    if is_dataclass(table):
        return [(one.name, _made(one.default, one.default_factory, MISSING)) for one in fields(table)]
    found = msgspec.structs.fields(cast(type[msgspec.Struct], type(table)))
    return [(one.name, _made(one.default, one.default_factory, msgspec.NODEFAULT)) for one in found]


def _made(default: Any, factory: Any, missing: Any) -> Any:
    if default is not missing:
        return default
    return object() if factory is missing else factory()
