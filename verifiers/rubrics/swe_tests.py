"""What a solution's diff is worth: it is applied to a fresh checkout, and the hidden tests are run on it.

Nothing of the place where the model worked is left by then but the text of the diff. What that does to tests and to
their configuration is left out; names of tests that a model could not know have to fail.
"""

from __future__ import annotations

import configparser
import json
import posixpath
import re
import secrets
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifiers.errors import RewardFault, SandboxError
from verifiers.rubrics.graded import Graded
from verifiers.rubrics.swe_repository import GIT, Checkout, check_out, must_answer, own_folder, script
from verifiers.rubrics.swe_task import SWETask
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import ExecResult, Sandbox

_CONFIG_NAMES = {
    "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "sitecustomize.py", "usercustomize.py",
}  # fmt: skip
_PARTLY_CONFIG = {"setup.cfg", "tox.ini", "pyproject.toml"}  # restored only if their sections on tests were changed
_TEST_NAME = re.compile(r"(test_.*|.*_test|tests)\.py")
_METADATA = re.compile(r"\.(egg-info|dist-info|egg-link|pth)(/|$)")  # by these a test runner finds plug-ins
_RUNNERS = {"pytest", "_pytest", "pluggy", "iniconfig", "py"}
_REPORT_GRACE_S = 30.0
_FIRST = (
    "import sys\nsys.path[:] = [path for path in sys.path if path]\n"  # nothing is imported from the repository yet
)


Check = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Report:
    statuses: Mapping[str, str]
    is_whole: bool  # the test run came to its end by itself, and said so
    is_late: bool
    touched: list[str]  # files of the tests that were written to while they ran
    ending: str  # of the process that ran them
    output: str  # the end of what it wrote, which proves nothing


async def grade(sandbox: Sandbox, task: SWETask, files: bytes | None, patch: str, check_elsewhere: Check) -> float:
    """1.0 when every expected status is met, else 0.0 with the reason. The sandbox must be fresh.

    `check_elsewhere(trouble)` raises SandboxError when another sandbox does not answer either: what the tested code has
    done to this one must be no way out of a 0.0.

    Raises SandboxError for the sandbox's failures, and RewardFault or DatasetError for the task's.
    """
    if not patch.strip():
        return Graded(0.0, "nothing was changed")
    checkout = await check_out(sandbox, task, files, aside=f"{own_folder(sandbox)}/{secrets.token_hex(8)}")
    await _must_run_python(sandbox, task)
    wrong = await apply_solution(sandbox, checkout, task, patch)
    if wrong is not None:
        return Graded(0.0, wrong)
    decoys = await bring_tests(sandbox, checkout, task)
    report = await run_tests(sandbox, checkout, task, [*task.targets, decoys.path])
    if isinstance(report, str):
        await check_elsewhere(report)
        return Graded(0.0, report)
    if report.is_late:
        await check_elsewhere("the tests ran out of time")
    return judge(report, task, decoys)


async def _must_run_python(sandbox: Sandbox, task: SWETask) -> None:
    found = await sandbox.exec([task.python, "-c", "import sys"])
    if not found.ok:
        await must_answer(sandbox, f"{task.python} does not run")
        said = found.error_text.strip()[-200:] or found.outcome
        raise RewardFault(f"task {task.instance_id}: its tests need {task.python}, which does not run there: {said}")


# The solution


