"""`RayExecutor`: rollouts in actors of a Ray cluster, one that `address` names or a small one on this machine.

An actor gets and gives the bytes that a worker process would; Ray pickles none of our classes. Every node needs this
library and the environments installed.
"""

# pyright: reportMissingImports=false
# Ray is an extra

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError, TaskCancelledError

from verifiers.errors import one_line
from verifiers.executor.deaths import WorkerDied
from verifiers.executor.local import LocalExecutor
from verifiers.executor.pool import CANCEL_GRACE_S, CLOSE_GRACE_S, PooledExecutor
from verifiers.executor.process import KEPT_VARIABLES
from verifiers.executor.request import EnvSpec, GroupRequest, RowsRequest
from verifiers.executor.wire import Cancelled, Do, Done, Failed, Start, decode_answer, decode_order, encode, error_of
from verifiers.executor.worker import answered

GROUPS_PER_ACTOR = 4096  # in flight; waiting for a model costs an actor next to nothing
_RAYS_OWN = ("RAY_", "PYTHON", "CUDA_", "LD_")


class RayExecutor(PooledExecutor):
    """At most `workers` actors for each spec, each with `cpus` of the cluster's CPUs to itself.

    `address` is Ray's own: None joins the cluster that RAY_ADDRESS names, or starts one here. An actor that dies is
    replaced and its groups are run again, as by `ProcessExecutor`.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        address: str | None = None,
        cpus: float = 1.0,
        cancel_grace_s: float = CANCEL_GRACE_S,
    ) -> None:
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            ray.init(address=address, include_dashboard=False, log_to_driver=False, configure_logging=False)
        known = int(ray.cluster_resources().get("CPU", 1))
        super().__init__(partial(RayWorker, cpus=cpus, cancel_grace_s=cancel_grace_s), workers or max(1, known))

    async def close(self) -> None:
        await super().close()
        if self._is_ours:
            await asyncio.to_thread(ray.shutdown)


class Actor:
    """What runs in the cluster: bytes of a request in, bytes of its answer out."""

    def __init__(self, start: bytes) -> None:
        order = decode_order(start)
        assert isinstance(order, Start)
        kept = {*KEPT_VARIABLES, *order.spec.keys}
        for name in list(os.environ):  # a node's daemon has the variables of whoever started it
            if name not in kept and not name.startswith(_RAYS_OWN):
                del os.environ[name]
        self._executor, self._spec = LocalExecutor(), order.spec

    async def answer(self, data: bytes) -> bytes:
        order = decode_order(data)
        assert isinstance(order, Do)
        return encode(await answered(self._executor, self._spec, order))

    async def close(self) -> None:
        await self._executor.close()


class RayWorker:
    """One actor, seen from here."""

    def __init__(self, spec: EnvSpec, cpus: float = 1.0, cancel_grace_s: float = CANCEL_GRACE_S) -> None:
        self.spec, self.cpus, self.cancel_grace_s = spec, cpus, cancel_grace_s
        self.load = 0
        self.is_dead = False
        self._actor: Any = None

    async def ask(self, request: GroupRequest | RowsRequest) -> Done:
        """Raises WorkerDied when the actor ends before it has answered."""
        self.load += 1
        try:
            if self._actor is None:
                self._actor = self._started()
            return await self._answer(self._actor.answer.remote(encode(Do(0, request))))
        except RayActorError as error:
            self.is_dead = True
            raise WorkerDied(f"the actor of {self.spec.env_id} ended: {one_line(error)}") from None
        finally:
            self.load -= 1

    async def _answer(self, answer: Any) -> Done:
        try:
            found = decode_answer(await asyncio.shield(_future(answer)))
        except asyncio.CancelledError:
            await self._cancel(answer)
            raise
        if isinstance(found, Failed):
            raise error_of(found)
        if isinstance(found, Cancelled):
            raise asyncio.CancelledError
        assert isinstance(found, Done)
        return found

    async def _cancel(self, answer: Any) -> None:
        """Waits for the rollouts' clean-up. An actor that does not come to it in time is stuck, and is killed."""
        ray.cancel(answer)
        try:
            await asyncio.wait_for(_future(answer), self.cancel_grace_s)
        except TimeoutError:
            self._kill()
        except (RayTaskError, TaskCancelledError, RayActorError, asyncio.CancelledError):
            pass

    def _started(self) -> Any:
        variables = {name: os.environ[name] for name in self.spec.keys if name in os.environ}
        runtime: dict[str, Any] = {"env_vars": variables}
        if self.spec.python is not None:
            runtime["py_executable"] = self.spec.python
        options = ray.remote(Actor).options(
            num_cpus=self.cpus, max_concurrency=GROUPS_PER_ACTOR, max_restarts=0, runtime_env=runtime
        )
        return options.remote(encode(Start(self.spec)))

    def _kill(self) -> None:
        self.is_dead = True
        ray.kill(self._actor)

    async def close(self) -> None:
        """The actor ends its environment; it is killed afterwards, or when that takes too long."""
        if self._actor is None or self.is_dead:
            return
        try:
            await asyncio.wait_for(_future(self._actor.close.remote()), CLOSE_GRACE_S)
        except (TimeoutError, RayActorError):
            pass
        self._kill()


def _future(reference: Any) -> asyncio.Future[Any]:
    return asyncio.wrap_future(reference.future())
