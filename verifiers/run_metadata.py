"""`metadata.json`: what a run was asked to do, where it stands, and whether another run would continue it."""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from verifiers.errors import ResultsError
from verifiers.records import SCHEMA_VERSION, EnvInfo, content_hash
from verifiers.redaction import Redactor
from verifiers.whole_file import replace_file

METADATA = "metadata.json"
RunStatus = Literal["running", "done", "interrupted", "failed"]


def row_hashes(rows: Iterable[dict[str, Any]]) -> list[str]:
    """One hash a row, over what a rollout sees of it: the `row_hashes` of a `RunConfig`."""
    return [
        content_hash({key: row.get(key) for key in ("example_id", "prompt", "answer", "info", "task")}) for row in rows
    ]


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is asked to do. Two runs with equal ones would send the same requests."""

    env_id: str  # as the user wrote it
    env: EnvInfo
    model: str
    row_hashes: Sequence[str]  # one a row, in the order of the run; kept on disk as one hash over all
    env_args: dict[str, Any] = {}
    base_url: str = ""
    sampling_args: dict[str, Any] = {}
    rollouts_per_example: int = 1
    seed: int | None = None
    state_columns: Sequence[str] = ()
    command: Sequence[str] = ()  # empty: that of this process
    library_version: str = ""  # empty: that of the installed distribution

    @property
    def num_examples(self) -> int:
        return len(self.row_hashes)

    @property
    def total(self) -> int:
        """Rollouts that the whole run has."""
        return self.num_examples * self.rollouts_per_example

    @property
    def rows_hash(self) -> str:
        return self.prefix_hash(self.num_examples)

    def prefix_hash(self, length: int) -> str:
        """SHA-256 over the first `length` rows, 16 hex digits. A longer run proves by it that it begins alike."""
        return hashlib.sha256("\n".join(self.row_hashes[:length]).encode()).hexdigest()[:16]


class GitState(msgspec.Struct, frozen=True):
    commit: str
    dirty: bool | None  # None: git did not say in time


class Part(msgspec.Struct, kw_only=True):
    """One process's share of a run; a resumed run has several."""

    started: str  # UTC, ISO 8601
    ended: str  # of a running part: when this was last written
    seconds: float = 0.0
    rollouts: int = 0  # lines appended
    base_url: str = ""
    library_version: str = ""
    python_version: str = ""
    command: list[str] = []
    git: GitState | None = None  # of the working directory; None: not under git
    host: str = ""
    pid: int = 0


class SavedRun(msgspec.Struct, kw_only=True):
    """What is read back from `metadata.json`. The file also holds the summary of the run, which nothing here reads."""

    schema_version: int
    status: RunStatus
    env_id: str
    env: EnvInfo
    env_args: dict[str, Any]
    model: str
    base_url: str
    num_examples: int
    rollouts_per_example: int
    sampling_args: dict[str, Any]
    seed: int | None
    rows_hash: str
    state_columns: list[str]
    save_tokens: bool
    date: str
    time: float  # seconds, all parts together
    version_info: dict[str, str | None]
    tokens: dict[str, float | None]  # spent by all parts, superseded rollouts included
    counts: dict[str, int]
    parts: list[Part]

    def is_complete_for(self, config: RunConfig) -> bool:
        """Whether every rollout of `config` was answered."""
        return self.counts.get("finished", 0) >= config.total


def begin_part(config: RunConfig) -> Part:
    import platform

    now = utc_now()
    return Part(
        started=now,
        ended=now,
        base_url=_without_password(config.base_url),
        library_version=config.library_version or _installed_version(),
        python_version=platform.python_version(),
        command=list(config.command or sys.argv),
        git=git_state(Path.cwd()),
        host=platform.node(),
        pid=os.getpid(),
    )


def saved_run(
    config: RunConfig,
    *,
    status: RunStatus,
    parts: list[Part],
    counts: dict[str, int],
    tokens: dict[str, float | None],
    save_tokens: bool,
) -> SavedRun:
    return SavedRun(
        schema_version=SCHEMA_VERSION,
        status=status,
        env_id=config.env_id,
        env=config.env,
        env_args=as_json(config.env_args),
        model=config.model,
        base_url=_without_password(config.base_url),
        num_examples=config.num_examples,
        rollouts_per_example=config.rollouts_per_example,
        sampling_args=as_json(config.sampling_args),
        seed=config.seed,
        rows_hash=config.rows_hash,
        state_columns=list(config.state_columns),
        save_tokens=save_tokens,
        date=parts[0].started,
        time=round(sum(part.seconds for part in parts), 3),
        version_info={"vf_version": parts[-1].library_version, "env_version": config.env.version},
        tokens=tokens,
        counts=counts,
        parts=parts,
    )


def write_metadata(folder: Path, run: SavedRun, summary: dict[str, Any], redactor: Redactor) -> None:
    """Replaces the file at once: a reader sees the old one or the new one. Raises OSError."""
    merged = {**as_json(summary), **msgspec.to_builtins(run)}
    encoded = msgspec.json.format(redactor.data(msgspec.json.encode(merged)), indent=2)
    replace_file(folder / METADATA, encoded + b"\n")