async def apply_solution(sandbox: Sandbox, checkout: Checkout, task: SWETask, patch: str) -> str | None:
    """Applies what the diff does to the code. What is wrong with it, or `None`."""
    if re.search(r"^(rename|copy) (from|to) ", patch, re.MULTILINE):
        return "the diff renames files, which those taken here never do"
    file = f"{own_folder(sandbox)}/solution.diff"
    await sandbox.write_file(file, patch)
    listed = await _git(sandbox, checkout, "apply", "--numstat", "-z", file)
    if not listed.ok:
        return f"the diff is broken: {_last_words(listed)}"
    changed = [entry.split("\t", 2)[2] for entry in listed.text.split("\0") if entry.count("\t") >= 2]
    left_out = {path for path in changed if is_of_tests(path, task)}
    left_out |= await _shadows(sandbox, checkout, task, changed)
    if set(changed) <= left_out:
        return f"nothing was changed but tests and their configuration: {_some(left_out)}"
    excluded = ["--exclude=" + re.sub(r"([*?\[\\])", r"\\\1", path) for path in sorted(left_out)]
    applied = await _git(sandbox, checkout, "apply", "--whitespace=nowarn", *excluded, file)
    if not applied.ok:
        return f"the diff does not apply to the base: {_last_words(applied)}"
    for path in changed:
        if posixpath.basename(path) in _PARTLY_CONFIG and path not in left_out:
            await _restore_test_sections(sandbox, checkout, path)
    return None


def is_of_tests(path: str, task: SWETask) -> bool:
    """Whether a path belongs to the tests: no solution changes it, or puts something else in place of its folder."""
    name = posixpath.basename(path)
    if name in _CONFIG_NAMES or _TEST_NAME.fullmatch(name) or _METADATA.search(path) or name.endswith(".pyc"):
        return True
    hidden = task.hidden_files
    return (
        any(path == own or own.startswith(f"{path}/") or path.startswith(f"{own}/") for own in hidden)
        or any(path.startswith(f"{folder}/") or path == folder for folder in _test_folders(hidden))
        or (path.endswith(("/.git", "/.gitmodules")) or path.split("/")[0] in (".git", ".gitmodules"))
    )


def _test_folders(hidden: Iterable[str]) -> set[str]:
    """The outermost folders called `test` or `tests` that the tests of a task lie in."""
    found = set()
    for path in hidden:
        parts = path.split("/")
        depth = next((n for n, part in enumerate(parts[:-1], 1) if part in ("test", "tests")), None)
        if depth is not None:
            found.add("/".join(parts[:depth]))
    return found


async def _shadows(sandbox: Sandbox, checkout: Checkout, task: SWETask, changed: Iterable[str]) -> set[str]:
    """New modules where the tests look first, by the names of others that can be imported without them."""
    listed = await _git(sandbox, checkout, "ls-tree", "-r", "-z", "--name-only", checkout.commit)
    places = {"", "src/", *(f"{folder}/" for path in task.targets if (folder := posixpath.dirname(path)))}
    known = {found for path in listed.text.split("\0") for found in _modules_at(path, places)}
    new = {path: _modules_at(path, places) - known for path in changed}
    names = sorted({posixpath.basename(module) for modules in new.values() for module in modules})
    if not names:
        return set()
    found = await sandbox.exec([task.python, "-c", _FIRST + _CAN_IMPORT, *names], cwd="/", env=task.env)
    if not found.ok:
        await must_answer(sandbox, "modules could not be looked for")
        raise RewardFault(f"task {task.instance_id}: {task.python} cannot look for modules: {_last_words(found)}")
    taken = set(found.text.split()) | _RUNNERS
    return {path for path, modules in new.items() if any(posixpath.basename(module) in taken for module in modules)}


_CAN_IMPORT = """
import importlib.util
for name in sys.argv[1:]:
    if name in sys.builtin_module_names or importlib.util.find_spec(name) is not None:
        print(name)
"""


def _modules_at(path: str, places: Iterable[str]) -> set[str]:
    """The modules, each with its place, that the path is one of or lies in."""
    tops = {place + path[len(place) :].split("/")[0] for place in places if path.startswith(place)}
    return {name.partition(".")[0] for name in tops}


async def _restore_test_sections(sandbox: Sandbox, checkout: Checkout, path: str) -> None:
    before = await _git(sandbox, checkout, "show", f"{checkout.commit}:{path}")
    try:
        after = (await sandbox.read_file(f"{checkout.folder}/{path}", max_bytes=1 << 20)).decode("utf-8", "replace")
    except OSError:  # it was removed, or is a link to nowhere
        after = ""
    if test_sections(path, before.text if before.ok else "") == test_sections(path, after):
        return
    if before.ok:
        await _git(sandbox, checkout, "checkout", "-q", checkout.commit, "--", path)
    else:
        await sandbox.exec(["rm", "-rf", path], cwd=checkout.folder)


