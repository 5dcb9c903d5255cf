"""Are bad arguments refused, do the forms of the public tests come through, does a seed give the same examples, does
the reference score full, and does a program that is wrong or cheats not?"""

from __future__ import annotations

import base64
import json
import logging
import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from i3_code import load_environment, own_problems, reference_reply
from i3_code.own_problems import packed

import verifiers as vf

# made up, with all columns of the public sets and their types
TESTS_PRIMEINTELLECT = [{"type": "stdin_stdout", "fn_name": None, "input": "2\n", "output": "4\n"}]
TESTS_CALL = [{"type": "function_call", "fn_name": "double", "input": [2], "output": [4]}]
PRIMEINTELLECT = {"problem": "Double it.", "solutions": ["print(2 * int(input()))"], "tests": TESTS_PRIMEINTELLECT}
TACO = {"problem": "Double it.", "tests": {"inputs": ["2\n", ["3", ""]], "outputs": ["4\n", ["6"]]}, "solutions": [""]}
LCBV5 = {
    "problem": "Double it.",
    "starter_code": "class Solution:\n    def double(self, n: int) -> int:\n        ",
    "tests": [
        {"input": given, "output": out, "testtype": "functional", "metadata": {"func_name": "double"}}
        for given, out in (("2", "4"), ("5", "10"))
    ],
    "metadata": {"func_name": "double"},
}
CODEFORCES = {
    "problem": "Double it.",
    "tests": [{"input": "2\n", "output": "4\n"}, {"input": "5\n", "output": "10\n"}],
}
LIVECODEBENCH = {
    "question_title": "Double",
    "question_content": "Double it.",
    "platform": "atcoder",
    "question_id": "abc999_a",
    "contest_id": "abc999",
    "contest_date": "2025-02-03T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps([{"input": "2\n", "output": "4\n", "testtype": "stdin"}]),
    "private_test_cases": packed(json.dumps([{"input": "5\n", "output": "10\n", "testtype": "stdin"}])),
    "metadata": "{}",
}
HUMAN_EVAL = {
    "task_id": "Made/1",
    "prompt": 'def double(n: int) -> int:\n    """Doubles it."""\n',
    "canonical_solution": "    return 2 * n\n",
    "test": "\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate(2) == 4\n    assert candidate(5) == 10\n",
    "entry_point": "double",
}
PIPED = "```python\nprint(2 * int(input()))\n```"
CALLED = "```python\ndef double(n):\n    return 2 * n\n```"


def synthetic2(tests: Any, problem_id: str | None = "prime_rl_code_1") -> dict[str, Any]:
    return {
        "problem_id": problem_id,
        "prompt": "Double it. Write Python code to solve the problem.",
        "verification_info": json.dumps({"style": "rule", "test_cases": tests}),
        "Qwen/Qwen3-32B_avg_reward": 0.5,
    }


def write(path: Path, rows: list[Any]) -> str:
    """Tests are JSON text in the public sets."""
    lines = [
        {**row, "tests": json.dumps(row["tests"])} if isinstance(row, dict) and "tests" in row else row for row in rows
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in lines))
    return str(path)


def evaluating(tmp_path: Path, name: str, rows: list[Any], **arguments: Any) -> vf.Environment:
    path = write(tmp_path / "rows.jsonl", rows)
    return load_environment(eval=name, data=path, engine="unsafe-local", **arguments)


def training(tmp_path: Path, name: str, rows: list[Any], **arguments: Any) -> vf.Environment:
    path = write(tmp_path / "rows.jsonl", rows)
    return load_environment(name, train_data=path, engine="unsafe-local", **arguments)


async def rewards(env: vf.Environment, rows: list[Any], *replies: str) -> list[float | None]:
    """What each reply is paid on the first row."""
    runs = [await env.generate(rows, vf.ScriptedClient(reply), "scripted") for reply in replies]
    await env.teardown()
    return [run.records[0].reward for run in runs]


