"""`BashEnv`: the model works in one shell of its sandbox, which keeps its folder and variables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from verifiers.compat.classic_types import SandboxState
from verifiers.decorators import cleanup
from verifiers.envs.sandbox_env import SandboxEnv
from verifiers.envs.sandbox_sessions import SandboxSessions
from verifiers.errors import ConfigError
from verifiers.types import State


class BashEnv(SandboxEnv):
    """`SandboxEnv` with a session: `cd` and variables last from call to call, and an exit status that is not 0 is told.

        env = vf.BashEnv(
            dataset=[{"question": "Sum data.txt", "answer": "6", "info": {"files": {"data.txt": "1 2 3"}}}],
            rubric=vf.Rubric([right]),
        )

    `info["files"]` are texts by their paths, put into the working folder first. The sandbox needs Python, which runs
    the session; the shell is bash where there is one, else sh.
    """

    def __init__(self, max_startup_wait_seconds: float = 30, **kwargs: Any) -> None:
        self.max_startup_wait_seconds = max_startup_wait_seconds
        self._sessions = SandboxSessions("bash", max_startup_wait_seconds)
        super().__init__(**kwargs)

    def get_sandbox_request(self, state: State) -> Any:
        info = state.get("info")
        files = (info.get("files") if isinstance(info, dict) else None) or {}
        if not isinstance(files, Mapping) or any(not isinstance(text, str | None) for text in files.values()):
            raise ConfigError("info['files'] must be texts by their paths, such as {'data.txt': '1 2 3'}")
        # None: a dataset's column has a key for every file that any row has
        given = {name: text.encode() for name, text in files.items() if text is not None}
        return self.sandbox_request.model_copy(update={"files": given})

    async def bash(
        self,
        command: str,
        sandbox_id: str,
        sandbox_state: SandboxState | None = None,
        working_dir: str | None = None,
    ) -> str:
        """Runs commands in your shell and returns what they print. Its folder, its variables and all files stay.

        Args:
            command: One or more lines for bash. They cannot ask for input.
        """
        await self._wait_for_sandbox_ready(sandbox_state, sandbox_id)
        sandbox = await self.sandbox_client.sandbox(sandbox_id)
        await self._sessions.begin(sandbox_id, sandbox)
        began = time.monotonic()
        ran = await self._sessions.run(sandbox_id, command, self.timeout_per_command_seconds)
        if sandbox_state is not None:
            sandbox_state["command_execution_times"].append(time.monotonic() - began)
        done = ran.execution
        parts = [done.stdout.rstrip(), f"stderr:\n{done.stderr.rstrip()}" if done.stderr.strip() else ""]
        if ran.was_lost:
            limit_s = self.timeout_per_command_seconds
            what = f"the commands timed out after {limit_s:g} s" if done.status == "timeout" else "the shell died"
            parts.append(f"Error: {what}. A new shell was started: folder and variables are gone, files are not.")
        elif done.result is not None:
            parts.append(f"({done.result})")
        return "\n".join(part for part in parts if part) or "(no output)"

    @cleanup(priority=-90)  # before the sandbox goes
    async def end_shell(self, state: State) -> None:
        await self._sessions.end(state.get("sandbox_id") or "")
