"""`SWEEnv`: a repository is mended and graded by tests that no model can see, and no trick is paid."""

import asyncio
import io
import json
import shlex
import shutil
import tarfile
import textwrap
import uuid
from pathlib import Path

import pytest
from swe_repositories import FIXES, SECRET, git, repository, rows
from swe_tricks import FORGED, TAMPERED

import verifiers as vf
from verifiers.errors import SetupError
from verifiers.rubrics.swe_task import read_task
from verifiers.sandbox import LocalBackend

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def why_no_sandbox() -> str | None:
    async def ask() -> str | None:
        async with LocalBackend() as backend:
            try:
                await backend.capabilities()
            except SetupError as error:
                return str(error)
            return None

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    reason = why_no_sandbox()
    if reason is not None:
        pytest.skip(reason)
    return rows(tmp_path_factory.mktemp("swe"))


@pytest.fixture(scope="module")
def backend():
    made = LocalBackend(packages=True)
    yield made
    asyncio.run(made.close())


@pytest.fixture
def env_of(backend):
    def made(*tasks, **kwargs):
        return vf.SWEEnv(dataset=list(tasks), backend=backend, **kwargs)

    return made


def call(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}


def bash(*lines):
    return call("bash", command="\n".join(lines))


SUBMIT = call("submit")


async def rolled(env, *replies):
    """The scored state."""
    state = await env.rollout(env.train_rows()[0], vf.ScriptedClient([*replies, SUBMIT], cycle=False), "m")
    await env.rubric.score_rollout(state)
    return state


async def played(env, *replies):
    (record,) = (await env.evaluate(vf.ScriptedClient(list(replies), cycle=False), "m")).records
    return record


def score_of(record):
    (score,) = [score for score in record.scores if score.name == "solved"]
    return score


def told(record):
    return [message["content"] for message in record.messages if message["role"] == "tool"]


async def score(env, *replies):
    return score_of(await played(env, *replies, SUBMIT))


# Solving


@pytest.mark.parametrize("name", ["adder", "slugs", "ledger"])
async def test_a_right_fix_is_paid(env_of, tasks, name):
    record = await played(env_of(tasks[name]), bash(FIXES[name]), SUBMIT)
    assert (record.reward, score_of(record).reason) == (1.0, None)
    assert record.stop_condition == "has_submitted"


@pytest.mark.parametrize("name", ["adder", "slugs", "ledger"])
async def test_a_wrong_fix_is_not_paid_and_the_reason_names_the_test(env_of, tasks, name):
    files = {"adder": "adder/sums.py", "slugs": "src/slugs/__init__.py", "ledger": "ledger.py"}
    found = await score(env_of(tasks[name]), bash(f"echo '# looked at' >> {files[name]}"))
    assert found.value == 0.0
    assert "is FAILED, not PASSED" in found.reason


async def test_no_change_is_not_paid_and_nothing_is_run_for_it(env_of, tasks):
    env = env_of(tasks["adder"])
    made = []
    create = env.sandbox_client.create

    async def counted(request):
        made.append(request)
        return await create(request)

    env.sandbox_client.create = counted
    found = await score(env, bash("ls"))
    assert (found.value, found.reason) == (0.0, "nothing was changed")
    assert len(made) == 1


async def test_the_reference_is_worth_one_and_nothing_zero(env_of, tasks):
    env = env_of(tasks["adder"])
    fix = """--- a/adder/sums.py
+++ b/adder/sums.py
@@ -1,3 +1,3 @@
 def total(numbers):
-    result = 1
+    result = 0
     for number in numbers:
"""
    assert await env.grade({**tasks["adder"], "patch": fix}) == 1.0
    assert await env.grade(tasks["adder"], "") == 0.0


async def test_an_answer_without_a_call_and_the_last_turn_end_it_too(env_of, tasks):
    record = await played(env_of(tasks["adder"]), bash(FIXES["adder"]), "Done.")
    assert (record.reward, record.stop_condition) == (1.0, "no_tools_called")
    record = await played(env_of(tasks["adder"], max_turns=2), bash(FIXES["adder"]), bash("ls"))
    assert (record.reward, record.stop_condition) == (1.0, "max_turns_reached")
    assert env_of(tasks["adder"]).max_turns == 200


