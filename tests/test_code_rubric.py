"""CodeRubric: what counts as a program and as passing, and what programs do that would rather not be graded."""

import asyncio
import base64
import json
import os
import pickle
import time
import zlib
from pathlib import Path

import pytest
from waiting import is_running, steady, until

import verifiers as vf
from verifiers.errors import ConfigError, RewardFault, SandboxError, SetupError
from verifiers.rubrics.code_engine import UnsafeLocalEngine
from verifiers.rubrics.code_output import same_value, text_difference
from verifiers.rubrics.code_problem import CodeProblem, read_problem
from verifiers.rubrics.code_program import NoProgram, last_program
from verifiers.rubrics.code_rubric import CodeRubric
from verifiers.sandbox import LocalBackend
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import ExecResult
from verifiers.types import State

SUM = {"tests": [{"input": "2 3", "output": "5"}, {"input": "40 2", "output": "42\n"}]}
ADD = {"function": "add", "tests": [{"args": [2, 3], "output": 5}, {"args": [40, 2], "output": 42}]}
RIGHT_SUM = "print(sum(map(int, input().split())))"
RIGHT_ADD = "def add(a, b):\n    return a + b"


@pytest.fixture(scope="module")
def rubric():
    return CodeRubric(engine="unsafe-local", time_limit_s=60.0)


def fenced(source):
    return f"Here it is:\n\n```python\n{source}\n```\n"


async def score(rubric, info, source=None, reply=None, answer=""):
    content = fenced(source) if reply is None else reply
    state = State(
        input={"prompt": "?", "answer": answer, "info": info},
        completion=[{"role": "assistant", "content": content}],
        trajectory=[],
    )
    await rubric.score_rollout(state)
    return state["scores"][0]


async def assert_wrong(rubric, info, source, reason=""):
    found = await score(rubric, info, source)
    assert (found.value, found.status) == (0.0, "scored")
    assert found.reason.startswith("test ") and reason in found.reason


# What passes


@pytest.mark.parametrize(
    "source",
    [
        RIGHT_SUM,
        "a, b = map(int, input().split())\nprint(' ', a + b, '  ')",
        "import sys\nprint(sum(int(word) for word in sys.stdin.read().split()))\nsys.exit(0)",
        "if __name__ == '__main__':\n    print(reduce(add, map(int, input().split())))",  # names nobody imported
        "print(f'{sum(map(float, input().split())):.3f}')",
    ],
)
async def test_program_that_prints_what_is_expected_passes(rubric, source):
    assert (await score(rubric, SUM, source)).value == 1.0


@pytest.mark.parametrize(
    "source",
    [
        RIGHT_ADD,
        "class Solution:\n    def add(self, a: int, b: Optional[int]) -> List[int]:\n        return a + b",
        "print('noise')\ndef add(a, b):\n    print('more noise')\n    return float(a + b)",
        "def add(a, b):\n    return pow(a + b, 1, 10**9)",  # the builtin, not that of math
        "def add(a, b):\n    return a + b\nif __name__ == '__main__':\n    raise SystemExit(input())",
    ],
)
async def test_function_that_returns_what_is_expected_passes(rubric, source):
    assert (await score(rubric, ADD, source)).value == 1.0


async def test_tuple_counts_as_a_list_however_deep(rubric):
    info = {"function": "f", "tests": [{"args": [[1, 2]], "output": [[1, 2], [[1], 2]]}]}
    assert (await score(rubric, info, "def f(x):\n    return tuple(x), [(1,), 2]")).value == 1.0


async def test_deep_recursion_is_no_failure(rubric):
    info = {"tests": [{"input": "", "output": "20000"}]}
    assert (await score(rubric, info, "def f(n): return n and 1 + f(n - 1)\nprint(f(20_000))")).value == 1.0


async def test_answer_may_hold_the_tests_and_info_may_be_text(rubric):
    assert (await score(rubric, None, RIGHT_SUM, answer=json.dumps(SUM))).value == 1.0
    assert (await score(rubric, json.dumps(ADD), RIGHT_ADD)).value == 1.0


# LiveCodeBench's rows


