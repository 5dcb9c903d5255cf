"""`ArchivePair`: a wheel and an sdist of one version, of which the wheel must be what the sdist shows."""

from __future__ import annotations

from verifiers.archives.checked import Checked
from verifiers.archives.members import Member
from verifiers.archives.metadata import canonical_python, canonical_requirements
from verifiers.archives.refusal import ArchiveRefused, shown

_SOURCE = (".py", ".pyw", ".pyc")
_COMPILED = (".so", ".pyd", ".dll", ".dylib")


def check_pair(wheel: Checked, sdist: Checked) -> None:
    """People read the sdist and run the wheel: every file of the wheel that Python would run must be, byte for byte,
    a file of the sdist; where the sdist has that path, the file there. Raises ArchiveRefused with `pair_mismatch`."""
    if (wheel.kind, sdist.kind) != ("wheel", "sdist"):
        raise ArchiveRefused(
            "pair_mismatch", f"a wheel and an sdist belong together, not {wheel.kind} and {sdist.kind}"
        )
    _refuse_unlike("name", wheel.normalized, sdist.normalized)
    _refuse_unlike("version", wheel.version, sdist.version)
    open_fields = sdist.metadata.dynamic  # the sdist leaves these to the build (PEP 643)
    if "requires-dist" not in open_fields:
        asked, shown_there = (set(canonical_requirements(one.metadata.requires_dist)) for one in (wheel, sdist))
        _refuse_unlike("dependencies", sorted(asked - shown_there), sorted(shown_there - asked))
    if "requires-python" not in open_fields:
        bounds = [canonical_python(one.metadata.requires_python) for one in (wheel, sdist)]
        _refuse_unlike("requires-python", *bounds)
    by_path = {member.path: member for member in sdist.members}
    contents = {(member.sha256, member.size_bytes) for member in sdist.members}
    is_pure = all(tag.platform == "any" for tag in wheel.name.tags)
    code = (*_SOURCE, *_COMPILED) if is_pure else _SOURCE  # a wheel for a platform was compiled from the sdist
    for member in wheel.members:
        if member.path.lower().endswith(code):
            _refuse_other_code(member, by_path, contents)


def _refuse_other_code(member: Member, by_path: dict[str, Member], contents: set[tuple[str, int]]) -> None:
    source = by_path.get(member.path) or by_path.get(f"src/{member.path}")
    if source is not None and source.sha256 != member.sha256:
        raise ArchiveRefused("pair_mismatch", f"{shown(member.path)} of the wheel is not what the sdist has there")
    if member.size_bytes and (member.sha256, member.size_bytes) not in contents:
        raise ArchiveRefused(
            "pair_mismatch",
            f"{shown(member.path)} of the wheel is in no file of the sdist. Build the wheel from the sdist",
        )


def _refuse_unlike(what: str, in_wheel: object, in_sdist: object) -> None:
    if in_wheel != in_sdist:
        raise ArchiveRefused(
            "pair_mismatch",
            f"{what}: the wheel says {shown(in_wheel)}, the sdist {shown(in_sdist)}. Build both from one source",
        )
