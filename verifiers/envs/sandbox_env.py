"""`SandboxEnv`: the model runs commands in a sandbox that the rollout has for itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from verifiers.calls import AuthorCall, maybe_await
from verifiers.compat.classic_types import SandboxState
from verifiers.decorators import cleanup
from verifiers.envs.sandbox_client import SandboxClient, as_sandbox_error, is_command_timeout
from verifiers.envs.sandbox_mixin import SandboxMixin
from verifiers.envs.sandbox_request import CreateSandboxRequest
from verifiers.envs.stateful_tool_env import StatefulToolEnv
from verifiers.envs.tool_env import MAX_TOOL_RESULT
from verifiers.errors import Error, InfraError, SandboxError
from verifiers.rubrics import Rubric
from verifiers.sandbox.sandbox import SandboxBackend
from verifiers.types import Message, State


class SandboxEnv(SandboxMixin, StatefulToolEnv):
    """The tool `bash` runs a command in the rollout's sandbox; files stay from call to call, until the rollout ends.

        env = vf.SandboxEnv(
            dataset=[{"question": "How many lines has /etc/passwd?", "answer": "19"}],
            rubric=vf.Rubric([right]),
            timeout_per_command_seconds=10,
        )

    `backend` names what makes the sandboxes (`"auto"`, `"local"`, …), or is a `SandboxBackend`. Measure what is in a
    sandbox in `post_rollout(state)`: it is there still, and gone when the rubric is asked.
    """

    def __init__(
        self,
        sandbox_name: str = "sandbox-env",
        docker_image: str | None = "python:3.11-slim",
        start_command: str = "tail -f /dev/null",
        cpu_cores: float = 1,
        memory_gb: float = 2,
        disk_size_gb: float = 5,
        gpu_count: int = 0,
        timeout_minutes: float = 60,
        timeout_per_command_seconds: float = 30,
        environment_vars: dict[str, str] | None = None,
        team_id: str | None = None,
        advanced_configs: Any = None,
        labels: list[str] | None = None,
        max_retries: int = 5,
        base_delay: float = 0.5,
        backoff_factor: float = 2.0,
        max_backoff_seconds: float = 30.0,
        jitter: float = 0.001,
        stop_errors: Sequence[type[Exception]] | None = None,
        sandbox_client_max_workers: int = 50,
        sandbox_client_max_connections: int = 100,
        sandbox_client_max_keepalive_connections: int = 50,
        *,
        backend: SandboxBackend | str = "auto",
        network: bool = False,
        max_output_length: int = 30_000,
        **kwargs: Any,
    ) -> None:
        super().__init__(stop_errors=[SandboxError] if stop_errors is None else stop_errors, **kwargs)
        self.timeout_per_command_seconds = timeout_per_command_seconds
        self.max_output_length = max_output_length
        self.add_rubric(SandboxMonitorRubric())
        self.sandbox_request = CreateSandboxRequest(
            name=sandbox_name, docker_image=docker_image, start_command=start_command, cpu_cores=cpu_cores,
            memory_gb=memory_gb, disk_size_gb=disk_size_gb, gpu_count=gpu_count, network=network,
            timeout_minutes=timeout_minutes, environment_vars=environment_vars, team_id=team_id,
            advanced_configs=advanced_configs, labels=list(labels or ()),
        )  # fmt: skip
        self.init_sandbox_client(
            max_retries=max_retries, base_delay=base_delay, backoff_factor=backoff_factor,
            max_backoff_seconds=max_backoff_seconds, jitter=jitter, backend=backend,
            backend_options=self._backend_options(backend),
        )  # fmt: skip
        self.add_tool(self.bash, args_to_skip=["sandbox_id", "sandbox_state", "working_dir"])

    def _backend_options(self, backend: SandboxBackend | str) -> dict[str, Any]:
        """What a backend that is opened by its name is opened with."""
        # images of tasks have their files anywhere
        of_engine = {"cpus": float(self.sandbox_request.cpu_cores), "read_only": False}
        if backend == "auto":
            return {"engine_options": of_engine, **self._local_options()}
        if backend in ("docker", "podman", "runsc"):
            return of_engine
        return self._local_options() if backend == "local" else {}

    def set_backend(self, backend: SandboxBackend | str) -> None:
        """Before the first rollout; `vf-eval -x '{"backend": "podman"}'` comes here."""
        self.sandbox_client = SandboxClient(
            backend, backend_options=self._backend_options(backend), retry=self.with_retry
        )

    def set_network(self, network: bool) -> None:
        self.sandbox_request.network = bool(network)

    def _local_options(self) -> dict[str, Any]:
        return {}

    # ---- for authors ----

    def get_sandbox_request(self, state: State) -> Any:
        """The sandbox of this rollout; override it for an image or a size of the row's own."""
        return self.sandbox_request.model_copy()

    async def post_rollout(self, state: State, *of_old: Any, **kwargs: Any) -> None:
        """For authors: the sandbox is there still. Overrides of before 0.1.8 took `(messages, state)`."""

    async def setup_state(self, state: State, **kwargs: Any) -> State:
        """Asks for the sandbox and does not wait for it: it is made while the model writes its first reply."""
        state = await super().setup_state(state) or state
        request = await maybe_await(self.get_sandbox_request, state)
        if isinstance(self.sandbox_client, SandboxClient):
            await self.sandbox_client.capabilities(request)
        try:
            made = await self.sandbox_client.create(request)
        except Exception as error:
            raise as_sandbox_error(error) from error
        self.active_sandboxes.add(made.id)
        state["sandbox_id"] = made.id
        state["sandbox_state"] = SandboxState(ready=False, ready_wait_time=0.0, command_execution_times=[])
        for name in ("docker_image", "start_command"):
            state[name] = getattr(request, name, None)
        return state

    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: list[Message], state: State, **kwargs: Any
    ) -> dict[str, Any]:
        if tool_name != "bash":
            return dict(tool_args)
        return self._with_hidden(tool_name, tool_args, state, ("sandbox_id", "sandbox_state", "working_dir"))

    def _with_hidden(
        self, tool_name: str, tool_args: dict[str, Any], state: State, names: Sequence[str]
    ) -> dict[str, Any]:
        """With those of the state's values that the tool takes: one that an author put in its place may take fewer."""
        hidden = {name: state.get(name) for name in names}
        return {**tool_args, **AuthorCall(self.tool_map[tool_name]).selected(hidden)}

    # ---- the tool ----

    async def bash(
        self,
        command: str,
        sandbox_id: str,
        sandbox_state: SandboxState | None = None,
        working_dir: str | None = None,
    ) -> str:
        """Runs a shell command in your sandbox and returns what it prints. Files stay from call to call.

        Args:
            command: The command, as for bash. It cannot ask for input.
        """
        await self._wait_for_sandbox_ready(sandbox_state, sandbox_id)
        began = time.monotonic()
        limit_s = self.timeout_per_command_seconds
        try:
            response = await self.sandbox_client.execute_command(
                sandbox_id, command, working_dir=working_dir, timeout=limit_s
            )
        except Exception as error:
            if not is_command_timeout(error):
                raise as_sandbox_error(error) from error
            written = _told(getattr(error, "stdout", ""), getattr(error, "stderr", ""))
            text = f"Error: the command timed out after {limit_s:g} s and was ended."
            return f"{text} Until then:\n{written}" if written else text
        finally:
            if sandbox_state is not None:
                sandbox_state["command_execution_times"].append(time.monotonic() - began)
        return _told(response.stdout, response.stderr, getattr(response, "limit", None)) or "(no output)"

    async def _wait_for_sandbox_ready(self, sandbox_state: SandboxState | None, sandbox_id: str) -> None:
        if sandbox_state is not None and sandbox_state["ready"]:
            return
        began = time.monotonic()
        try:
            await self.sandbox_client.wait_for_creation(sandbox_id)
        except Exception as error:
            raise as_sandbox_error(error) from error
        if sandbox_state is not None:
            sandbox_state["ready"], sandbox_state["ready_wait_time"] = True, time.monotonic() - began

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any], tool_call_id: str, **kwargs: Any) -> Message:
        message = await super().call_tool(tool_name, tool_args, tool_call_id, **kwargs)
        content = message.get("content")
        if isinstance(content, str) and self.tool_map[tool_name] in self._own_tools():
            message["content"] = shortened(content, self.max_output_length)
        return message

    def _own_tools(self) -> tuple[Any, ...]:
        """Those whose output is what a program wrote."""
        return (self.bash,)

    def _failed(self, error: Exception, call_id: str, kind: type[Error]) -> Message:
        if isinstance(error, InfraError):  # no model can mend that, and none shall be blamed for it
            raise error
        return super()._failed(error, call_id, kind)

    # ---- end ----

    @cleanup(priority=-100)  # after the author's own, which may still look into it
    async def destroy_sandbox(self, state: State) -> None:
        sandbox_id = state.get("sandbox_id")
        if sandbox_id is not None:
            await SandboxMixin.delete_sandbox(self, sandbox_id)  # an author's of that name may take other things


