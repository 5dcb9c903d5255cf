"""Installing an environment's package with uv into this interpreter, and removing it.

Published environments pin `verifiers` to releases of another library under our name. So every installation runs with
an override that drops that requirement, and ends with a check that `verifiers` is still the one that runs.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import site
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from verifiers.env_source import Source, cloned, environment_folder, project_of, source_of
from verifiers.errors import EnvironmentNotFound, SetupError
from verifiers.installed import (
    InstalledEnv,
    direct_url,
    exposes_load_environment,
    find_installed,
    installed_environments,
    is_satisfied,
    module_in_folder,
    owner_of,
)
from verifiers.loading import ENVIRONMENTS, local_environments
from verifiers.other_python import OtherPython, isolated_for
from verifiers.refs import EnvRef, near, normalised, taken_by
from verifiers.uv_program import run_uv

Say = Callable[[str], None]

KEEP_OURS = "verifiers ; python_version < '3'"  # an override that never applies: uv drops the requirement


def install(
    spec: str,
    *,
    path: str | Path = ENVIRONMENTS,
    from_repo: str | None = None,
    branch: str | None = None,
    from_index: bool = False,
    python: str | None = None,
    isolated: bool = False,
    say: Say = lambda line: None,
) -> InstalledEnv:
    """Installs one environment: a name in `path`, a folder (editable), a wheel, a git repository or `owner/name` of
    the hub. Into this interpreter, into `python`, or `isolated` into one that is made for it alone.

    Raises EnvironmentNotFound, or SetupError when its name collides, uv fails or `verifiers` would be replaced.
    """
    source = source_of(spec, path=path, from_repo=from_repo, branch=branch, from_index=from_index)
    with _wanted(source, say) as wanted:
        if not (python or isolated):
            _refuse_collision(wanted.module, wanted.name, wanted.owner, say)
            return _install(wanted.arguments, wanted.name, say)
        _refuse_taken(wanted.module, wanted.name)
        other = OtherPython.named(python) if python else OtherPython.isolated(EnvRef(wanted.name, wanted.owner))
        if isolated:
            other.make()
        elif wanted.owner is not None:
            other.refuse_anothers(wanted.name, wanted.owner)
        other.install(wanted.arguments, say)
        env = other.find(wanted.name)
    if env is None:
        raise SetupError(f"{spec} is in {other.program}, but is no environment: it has no module with load_environment")
    return env


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What uv is to install."""

    arguments: list[str]
    name: str  # of the distribution
    owner: str | None = None  # on the hub

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")


@contextmanager
def _wanted(source: Source, say: Say) -> Iterator[_Wanted]:
    """The arguments for uv, while what they name lies there."""
    if source.kind == "hub" and source.ref is not None:
        yield _from_hub(source.ref, say)
    elif source.kind == "git":
        with cloned(source, say) as (clone, pinned):
            folder = environment_folder(clone, source)
            project = _checked_project(folder, source.ref)
            inside = folder.relative_to(clone).as_posix()
            url = pinned if inside == "." else f"{pinned}#subdirectory={inside}"
            yield _Wanted(["--", f"{project['name']} @ {url}"], project["name"])
    elif source.kind == "folder":
        folder = Path(source.target)
        project = _checked_project(folder, source.ref)
        yield _Wanted(["-e", str(folder.resolve())], project["name"])
    elif source.kind == "archive":
        yield _Wanted(["--", source.target], Path(source.target).name.split("-")[0])
    else:
        ref = EnvRef.parse(source.target)
        yield _Wanted(["--", f"{ref.name}=={ref.version}" if ref.version else ref.name], ref.name)


def _from_hub(ref: EnvRef, say: Say) -> _Wanted:
    """The wheel is fetched and its hash compared before uv sees it; what it needs comes from where uv always looks."""
    from verifiers.archives import ArchiveRefused, check_wheel
    from verifiers.hub.client import HubClient
    from verifiers.hub.fetch import fetch

    with HubClient() as client:
        fetched = fetch(client, ref, say=say)
    try:
        check_wheel(fetched.path)  # by the rules of publishing, whatever the hub thought of it
    except ArchiveRefused as refused:
        raise SetupError(f"{fetched.ref} is not installed: {refused}") from refused
    return _Wanted(
        ["--", f"{ref.distribution} @ {fetched.path.as_uri()}#sha256={fetched.sha256}"], ref.name, fetched.ref.owner
    )


