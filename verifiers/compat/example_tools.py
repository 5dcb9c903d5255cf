"""Tools that the examples of 0.1.3 to 0.1.8 gave to a `ToolEnv`."""

from __future__ import annotations

import subprocess
import sys

_LIMIT_S = 10.0
_MOST_SHOWN = 1000
_ARITHMETIC = frozenset("0123456789+-*/.() ")
_LONGEST_POWER = 20  # characters in an expression with `**`: more may count for hours


def calculator(expression: str) -> str:
    """Works out one line of arithmetic.

    Args:
        expression (str): Numbers, the operators + - * / **, and parentheses, e.g. "3 * (17 + 4)".

    Returns:
        The result, or an error message.
    """
    if not expression.strip() or not set(expression) <= _ARITHMETIC:
        return "Error: only numbers, + - * / and parentheses are allowed"
    if "**" in expression and len(expression) > _LONGEST_POWER:
        return "Error: this expression is too long for a power"
    return _output_of(f"print({expression.strip()})")


def python(code: str) -> str:
    """Runs Python code in a new process and returns what it prints.

    Args:
        code (str): The code. Nothing is kept from one call to the next; print what you want to see.

    Returns:
        The output, or an error message.
    """
    return _output_of(code)


def _output_of(code: str) -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-"], input=code, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"Error: the code ran for more than {_LIMIT_S:.0f} seconds"
    if done.returncode:
        return f"Error: {done.stderr.strip()[-_MOST_SHOWN:] or f'exit status {done.returncode}'}"
    output = done.stdout.strip()
    return output if len(output) <= _MOST_SHOWN else f"{output[:_MOST_SHOWN]}…"
