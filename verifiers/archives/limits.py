"""`Limits`: how big an archive and its parts may be, and what an instance allows in it."""

from __future__ import annotations

from dataclasses import dataclass

from verifiers.archives.refusal import ArchiveRefused

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes. The defaults suit a hub that is open to strangers."""

    max_size_bytes: int = 100 * MIB  # of the file itself
    max_unpacked_bytes: int = 512 * MIB  # of all members together
    max_ratio: int = 50  # unpacked to packed, looked at from `ratio_from_bytes` on
    ratio_from_bytes: int = 64 * MIB
    max_members: int = 10_000  # folders included
    max_depth: int = 32  # folders above a member
    max_metadata_bytes: int = MIB  # METADATA or PKG-INFO, the readme included
    max_record_bytes: int = 4 * MIB
    max_small_file_bytes: int = 128 * KIB  # WHEEL, entry_points.txt, pyproject.toml
    platform_wheels: bool = False  # wheels for one platform, one ABI or one Python
    direct_urls: bool = False  # requirements of the form `name @ url`, which lead past every index
    environments_only: bool = True  # there must be a module with load_environment, of a name that is free


DEFAULTS = Limits()


class Budget:
    """Counts unpacked bytes while they come out, so that what headers claim does not matter."""

    def __init__(self, limits: Limits, packed_bytes: int) -> None:
        by_ratio = max(limits.ratio_from_bytes, limits.max_ratio * packed_bytes)
        self.allowed_bytes = min(limits.max_unpacked_bytes, by_ratio)
        self.packed_bytes = packed_bytes
        self.used_bytes = 0

    def spend(self, count: int) -> None:
        self.used_bytes += count
        self.refuse_above(self.used_bytes)

    def refuse_above(self, unpacked_bytes: int) -> None:
        if unpacked_bytes > self.allowed_bytes:
            raise ArchiveRefused(
                "bomb",
                f"the file of {self.packed_bytes:,} bytes unpacks to more than {self.allowed_bytes:,} bytes, "
                "which is as much as is taken of one of its size",
            )
