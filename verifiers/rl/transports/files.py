"""`FileSender`, `FileReceiver`: batches as files of a folder that orchestrator and trainer share.

    step_00000012/rank_0.bin …    one encoded `RankBatch` each
    step_00000012/whole.json      written last: sizes and checksums. Without it the folder is nobody's yet
    released_0.json               the last step that rank 0 has released; its files up to there are gone

Every file is renamed into place when the disk has it. A reader checks sizes and checksums all the same: on a shared
disk another machine may see the names before the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from verifiers.rl.transports.transport import TransportError, check_order, checked
from verifiers.rl.types import RankBatch
from verifiers.whole_file import replace_file

POLL_S = 0.2
SETTLE_S = 60.0  # a shared disk is given to show the bytes that a marker promises
_NAME = re.compile(r"step_(\d{8})")


class Marker(msgspec.Struct, frozen=True):
    """What `whole.json` says: a number for each rank."""

    sizes: list[int]
    crc32: list[int]


class Released(msgspec.Struct, frozen=True):
    step: int


class FileSender:
    def __init__(self, folder: Path, world_size: int) -> None:
        self.folder, self.world_size = folder, world_size
        self._last: int | None = None

    async def send(self, step: int, payloads: Sequence[bytes]) -> None:
        """Returns when the disk has the batch. The same batch that is there already is left alone."""
        if len(payloads) != self.world_size:
            raise TransportError(f"{len(payloads)} payloads for {self.world_size} ranks")
        await asyncio.to_thread(self._write, step, payloads)

    def _write(self, step: int, payloads: Sequence[bytes]) -> None:
        released = [released_step(self.folder, rank) for rank in range(self.world_size)]
        there = steps_of(self.folder)
        check_order(step, self._last, max(there, default=None), min(released))
        for void in [void for void in there if void > step]:
            (_step_folder(self.folder, void) / "whole.json").unlink(missing_ok=True)
        self._last = step
        marker = Marker([len(payload) for payload in payloads], [zlib.crc32(payload) for payload in payloads])
        at = _step_folder(self.folder, step)
        if step <= min(released) or (step in there and _marker(at) == marker):
            return
        at.mkdir(parents=True, exist_ok=True)
        (at / "whole.json").unlink(missing_ok=True)
        for rank, payload in enumerate(payloads):
            if step > released[rank]:
                replace_file(at / f"rank_{rank}.bin", payload)
        replace_file(at / "whole.json", msgspec.json.encode(marker))

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        return


class FileReceiver:
    def __init__(self, folder: Path, rank: int, *, poll_s: float = POLL_S, settle_s: float = SETTLE_S) -> None:
        self.folder, self._rank = folder, rank
        self._poll_s, self._settle_s = poll_s, settle_s

    async def receive(self, step: int) -> RankBatch:
        released = released_step(self.folder, self._rank)
        if step <= released:
            raise TransportError(
                f"rank {self._rank} asks for step {step}, and has released all up to {released}: "
                f"start the trainer from a checkpoint after step {released}, or the run in a new folder"
            )
        at = _step_folder(self.folder, step)
        while not (at / "whole.json").exists():
            newest = max(steps_of(self.folder), default=-1)
            if newest > step and not (at / "whole.json").exists():
                raise TransportError(f"{self.folder} has step {newest} but not step {step}, which comes before it")
            await asyncio.sleep(self._poll_s)
        deadline_s = asyncio.get_running_loop().time() + self._settle_s
        while (payload := await asyncio.to_thread(self._read, at)) is None:
            if asyncio.get_running_loop().time() > deadline_s:
                raise TransportError(f"{at} is damaged: rank_{self._rank}.bin is not what its whole.json says")
            await asyncio.sleep(self._poll_s)
        return checked(payload, step, self._rank)

    def _read(self, at: Path) -> bytes | None:
        """The payload; None when the marker or the bytes are not (yet) as they should be."""
        marker = _marker(at)
        try:
            payload = (at / f"rank_{self._rank}.bin").read_bytes()
        except FileNotFoundError:
            return None
        if marker is None:
            return None
        if self._rank >= len(marker.sizes):
            raise TransportError(f"{at} was written for {len(marker.sizes)} ranks, and this is rank {self._rank}")
        is_whole = (len(payload), zlib.crc32(payload)) == (marker.sizes[self._rank], marker.crc32[self._rank])
        return payload if is_whole else None

    async def release(self, step: int) -> None:
        await asyncio.to_thread(self._remove, step)

    def _remove(self, step: int) -> None:
        if step <= released_step(self.folder, self._rank):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(_released_path(self.folder, self._rank), msgspec.json.encode(Released(step)))
        for old in steps_of(self.folder):
            if old > step:
                continue
            at = _step_folder(self.folder, old)
            (at / f"rank_{self._rank}.bin").unlink(missing_ok=True)
            if not any(at.glob("rank_*.bin")):  # the last rank to release it; two at once may both think so
                (at / "whole.json").unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    at.rmdir()

    async def close(self) -> None:
        return


def steps_of(folder: Path) -> list[int]:
    """The steps whose batch is there as a whole, in order."""
    if not folder.is_dir():
        return []
    found = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted(int(match[1]) for match, path in found if match and (path / "whole.json").exists())


def released_step(folder: Path, rank: int) -> int:
    """The last step that a rank has released; -1: none."""
    try:
        return msgspec.json.decode(_released_path(folder, rank).read_bytes(), type=Released).step
    except FileNotFoundError:
        return -1


def _marker(at: Path) -> Marker | None:
    try:
        return msgspec.json.decode((at / "whole.json").read_bytes(), type=Marker)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _released_path(folder: Path, rank: int) -> Path:
    return folder / f"released_{rank}.json"


def _step_folder(folder: Path, step: int) -> Path:
    return folder / f"step_{step:08}"