async def scored(env: vf.Environment, rows: list[Any], reply: str) -> vf.RolloutRecord:
    results = await env.generate(rows, vf.ScriptedClient(reply), "scripted")
    await env.teardown()
    return results.records[0]


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"dataset": "taco"}, "dataset='taco': there are 'deepcoder', 'deepcoder-primeintellect'"),
        ({"dataset": ["synthetic2", "synthetic2"]}, "a list of different names"),
        ({"dataset": 3}, "dataset=3: there are"),
        ({"eval": "mbpp"}, "eval='mbpp': there are 'livecodebench', 'humaneval'"),
        ({"release": "v7"}, "release='v7': there are 'release_v1'"),
        ({"start_date": "August"}, "start_date='August': give a day"),
        ({"start_date": "2025-01-02", "end_date": "2025-01-01"}, "start_date='2025-01-02' is after"),
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": 1.0}, r"num_eval_examples=1\.0"),
        ({"seed": "1"}, "seed='1'"),
        ({"max_tests": 0}, "max_tests=0: give a whole number, 1 or more"),
        ({"time_limit_s": 0}, "time_limit_s=0: give the seconds of a test"),
        ({"engine": "docker"}, "engine='docker': there are 'local', 'unsafe-local'"),
        ({"data": "nowhere.jsonl"}, "data='nowhere.jsonl': there is no such file"),
        ({"train_data": "a.jsonl"}, "give a table of name and path"),
        ({"train_data": {"synthetic2": "a.jsonl"}}, "'synthetic2' is not among dataset"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


@pytest.mark.parametrize(
    ("name", "row", "told"),
    [
        ("deepcoder-taco", {"problem": "?"}, "no column 'tests'"),
        ("deepcoder-taco", {"problem": "", "tests": TACO["tests"]}, "row 1: .* the statement is ''"),
        ("deepcoder-taco", {"problem": "?", "tests": {"inputs": ["1"]}}, "row 1: .* KeyError: 'outputs'|'outputs'"),
        ("deepcoder-taco", {"problem": "?", "tests": [1]}, "the tests are no list of objects"),
        ("synthetic2", {**synthetic2("[]"), "verification_info": "{}"}, "test_cases"),
        ("humaneval", {**HUMAN_EVAL, "entry_point": "triple"}, "the prompt does not define triple"),
        ("humaneval", {**HUMAN_EVAL, "canonical_solution": ""}, "'canonical_solution' is ''"),
        ("livecodebench", {**LIVECODEBENCH, "contest_date": "soon"}, "row 1: not in the schema of livecodebench"),
        (
            "livecodebench",
            {**LIVECODEBENCH, "private_test_cases": None},
            "'private_test_cases' is NoneType, not a text",
        ),
    ],
)
def test_a_row_outside_the_schema_is_named(tmp_path, name, row, told):
    with pytest.raises(vf.DatasetError, match=told):
        if name in ("humaneval", "livecodebench"):
            evaluating(tmp_path, name, [row]).eval_rows()
        else:
            training(tmp_path, name, [row]).train_rows()


# 2. the forms of the public sets, and that what they say is what is paid


@pytest.mark.parametrize(
    ("name", "row", "right"),
    [
        ("deepcoder-primeintellect", PRIMEINTELLECT, PIPED),
        ("deepcoder-primeintellect", {**PRIMEINTELLECT, "tests": TESTS_CALL}, CALLED),
        ("deepcoder-primeintellect", {**PRIMEINTELLECT, "tests": [{**TESTS_CALL[0], "output": 4}]}, CALLED),
        ("deepcoder-primeintellect", {**PRIMEINTELLECT, "tests": [{**TESTS_CALL[0], "input": "2\n"}]}, CALLED),
        ("deepcoder-taco", TACO, PIPED),
        ("deepcoder-taco", {**TACO, "tests": {"fn_name": "double", "inputs": [[2]], "outputs": [4]}}, CALLED),
        ("deepcoder-lcbv5", LCBV5, CALLED),
        ("deepcoder-lcbv5", {**LCBV5, "tests": [{"input": "2", "output": "4", "testtype": "functional"}]}, CALLED),
        ("deepcoder-lcbv5", {**LCBV5, "metadata": "{}", "starter_code": ""}, CALLED),
        ("synthetic2", synthetic2({"inputs": ["2\n"], "outputs": ["4\n"]}), PIPED),
        ("synthetic2-rl", synthetic2(json.dumps({"inputs": [[2]], "outputs": [[4]], "fn_name": "double"})), CALLED),
    ],
)
async def test_a_training_row_of_a_public_form_pays_the_right_program_alone(tmp_path, name, row, right):
    env = training(tmp_path, name, [row])
    rows = env.train_rows()
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    assert rows[0]["prompt"][1]["content"].startswith("Double it.")
    assert rows[0]["info"]["source"] == "rows.jsonl"
    assert await rewards(env, rows, right, right.replace("2 *", "3 *")) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "row", "right"),
    [
        ("livecodebench", LIVECODEBENCH, PIPED),
        (
            "livecodebench",
            {
                **LIVECODEBENCH,
                "starter_code": LCBV5["starter_code"],
                "metadata": '{"func_name": "double"}',
                "public_test_cases": '[{"input": "2", "output": "4", "testtype": "functional"}]',
                "private_test_cases": packed('[{"input": "5", "output": "10", "testtype": "functional"}]'),
            },
            CALLED,
        ),
        ("humaneval", HUMAN_EVAL, CALLED),
        ("deepcoder-codeforces", CODEFORCES, PIPED),
        ("deepcoder-lcbv5", LCBV5, CALLED),
    ],
)
async def test_an_evaluation_row_of_a_public_form_pays_the_right_program_alone(tmp_path, name, row, right):
    env = evaluating(tmp_path, name, [row])
    rows = env.eval_rows()
    assert await rewards(env, rows, right, right.replace("2 *", "2 +")) == [1.0, 0.0]  # right for 2 alone


