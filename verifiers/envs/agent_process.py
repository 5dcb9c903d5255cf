"""`AgentProcess`: an agent while it runs, its outputs read as they come, so that it never waits for us."""

from __future__ import annotations

import asyncio
from typing import Any

from verifiers.calls import time_limit
from verifiers.sandbox import ExecResult, SandboxProcess

END_S = 10.0


class AgentProcess:
    """Of each output the last `kept_bytes` are kept."""

    def __init__(self, process: SandboxProcess, kept_bytes: int) -> None:
        self.stdout, self.stderr = Tail(kept_bytes), Tail(kept_bytes)
        self.ended = asyncio.ensure_future(process.wait())
        self.result: ExecResult | None = None  # None: it was ended by us
        self._process = process
        self._readers = [
            asyncio.ensure_future(_drain(process.read, self.stdout)),
            asyncio.ensure_future(_drain(process.read_error, self.stderr)),
        ]

    @property
    def exit_code(self) -> int | None:
        """Negative: of a signal. `None`: it was ended by us."""
        if self.result is None:
            return None
        return self.result.exit_code if self.result.exit_code is not None else -(self.result.signal or 0)

    @property
    def words(self) -> str:
        return self.stderr.text or self.stdout.text

    async def end(self) -> None:
        """Takes what there is of its outputs; ends it if it runs."""
        try:
            is_own_end = self.ended.done()
            if not is_own_end:
                await self._process.kill()
            async with time_limit(END_S, "the end of the agent"):
                result = await self.ended
            await asyncio.sleep(0)
        finally:
            await cancel_all(*self._readers)
        self.stdout.add(result.stdout)
        self.stderr.add(result.stderr)
        self.result = result if is_own_end else None


class Tail:
    """The last bytes of an output."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        self._held += data
        surplus = len(self._held) - self._size
        if surplus > 0:
            del self._held[:surplus]
            self._dropped += surplus

    @property
    def text(self) -> str:
        text = self._held.decode("utf-8", "replace")
        return f"[{self._dropped:,} bytes before this were dropped]\n{text}" if self._dropped else text


async def cancel_all(*tasks: asyncio.Future[Any]) -> None:
    """Returns when they have ended, however they did."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _drain(read: Any, tail: Tail) -> None:
    while data := await read(65536):
        tail.add(data)
