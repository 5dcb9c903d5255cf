"""`EnvironmentDeclaration`: what `[tool.verifiers]` in an environment's pyproject.toml says, and which module it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from typing import Any

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from verifiers.archives.metadata import Metadata
from verifiers.archives.refusal import ArchiveRefused, shown
from verifiers.refs import near, taken_by

ENTRY_POINTS = "verifiers.environments"
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)
# a key of very many parts costs the standard library's parser quadratic time
_LONG_KEY = re.compile(rb"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){64}""")
_MAX_NUMBER = 2**53  # what JSON readers keep exact
_MAX_DEPTH = 8  # tables and lists inside each other


class DatasetDeclaration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One set of data that the examples come from."""

    name: str  # as `datasets.load_dataset` takes it, or a word for what it is
    revision: str | None = None
    split: str | None = None
    license: str | None = None
    url: str | None = None


class EvalDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """`[tool.verifiers.eval]`: what vf-eval runs when it is not told."""

    num_examples: int | None = None  # -1: all there are
    rollouts_per_example: int | None = None


class EnvironmentDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment says of itself for those who choose one. `None` and empty: not said."""

    task_type: str | None = None  # such as "single-turn", "multi-turn", "tool-use", "sandbox"
    tags: tuple[str, ...] = ()  # those of [project] tags too
    tools: tuple[str, ...] = ()  # names of the tools that the model may call
    datasets: tuple[DatasetDeclaration, ...] = ()
    splits: dict[str, int | None] = {}  # name → number of examples; `None`: as many as one likes, or not known
    required_keys: tuple[str, ...] = ()  # names of environment variables; their values stay with the user
    publish_answers: bool | None = None  # whether a hub may show the reference answers that results hold
    eval: EvalDeclaration = EvalDeclaration()
    validate: dict[str, Any] = {}  # [tool.verifiers.validate], read by vf-validate
    unknown: tuple[str, ...] = ()  # keys that nobody reads; most often misspelt


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    """`[tool.verifiers]` as it is written."""

    task_type: str | None = None
    tags: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    datasets: tuple[str | DatasetDeclaration, ...] = ()
    splits: tuple[str, ...] | dict[str, int] = ()
    required_keys: tuple[str, ...] = ()
    publish_answers: bool | None = None
    eval: EvalDeclaration = EvalDeclaration()
    validate: dict[str, Any] = {}


class Project(msgspec.Struct, frozen=True):
    """What is read out of a pyproject.toml."""

    name: str | None  # [project] name
    version: str | None  # [project] version; `None`: a build settles it
    entry_modules: tuple[str, ...]  # of the entry points verifiers.environments
    declaration: EnvironmentDeclaration


def read_pyproject(raw: bytes) -> Project:
    """Raises ArchiveRefused with `pyproject_invalid`, or `declaration_invalid` naming the key."""
    tables = _toml(raw)
    project, ours = _table(tables, "project"), _table(_table(tables, "tool"), "verifiers")
    name, version = project.get("name"), project.get("version")
    entries = _table(_table(project, "entry-points"), ENTRY_POINTS)
    return Project(
        name if isinstance(name, str) else None,
        version if isinstance(version, str) else None,
        tuple(module_of_entry(str(value)) for value in entries.values()),
        _declaration(ours, project.get("tags", [])),
    )


def _toml(raw: bytes) -> dict[str, Any]:
    try:
        if _LONG_KEY.search(raw):
            raise ValueError("a key of more than 64 parts")
        return tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        reason = shown(str(error)) if isinstance(error, ValueError) else "nested too deeply"
        raise ArchiveRefused("pyproject_invalid", f"pyproject.toml cannot be read: {reason}") from None


def _table(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key, {})
    if not isinstance(value, dict):
        raise ArchiveRefused("pyproject_invalid", f"[{key}] in pyproject.toml is no table")
    return value  # pyright: ignore[reportUnknownVariableType]


def _declaration(ours: dict[str, Any], project_tags: Any) -> EnvironmentDeclaration:
    try:
        table = msgspec.convert(ours, _Table)
        more_tags = msgspec.convert(project_tags, tuple[str, ...])
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    datasets = tuple(DatasetDeclaration(name=one) if isinstance(one, str) else one for one in table.datasets)
    splits = dict(table.splits) if isinstance(table.splits, dict) else dict.fromkeys(table.splits)
    unknown = [key for key in ours if key not in _Table.__struct_fields__]
    if len(unknown) > 100 or any(len(key) > 100 for key in unknown):
        raise _invalid("more than 100 keys that are not known, or one of more than 100 characters")
    found = EnvironmentDeclaration(
        task_type=table.task_type,
        tags=tuple(dict.fromkeys((*table.tags, *more_tags))),
        tools=table.tools,
        datasets=datasets,
        splits=splits,
        required_keys=table.required_keys,
        publish_answers=table.publish_answers,
        eval=table.eval,
        validate=table.validate,
        unknown=tuple(map(_with_hint, unknown)),
    )
    _refuse_unfit(found)
    return found