def test_what_a_function_is_to_be_called_is_said(tmp_path):
    (row,) = training(tmp_path, "deepcoder-primeintellect", [{**PRIMEINTELLECT, "tests": TESTS_CALL}]).train_rows()
    assert "function `double`" in row["prompt"][1]["content"]
    (row,) = training(tmp_path, "deepcoder-primeintellect", [PRIMEINTELLECT]).train_rows()
    assert "standard input" in row["prompt"][1]["content"]
    (row,) = training(tmp_path, "deepcoder-lcbv5", [LCBV5]).train_rows()
    assert "def double(self, n: int)" in row["prompt"][1]["content"]


def test_rows_that_cannot_be_scored_are_left_out_and_counted(tmp_path, caplog):
    uneven = {"inputs": ["1", "2"], "outputs": ["1"]}
    rows = [synthetic2(uneven), synthetic2("{torn"), synthetic2({"inputs": [], "outputs": []})]
    rows += [synthetic2({}, "ifeval_1"), synthetic2({}, None), synthetic2({"inputs": ["2"], "outputs": ["4"]})]
    with caplog.at_level(logging.WARNING, "verifiers"):
        made = training(tmp_path, "synthetic2", rows).train_rows()
    assert len(made) == 1
    for told in ("1 of 6 rows are left out: they have tests without", "their tests cannot be read", "have no tests"):
        assert told in caplog.text
    assert "2 of 6 rows are left out: they are no tasks of code" in caplog.text


def test_as_many_rows_as_asked_for_though_some_are_left_out(tmp_path):
    good = [synthetic2({"inputs": ["2"], "outputs": [str(number)]}) for number in range(9)]
    rows = [row for one in good for row in (synthetic2({}, "ifeval_1"), synthetic2({}, None), one)]
    made = training(tmp_path, "synthetic2", rows, num_train_examples=7).train_rows()
    assert len(made) == 7


