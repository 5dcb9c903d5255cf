"""`InstalledEnv`: an environment's package as found in this interpreter, without importing it."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.version import InvalidVersion, Version

from verifiers.errors import ConfigError
from verifiers.records import EnvInfo
from verifiers.refs import EnvRef, normalised

ENTRY_POINTS = "verifiers.environments"
_EXPOSES = re.compile(
    r"^\s*(?:async\s+)?def load_environment\b|^load_environment\s*=|\bimport\b[^#]*\bload_environment\b", re.M
)
_NEEDS_US = re.compile(r"^Requires-Dist:\s*verifiers\b(?![-.])", re.M | re.I)
# The path that `hub.fetch` keeps wheels at, as uv writes it down: hub, owner, part of the hash, file.
_FROM_HUB = re.compile(r"^file://.*/verifiers/hub/[^/]+/(?P<owner>[^/]+)/[0-9a-f]{16}/[^/#]+\.whl(?:#.*)?$")
_NOT_SOURCE = {"__pycache__", "outputs", "dist", "build", "node_modules", "venv"}
_WRITTEN_BY_INSTALLER = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"}


@dataclass(frozen=True, slots=True)
class InstalledEnv:
    """One installed environment."""

    name: str  # of the distribution, as its author wrote it
    version: str
    module: str
    file: Path  # the module's own file
    summary: str = ""
    root: Path | None = None  # source folder of an editable install; None: a copy in site-packages
    url: str | None = None  # what it was installed from (PEP 610); None: an index

    @property
    def owner(self) -> str | None:
        """Whose it is on the hub that it was installed from; `None`: from elsewhere."""
        found = _FROM_HUB.search(self.url or "")
        return found["owner"] if found else None


@dataclass(frozen=True, slots=True)
class EvalDefaults:
    """`[tool.verifiers.eval]` of an environment. `None`: its author set nothing."""

    num_examples: int | None = None
    rollouts_per_example: int | None = None


def installed_environments() -> list[InstalledEnv]:
    """Every package that needs `verifiers` and has a module with `load_environment`, by name."""
    found: dict[str, InstalledEnv] = {}
    for dist in metadata.distributions():
        env = as_environment(dist)
        if env is not None:
            found.setdefault(normalised(env.name), env)  # the first on sys.path is the one that is imported
    return sorted(found.values(), key=lambda env: normalised(env.name))


def find_installed(name: str) -> InstalledEnv | None:
    """The installed environment whose distribution or module has this name."""
    ref = EnvRef.parse(name)
    try:
        env = as_environment(metadata.distribution(ref.name))
    except metadata.PackageNotFoundError:
        env = None
    if env is not None and normalised(env.module) == ref.distribution:
        return env
    matching = (e for e in installed_environments() if ref.distribution in (normalised(e.module), normalised(e.name)))
    return next(matching, None)


def is_satisfied(ref: EnvRef) -> bool:
    """Whether what is installed is what `ref` names: for an owner's environment, that owner's and that version."""
    env = find_installed(ref.name)
    if env is None:
        return False
    if ref.owner is not None and env.owner != ref.owner.lower():
        return False
    return ref.version is None or is_same_version(ref.version, env.version)


def is_same_version(one: str, other: str) -> bool:
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other


def as_environment(dist: metadata.Distribution) -> InstalledEnv | None:
    """The distribution as an environment, or `None` when it is another kind of package."""
    text = dist.read_text("METADATA") or ""
    entries = [entry for entry in dist.entry_points if entry.group == ENTRY_POINTS] if "verifiers" in text else []
    if not entries and not _NEEDS_US.search(text):
        return None
    meta = dist.metadata
    declared = [entry.value.split(":")[0] for entry in entries]
    for module in dict.fromkeys([meta["Name"].replace("-", "_").replace(".", "_"), *declared, *_top_modules(dist)]):
        file = _module_file(dist, module)
        if file is not None and exposes_load_environment(file):
            url = direct_url(dist).get("url")
            return InstalledEnv(
                meta["Name"], dist.version, module, file, meta["Summary"] or "", editable_root(dist), url
            )
    return None


def exposes_load_environment(file: Path) -> bool:
    """Whether the module in `file` seems to define or import `load_environment`, judged by its text."""
    try:
        if _EXPOSES.search(file.read_text("utf-8", errors="replace")):
            return True
        if file.name != "__init__.py":
            return False
        # `__getattr__` and star imports: the definition lies in another file of the package
        return any(_EXPOSES.search(other.read_text("utf-8", errors="replace")) for other in file.parent.glob("*.py"))
    except OSError:
        return False


def _top_modules(dist: metadata.Distribution) -> list[str]:
    """Top-level modules that a distribution brings, read from its file list or its source folder."""
    root = editable_root(dist)
    if root is not None:
        folders = [folder for folder in (root, root / "src") if folder.is_dir()]
        return [f.stem for d in folders for f in sorted(d.glob("*.py"))] + [
            f.parent.name for d in folders for f in sorted(d.glob("*/__init__.py"))
        ]
    parts = [entry.parts for entry in dist.files or () if entry.suffix == ".py"]
    return [p[0].removesuffix(".py") for p in parts if len(p) == 1 or (len(p) == 2 and p[1] == "__init__.py")]


def _module_file(dist: metadata.Distribution, module: str) -> Path | None:
    root = editable_root(dist)
    if root is not None:
        return module_in_folder(root, module)
    file = module_in_folder(Path(str(dist.locate_file(""))), module)
    listed = file is not None and any(
        str(entry) in (f"{module}.py", f"{module}/__init__.py") for entry in dist.files or ()
    )
    return file if listed else None


def direct_url(dist: metadata.Distribution) -> dict[str, Any]:
    """`direct_url.json` (PEP 610): where the distribution came from; empty for an index."""
    try:
        return json.loads(dist.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}


def editable_root(dist: metadata.Distribution) -> Path | None:
    origin = direct_url(dist)
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(url2pathname(urlsplit(origin.get("url", "")).path))


def module_in_folder(folder: Path, module: str) -> Path | None:
    """The file of a top-level module in a source folder, flat or with `src/`."""
    for place in (folder, folder / "src"):
        for file in (place / f"{module}.py", place / module / "__init__.py"):
            if file.is_file():
                return file
    return None


def owner_of(file: Path) -> str | None:
    """`name version` of the distribution that a file belongs to; `None` when it belongs to none."""
    file = file.resolve()
    for dist in metadata.distributions():
        root = editable_root(dist)
        if root is not None and root.resolve() in file.parents:
            return f"{dist.metadata['Name']} {dist.version}"
        base = Path(str(dist.locate_file(""))).resolve()
        if root is None and base in file.parents:
            relative = file.relative_to(base).as_posix()
            if any(str(entry) == relative for entry in dist.files or ()):
                return f"{dist.metadata['Name']} {dist.version}"
    return None


def eval_defaults(env_id: str) -> EvalDefaults:
    """How many examples and rollouts the environment's author suggests. Raises ConfigError for what is no count."""
    file, table = declared(env_id, "eval")
    lowest = {"num_examples": -1, "rollouts_per_example": 1}  # -1: all there are
    for key in lowest:
        value = table.get(key)
        if value is not None and (
            not isinstance(value, int) or isinstance(value, bool) or value < lowest[key] or value == 0
        ):
            raise ConfigError(f"{file}: [tool.verifiers.eval] {key} must be a count, not {value!r}")
    return EvalDefaults(table.get("num_examples"), table.get("rollouts_per_example"))