def packed(cases):
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def lcb_row(kind, public, private, **metadata):
    tests = [[{"input": i, "output": o, "testtype": kind} for i, o in cases] for cases in (public, private)]
    return {
        "public_test_cases": json.dumps(tests[0]),
        "private_test_cases": packed(tests[1]),
        "metadata": json.dumps(metadata),
        "starter_code": "",
    }


async def test_livecodebench_row_of_standard_input_is_graded_by_public_and_private_tests(rubric):
    row = lcb_row("stdin", [("1 1\n", "2\n")], [("2 2\n", "4\n"), ("3 4\n", "7\n")])
    assert len(read_problem(row).tests) == 3
    assert (await score(rubric, row, RIGHT_SUM)).value == 1.0
    await assert_wrong(rubric, row, "print(2)", "test 2 of 3")


async def test_livecodebench_row_of_a_function_is_called_with_a_line_an_argument(rubric):
    row = lcb_row("functional", [("[1, 2]\n3", "[3, 6]")], [('[]\n"x"', "[]")], func_name="times")
    source = (
        "class Solution:\n    def times(self, xs: List[int], n: int) -> List[int]:\n        return [x * n for x in xs]"
    )
    assert (await score(rubric, row, source)).value == 1.0


async def test_private_tests_may_be_plain_json(rubric):
    row = {**lcb_row("stdin", [], []), "private_test_cases": json.dumps(SUM["tests"])}
    assert (await score(rubric, row, RIGHT_SUM)).value == 1.0


class Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("value", [["a list"], 5, None, b"bytes"])
def test_pickle_of_anything_but_text_is_refused(value):
    text = base64.b64encode(zlib.compress(pickle.dumps(value))).decode()
    with pytest.raises(RewardFault, match="not a text"):
        read_problem({"private_test_cases": text})


def test_pickle_that_would_call_something_is_refused_and_calls_nothing(tmp_path):
    harmful = Harmful(str(tmp_path / "made"))
    text = base64.b64encode(zlib.compress(pickle.dumps(harmful))).decode()
    with pytest.raises(RewardFault, match=r"asks for \w+\.mkdir"):
        read_problem({"private_test_cases": text})
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "text", ["!!!", "QUJD", base64.b64encode(zlib.compress(b"\x80\x04")).decode(), packed([])[:-8]]
)
def test_damaged_private_tests_are_a_fault(text):
    with pytest.raises(RewardFault, match="cannot be decoded"):
        read_problem({"public_test_cases": json.dumps(SUM["tests"]), "private_test_cases": text})


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ({}, "no tests"),
        (None, "no tests"),
        ("not JSON", "no tests"),
        ({"tests": "{"}, "no JSON"),
        ({"tests": 5}, "not a list"),
        ({"tests": [{"input": "1"}]}, "test 1 has no `output`"),
        ({"tests": [{"input": 1, "output": "1"}]}, "test 1 needs a text"),
        ({"tests": [{"args": [1], "output": 1}]}, "no `function`"),
        ({"tests": [{"args": 1, "output": 1}], "function": "f"}, "not a list"),
        ({"tests": [{"input": "[1", "output": "1"}], "function": "f"}, "test 1 is no JSON"),
        ({**SUM, "time_limit_s": "soon"}, "time_limit_s of the row"),
        ({**SUM, "checker": "any_order"}, "asks for the checker 'any_order'"),
    ],
)
async def test_row_that_cannot_be_graded_is_a_fault_that_says_what_is_wrong(rubric, info, says):
    found = await score(rubric, info, RIGHT_SUM)
    assert (found.value, found.status, found.side) == (None, "fault", "reward")
    assert says in found.reason


# The program in the reply


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        ("```python\nfirst\n```\nBetter:\n```py\nsecond\n```", "second"),
        ("```\nbare\n```", "bare"),
        ("~~~python\ntildes\n~~~", "tildes"),
        ("<think>```python\ndraft\n```</think>```python\nfinal\n```", "final"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''"),
    ],
)
def test_last_closed_block_of_the_answer_is_the_program(reply, program):
    assert last_program(reply) == program


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "no code block"),
        ("print(1)", "no code block"),
        ("```python\n```", "empty"),
        ("```python\nprint(1)", "not closed"),
        ("```python\nprint(1)\n```\nNo, rather:\n```python\nprint(", "not closed"),
        ("<think>```python\nprint(1)\n```", "reasoning not finished"),
    ],
)
async def test_reply_without_a_finished_program_is_wrong_and_says_why(rubric, reply, why):
    with pytest.raises(NoProgram, match=why):
        last_program(reply)
    found = await score(rubric, SUM, reply=reply)
    assert found.value == 0.0 and why in found.reason


