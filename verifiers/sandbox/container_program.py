"""`Program`: one program that runs in a container, from its start to how it ended."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Mapping

import msgspec

from verifiers.errors import SandboxError
from verifiers.sandbox.container_shell import KILL, RUN, MarkedStream, Report, code_of
from verifiers.sandbox.engine import Engine, EngineError, Streams
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.outcome import Ending, read_ending
from verifiers.sandbox.sandbox import ExecResult, Limit

START_TIMEOUT_S = 60.0
KILL_TIMEOUT_S = 15.0
_ATTEMPTS = 3  # of making it ready; it is started once


class Program:
    """Belongs to the running event loop. `pump` hands its output on until it has ended."""

    def __init__(
        self, engine: Engine, container: str, exec_id: str, streams: Streams, user: str, attempts: int
    ) -> None:
        word = secrets.token_hex(16)
        self.attempts = attempts
        self.report: Report | None = None
        self.began = time.monotonic()
        self._engine = engine
        self._container = container
        self._exec_id = exec_id
        self._streams = streams
        self._user = user
        self._first_line = f"{word}\n".encode()
        self._mark = f"\x1e{word}".encode()
        self._marked = {stream: MarkedStream(self._mark) for stream in (1, 2)}
        self._tail: bytes | None = None  # stderr after its second mark
        self._is_stdout_done = False
        self._number = 0
        self._early: list[tuple[int, bytes]] = []  # what came before, or with, the shell's number

    @classmethod
    async def start(
        cls,
        engine: Engine,
        container: str,
        argv: list[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        user: str,
        cpu_s: float | None = None,
    ) -> Program:
        seconds = "-" if cpu_s is None else str(math.ceil(cpu_s))
        body = {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Cmd": ["/bin/sh", "-c", RUN, "sh", cwd, seconds, *argv],
            "Env": [f"{name}={value}" for name, value in env.items()],
            "User": user,
        }
        made, attempts = await _make_ready(engine, container, body)
        program = None
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                program = cls(engine, container, made, await engine.attach(made), user, attempts)
                await program._begin()
            return program
        except BaseException as error:
            if program is not None:
                program.close()
            if isinstance(error, TimeoutError):
                raise SandboxError(f"a program did not start in its container within {START_TIMEOUT_S:g} s") from None
            raise

    async def _begin(self) -> None:
        """Until the shell has told its number; only then does the program start."""
        await self._streams.send(self._first_line)
        text = b""
        while True:
            frame = await self._streams.receive()
            if frame is None:
                raise await self._not_started(b"".join(data for _, data in self._early) + text)
            if frame[0] == 1:
                self._early.append(frame)
                continue
            text += frame[1]
            number, line_end, rest = text.partition(self._mark)[2].partition(b"\n")
            if self._mark in text and line_end:
                break
        self._early.append((2, rest))
        self._number = int(number)
        self.began = time.monotonic()

    async def pump(
        self, take: Callable[[int, bytes], None], may_go_on: Callable[[], asyncio.Future[None] | None]
    ) -> None:
        """Calls `take(1 or 2, data)`; before it reads on, waits for what `may_go_on` gives."""
        for early in self._early:
            self._sort(*early, take)
        while not (self._is_stdout_done and self.report is not None):
            waited = may_go_on()
            if waited is not None:
                await waited
            frame = await self._streams.receive()
            if frame is None:
                break
            self._sort(*frame, take)
        for stream in (1, 2):
            if rest := self._marked[stream].rest():
                take(stream, rest)

    def _sort(self, stream: int, data: bytes, take: Callable[[int, bytes], None]) -> None:
        if stream == 2 and self._tail is not None:
            self._tail += data
        elif stream != 1 or not self._is_stdout_done:  # what follows is of programs in the background
            before, after = self._marked[stream].feed(data)
            if before:
                take(stream, before)
            if after is not None and stream == 1:
                self._is_stdout_done = True
            elif after is not None:
                self._tail = after
        if self.report is None and self._tail is not None and b"\x1e" in self._tail:
            try:
                self.report = Report.read(self._tail.partition(b"\x1e")[0])
            except ValueError:
                raise SandboxError(f"the container's shell made no sense: {self._tail[:200]!r}") from None

    async def send(self, data: bytes) -> None:
        await self._streams.send(data)

    def close_stdin(self) -> None:
        self._streams.close_stdin()

    def close(self) -> None:
        self._streams.close()

    async def kill(self) -> bool:
        """Ends it and what it started, as the same user; False when that did not work."""
        body = {
            "AttachStdout": True,
            "AttachStderr": True,
            "Cmd": ["/bin/sh", "-c", KILL, "sh", str(self._number)],
            "User": self._user,
        }
        try:
            async with asyncio.timeout(KILL_TIMEOUT_S):
                made = (await self._engine.call("POST", f"/containers/{self._container}/exec", body=body))["Id"]
                streams = await self._engine.attach(made)
                try:
                    while await streams.receive() is not None:
                        pass
                finally:
                    streams.close()
                return await _exit_code(self._engine, made) == 0
        except (TimeoutError, EngineError):
            return False

    async def ending(self) -> Ending:
        """Once the pump has ended. Raises SandboxError when nobody knows what became of the program."""
        wall_s = time.monotonic() - self.began
        if self.report is not None:
            return self.report.ending(wall_s)
        try:
            container = await self._engine.call("GET", f"/containers/{self._container}/json")
        except EngineError as error:
            if error.status != 404:
                raise
            raise SandboxError("the sandbox has ended while the program ran: its container is gone") from None
        if container["State"].get("OOMKilled"):
            return Ending(wall_s=wall_s, out_of_memory=True)
        if not container["State"]["Running"]:
            raise SandboxError("the sandbox has ended while the program ran: its container was stopped")
        code = await _exit_code(self._engine, self._exec_id)
        if code == 0:  # the shell came to its end, which is no other before it has reported
            raise SandboxError("the container engine lost the end of what a program wrote, and how it ended")
        return Ending(code=code_of(code), wall_s=wall_s)

    async def _not_started(self, said: bytes) -> SandboxError:
        text = " ".join(said.decode("utf-8", "replace").split())[:500]
        if not text:
            try:
                text = f"exit {await _exit_code(self._engine, self._exec_id)}"
            except EngineError as error:
                text = str(error)
        return SandboxError(f"the container's shell did not start ({text}); an image needs /bin/sh")


async def _make_ready(engine: Engine, container: str, body: dict[str, object]) -> tuple[str, int]:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return (await engine.call("POST", f"/containers/{container}/exec", body=body))["Id"], attempt
        except EngineError as error:
            if error.status in (404, 409):
                raise SandboxError(f"the sandbox has ended: its container is gone or stopped ({error})") from None
            if error.status is not None or attempt == _ATTEMPTS:
                raise
        await asyncio.sleep(0.1 * 4**attempt)
    raise AssertionError


async def _exit_code(engine: Engine, exec_id: str) -> int:
    """The streams may close a little before the engine knows."""
    for wait_s in (0.0, 0.02, 0.1, 0.5, 1.0):
        await asyncio.sleep(wait_s)
        found = await engine.call("GET", f"/exec/{exec_id}/json")
        if not found["Running"] and found["ExitCode"] is not None:
            return found["ExitCode"]
    raise EngineError("the container engine closed a program's streams, but says that it still runs")


class Run:
    """A program that is run to its end, with its output kept up to the limit."""

    def __init__(self, program: Program, limits: SandboxLimits) -> None:
        self._program = program
        self._limits = limits
        self._left = limits.output_kb << 10
        self._kept: dict[int, list[bytes]] = {1: [], 2: []}
        self._is_cut = {1: False, 2: False}
        self._overflow: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def outcome(self, stdin: bytes) -> tuple[ExecResult, bool]:
        """How it ended, and whether all of it did."""
        program = self._program
        pump = asyncio.ensure_future(program.pump(self._take, lambda: None))
        feed = asyncio.ensure_future(self._feed(stdin))
        fired: Limit | None = None
        is_gone = True
        try:
            await asyncio.wait((pump, self._overflow), timeout=self._limits.wall_s, return_when=asyncio.FIRST_COMPLETED)
            if self._overflow.done():
                fired = "output"
            elif not pump.done():
                fired = "wall"
            if fired is not None:
                wall_s = time.monotonic() - program.began
                is_gone = await program.kill()
                await asyncio.wait((pump,), timeout=0.5)  # for what it wrote last
                if pump.done():
                    pump.exception()
                ending = Ending(wall_s=wall_s, fired=fired)
            else:
                await pump
                ending = await program.ending()
        finally:
            pump.cancel()
            feed.cancel()
            await asyncio.gather(pump, feed, return_exceptions=True)
            program.close()
        out, err = (b"".join(self._kept[stream]) for stream in (1, 2))
        result = read_ending(ending, self._limits, out, err, (self._is_cut[1], self._is_cut[2]))
        return msgspec.structs.replace(result, attempts=program.attempts), is_gone

    def _take(self, stream: int, data: bytes) -> None:
        kept = data[: self._left]
        if kept:
            self._kept[stream].append(kept)
            self._left -= len(kept)
        if len(kept) < len(data) and not self._overflow.done():
            self._is_cut[stream] = True
            self._overflow.set_result(None)

    async def _feed(self, stdin: bytes) -> None:
        try:
            if stdin:
                await self._program.send(stdin)
        except SandboxError:
            return  # it does not want to read all
        self._program.close_stdin()