def declared(env_id: str, table: str) -> tuple[Path | None, dict[str, Any]]:
    """`[tool.verifiers.<table>]` of the environment's pyproject.toml, empty when there is none, and that file."""
    for file in _pyprojects(env_id):
        project = _read_toml(file)
        if normalised(project.get("project", {}).get("name", "")) != EnvRef.parse(env_id).distribution:
            continue  # wheels of single modules share one site-packages/pyproject.toml: the last one installed wins
        return file, project.get("tool", {}).get("verifiers", {}).get(table, {})
    return None, {}


def _pyprojects(env_id: str) -> Iterator[Path]:
    """Where the environment's pyproject.toml may lie, the most trustworthy first."""
    env = find_installed(env_id)
    if env is None:
        yield from _beside_module(EnvRef.parse(env_id).module)
        return
    dist = metadata.distribution(env.name)
    places = [env.root / "pyproject.toml"] if env.root else []
    if env.root is None:
        kept = [str(entry) for entry in dist.files or () if str(entry).endswith("/extra_metadata/pyproject.toml")]
        places += [Path(str(dist.locate_file(path))) for path in kept]
        places += [env.file.parent / "pyproject.toml", Path(str(dist.locate_file("pyproject.toml")))]
    yield from (place for place in places if place.is_file())


