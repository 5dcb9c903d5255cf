"""`HarborTask`: one task in Harbor's format, read from its folder and checked.

task.toml            limits, resources, image, verifier
instruction.md       what the agent is told
environment/         Dockerfile or docker-compose.yaml, unless task.toml names an image
tests/test.sh        run after the agent; writes /logs/verifier/reward.json or reward.txt
solution/solve.sh    the oracle's, if there is one
steps/<name>/        the same again for each step of a task in several steps
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from verifiers.adapters.harbor_config import Container, Step, TaskFile, Verifier
from verifiers.errors import DatasetError, Undecided, one_line

REWARD_FILES = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")  # the first that is there counts
_NOT_OF_THE_TASK = frozenset({".git", "__pycache__", ".DS_Store"})
_RECIPES = ("Dockerfile", "docker-compose.yaml")
_SCRIPT_ENDS = {"linux": ".sh", "windows": ".bat"}


class GitSource(msgspec.Struct, frozen=True):
    """Where in which repository a task was read."""

    url: str  # without a user or password
    commit: str
    path: str


class Tests(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt is judged. `folders` are copied to /tests, the later over the earlier, then `script` is run."""

    folders: tuple[str, ...]
    script: str | None  # None: the verifier's own image has it
    timeout_s: float
    user: str | int | None = None
    env: dict[str, str] = {}
    container: Container | None = None  # None: the tests run where the agent worked
    dockerfile: str | None = None  # of a container of their own; None: its image, or that of the task


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One instruction and its tests: a task has one, or one for each of its steps. Paths are inside the folder."""

    name: str
    instruction: str
    agent_timeout_s: float | None
    agent_user: str | int | None
    tests: Tests
    solution: str | None  # the script that solves it
    min_reward: float | dict[str, float] | None = None  # below it the later stages are not begun


class HarborTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task as a frozen value. `row()` is a row for `dataset=`; `HarborTask.of(info)` is the task of a row again."""

    name: str
    folder: str
    checksum: str  # of everything in the folder
    container: Container
    dockerfile: str | None  # None: there is an image, or a compose file
    compose_file: str | None
    stages: tuple[Stage, ...]
    reward_of_stages: Literal["mean", "final"] | None = None  # None: there is one stage
    solution_env: dict[str, str] = {}
    source: GitSource | None = None  # None: a folder of this machine
    config: dict[str, Any] = {}  # task.toml, whole

    @property
    def instruction(self) -> str:
        return self.stages[0].instruction

    @property
    def solution(self) -> str | None:
        return self.stages[0].solution

    def row(self) -> dict[str, Any]:
        """`info` is JSON text: tasks differ in their fields, which one table does not hold. Rollouts see it decoded."""
        return {"question": self.instruction, "task": self.name, "info": msgspec.json.encode(self).decode()}

    @classmethod
    def of(cls, info: Mapping[str, Any] | str) -> HarborTask:
        return msgspec.json.decode(info, type=cls) if isinstance(info, str) else msgspec.convert(info, cls)


def read_task(folder: Path, source: GitSource | None = None) -> HarborTask:
    """Raises DatasetError, saying what is missing or wrong and where."""
    folder = folder.resolve()
    file, config = _task_file(folder)
    contents = _inside(folder)
    found = {name: f"environment/{name}" for name in _RECIPES if (folder / "environment" / name).is_file()}
    if file.environment.docker_image is None and not found:
        raise DatasetError(
            f"{folder}: no container: task.toml has no [environment] docker_image, and there is neither "
            "environment/Dockerfile nor environment/docker-compose.yaml"
        )
    stages = tuple(_stage(folder, file, step) for step in file.steps) if file.steps else (_stage(folder, file),)
    return HarborTask(
        name=file.task.name if file.task is not None else folder.name,
        folder=str(folder),
        checksum=_checksum(folder, contents),
        container=file.environment.container(),
        dockerfile=found.get("Dockerfile") if file.environment.docker_image is None else None,
        compose_file=found.get("docker-compose.yaml"),
        stages=stages,
        reward_of_stages=(file.multi_step_reward_strategy or "mean") if file.steps else None,
        solution_env=file.solution.env,
        source=source,
        config=config,
    )


def _task_file(folder: Path) -> tuple[TaskFile, dict[str, Any]]:
    path = folder / "task.toml"
    try:
        config = tomllib.loads(path.read_text("utf-8"))
        plain = json.loads(json.dumps(config, default=str))  # dates as text
        return TaskFile.of(plain), plain
    except FileNotFoundError:
        raise DatasetError(f"{folder}: no task.toml; a Harbor task is a folder with one") from None
    except (OSError, ValueError) as error:  # a TOMLDecodeError or ValidationError is a ValueError
        raise DatasetError(f"{path}: {one_line(error)}") from error


