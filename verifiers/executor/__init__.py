"""Where groups of rollouts run: in this process, in processes of their own, or on a Ray cluster."""

from __future__ import annotations

from typing import Literal

from verifiers.errors import ConfigError, SetupError
from verifiers.executor.request import RolloutExecutor

ExecutorName = Literal["local", "process", "ray"]


def opened(name: ExecutorName, workers: int | None = None) -> RolloutExecutor:
    """The executor of a name, with at most `workers` workers for each environment (`None`: one a core).

    Raises ConfigError for a name that is none, and SetupError when Ray is asked for and is not installed.
    """
    if name == "local":
        from verifiers.executor.local import LocalExecutor

        return LocalExecutor()
    if name == "process":
        from verifiers.executor.process import ProcessExecutor

        return ProcessExecutor(workers)
    if name != "ray":
        raise ConfigError(f"no executor '{name}'; there are local, process and ray")
    try:
        from verifiers.executor.ray_cluster import RayExecutor
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise SetupError("the executor 'ray' needs Ray, which is not installed. Try: pip install 'ray>=2.50'") from None
    return RayExecutor(workers)
