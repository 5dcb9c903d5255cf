"""`ProcessTalk`: a gateway's side of a program that a client talks to while it runs.

The client asks for output when it wants some, so that a program whose output nobody reads stops, as with pipes. A frame
is a letter and what belongs to it: `O` open, `w` write, `c` close stdin, `o` and `e` read (how much, in four bytes),
`x` wait, `k` kill. Each is answered by its own letter, or by `!`, that letter and the problem as JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from verifiers.errors import ConfigError, SandboxError
from verifiers.sandbox.gateway_messages import CHUNK_BYTES, Exec, Problem, as_json, pack_result
from verifiers.sandbox.sandbox import Sandbox, SandboxProcess

_MAX_PENDING = 64  # frames at work; the client's next one waits


class ProcessTalk:
    def __init__(
        self,
        sandbox: Sandbox,
        env: Mapping[str, str],
        send: Callable[[bytes], Awaitable[None]],
        problem_of: Callable[[Exception], Problem],
    ) -> None:
        self._sandbox, self._env = sandbox, env
        self._send, self._problem_of = send, problem_of
        self._process: SandboxProcess | None = None
        self._has_ended = False
        self._places = asyncio.Semaphore(_MAX_PENDING)
        # for each stream: one call at a time, in the order of the frames, since locks are fair
        self._streams = {letter: asyncio.Lock() for letter in (b"w", b"o", b"e")}
        self._tasks: set[asyncio.Task[None]] = set()

    async def hear(self, frame: bytes) -> None:
        """Returns once the frame is being worked on."""
        letter, rest = frame[:1], frame[1:]
        if letter == b"O":
            await self._answer(letter, self._open(rest))
            return
        await self._places.acquire()
        task = asyncio.ensure_future(self._answer(letter, self._do(letter, rest)))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def end(self) -> None:
        """A client that is gone leaves no program behind."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._process is not None and not self._has_ended:
            try:
                await self._process.kill()
            except SandboxError:
                pass  # the whole sandbox has ended

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._places.release()
        if not task.cancelled():
            task.exception()  # the client is gone, and its talk with it

    async def _answer(self, letter: bytes, work: Awaitable[bytes]) -> None:
        try:
            answer = letter + await work
        except Exception as error:
            answer = b"!" + letter + as_json(self._problem_of(error))
        await self._send(answer)

    async def _open(self, rest: bytes) -> bytes:
        if self._process is not None:
            raise SandboxError("a process is opened once on a connection")
        try:
            asked = msgspec.json.decode(rest, type=Exec)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"no Exec: {error}") from None
        self._process = await self._sandbox.open_process(
            asked.command, cwd=asked.cwd, env={**self._env, **asked.env}, user=asked.user
        )
        return b""

    async def _do(self, letter: bytes, rest: bytes) -> bytes:
        process = self._process
        if process is None:
            raise SandboxError("no process was opened on this connection")
        if letter == b"w":
            async with self._streams[b"w"]:
                await process.write(rest)
        elif letter == b"c":
            async with self._streams[b"w"]:
                await process.close_stdin()
        elif letter in (b"o", b"e"):
            size = max(1, min(int.from_bytes(rest, "big"), CHUNK_BYTES))
            async with self._streams[letter]:
                return await (process.read(size) if letter == b"o" else process.read_error(size))
        elif letter == b"x":
            result = await process.wait()
            self._has_ended = True
            return pack_result(result)
        elif letter == b"k":
            await process.kill()
        else:
            raise SandboxError(f"no frame begins with {letter!r}")
        return b""
