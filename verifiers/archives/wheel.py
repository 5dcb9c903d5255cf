"""`WheelRules`: what a wheel is beyond a ZIP with safe members."""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable
from email.parser import BytesParser
from email.policy import compat32

from packaging.utils import canonicalize_name

from verifiers.archives.environment import (
    ENTRY_POINTS,
    EnvironmentDeclaration,
    environment_module,
    module_of_entry,
    read_pyproject,
    refuse_taken,
)
from verifiers.archives.layout import refuse_intruders, refuse_layout
from verifiers.archives.limits import Limits
from verifiers.archives.members import Contents
from verifiers.archives.metadata import Metadata, parse_metadata
from verifiers.archives.names import FileName, refuse_environment_name, tags_of
from verifiers.archives.record import check_record
from verifiers.archives.refusal import ArchiveRefused, shown

_ENTRY_NAME = re.compile(r"[^\s=\[/\\:][^=\[/\\:]*")
_SCRIPT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_ENTRY_VALUE = re.compile(r"\w+(?:\.\w+)*(?: *: *\w+(?:\.\w+)*)? *(?:\[[\w ,.-]*\])?")


def wanted_in_wheel(name: FileName, limits: Limits) -> Callable[[str], int | None]:
    """Which members' content is needed, and how big each may be."""
    info = f"{name.folder}.dist-info/"
    small = limits.max_small_file_bytes
    sizes = {
        f"{info}METADATA": limits.max_metadata_bytes,
        f"{info}RECORD": limits.max_record_bytes,
        f"{info}WHEEL": small,
        f"{info}entry_points.txt": small,
        f"{info}extra_metadata/pyproject.toml": small,
        "pyproject.toml": small,
        f"{name.folder.rpartition('-')[0]}/pyproject.toml": small,
    }
    return sizes.get


def wheel_parts(
    name: FileName, contents: Contents, limits: Limits
) -> tuple[Metadata, str | None, EnvironmentDeclaration | None]:
    """Its metadata, the environment's module and what the environment says of itself. Raises ArchiveRefused."""
    info = f"{name.folder}.dist-info"
    paths = [*(member.path for member in contents.members), *contents.folders]
    refuse_layout(name, paths)
    check_record(_file(contents, info, "RECORD"), contents.members, f"{info}/RECORD")
    _check_wheel_file(_file(contents, info, "WHEEL"), name, limits)
    metadata = parse_metadata(_file(contents, info, "METADATA"), limits)
    refuse_other_project(metadata, name, "METADATA")
    _refuse_missing_licenses(metadata, contents, f"{info}/licenses/")
    entries = _entry_modules(contents.kept.get(f"{info}/entry_points.txt", b""))
    module = _module(metadata, entries, contents, limits)
    if limits.environments_only:
        refuse_intruders(name, paths)
    return metadata, module, _declaration(metadata, contents, info)


def _file(contents: Contents, info: str, name: str) -> bytes:
    found = contents.kept.get(f"{info}/{name}")
    if found is None:
        code = {"RECORD": "record_missing", "WHEEL": "wheel_file_missing", "METADATA": "metadata_missing"}[name]
        raise ArchiveRefused(code, f"the wheel has no {info}/{name}")
    return found


