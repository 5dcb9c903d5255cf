"""`Declared`: what an environment's package says of itself in `[tool.verifiers.validate]`."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import msgspec

from verifiers.errors import ConfigError, one_line
from verifiers.installed import declared
from verifiers.refs import near


class Declared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`None`: not declared; what then holds is written beside the field."""

    reference: str | None = None  # "module:function", called with (messages, row); else the row's answer is written
    reference_reward: float | None = None  # the sum of the positive weights
    floor: float | None = None  # 0.0, and only of the reward function that weighs most
    reward_range: tuple[float, float] | None = None  # the sums of the negative and of the positive weights
    answer_in_context: str | None = None  # why an answer may stand in its own prompt
    network: bool = False

    def policy(self) -> Callable[..., Any] | None:
        """The reference policy. Raises ConfigError when there is no such function."""
        if self.reference is None:
            return None
        module, _, name = self.reference.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(
                f'reference = "{self.reference}": {one_line(error)}. Write it as "module:function"'
            ) from error
        if not callable(found):
            raise ConfigError(f'reference = "{self.reference}" is no function but {type(found).__name__}')
        return found


def declared_of(env_id: str) -> Declared:
    """Raises ConfigError naming the key, or the value that does not fit."""
    file, table = declared(env_id, "validate")
    known = Declared.__struct_fields__
    for key in table:
        if key not in known:
            close = near(key, known)
            hint = f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(known)}"
            raise ConfigError(f"{file}: [tool.verifiers.validate] has no key '{key}'. {hint}")
    try:
        found = msgspec.convert(table, Declared)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: [tool.verifiers.validate]: {error}") from None
    numbers = [found.reference_reward, found.floor, *(found.reward_range or ())]
    if not all(math.isfinite(number) for number in numbers if number is not None):
        raise ConfigError(f"{file}: [tool.verifiers.validate] takes finite numbers")
    if found.reward_range and found.reward_range[0] >= found.reward_range[1]:
        raise ConfigError(f"{file}: reward_range = {list(found.reward_range)}: the lower end comes first")
    if found.answer_in_context is not None and not found.answer_in_context.strip():
        raise ConfigError(f"{file}: answer_in_context takes the reason why answers stand in their prompts")
    return found
