"""`World`: the simulated services of a multi-turn row, those of the package `bfcl-eval` or our own."""

from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import verifiers as vf

_CODE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
CLASSES = {  # name → module, and the file of its functions in `multi_turn_func_doc`
    "GorillaFileSystem": (f"{_CODE}.gorilla_file_system", "gorilla_file_system.json"),
    "MathAPI": (f"{_CODE}.math_api", "math_api.json"),
    "MessageAPI": (f"{_CODE}.message_api", "message_api.json"),
    "TwitterAPI": (f"{_CODE}.posting_api", "posting_api.json"),
    "TicketAPI": (f"{_CODE}.ticket_api", "ticket_api.json"),
    "TradingBot": (f"{_CODE}.trading_bot", "trading_bot.json"),
    "TravelAPI": (f"{_CODE}.travel_booking", "travel_booking.json"),
    "VehicleControlAPI": (f"{_CODE}.vehicle_control", "vehicle_control.json"),
    "PantryAPI": ("bfcl.pantry", ""),  # of our own rows
}


def world_class(name: str) -> type[Any]:
    """Raises DatasetError for an unknown class, SetupError where the package that has it is missing."""
    if name not in CLASSES:
        raise vf.DatasetError(f"there is no simulated class {name!r}; there are: {', '.join(CLASSES)}")
    module = CLASSES[name][0]
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise vf.SetupError(
            f"the class {name} of multi-turn rows is in the package bfcl-eval, which cannot be imported ({error}). Try "
            "pip install --no-deps bfcl-eval; pip install mpmath"
        ) from error


class World:
    """An instance of each class, begun as the row says. Nothing is evaluated: methods are called by name."""

    def __init__(self, names: Sequence[str], configs: Mapping[str, Any], category: str) -> None:
        self.instances: dict[str, Any] = {}
        for name in names:
            instance = self.instances[name] = world_class(name)()
            if name != "MathAPI":  # it has no state
                begun = copy.deepcopy(configs.get(name, {}))
                instance._load_scenario(begun, long_context="long_context" in category)

    def call(self, name: str, by_place: Sequence[Any], named: Mapping[str, Any]) -> str:
        """The result as text; what the service raises is told in it."""
        for instance in self.instances.values():
            method = None if name.startswith("_") else getattr(type(instance), name, None)
            if callable(method):
                try:
                    return _as_text(method(instance, *by_place, **named))
                except Exception as error:  # whatever a simulated service raises, a real one would report
                    return f"Error during execution: {error}"
        return f"Error during execution: there is no function {name}"

    def differences(self, other: World) -> list[str]:
        """Attributes of services that are not the same, as `Class.attribute`; private ones do not count."""
        return [
            f"{name}.{attribute}"
            for name, instance in other.instances.items()
            for attribute, value in vars(instance).items()
            if not attribute.startswith("_") and getattr(self.instances[name], attribute, None) != value
        ]


def _as_text(result: Any) -> str:
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except TypeError:
            return str(result)  # pyright: ignore[reportUnknownArgumentType]
    return str(result)
