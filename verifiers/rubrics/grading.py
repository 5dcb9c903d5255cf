"""`GradingPool`: worker processes for grading that may hang, crash or fill the memory.

One worker per core at most, forked when there is work for it and kept. A task has a limit of CPU seconds, of wall
seconds from when its worker begins, and of memory; a worker that exceeds one is killed. Every worker first grades a
known case (the canary). CPU time and memory are the task's own doing, however busy the machine, and the time that a
worker waits for a core is not, nor that in which the machine stands still; after a wall-time limit or a crash the next
worker's canary decides: if it passes, the task was the cause, else the pool is at fault.

The pool belongs to the process, not to an event loop: a thread per worker waits for it, so that any loop and any thread
can hand in work.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from verifiers.errors import RewardFault
from verifiers.rubrics.grading_process import GradingServer, GradingWorker, LimitHit, Limits

Task = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Grade:
    """`value` is what the grader returned; `limit` says which limit the task hit, and then there is no value."""

    value: Any = None
    limit: str | None = None


class GradingPool:
    """Grades tasks with `grade(task)` of the module `grader`, which also has `prepare()` and a `CANARY`.

    Tasks and values are JSON. Any thread may submit.
    """

    def __init__(self, grader: str, limits: Limits | None = None, max_workers: int | None = None) -> None:
        self.limits = limits or Limits()
        self.server = GradingServer(grader, self.limits)
        self.max_workers = max_workers or usable_cores()
        self._queue: queue.SimpleQueue[tuple[Task, Future[Grade]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the four below
        self._threads: list[threading.Thread] = []
        self._places: list[_Place] = []
        self._idle = 0  # threads that wait for a task
        self._is_closed = False

    async def grade(self, task: Task) -> Grade:
        """Raises RewardFault when the worker failed for another reason than the task's own limits."""
        return await asyncio.wrap_future(self.submit(task))

    def submit(self, task: Task) -> Future[Grade]:
        future: Future[Grade] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the grading pool is closed")
            self._queue.put((task, future))
            if self._queue.qsize() > self._idle and len(self._threads) < self.max_workers:
                place = _Place(self)
                self._places.append(place)
                thread = threading.Thread(target=self._serve, args=(place,), name="vf-grading", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def close(self) -> None:
        """Kills the workers; tasks that still wait are cancelled."""
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
            for _ in threads:
                self._queue.put(None)
        for place in self._places:
            place.interrupt()
        self.server.close()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(5.0)

    def _serve(self, place: _Place) -> None:
        try:
            while True:
                with self._lock:
                    self._idle += 1
                job = self._queue.get()
                with self._lock:
                    self._idle -= 1
                    is_closed = self._is_closed
                if job is None:
                    return
                task, future = job
                if is_closed:
                    future.cancel()
                elif future.set_running_or_notify_cancel():
                    self._settle(place, task, future)
        finally:
            place.close()

    def _settle(self, place: _Place, task: Task, future: Future[Grade]) -> None:
        try:
            future.set_result(place.grade(task))
        except BaseException as error:  # whoever waits for the future must hear of it
            closed = RewardFault("the grading pool was closed while it graded")
            future.set_exception(closed if self._is_closed else error)


class _Place:
    """One place of the pool, and the worker there."""

    def __init__(self, pool: GradingPool) -> None:
        self.pool = pool
        self.worker: GradingWorker | None = None

    def grade(self, task: Task) -> Grade:
        if self.worker is not None and self.worker.tasks_done >= self.pool.limits.tasks:
            self.close()
        if self.worker is None or self.worker.is_dead:
            self.worker = self.pool.server.fork()
        worker = self.worker
        try:
            return Grade(worker.grade(task))
        except LimitHit as hit:
            self.worker = None
            if hit.is_of_memory and not worker.is_fresh:  # what earlier tasks left behind is not this one's doing
                return self.grade(task)
            if not hit.is_certain:
                self.worker = self._successor(hit)
            return Grade(limit=str(hit))

    def _successor(self, hit: LimitHit) -> GradingWorker:
        try:
            return self.pool.server.fork()
        except RewardFault as fault:
            raise RewardFault(f"{hit}; it cannot be told why: {fault}") from None

    def interrupt(self) -> None:
        """From another thread: ends what the worker is at."""
        worker = self.worker
        if worker is not None:
            worker.interrupt()

    def close(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker = None


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_pools: dict[str, GradingPool] = {}
_pools_lock = threading.Lock()  # guards `_pools`


def pool_for(grader: str, limits: Limits | None = None) -> GradingPool:
    """The process's one pool for a grader module, with the limits of who asked first; closed at exit."""
    with _pools_lock:
        pool = _pools.get(grader)
        if pool is None:
            if not _pools:
                atexit.register(_close_pools)
            pool = _pools[grader] = GradingPool(grader, limits)
        return pool


def _close_pools() -> None:
    while _pools:
        _pools.popitem()[1].close()


def _forget_pools() -> None:
    """In a forked child: the threads and workers are the parent's."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)