async def test_right_reply_cut_off_anywhere_before_its_block_closes_is_never_right(rubric):
    reply = "Simple.\n```python\nprint(sum(map(int, input().split())))\n```"
    for end in range(0, len(reply) - 3, 3):
        assert (await score(rubric, SUM, reply=reply[:end])).value == 0.0
    assert (await score(rubric, SUM, reply=reply)).value == 1.0


# Comparison


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("1\n2\n", "1\n2"),
        ("1 2", "  1   2 "),
        ("0.5", "0.50"),
        ("100", "1e2"),
        ("YES\n3", "YES\n3.0"),
        ("", "\n \n"),
        ("100000000000000000001", "100000000000000000001.0"),
    ],
)
def test_same_text_in_another_form_is_the_same(expected, found):
    assert text_difference(expected, found) is None


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("1\n2", "1 2"),
        ("1\n\n2", "1\n2"),
        ("yes", "YES"),
        ("0.1", "0.1000000001"),
        ("100000000000000000001", "100000000000000000002"),
        ("1", "１"),
        ("10", "1_0"),
        ("nan", "NaN"),
        ("1", "1 1"),
        ("1", ""),
    ],
)
def test_text_that_differs_is_wrong(expected, found):
    assert text_difference(expected, found) is not None


def test_tolerance_is_relative():
    assert text_difference("1000000", "1000001", 1e-5) is None
    assert text_difference("0.000001", "0.000002", 1e-5) is not None
    assert text_difference("0", "0.000001", 1e-5) is None
    assert text_difference("1", "nan", 1e-5) is not None
    assert same_value([1.0, {"a": 2.0}], [1.000001, {"a": 2}], 1e-5)
    assert not same_value(1e-6, 2e-6, 1e-5)
    assert not same_value(1, 10**400, 1e-5)


@pytest.mark.parametrize(
    ("expected", "found"), [(1, "1"), ([1], 1), ({"a": 1}, {"a": 1, "b": 2}), (None, 0), ("", None)]
)
def test_values_of_different_kinds_are_different(expected, found):
    assert not same_value(expected, found)


async def test_checker_named_by_the_row_decides_instead(rubric):
    def any_order(test, output):
        return sorted(output.split()) == sorted(test.expected.split())

    rubric = CodeRubric(engine=rubric.engine, checkers={"any_order": any_order})
    info = {"tests": [{"input": "", "output": "1 2 3"}], "checker": "any_order"}
    assert (await score(rubric, info, "print(3, 1, 2)")).value == 1.0
    await assert_wrong(rubric, info, "print(3, 1)", "checker")


async def test_checker_that_raises_is_a_fault(rubric):
    rubric = CodeRubric(engine=rubric.engine, checkers={"odd": lambda test, output: output < 1 / 0})
    found = await score(rubric, {**SUM, "checker": "odd"}, RIGHT_SUM)
    assert (found.value, found.status) == (None, "fault")


# Which tests are run


async def test_first_failure_ends_the_grading(tmp_path, rubric):
    runs = tmp_path / "runs"
    source = f"open({str(runs)!r}, 'a').write('x')\nprint(0)"
    info = {"tests": [{"input": "", "output": "0"}, {"input": "", "output": "1"}, {"input": "", "output": "0"}]}
    await assert_wrong(rubric, info, source, "test 2 of 3: line 1 differs")
    assert runs.read_text() == "xx"


def test_sample_of_the_tests_is_the_same_for_every_try_and_keeps_their_order():
    problem = read_problem({"tests": [{"input": str(n), "output": str(n)} for n in range(100)]})
    sample = problem.sampled(10, seed=1)
    assert sample == problem.sampled(10, seed=1) != problem.sampled(10, seed=2)
    numbers = [int(test.input) for test in sample.tests]
    assert len(set(numbers)) == 10 and numbers == sorted(numbers)
    assert problem.sampled(100, seed=1) is problem


