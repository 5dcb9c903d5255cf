"""`AgentTunnel`: requests that a program in a sandbox makes to an address on its own loopback, answered here.

A sandbox needs no network for it: a small server inside hands each request over by its stdout, and gets the answer on
its stdin. That works with every backend.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from verifiers.calls import time_limit
from verifiers.envs.agent_process import cancel_all
from verifiers.errors import SandboxError, one_line
from verifiers.sandbox import Sandbox, SandboxProcess

WORKER = Path(__file__).with_name("agent_tunnel_worker.py")
START_S = 30.0
LAST_WORDS_S = 2.0  # for a tunnel that has closed its end to be gone
MAX_LINE = 80 << 20  # bytes; a request's body is at most 32 MiB, and JSON may double it


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    key: str  # the Authorization header
    body: str


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    body: str
    type: str = "application/json"


Answer = Callable[[HttpRequest], Awaitable[HttpAnswer]]


class AgentTunnel:
    """Open it, `serve` until it is closed. What the other end says is not trusted: the agent itself may fake it."""

    def __init__(self, process: SandboxProcess) -> None:
        self.port = 0
        self._process = process
        self._buffer = bytearray()
        self._writing = asyncio.Lock()  # an answer is written in one piece
        self._asked: dict[int, asyncio.Task[None]] = {}

    @classmethod
    async def open(cls, sandbox: Sandbox) -> AgentTunnel:
        """Raises SandboxError when the sandbox has no Python, or no loopback."""
        command = ["python3", "-I", "-S", "-c", WORKER.read_text("utf-8")]
        tunnel = cls(await sandbox.open_process(command))
        try:
            async with time_limit(START_S, "the start of the agent's tunnel"):
                line = await tunnel._line()
        except TimeoutError as error:
            await tunnel.close()
            raise SandboxError(one_line(error)) from None
        except BaseException:
            await tunnel.close()
            raise
        tunnel.port = int(msgspec.json.decode(line, type=_Hello).port)
        return tunnel

    async def serve(self, answer: Answer) -> None:
        """Answers requests, each in a task of its own. Raises SandboxError when the tunnel has ended."""
        try:
            while True:
                said = _read(await self._line())
                if isinstance(said, _Gone):
                    task = self._asked.get(said.gone)
                    if task is not None:
                        task.cancel()
                elif said.id not in self._asked:
                    self._asked[said.id] = asyncio.ensure_future(self._answer_one(said, answer))
        finally:
            await cancel_all(*self._asked.values())

    async def close(self) -> None:
        await self._process.kill()

    async def _answer_one(self, asked: _Asked, answer: Answer) -> None:
        try:
            made = await answer(HttpRequest(asked.method, asked.path, asked.key, asked.body))
            frame = {"id": asked.id, "status": made.status, "type": made.type, "body": made.body}
            async with self._writing:
                await self._process.write(json.dumps(frame).encode() + b"\n")
        except SandboxError:
            pass  # the tunnel is gone; `serve` finds that out too
        finally:
            del self._asked[asked.id]

    async def _line(self) -> bytes:
        begin = 0
        while (end := self._buffer.find(b"\n", begin)) < 0:
            begin = len(self._buffer)
            if begin > MAX_LINE:
                raise SandboxError("the agent's tunnel was sent a line without end")
            data = await self._process.read(1 << 18)
            if not data:
                raise SandboxError(f"the agent's tunnel in the sandbox has ended: {await self._last_words()}")
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    async def _last_words(self) -> str:
        try:
            async with time_limit(LAST_WORDS_S, "the end of the agent's tunnel"):
                result = await self._process.wait()
        except TimeoutError:
            return "it closed its output, and goes on running"
        text = result.error_text.strip().splitlines()
        return text[-1][:500] if text else f"{result.outcome}, without a word"


class _Hello(msgspec.Struct):
    port: int


class _Gone(msgspec.Struct):
    gone: int


class _Asked(msgspec.Struct):
    id: int
    method: str
    path: str
    key: str
    body: str


def _read(line: bytes) -> _Asked | _Gone:
    try:
        found: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        return msgspec.convert(found, _Gone if "gone" in found else _Asked)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SandboxError(f"the agent's tunnel was sent something else than a request: {error}") from None
