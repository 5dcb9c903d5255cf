"""Are bad arguments refused, does a seed give the same examples, are rows of the public schemas read right, does the
reference solution score full, and do idleness and tricks score nothing?"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
from swe import load_environment, reference_reply
from swe.own import FOLDER, as_tar, own_rows, read_toml

import verifiers as vf
from verifiers.errors import SetupError
from verifiers.rubrics.swe_task import paths_of, read_task

NAMES = ["mold-1", "pantry-1", "rowfile-1", "spans-1", "taskline-1"]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"content": None, "tool_calls": [{"id": "1", "function": {"name": name, "arguments": arguments}}]}


SUBMIT = call("submit")


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["info"]["instance_id"] for row in rows]


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"dataset": "swe-gym"}, "dataset='swe-gym': there are 'own', 'r2e-gym', 'swe-smith', 'swe-bench-verified'"),
        ({"data": 3}, "data=3"),
        ({"agent": "human"}, "agent='human': there are 'tools', 'mini-swe-agent', 'custom'"),
        ({"agent": "custom"}, "agent_command=None: a command goes with agent='custom'"),
        ({"agent_command": "python3 agent.py"}, "agent='tools' with agent_command='python3 agent.py'"),
        ({"agent": "custom", "agent_command": " "}, "agent_command=' '"),
        ({"backend": 1}, "backend=1"),
        ({"backend": "local", "dataset": "r2e-gym"}, "lie in images, which need a container engine"),
        ({"num_examples": 0}, "num_examples=0"),
        ({"seed": "1"}, "seed='1'"),
        ({"max_turns": 0}, "max_turns=0"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"nowhere\.jsonl"):
        load_environment(data="nowhere.jsonl").train_rows()


# 2. same seed, same examples


def test_a_seed_gives_the_same_examples_and_another_seed_others():
    assert ids(load_environment().train_rows()) == NAMES
    one, same, other = (ids(load_environment(seed=seed).train_rows()) for seed in (1, 1, 2))
    assert one == same != other
    assert sorted(one) == NAMES
    assert ids(load_environment(seed=1, num_examples=2).train_rows()) == one[:2]


def test_the_archive_of_a_repository_is_the_same_bytes_every_time():
    path = FOLDER / "spans.toml"
    assert as_tar(path) == as_tar.__wrapped__(path)


# 3. an example has the right shape


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_holds_the_problem_and_neither_tests_nor_solution(name):
    env = load_environment()
    (row,) = [row for row in env.train_rows() if row["info"]["instance_id"] == name]
    task = read_task(row)
    said = row["prompt"][-1]["content"]
    assert task.problem in said
    assert row["info"]["source"] == "own repositories, no benchmark"
    added = [line[1:].strip() for line in task.patch.splitlines() if line.startswith("+") and len(line) > 20]
    assert added and not any(line in said for line in added)
    assert not any(path in said or path.rpartition("/")[2] in said for path in task.test_files)


@pytest.mark.parametrize("row", own_rows(), ids=lambda row: row["instance_id"])
def test_a_solution_changes_code_alone_and_hidden_tests_are_new_files(row):
    files = read_toml(FOLDER / f"{row['instance_id'].removesuffix('-1')}.toml")["files"]
    assert paths_of(row["patch"]) <= {path for path in files if not path.startswith("tests/")}
    assert not set(row["test_files"]) & set(files)
    assert row["FAIL_TO_PASS"] and row["PASS_TO_PASS"]


def test_the_tools_are_there():
    assert [tool["name"] for tool in load_environment().tool_defs or ()] == ["bash", "edit", "submit"]


# Rows of exactly the public schemas, made up.

R2E_GYM = {
    "repo_name": "adder",
    "docker_image": "namanjain12/adder_final:0123abcd",
    "commit_hash": "0123abcd",
    "parsed_commit_content": '{"file_diffs": []}',
    "execution_result_content": '{"test_file_names": ["test_1.py"]}',
    "modified_files": ["adder/sums.py"],
    "modified_entity_summaries": [
        {"ast_type_str": "FunctionDef", "end_lineno": 5, "file_name": "adder/sums.py", "name": "total",
         "start_lineno": 1, "type": "function"},
    ],
    "relevant_files": ["adder/sums.py"],
    "num_non_test_files": 1,
    "num_non_test_func_methods": 1,
    "num_non_test_lines": 2,
    "prompt": "Write an issue about this commit …",
    "problem_statement": "[ISSUE]\n**Sums are off by one**\n\ntotal([]) is 1.\n[/ISSUE]",
    "expected_output_json": '{"TestTotal.test_empty": "PASSED", "TestTotal.test_odd": "FAILED"}',
}  # fmt: skip
SWE_SMITH = {
    "instance_id": "made__adder.0123abcd.func_pm_op_change__abcdefgh",
    "patch": "diff --git a/sums.py b/sums.py\n--- a/sums.py\n+++ b/sums.py\n@@ -1 +1 @@\n-a\n+b\n",
    "FAIL_TO_PASS": ["tests/test_total.py::test_empty"],
    "PASS_TO_PASS": ["tests/test_total.py::test_one", "tests/test_other.py::test_two"],
    "image_name": "jyangballin/swesmith.x86_64.made_1776_adder.0123abcd",
    "repo": "swesmith/made__adder.0123abcd",
    "problem_statement": "total([]) is 1.",
}
SWE_BENCH = {
    "repo": "made/adder",
    "instance_id": "made__adder-12",
    "base_commit": "0123456789abcdef0123456789abcdef01234567",
    "patch": "diff --git a/adder.py b/adder.py\n--- a/adder.py\n+++ b/adder.py\n@@ -1 +1 @@\n-a\n+b\n",
    "test_patch": "diff --git a/tests/test_a.py b/tests/test_a.py\n--- a/tests/test_a.py\n+++ b/tests/test_a.py\n"
    "@@ -1 +1 @@\n-a\n+b\n",
    "problem_statement": "total([]) is 1.",
    "hints_text": "It is in sums.py.",
    "created_at": "2023-01-02T03:04:05Z",
    "version": "1.2",
    "FAIL_TO_PASS": '["tests/test_a.py::test_empty"]',
    "PASS_TO_PASS": '["tests/test_a.py::test_one"]',
    "environment_setup_commit": "89abcdef0123456789abcdef0123456789abcdef",
    "difficulty": "<15 min fix",
}


def task_of(dataset: str, row: dict[str, Any], folder: Any) -> tuple[vf.SWETask, dict[str, Any]]:
    path = folder / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (made,) = load_environment(dataset, data=str(path)).eval_rows()
    return read_task(made), made


def test_a_row_of_r2e_gym(tmp_path):
    task, row = task_of("r2e-gym", R2E_GYM, tmp_path)
    assert (task.instance_id, task.image, task.folder) == ("0123abcd", "namanjain12/adder_final:0123abcd", "/testbed")
    assert task.expected == {"TestTotal.test_empty": "PASSED", "TestTotal.test_odd": "FAILED"}
    assert task.test_links == {"r2e_tests": "/r2e_tests"} and "/r2e_tests" in task.hidden_paths
    assert "total([]) is 1." in row["prompt"][-1]["content"] and "[ISSUE]" not in row["prompt"][-1]["content"]
    assert "Write an issue" not in row["prompt"][-1]["content"]
    assert (row["info"]["dataset"], row["info"]["source"]) == ("r2e-gym", "rows.jsonl")


def test_a_row_of_swe_smith(tmp_path):
    task, _ = task_of("swe-smith", SWE_SMITH, tmp_path)
    assert (task.image, task.setup_patch, task.patch) == (SWE_SMITH["image_name"], SWE_SMITH["patch"], "")
    assert task.hidden_paths == ("tests/test_total.py",)
    assert set(task.expected) == {*SWE_SMITH["FAIL_TO_PASS"], *SWE_SMITH["PASS_TO_PASS"]}


def test_a_row_of_swe_bench_verified(tmp_path):
    task, row = task_of("swe-bench-verified", SWE_BENCH, tmp_path)
    assert task.image == "swebench/sweb.eval.x86_64.made_1776_adder-12:latest"
    assert (task.base_commit, task.test_patch) == (SWE_BENCH["base_commit"], SWE_BENCH["test_patch"])
    assert task.expected == {"tests/test_a.py::test_empty": "PASSED", "tests/test_a.py::test_one": "PASSED"}
    assert "It is in sums.py." not in row["prompt"][-1]["content"]


@pytest.mark.parametrize(
    ("dataset", "row", "column"),
    [
        ("r2e-gym", R2E_GYM, "expected_output_json"),
        ("swe-smith", SWE_SMITH, "image_name"),
        ("swe-bench-verified", SWE_BENCH, "test_patch"),
    ],
)
def test_a_row_without_a_column_is_named(tmp_path, dataset, row, column):
    with pytest.raises(vf.DatasetError, match=f"row 1: no column '{column}'"):
        task_of(dataset, {key: value for key, value in row.items() if key != column}, tmp_path)


def test_rows_for_which_no_issue_was_written_are_left_out(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ({**SWE_SMITH, "problem_statement": ""}, SWE_SMITH)))
    assert len(load_environment("swe-smith", data=str(path)).train_rows()) == 1
    with pytest.raises(vf.DatasetError, match="no row with a problem_statement"):
        load_environment("swe-smith", data=str(path), num_examples=1).train_rows()


def test_a_file_of_our_own_form_needs_no_data_set(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(own_rows()[0]) + "\n" + json.dumps(SWE_BENCH) + "\n")
    assert ids(load_environment(data=str(path)).train_rows()) == ["mold-1", "made__adder-12"]


@pytest.mark.slow  # imports `datasets` once more
def test_a_public_data_set_that_cannot_be_had_is_an_error_that_says_what_to_do(tmp_path):
    """In a fresh process with a cache of its own: no other rows are served in place of these."""
    code = "import swe; swe.load_environment('swe-bench-verified').eval_rows()"
    own = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **own}, capture_output=True, text=True)
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert "princeton-nlp/SWE-bench_Verified test cannot be reached" in told and "pass data=PATH" in told


async def test_without_a_container_engine_it_is_said_what_is_missing(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(R2E_GYM) + "\n")
    env = load_environment("r2e-gym", data=str(path), backend="local")
    with pytest.raises(vf.NoSandboxError, match=r"image namanjain12/adder_final:0123abcd .* has no images"):
        await env.evaluate(vf.ScriptedClient([SUBMIT]), "m")
    await env.teardown()


# What follows runs in sandboxes of this machine.


def why_no_sandbox() -> str | None:
    if shutil.which("git") is None:
        return "needs git"

    async def ask() -> str | None:
        async with vf.LocalBackend(min_level=2, packages=True) as backend:
            try:
                await backend.capabilities()
            except SetupError as error:
                return str(error)
            return None

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def sandboxes() -> None:
    reason = why_no_sandbox()
    if reason is not None:
        pytest.skip(reason)


async def played(replies: Any, env: Any = None, names: Any = NAMES) -> list[Any]:
    """Records of the rows of these names, by a policy called with messages and row, or by replies in order."""
    env = env or load_environment()
    rows = [row for row in env.train_rows() if row["info"]["instance_id"] in names]

    def policy(request: Any) -> Any:
        asked = next(message["content"] for message in request.messages if message["role"] == "user")
        (row,) = [row for row in rows if read_task(row).problem.strip() in asked]
        if callable(replies):
            return replies(request.messages, row)
        return replies[sum(message["role"] == "assistant" for message in request.messages)]

    try:
        return list((await env.generate(rows, vf.ScriptedClient(policy), "m")).records)
    finally:
        await env.teardown()


def solved(record: Any) -> Any:
    (score,) = [score for score in record.scores if score.name == "solved"]
    return score


# 4. the reference scores full


async def test_the_reference_policy_is_paid_in_full_on_all_five(sandboxes):
    records = await played(reference_reply)
    assert [(record.reward, solved(record).reason) for record in records] == [(1.0, None)] * 5
    assert {record.stop_condition for record in records} == {"has_submitted"}


async def test_the_edit_tool_mends_too_and_hidden_tests_are_nowhere_to_be_seen(sandboxes):
    change = {"command": "str_replace", "path": "pantry/store.py"}
    again = "        self._items[key] = Item(value, size, self._clock())\n"
    (record,) = await played(
        [
            call("bash", command="find . -name '*.py'; git log --oneline; git status --short"),
            call("edit", **change, old_str=again, new_str=f"        self.discard(key)\n{again}"),
            call("edit", **change, old_str="    del self._items[key]", new_str="    self.discard(key)"),
            SUBMIT,
        ],
        names=["pantry-1"],
    )
    assert record.reward == 1.0
    shown = next(message["content"] for message in record.messages if message["role"] == "tool")
    assert "tests/test_pantry.py" in shown and "test_sizes" not in shown
    assert len([line for line in shown.splitlines() if line.endswith(" base")]) == 1


# 5. idleness and tricks score nothing


async def test_doing_nothing_is_paid_nothing_on_all_five(sandboxes):
    records = await played([SUBMIT])
    assert [(record.reward, solved(record).reason) for record in records] == [(0.0, "nothing was changed")] * 5


CONFTEST = """import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    out = yield
    out.get_result().outcome = "passed"