def _stage(folder: Path, file: TaskFile, step: Step | None = None) -> Stage:
    within = "" if step is None else f"steps/{step.name}/"
    agent, verifier = (file.agent, file.verifier) if step is None else (step.agent, step.verifier)
    return Stage(
        name=folder.name if step is None else step.name,
        instruction=_instruction(folder / within / "instruction.md"),
        agent_timeout_s=agent.timeout_sec if agent.timeout_sec is not None else file.agent.timeout_sec,
        agent_user=agent.user if agent.user is not None else file.agent.user,
        tests=_tests(folder, within, file, verifier),
        solution=_script(folder, f"{within}solution/solve", file.environment.container().os),
        min_reward=None if step is None else step.min_reward,
    )


def _instruction(path: Path) -> str:
    try:
        text = without_canary(path.read_text("utf-8")).strip()
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing: it is what the agent is told") from None
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: {one_line(error)}") from error
    if not text:
        raise DatasetError(f"{path} is empty: it is what the agent is told")
    return text


def _tests(folder: Path, within: str, file: TaskFile, verifier: Verifier) -> Tests:
    """Those of a step, and those that all steps share; either may bring a container of its own."""
    system, container, recipe, is_bundled = file.environment.container().os, None, None, False
    own = verifier if verifier.is_separate is not None else file.verifier
    if own.is_separate:
        described = verifier.environment or file.verifier.environment
        container = (described or file.environment).container()
        system = container.os
        if described is None or not described.docker_image:
            found = (f"{place}tests/{name}" for place in dict.fromkeys((within, "")) for name in _RECIPES)
            recipe = next((path for path in found if (folder / path).is_file()), None)
        is_bundled = recipe is not None or bool(described and described.docker_image)
    script = _script(folder, f"{within}tests/test", system) or _script(folder, "tests/test", system)
    if script is None and not is_bundled:
        raise DatasetError(f"{folder}: {within}tests/test{_SCRIPT_ENDS[system]} is missing: it judges the attempt")
    places = dict.fromkeys(("tests", f"{within}tests"))
    return Tests(
        folders=() if is_bundled else tuple(place for place in places if (folder / place).is_dir()),
        script=None if is_bundled else script,
        timeout_s=verifier.timeout_sec,
        user=verifier.user if verifier.user is not None else file.verifier.user,
        env={**file.verifier.env, **verifier.env},
        container=container,
        dockerfile=recipe,
    )


def _script(folder: Path, stem: str, system: str) -> str | None:
    path = f"{stem}{_SCRIPT_ENDS[system]}"
    return path if (folder / path).is_file() else None


def without_canary(text: str) -> str:
    """The text without the comments at its start that mark it for those who filter training data.

    >>> without_canary("<!-- canary GUID 1234 -->\\n\\nCount the words.")
    'Count the words.'
    """
    lines = text.splitlines(keepends=True)
    while lines and (not lines[0].strip() or _CANARY.match(lines[0].strip())):
        lines.pop(0)
    return "".join(lines)


_CANARY = re.compile(r"(?:<!--.*canary.*-->|#.*canary.*)$", re.IGNORECASE)


def _inside(folder: Path) -> list[Path]:
    """Every file of the task. A link out of the folder is refused: the task would bring what is not in it."""
    found = []
    for path in _walk(folder):
        if not path.resolve().is_relative_to(folder):
            raise DatasetError(f"{path} leads out of the task's folder; a task brings its own files only")
        if path.is_file():
            found.append(path)
    return found


def _walk(folder: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name in _NOT_OF_THE_TASK:
            continue
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))


def _checksum(folder: Path, files: list[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        mode = "x" if os.access(path, os.X_OK) else "-"
        whole.update(f"{path.relative_to(folder).as_posix()}\0{mode}\0{content}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def read_reward(folder: str | Path) -> dict[str, float]:
    """The rewards that a task's tests left in `folder`, the container's /logs/verifier, by name.

    A single number is called "reward". Raises Undecided when there are none, or they are no finite numbers: tests that
    did not get to their end say nothing about the attempt.
    """
    found = [Path(folder) / Path(name).name for name in REWARD_FILES]
    path = next((path for path in found if path.is_file()), None)
    if path is None:
        raise Undecided(f"the tests wrote neither {' nor '.join(REWARD_FILES)}", side="environment")
    text = path.read_text("utf-8", errors="replace").strip()
    try:
        value = json.loads(text) if path.suffix == ".json" else float(text)
    except ValueError:
        raise Undecided(f"{path.name} holds no reward: {text[:80]!r}", side="environment") from None
    rewards = value if isinstance(value, dict) else {"reward": value}
    for name, number in rewards.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
            raise Undecided(f"{path.name}: {name} is no finite number: {number!r}", side="environment")
    if not rewards:
        raise Undecided(f"{path.name} holds no reward", side="environment")
    return {str(name): float(number) for name, number in rewards.items()}