def test_a_problem_of_two_sets_is_asked_once(tmp_path):
    one, other = write(tmp_path / "one.jsonl", [CODEFORCES, TACO]), write(tmp_path / "two.jsonl", [PRIMEINTELLECT])
    files = {"deepcoder-taco": one, "deepcoder-primeintellect": other}
    rows = load_environment(list(files), train_data=files).train_rows()
    assert [row["info"]["source"] for row in rows] == ["one.jsonl"]


def test_tests_are_not_saved_with_each_rollout(tmp_path):
    (row,) = evaluating(tmp_path, "livecodebench", [LIVECODEBENCH]).eval_rows()
    assert row["info"] == {
        "contest_date": "2025-02-03",
        "question_id": "abc999_a",
        "difficulty": "easy",
        "platform": "atcoder",
        "source": "rows.jsonl",
    }


# 3. LiveCodeBench's days and packed tests


@pytest.mark.parametrize(
    ("days", "kept"),
    [
        ({}, ["2024-08-01", "2025-05-01"]),
        ({"start_date": None}, ["2023-05-07", "2024-08-01", "2025-05-01"]),
        ({"start_date": "2025-01-01", "end_date": None}, ["2025-05-01", "2025-05-02"]),
    ],
)
def test_a_window_keeps_contests_of_its_days_both_ends_included(tmp_path, days, kept):
    dates = ("2023-05-07", "2024-08-01", "2025-05-01", "2025-05-02")
    rows = [{**LIVECODEBENCH, "contest_date": f"{day}T00:00:00"} for day in dates]
    env = evaluating(tmp_path, "livecodebench", rows, **days)
    assert [row["info"]["contest_date"] for row in env.eval_rows()] == kept


def test_a_window_without_contests_says_so(tmp_path):
    env = evaluating(tmp_path, "livecodebench", [LIVECODEBENCH], start_date="2025-03-01")
    with pytest.raises(vf.DatasetError, match="none of 1 problems is of a contest from 2025-03-01 to 2025-05-01"):
        env.eval_rows()


class Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


async def test_a_pickle_that_would_run_something_is_a_fault_and_runs_nothing(tmp_path):
    trap = base64.b64encode(zlib.compress(pickle.dumps(Touch(tmp_path / "ran")))).decode()
    env = evaluating(tmp_path, "livecodebench", [{**LIVECODEBENCH, "private_test_cases": trap}])
    record = await scored(env, env.eval_rows(), PIPED)
    assert (record.reward, record.status) == (None, "fault")
    assert "only a text is read" in record.scores[0].reason
    assert not (tmp_path / "ran").exists()


# 4. the same by seed


def test_a_seed_gives_the_same_examples_and_another_seed_others(tmp_path):
    rows = [{**LIVECODEBENCH, "question_id": str(number)} for number in range(20)]

    def asked(seed: int | None) -> list[str]:
        env = evaluating(tmp_path, "livecodebench", rows, seed=seed, num_eval_examples=10)
        return [row["info"]["question_id"] for row in env.eval_rows()]

    assert asked(1) == asked(1) != asked(2)
    assert asked(None) == [str(number) for number in range(10)]


# Loading and the public names: in a fresh process with a cache of its own, one for all, since `datasets` is heavy.

