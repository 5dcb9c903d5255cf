"""`bumped`: the next version of a package, and writing it into pyproject.toml without touching anything else there."""

from __future__ import annotations

import shutil
from pathlib import Path

import tomlkit
from packaging.version import InvalidVersion, Version

from verifiers.errors import ConfigError

PARTS = ("major", "minor", "patch", "rc", "post")


def bumped(version: str, how: str) -> str:
    """The version after `version`: `how` names a part, or is the new version itself.

    >>> bumped("1.4.2", "minor"), bumped("1.4.2", "rc"), bumped("1.5.0rc1", "patch"), bumped("1.4", "2.0b1")
    ('1.5.0', '1.4.3rc1', '1.5.0', '2.0b1')
    """
    old = _parsed(version)
    if how not in PARTS:
        new = _parsed(how)
        if new <= old:
            raise ConfigError(f"version {new} does not come after {old}: versions only grow")
        return str(new)
    major, minor, micro = (*old.release, 0, 0)[:3]
    if how == "post":
        return f"{old.base_version}.post{(old.post or 0) + 1}"
    if how == "rc":
        if old.pre is not None and old.pre[0] == "rc":
            return f"{old.base_version}rc{old.pre[1] + 1}"
        return f"{old.base_version}rc1" if old.is_prerelease else f"{major}.{minor}.{micro + 1}rc1"
    if old.is_prerelease and how == "patch":
        return old.base_version  # 1.5.0rc1 was on its way to 1.5.0
    epoch = f"{old.epoch}!" if old.epoch else ""
    new = {"major": (major + 1, 0, 0), "minor": (major, minor + 1, 0), "patch": (major, minor, micro + 1)}[how]
    return epoch + ".".join(map(str, new))


def write_version(folder: Path, how: str) -> str:
    """Puts the next version into `[project] version`; the new one. Comments and layout stay.

    Raises ConfigError when the version is not written there, but made by the build.
    """
    file = folder / "pyproject.toml"
    try:
        document = tomlkit.parse(file.read_bytes().decode("utf-8"))  # as bytes: the ends of lines stay what they are
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    project = document.get("project", {})
    if not isinstance(project, dict) or not isinstance(project.get("version"), str):
        raise ConfigError(f"{file} has no [project] version to change (is it dynamic?): set it where it is made")
    new = bumped(str(project["version"]), how)
    project["version"] = new
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(tomlkit.dumps(document).encode("utf-8"))
    shutil.copymode(file, part)
    part.replace(file)
    return new


def _parsed(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        raise ConfigError(f"'{version}' is no version, nor one of {', '.join(PARTS)}. Write it like 1.2.0") from None
