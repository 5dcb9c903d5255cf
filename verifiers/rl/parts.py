"""`Part`: a program of a training run that runs beside the orchestrator: the trainer with its ranks, a server."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verifiers.errors import ConfigError, SetupError

logger = logging.getLogger("verifiers")

STOP_S = 60.0  # a trainer may be writing a checkpoint
STEADY_S = 300.0  # a part that ran for so long and then died may be started again as often as a new one
MAX_DEATHS = 3  # one after the other
SET_UP = 3  # exit status of a program that another try would not help
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # elsewhere parts outlive an orchestrator that is killed


class PartFailed(SetupError):
    """A part ended again and again; the message has its last words."""


class Part:
    """A program that is started again when it dies, until it has ended by itself or is stopped.

    With several `ranks` it is as many processes, which find one another by the environment variables that torchrun
    sets, on this machine's loopback. They live and die together: when one dies the others are ended, and all are
    started again. What it says goes to `log`, what the ranks after the first say to files beside it. It ends with this
    process, on Linux however that ends.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        variables: Mapping[str, str] | None = None,
        *,
        ranks: int = 1,
    ) -> None:
        self.name, self.command, self.log, self.ranks = name, list(command), log, ranks
        self.variables = dict(variables or {})
        self.deaths = 0
        self.pids: list[int] = []  # of the ranks, while they run

    @property
    def pid(self) -> int | None:
        """Of the first rank."""
        return self.pids[0] if self.pids else None

    async def run(self) -> None:
        """Returns when the program has ended well. Raises PartFailed. Cancelled, it ends the program first."""
        loop, in_a_row = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            rank, code = await self._once()
            if code == 0:
                return
            in_a_row = 1 if loop.time() - began > STEADY_S else in_a_row + 1
            self.deaths += 1
            who = self.name if self.ranks == 1 else f"{self.name} (rank {rank})"
            if code == SET_UP:
                raise PartFailed(f"{who} cannot run. {self.last_words(rank)}")
            if in_a_row >= MAX_DEATHS:
                raise PartFailed(f"{who} ended {in_a_row} times, at last {_how(code)}. {self.last_words(rank)}")
            logger.warning("%s ended %s; it is started again (%s)", who, _how(code), self.log_of(rank))
            await asyncio.sleep(in_a_row)

    async def _once(self) -> tuple[int, int]:
        """(rank, exit status) of the first that ended badly; of any, when all have ended well."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        processes: list[asyncio.subprocess.Process] = []
        try:
            for rank, variables in enumerate(self._variables_of_ranks()):
                processes.append(await self._started(variables, self.log_of(rank)))
                self.pids.append(processes[-1].pid)
            return await _first_bad_end(processes)
        finally:
            await asyncio.gather(*(_stopped(process) for process in processes))
            self.pids = []

    def _variables_of_ranks(self) -> list[dict[str, str]]:
        if self.ranks == 1:
            return [self.variables]
        # Another program may take the port before rank 0 does; then the ranks die, and are started with another one
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        shared |= {"WORLD_SIZE": str(self.ranks), "LOCAL_WORLD_SIZE": str(self.ranks)}
        return [self.variables | shared | {"RANK": str(n), "LOCAL_RANK": str(n)} for n in range(self.ranks)]

    async def _started(self, variables: Mapping[str, str], log_path: Path) -> asyncio.subprocess.Process:
        with log_path.open("ab") as log:
            try:
                return await asyncio.create_subprocess_exec(
                    *self.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | variables,
                    start_new_session=True,  # Ctrl-C in the terminal is for the run, which then stops its parts
                    preexec_fn=_end_with_parent if _LIBC is not None else None,
                )
            except OSError as error:
                raise PartFailed(f"{self.name} cannot be started: {self.command[0]}: {error.strerror}") from None

    def log_of(self, rank: int) -> Path:
        return self.log if rank == 0 else self.log.with_stem(f"{self.log.stem}-{rank}")

    def last_words(self, rank: int = 0, lines: int = 12) -> str:
        log = self.log_of(rank)
        try:
            text = log.read_text(errors="replace")
        except OSError:
            return ""
        return f"The end of {log}:\n" + "\n".join(f"  {line}" for line in text.splitlines()[-lines:])


async def _first_bad_end(processes: Sequence[asyncio.subprocess.Process]) -> tuple[int, int]:
    ends = {asyncio.ensure_future(process.wait()): rank for rank, process in enumerate(processes)}
    waiting = set(ends)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            # Of several at once the one that a signal ended: it is what the others died of
            bad = sorted((end.result() > 0, ends[end]) for end in done if end.result() != 0)
            if bad:
                rank = bad[0][1]
                return rank, processes[rank].returncode or 0
        return 0, 0
    finally:
        for end in waiting:
            end.cancel()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _end_with_parent() -> None:
    """Between fork and exec: SIGTERM comes when the process that started this one is gone, even by SIGKILL."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _stopped(process: asyncio.subprocess.Process) -> None:
    """Also what it had started, if it left that behind."""
    try:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _how(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit status {code}"


def changes_of(arguments: Sequence[str]) -> dict[str, Any]:
    """`name=value` texts, for `read_config`; values are JSON where they can be, else text."""
    found: dict[str, Any] = {}
    for text in arguments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"'{text}' is no setting; write name=value, as optim.lr=1e-5")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