async def test_code_that_cannot_be_imported_is_wrong_and_the_reason_says_why(env_of, tasks):
    found = await score(env_of(tasks["adder"]), bash("echo 'import missing_module' > adder/__init__.py"))
    assert found.value == 0.0
    assert "ModuleNotFoundError: No module named 'missing_module'" in found.reason


async def test_what_breaks_other_tests_is_not_paid(env_of, tasks):
    found = await score(
        env_of(tasks["adder"]), bash("printf 'def total(numbers):\\n    return float(sum(numbers))\\n' > adder/sums.py")
    )
    assert found.value == 0.0
    assert "test_is_number is FAILED" in found.reason


async def test_committed_and_new_files_count(env_of, tasks):
    lines = (
        "printf 'def total(numbers):\\n    return sum(numbers)\\n' > adder/better.py",
        "printf 'from adder.better import total\\n' > adder/__init__.py",
        "git rm -q adder/sums.py && git add -A && git commit -qm done && git checkout -q -b other",
    )
    assert (await score(env_of(tasks["adder"]), bash(*lines))).value == 1.0


async def test_binary_and_badly_encoded_files_are_carried(env_of, tasks):
    lines = (
        FIXES["ledger"],
        "head -c 3000 /dev/urandom > data/new.bin; printf '\\377\\r\\n' >> data/raw.bin",
        "printf 'na\\357ve\\r\\n' > data/latin.txt",
    )
    state = await rolled(env_of(tasks["ledger"]), bash(*lines))
    assert state["reward"] == 1.0
    assert "GIT binary patch" in state["patch"]


# Tools


async def test_files_are_shown_and_edited(env_of, tasks):
    record = await played(
        env_of(tasks["adder"]),
        call("edit", command="view", path="adder/sums.py", view_range=[2, 3]),
        call("edit", command="str_replace", path="adder/sums.py", old_str="result", new_str="x"),
        call("edit", command="str_replace", path="adder/sums.py", old_str="result = 1", new_str="result = 0"),
        call("edit", command="insert", path="adder/sums.py", insert_line=0, new_str="# sums"),
        call("edit", command="create", path="new/note.txt", file_text="a\n"),
        call("edit", command="view", path="new"),
        call("edit", command="view", path="missing.py"),
        call("edit", command="str_replace", path="run.sh", old_str="echo run", new_str="echo ran"),
        bash("./run.sh; pwd; cat new/note.txt"),
        SUBMIT,
    )
    said = told(record)
    assert said[0] == "     2\t    result = 1\n     3\t    for number in numbers:"
    assert "stands there 3 times" in said[1]
    assert "     2\t    result = 0" in said[2]
    assert "     1\t# sums" in said[3]
    assert "note.txt" in said[5]
    assert "there is no missing.py" in said[6]
    assert said[8].startswith("ran\n") and said[8].endswith("a")
    assert record.reward == 1.0


async def test_the_prompt_has_the_problem_as_it_is_written(env_of, tasks):
    (row,) = env_of(tasks["adder"]).train_rows()
    assert "total([2, 3]) is 6, and {braces} do no harm." in row["prompt"][-1]["content"]
    assert "test_hidden" not in row["prompt"][-1]["content"]


# 15: tests and their configuration


@pytest.mark.parametrize("way", TAMPERED)
async def test_pattern_15_tests_and_their_settings_are_the_tasks_own(env_of, tasks, way):
    found = await score(env_of(tasks["adder"]), bash(TAMPERED[way]))
    assert (found.value, found.status) == (0.0, "scored"), found
    assert found.reason


async def test_pattern_15_a_right_fix_is_paid_whatever_else_was_changed(env_of, tasks):
    found = await score(env_of(tasks["adder"]), bash(*TAMPERED.values(), FIXES["adder"]))
    assert found.value == 1.0, found


async def test_pattern_15_settings_that_tests_need_are_restored(env_of, tasks):
    assert (await score(env_of(tasks["slugs"]), bash("rm setup.cfg", FIXES["slugs"]))).value == 1.0
    spoiled = (
        "printf '[tool.pytest.ini_options]\\naddopts = \"--collect-only\"\\n' > pyproject.toml; rm tests/conftest.py"
    )
    assert (await score(env_of(tasks["ledger"]), bash(spoiled, FIXES["ledger"]))).value == 1.0


