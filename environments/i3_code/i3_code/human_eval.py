"""HumanEval's asserts, without the program being in the same process with them.

A check is a Python function that calls the candidate and asserts. Run beside the program, it can be patched, left early
and read. So it runs twice without the program: once with the reference, to learn which calls it makes, and once with
the values that the program gave for these calls in a process of its own. Between them travel plain values alone.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

import verifiers as vf

_KNOWN, _KNOWN_SAYS = "print(6 * 7)", b"42\n"


async def grade(
    engine: vf.SandboxBackend | Any, limits: vf.SandboxLimits, source: str, problem: dict[str, str], calls: list[Any]
) -> float:
    """1.0 when the program's values pass the check, else 0.0 with a reason. `calls` are those of `calls_of`.

    Raises SandboxError when the engine fails.
    """
    begun = {name: problem[name] for name in ("prompt", "entry_point")}  # neither the check nor the reference
    values = await _report(engine, limits, mode="call", calls=calls, program=source, **begun)
    if not isinstance(values, list):
        return vf.Graded(0.0, values if isinstance(values, str) else "what it returned cannot be read")
    passed = await _report(engine, limits, mode="replay", calls=calls, values=values, **problem)
    return 1.0 if passed is True else vf.Graded(0.0, f"the check: {passed}")


async def calls_of(engine: vf.SandboxBackend | Any, limits: vf.SandboxLimits, problem: dict[str, str]) -> list[Any]:
    """The arguments of each call that the check makes. Raises RewardFault when the reference does not pass it."""
    calls = await _report(engine, limits, mode="record", **problem)
    if not isinstance(calls, list):
        raise vf.RewardFault(f"the row's own reference does not pass its check: {calls}")
    return calls


async def _report(engine: Any, limits: vf.SandboxLimits, **task: Any) -> Any:
    """What a run of the script reports; a text that says what went wrong."""
    nonce = secrets.token_hex(16)
    result = await engine.run_once(_SCRIPT, stdin=json.dumps({"nonce": nonce, **task}), limits=limits)
    if result.limit == "wall":
        known = await engine.run_once(_KNOWN, limits=limits)
        if known.outcome != "ok" or known.stdout != _KNOWN_SAYS:
            raise vf.SandboxError("a program ran out of time, and so does a known simple one")
    if result.limit is not None:
        return f"it met the limit of {result.limit}"
    marker = nonce.encode()
    reports = [line[len(marker) :] for line in result.stdout.split(b"\n") if line.startswith(marker)]
    if len(reports) != 1:
        return "it ended without returning"
    try:  # the program may have written it
        report = json.loads(reports[0])
        return str(report["wrong"])[:200] if "wrong" in report else report["value"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "what it returned cannot be read"


# Values travel as JSON, in which what JSON does not know is tagged: a tuple must not come back as a list.
_SCRIPT = r'''
import json, os, random, sys, types

sys.set_int_max_str_digits(0)
sys.setrecursionlimit(50_000)
task = json.load(sys.stdin)
report, null = os.dup(1), os.open(os.devnull, os.O_RDWR)
os.dup2(null, 0)
os.dup2(null, 1)
dumps, write, leave, nonce = json.dumps, os.write, os._exit, task["nonce"]


def tell(**found):
    data = ("\n" + nonce + dumps(found) + "\n").encode("utf-8", "backslashreplace")
    while data:
        data = data[write(report, data):]
    leave(0)


def pack(value):
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return ["dict", [[pack(key), pack(item)] for key, item in value.items()]]
    for kind in (list, tuple):
        if isinstance(value, kind):
            return [kind.__name__, [pack(item) for item in value]]
    for kind in (set, frozenset):
        if isinstance(value, kind):  # in one order in every process
            return [kind.__name__, sorted((pack(item) for item in value), key=repr)]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", list(value)]
    if isinstance(value, complex):
        return ["complex", [value.real, value.imag]]
    raise TypeError("a " + type(value).__name__ + " is no plain value")


def unpack(value):
    if not isinstance(value, list):
        return value
    kind, items = value
    if kind == "dict":
        return {unpack(key): unpack(item) for key, item in items}
    if kind == "bytes":
        return bytes(items)
    if kind == "complex":
        return complex(*items)
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](map(unpack, items))


def module_of(*sources):
    module = sys.modules["program"] = types.ModuleType("program")
    for source in sources:
        exec(compile(source, "program.py", "exec"), module.__dict__)
    return module


def check_with(candidate, *sources):
    """The check sees what is defined beside the function, such as its inverse, and the candidate by its own name."""
    random.seed(0)
    module = module_of(*sources, task["test"])
    setattr(module, name, candidate)
    random.seed(0)
    module.check(candidate)


name, mode = task["entry_point"], task["mode"]
start = task["prompt"].index("def " + name)
before = task["prompt"][:start]
try:
    if mode == "record":
        reference = getattr(module_of(task["prompt"] + task["canonical_solution"]), name)
        calls = []

        def candidate(*args, **named):
            calls.append(pack([list(args), named]))
            return reference(*args, **named)

        check_with(candidate, before)
        tell(value=calls)
    elif mode == "call":
        function = getattr(module_of(before, task["program"]), name, None)
        if function is None:
            tell(wrong="it has no function " + name)
        values = []
        for call in task["calls"]:
            args, named = unpack(call)
            values.append(pack(function(*args, **named)))
        tell(value=values)
    else:
        left = list(zip(task["calls"], task["values"], strict=True))

        def candidate(*args, **named):
            call, value = left.pop(0)
            if pack([list(args), named]) != call:
                raise AssertionError  # one that has failed may call again for its message
            return unpack(value)

        check_with(candidate, before)
        tell(value=True)
except BaseException as error:
    tell(wrong=(type(error).__name__ + ": " + str(error)).rstrip(": ")[:200])
'''
