"""`ProcessExecutor`: rollouts in worker processes, so that an environment's code stalls and crashes by itself.

A worker is an interpreter started anew, this one or the environment's own. It is given the spec, the rows of its groups
and the environment variables that the spec declares; none of our objects and none of our other variables.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from verifiers.errors import EnvironmentLoadError
from verifiers.executor.deaths import WorkerDied
from verifiers.executor.pool import CANCEL_GRACE_S, CLOSE_GRACE_S, PooledExecutor
from verifiers.executor.request import EnvSpec, GroupRequest, RowsRequest
from verifiers.executor.wire import (
    Cancel,
    Cancelled,
    Do,
    Done,
    Failed,
    Ready,
    Start,
    decode_answer,
    error_of,
    read_frame,
    write_frame,
)

logger = logging.getLogger("verifiers.executor")

# What programs need to find their files and the network; nothing of it is a secret of ours.
KEPT_VARIABLES = (
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_HOME", "HF_HUB_OFFLINE", "VF_LOG_LEVEL",
    "OMP_NUM_THREADS", "PYTHONHASHSEED", "PYTHONWARNINGS",
)  # fmt: skip
LOOK_S = 0.02  # whether a process that is about to end has ended
LAST_WORDS_S = 1.0  # after the process has ended; what it started may hold its output open for as long as it likes
LAST_LINES = 20


class ProcessExecutor(PooledExecutor):
    """At most `workers` processes for each spec, started as they are needed.

    A worker that dies is replaced and its groups are run again, at last each by itself; one that then still brings its
    worker down comes back as failed records. `deaths` counts them.
    """

    def __init__(self, workers: int | None = None, *, cancel_grace_s: float = CANCEL_GRACE_S) -> None:
        super().__init__(partial(ProcessWorker, cancel_grace_s=cancel_grace_s), workers or os.cpu_count() or 1)


class ProcessWorker:
    """One process. It is started by its first request."""

    def __init__(self, spec: EnvSpec, cancel_grace_s: float = CANCEL_GRACE_S) -> None:
        self.spec, self.cancel_grace_s = spec, cancel_grace_s
        self.load = 0  # requests in hand
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Done]] = {}
        self._started: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._why_killed = ""

    @property
    def is_dead(self) -> bool:
        """Whether its process has ended, or never began."""
        if self._process is not None:
            return self._process.returncode is not None
        return self._started is not None and self._started.done()

    async def ask(self, request: GroupRequest | RowsRequest) -> Done:
        """Raises WorkerDied when the process ends before it has answered."""
        self.load += 1
        try:
            if self._started is None:
                self._started = asyncio.create_task(self._start())
            await asyncio.shield(self._started)
            return await self._answer(request)
        finally:
            self.load -= 1

    async def _answer(self, request: GroupRequest | RowsRequest) -> Done:
        if self.is_dead or self._writer is None:
            raise self._death()
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            write_frame(self._writer, Do(number, request))
            await self._writer.drain()
            return await asyncio.shield(answer)
        except ConnectionError:
            raise self._death() from None
        except asyncio.CancelledError:
            await self._cancel(number, answer)
            raise
        finally:
            self._waiting.pop(number, None)

    async def _cancel(self, number: int, answer: asyncio.Future[Done]) -> None:
        """Waits for the rollouts' clean-up. A worker that does not come to it in time is stuck, and is killed."""
        if self._writer is None or answer.done():
            return
        write_frame(self._writer, Cancel(number))
        done, _ = await asyncio.wait([answer], timeout=self.cancel_grace_s)
        if not done:
            self._why_killed = f"did not end a cancelled group within {self.cancel_grace_s:g} s"
            self._kill()

    async def _start(self) -> None:
        """Raises what the environment raised while it was loaded, or EnvironmentLoadError for a start that failed."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *_command(self.spec, theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,  # what the environment's code prints is for nobody's results
                stderr=asyncio.subprocess.STDOUT,
                env=_variables(self.spec),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal is for the run, which then closes its workers
            )
            reader, self._writer = await asyncio.open_connection(sock=ours)
        self._tasks.append(asyncio.create_task(self._keep_lines()))
        write_frame(self._writer, Start(self.spec))
        data = await read_frame(reader)
        answer = None if data is None else decode_answer(data)
        if not isinstance(answer, Ready):
            death = await self._ended()
            if isinstance(answer, Failed):
                raise error_of(answer)
            raise EnvironmentLoadError(f"a worker for {self.spec.env_id} did not start: {death}")
        self._tasks.append(asyncio.create_task(self._read(reader)))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while (data := await read_frame(reader)) is not None:
                answer = decode_answer(data)
                if not isinstance(answer, Ready):
                    self._answered(answer)
            await self._ended()
        finally:  # also when `close` has no more patience: nobody else would ever tell those that wait
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(self._death())
                    waiting.exception()  # seen, even where the group was cancelled meanwhile

    def _answered(self, answer: Done | Failed | Cancelled) -> None:
        waiting = None if answer.number is None else self._waiting.get(answer.number)
        if waiting is None or waiting.done():
            return
        if isinstance(answer, Done):
            waiting.set_result(answer)
        elif isinstance(answer, Failed):
            waiting.set_exception(error_of(answer))
        else:
            waiting.cancel()

    async def _keep_lines(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while line := await _line(self._process.stdout):
            text = line.decode(errors="replace").rstrip()
            self._lines.append(text)
            logger.debug("%s: %s", self.spec.env_id, text)

    async def _ended(self) -> WorkerDied:
        """Once the process is gone, and its last words are there."""
        await self._gone()  # it has closed its end: it is about to go
        await asyncio.wait(self._tasks[:1], timeout=LAST_WORDS_S)
        return self._death()

    async def _gone(self) -> None:
        """Once the process has ended, killed when that takes too long.

        Not by asyncio's `wait`: in Python 3.11 and 3.12.0 that waits for the end of its output too, which what it has
        started (a grader, a sandbox) may hold open for long after it was killed.
        """
        assert self._process is not None
        deadline = time.monotonic() + CLOSE_GRACE_S
        while self._process.returncode is None:
            if time.monotonic() > deadline:
                self._kill()
            await asyncio.sleep(LOOK_S)

    def _death(self) -> WorkerDied:
        code = None if self._process is None else self._process.returncode
        how = self._why_killed or _told(code)
        words = "; its last words: " + " | ".join(list(self._lines)[-3:]) if self._lines else ""
        return WorkerDied(f"the worker process of {self.spec.env_id} {how}{words}")

    def _kill(self) -> None:
        """The process with all that it has started."""
        if self._process is not None and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    async def close(self) -> None:
        """The worker cancels what it has in hand and ends its environment; it is killed when that takes too long."""
        if self._started is not None and not self._started.done():
            self._started.cancel()
            await asyncio.wait([self._started])
        if self._process is None or self._writer is None:
            return
        if not self._writer.is_closing():
            self._writer.write_eof()
        await self._gone()
        await asyncio.wait(self._tasks, timeout=LAST_WORDS_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Empty at the end. A line longer than the buffer comes in pieces."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(max(1, error.consumed))


def _command(spec: EnvSpec, descriptor: int) -> Sequence[str]:
    """Our own interpreter sees what this process would import; another one only its own packages."""
    here = f"import sys; sys.path[:] = {sys.path!r}; " if spec.python is None else ""
    program = f"{here}from verifiers.executor.worker import main; main()"
    return spec.python or sys.executable, "-I", "-c", program, str(descriptor)


def _variables(spec: EnvSpec) -> dict[str, str]:
    return {name: os.environ[name] for name in (*KEPT_VARIABLES, *spec.keys) if name in os.environ}


def _told(code: int | None) -> str:
    if code is None:
        return "closed its connection"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit status {code}"