async def test_pattern_15_settings_of_other_things_may_be_changed(env_of, tasks):
    lines = (FIXES["ledger"], 'sed -i \'s/version = "1"/version = "2"/\' pyproject.toml')
    state = await rolled(env_of(tasks["ledger"]), bash(*lines))
    assert state["reward"] == 1.0
    assert 'version = "2"' in state["patch"]


# In the tests' own process


@pytest.mark.parametrize("way", FORGED)
async def test_pattern_15_code_that_speaks_for_the_tests_is_not_believed(env_of, tasks, way):
    text = f"{textwrap.dedent(FORGED[way])}from adder.sums import total\n"
    found = await score(
        env_of(tasks["adder"]), call("edit", command="create", path="adder/__init__.py", file_text=text)
    )
    assert (found.value, found.status) == (0.0, "scored"), found
    if way in ("printed", "lines without the token", "the leader asked"):
        assert "is FAILED" in found.reason  # nothing was reached, and the tests ran


async def test_code_that_does_not_end_is_wrong_and_not_a_fault(env_of, tasks):
    slow = {**tasks["adder"], "timeout_s": 3}
    found = await score(env_of(slow), bash("echo 'while True: pass' >> adder/sums.py"))
    assert (found.value, found.reason) == (0.0, "the tests took longer than 3 s")


# 16: history


LOOKING = {
    "commits": "git log --all --format=%H%n%B | wc -l; git rev-list --all --count",
    "reflog": "git reflog --all",
    "refs": "git for-each-ref --format='%(refname)'",
    "remotes and settings": "git remote -v; git config -l",
    "unreachable": "git fsck --unreachable --no-reflogs --lost-found 2>/dev/null",
    "objects": "git cat-file --batch-all-objects --batch | strings",
    "files": "grep -ra 'count from one' / --include='*' -s --exclude-dir=proc --exclude-dir=usr --exclude-dir=sys",
}


async def test_pattern_16_the_repository_tells_nothing_of_its_history(env_of, tasks):
    record = await played(env_of(tasks["adder"]), *(bash(line) for line in LOOKING.values()), SUBMIT)
    said = dict(zip(LOOKING, told(record), strict=False))
    assert SECRET not in " ".join(said.values()).replace("grep -ra 'count from one'", "")
    assert said["commits"].split()[-1] == "1"
    assert said["reflog"] == said["unreachable"] == "(no output)"
    assert said["refs"].split() == ["refs/heads/master"]
    assert "remote" not in said["remotes and settings"] and "bundle" not in said["remotes and settings"]
    assert tasks["adder"]["base_commit"] not in " ".join(said.values())


async def test_pattern_16_a_repository_of_a_folder_tells_nothing_either(env_of, tasks):
    folder = tasks["adder"]["repository"].removesuffix(".bundle")
    row = {**tasks["adder"], "repository": folder}
    record = await played(
        env_of(row), bash("git log --all | cat; git reflog --all; git tag; ls"), bash(FIXES["adder"]), SUBMIT
    )
    assert SECRET not in told(record)[0]
    assert "FIX.txt" not in told(record)[0]
    assert record.reward == 1.0


async def test_hidden_tests_are_nowhere_while_the_model_works(env_of, tasks):
    record = await played(
        env_of(tasks["adder"]),
        bash("grep -rl test_empty / -s --exclude-dir=proc --exclude-dir=usr --exclude-dir=sys --exclude-dir=root"),
        SUBMIT,
    )
    assert "test_hidden" not in told(record)[0]


# A repository that lies in an image


class Images(LocalBackend):
    """Local sandboxes that look like those of an image: a repository with all its history, and tests beside it."""

    repository = b""
    tests = b""

    async def create(self, spec=None):
        sandbox = await super().create(spec)
        if sandbox.work != "/work":
            pytest.skip("a local sandbox of this level has no place that an image could name")
        await sandbox.put_archive(self.repository, "/work/testbed")
        await sandbox.write_file("/work/r2e_tests/test_1.py", self.tests)
        return sandbox


def packed(folder):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, arcname=path.name)
    return buffer.getvalue()


IN_IMAGE = {"image_name": "python:3.11", "docker_image": "python:3.11", "folder": "/work/testbed", "python": "python3"}


