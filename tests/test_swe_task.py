"""`SWETask`: rows of published schemas are read, and what cannot be graded is refused; what belongs to the tests."""

import ast
import json
import re
import subprocess
import unittest
from pathlib import Path

import pytest

import verifiers as vf
from verifiers.errors import DatasetError
from verifiers.rubrics import swe_tests
from verifiers.rubrics.swe_repository import read_commit
from verifiers.rubrics.swe_task import SWETask, paths_of, read_task
from verifiers.rubrics.swe_tests import Decoys, Report, is_of_tests, judge, test_sections

test_sections.__test__ = False

SWE_BENCH = {
    "repo": "made/thing",
    "instance_id": "made__thing-12",
    "base_commit": "a" * 40,
    "patch": "diff --git a/thing.py b/thing.py\n--- a/thing.py\n+++ b/thing.py\n",
    "test_patch": "diff --git a/tests/test_thing.py b/tests/test_thing.py\n--- a/tests/test_thing.py\n"
    "+++ b/tests/test_thing.py\n",
    "problem_statement": "It is broken.",
    "hints_text": "",
    "created_at": "2024-01-01T00:00:00Z",
    "version": "1.0",
    "FAIL_TO_PASS": '["tests/test_thing.py::test_a[x y]"]',
    "PASS_TO_PASS": '["tests/test_thing.py::test_b"]',
    "environment_setup_commit": "b" * 40,
}
SWE_SMITH = {
    "instance_id": "made__thing.abc123.func_pm__x1",
    "repo": "swesmith/made__thing.abc123",
    "image_name": "swesmith.x86_64.made__thing.abc123",
    "patch": "diff --git a/thing.py b/thing.py\n--- a/thing.py\n+++ b/thing.py\n",
    "problem_statement": "It is broken.",
    "FAIL_TO_PASS": ["tests/test_a.py::test_a"],
    "PASS_TO_PASS": ["tests/test_a.py::test_b", "tests/test_b.py::test_c"],
}
R2E = {
    "repo_name": "thing",
    "docker_image": "registry/thing_final:abc",
    "commit_hash": "c" * 40,
    "parsed_commit_content": "{}",
    "execution_result_content": "{}",
    "problem_statement": "Mend it.\n[ISSUE]\nIt is broken.\n[/ISSUE]\n",
    "expected_output_json": json.dumps(
        {"TestA.test_a": "PASSED", "\x1b[1mTestA.test_b\x1b[0m - Value": "FAILED", "": "ERROR"}
    ),
}


def test_a_row_of_swe_bench_is_read():
    task = read_task(SWE_BENCH)
    assert task.expected == {"tests/test_thing.py::test_a[x y]": "PASSED", "tests/test_thing.py::test_b": "PASSED"}
    assert task.image == "swebench/sweb.eval.x86_64.made_1776_thing-12:latest"
    assert (task.folder, task.base_commit, task.problem) == ("/testbed", "a" * 40, "It is broken.")
    assert task.targets == ["tests/test_thing.py"]
    assert task.hidden_files == {"tests/test_thing.py"}
    assert read_task({**SWE_BENCH, "docker_image": "mine:1"}).image == "mine:1"


def test_a_row_with_a_repository_of_this_machine_needs_no_image():
    task = read_task({**SWE_BENCH, "repository": "thing.bundle", "timeout_s": 9, "runner": "unittest"})
    assert (task.image, task.folder, task.python) == (None, None, "python3")
    assert (task.repository, task.timeout_s, task.runner) == ("thing.bundle", 9.0, "unittest")


def test_a_row_of_swe_smith_is_read_as_a_bug_to_be_put_in():
    task = read_task(SWE_SMITH)
    assert task.setup_patch == SWE_SMITH["patch"]
    assert task.patch == "", "the row's patch is the bug, not the solution"
    assert task.hidden_paths == ("tests/test_a.py",)
    assert task.image == "jyangballin/swesmith.x86_64.made_1776_thing.abc123:latest"
    assert task.targets == ["tests/test_a.py", "tests/test_b.py"]