def test_sections(path: str, text: str) -> Any:
    """What a file of settings says about tests; the whole text when it cannot be read."""
    try:
        if path.endswith(".toml"):
            tool = tomllib.loads(text).get("tool", {})
            return {name: tool[name] for name in ("pytest", "coverage") if name in tool}
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(text)
        return {name: dict(parser[name]) for name in ("pytest", "tool:pytest") if parser.has_section(name)}
    except (tomllib.TOMLDecodeError, configparser.Error, AttributeError):
        return text


# The tests


@dataclass(frozen=True, slots=True)
class Decoys:
    """Tests that fail whatever is tested. Where one of them does not, the run cannot be believed."""

    path: str
    source: str
    must_fail: tuple[str, ...]

    @classmethod
    def made(cls, folder: str) -> Decoys:
        """Beside the first of the hidden tests, by names that nobody can know beforehand."""
        mark = secrets.token_hex(4)
        path = posixpath.join(folder, f"test_{mark}.py")
        one, other = secrets.randbelow(10**6), 10**6 + secrets.randbelow(10**6)
        bodies = {
            "compares": f"self.assertEqual({one}, {other})",
            "asserts": f"assert {one} == {other}",
            "is_true": "self.assertTrue([])",
            "expects": "self.assertRaises(KeyError, dict)",
            "raises": f"raise ValueError({one})",
        }
        lines = ["import unittest", "", f"def test_{mark}():", f"    assert {other} < {one}", ""]
        lines += [f"class Test{mark.title()}(unittest.TestCase):"]
        for name, body in bodies.items():
            lines += [f"    def test_{name}_{mark}(self):", f"        {body}"]
        prefix = f"{path}::Test{mark.title()}::test_"
        return cls(path, "\n".join(lines) + "\n", tuple(f"{prefix}{name}_{mark}" for name in bodies))


_UNHIDE = r"""
set -e
cd "$1"
aside=$2
shift 2
for path in "$@"; do
  if [ ! -e "$aside/$path" ]; then continue; fi
  rm -rf "$path"
  mkdir -p "$(dirname "$path")"
  cp -a "$aside/$path" "$path"
done
"""

_LINK = 'cd "$1" && from="$2$3" && [ -e "$from" ] && rm -rf "$4" && mkdir -p "$(dirname "$4")" && cp -a "$from" "$4"'


async def bring_tests(sandbox: Sandbox, checkout: Checkout, task: SWETask) -> Decoys:
    """Puts the hidden tests in, and decoys beside them. Raises RewardFault when they do not fit the base."""
    where = f"task {task.instance_id}"
    hidden = [path for path in task.hidden_paths if not path.startswith("/")]
    assert checkout.aside is not None
    done = await script(sandbox, _UNHIDE, checkout.folder, checkout.aside, *hidden)
    if not done.ok:
        raise SandboxError(f"{where}: the hidden tests could not be put in: {_last_words(done)}")
    for path, source in task.test_links.items():
        is_hidden = source in task.hidden_paths
        await script(sandbox, _LINK, checkout.folder, checkout.aside if is_hidden else "", source, path)
    if task.test_patch:
        file = f"{own_folder(sandbox)}/tests.diff"
        await sandbox.write_file(file, task.test_patch)
        applied = await _git(sandbox, checkout, "apply", "--whitespace=nowarn", file)
        if not applied.ok:
            raise RewardFault(f"{where}: its test_patch does not apply to its base: {_last_words(applied)}")
    for path, text in task.test_files.items():
        await script(sandbox, 'cd "$1" && rm -rf "$2"', checkout.folder, path)
        await sandbox.write_file(f"{checkout.folder}/{path}", text)
    first = task.targets[0]
    decoys = Decoys.made(posixpath.dirname(first) if first.endswith(".py") else first)
    await sandbox.write_file(f"{checkout.folder}/{decoys.path}", decoys.source)
    return decoys


