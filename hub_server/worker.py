"""`Worker`: does what waits in the hub's queues, one job after the other. Any number of them, on any machine that
reaches the database and the storage; it needs a sandbox (`vf-sandbox doctor`)."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hub_server.errors import Unavailable
from hub_server.hub import Hub
from hub_server.models import Rescoring, Validation
from hub_server.services import job_queue, rescoring, validations

POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class Done:
    """One job that a worker has finished with."""

    what: str  # validation, rescoring
    job_id: int
    error: str | None = None  # it broke off, and waits for another attempt


class Worker:
    def __init__(self, hub: Hub, name: str | None = None) -> None:
        self._hub = hub
        self.name = name or f"{platform.node()}-{os.getpid()}"[:100]

    def run(self, stop: threading.Event, tell: Callable[[Done], None] = lambda done: None) -> None:
        """Works until `stop` is set; the job at hand is finished first."""
        while not stop.is_set():
            try:
                done = self.work_once()
            except Unavailable:  # the database is busy or away
                done = None
            if done is None:
                stop.wait(POLL_S)
            else:
                tell(done)

    def work_once(self) -> Done | None:
        """Does one job; `None` when none waits."""
        if self._hub.settings.validation:
            validations.enqueue_missing(self._hub)
            job_id = job_queue.take(self._hub, Validation, self.name)
            if job_id is not None:
                return self._do("validation", Validation, job_id, validations.work)
        if self._hub.settings.rescoring:
            job_id = job_queue.take(self._hub, Rescoring, self.name)
            if job_id is not None:
                return self._do("rescoring", Rescoring, job_id, rescoring.work)
        return None

    def _do(self, what: str, kind: type[job_queue.Job], job_id: int, work: Callable[[Hub, int, str], None]) -> Done:
        with self._lease_kept(kind, job_id):
            try:
                work(self._hub, job_id, self.name)
            except Exception as error:  # our own mistake, or a fault of the machine: the next attempt may fare better
                job_queue.give_back(self._hub, kind, job_id, self.name)
                return Done(what, job_id, f"{type(error).__name__}: {error}")
        return Done(what, job_id)

    @contextlib.contextmanager
    def _lease_kept(self, kind: type[job_queue.Job], job_id: int) -> Iterator[None]:
        is_over = threading.Event()

        def renew() -> None:
            while not is_over.wait(job_queue.LEASE_S / 4):
                with contextlib.suppress(Unavailable):
                    if not job_queue.renew(self._hub, kind, job_id, self.name):
                        return

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