def ensure_installed(
    env_id: str,
    path: str | Path = ENVIRONMENTS,
    say: Say = lambda line: None,
    may_fetch: Callable[[str], bool] = lambda question: False,
) -> bool:
    """Installs an environment that is missing and lies in `path`; whether it had to.

    One of an owner comes from the hub, if `may_fetch` answers the question with yes: code from elsewhere is run only
    when someone said so. Raises EnvironmentNotFound otherwise.
    """
    ref = EnvRef.parse(env_id)
    if ref.owner is not None and not is_satisfied(ref):
        if not may_fetch(f"{ref} is not installed. Install it from the hub, and run its code?"):
            raise EnvironmentNotFound(f"'{ref}' is not installed. Try: vf-install {ref}")
        install(str(ref), say=say)
        return True
    if find_installed(env_id) is not None:
        return False
    folder = local_environments(path).get(ref.module)
    if folder is None or _module_spec(ref.module) is not None:
        return False
    say(f"{ref.id} is not installed: installing it from {folder}")
    install(str(folder), say=say)
    return True


def uninstall(name: str) -> InstalledEnv:
    """Removes an installed environment; its dependencies stay. One that has an interpreter of its own goes with it.

    Raises EnvironmentNotFound when there is none.
    """
    ref = EnvRef.parse(name)
    env = find_installed(name)
    if env is None or (ref.owner is not None and env.owner != ref.owner.lower()):
        other = isolated_for(name)
        if other is not None:
            return other.remove(ref.name)
        installed = [e.name for e in installed_environments()]
        similar = near(ref.name, installed)
        there = f"installed: {', '.join(installed)}" if installed else "none is installed"
        hint = f". Did you mean {' or '.join(similar)}?" if similar else ""
        raise EnvironmentNotFound(f"no environment '{ref.id}' to remove ({there}){hint}")
    run_uv(["pip", "uninstall", "--python", sys.executable, env.name])
    importlib.invalidate_caches()
    return env


def _checked_project(folder: Path, ref: EnvRef | None) -> dict[str, Any]:
    """`[project]` of a source folder whose names are free. Raises SetupError naming what collides."""
    project = project_of(folder)
    name = EnvRef.parse(project["name"]).name
    if ref is not None and ref.version and project.get("version") not in (None, ref.version):
        raise SetupError(f"{ref} was asked for, but {folder} holds version {project['version']}")
    module = name.replace("-", "_")
    needs = [re.split(r"[\s;<>=!~\[(@]", str(need).strip(), maxsplit=1)[0] for need in project.get("dependencies", [])]
    if normalised(name) in map(normalised, needs):
        raise SetupError(f"{folder}: the environment '{name}' has the name of its own dependency '{name}'. Rename it")
    file = module_in_folder(folder, module)
    if file is not None and not exposes_load_environment(file):
        raise SetupError(f"{folder} is no environment: {file.name} has no load_environment(**args)")
    return project


def _refuse_taken(module: str, name: str) -> None:
    taken = taken_by(module)
    if taken:
        raise SetupError(f"cannot install '{name}': its module '{module}' is {taken}. Rename the environment")


def _refuse_collision(module: str, name: str, from_owner: str | None, say: Say) -> None:
    """Raises SetupError when the module is somebody else's. An own copy that gives way to a hub's is mentioned."""
    _refuse_taken(module, name)
    there = find_installed(name)
    if there is None and from_owner is not None:
        _refuse_to_replace(name, from_owner)
    if there is not None and from_owner is not None:
        if there.owner not in (None, from_owner):
            raise SetupError(
                f"{there.owner}/{there.name} is installed, and '{from_owner}/{name}' has the same module. Remove that "
                f"one (vf uninstall {there.name}), or give this one an interpreter of its own (--isolated)"
            )
        if there.owner is None:
            say(f"{there.name} {there.version} from {there.root or there.url or 'an index'} is replaced")
    spec = _module_spec(module)
    if spec is None or spec.origin is None:
        return
    owner = owner_of(Path(spec.origin))
    if owner is not None and normalised(owner.rsplit(" ", 1)[0]) != normalised(name):
        raise SetupError(
            f"cannot install '{name}': the module '{module}' belongs to the package {owner} ({spec.origin}). "
            f"Try: uv pip uninstall {owner.rsplit(' ', 1)[0]}, or rename the environment"
        )


