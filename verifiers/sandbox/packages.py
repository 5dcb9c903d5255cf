"""Which installed packages a local sandbox shows: all of them, or some by name with what they need."""

from __future__ import annotations

import json
import os
import sysconfig
from collections import deque
from collections.abc import Iterable
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from verifiers.errors import ConfigError, SetupError

Wanted = bool | tuple[str, ...]  # True: all that is installed beside this interpreter


def wanted(packages: bool | Iterable[str]) -> Wanted:
    """As it can be compared. Raises ConfigError for one text, which is no list of names."""
    if isinstance(packages, bool):
        return packages
    if isinstance(packages, str):
        raise ConfigError(f"packages= is True or a list of names, and {packages!r} is a text; give [{packages!r}]")
    return tuple(sorted(set(packages)))


def all_folders() -> list[str]:
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return list(dict.fromkeys(found))


@cache
def places_of(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """(where it lies, its name from the folder of packages) of each file and folder that belongs to these packages and
    to what they need, parents before children. Raises SetupError for one that cannot be shown.
    """
    found: dict[str, str] = {}
    for one in _with_their_needs(names):
        found |= _places(one)
    return tuple((place, name) for name, place in sorted(found.items()))


def folder_of_links(places: Iterable[tuple[str, str]], folder: str) -> None:
    """Makes the folder, by whose links the packages are found where nothing can be mounted."""
    for place, name in places:
        link = Path(folder, name)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(place)


def _with_their_needs(names: tuple[str, ...]) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()  # a package and one of its extras, or ""
    queue = deque((_requirement(name), True) for name in names)
    while queue:
        asked, is_named = queue.popleft()
        name = canonicalize_name(asked.name)
        try:
            found.setdefault(name, distribution(asked.name))
        except PackageNotFoundError:
            if not is_named:  # the package can do without, or whoever installed it thought so
                continue
            raise SetupError(
                f"a sandbox is to show the package {asked.name}, which is not installed here. "
                f"Try: uv pip install {asked.name}"
            ) from None
        for extra in ("", *asked.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                needs = [_requirement(text) for text in found[name].requires or ()]
                queue += [
                    (need, False) for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})
                ]
    return list(found.values())


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise SetupError(f"a sandbox is to show {text!r}, which is no name of a package: {error}") from None


def _places(package: Distribution) -> dict[str, str]:
    """The least that is the package's own: a folder as a whole only where no other package can have a part of it."""
    name = package.metadata["Name"]
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    if package.files is None or origin.get("dir_info", {}).get("editable"):
        why = "is installed as a link to its source" if package.files is not None else "has no list of its files"
        raise SetupError(
            f"a sandbox is to show the package {name}, which {why}; install it from a wheel, or show all "
            "(packages=True)"
        )
    files = {file.parts for file in package.files if ".." not in file.parts and file.suffix not in (".pth", ".pyc")}
    found = {}
    for parts in files:
        own = next((n for n in range(1, len(parts)) if (*parts[:n], "__init__.py") in files), None)
        if own is None:  # a folder of data, a namespace of many packages, or a single file
            own = 1 if len(parts) > 1 and parts[0].endswith((".dist-info", ".libs", ".data")) else len(parts)
        whole = "/".join(parts[:own])
        found[whole] = os.path.realpath(str(package.locate_file(whole)))
    return {whole: place for whole, place in found.items() if os.path.exists(place)}
