"""`LocalExecutor`: rollouts on the event loop of the caller. No process is started and nothing is copied."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, cast

from verifiers.clients import as_client
from verifiers.clients.client import Client
from verifiers.clients.endpoint import Endpoint
from verifiers.envs.environment import Environment
from verifiers.errors import EnvironmentNotFound
from verifiers.executor.request import EnvRows, EnvSpec, GroupRequest, RowsRequest
from verifiers.installed import env_info, find_installed, is_same_version
from verifiers.loading import env_args_hash, load_environment
from verifiers.recording import Origin
from verifiers.records import DataInfo, EnvInfo, RolloutRecord
from verifiers.run import Run
from verifiers.types import MessageType, RolloutInput


class LocalExecutor:
    """Loads each environment once, on its first request, or takes it ready-made from `environments` by its id.

    One slow rollout of code that blocks holds up all others; `ProcessExecutor` keeps them apart.
    """

    def __init__(self, environments: Mapping[str, Environment] | None = None) -> None:
        self._given = dict(environments or {})
        self._loaded: dict[str, asyncio.Task[tuple[Environment, Origin]]] = {}
        self._clients: dict[tuple[Endpoint, MessageType], Client] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def run_group(self, request: GroupRequest) -> list[RolloutRecord]:
        env, origin = await self.load(request.spec)
        run = Run(
            env,
            [cast(RolloutInput, request.row)],
            client=self._client(request.endpoint, env.message_type),
            model=request.model,
            sampling_args=request.sampling,
            rollouts_per_example=request.tries,
            first_try=request.first_try,
            max_retries=request.max_retries,
            seed=request.seed,
            origin=_with_data(origin, request),
            score=request.score,
            rollout_timeout_s=request.rollout_timeout_s,
            state_columns=request.state_columns,
        )
        task = asyncio.current_task()
        if task is not None:
            self._running.add(task)
        try:
            records = await run.execute()
        finally:
            self._running.discard(cast(asyncio.Task[Any], task))
        if run.fatal is not None:
            raise run.fatal
        return records

    async def rows(self, spec: EnvSpec, request: RowsRequest) -> EnvRows:
        env, _ = await self.load(spec)
        take = env.train_rows if request.split == "train" else env.eval_rows
        rows = cast(list[dict[str, Any]], await asyncio.to_thread(take, request.n, request.seed))
        return EnvRows(rows=rows, scored_together=env.rubric.needs_group)

    async def load(self, spec: EnvSpec) -> tuple[Environment, Origin]:
        """The environment of a spec, and what all its records have in common.

        Raises SetupError when it cannot be loaded; the next request tries again.
        """
        task = self._loaded.get(spec.hash)
        if task is None or (task.done() and not task.cancelled() and task.exception() is not None):
            # in a thread: it may import for seconds and read a dataset
            task = self._loaded[spec.hash] = asyncio.ensure_future(asyncio.to_thread(self._load, spec))
        return await asyncio.shield(task)  # who is cancelled while he waits does not take it from the others

    def _load(self, spec: EnvSpec) -> tuple[Environment, Origin]:
        given = self._given.get(spec.env_id)
        if given is not None:
            return given, Origin(env=EnvInfo(name=spec.env_id), args_hash=env_args_hash(spec.env_args))
        _check_version(spec)
        env = load_environment(spec.env_id, **spec.env_args)
        if spec.settings:
            env.set_kwargs(**spec.settings)
        return env, Origin(env=env_info(spec.env_id), args_hash=env_args_hash(spec.env_args))

    def _client(self, endpoint: Endpoint, message_type: MessageType) -> Client:
        key = endpoint, message_type
        if key not in self._clients:
            self._clients[key] = as_client(endpoint, message_type=message_type)
        return self._clients[key]

    async def close(self) -> None:
        """Ends what is in flight, then the environments' teardown and the connections."""
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
        loads, self._loaded = list(self._loaded.values()), {}
        for loaded in await asyncio.gather(*loads, return_exceptions=True):
            if not isinstance(loaded, BaseException):
                await loaded[0].teardown()


def _with_data(origin: Origin, request: GroupRequest) -> Origin:
    data = DataInfo(rows_hash=request.rows_hash)
    return Origin(
        env=origin.env, args_hash=origin.args_hash, data=data, sampling=request.sampling, prices=request.prices
    )


def _check_version(spec: EnvSpec) -> None:
    """Raises EnvironmentNotFound when another version is installed than the spec asks for."""
    if spec.version is None:
        return
    found = find_installed(spec.env_id)
    if found is None or not is_same_version(found.version, spec.version):
        there = "it is not installed" if found is None else f"{found.version} is installed"
        raise EnvironmentNotFound(
            f"{spec.env_id} {spec.version} is asked for, but {there} for the process {os.getpid()}. "
            f"Try: vf-install {spec.env_id}@{spec.version}"
        )
