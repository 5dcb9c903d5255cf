"""`Source`: where an environment is to be installed from; decided from what was typed, and fetched when it is git."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from verifiers.errors import ConfigError, EnvironmentNotFound, SetupError
from verifiers.loading import ENVIRONMENTS, local_environments
from verifiers.refs import EnvRef, near, normalised

Kind = Literal["folder", "archive", "git", "index", "hub"]

_URL = re.compile(r"^(?:git\+)?(?:https?|ssh|git|file)://|^git@")


@dataclass(frozen=True, slots=True)
class Source:
    """Where an environment is to be installed from."""

    kind: Kind
    target: str  # path, URL or reference
    revision: str | None = None  # git: branch, tag or commit; None: the repository's default branch
    subfolder: str | None = None  # git: folder of the environment inside the repository; None: look for it
    ref: EnvRef | None = None  # the environment that was asked for by name


def source_of(
    spec: str,
    *,
    path: str | Path = ENVIRONMENTS,
    from_repo: str | None = None,
    branch: str | None = None,
    from_index: bool = False,
) -> Source:
    """Where `spec` comes from: a path or URL as it is, then `path`; the hub for an owner, the index only if told."""
    if from_repo is not None:
        base = _git_source(from_repo, branch)
        return Source("git", base.target, base.revision, base.subfolder, EnvRef.parse(spec))
    if _URL.match(spec):
        return _git_source(spec, branch)
    place = Path(spec).expanduser()
    if place.is_file() and (spec.endswith((".whl", ".tar.gz"))):
        return Source("archive", str(place.resolve()))
    if (place / "pyproject.toml").is_file():
        return Source("folder", str(place))
    if place.is_dir() and _looks_like_git(place):
        return _git_source(place.resolve().as_uri(), branch)
    if spec.startswith((".", "/", "~")) or spec.endswith((".whl", ".tar.gz")):
        found = "a folder without pyproject.toml" if place.is_dir() else "no such file or folder"
        raise EnvironmentNotFound(f"cannot install '{spec}': {found}. Give the folder of an environment's package")
    ref = EnvRef.parse(spec)
    if ref.owner:
        return Source("hub", str(ref), ref=ref)
    local = local_environments(path)
    if ref.module in local:
        return Source("folder", str(local[ref.module]), ref=ref)
    if from_index:
        return Source("index", str(ref), ref=ref)
    there = ", ".join(sorted(folder.name for folder in local.values())) or "nothing"
    similar = near(ref.module, local)
    index = f"From the public index: vf-install {ref} --from-index"
    hint = f"Did you mean {' or '.join(similar)}?" if similar else index
    raise EnvironmentNotFound(f"no environment '{ref}' in {path} (found there: {there}). {hint}")


def _git_source(url: str, branch: str | None) -> Source:
    """`git+https://host/repo.git@revision#subdirectory=folder`, each part after the address optional."""
    address, _, fragment = url.removeprefix("git+").partition("#")
    options = {key: value for key, _, value in (part.partition("=") for part in fragment.split("&"))}
    scheme, separator, rest = address.partition("://")
    at = rest.rfind("@")
    if separator and at > rest.find("/") > -1:  # an "@" before the first slash is a user name
        address, revision = f"{scheme}://{rest[:at]}", rest[at + 1 :]
    else:
        revision = None
    return Source("git", address, branch or revision, options.get("subdirectory"))


def _looks_like_git(folder: Path) -> bool:
    return (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir())


@contextmanager
def cloned(source: Source, say: Callable[[str], None]) -> Iterator[tuple[Path, str]]:
    """A shallow clone in a temporary folder, and the URL that names its very commit for uv."""
    if shutil.which("git") is None:
        raise SetupError(f"cannot install from {source.target}: git is not on PATH")
    say(f"fetching {source.target}" + (f" at {source.revision}" if source.revision else ""))
    with tempfile.TemporaryDirectory(prefix="vf-install-") as folder:
        _git("init", "--quiet", folder, about=source)
        wanted = [source.target, source.revision or "HEAD"]
        _git("-C", folder, "fetch", "--quiet", "--depth", "1", "--", *wanted, about=source)
        _git("-C", folder, "checkout", "--quiet", "FETCH_HEAD", about=source)
        commit = _git("-C", folder, "rev-parse", "HEAD", about=source).strip()
        yield Path(folder), f"git+{_as_url(source.target)}@{commit}"


def _as_url(address: str) -> str:
    """`git@host:path` as an ssh URL, which is the form that uv reads."""
    if "://" in address:
        return address
    host, _, path = address.partition(":")
    return f"ssh://{host}/{path}"


def _git(*arguments: str, about: Source) -> str:
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, env=quiet)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["git failed"])[-1 if "fatal" not in done.stderr else 0]
        at = f" at {about.revision}" if about.revision else ""
        raise SetupError(f"cannot fetch {about.target}{at}: {reason}")
    return done.stdout


def environment_folder(clone: Path, source: Source) -> Path:
    """The folder of the environment inside a repository: the one named, by name, or the only one."""
    if source.subfolder:
        folder = clone / source.subfolder
        if not (folder / "pyproject.toml").is_file() or clone not in folder.resolve().parents:
            raise EnvironmentNotFound(f"{source.target} has no package in the folder '{source.subfolder}'")
        return folder
    inside = {**local_environments(clone), **local_environments(clone / "environments")}
    if source.ref and source.ref.module in inside:
        return inside[source.ref.module]
    if (clone / "pyproject.toml").is_file():
        name = project_of(clone).get("name", "")
        if source.ref is None or normalised(name) == source.ref.distribution:
            return clone
    if source.ref is None and len(inside) == 1:
        return next(iter(inside.values()))
    there = ", ".join(sorted(inside)) or "none"
    if source.ref is None:
        raise EnvironmentNotFound(f"which environment of {source.target} (found there: {there})? Add #subdirectory=…")
    raise EnvironmentNotFound(f"no environment '{source.ref}' in {source.target} (found there: {there})")


def project_of(folder: Path) -> dict[str, Any]:
    file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text("utf-8")).get("project", {})
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    if not isinstance(project.get("name"), str):
        raise ConfigError(f"{file} has no [project] name")
    return project
