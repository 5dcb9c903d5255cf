"""`WeightFolder`: the weights that a trainer gives, a folder for each version, and the news of them."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

from verifiers.rl.policy import NewWeights
from verifiers.rl.weights import FolderWeights

POLL_S = 0.25
_NAME = re.compile(r"version_(\d{8})")


class WeightFolder:
    """`folder/version_00000012`, which appears when it is whole. A `WeightFeed` for whoever reads.

    A disk that all servers share, or memory (`/dev/shm`) where all are on one machine.
    """

    def __init__(self, folder: Path, *, keep: int = 3) -> None:
        self.folder, self.keep = folder, keep

    def path(self, version: int) -> Path:
        return self.folder / f"version_{version:08d}"

    def versions(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return sorted(int(found[1]) for path in self.folder.iterdir() if (found := _NAME.fullmatch(path.name)))

    def newest(self) -> NewWeights | None:
        versions = self.versions()
        return NewWeights(versions[-1], FolderWeights(self.path(versions[-1]))) if versions else None

    def prune(self) -> None:
        """Removes all but the newest `keep` versions."""
        for version in self.versions()[: -self.keep]:
            shutil.rmtree(self.path(version), ignore_errors=True)

    async def newer_than(self, version: int) -> NewWeights:
        while (found := self.newest()) is None or found.version <= version:
            await asyncio.sleep(POLL_S)
        return found