def test_a_row_of_r2e_gym_is_read():
    task = read_task(R2E)
    assert task.expected == {"TestA.test_a": "PASSED", "TestA.test_b": "FAILED"}
    assert (task.problem, task.image, task.instance_id) == ("It is broken.", R2E["docker_image"], "c" * 40)
    assert task.targets == ["r2e_tests"]
    assert "/r2e_tests" in task.hidden_paths and task.test_links == {"r2e_tests": "/r2e_tests"}


def test_the_prompt_that_a_problem_was_written_by_is_not_shown():
    env = vf.SWEEnv(dataset=[{**R2E, "prompt": "Write an issue for this solution: return 7"}])
    (row,) = env.train_rows()
    assert "return 7" not in str(row["prompt"])
    assert "It is broken." in row["prompt"][0]["content"]
    own = vf.SWEEnv(dataset=[{**R2E, "prompt": [{"role": "user", "content": "Mine."}]}]).train_rows()[0]
    assert own["prompt"][0]["content"] == "Mine."


def test_rows_go_through_a_table_and_come_back_as_they_were():
    env = vf.SWEEnv(dataset=[SWE_BENCH, R2E])
    table = env.get_dataset()
    assert [read_task(row) for row in table] == [read_task(SWE_BENCH), read_task(R2E)]
    assert [read_task(row) for row in vf.SWEEnv(dataset=table).train_rows()] == [read_task(SWE_BENCH), read_task(R2E)]


def test_the_runner_is_written_for_the_pythons_of_old_images():
    source = Path(swe_tests.__file__).with_name("swe_runner.py").read_text("utf-8")
    assert ast.parse(source, feature_version=(3, 6))


def test_a_row_of_our_own_is_read():
    row = {"instance_id": "a", "problem": "p", "expected": {"t.py::test": "PASSED"}, "repository": "r"}
    assert read_task(row) == SWETask(**row)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"FAIL_TO_PASS": "[]", "PASS_TO_PASS": "[]"}, "names no tests"),
        ({"FAIL_TO_PASS": '["test_a (pkg.tests.TestA)"]'}, "is not named as pytest does it"),
        ({"FAIL_TO_PASS": "not json"}, "Expecting value"),
        ({"FAIL_TO_PASS": "[1]"}, "lists of names"),
        ({"problem_statement": None, "instance_id": None}, "task None"),
        ({"test_files": {"../x.py": ""}}, "does not lie in the repository"),
        ({"runner": "nose"}, "Invalid enum value"),
    ],
)
def test_a_row_that_cannot_be_graded_is_refused_by_name(change, says):
    row = {**SWE_BENCH, **change}
    if row["problem_statement"] is None:
        del row["problem_statement"]
        says = "there is no 'problem_statement'"
    with pytest.raises(DatasetError, match=says) as refused:
        read_task(row)
    assert str(refused.value).startswith("task ")


def test_a_row_without_a_repository_is_refused():
    row = {"instance_id": "a", "problem": "p", "expected": {"t.py::test": "PASSED"}}
    with pytest.raises(DatasetError, match="give either"):
        read_task(row)
    with pytest.raises(DatasetError, match=r"fields of vf\.SWETask"):
        read_task({"question": "2 + 2"})


def test_paths_of_a_diff_are_old_and_new_ones():
    diff = "--- a/x.py\n+++ b/x.py\n@@\n--- /dev/null\n+++ b/new dir/y.py\t\nrename from old.py\nrename to newer.py\n"
    assert paths_of(diff) == {"x.py", "new dir/y.py", "old.py", "newer.py"}


# What is a test's own


TASK = SWETask(
    instance_id="a", problem="p", repository="r",
    expected={"pkg/tests/unit/test_a.py::test": "PASSED", "src/test_b.py::test": "PASSED"},
)  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "pkg/tests/unit/test_a.py", "pkg/tests/unit", "pkg/tests/data.json", "pkg", "src/test_b.py", "conftest.py",
        "deep/conftest.py", "pytest.ini", "sitecustomize.py", "x.egg-info/entry_points.txt", "x.pth", "a/b_test.py",
        "pkg/__pycache__/a.cpython-311.pyc", ".gitmodules",
    ],
)  # fmt: skip
def test_pattern_15_paths_of_tests_are_theirs(path):
    assert is_of_tests(path, TASK)


