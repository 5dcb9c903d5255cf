"""`RunState`: all that an orchestrator must know to go on as if it had never been away, and the files that hold it."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

import msgspec

from verifiers.errors import ResultsError
from verifiers.rl.scheduler import ScheduleState
from verifiers.whole_file import replace_file

SCHEMA_VERSION = 1
_MAGIC = b"vf-rl-state\n"
_NAME = re.compile(r"step_(\d{8})\.state")


class Outbox(msgspec.Struct, frozen=True, kw_only=True):
    """The batch of a step, one encoded `RankBatch` a rank. It is saved before it is sent, and sent again on resume."""

    step: int
    payloads: list[bytes]


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """Readers accept every older `schema_version`, so a change may only add fields with a default."""

    schedule: ScheduleState
    outbox: Outbox | None  # None: nothing has been shipped yet
    evaluations: dict[str, int] = {}  # the policy version of each one's last result
    schema_version: int = SCHEMA_VERSION

    @property
    def step(self) -> int:
        """The step whose batch is gathered next."""
        return self.schedule.step


def encode_state(state: RunState) -> bytes:
    body = _encoder.encode(state)
    return _MAGIC + zlib.crc32(body).to_bytes(4, "big") + body


def decode_state(data: bytes) -> RunState:
    """Raises ValueError for what is no whole state, and for one of a newer schema."""
    start = len(_MAGIC) + 4
    body = memoryview(data)[start:]
    if not data.startswith(_MAGIC) or zlib.crc32(body) != int.from_bytes(data[len(_MAGIC) : start], "big"):
        raise ValueError("not a saved state, or a damaged one")
    version = msgspec.msgpack.decode(body, type=_Version).schema_version
    if version > SCHEMA_VERSION:
        raise ValueError(f"of schema version {version}; this library reads up to {SCHEMA_VERSION}: upgrade it")
    return _decoder.decode(body)


class StateFolder:
    """The last `keep` states of a run, one file a step. A process killed at any moment leaves whole files only."""

    def __init__(self, folder: Path, *, keep: int = 3) -> None:
        self.folder, self._keep = folder, keep

    def write(self, step: int, data: bytes) -> None:
        """Returns when the disk has it. `data` is an encoded state."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.folder / f"step_{step:08}.state", data)
        for old in self.steps()[: -self._keep]:
            self._path(old).unlink(missing_ok=True)
        for torn in self.folder.glob(".*.new"):
            torn.unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """The steps that there is a state of, in order."""
        if not self.folder.is_dir():
            return []
        found = (_NAME.fullmatch(name) for name in os.listdir(self.folder))
        return sorted(int(match[1]) for match in found if match)

    def read(self, step: int | None = None) -> RunState | None:
        """The state of a step, or the newest; None when there is none at all.

        A trainer that goes on from an older checkpoint needs the state of that checkpoint's step.
        Raises ResultsError that says which there are.
        """
        steps = self.steps()
        if step is None and not steps:
            return None
        wanted = steps[-1] if step is None else step
        if wanted not in steps:
            there = ", ".join(map(str, steps)) or "none"
            raise ResultsError(f"{self.folder} has no state of step {wanted} (there are: {there})")
        path = self._path(wanted)
        try:
            return decode_state(path.read_bytes())
        except (ValueError, msgspec.MsgspecError) as error:
            others = ", ".join(str(other) for other in steps if other != wanted) or "none"
            raise ResultsError(f"{path} cannot be read ({error}). Other steps with a state: {others}") from error

    def _path(self, step: int) -> Path:
        return self.folder / f"step_{step:08}.state"


class _Version(msgspec.Struct):
    schema_version: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RunState)