CODE = """
import json, sys
from dataclasses import replace
import i3_code, verifiers as vf
from i3_code.sources import TRAIN
env = i3_code.load_environment(["deepcoder", "synthetic2"])
told = {"imported": [name for name in ("datasets", "huggingface_hub") if name in sys.modules]}
told |= {"train": env.train_rows(), "eval": env.eval_rows()}
source = replace(TRAIN["deepcoder-taco"], data=vf.DataSource(FOLDER))
told |= {"parts": source.rows(max_tests=1), "shuffled": source.rows(seed=1), "some": source.rows(num=4, seed=1)}
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is read without a network; and a set in parts, from a folder like the hub's."""
    place = tmp_path_factory.mktemp("public")
    write(place / "train.jsonl", [{**TACO, "problem": f"Problem {number}."} for number in range(23)])
    (place / "README.md").write_text("---\nconfigs: [{config_name: default, data_files: train.jsonl}]\n---\n")
    own = {"HF_HOME": str(place / "hf"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", CODE.replace("FOLDER", repr(str(place)))],
        env={**os.environ, **own}, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return {**json.loads(done.stdout), "stderr": done.stderr}


def test_loading_touches_neither_network_nor_datasets(told):
    assert told["imported"] == []


def test_without_network_our_own_problems_serve_and_it_is_said(told):
    assert [len(told["train"]), len(told["eval"])] == [8, 2]
    assert {row["info"]["source"].partition(",")[0] for row in told["train"] + told["eval"]} == {"own rows"}
    assert "THEIR SCORES ARE NOT livecodebench/code_generation_lite SCORES" in told["stderr"]


def test_a_large_set_is_read_in_parts_whole_and_in_its_order(told):
    assert [row["question"].split(".")[0] for row in told["parts"]] == [f"Problem {number}" for number in range(23)]
    assert {row["info"]["source"].rpartition("/")[2][-5:] for row in told["parts"]} == {"train"}
    assert sorted(row["question"] for row in told["shuffled"]) == sorted(row["question"] for row in told["parts"])
    assert len({row["question"] for row in told["some"]}) == 4


def test_a_bound_of_tests_holds_in_the_rows(told):
    assert {len(json.loads(row["problem"])["tests"]) for row in told["parts"]} == {1}
    assert {len(json.loads(row["problem"])["tests"]) for row in told["shuffled"]} == {2}


# 5. the reference scores full, and nothing else does


OWN = {
    "deepcoder-primeintellect": own_problems.primeintellect_rows,
    "deepcoder-taco": own_problems.taco_rows,
    "deepcoder-lcbv5": own_problems.lcbv5_rows,
    "synthetic2": own_problems.synthetic2_rows,
    "livecodebench": own_problems.livecodebench_rows,
    "humaneval": own_problems.human_eval_rows,
    "deepcoder-codeforces": own_problems.codeforces_rows,
}


@pytest.mark.parametrize("name", OWN)
async def test_the_reference_scores_full_on_every_problem_of_our_own(tmp_path, name):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in OWN[name]()))
    is_eval = name in ("livecodebench", "humaneval", "deepcoder-codeforces")
    chosen = {"eval": name, "data": str(path)} if is_eval else {"dataset": name, "train_data": str(path)}
    env = load_environment(engine="unsafe-local", **chosen)
    rows = env.eval_rows() if is_eval else env.train_rows()
    client = vf.ScriptedClient(lambda request: reference_reply(request.messages, {}))
    results = await env.generate(rows, client, "scripted")
    await env.teardown()
    assert results["reward"] == [1.0] * len(rows)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "print(2 * int(input()))",
        "```python\n```",
        "```python\nprint(2 * int(input()))",
        "```python\nprint(4)\n```",  # the example that the task shows
        f"<think>{PIPED}</think> I do not know.",
        f"<think>{PIPED}",
        f"{PIPED}\n```python\nprint(0)\n```",
        "```python\nprint('all tests passed'); raise SystemExit(0)\n```",
        "```python\nprint(10, 4)\n```",
    ],
)
async def test_a_wrong_empty_or_unfinished_program_scores_nothing(tmp_path, reply):
    env = evaluating(tmp_path, "livecodebench", [LIVECODEBENCH])
    assert (await scored(env, env.eval_rows(), reply)).reward == 0.0


