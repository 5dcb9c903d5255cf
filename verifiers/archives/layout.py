"""`WheelLayout`: what the paths of a wheel mean to an installer, and which of them would reach beyond the package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verifiers.archives.names import FileName
from verifiers.archives.refusal import ArchiveRefused, shown
from verifiers.refs import taken_by

_SCHEMES = {"purelib", "platlib", "headers", "scripts", "data"}  # of the folder name-version.data
_CODE = (".py", ".pyc", ".pyd", ".so")
_METADATA = (".dist-info", ".egg-info")


def refuse_layout(name: FileName, paths: Iterable[str]) -> None:
    """Raises ArchiveRefused with `dist_info` or `data_folder`."""
    info, has_info = f"{name.folder}.dist-info", False
    for path, inner in _installed(name, paths):
        top = path.partition("/")[0]
        has_info |= path.startswith(f"{info}/")
        if top.lower().endswith(_METADATA) and top != info:
            raise ArchiveRefused("dist_info", f"the wheel has {shown(top)}; its one folder of this kind is {info}")
        if inner is None:
            continue
        first = inner.partition("/")[0].lower()
        if first.endswith(_METADATA) and inner is not path:
            raise ArchiveRefused("dist_info", f"{shown(path)} would install the metadata of another package")
    if not has_info:
        raise ArchiveRefused("dist_info", f"the wheel has no folder {info}")


def refuse_intruders(name: FileName, paths: Iterable[str]) -> None:
    """Raises ArchiveRefused with `name_taken` for files that would lie in, or hide, what others import, and `path_file`
    for what runs although nobody imports it."""
    for path, inner in _installed(name, paths):
        if inner is None:
            continue
        first, slash, _ = inner.partition("/")
        if first.lower().endswith(".pth"):
            raise ArchiveRefused(
                "path_file", f"{shown(path)} would run whenever Python starts. Build a wheel that is not editable"
            )
        if not slash and not first.lower().endswith(_CODE):
            continue
        module = first if slash else first.partition(".")[0]
        taken = taken_by(module) or taken_by(module.lower())
        if taken:
            raise ArchiveRefused("name_taken", f"the wheel brings {shown(path)}, and '{module}' is {taken}. Rename it")


def _installed(name: FileName, paths: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Each path, and the one that it gets beside other packages; `None` for what is installed elsewhere."""
    data = f"{name.folder}.data"
    for path in paths:
        top, _, rest = path.partition("/")
        if not top.lower().endswith(".data"):
            yield path, path
            continue
        scheme, _, inner = rest.partition("/")
        if top != data or (scheme and scheme not in _SCHEMES):
            raise ArchiveRefused("data_folder", f"{shown(path)} belongs to no known part of {data}")
        if scheme == "data" and {"site-packages", "dist-packages"} & set(inner.lower().split("/")):
            raise ArchiveRefused("data_folder", f"{shown(path)} would go among the packages by a back door")
        yield path, inner if scheme in ("purelib", "platlib") and inner else None