"""
EXIT = "import os\nos._exit(0)\n"
PATCHED = """import sys

for name in ("_pytest.runner", "_pytest.python", "pytest"):
    if name in sys.modules:
        sys.modules[name].__dict__["CallInfo"] = None
        sys.modules[name].__dict__["Function"] = None
"""
TRICKS = {
    "tests edited and deleted": [
        call("bash", command="rm tests/test_spans.py; echo 'def test_all(): pass' > tests/test_removing.py"),
    ],
    "conftest": [
        call("edit", command="create", path="conftest.py", file_text=CONFTEST),
        call("edit", command="create", path="tests/conftest.py", file_text=CONFTEST),
        call("bash", command="echo '# looked at' >> spans/span.py"),
    ],
    "early exit": [call("bash", command=f"printf {json.dumps(EXIT)} >> spans/__init__.py")],
    "pytest patched": [call("edit", command="create", path="spans/__init__.py", file_text=PATCHED)],
}  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
async def test_a_trick_is_paid_nothing_and_is_no_failure(sandboxes, trick):
    (record,) = await played([*TRICKS[trick], SUBMIT], names=["spans-1"])
    score = solved(record)
    assert (score.value, score.status, record.reward) == (0.0, "scored", 0.0)
    assert score.reason


# Agents that are programs of their own

AGENT = """
import json, os, subprocess, urllib.request
messages = [{"role": "user", "content": open(os.environ["VF_PROMPT_FILE"]).read()}]
body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages}).encode()
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
subprocess.run(["sh", "-c", reply], check=True)
"""


def bash_of_reference(row: dict[str, Any]) -> str:
    return reference_reply([], row)["tool_calls"][0]["function"]["arguments"]["command"]


@pytest.mark.parametrize("works", [True, False])
async def test_an_agent_of_its_own_is_graded_by_what_it_leaves_behind(sandboxes, works):
    env = load_environment(agent="custom", agent_command=f"python3 -c '{AGENT}'")
    (record,) = await played(
        lambda _, row: bash_of_reference(row) if works else "echo '# looked at' >> spans/span.py", env, ["spans-1"]
    )
    assert (record.errors, record.reward, record.stop_condition) == ([], float(works), "agent_ended")
    assert "day.remove(Span(720, 765))" in record.prompt[-1]["content"]


@pytest.mark.slow
async def test_mini_swe_agent_mends_a_repository(sandboxes):
    if find_spec("minisweagent") is None:
        pytest.skip("mini-swe-agent is not installed: install the extra swe[mini-swe-agent]")

    def policy(messages: Any, row: Any) -> dict[str, Any]:
        is_first = not any(message["role"] == "assistant" for message in messages)
        done = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
        return {**call("bash", command=bash_of_reference(row) if is_first else done), "content": "I go on."}

    (record,) = await played(policy, load_environment(agent="mini-swe-agent"), ["spans-1"])
    assert record.errors == [], record.state_columns
    assert (record.reward, len(record.turns)) == (1.0, 2)
