"""`swe`: repositories to mend, graded by hidden tests: our own five, R2E-Gym, SWE-smith, SWE-bench Verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import verifiers as vf
from swe.agent import MINI_SWE_AGENT, SWEAgentEnv
from swe.own import OwnRepositories
from swe.rows import DATASETS, rows_of
from verifiers.rubrics.swe_task import read_task

AGENTS = ("tools", "mini-swe-agent", "custom")


def load_environment(
    dataset: str = "own",
    data: str | None = None,
    agent: str = "tools",
    agent_command: str | None = None,
    backend: str | None = None,
    num_examples: int = -1,
    seed: int | None = None,
    max_turns: int = 200,
) -> vf.Environment:
    """A problem in words, a repository, and 1.0 when tests that were never seen pass. The README has the arguments."""
    _check(dataset, data, agent, agent_command, backend, num_examples, seed, max_turns)

    def rows() -> list[dict[str, Any]]:
        return rows_of(dataset, data, num_examples, seed)

    # an engine's image of plain Python has no git, so our own repositories stay on this machine
    chosen = backend or ("local" if dataset == "own" else "auto")
    train, evaluation = (None, rows) if dataset == "swe-bench-verified" else (rows, None)
    if agent == "tools":
        env = vf.SWEEnv(train, evaluation, backend=chosen, max_turns=max_turns)
        env.swe_rubric.repositories = OwnRepositories()
        return env
    command = agent_command or MINI_SWE_AGENT
    return SWEAgentEnv(command, dataset=train, eval_dataset=evaluation, backend=chosen, max_turns=max_turns)


def reference_reply(messages: Sequence[Any], row: dict[str, Any]) -> dict[str, Any]:
    """The reference policy: puts the task's own solution in by the tools, then submits."""
    patch = read_task(row).patch
    if any(message.get("tool_calls") for message in messages):
        return _call("submit", {})
    return _call("bash", {"command": f"git apply - <<'END_OF_PATCH'\n{patch}END_OF_PATCH"})


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": None, "tool_calls": [{"id": name, "function": {"name": name, "arguments": arguments}}]}


def _check(
    dataset: Any, data: Any, agent: Any, agent_command: Any, backend: Any, num: Any, seed: Any, max_turns: Any
) -> None:
    if dataset not in DATASETS:
        raise ValueError(f"dataset={dataset!r}: there are {', '.join(map(repr, DATASETS))}")
    if data is not None and not isinstance(data, str):
        raise ValueError(f"data={data!r}: give the path of a file with rows, or leave it out")
    if agent not in AGENTS:
        raise ValueError(f"agent={agent!r}: there are {', '.join(map(repr, AGENTS))}")
    if (agent == "custom") != (agent_command is not None):
        raise ValueError(
            f"agent={agent!r} with agent_command={agent_command!r}: a command goes with agent='custom', and only there"
        )
    if agent_command is not None and not (isinstance(agent_command, str) and agent_command.strip()):
        raise ValueError(f"agent_command={agent_command!r}: give a line for the shell that starts the agent")
    if backend is not None and not (isinstance(backend, str) and backend):
        raise ValueError(f"backend={backend!r}: give the name of one, such as 'local' or 'podman'")
    if backend == "local" and dataset != "own" and data is None:
        raise ValueError(
            f"backend='local' with dataset={dataset!r}: its repositories lie in images, which need a container engine; "
            "take 'podman' or 'docker', or dataset='own'"
        )
    if not _is_whole(num) or num == 0 or num < -1:
        raise ValueError(f"num_examples={num!r}: give a whole number, 1 or more, or -1 for all there are")
    if seed is not None and not _is_whole(seed):
        raise ValueError(f"seed={seed!r}: give a whole number, or leave it out for the data's own order")
    if not _is_whole(max_turns) or max_turns < 1:
        raise ValueError(f"max_turns={max_turns!r}: give a whole number, 1 or more")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