@pytest.mark.parametrize(
    "path", ["pkg/a.py", "src/b.py", "django/test/client.py", "setup.py", "pkg/testing.py", "docs/x"]
)
def test_paths_of_the_code_are_not(path):
    assert not is_of_tests(path, TASK)


def test_settings_are_compared_by_what_they_say_of_tests():
    assert test_sections("setup.cfg", "[metadata]\nname = a\n") == test_sections("setup.cfg", "[metadata]\nname = b\n")
    assert test_sections("tox.ini", "[pytest]\na = 1\n") != test_sections("tox.ini", "")
    assert test_sections("pyproject.toml", "[tool.pytest.ini_options]\na = 1\n") != test_sections("pyproject.toml", "")
    assert test_sections("pyproject.toml", "[tool.ruff]\n") == test_sections("pyproject.toml", "")
    assert test_sections("pyproject.toml", "[broken") != test_sections("pyproject.toml", "")


# Verdicts


def report(statuses, **change):
    fields = {"is_whole": True, "is_late": False, "touched": [], "ending": "exit 1", "output": ""}
    return Report(statuses=statuses, **{**fields, **change})


def test_a_verdict_needs_every_status_and_every_decoy():
    decoys = Decoys.made("tests")
    task = SWETask(
        instance_id="a", problem="p", repository="r", test_paths=("tests",),
        expected={"A.test_a": "PASSED", "test_b": "FAILED"},
    )  # fmt: skip
    failed = dict.fromkeys(decoys.must_fail, "FAILED")
    right = {"tests/test_x.py::A::test_a": "PASSED", "tests/test_x.py::test_b": "FAILED"}
    assert judge(report({**right, **failed}), task, decoys) == 1.0
    for statuses, change, says in [
        (right, {}, "before every test had its turn"),
        ({**right, **failed, decoys.must_fail[2]: "PASSED"}, {}, "does not tell the truth"),
        ({**right, **failed, "tests/test_x.py::test_b": "PASSED"}, {}, "test_b is PASSED, not FAILED"),
        ({**failed}, {}, "A.test_a is missing, not PASSED"),
        (
            {**failed},
            {"output": "x\nE   NameError: y\n"},
            r"missing.*\(NameError: y\)",
        ),
        ({**right, **failed}, {"is_whole": False, "ending": "signal 9"}, r"cut short .* \(signal 9\)"),
        ({**right, **failed}, {"is_late": True}, "longer than 300 s"),
        ({**right, **failed}, {"touched": ["tests/test_x.py"]}, "changed while they ran"),
    ]:
        verdict = judge(report(statuses, **change), task, decoys)
        assert verdict == 0.0
        assert re.search(says, verdict.reason), verdict.reason


def test_decoys_fail_by_themselves_and_have_new_names_each_time():
    one, other = Decoys.made("tests"), Decoys.made("tests")
    assert one.path != other.path
    names: dict = {"__name__": "decoys"}
    exec(one.source, names)
    (case,) = [value for value in names.values() if isinstance(value, type)]
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    result = unittest.TestResult()
    suite.run(result)
    assert result.testsRun == len(result.failures) + len(result.errors) == len(one.must_fail)


def test_an_archive_that_is_no_repository_is_refused(tmp_path):
    (tmp_path / "x.bundle").write_text("nothing")
    with pytest.raises(DatasetError, match="the repository cannot be read"):
        read_commit(tmp_path / "x.bundle", None)


def test_a_plain_folder_is_not_taken_for_the_repository_around_it(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "inner").mkdir()
    with pytest.raises(DatasetError, match="inner is no git repository"):
        read_commit(tmp_path / "inner", None)