def _beside_module(module: str) -> Iterator[Path]:
    """For a module that is on sys.path without being installed: its source folder has the pyproject.toml."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return
    file = Path(spec.origin)
    folder = file.parent.parent if file.name == "__init__.py" else file.parent
    if (folder / "pyproject.toml").is_file():
        yield folder / "pyproject.toml"


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def env_info(env_id: str) -> EnvInfo:
    """What a record says about the environment that made it; a name that is not installed gives the name alone.

    `wheel_sha256` is the wheel's own hash when it was installed from a wheel file or URL. Else it is a hash over the
    files' paths and contents: `files:…` for a copy in site-packages, `source:…` for a source folder.
    """
    ref = _ref_or_none(env_id)
    if ref is None:
        return EnvInfo(name=env_id)
    env = find_installed(env_id)
    if env is None:
        return EnvInfo(name=ref.name, owner=ref.owner, **_bare_module(ref.module))
    dist = metadata.distribution(env.name)
    if env.root is not None:
        sha, dirty = "source:" + _hash_files(env.root, _source_files(env.root)), is_dirty(env.root)
    else:
        sha, dirty = _wheel_hash(dist), is_edited(dist)
    return EnvInfo(name=ref.name, owner=env.owner or ref.owner, version=env.version, wheel_sha256=sha, dirty=dirty)


def is_edited(dist: metadata.Distribution) -> bool | None:
    """Whether a file of an installed copy is missing or differs from what its wheel brought; `None`: RECORD has no
    hashes."""
    hashes = [(entry, entry.hash) for entry in dist.files or () if entry.name not in _WRITTEN_BY_INSTALLER]
    known = [(Path(str(dist.locate_file(entry))), told) for entry, told in hashes if told is not None]
    for file, told in known:
        try:
            digest = hashlib.new(told.mode, file.read_bytes()).digest()
        except OSError:
            return True
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != told.value:
            return True
    return False if known else None


def _ref_or_none(env_id: str) -> EnvRef | None:
    try:
        return EnvRef.parse(env_id)
    except ConfigError:
        return None


def _bare_module(module: str) -> dict[str, Any]:
    """Hash and state of a module that lies on sys.path without being installed."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return {}
    file = Path(spec.origin)
    files = _source_files(file.parent) if file.name == "__init__.py" else [file]
    return {"wheel_sha256": "source:" + _hash_files(file.parent, files), "dirty": is_dirty(file.parent)}


def _wheel_hash(dist: metadata.Distribution) -> str:
    origin = direct_url(dist)
    told = origin.get("archive_info", {}).get("hashes", {}).get("sha256")
    # uv compares the hash in an address's fragment and leaves it there.
    told = told or urlsplit(origin.get("url", "")).fragment.partition("sha256=")[2]
    if told:
        return told
    base = Path(str(dist.locate_file("")))
    files = [base / str(f) for f in dist.files or () if f.name not in _WRITTEN_BY_INSTALLER and f.suffix != ".pyc"]
    return "files:" + _hash_files(base, [file for file in files if file.is_file() and base in file.parents])


def _source_files(root: Path) -> list[Path]:
    return [
        file
        for file in root.rglob("*")
        if file.is_file()
        and file.suffix != ".pyc"
        and not any(
            part.startswith(".") or part in _NOT_SOURCE or part.endswith(".egg-info")
            for part in file.relative_to(root).parts
        )
    ]


def _hash_files(root: Path, files: list[Path]) -> str:
    digest = hashlib.sha256()
    for name, file in sorted((file.relative_to(root).as_posix(), file) for file in files):
        with file.open("rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
        digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def is_dirty(folder: Path) -> bool | None:
    """Whether files in `folder` differ from the git commit it is on; `None`: not under git, or no git here."""
    command = ["git", "-C", str(folder), "status", "--porcelain", "--", "."]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return bool(done.stdout.strip()) if done.returncode == 0 else None