async def test_budget_of_all_tests_ends_a_program_that_is_slow_on_each(rubric):
    rubric = CodeRubric(engine=rubric.engine, budget_s=0.3)
    info = {"tests": [{"input": "", "output": "1"}] * 20}
    await assert_wrong(rubric, info, "import time\ntime.sleep(0.2)\nprint(1)", "together took more than 0.3 s")


# The engine


@pytest.mark.parametrize(
    ("engine", "says"), [(None, "no engine was given"), ("dcoker", "no engine 'dcoker'"), (5, "run_once")]
)
def test_without_an_engine_the_error_says_what_to_do(engine, says):
    with pytest.raises(ConfigError, match=says):
        CodeRubric(engine=engine)


@steady(0.5)
async def test_sandbox_of_this_machine_is_an_engine():
    rubric = CodeRubric(engine="local", time_limit_s=60.0, memory_mb=128)
    hasty = CodeRubric(engine=rubric.engine, time_limit_s=2.0)
    try:
        await rubric.engine.capabilities()
    except SetupError as error:
        pytest.skip(f"no sandbox here: {error}")
    try:
        assert (await score(rubric, SUM, RIGHT_SUM)).value == 1.0
        assert (await score(rubric, ADD, RIGHT_ADD)).value == 1.0
        await assert_wrong(hasty, SUM, "while True: pass", "timeout of 2 s")
        await assert_wrong(rubric, SUM, "x = [0] * 10**9", "memory-limit")
        await assert_wrong(rubric, ADD, "import os\nos._exit(0)", "without returning")
    finally:
        await rubric.teardown()


class BrokenEngine:
    """An engine whose machine is gone, or too slow for anything."""

    def __init__(self, result=None):
        self.result = result

    async def run_once(self, program, **_):
        if self.result is None:
            raise SandboxError("the sandbox service does not answer")
        return self.result


async def test_engine_that_fails_is_a_fault_of_the_sandbox_not_a_wrong_answer():
    found = await score(CodeRubric(engine=BrokenEngine()), SUM, RIGHT_SUM)
    assert (found.value, found.status, found.side) == (None, "fault", "sandbox")


async def test_timeout_on_an_engine_that_cannot_run_a_simple_program_either_is_a_fault():
    slow = BrokenEngine(ExecResult(outcome="timeout", limit="wall", wall_s=6.0))
    found = await score(CodeRubric(engine=slow), SUM, RIGHT_SUM)
    assert (found.value, found.status, found.side) == (None, "fault", "sandbox")
    assert "known simple program" in found.reason


LIMITED = [
    ("while True: pass", "timeout of 2 s"),
    ("import time; time.sleep(60)", "timeout of 2 s"),
    ("import os, time\nos.close(1); os.close(2); time.sleep(60)", "timeout of 2 s"),
    ("x = [0] * 10**9", "memory-limit of 1024 MB"),
    ("while True: print('y' * 100_000)", "output-limit"),
    ("1 / 0", "exit 1: ZeroDivisionError"),
    ("import os; os.abort()", "signal 6"),
]


@pytest.mark.parametrize(("source", "reason"), LIMITED)
@steady(0.5)
async def test_limit_that_the_program_exceeds_is_wrong_and_says_which(rubric, source, reason):
    time_limit_s = 2.0 if "timeout" in reason else 60.0
    rubric = CodeRubric(engine=rubric.engine, time_limit_s=time_limit_s, output_kb=200)
    await assert_wrong(rubric, SUM, source, reason)


async def test_cancelled_grading_leaves_no_process(tmp_path, rubric):
    pid_file = tmp_path / "pid"
    program = f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    running = asyncio.ensure_future(rubric.engine.run_once(program, limits=SandboxLimits(wall_s=60)))
    await until(lambda: pid_file.exists() and pid_file.read_text(), by=running)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await wait_until_gone(int(pid_file.read_text()))


async def wait_until_gone(pid):
    await until(lambda: not is_running(pid))


async def test_child_left_behind_is_ended_with_its_program(tmp_path, rubric):
    pid_file = tmp_path / "pid"
    program = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\nprint(1)"
    )
    began = time.monotonic()
    result = await rubric.engine.run_once(program, limits=SandboxLimits(wall_s=250))
    assert (result.outcome, result.stdout) == ("ok", b"1\n")
    assert time.monotonic() - began < 100
    await wait_until_gone(int(pid_file.read_text()))