class SandboxMonitorRubric(Rubric):
    """The metrics `sandbox_ready_wait_time` and `sandbox_command_execution_time`: seconds waited, and of a command."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_metric(self.sandbox_ready_wait_time)
        self.add_metric(self.sandbox_command_execution_time)

    async def sandbox_ready_wait_time(self, state: State) -> float:
        return float((state.get("sandbox_state") or {}).get("ready_wait_time", 0.0))

    async def sandbox_command_execution_time(self, state: State) -> float:
        """The mean."""
        times = (state.get("sandbox_state") or {}).get("command_execution_times") or []
        return sum(times) / len(times) if times else 0.0


_OF_LIMIT = {
    "memory": "ended: out of memory",
    "output": "ended: it wrote too much",
    "processes": "the limit of processes was reached",
    "files": "the limit of what files may hold was reached",
    "cpu": "ended: its time on the processor was up",
}


def _told(stdout: str, stderr: str, limit: str | None = None) -> str:
    stdout, stderr = stdout.strip(), stderr.strip()
    parts = [stdout, f"stderr:\n{stderr}" if stderr else "", f"({_OF_LIMIT.get(limit, limit)})" if limit else ""]
    # for authors who call the tool themselves; the model sees less
    return shortened("\n".join(part for part in parts if part), MAX_TOOL_RESULT - 100)


def shortened(text: str, limit: int) -> str:
    """With its middle left out: what a program says first and last tells most."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 2], text[-(limit - limit // 2) :]
    return f"{head}\n… ({len(text) - limit:,} characters left out)\n{tail}"
