"""`Checked`: a wheel or an sdist that keeps all the rules, and what is in it."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.utils import canonicalize_version

from verifiers.archives.environment import EnvironmentDeclaration
from verifiers.archives.members import Member
from verifiers.archives.metadata import Metadata
from verifiers.archives.names import FileName, Kind


@dataclass(frozen=True, slots=True)
class Checked:
    """Everything here was computed from the file's bytes; nothing is somebody's word."""

    kind: Kind
    filename: str
    project: str  # as its author writes it
    normalized: str  # PEP 503
    version: str  # canonical, PEP 440
    sha256: str  # of the file, hex; so are the next two
    md5: str
    blake2_256: str
    size_bytes: int
    name: FileName
    metadata: Metadata
    members: tuple[Member, ...]  # in the archive's order; an sdist's paths begin below its top folder
    module: str | None = None  # that has load_environment; `None` only with Limits(environments_only=False)
    content_hash: str | None = None  # sdists only: "vfh1:…"
    environment: EnvironmentDeclaration | None = None  # `None`: there is no pyproject.toml in the wheel

    @property
    def version_key(self) -> str:
        """The same text for versions that PEP 440 calls equal, such as 1.0 and 1.0.0."""
        return canonicalize_version(self.version)
