"""`SdistRules`: what an sdist is beyond a tar.gz with safe members."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from packaging.utils import canonicalize_name

from verifiers.archives.environment import EnvironmentDeclaration, environment_module, read_pyproject, refuse_taken
from verifiers.archives.limits import Limits
from verifiers.archives.members import Contents, Entry
from verifiers.archives.metadata import Metadata, parse_metadata
from verifiers.archives.names import FileName, canonical_version, refuse_environment_name
from verifiers.archives.refusal import ArchiveRefused, shown
from verifiers.archives.wheel import refuse_other_project

_TOO_OLD = {"1.0", "1.1", "1.2", "2.1"}  # metadata before PEP 643: what a build may change is not told


def wanted_in_sdist(limits: Limits) -> Callable[[str], int | None]:
    """Which members' content is needed, and how big each may be."""
    return {"PKG-INFO": limits.max_metadata_bytes, "pyproject.toml": limits.max_small_file_bytes}.get


def below_top(entries: Iterator[Entry], folder: str) -> Iterator[Entry]:
    """The entries with paths that begin below the one top folder. Raises ArchiveRefused for what lies beside it."""
    for entry in entries:
        top, slash, rest = entry.path.partition("/")
        if top != folder or not (slash or entry.is_folder):
            raise ArchiveRefused("top_folder", f"the member {shown(entry.path)} does not lie in the folder {folder}/")
        if slash:
            entry.path = rest
            yield entry


def sdist_parts(
    name: FileName, contents: Contents, limits: Limits
) -> tuple[Metadata, str | None, EnvironmentDeclaration | None]:
    """Its metadata, the environment's module and what the environment says of itself. Raises ArchiveRefused."""
    info, pyproject = contents.kept.get("PKG-INFO"), contents.kept.get("pyproject.toml")
    if info is None:
        raise ArchiveRefused("metadata_missing", f"the sdist has no {name.folder}/PKG-INFO")
    if pyproject is None:
        raise ArchiveRefused("pyproject_missing", f"the sdist has no {name.folder}/pyproject.toml")
    metadata = parse_metadata(info, limits)
    refuse_other_project(metadata, name, "PKG-INFO")
    if metadata.metadata_version in _TOO_OLD:
        raise ArchiveRefused(
            "metadata_invalid",
            f"PKG-INFO has metadata {metadata.metadata_version}; an sdist needs 2.2 or newer. Use a newer build tool",
        )
    there = {member.path for member in contents.members}
    for path in metadata.license_files:
        if path not in there:
            raise ArchiveRefused(
                "license_file", f"PKG-INFO names the licence file {shown(path)}, which is not in the sdist"
            )
    project = read_pyproject(pyproject)
    _refuse_other_pyproject(project.name, project.version, metadata)
    module = _module(metadata, project.entry_modules, contents)
    if limits.environments_only:
        refuse_environment_name(metadata.name)
        if module is None:
            raise ArchiveRefused("no_environment", "no module of the sdist has load_environment(**args)")
        refuse_taken(module, metadata)
    return metadata, module, project.declaration


def _refuse_other_pyproject(name: str | None, version: str | None, metadata: Metadata) -> None:
    other_name = name is not None and canonicalize_name(name) != metadata.normalized
    if other_name or (version is not None and canonical_version(version) != metadata.version):
        raise ArchiveRefused(
            "metadata_mismatch",
            f"pyproject.toml is of {shown(name)} {shown(version)}; PKG-INFO is of {metadata.name} {metadata.version}",
        )


def _module(metadata: Metadata, entries: tuple[str, ...], contents: Contents) -> str | None:
    """Sources may lie in the top folder, in `src`, or, rarely, in a folder of another name."""
    paths = [member.path for member in contents.members]
    prefixes = dict.fromkeys(["", "src/", *(f"{path.partition('/')[0]}/" for path in sorted(contents.exposing))])
    for prefix in prefixes:
        inside = [path.removeprefix(prefix) for path in paths if path.startswith(prefix)]
        exposing = [path.removeprefix(prefix) for path in contents.exposing if path.startswith(prefix)]
        module = environment_module(metadata.name, entries, inside, exposing)
        if module is not None:
            return module
    return None