async def test_pattern_16_a_repository_of_an_image_loses_its_history(tasks, tmp_path):
    base = repository("ledger", tmp_path / "ledger")
    fix = git(tmp_path / "ledger", "rev-parse", "v2")
    git(tmp_path / "ledger", "checkout", "-q", "--detach", "v2")  # the image stands at another commit
    (tmp_path / "ledger" / "build.out").write_text("left by a build")
    row = {**tasks["ledger"], **IN_IMAGE, "repository": None, "base_commit": base}
    async with Images(packages=True) as backend:
        backend.repository = packed(tmp_path / "ledger")
        env = vf.SWEEnv(dataset=[row], backend=backend)
        looks = f"git log --all --oneline | wc -l; git tag; git reflog; git cat-file -t {fix}; ls; git status --short"
        record = await played(env, bash(looks), bash(FIXES["ledger"], "cat build.out"), SUBMIT)
        assert record.reward == 1.0, score_of(record)
        said = told(record)[0]
        assert said.startswith("1\n") and "FIX.txt" not in said and "v2" not in said
        assert "could not get object info" in said or "Not a valid object" in said
        assert "??" not in said and " D " not in said
        assert (await score(env, bash("touch new.txt"))).value == 0.0


async def test_a_row_of_r2e_gym_is_played(tasks, tmp_path):
    repository("adder", tmp_path / "adder")
    row = {
        **IN_IMAGE,
        "commit_hash": "1" * 40,
        "problem_statement": "[ISSUE]The sum is wrong.[/ISSUE]",
        "expected_output_json": json.dumps(
            {"test_empty": "PASSED", "Sums.test_two": "PASSED", "Sums.test_odd": "FAILED"}
        ),
        "hidden_paths": ["/work/r2e_tests"],
        "test_links": {"r2e_tests": "/work/r2e_tests"},
    }
    async with Images(packages=True) as backend:
        backend.repository = packed(tmp_path / "adder")
        backend.tests = (
            b"from adder import total\n\ndef test_empty():\n    assert total([]) == 0\n\n"
            b"import unittest\n\nclass Sums(unittest.TestCase):\n    def test_two(self):\n"
            b"        self.assertEqual(total([1, 1]), 2)\n\n    def test_odd(self):\n"
            b"        self.assertEqual(total([1]), 7)\n"
        )
        env = vf.SWEEnv(dataset=[row], backend=backend)
        record = await played(env, bash("ls .. r2e_tests; cat ../r2e_tests/*"), bash(FIXES["adder"]), SUBMIT)
        assert record.reward == 1.0, score_of(record)
        assert "test_1" not in told(record)[0] and "test_two" not in told(record)[0]
        assert "is FAILED, not PASSED" in (await score(env, bash("echo >> README.md"))).reason


async def test_a_row_of_swe_smith_is_played_with_its_bug_put_in(tasks, tmp_path):
    repository("ledger", tmp_path / "ledger")
    git(tmp_path / "ledger", "checkout", "-q", "--detach", "v2")
    bug = git(tmp_path / "ledger", "diff", "v2", "main", "--", "ledger.py") + "\n"
    row = {
        **IN_IMAGE,
        "instance_id": "ledger.x",
        "repo": "swesmith/made__ledger.x",
        "patch": bug,
        "problem_statement": "Taking away adds.",
        "FAIL_TO_PASS": ["tests/test_ledger.py::test_adds"],
        "PASS_TO_PASS": [],
    }
    async with Images(packages=True) as backend:
        backend.repository = packed(tmp_path / "ledger")
        env = vf.SWEEnv(dataset=[row], backend=backend)
        record = await played(env, bash("cat ledger.py; ls tests"), bash(FIXES["ledger"]), SUBMIT)
        assert record.reward == 1.0, score_of(record)
        assert "abs(amount)" in told(record)[0] and "test_ledger" not in told(record)[0]


# 17: processes that stay


def is_running(marker):
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


class Watching(vf.SWEEnv):
    """Notes whether the model's processes live when the tests' sandbox is made."""

    marker = ""
    seen = ()

    def fresh_sandbox(self, task):
        self.seen = (*self.seen, is_running(self.marker))
        return super().fresh_sandbox(task)


