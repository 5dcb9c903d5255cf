"""`PythonEnv`: the model runs Python in its sandbox, in one interpreter that keeps what the code makes."""

from __future__ import annotations

import re
import time
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, TypedDict

from verifiers.compat.classic_types import SandboxState
from verifiers.decorators import cleanup
from verifiers.envs.sandbox_client import SandboxClient
from verifiers.envs.sandbox_env import SandboxEnv
from verifiers.envs.sandbox_sessions import Ran, SandboxSessions
from verifiers.errors import NoSandboxError, SandboxError
from verifiers.rubrics import Rubric
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import Sandbox
from verifiers.types import Message, State

INSTALL_S = 300.0


class PythonWorkerState(TypedDict):
    ready: bool
    execution_count: int
    ready_wait_time: float


class PythonEnv(SandboxEnv):
    """The tool `python` runs code; variables and imports live from call to call, and the last expression is shown.

        env = vf.PythonEnv(dataset=rows, rubric=vf.MathRubric(), pip_install_packages="numpy sympy")

    `pip_install_packages` are what the code can import besides the standard library. In a local sandbox they must be
    installed here, where the code then finds whatever is installed beside this program; `""` shows it nothing of that.
    In a sandbox with an image they are installed when they are missing, which takes `network=True`.
    """

    def __init__(
        self, pip_install_packages: str = "numpy sympy scipy", max_startup_wait_seconds: float = 30, **kwargs: Any
    ) -> None:
        self.pip_install_packages = pip_install_packages
        self.max_startup_wait_seconds = max_startup_wait_seconds
        self._sessions = SandboxSessions("python", max_startup_wait_seconds)
        super().__init__(**kwargs)
        self.add_rubric(PythonMonitorRubric())
        self.remove_tool(self.bash)
        self.add_tool(self.python, args_to_skip=["sandbox_id", "sandbox_state", "python_state"])

    def _local_options(self) -> dict[str, Any]:
        """Of what is installed here, these packages and what they need: the environment's own answers are not."""
        return {"packages": [name for name in self.pip_install_packages.split() if _is_installed(name)]}

    async def setup_state(self, state: State, **kwargs: Any) -> State:
        state = await super().setup_state(state, **kwargs)
        state["python_state"] = PythonWorkerState(ready=False, execution_count=0, ready_wait_time=0.0)
        if isinstance(self.sandbox_client, SandboxClient) and self.pip_install_packages.split():
            found = await self.sandbox_client.capabilities(self.sandbox_request)
            if found.backend == "local":
                self._check_packages()
        return state

    def _check_packages(self) -> None:
        missing = [name for name in self.pip_install_packages.split() if not _is_installed(name)]
        if missing:
            names = " ".join(missing)
            raise NoSandboxError(
                f"pip_install_packages asks for {names}, which is not installed here, and a local sandbox has what is "
                f"installed here. Try: uv pip install {names}, or a backend with images, or pip_install_packages=''"
            )

    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: list[Message], state: State, **kwargs: Any
    ) -> dict[str, Any]:
        if tool_name != "python":
            return super().update_tool_args(tool_name, tool_args, messages, state, **kwargs)
        return self._with_hidden(tool_name, tool_args, state, ("sandbox_id", "sandbox_state", "python_state"))

    # ---- the tool ----

    async def python(
        self, code: str, sandbox_id: str, sandbox_state: SandboxState, python_state: PythonWorkerState
    ) -> str:
        """Runs Python code in your sandbox. Variables, imports and files stay from call to call.

        Args:
            code: The code. What it prints is returned, and the value of its last line if that is an expression.
        """
        await self._wait_for_worker_ready(sandbox_id, sandbox_state, python_state)
        response = await self._send_worker_request(sandbox_id, sandbox_state, {"code": code})
        return self._format_response(python_state, response)

    def _own_tools(self) -> tuple[Any, ...]:
        return (self.python,)

    async def _wait_for_worker_ready(
        self, sandbox_id: str, sandbox_state: SandboxState, python_state: PythonWorkerState
    ) -> None:
        if python_state["ready"]:
            return
        await self._wait_for_sandbox_ready(sandbox_state, sandbox_id)
        began = time.monotonic()
        sandbox = await self.sandbox_client.sandbox(sandbox_id)
        await self._install(sandbox)
        await self._sessions.begin(sandbox_id, sandbox)
        python_state["ready"], python_state["ready_wait_time"] = True, time.monotonic() - began

    async def _install(self, sandbox: Sandbox) -> None:
        names = [re.split(r"[<>=!~\[;@ ]", name)[0] for name in self.pip_install_packages.split()]
        if not names:
            return
        asked = "import sys, importlib.metadata as m\nfor name in sys.argv[1:]: m.distribution(name)"
        if (await sandbox.exec(["python3", "-c", asked, *names])).ok:
            return
        limits = SandboxLimits(wall_s=INSTALL_S)
        wanted = self.pip_install_packages.split()
        done = await sandbox.exec(["python3", "-m", "pip", "install", "--quiet", *wanted], limits=limits)
        if not done.ok:
            raise SandboxError(
                f"{self.pip_install_packages} could not be installed in the sandbox: "
                f"{done.error_text.strip()[-500:] or done.outcome}. Take network=True, an image that has them, or "
                "pip_install_packages=''"
            )

    async def _send_worker_request(
        self, sandbox_id: str, sandbox_state: SandboxState, payload: dict[str, Any]
    ) -> dict[str, Any]:
        """Runs `payload["code"]`. `status` of what comes back is ok, error, timeout or lost."""
        began = time.monotonic()
        try:
            ran = await self._sessions.run(sandbox_id, str(payload["code"]), self.timeout_per_command_seconds)
        finally:
            if sandbox_state is not None:
                sandbox_state["command_execution_times"].append(time.monotonic() - began)
        done = ran.execution
        return {
            "status": "lost" if ran.was_lost else done.status,
            "stdout": done.stdout,
            "stderr": done.stderr,
            "result": self._loss(ran) or done.result,
            "execution_count": done.number,
        }

    def _loss(self, ran: Ran) -> str | None:
        limit_s = self.timeout_per_command_seconds
        if ran.execution.status == "timeout" and not ran.was_lost:
            return f"Error: the code timed out after {limit_s:g} s and was interrupted. Variables are as it left them."
        if not ran.was_lost:
            return None
        what = "the interpreter died (a crash, or out of memory)"
        if ran.execution.status == "timeout":
            what = f"the code timed out after {limit_s:g} s"
        return f"Error: {what}. A new interpreter was started: variables and imports are gone, files are not."

    def _format_response(self, python_state: PythonWorkerState, sandbox_response: dict[str, Any]) -> str:
        count = sandbox_response.get("execution_count") or python_state["execution_count"]
        python_state["execution_count"] = count
        parts = [(sandbox_response.get("stdout") or "").rstrip()]
        stderr = (sandbox_response.get("stderr") or "").rstrip()
        if stderr:
            parts.append(f"stderr:\n{stderr}")
        result = sandbox_response.get("result")
        if result is not None:
            shown = str(result).rstrip()
            parts.append(f"Out[{count}]: {shown}" if sandbox_response.get("status") == "ok" else shown)
        return "\n".join(part for part in parts if part) or "(no output)"

    @cleanup(priority=-90)  # before the sandbox goes
    async def end_interpreter(self, state: State) -> None:
        await self._sessions.end(state.get("sandbox_id") or "")


class PythonMonitorRubric(Rubric):
    """The metric `python_ready_wait_time`: seconds until the interpreter was there."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_metric(self.python_ready_wait_time)

    async def python_ready_wait_time(self, state: State) -> float:
        return float((state.get("python_state") or {}).get("ready_wait_time", 0.0))


def _is_installed(requirement: str) -> bool:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    try:
        return name is None or distribution(name[0]) is not None
    except PackageNotFoundError:
        return False