CHEATS = {
    "nothing": "",
    "another name": "def triple(n):\n    return 2 * n",
    "leaves early": "import os\ndef double(n):\n    os._exit(0)",
    "exit in the module": "raise SystemExit(0)",
    "equals everything": (
        "class All:\n    def __eq__(self, other):\n        return True\ndef double(n):\n    return All()"
    ),
    "a list that equals everything": (
        "class All(list):\n    def __eq__(self, other):\n        return True\ndef double(n):\n    return All()"
    ),
    "forges a report": (
        "import sys\nmain = sys.modules['__main__']\nmain.tell(value=True)\ndef double(n):\n    return 0"
    ),
    "forges a list": "import sys\nsys.modules['__main__'].tell(value=[None, None])",
    "forges no object": (
        "import os, sys\nmain = sys.modules['__main__']\n"
        "os.write(main.report, b'\\n' + main.nonce.encode() + b'7\\n')\nos._exit(0)"
    ),
    "looks for the check": (
        "import sys\ntask = sys.modules['__main__'].task\ndef double(n):\n    return 2 * n if 'test' in task else 0"
    ),
    "looks for the reference": (
        "import sys\ntask = sys.modules['__main__'].task\n"
        "def double(n):\n    return 2 * n if 'canonical_solution' in task else 0"
    ),
    "patches what compares": "import builtins\nbuiltins.AssertionError = Warning\ndef double(n):\n    return 0",
    "prints it": "def double(n):\n    print(2 * n)",
    "half of it": "def double(n):\n    return 4",
    "raises": "def double(n):\n    raise KeyError(n)",
}


async def test_a_function_that_cheats_its_check_scores_nothing(tmp_path):
    env = evaluating(tmp_path, "humaneval", [HUMAN_EVAL])
    replies = [f"```python\n{program}\n```" for program in (*CHEATS.values(), "def double(n):\n    return 2 * n")]
    paid = await rewards(env, env.eval_rows(), *replies)
    assert dict(zip([*CHEATS, "no cheat"], paid, strict=True)) == {**dict.fromkeys(CHEATS, 0.0), "no cheat": 1.0}


async def test_a_tuple_is_no_list_to_a_check(tmp_path):
    check = "\n\ndef check(candidate):\n    assert candidate(2) == (2, 4)\n"
    row = {**HUMAN_EVAL, "canonical_solution": "    return n, 2 * n\n", "test": check}
    env = evaluating(tmp_path, "humaneval", [row])
    made, listed = (f"```python\ndef double(n):\n    return {value}\n```" for value in ("(n, 2 * n)", "[n, 2 * n]"))
    assert await rewards(env, env.eval_rows(), made, listed) == [1.0, 0.0]


async def test_a_check_that_its_own_reference_fails_is_a_fault(tmp_path):
    env = evaluating(tmp_path, "humaneval", [{**HUMAN_EVAL, "canonical_solution": "    return n\n"}])
    record = await scored(env, env.eval_rows(), CALLED)
    assert (record.reward, record.status) == (None, "fault")
    assert "reference does not pass its check" in record.scores[0].reason


async def test_a_program_that_never_ends_is_wrong_and_says_why(tmp_path):
    env = evaluating(tmp_path, "humaneval", [HUMAN_EVAL], time_limit_s=3.0)
    record = await scored(env, env.eval_rows(), "```python\nimport time\ntime.sleep(60)\n```")
    assert (record.reward, record.scores[0].reason) == (0.0, "it met the limit of wall")


class Broken:
    """An engine whose machine is gone."""

    async def run_once(self, program: str, **options: Any) -> Any:
        raise vf.SandboxError("the machine is gone")


@pytest.mark.parametrize(("name", "row"), [("livecodebench", LIVECODEBENCH), ("humaneval", HUMAN_EVAL)])
async def test_a_sandbox_that_is_gone_is_a_fault_and_no_zero(tmp_path, name, row):
    env = load_environment(eval=name, data=write(tmp_path / "rows.jsonl", [row]), engine=Broken())
    record = await scored(env, env.eval_rows(), CALLED)
    assert (record.reward, record.status, record.scores[0].side) == (None, "fault", "sandbox")
