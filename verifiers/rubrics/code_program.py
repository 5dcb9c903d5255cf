"""From a reply to the program in it, and from that to the script that an engine runs for one test.

A script never holds what its test expects, so nothing in its process is worth finding.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from verifiers.parsers import is_reasoning_unfinished, strip_reasoning
from verifiers.rubrics.code_problem import CodeTest, read_json

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)")


class NoProgram(ValueError):
    """Why a reply holds no program."""


def last_program(text: str) -> str:
    """The last code block of a reply, after its reasoning. Raises NoProgram, also when that block is not closed.

    >>> last_program("So:\\n```python\\nprint(1)\\n```\\nDone.")
    'print(1)'
    """
    if is_reasoning_unfinished(text):
        raise NoProgram("reasoning not finished")
    block: str | None = None
    fence, lines = "", []
    for line in strip_reasoning(text).split("\n"):
        match = _FENCE.fullmatch(line.rstrip())
        if fence:
            if match and match[1].startswith(fence) and not match[2]:
                block, fence = "\n".join(lines), ""
            else:
                lines.append(line)
        elif match:
            fence, lines = match[1], []
    if fence:
        raise NoProgram("the last code block is not closed")
    if block is None:
        raise NoProgram("no code block")
    if not block.strip():
        raise NoProgram("the last code block is empty")
    return block


def script_of(source: str) -> str:
    """A program that reads standard input, with the names that solutions use without importing them."""
    return f"{_PRELUDE}\n_run_script({source!r})\n"


class FunctionCall:
    """One call of a function of a program: a script, its input, and what it reports.

    The report goes to a descriptor of its own behind a random word, so that it cannot be mistaken for what the program
    prints, and what was never returned is no report.
    """

    def __init__(self, source: str, function: str, test: CodeTest) -> None:
        self.nonce = secrets.token_hex(16)
        self.stdin = json.dumps({"source": source, "function": function, "args": test.args, "nonce": self.nonce})
        self.script = f"{_PRELUDE}\n_call_function()\n"

    def result(self, stdout: bytes) -> Any:
        """What the function returned, as JSON has it. Raises NoProgram when it did not return."""
        marker = self.nonce.encode()
        reports = [line[len(marker) :] for line in stdout.split(b"\n") if line.startswith(marker)]
        if len(reports) != 1:
            raise NoProgram("it ended without returning" if not reports else "it reported more than once")
        try:
            report = read_json(reports[0].decode("utf-8", "replace"))
        except ValueError:
            raise NoProgram("what it returned cannot be read") from None
        if not isinstance(report, dict) or "value" not in report:
            problem = report.get("error") if isinstance(report, dict) else None
            raise NoProgram(str(problem)[:200] if problem else "what it returned cannot be read")
        return report["value"]


_PRELUDE = """
import sys


def _fill(names):
    import builtins, importlib
    stars = "string re datetime collections heapq bisect copy math random itertools functools operator typing".split()
    found = {}
    for name in stars:
        module = importlib.import_module(name)
        found.update((key, getattr(module, key)) for key in getattr(module, "__all__", dir(module)) if key[0] != "_")
    for name in [*stars, "json", "os", "sys", "time"]:
        found[name] = importlib.import_module(name)
    for name in vars(builtins):  # `math.pow` and its like do not replace them
        found.pop(name, None)
    names.update(found)
    sys.setrecursionlimit(50_000)
    sys.set_int_max_str_digits(0)


def _run_script(source):
    names, fill = globals(), _fill
    for name in ("_fill", "_run_script", "_call_function"):
        del names[name]
    fill(names)
    exec(compile(source, "program.py", "exec"), names)


def _call_function():
    import json, os, types
    task = json.load(sys.stdin)
    report, null = os.dup(1), os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    dumps, write, leave, nonce = json.dumps, os.write, os._exit, task["nonce"]

    def tell(**found):
        try:
            text = dumps(found)
        except (TypeError, ValueError, RecursionError):
            text = dumps({"error": "it returned what JSON cannot hold"})
        data = ("\\n" + nonce + text + "\\n").encode()
        while data:
            data = data[write(report, data):]
        leave(0)

    module = sys.modules["program"] = types.ModuleType("program")
    _fill(module.__dict__)
    exec(compile(task["source"], "program.py", "exec"), module.__dict__)
    owner, name = getattr(module, "Solution", None), task["function"]
    if isinstance(owner, type) and hasattr(owner, name):
        function = getattr(owner(), name)
    else:
        function = getattr(module, name, None)
    if function is None:
        tell(error="it has no function " + name)
    tell(value=function(*task["args"]))
"""
