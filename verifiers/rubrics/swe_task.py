"""`SWETask`: a repository with a problem, and the tests that tell whether it is solved.

`read_task` reads it from a row of our own or of the schemas in which such data is published: SWE-bench, SWE-smith and
R2E-Gym. Rows say nothing about how a checkout is made or graded; that is `swe_repository.py` and `swe_tests.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from verifiers.errors import DatasetError

Runner = Literal["auto", "pytest", "unittest"]
STATUSES = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS")
TASK_KEY = "swe"  # of a row's `info`

_CONDA = "/opt/miniconda3/envs/testbed/bin/python"  # where images of SWE-bench and SWE-smith have their interpreter
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ISSUE = re.compile(r"\[ISSUE\](.*)\[/ISSUE\]", re.DOTALL)


class SWETask(msgspec.Struct, frozen=True, kw_only=True):
    """The repository comes from this machine (`repository`), or lies in `image` at `folder`.

    `expected` holds for each test the status that it must have. A test is named as pytest does it,
    `tests/test_a.py::TestA::test_b`, or, among the tests of `test_paths`, by what follows the file, joined by dots.
    """

    instance_id: str
    problem: str
    expected: dict[str, str]
    repository: str | None = None  # a git bundle, a folder with a git repository, or a tar archive of the files
    base_commit: str | None = None  # None: what is checked out, or HEAD of a bundle
    image: str | None = None
    folder: str | None = None  # None: `repo` in the sandbox's working folder
    setup_patch: str = ""  # applied to the commit: together they are the base
    test_patch: str = ""  # brings the hidden tests
    test_files: dict[str, str] = {}  # so do these: path in the repository → text
    hidden_paths: tuple[str, ...] = ()  # of the base, or absolute ones of the image: nobody sees them but the tests
    test_links: dict[str, str] = {}  # path in the repository → absolute one of the image, copied there for the run
    test_paths: tuple[str, ...] = ()  # what is run; empty: the files of the expected tests
    runner: Runner = "auto"
    python: str = "python3"
    env: dict[str, str] = {}
    timeout_s: float = 300.0
    patch: str = ""  # the reference solution; never shown, and used only when it is asked for

    @property
    def targets(self) -> list[str]:
        """The files and folders whose tests are run."""
        return list(self.test_paths) or sorted({name.partition("::")[0] for name in self.expected})

    @property
    def hidden_files(self) -> set[str]:
        """Paths that are the tests' own, whatever a solution does to them."""
        own = {*self.targets, *self.test_files, *self.test_links, *paths_of(self.test_patch)}
        return own | {path for path in self.hidden_paths if not path.startswith("/")}

    def check(self) -> None:
        """Raises DatasetError for what cannot be graded."""
        where = f"task {self.instance_id}"
        if (self.repository is None) == (self.image is None and self.folder is None):
            raise DatasetError(f"{where}: give either `repository`, or `image` with the `folder` where it lies in it")
        if not self.expected:
            raise DatasetError(f"{where}: it names no tests, so nothing can be told from running them")
        odd = next((status for status in self.expected.values() if status not in STATUSES), None)
        if odd is not None:
            raise DatasetError(f"{where}: {odd!r} is no status of a test; there are {', '.join(STATUSES)}")
        if not self.test_paths:
            foreign = next((name for name in self.expected if ".py" not in name.partition("::")[0]), None)
            if foreign is not None:
                raise DatasetError(
                    f"{where}: the test {foreign!r} is not named as pytest does it (file.py::test); name the files "
                    "that hold the tests in `test_paths`"
                )
        for path in [*self.targets, *self.test_files]:
            if path.startswith("/") or ".." in path.split("/"):
                raise DatasetError(f"{where}: the test file {path!r} does not lie in the repository")


def read_task(row: Mapping[str, Any]) -> SWETask:
    """Raises DatasetError that names the row and what is wrong with it."""
    info = row.get("info")
    made = info.get(TASK_KEY) if isinstance(info, Mapping) else None
    if made is not None:  # it was read before
        return msgspec.json.decode(made, type=SWETask)
    try:
        if "expected_output_json" in row:
            task = _r2e_gym(row)
        elif "FAIL_TO_PASS" in row or "fail_to_pass" in row:
            task = _swe_smith(row) if _is_swe_smith(row) else _swe_bench(row)
        else:
            task = msgspec.convert({"problem": row.get("problem_statement"), **row}, SWETask)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        name = row.get("instance_id") or row.get("commit_hash") or "without instance_id"
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise DatasetError(
            f"task {name}: {what}. Rows of SWE-bench, SWE-smith and R2E-Gym are read, and those with the fields "
            "of vf.SWETask"
        ) from None
    task.check()
    return task


