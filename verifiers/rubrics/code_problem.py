"""`CodeProblem`: the tests that a program must pass, read from a row.

Two schemas. LiveCodeBench's, as it is published: `public_test_cases`, `private_test_cases` (JSON, or JSON in a pickled
text, compressed, in base64), `metadata` with `func_name`. And a plain one: `tests`, a list of `{input, output}` for
standard input and output or of `{args, output}` for calls of `function`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import pickle
import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from verifiers.errors import RewardFault

MAX_DECODED_BYTES = 512 << 20  # of one row's private tests
MAX_INTEGER_DIGITS = 4_000  # Python itself refuses to read longer ones


@dataclass(frozen=True, slots=True)
class CodeTest:
    """`args` is None for a test of standard input and output; then `expected` is a text, else a JSON value."""

    input: str
    expected: Any
    args: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class CodeProblem:
    """`None` leaves the decision to the rubric."""

    tests: tuple[CodeTest, ...]
    function: str | None = None
    time_limit_s: float | None = None  # of each test
    memory_mb: int | None = None
    float_tolerance: float | None = None
    checker: str | None = None

    def sampled(self, n: int, seed: int) -> CodeProblem:
        """The same with `n` of its tests in their order, the same ones for equal tests and seed."""
        if len(self.tests) <= n:
            return self
        content = hashlib.sha256(str(seed).encode())
        for test in self.tests:
            content.update(test.input.encode("utf-8", "replace") + b"\0")
        chosen = random.Random(content.digest()).sample(range(len(self.tests)), n)
        return replace(self, tests=tuple(self.tests[index] for index in sorted(chosen)))


def read_problem(info: Any, answer: Any = None) -> CodeProblem:
    """From `info`, or from `answer` when the tests lie there. Raises RewardFault for a row without tests to run.

    >>> read_problem({"tests": [{"input": "2 3", "output": "5"}]}).tests[0].expected
    '5'
    """
    for place in (info, answer):
        row = _mapping(place)
        if row is not None and ("tests" in row or "public_test_cases" in row or "private_test_cases" in row):
            break
    else:
        raise RewardFault(
            "the row has no tests: neither `info` nor `answer` holds `tests`, `public_test_cases` or "
            "`private_test_cases`"
        )
    metadata = _mapping(row.get("metadata")) or {}
    function = row.get("function") or row.get("func_name") or metadata.get("func_name")
    if "tests" in row:
        cases = _cases(row["tests"], "tests")
    else:
        cases = [*_cases(row.get("public_test_cases"), "public_test_cases"), *_private(row.get("private_test_cases"))]
    tests = tuple(_test(case, function, number) for number, case in enumerate(cases, 1))
    if not tests:
        raise RewardFault("the row has no tests: its list of tests is empty")
    time_limit_s, memory_mb, tolerance = (
        _number(row.get(name), name) for name in ("time_limit_s", "memory_mb", "float_tolerance")
    )
    return CodeProblem(
        tests, function, time_limit_s, None if memory_mb is None else int(memory_mb), tolerance, row.get("checker")
    )


def _number(value: Any, name: str) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        raise RewardFault(f"{name} of the row is {value!r:.40}, not a number") from None


def read_json(text: str) -> Any:
    """As `json.loads`, but an integer too long for Python stays a text. Raises ValueError."""
    try:
        return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= MAX_INTEGER_DIGITS else digits)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _mapping(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = read_json(value)
        except ValueError:
            return None
    return value if isinstance(value, Mapping) else None


def _cases(value: Any, name: str) -> list[Any]:
    if isinstance(value, str) and value.strip():
        try:
            value = read_json(value)
        except ValueError as error:
            raise RewardFault(f"{name} is no JSON: {error}") from None
    if value is None or value == "":
        return []
    if not isinstance(value, (list, tuple)):
        raise RewardFault(f"{name} is {type(value).__name__}, not a list of tests")
    return list(value)


def _test(case: Any, function: str | None, number: int) -> CodeTest:
    if not isinstance(case, Mapping) or "output" not in case:
        raise RewardFault(f"test {number} has no `output`")
    if "args" in case:
        args, text, expected = case["args"], json.dumps(case["args"]), case["output"]
    elif case.get("testtype") == "functional" or (function and case.get("testtype") is None):
        text = str(case.get("input", ""))
        try:
            args = [read_json(line) for line in text.split("\n") if line.strip()]
            expected = read_json(case["output"]) if isinstance(case["output"], str) else case["output"]
        except ValueError as error:
            raise RewardFault(f"test {number} is no JSON: {error}") from None
    elif isinstance(case.get("input"), str) and isinstance(case["output"], str):
        return CodeTest(case["input"], case["output"])
    else:
        raise RewardFault(f"test {number} needs a text as `input` and as `output`, or `args`")
    if not function:
        raise RewardFault(f"test {number} calls a function, but the row does not say which: it has no `function`")
    if not isinstance(args, (list, tuple)):
        raise RewardFault(f"the `args` of test {number} are {type(args).__name__}, not a list")
    return CodeTest(text, expected, tuple(args))


def _private(value: Any) -> list[Any]:
    if not isinstance(value, str) or value.lstrip()[:1] in ("", "["):
        return _cases(value, "private_test_cases")
    return list(_decoded(value))


@lru_cache(maxsize=8)  # the tries of an example come one after the other, and rows can be large
def _decoded(text: str) -> tuple[Any, ...]:
    try:
        unpacked = zlib.decompressobj()
        data = unpacked.decompress(base64.b64decode(text, validate=True), MAX_DECODED_BYTES)
        if not unpacked.eof:
            raise ValueError(f"cut off, or more than {MAX_DECODED_BYTES >> 20} MiB")
        return tuple(_cases(_TextUnpickler(io.BytesIO(data)).text(), "private_test_cases"))
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, ValueError) as error:
        raise RewardFault(f"private_test_cases cannot be decoded: {error}") from None


class _TextUnpickler(pickle.Unpickler):
    """Reads a pickled text and refuses whatever else a pickle can do: classes, functions, calls."""

    def text(self) -> str:
        try:
            value = self.load()
        except (pickle.UnpicklingError, EOFError):
            raise
        except Exception as error:  # a damaged pickle raises nearly anything
            raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from None
        if type(value) is not str:
            raise pickle.UnpicklingError(f"the pickle holds {type(value).__name__}, not a text")
        return value

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"the pickle asks for {module_name}.{global_name}; only a text is read")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("the pickle refers to something outside; only a text is read")