def _refuse_to_replace(name: str, from_owner: str) -> None:
    """A hub's environment may be called like any package, and must not take its place. Raises SetupError."""
    try:
        there = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return
    raise SetupError(
        f"'{from_owner}/{name}' would replace the package {there.metadata['Name']} {there.version}, which is no "
        "environment. Give it an interpreter of its own (--isolated)"
    )


def _module_spec(module: str) -> Any:
    importlib.invalidate_caches()
    # the script's folder and the current one are left out: what lies there is not installed
    return PathFinder.find_spec(module, [entry for entry in sys.path if entry and Path(entry) != Path.cwd()])


def _install(arguments: list[str], name: str, say: Say) -> InstalledEnv:
    before = our_fingerprint()
    known_paths = _path_files()
    with tempfile.TemporaryDirectory(prefix="vf-install-") as folder:
        override = Path(folder) / "override.txt"
        override.write_text(KEEP_OURS + "\n", "utf-8")
        run_uv(["pip", "install", "--python", sys.executable, "--override", str(override), *arguments])
    _activate(_path_files() - known_paths)
    if our_fingerprint() != before:
        raise SetupError(_replaced(before))
    env = find_installed(name)
    if env is None:
        raise SetupError(f"{name} was installed, but is no environment: it has no module with load_environment")
    pin = _foreign_pin(env.name)
    if pin:
        say(f"{env.name} asks for '{pin}'; verifiers {_our_version()} stays and runs it")
    return env


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Which `verifiers` this interpreter imports, and how to get it back."""

    version: str | None  # None: imported from a source folder that is not installed
    sha256: str | None  # of its `__init__.py` and `install.py`
    url: str | None  # what it was installed from; None: an index


def our_fingerprint() -> Fingerprint:
    importlib.invalidate_caches()
    spec = PathFinder.find_spec("verifiers", sys.path)
    digest = None
    if spec is not None and spec.origin is not None:
        files = [Path(spec.origin), Path(spec.origin).parent / "install.py"]
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest()
    try:
        dist = metadata.distribution("verifiers")
    except metadata.PackageNotFoundError:
        return Fingerprint(None, digest, None)
    return Fingerprint(dist.version, digest, direct_url(dist).get("url"))


def _replaced(before: Fingerprint) -> str:
    after = our_fingerprint()
    ours = f"verifiers=={before.version}" if before.url is None else f"'verifiers @ {before.url}'"
    return (
        f"the installation replaced verifiers {before.version} by another package of that name ({after.version}). "
        f"Put it back with: uv pip install --python {sys.executable} --reinstall-package verifiers {ours}"
    )


def _our_version() -> str:
    try:
        return metadata.version("verifiers")
    except metadata.PackageNotFoundError:
        return "of this folder"


def _foreign_pin(name: str) -> str | None:
    """The environment's requirement on `verifiers` when this version does not meet it."""
    from packaging.requirements import Requirement

    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        if normalised(requirement.name) != "verifiers" or (requirement.marker and not requirement.marker.evaluate()):
            continue
        version = our_fingerprint().version
        if requirement.url or (version and not requirement.specifier.contains(version, prereleases=True)):
            return text
    return None


def _path_files() -> set[Path]:
    return set(Path(sysconfig.get_path("purelib")).glob("*.pth"))


def _activate(path_files: set[Path]) -> None:
    """Editable installs come into force through `.pth` files, which Python reads only when it starts."""
    for file in sorted(path_files):
        site.addpackage(str(file.parent), file.name, None)
    importlib.invalidate_caches()