async def test_files_of_a_run_are_gone_after_it(rubric):
    result = await rubric.engine.run_once("import os\nopen('a', 'w').write('x')\nprint(os.getcwd())", files={"b": b""})
    assert result.text.strip() and not Path(result.text.strip()).exists()


# Ways to be paid without solving anything


async def test_pattern_08_printing_the_public_example_passes_that_test_only(rubric):
    await assert_wrong(rubric, SUM, "print(5)", "test 2 of 2")


@pytest.mark.parametrize(
    "leave", ["sys.exit(0)", "os._exit(0)", "raise SystemExit", "exit()", "os.execv('/bin/true', ['true'])"]
)
async def test_pattern_09_leaving_before_the_result_is_wrong_although_the_exit_status_is_zero(rubric, leave):
    await assert_wrong(rubric, ADD, f"import os, sys\ndef add(a, b):\n    {leave}", "without returning")
    await assert_wrong(rubric, ADD, f"import os, sys\n{leave}", "without returning")
    await assert_wrong(rubric, SUM, f"import os, sys\n{leave}", "line 1 differs")


EQUAL_TO_ALL = (
    "    def __eq__(self, other): return True\n    __ne__ = lambda self, other: False\n    __hash__ = int.__hash__\n"
)


@pytest.mark.parametrize("base", ["object", "int", "float", "str", "list", "dict"])
async def test_pattern_10_object_that_equals_everything_is_wrong(rubric, base):
    source = f"class Same({base}):\n{EQUAL_TO_ALL}def add(a, b):\n    return Same()"
    await assert_wrong(rubric, ADD, source)


PATCHES = [
    "import builtins\nbuiltins.isinstance = builtins.all = lambda *a: True\nbuiltins.len = lambda x: 0",
    "import json\njson.dumps = lambda *a, **k: 'true'\njson.JSONEncoder.default = lambda self, x: 5",
    "import unittest\nunittest.TestCase.assertEqual = lambda *a: None",
    "import time\ntime.time = time.monotonic = lambda: 0",
    "import os\nos._exit = lambda code: None\nos.write = lambda fd, data: len(data)",
    "import decimal, operator\ndecimal.Decimal.__eq__ = lambda *a: True\noperator.eq = lambda *a: True",
]


@pytest.mark.parametrize("patch", PATCHES)
async def test_pattern_11_patched_builtins_change_no_verdict(rubric, patch):
    patched = f"try:\n    {patch.replace(chr(10), chr(10) + '    ')}\nexcept TypeError:\n    pass\n"
    await assert_wrong(rubric, ADD, f"{patched}def add(a, b):\n    return 0")
    await assert_wrong(rubric, SUM, f"{patched}print(0)")


LOOK_ROUND = """
import os, re, sys
def holds(pattern):  # the pattern is written so that it does not match itself
    with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb') as memory:
        for line in maps:
            low, high = (int(part, 16) for part in line.split()[0].split('-'))
            if ' rw' in line and high - low < 1 << 28:
                try:
                    memory.seek(low)
                    if re.search(pattern, memory.read(high - low)):
                        return True
                except (OSError, OverflowError, ValueError):
                    pass
    return False
words = input() if MODE == 'stdin' else ''
open(PLACE, 'w').write(f"{holds(b'[T]HE-INPUT')} {holds(b'[T]HE-EXPECTED')}")
"""


@pytest.mark.parametrize("mode", ["stdin", "function"])
async def test_pattern_12_memory_of_the_program_holds_its_input_and_no_expected_output(tmp_path, rubric, mode):
    source = LOOK_ROUND.replace("PLACE", repr(str(tmp_path / "found"))).replace("MODE", repr(mode))
    if mode == "stdin":
        await assert_wrong(rubric, {"tests": [{"input": "THE-INPUT", "output": "THE-EXPECTED"}]}, source)
    else:
        info = {"function": "f", "tests": [{"args": ["THE-INPUT"], "output": "THE-EXPECTED"}]}
        indented = source.replace("\n", "\n    ")
        await assert_wrong(rubric, info, f"def f(given):\n    {indented}\n    return 1")
    assert (tmp_path / "found").read_text() == "True False"


