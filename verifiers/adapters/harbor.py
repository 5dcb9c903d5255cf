"""`load_harbor_tasks`: tasks and datasets in Harbor's format, from a folder, a registry file or a git repository."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from verifiers.adapters.git_checkout import checkout, head_of, is_commit, is_git_url, without_user
from verifiers.adapters.harbor_task import GitSource, HarborTask, read_reward, read_task
from verifiers.errors import ConfigError, DatasetError, one_line

__all__ = ["HarborTask", "load_harbor_tasks", "read_reward"]

MAX_SHOWN = 5  # problems in one message


class RegisteredTask(msgspec.Struct, frozen=True):
    name: str
    path: str
    git_url: str | None = None  # None: a path on this machine
    git_commit_id: str | None = None


class Dataset(msgspec.Struct, frozen=True):
    """One entry of a registry file."""

    name: str
    version: str
    tasks: tuple[RegisteredTask, ...]

    @property
    def full_name(self) -> str:
        return f"{self.name}@{self.version}"


def load_harbor_tasks(
    source: str | Path,
    *,
    tasks: Sequence[str] | None = None,
    dataset: str | None = None,
    commit: str | None = None,
    subfolder: str = "",
) -> list[HarborTask]:
    """The tasks of `source`, in the order of their names, or those named in `tasks`, in that order.

        tasks = vf.load_harbor_tasks("my-tasks/")
        tasks = vf.load_harbor_tasks("registry.json", dataset="terminal-bench@2.0")
        tasks = vf.load_harbor_tasks("https://host.example/tasks.git", commit="0f3c…", subfolder="tasks")

    A folder is one task or holds several. What comes from git is pinned to a commit: by `commit`, or by the registry.
    Nothing is run and no container is started.

    Raises ConfigError when the source or a name leads nowhere, DatasetError when a task is not as it should be.
    """
    text = str(source)
    if is_git_url(text):
        return _chosen(_from_git(text, commit, subfolder), tasks, without_user(text))
    path = Path(source).expanduser()
    if path.is_file() and path.suffix == ".json":
        return _chosen(_from_registry(path, dataset, commit), tasks, text)
    if dataset is not None:
        raise ConfigError(f"dataset={dataset!r} is for a registry file (JSON), and {text} is none")
    if commit is not None or subfolder:
        raise ConfigError(
            f"commit and subfolder are for a git address, and {text} is none (https://…, ssh://…, file://…)"
        )
    return _chosen([Place(folder.resolve().name, folder) for folder in _task_folders(path)], tasks, text)


@dataclass(frozen=True)
class Place:
    """Where a task lies."""

    name: str  # of its folder, or in the registry: what `tasks` names it by
    folder: Path
    origin: GitSource | None = None


def _chosen(places: Sequence[Place], names: Sequence[str] | None, source: str) -> list[HarborTask]:
    if names is not None:
        by_name = {place.name: place for place in places}
        if unknown := [name for name in names if name not in by_name]:
            known = ", ".join(list(by_name)[:10])
            raise ConfigError(f"{source} has no Harbor task '{unknown[0]}'; it has {len(by_name)}, such as: {known}")
        places = [by_name[name] for name in names]
    read = _read(places, source)
    called = [task.name for task in read]
    if twice := sorted({name for name in called if called.count(name) > 1}):
        raise DatasetError(f"{source}: two Harbor tasks are called '{twice[0]}'")
    return read


def _read(places: Sequence[Place], source: str) -> list[HarborTask]:
    read, problems = [], []
    for place in places:
        try:
            read.append(read_task(place.folder, place.origin))
        except DatasetError as error:
            problems.append(str(error))
    if problems:
        shown = "; ".join(problems[:MAX_SHOWN])
        rest = f"; and {len(problems) - MAX_SHOWN} more" if len(problems) > MAX_SHOWN else ""
        raise DatasetError(
            f"{len(problems)} of {len(places)} Harbor tasks of {source} cannot be read; mend them, or name the others "
            f"in tasks=[…]. {shown}{rest}"
        )
    return read


def _task_folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise ConfigError(
            f"no Harbor tasks at {path}: it is neither a folder, nor a registry file (.json), nor a git URL"
        )
    if (path / "task.toml").is_file():
        return [path]
    folders = sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    found = [child for child in folders if (child / "task.toml").is_file()]
    if found:
        return found
    if (path / "dataset.toml").is_file():
        raise ConfigError(
            f"{path / 'dataset.toml'} names packages of Harbor's own hub, which are not fetched here. "
            "Try: harbor datasets download NAME, and give the folder that it wrote"
        )
    raise ConfigError(f"no Harbor task in {path}: neither it nor one of its {len(folders)} folders has a task.toml")


def _from_git(url: str, commit: str | None, subfolder: str) -> list[Place]:
    shown = without_user(url)
    pinned = _pinned(commit, url)
    root = checkout(url, pinned, [subfolder])
    folders = _task_folders(root / subfolder)
    return [Place(f.name, f, GitSource(shown, pinned, f.relative_to(root).as_posix())) for f in folders]


def _pinned(commit: str | None, url: str) -> str:
    if commit is not None and is_commit(commit):
        return commit
    now = head_of(url)
    hint = f"commit='{now}' is where it is now" if now else "give the whole commit id"
    raise ConfigError(f"{without_user(url)} is not pinned to a commit (got {commit!r}): {hint}")


def _from_registry(path: Path, name: str | None, commit: str | None) -> list[Place]:
    found = _dataset(path, name)
    places: list[Place] = []
    by_origin: dict[tuple[str, str], list[RegisteredTask]] = {}
    for task in found.tasks:
        if task.git_url is None:
            places.append(Place(task.name, path.parent / Path(task.path).expanduser()))
            continue
        if not is_git_url(task.git_url):
            raise ConfigError(f"{path}: {found.full_name}, {task.name}: {task.git_url!r} is no git address")
        pinned = _pinned(task.git_commit_id if is_commit(task.git_commit_id) else commit, task.git_url)
        by_origin.setdefault((task.git_url, pinned), []).append(task)
    for (url, pinned), members in by_origin.items():
        root, shown = checkout(url, pinned, [task.path for task in members]), without_user(url)
        places += [Place(task.name, root / task.path, GitSource(shown, pinned, task.path)) for task in members]
    return places


def _dataset(path: Path, name: str | None) -> Dataset:
    """The one of that name, with or without its version; without a name, the only one."""
    try:
        listed = msgspec.json.decode(path.read_bytes(), type=list[Dataset])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} is no registry of Harbor datasets: {one_line(error)}") from error
    known = ", ".join(entry.full_name for entry in listed) or "none"
    if name is None:
        if len(listed) != 1:
            raise ConfigError(f"{path} lists {len(listed)} datasets; choose one by dataset=…: {known}")
        return listed[0]
    matching = [entry for entry in listed if name in (entry.full_name, entry.name)]
    if not matching:
        raise ConfigError(f"{path} has no dataset '{name}'; it has: {known}")
    if len(matching) > 1:
        raise ConfigError(f"{path} has several datasets '{name}'; give the version as well: {known}")
    return matching[0]
