"""`OwnWheel`: the wheel of this very `verifiers`, put together from what is installed here: for every index of a hub,
and for interpreters that get an environment and need us beside it.

A normal installation and an editable checkout both give the same wheel for the same sources: members are sorted,
carry one time and one mode, and are stored without compression, because what a compressor writes differs between its
versions and lock files hold this wheel's hash. Nothing is built: no network, no build back-end.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

from verifiers.errors import SetupError

NAME = "verifiers"
PACKAGES = ("verifiers", "hub_server")
_TIME = (2020, 2, 2, 0, 0, 0)  # of every member
_MODE = 0o100644
_WHEEL = b"Wheel-Version: 1.0\nGenerator: verifiers\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_NOT_SHIPPED = {"__pycache__", ".DS_Store"}


class NotInstalled(SetupError):
    """This library lies on the path without being installed, so there is nothing to make a wheel of."""


@dataclass(frozen=True, slots=True)
class OwnWheel:
    version: str
    filename: str
    content: bytes
    sha256: str
    metadata: bytes
    metadata_sha256: str
    requires_python: str | None
    installed_at: datetime  # the upload time that the index gives


@cache
def own_wheel() -> OwnWheel:
    """Assembled once per process, in about 0.1 s. Raises NotInstalled when the library was never installed, only put
    on the path."""
    try:
        distribution = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:
        raise NotInstalled(
            f"'{NAME}' runs from sources that were not installed, so there is no wheel of it. Install them: "
            "uv pip install -e ."
        ) from None
    return assembled(distribution, {name: package_folder(name) for name in PACKAGES})


def package_folder(name: str) -> Path:
    """Where Python imports a package from: site-packages, or the checkout of an editable installation."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise NotInstalled(f"the package '{name}' cannot be found")
    return Path(next(iter(spec.submodule_search_locations)))


def assembled(distribution: metadata.Distribution, packages: dict[str, Path]) -> OwnWheel:
    """The wheel of these packages, each under its name, with the installed distribution's metadata."""
    described = distribution.read_text("METADATA")
    if described is None:
        raise NotInstalled(f"the installation of '{NAME}' has no METADATA: install it again")
    about = described.encode()
    version = distribution.version
    info = f"{NAME}-{version}.dist-info"
    members = {f"{name}/{path}": data for name, folder in packages.items() for path, data in _files(folder)}
    members |= {f"{info}/METADATA": about, f"{info}/WHEEL": _WHEEL}
    entry_points = distribution.read_text("entry_points.txt")
    if entry_points:
        members[f"{info}/entry_points.txt"] = entry_points.encode()
    for name in distribution.metadata.get_all("License-File") or []:
        text = distribution.read_text(f"licenses/{name}")
        if text is not None:
            members[f"{info}/licenses/{name}"] = text.encode()
    content = _zipped(members, f"{info}/RECORD")
    return OwnWheel(
        version=version,
        filename=f"{NAME}-{version}-py3-none-any.whl",
        content=content,
        sha256=hashlib.sha256(content).hexdigest(),
        metadata=about,
        metadata_sha256=hashlib.sha256(about).hexdigest(),
        requires_python=distribution.metadata["Requires-Python"],
        installed_at=_installed_at(distribution),
    )


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc" and not _NOT_SHIPPED.intersection(path.parts):
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _zipped(members: dict[str, bytes], record: str) -> bytes:
    """A ZIP of the members and of RECORD, which lists them; `.dist-info` comes last, as installers like it."""
    ordered = sorted(members, key=lambda path: (".dist-info/" in path, path))
    rows = [f"{path},sha256={_digest(members[path])},{len(members[path])}" for path in ordered]
    listed = {path: members[path] for path in ordered}
    listed[record] = "".join(f"{row}\n" for row in [*rows, f"{record},,"]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path, data in listed.items():
            member = zipfile.ZipInfo(path, _TIME)
            member.create_system = 3  # Unix, wherever this runs
            member.external_attr = _MODE << 16
            archive.writestr(member, data)
    return out.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _installed_at(distribution: metadata.Distribution) -> datetime:
    """When this hub got the library: the time of its METADATA file."""
    located = distribution.locate_file(f"{NAME}-{distribution.version}.dist-info/METADATA")
    try:
        return datetime.fromtimestamp(Path(str(located)).stat().st_mtime, UTC)
    except OSError:
        return datetime(*_TIME, tzinfo=UTC)
