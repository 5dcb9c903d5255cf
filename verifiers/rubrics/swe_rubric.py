"""`SWERubric`: whether the diff that a rollout left behind makes the hidden tests of its task pass."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from verifiers.calls import uncounted
from verifiers.errors import SandboxError
from verifiers.rubrics.graded import Graded
from verifiers.rubrics.grading import usable_cores
from verifiers.rubrics.rubric import Rubric
from verifiers.rubrics.swe_repository import Repositories, must_answer
from verifiers.rubrics.swe_task import SWETask, read_task
from verifiers.rubrics.swe_tests import grade
from verifiers.sandbox.sandbox import Sandbox
from verifiers.types import State

FreshSandbox = Callable[[SWETask], AbstractAsyncContextManager[Sandbox]]


class SWERubric(Rubric):
    """Rewards a diff, `state["patch"]`, with 1.0 or 0.0, as the metric `solved`; a zero says why.

    `fresh_sandbox(task)` lends a sandbox that nobody has used: `async with fresh_sandbox(task) as sandbox`.
    `max_gradings` of them are in use at a time, by default one for each core; waiting costs no test its time.
    """

    def __init__(self, fresh_sandbox: FreshSandbox, *, max_gradings: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fresh_sandbox = fresh_sandbox
        self.max_gradings = max_gradings or usable_cores()
        self.repositories = Repositories()
        self._places: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self._places = weakref.WeakKeyDictionary()
        self.add_reward_func(self.solved)

    async def solved(self, state: State) -> float:
        """Raises SandboxError when no diff was taken, or when a sandbox fails meanwhile."""
        patch, why = state.get("patch"), state.get("patch_error")
        if patch is None and why is None:
            raise SandboxError("no diff was taken at the end of the rollout, because its sandbox had failed")
        if patch is None:
            return Graded(0.0, why)
        return await self.grade(read_task(state["input"]), patch)

    async def grade(self, task: SWETask, patch: str) -> float:
        """What a diff is worth; a `Graded` zero carries the reason. `task.patch` must be worth 1.0."""
        if not patch.strip():
            return Graded(0.0, "nothing was changed")
        with uncounted():
            await self._place().acquire()
        try:
            files = await self.repositories.files(task)
            async with self.fresh_sandbox(task) as sandbox:
                return await grade(sandbox, task, files, patch, partial(self.check_elsewhere, task))
        finally:
            self._place().release()

    async def check_elsewhere(self, task: SWETask, trouble: str) -> None:
        """Raises SandboxError when a program that does nothing does not run in a new sandbox either."""
        async with self.fresh_sandbox(task) as sandbox:
            await must_answer(sandbox, trouble)

    def _place(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        found = self._places.get(loop)
        if found is None:
            found = self._places[loop] = asyncio.Semaphore(self.max_gradings)
        return found