def _with_hint(key: str) -> str:
    close = near(key, _Table.__struct_fields__, limit=1)
    return f"{shown(key, 60)[1:-1]} (did you mean {close[0]}?)" if close else shown(key, 60)[1:-1]


def _refuse_unfit(found: EnvironmentDeclaration) -> None:
    for key in ("tags", "tools", "datasets", "splits", "required_keys"):
        if len(getattr(found, key)) > 100:
            raise _invalid(f"more than 100 {key}")
    texts = [found.task_type, *found.tags, *found.tools, *found.splits, *found.required_keys]
    texts += [text for one in found.datasets for text in msgspec.structs.astuple(one)]
    for text in texts:
        if text is not None and (not text.strip() or len(text) > 200 or not text.isprintable()):
            raise _invalid(f"{shown(text)} is empty, longer than 200 characters or has characters that are not shown")
    for key in found.required_keys:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key, re.ASCII):
            raise _invalid(f"required_keys takes names of environment variables, not {shown(key)}")
    if any(count is not None and not 0 <= count <= _MAX_NUMBER for count in found.splits.values()):
        raise _invalid("splits takes numbers of examples, which are not below 0")
    for key, lowest in (("num_examples", -1), ("rollouts_per_example", 1)):
        count = getattr(found.eval, key)
        if count is not None and (not lowest <= count <= _MAX_NUMBER or count == 0):
            raise _invalid(f"eval.{key} takes a count, not {shown(count)}")
    if not _is_plain(found.validate):
        raise _invalid("validate takes texts, booleans, finite numbers, lists and tables of these, not too deep")


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether the value survives a round trip through JSON, in whatever language."""
    if isinstance(value, dict | list) and depth < _MAX_DEPTH:
        parts: Iterable[Any] = value.values() if isinstance(value, dict) else value
        return all(_is_plain(part, depth + 1) for part in parts)
    if isinstance(value, bool | str):
        return True
    return isinstance(value, int | float) and abs(value) <= _MAX_NUMBER  # which nan is not


def _invalid(reason: str) -> ArchiveRefused:
    return ArchiveRefused("declaration_invalid", f"[tool.verifiers] in pyproject.toml: {reason}")


def module_of_entry(value: str) -> str:
    """`module` out of `module:attribute [extras]`."""
    return re.split(r"[:\[]", value, maxsplit=1)[0].strip()


def environment_module(
    project: str, entry_modules: Iterable[str], paths: Iterable[str], exposing: Iterable[str]
) -> str | None:
    """The module that has load_environment, looked for as an installation does: the project's own name, what entry
    points name, then any other at the top. `exposing` are the paths of the files that have it."""
    paths, exposing = set(paths), set(exposing)
    named = [project.replace("-", "_").replace(".", "_"), *(m for m in entry_modules if _MODULE.fullmatch(m))]
    at_top = {path.partition("/")[0].removesuffix(".py") for path in exposing if path.count("/") < 2}
    for module in dict.fromkeys([*named, *sorted(at_top, key=lambda name: (name.startswith("test"), name))]):
        place = module.replace(".", "/")
        if f"{place}.py" in exposing or f"{place}/__init__.py" in exposing:
            return module
        # the package hands the function on by __getattr__ or `import *`: it is in another file of the same folder
        if f"{place}/__init__.py" in paths and any(path.rpartition("/")[0] == place for path in exposing):
            return module
    return None


def refuse_taken(module: str, metadata: Metadata) -> None:
    """Raises ArchiveRefused with `name_taken` when the module hides another one, or is hidden by it."""
    top = module.partition(".")[0]
    taken = taken_by(top)
    if taken:
        raise ArchiveRefused("name_taken", f"the module '{top}' is {taken}. Rename the module and the environment")
    own = {canonicalize_name(top), metadata.normalized}
    for text in metadata.requires_dist:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        # extras that are made of others: `my-env[all]` requires `my-env[one,two]`
        of_itself = name == metadata.normalized and requirement.extras and "extra" in str(requirement.marker)
        if name in own and not of_itself:
            raise ArchiveRefused(
                "name_taken",
                f"the environment has the name of '{name}', which it requires itself. Rename the environment",
            )