def read_metadata(folder: Path) -> SavedRun:
    """Raises ResultsError when there is none, or when it is not ours."""
    path = folder / METADATA
    try:
        run = msgspec.json.decode(path.read_bytes(), type=SavedRun)
    except (FileNotFoundError, NotADirectoryError):
        raise ResultsError(
            f"no run to resume in {folder}: it has no {METADATA}. Give the folder of a saved run"
        ) from None
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ResultsError(
            f"{path} was not written by this library, or is damaged ({error}): start a new run"
        ) from error
    if run.schema_version > SCHEMA_VERSION:
        raise ResultsError(
            f"{path} has schema version {run.schema_version}; this library reads up to {SCHEMA_VERSION}: upgrade it"
        )
    return run


def differences(config: RunConfig, saved: SavedRun, redactor: Redactor) -> list[str]:
    """What keeps `config` from continuing `saved`, a phrase a key; empty when it can. More examples are no obstacle."""
    found: list[str] = []

    def compare(name: str, old: Any, new: Any) -> None:
        if old != new:
            found.append(f"{name}: saved {_shown(old)}, now {_shown(new)}")

    compare("environment", _full_name(saved.env), redactor.text(_full_name(config.env)))
    compare("environment version", saved.env.version, config.env.version)
    compare("model", saved.model, redactor.text(config.model))
    for name, old, new in (
        ("env_args", saved.env_args, config.env_args),
        ("sampling_args", saved.sampling_args, config.sampling_args),
    ):
        new = redactor.value(as_json(new))  # the saved ones were redacted too
        for key in sorted(old.keys() | new.keys()):
            compare(f"{name}.{key}", old.get(key, _ABSENT), new.get(key, _ABSENT))
    compare("rollouts_per_example", saved.rollouts_per_example, config.rollouts_per_example)
    compare("seed", saved.seed, config.seed)
    if config.num_examples < saved.num_examples:
        found.append(f"num_examples: saved {saved.num_examples}, now {config.num_examples} (it may only grow)")
    else:
        first = config.prefix_hash(saved.num_examples)
        compare(f"hash of the first {saved.num_examples} rows", saved.rows_hash, first)
    return found


def remarks(config: RunConfig, saved: SavedRun, part: Part) -> list[str]:
    """What differs without keeping `config` from continuing `saved`."""
    last = saved.parts[-1]
    pairs = [
        ("library version", last.library_version, part.library_version),
        ("wheel of the environment", saved.env.wheel_sha256, config.env.wheel_sha256),
        ("uncommitted changes in the environment", saved.env.dirty, config.env.dirty),
        ("git state of the working directory", last.git, part.git),
        ("state_columns", saved.state_columns, list(config.state_columns)),
    ]
    if not (_is_loopback(last.base_url) and _is_loopback(part.base_url)):  # a local server has a new port each time
        pairs.append(("base_url", last.base_url, part.base_url))
    return [f"{name} differs: {_shown(old)} before, {_shown(new)} now" for name, old, new in pairs if old != new]


def git_state(folder: Path) -> GitState | None:
    """Commit of the repository that `folder` lies in. `None`: in none, or there is no git."""
    import subprocess

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            check=True,
            text=True,
            timeout=2,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},  # we only look
        ).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return None
    try:
        return GitState(commit, bool(git("status", "--porcelain", "--untracked-files=no")))
    except (OSError, subprocess.SubprocessError):
        return GitState(commit, None)


def as_json(value: Any) -> Any:
    """`value` as JSON would give it back; what JSON cannot hold becomes its text without memory addresses."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)  # plain, also from an enum
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None  # infinities and NaN have no JSON
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {as_json(key if isinstance(key, str) else str(key)): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((as_json(item) for item in value), key=repr)
    if isinstance(value, msgspec.Struct):
        return {name: as_json(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, os.PathLike):
        return as_json(os.fspath(value))
    try:
        return as_json(msgspec.to_builtins(value, enc_hook=_to_plain))
    except (TypeError, NotImplementedError):
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value)).encode("utf-8", "replace").decode()


def _to_plain(value: Any) -> Any:
    for name in ("model_dump", "tolist"):
        if callable(convert := getattr(value, name, None)):
            return convert()
    raise NotImplementedError


def utc_now() -> str:
    return utc_text(datetime.now(UTC))


def utc_text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")


_ABSENT = object()


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "not given"
    if value is None:
        return "none"
    text = value.commit[:12] + ("+changes" if value.dirty else "") if isinstance(value, GitState) else repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _full_name(env: EnvInfo) -> str:
    return f"{env.owner}/{env.name}" if env.owner else env.name


def _without_password(url: str) -> str:
    return re.sub(r"://[^/@]*@", "://", url)


def _is_loopback(url: str) -> bool:
    try:
        return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    except ValueError:
        return False


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("verifiers")
    except PackageNotFoundError:  # run from a source tree
        return ""
