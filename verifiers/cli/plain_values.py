"""`PlainValue`: reads a command line's words as text, numbers and flags without pydantic.

Typer 0.26 and later convert every parameter through pydantic, whose import costs 0.3 s of CPU: more than all the rest
of a small command. Other versions of Typer are left as they are.
"""

from typing import Any

import typer

KINDS: dict[Any, type] = {str: str, int: int, float: float, bool: bool, list[str]: str}
_SPOKEN = {int: "a whole number", float: "a number"}


class PlainValue:
    """Stands where Typer keeps a parameter's converter: `coerce(value, param, ctx)`."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        if is_list:
            return [str(item) for item in value]
        if isinstance(value, self.kind):
            return value
        try:
            return self.kind(value)
        except ValueError:
            raise typer.BadParameter(f"'{value}' is not {_SPOKEN[self.kind]}", ctx=ctx, param=param) from None


def plain_values(command: Any) -> Any:
    """`command`, with those of its parameters read plainly that are text, numbers, flags or lists of text."""
    context = typer.Context(command, **command.context_settings)
    for parameter in command.get_params(context):  # --help included, which the command makes and keeps here
        kind = KINDS.get(getattr(getattr(parameter, "type_descriptor", None), "annotation", None))
        if kind is not None and hasattr(parameter, "_runtime_param"):
            parameter._runtime_param = PlainValue(kind)
    return command
