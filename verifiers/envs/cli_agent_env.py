"""`CliAgentEnv`: an `AgentEnv` by the names that classic environments use, with the sandboxes of `SandboxMixin`."""

from __future__ import annotations

import math
from typing import Any

from verifiers.calls import maybe_await
from verifiers.decorators import cleanup
from verifiers.envs.agent_env import AgentEnv
from verifiers.envs.sandbox_mixin import SandboxMixin
from verifiers.envs.sandbox_request import CreateSandboxRequest
from verifiers.rubrics import Rubric
from verifiers.sandbox import Sandbox, SandboxBackend
from verifiers.types import State


class CliAgentEnv(SandboxMixin, AgentEnv):
    """Keywords of the address and of the hosted service are taken without effect: the agent's address is on loopback.

        env = vf.CliAgentEnv("python3 agent.py", docker_image="python:3.11-slim", dataset=rows, rubric=rubric)

    As ever, an agent that crashes after the model has spoken is scored.
    """

    ended_condition = "agent_completed"

    def __init__(
        self,
        run_command: str,
        interception_port: int | None = None,
        interception_url: str | None = None,
        max_turns: int = -1,
        timeout_seconds: float = 3600.0,
        poll_interval: float = 1.0,
        docker_image: str = "python:3.11-slim",
        start_command: str = "tail -f /dev/null",
        cpu_cores: int = 1,
        memory_gb: int = 2,
        disk_size_gb: int = 5,
        gpu_count: int = 0,
        environment_vars: dict[str, str] | None = None,
        team_id: str | None = None,
        advanced_configs: Any = None,
        labels: list[str] | None = None,
        max_retries: int = 5,
        base_delay: float = 0.5,
        backoff_factor: float = 2.0,
        max_backoff_seconds: float = 30.0,
        jitter: float = 0.001,
        keep_sandbox_for_scoring: bool = False,
        *,
        backend: SandboxBackend | str = "auto",
        scores_crashes: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            run_command, backend=backend, max_turns=max_turns, timeout_s=timeout_seconds,
            scores_crashes=scores_crashes, **kwargs,
        )  # fmt: skip
        self.run_command = run_command
        self.timeout_seconds = timeout_seconds
        self.docker_image = docker_image
        self.start_command = start_command
        self.cpu_cores = cpu_cores
        self.memory_gb = memory_gb
        self.disk_size_gb = disk_size_gb
        self.gpu_count = gpu_count
        self.environment_vars = environment_vars
        self.labels = labels
        self.keep_sandbox_for_scoring = keep_sandbox_for_scoring
        self.init_sandbox_client(
            max_retries=max_retries, base_delay=base_delay, backoff_factor=backoff_factor,
            max_backoff_seconds=max_backoff_seconds, jitter=jitter, backend=backend,
            backend_options={"min_level": 2} if backend in ("auto", "local") else {},
        )  # fmt: skip
        self.add_rubric(CliAgentMonitorRubric())

    # ---- what subclasses override ----

    async def get_docker_image(self, state: State) -> str:
        return self.docker_image

    def get_sandbox_resources(self, state: State) -> dict[str, Any]:
        return {
            "cpu_cores": self.cpu_cores,
            "memory_gb": self.memory_gb,
            "disk_size_gb": self.disk_size_gb,
            "gpu_count": self.gpu_count,
            "timeout_minutes": math.ceil(self.timeout_seconds / 60) + 10,
        }

    async def build_env_vars(self, state: State) -> dict[str, str]:
        """Of the sandbox. Those that name the agent's address come last, and cannot be set here."""
        return dict(self.environment_vars or {})

    # ---- the sandbox ----

    async def make_sandbox(self, state: State) -> Sandbox:
        request = CreateSandboxRequest(
            name=f"agent-{state['trajectory_id'][:12]}",
            docker_image=await maybe_await(self.get_docker_image, state),
            start_command=self.start_command,
            environment_vars=await maybe_await(self.build_env_vars, state),
            labels=list(self.labels or ()),
            **await maybe_await(self.get_sandbox_resources, state),
        )
        return await self.sandbox_client.sandbox(await self.create_sandbox(state, request))

    async def _take_turn(self, state: State) -> bool:
        is_over = await super()._take_turn(state)
        state["agent_completed"] = True
        state["agent_timed_out"] = state["stop_condition"] == "timeout_reached"
        return is_over

    @cleanup(priority=-1000)
    async def close_sandbox(self, state: State) -> None:
        """`destroy_sandbox` does it."""
        self._rollouts.pop(state["trajectory_id"], None)

    @cleanup(priority=-1000)
    async def destroy_sandbox(self, state: State) -> None:
        """A sandbox that is kept for scoring is deleted by whoever scores, else with the environment."""
        sandbox_id = state.get("sandbox_id")
        if sandbox_id is not None and not self.keep_sandbox_for_scoring:
            await self.delete_sandbox(sandbox_id)


class CliAgentMonitorRubric(Rubric):
    """The metrics `agent_timeout` and `agent_error`: 1 where the agent was cut off, or ended with a code but 0."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_metric(self.agent_timeout)
        self.add_metric(self.agent_error)

    async def agent_timeout(self, state: State) -> float:
        return float(bool(state.get("agent_timed_out")))

    async def agent_error(self, state: State) -> float:
        return float(state.get("agent_exit_code") not in (0, None))
