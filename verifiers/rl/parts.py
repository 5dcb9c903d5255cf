"""`Part`: a program of a training run that runs beside the orchestrator: the trainer, a server."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verifiers.errors import ConfigError, SetupError

logger = logging.getLogger("verifiers")

STOP_S = 60.0  # a trainer may be writing a checkpoint
STEADY_S = 300.0  # a part that ran for so long and then died may be started again as often as a new one
MAX_DEATHS = 3  # one after the other
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # elsewhere parts outlive an orchestrator that is killed


class PartFailed(SetupError):
    """A part ended again and again; the message has its last words."""


class Part:
    """A program that is started again when it dies, until it has ended by itself or is stopped.

    What it says goes to `log`. It ends with this process, on Linux however that ends.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.command, self.log = name, list(command), log
        self.variables = dict(variables or {})
        self.deaths = 0
        self.pid: int | None = None

    async def run(self) -> None:
        """Returns when the program has ended well. Raises PartFailed. Cancelled, it ends the program first."""
        loop, in_a_row = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            code = await self._once()
            if code == 0:
                return
            in_a_row = 1 if loop.time() - began > STEADY_S else in_a_row + 1
            self.deaths += 1
            if in_a_row >= MAX_DEATHS:
                raise PartFailed(f"{self.name} ended {in_a_row} times, at last {_how(code)}. {self.last_words()}")
            logger.warning("%s ended %s; it is started again (%s)", self.name, _how(code), self.log)
            await asyncio.sleep(in_a_row)

    async def _once(self) -> int:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | self.variables,
                    start_new_session=True,  # Ctrl-C in the terminal is for the run, which then stops its parts
                    preexec_fn=_end_with_parent if _LIBC is not None else None,
                )
            except OSError as error:
                raise PartFailed(f"{self.name} cannot be started: {self.command[0]}: {error.strerror}") from None
        self.pid = process.pid
        try:
            return await process.wait()
        except asyncio.CancelledError:
            await _stopped(process)
            raise
        finally:
            self.pid = None
            with contextlib.suppress(ProcessLookupError):  # what it had started, if it left that behind
                os.killpg(process.pid, signal.SIGKILL)

    def last_words(self, lines: int = 12) -> str:
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return ""
        return f"The end of {self.log}:\n" + "\n".join(f"  {line}" for line in text.splitlines()[-lines:])


def _end_with_parent() -> None:
    """Between fork and exec: SIGTERM comes when the process that started this one is gone, even by SIGKILL."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _stopped(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
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