def _own_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `SWETask` that a row of a public schema may carry besides its own."""
    names = (
        "repository", "folder", "test_files", "test_links", "hidden_paths", "test_paths", "runner", "python", "env",
        "timeout_s",
    )  # fmt: skip
    return {name: row[name] for name in names if row.get(name) is not None}


def _made(row: Mapping[str, Any], **fields: Any) -> SWETask:
    own = _own_fields(row)
    if "repository" in own:  # our copy of it, which has no image's folders
        fields |= {"image": None, "folder": None, "python": "python3", "test_links": {}}
    return msgspec.convert({**fields, **own}, SWETask)


def _swe_bench(row: Mapping[str, Any]) -> SWETask:
    name = str(row["instance_id"])
    image = row.get("image_name") or row.get("docker_image") or row.get("image")
    return _made(
        row,
        instance_id=name,
        problem=str(row["problem_statement"]),
        expected=_passing(row),
        base_commit=row.get("base_commit"),
        image=image or f"swebench/sweb.eval.x86_64.{name.replace('__', '_1776_').lower()}:latest",
        folder="/testbed",
        test_patch=row.get("test_patch") or "",
        python=_CONDA,
        patch=row.get("patch") or "",
    )


def _is_swe_smith(row: Mapping[str, Any]) -> bool:
    return "swesmith" in f"{row.get('repo')} {row.get('image_name')}" and not row.get("test_patch")


def _swe_smith(row: Mapping[str, Any]) -> SWETask:
    """Its `patch` is the bug, put into a repository that is right; the tests that find it are in that repository."""
    expected = _passing(row)
    found = _names(row.get("FAIL_TO_PASS") or row.get("fail_to_pass"))
    image = str(row.get("image_name") or "")
    if image.startswith("swesmith."):  # as they are published
        image = f"jyangballin/{image.replace('__', '_1776_')}:latest"
    return _made(
        row,
        instance_id=str(row["instance_id"]),
        problem=str(row["problem_statement"]),
        expected=expected,
        image=image or None,
        folder="/testbed",
        setup_patch=row["patch"],
        hidden_paths=tuple(sorted({name.partition("::")[0] for name in found})),
        python=_CONDA,
    )


def _r2e_gym(row: Mapping[str, Any]) -> SWETask:
    """Its tests lie in the image; `expected_output_json` names them without their files."""
    written = row["expected_output_json"]
    statuses = json.loads(written) if isinstance(written, str) else written
    expected = {_COLOUR.sub("", name).partition(" - ")[0]: status for name, status in statuses.items()}
    problem = str(row["problem_statement"])
    issue = _ISSUE.search(problem)
    return _made(
        row,
        instance_id=str(row.get("instance_id") or row["commit_hash"]),
        problem=(issue[1] if issue else problem).strip(),
        expected={name: status for name, status in expected.items() if name},
        image=row.get("docker_image") or row.get("image_name"),
        folder="/testbed",
        hidden_paths=("r2e_tests", "run_tests.sh", "/r2e_tests", "/root/r2e_tests", "/root/run_tests.sh"),
        test_links={"r2e_tests": "/r2e_tests"},
        test_paths=("r2e_tests",),
        python="/testbed/.venv/bin/python",
    )


def _passing(row: Mapping[str, Any]) -> dict[str, str]:
    """Tests that must pass: those that a solution makes pass, and those that it must not break."""
    names = [
        *_names(row.get("PASS_TO_PASS", row.get("pass_to_pass"))),
        *_names(row.get("FAIL_TO_PASS", row.get("fail_to_pass"))),
    ]
    return dict.fromkeys(names, "PASSED")


def _names(written: Any) -> list[str]:
    """A list, or one as JSON text."""
    found = json.loads(written) if isinstance(written, str) and written.strip() else written or []
    if not isinstance(found, (list, tuple)) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"FAIL_TO_PASS and PASS_TO_PASS are lists of names, got {written!r:.80}")
    return list(found)


def paths_of(patch: str) -> set[str]:
    """The files that a diff of git makes, changes or removes."""
    found = set()
    for line in patch.splitlines():
        if line.startswith(("--- ", "+++ ", "rename from ", "rename to ")):
            path = line.split(" ", 2 if line.startswith("rename") else 1)[-1].partition("\t")[0].strip('"')
            if path != "/dev/null":
                found.add(path[2:] if path.startswith(("a/", "b/")) else path)
    return found
