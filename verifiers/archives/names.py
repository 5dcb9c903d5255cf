"""`FileName`: what the name of a wheel or an sdist says, and the names that a project may have."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from verifiers.archives.limits import Limits
from verifiers.archives.refusal import ArchiveRefused, shown
from verifiers.errors import ConfigError
from verifiers.refs import EnvRef

Kind = Literal["wheel", "sdist"]

MAX_NAME = 100
MAX_VERSION = 64
MAX_TAGS = 1000
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._!+-]*", re.ASCII)
_BUILD = re.compile(r"[0-9]{1,9}[A-Za-z0-9_]{0,16}", re.ASCII)
_PURE_PYTHON = re.compile(r"py[23][0-9]{0,2}", re.ASCII)
_TAG = re.compile(r"[a-z_]\w*(\.[a-z_]\w*)*-\w+(\.\w+)*-\w+(\.\w+)*", re.ASCII | re.I)
_LOOKALIKES = str.maketrans({"l": "1", "i": "1", "o": "0", "-": None, "_": None, ".": None})


@dataclass(frozen=True, slots=True)
class FileName:
    """A file name that is spelt as the standards want it."""

    text: str
    kind: Kind
    normalized: str  # of the project, PEP 503
    version: str  # canonical, PEP 440
    build: str = ""  # wheels only
    python_tag: str = ""  # wheels only: the first of the three, such as "py3"
    tags: frozenset[Tag] = frozenset()  # wheels only

    @property
    def folder(self) -> str:
        """`name-version`: an sdist's top folder, and the stem of a wheel's `.dist-info`."""
        return f"{self.normalized.replace('-', '_')}-{self.version}"


def file_name_of(text: str, limits: Limits) -> FileName:
    """Raises ArchiveRefused with `filename_invalid`, `name_invalid`, `version_invalid` or `tags`."""
    if not _FILE_NAME.fullmatch(text) or len(text) > 255:
        raise ArchiveRefused("filename_invalid", f"{shown(text)} is no file name of a wheel or an sdist")
    if text.endswith(".whl"):
        return _wheel_name(text, limits)
    if text.endswith(".tar.gz"):
        return _sdist_name(text)
    raise ArchiveRefused(
        "filename_invalid", f"{shown(text)} is neither a wheel (.whl) nor an sdist (.tar.gz). Build both with vf build"
    )


def _sdist_name(text: str) -> FileName:
    name, dash, version = text.removesuffix(".tar.gz").rpartition("-")
    if not dash:
        raise ArchiveRefused("filename_invalid", f"{shown(text)} is not named name-version.tar.gz")
    return _spelt_right(text, "sdist", name, version, f"{{}}-{{}}{'.tar.gz'}")


def _wheel_name(text: str, limits: Limits) -> FileName:
    parts = text.removesuffix(".whl").split("-")
    if len(parts) not in (5, 6):
        raise ArchiveRefused(
            "filename_invalid", f"{shown(text)} is not named name-version-python-abi-platform.whl (PEP 427)"
        )
    name, version, *builds = parts[:-3]
    if builds and not _BUILD.fullmatch(builds[0]):
        raise ArchiveRefused("filename_invalid", f"{shown(text)}: {shown(builds[0])} is no build number")
    spelt = _spelt_right(text, "wheel", name, version, "{}-{}-" + "-".join([*builds, *parts[-3:]]) + ".whl")
    tags = _tags(text, parts[-3:], limits)
    return FileName(text, "wheel", spelt.normalized, spelt.version, "".join(builds), parts[-3], tags)


def _tags(text: str, parts: list[str], limits: Limits) -> frozenset[Tag]:
    python, abi, platform = parts
    if not limits.platform_wheels:
        pure = all(_PURE_PYTHON.fullmatch(tag) for tag in python.split("."))
        if not pure or abi != "none" or platform != "any":
            raise ArchiveRefused(
                "tags",
                f"{shown(text)} is made for one interpreter or platform; this hub takes wheels of pure Python, "
                "tagged py3-none-any",
            )
    return tags_of(["-".join(parts)])


def tags_of(texts: list[str]) -> frozenset[Tag]:
    """Every single tag that compressed ones such as `py2.py3-none-any` stand for. Raises ArchiveRefused with `tags`."""
    count = 0
    for text in texts:
        if not _TAG.fullmatch(text):
            raise ArchiveRefused("tags", f"{shown(text)} is no compatibility tag (PEP 425)")
        count += math.prod(part.count(".") + 1 for part in text.split("-"))
    if count > MAX_TAGS:
        raise ArchiveRefused("tags", f"there are more than {MAX_TAGS:,} compatibility tags")
    return frozenset(tag for text in texts for tag in parse_tag(text))


def _spelt_right(text: str, kind: Kind, name: str, version: str, template: str) -> FileName:
    refuse_name(name)
    canonical = canonical_version(version)
    normalized = canonicalize_name(name)
    right = template.format(normalized.replace("-", "_"), canonical)
    if text != right:
        raise ArchiveRefused(
            "filename_invalid", f"{shown(text)} should be spelt {shown(right)}. Use a newer build tool"
        )
    return FileName(text, kind, normalized, canonical)


def canonical_version(text: str) -> str:
    """The version as PEP 440 spells it. Raises ArchiveRefused with `version_invalid`; local versions are refused."""
    try:
        if len(text) > MAX_VERSION:
            raise InvalidVersion(text)
        version = Version(text)
    except InvalidVersion:
        raise ArchiveRefused("version_invalid", f"{shown(text)} is no version (PEP 440). Such as: 0.1.0") from None
    if version.local is not None:
        raise ArchiveRefused(
            "version_invalid", f"{shown(text)} is a local version, which is never published. Drop what follows the '+'"
        )
    return str(version)


def refuse_name(name: str) -> None:
    """Raises ArchiveRefused with `name_invalid` for what can be no project's name."""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise ArchiveRefused(
            "name_invalid",
            f"{shown(name)} is no name of a project: at most {MAX_NAME} ASCII letters, digits, '-', '_' and '.', "
            "with a letter or digit at both ends",
        )


def refuse_environment_name(name: str) -> None:
    """Raises ArchiveRefused with `name_taken` or `name_invalid` for a name under which nothing could be loaded."""
    try:
        EnvRef.parse(name)
    except ConfigError as error:
        code = "name_taken" if "its module" in str(error) else "name_invalid"
        raise ArchiveRefused(code, str(error)) from None


def ultra_normalised(name: str) -> str:
    """What is left of a name for somebody who reads it in a hurry: no separators, `l`, `i` and `1` the same, `o` and
    `0` the same.

    >>> ultra_normalised("Math-Env"), ultra_normalised("tooI_1oop") == ultra_normalised("tool-loop")
    ('mathenv', True)
    """
    return name.lower().translate(_LOOKALIKES)
