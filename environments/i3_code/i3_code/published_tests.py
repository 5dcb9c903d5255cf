"""The forms in which public sets write the tests of a problem, and the one form that the rubric takes.

That is JSON text of `{"tests": [{"input", "output"} or {"args", "output"}], "function", "checker"}`: a text, since rows
are copied for each rollout and some have thousands of tests.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

Case = dict[str, Any]


class Unfit(Exception):
    """Why a row of the public set cannot be asked or scored. Such rows are left out and counted."""


def listed(tests: str, function: str | None = None) -> str:
    """A JSON list of tests: those of PrimeIntellect (`type`, `fn_name`), LiveCodeBench (`testtype`, `metadata`) and
    Codeforces (`input` and `output` alone). `function` is the name that the row itself gives."""
    cases = _decoded(tests)
    if isinstance(cases, Mapping):  # TACO's form
        return inputs_and_outputs(tests)
    if not isinstance(cases, list) or not all(isinstance(case, Mapping) for case in cases):
        raise ValueError("the tests are no list of objects")
    first: Mapping[str, Any] = cases[0] if cases else {}
    is_call = first.get("type") == "function_call" or first.get("testtype") == "functional"
    if not is_call:
        return _problem([_piped(case["input"], case["output"]) for case in cases])
    name = first.get("fn_name") or _mapping(first.get("metadata")).get("func_name") or function
    if first.get("testtype") == "functional":  # the value as JSON, and never in a list of its own
        return _problem([_call(case["input"], _decoded(case["output"])) for case in cases], name, checker=None)
    return _problem([_call(case["input"], case["output"]) for case in cases], name)


def inputs_and_outputs(tests: str | Mapping[str, Any]) -> str:
    """The form of APPS and TACO: `inputs` and `outputs`, and `fn_name` where a function is called."""
    table = _decoded(tests) if isinstance(tests, str) else tests
    inputs, outputs, name = table["inputs"], table["outputs"], table.get("fn_name")
    if len(inputs) != len(outputs):
        raise Unfit("they have tests without an input or an output")
    make = _call if name else _piped
    return _problem([make(given, out) for given, out in zip(inputs, outputs, strict=True)], name)


def thinned(problem: str, max_tests: int) -> str:
    """The same with so many of its tests, drawn by the problem alone, in their order."""
    found = json.loads(problem)
    tests = found["tests"]
    if len(tests) <= max_tests:
        return problem
    drawn = random.Random(problem).sample(range(len(tests)), max_tests)
    return json.dumps({**found, "tests": [tests[place] for place in sorted(drawn)]})


def or_its_only_element(test: Any, found: Any) -> bool:
    """A checker: in these sets some values stand in a list of their own, and nothing tells which."""
    expected = test.expected
    return found == expected or (isinstance(expected, list) and len(expected) == 1 and found == expected[0])


def _problem(cases: list[Case], function: str | None = None, checker: str | None = "or_its_only_element") -> str:
    if not cases:
        raise Unfit("they have no tests")
    if "args" not in cases[0]:
        return json.dumps({"tests": cases})
    if not function:
        raise Unfit("they call a function without a name")
    return json.dumps({"tests": cases, "function": function, "checker": checker})


def _piped(given: Any, out: Any) -> Case:
    return {"input": _text(given), "output": _text(out)}


def _text(value: Any) -> str:
    """Some sets keep a list of lines."""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    if not isinstance(value, str):
        raise ValueError(f"a test has {value!r:.40} where a text belongs")
    return value


def _call(given: Any, out: Any) -> Case:
    """Arguments are a list, or JSON line by line."""
    if isinstance(given, str):
        given = [_decoded(line) for line in given.split("\n") if line.strip()]
    return {"args": list(given) if isinstance(given, Sequence) else [given], "output": out}


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise Unfit("their tests cannot be read") from None


def _mapping(value: Any) -> Mapping[str, Any]:
    found = _decoded(value) if value else {}
    return found if isinstance(found, Mapping) else {}