def _check_wheel_file(raw: bytes, name: FileName, limits: Limits) -> None:
    headers = BytesParser(policy=compat32).parsebytes(raw, headersonly=True)
    versions, pure = headers.get_all("Wheel-Version") or [], headers.get_all("Root-Is-Purelib") or []
    if len(versions) != 1 or not re.fullmatch(r"1\.[0-9]{1,3}", str(versions[0]).strip()):
        raise ArchiveRefused(
            "wheel_file_invalid", "WHEEL does not say Wheel-Version: 1.0, the one that installers read"
        )
    if len(pure) != 1 or str(pure[0]).strip().lower() not in ("true", "false"):
        raise ArchiveRefused("wheel_file_invalid", "WHEEL does not say Root-Is-Purelib: true")
    if str(pure[0]).strip().lower() == "false" and not limits.platform_wheels:
        raise ArchiveRefused("tags", "WHEEL says that the wheel is made for one platform; this hub takes pure Python")
    texts = [str(tag).strip() for tag in headers.get_all("Tag") or []]
    if tags_of(texts) != name.tags:
        raise ArchiveRefused("tags", f"the tags in WHEEL ({shown(', '.join(texts))}) are not those of the file name")
    build = [str(value).strip() for value in headers.get_all("Build") or []]
    if build != ([name.build] if name.build else []):
        raise ArchiveRefused("wheel_file_invalid", "the build number in WHEEL is not the one of the file name")


def refuse_other_project(metadata: Metadata, name: FileName, file: str) -> None:
    """Raises ArchiveRefused when METADATA or PKG-INFO belongs to another project or version than the file's name."""
    if metadata.normalized != name.normalized or metadata.version != name.version:
        raise ArchiveRefused(
            "metadata_mismatch",
            f"{file} is of {shown(metadata.name)} {metadata.version}; the file is named {shown(name.text)}",
        )


def _refuse_missing_licenses(metadata: Metadata, contents: Contents, folder: str) -> None:
    there = {member.path for member in contents.members}
    for path in metadata.license_files:
        if f"{folder}{path}" not in there:
            raise ArchiveRefused(
                "license_file", f"METADATA names the licence file {shown(path)}, which is not in {folder}"
            )


def _entry_modules(raw: bytes) -> list[str]:
    """Modules that the entry points of the group verifiers.environments name. Raises ArchiveRefused for a file that
    installers could not read, or read as something else."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, default_section="\0")
    parser.optionxform = str  # type: ignore[assignment]  # names keep their case
    try:
        if re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", raw):
            raise ValueError("there is a control character in it")
        parser.read_string(raw.decode())
    except (configparser.Error, ValueError) as error:
        raise ArchiveRefused("entry_points", f"entry_points.txt cannot be read: {shown(str(error))}") from None
    for group in parser.sections():
        for key, value in parser.items(group):
            is_script = group in ("console_scripts", "gui_scripts")
            if not (_SCRIPT_NAME if is_script else _ENTRY_NAME).fullmatch(key[:101]) or len(key) > 100:
                raise ArchiveRefused(
                    "entry_points", f"{shown(key)} in [{shown(group)[1:-1]}] is no name of an entry point"
                )
            if len(value) > 500 or not _ENTRY_VALUE.fullmatch(value):
                raise ArchiveRefused(
                    "entry_points", f"the entry point {shown(key)} leads to {shown(value)}, which is no module"
                )
    modules = parser.items(ENTRY_POINTS) if parser.has_section(ENTRY_POINTS) else []
    return [module_of_entry(value) for _, value in modules]


def _module(metadata: Metadata, entries: list[str], contents: Contents, limits: Limits) -> str | None:
    module = environment_module(metadata.name, entries, (member.path for member in contents.members), contents.exposing)
    if not limits.environments_only:
        return module
    refuse_environment_name(metadata.name)
    if module is None:
        raise ArchiveRefused(
            "no_environment",
            "no module of the wheel has load_environment(**args), so that nothing could be loaded from it",
        )
    refuse_taken(module, metadata)
    return module


def _declaration(metadata: Metadata, contents: Contents, info: str) -> EnvironmentDeclaration | None:
    """Out of the pyproject.toml that the wheel holds; wheels of single modules may bring a neighbour's, which is
    passed over."""
    for path in (f"{info}/extra_metadata/pyproject.toml", *contents.kept):
        if path.endswith("pyproject.toml") and path in contents.kept:
            project = read_pyproject(contents.kept[path])
            if project.name is not None and canonicalize_name(project.name) == metadata.normalized:
                return project.declaration
    return None