@pytest.mark.parametrize("caught", ["Exception", "BaseException"])
@steady(0.5)
async def test_pattern_13_swallowing_the_timer_is_still_a_timeout(rubric, caught):
    rubric = CodeRubric(engine=rubric.engine, time_limit_s=2.0)
    source = (
        "import signal\nsignal.alarm(0)\nfor name in (14, 15, 24, 27):\n    signal.signal(name, signal.SIG_IGN)\n"
        f"while True:\n    try:\n        while True: pass\n    except {caught}:\n        pass"
    )
    await assert_wrong(rubric, SUM, source, "timeout")


FORGED = ["PASSED", "OK", "1 passed in 0.01s", '{"value": 5}', '{"passed": true}', "exit code 0"]


@pytest.mark.parametrize("line", FORGED)
async def test_pattern_14_forged_lines_on_any_descriptor_are_no_result(rubric, line):
    shout = (
        "import os, sys\n"
        f"line = {line!r}\n"
        "print(line); print(line, file=sys.stderr); sys.__stdout__.write(line)\n"
        "for number in range(1, 64):\n"
        "    try: os.write(number, ('\\n' + line + '\\n').encode())\n"
        "    except OSError: pass\n"
    )
    await assert_wrong(rubric, SUM, shout)
    await assert_wrong(rubric, ADD, f"def add(a, b):\n    pass\n{shout}")
    await assert_wrong(rubric, ADD, f"{shout}\nos._exit(0)", "without returning")


@steady(0.5)
async def test_pattern_32_waiting_for_a_core_counts_against_no_limit():
    rubric = CodeRubric(engine=UnsafeLocalEngine(max_workers=1), time_limit_s=10.0)
    info = {"tests": [{"input": "", "output": "1"}]}
    source = "import time\ntime.sleep(1.5)\nprint(1)"
    found = await asyncio.gather(*(score(rubric, info, source) for _ in range(8)))  # 12 s one after the other
    assert [one.value for one in found] == [1.0] * 8


@pytest.mark.parametrize(
    "info", [{"tests": []}, {"public_test_cases": "[]", "private_test_cases": "[]"}, {"private_test_cases": packed([])}]
)
async def test_pattern_36_no_tests_are_a_fault_and_not_a_pass(rubric, info):
    found = await score(rubric, info, RIGHT_SUM)
    assert (found.value, found.status, found.side) == (None, "fault", "reward")
    assert "no tests" in found.reason


@steady(0.5)
async def test_pattern_37_program_that_hangs_spoils_nothing_for_the_next():
    rubric = CodeRubric(engine=UnsafeLocalEngine(max_workers=2), time_limit_s=2.0)
    hang = "import os, signal\nsignal.signal(15, signal.SIG_IGN)\nos.fork()\nwhile True: pass"
    found = await asyncio.gather(*(score(rubric, SUM, hang) for _ in range(4)))
    assert [one.value for one in found] == [0.0] * 4
    began = time.monotonic()
    assert (await score(CodeRubric(engine=rubric.engine, time_limit_s=60.0), SUM, RIGHT_SUM)).value == 1.0
    assert time.monotonic() - began < 60


async def test_pattern_38_keys_of_ours_are_not_in_the_programs_environment(rubric, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    result = await rubric.engine.run_once("import os\nprint(sorted(os.environ))")
    assert result.outcome == "ok"
    assert "SOME_API_KEY" not in result.text


def test_problem_without_options_leaves_them_to_the_rubric():
    assert read_problem(SUM) == CodeProblem(read_problem(SUM).tests)


async def test_an_engine_that_is_not_to_be_had_ends_the_run_before_a_model_is_asked():
    client = vf.ScriptedClient(fenced(RIGHT_SUM))
    rubric = CodeRubric(engine=LocalBackend(max_level=0))  # which nothing is run at, unless that is asked for
    env = vf.SingleTurnEnv(dataset=[{"question": "Add them.", "info": SUM}], rubric=vf.RubricGroup([rubric]))
    with pytest.raises(SetupError, match="no local sandbox of level 1"):
        await env.evaluate(client, "m")
    assert client.requests == []