async def run_tests(sandbox: Sandbox, checkout: Checkout, task: SWETask, targets: list[str]) -> Report | str:
    """What the runner reports; or, as a text, why there is no report, which is the tested code's doing."""
    nonce = secrets.token_hex(16)
    source = _FIRST + Path(__file__).with_name("swe_runner.py").read_text("utf-8")
    folder = checkout.folder
    order = {
        "nonce": nonce, "source": source, "folder": folder, "targets": targets, "runner": task.runner,
        "paths": [folder, f"{folder}/src"], "guarded": sorted({*task.hidden_files, *targets}),
        "timeout_s": task.timeout_s,
    }  # fmt: skip
    limits = SandboxLimits(wall_s=task.timeout_s + _REPORT_GRACE_S, output_kb=16_384)
    done = await sandbox.exec(
        [task.python, "-c", source], stdin=json.dumps(order), cwd="/", env=task.env, limits=limits
    )
    marked = [line for line in done.stdout.split(b"\n") if line.startswith(nonce.encode())]
    if not marked:
        return f"the test run ended without a report ({done.limit or _how(done)})"
    said = json.loads(marked[-1].partition(b" ")[2])
    is_whole = done.ok and said["done"] is not None and said["done"] == said["exit"]
    ending = f"exit {said['exit']}" if said["exit"] >= 0 else f"signal {-said['exit']}"
    return Report(said["statuses"], is_whole, said["late"], said["touched"], ending, said["output"])


def judge(report: Report, task: SWETask, decoys: Decoys) -> float:
    """Every test as expected, in a run that can be believed, or 0.0 with the first thing that is wrong."""
    if report.is_late:
        return Graded(0.0, f"the tests took longer than {task.timeout_s:g} s")
    if not report.is_whole:
        return Graded(0.0, f"the test run was cut short by the code that it tests ({report.ending})")
    if report.touched:
        return Graded(0.0, f"files of the tests were changed while they ran: {_some(report.touched)}")
    found = dict(report.statuses)
    decoyed = {name: found.pop(name) for name in list(found) if name.startswith(decoys.path)}
    if any(status not in ("FAILED", "ERROR") for status in decoyed.values()):
        return Graded(0.0, "tests that cannot pass did not fail: the test run does not tell the truth")
    if any(name not in decoyed for name in decoys.must_fail):
        return Graded(0.0, f"the test run ended before every test had its turn ({report.ending})")
    by_name = {**{_short(name): status for name, status in found.items()}, **found}
    wrong = [
        f"{name} is {by_name.get(name, 'missing')}, not {status}"
        for name, status in task.expected.items()
        if not _is_met(status, by_name.get(name))
    ]
    if wrong:
        clue = _clue(report.output) if " is missing" in wrong[0] else ""
        return Graded(0.0, f"{len(wrong)} of {len(task.expected)} tests: {wrong[0]}{clue}")
    return 1.0


def _short(name: str) -> str:
    """As rows name tests that do not name their files."""
    return ".".join(name.split("::")[1:])


def _is_met(expected: str, found: str | None) -> bool:
    return found == expected or (expected == "PASSED" and found == "XFAIL")


async def _git(sandbox: Sandbox, checkout: Checkout, *arguments: str) -> ExecResult:
    """In a checkout that no model has touched."""
    limits = SandboxLimits(wall_s=120.0, output_kb=16_384)
    env = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}
    done = await sandbox.exec([*GIT, *arguments], cwd=checkout.folder, env=env, limits=limits)
    if done.limit == "wall":
        await must_answer(sandbox, f"git {arguments[0]} ran out of time")
    return done


def _last_words(result: ExecResult) -> str:
    return " ".join(result.error_text.split())[-300:] or _how(result)


def _how(result: ExecResult) -> str:
    return f"exit {result.exit_code}" if result.exit_code is not None else f"signal {result.signal}"


def _clue(output: str) -> str:
    """Why a test may be missing: its file could not be read."""
    found = re.search(r"^E {2,}(\S.{1,200})", output, re.MULTILINE)
    return f" ({found[1]})" if found else ""


def _some(paths: Iterable[str]) -> str:
    listed = sorted(paths)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
