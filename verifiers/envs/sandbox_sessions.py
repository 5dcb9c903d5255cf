"""`SandboxSessions`: interpreters in sandboxes, one in each, started when it is first needed and again after a loss."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from verifiers.envs.interpreter import Execution, Interpreter, Settings
from verifiers.envs.sandbox_worker import SandboxWorker
from verifiers.errors import SandboxError
from verifiers.sandbox.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Ran:
    """A piece of code that was run. `was_lost`: the interpreter went with its variables, and a new one was started."""

    execution: Execution
    was_lost: bool = False


class SandboxSessions:
    def __init__(self, language: Literal["python", "bash"], start_s: float) -> None:
        self.language: Literal["python", "bash"] = language
        self.start_s = start_s
        self._interpreters: dict[str, Interpreter] = {}

    async def begin(self, sandbox_id: str, sandbox: Sandbox) -> None:
        """Starts the interpreter of a sandbox, once. Raises SandboxError when it does not come up."""
        if sandbox_id in self._interpreters:
            return
        limits = sandbox.spec.limits
        settings = Settings(
            folder=None,
            control_folder=None,
            language=self.language,
            memory_bytes=limits.memory_mb << 20,
            file_bytes=limits.file_mb << 20,
            start_s=self.start_s,
        )
        interpreter = Interpreter(settings, SandboxWorker(sandbox))
        await interpreter.start()
        self._interpreters[sandbox_id] = interpreter

    async def run(self, sandbox_id: str, code: str, timeout_s: float) -> Ran:
        """Raises SandboxError when the sandbox itself is gone, or gives no new interpreter after a loss."""
        interpreter = self._interpreters[sandbox_id]
        if not interpreter.is_alive:
            await interpreter.start()
        execution = await interpreter.run(code, timeout_s, _no_tools)
        if not execution.is_lost:
            return Ran(execution)
        await interpreter.close()
        worker = interpreter.worker
        if isinstance(worker, SandboxWorker) and worker.sandbox.is_closed:
            raise SandboxError(f"the sandbox {sandbox_id} ended while it ran the code")
        await interpreter.start()
        return Ran(execution, was_lost=True)

    async def end(self, sandbox_id: str) -> None:
        interpreter = self._interpreters.pop(sandbox_id, None)
        if interpreter is not None:
            await asyncio.shield(interpreter.close())


async def _no_tools(name: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"error": f"there is no tool {name}"}