async def test_pattern_17_what_was_left_running_is_dead_before_the_tests_start(backend, tasks):
    marker = f"writer-{uuid.uuid4().hex}"
    writer = (
        f"import os, time\nname = '{marker}'\nif os.fork(): os._exit(0)\nos.setsid()\nwhile True:\n"
        "    open('adder/beat.py', 'a').write('x')\n    time.sleep(0.01)\n"
    )
    env = Watching(dataset=[tasks["adder"]], backend=backend)
    env.marker = marker
    lines = f"nohup setsid python3 -c {shlex.quote(writer)} >/dev/null 2>&1 </dev/null &"
    wait = "for i in $(seq 500); do [ -s adder/beat.py ] && break; sleep 0.1; done; cat adder/beat.py"
    alive = []

    def looks(request):
        alive.append(is_running(marker))
        return SUBMIT

    record = await played(env, bash(lines), bash(wait), looks)
    assert told(record)[1].startswith("x")
    assert alive == [True]
    assert env.seen == (False,)
    assert score_of(record).value == 0.0
    assert not is_running(marker) and not env.active_sandboxes


async def test_pattern_17_processes_that_fill_the_sandbox_are_no_way_out_of_a_zero(env_of, tasks):
    bomb = "for i in range(400):\\n    try:\\n        os.fork() or time.sleep(60)\\n    except OSError: pass"
    lines = f"""printf 'import os, time\\n{bomb}\\ntime.sleep(60)\\n' > ../bomb.py
        nohup setsid python3 ../bomb.py >/dev/null 2>&1 </dev/null &"""
    record = await played(env_of(tasks["adder"]), bash("echo '# a' >> adder/sums.py"), bash(lines, "sleep 2"), SUBMIT)
    assert (score_of(record).value, score_of(record).status) == (0.0, "scored"), score_of(record)


# Faults


async def test_a_sandbox_that_fails_is_a_fault_and_no_zero(env_of, tasks):
    env = env_of(tasks["adder"])
    create = env.sandbox_client.create
    count = 0

    async def failing(request):
        nonlocal count
        count += 1
        if count > 1:
            raise vf.SandboxError("the engine is down")
        return await create(request)

    env.sandbox_client.create = failing
    found = await score(env, bash(FIXES["adder"]))
    assert (found.value, found.status, found.side) == (None, "fault", "sandbox")


async def test_a_cancelled_rollout_leaves_no_sandbox(env_of, tasks):
    env = env_of(tasks["adder"])
    reached = asyncio.Event()

    async def waits(request):
        reached.set()
        await asyncio.sleep(250)

    running = asyncio.create_task(played(env, bash("ls"), waits))
    await asyncio.wait_for(reached.wait(), 200)
    assert env.active_sandboxes
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not env.active_sandboxes
    assert not env.sandbox_client.backend._cells


async def test_other_rewards_are_added_to_the_tests(env_of, tasks):
    async def short(state):
        return 0.5

    record = await played(env_of(tasks["adder"], rubric=vf.Rubric([short])), bash(FIXES["adder"]), SUBMIT)
    assert record.reward == 1.5


async def test_the_tries_of_an_example_read_its_repository_once(tasks, monkeypatch):
    from verifiers.rubrics import swe_repository

    reads = []
    read = swe_repository.read_commit
    monkeypatch.setattr(swe_repository, "read_commit", lambda *given: reads.append(given) or read(*given))
    repositories = swe_repository.Repositories()
    task = read_task(tasks["adder"])
    first, *others = await asyncio.gather(*(repositories.files(task) for _ in range(8)))
    assert len(reads) == 1
    assert all(other is first for other in others)


async def test_a_task_that_does_not_fit_its_base_is_a_fault(env_of, tasks):
    broken = {**tasks["ledger"], "test_patch": tasks["ledger"]["test_patch"].replace("add(2)", "add(3)")}
    found = await score(env_of(broken), bash(FIXES["ledger"]))
    assert (found.value, found.status, found.side) == (None, "fault", "reward")
    assert "test_patch does not apply" in found.reason


async def test_a_commit_that_is_not_there_fails_the_rollout(env_of, tasks):
    record = await played(env_of({**tasks["adder"], "base_commit": "0" * 40}), bash("ls"))
    assert record.errors[0].side == "environment"
    assert record.reward is None


async def test_a_repository_without_its_git_is_the_models_own_doing(env_of, tasks):
    found = await score(env_of(tasks["adder"]), bash(FIXES["adder"], "rm -rf .git"))
    assert found.value == 0.0
    assert "no diff could be taken" in found.reason
