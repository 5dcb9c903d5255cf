"""`TrainersEngine`: TRL's own generation as an engine for rollouts, and the event loop that these run in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from verifiers.errors import ConfigError
from verifiers.rl.token_client import Sampled

T = TypeVar("T")
GATHER_S = 0.01  # requests that come within this time of each other are generated as one batch


class BackgroundLoop:
    """An event loop in a thread of its own, the same for every call: environments keep servers and pools in theirs.

    It also runs where the caller's thread has a running loop already, as in a notebook.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None  # None: not needed yet

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="verifiers-trl", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class TrainersEngine:
    """A `Sampler` over the trainer's own generation, which takes a batch at a time, in the trainer's thread.

    Raises ConfigError where several processes would have to generate in step, as their turns do not.
    """

    def __init__(self, trainer: Any, tokenizer: Any) -> None:
        if trainer.accelerator.num_processes > 1:
            raise ConfigError(
                f"{trainer.accelerator.num_processes} trainer processes generate in step, and turns of an environment "
                "do not: give rollout_func the endpoint of the vLLM server"
            )
        self._trainer = trainer
        self._ends = {tokenizer.eos_token_id, *getattr(trainer, "eos_token_ids", ())}
        self._waiting: list[_Asked] = []  # in the event loop's thread
        self._timer: asyncio.TimerHandle | None = None
        self._batches: SimpleQueue[list[_Asked] | None] = SimpleQueue()  # from there to the trainer's; None: the end
        self.has_logprobs = True

    def serve(self, work: Future[T]) -> T:
        """What `work` returns. Raises what the trainer's generation raises: it is nothing that a rollout failed at."""
        work.add_done_callback(lambda _: self._batches.put(None))
        try:
            while (batch := self._batches.get()) is not None:
                ids_N, logprobs_N = self._trainer._generate_single_turn([one.prompt_ids for one in batch], None, {}, 1)
                self.has_logprobs = logprobs_N is not None
                for number, one in enumerate(batch):
                    one.answer(self._sampled(ids_N[number], logprobs_N[number] if logprobs_N is not None else None))
        except BaseException:
            work.cancel()
            raise
        return work.result()

    async def __call__(self, prompt_ids: list[int], sampling: dict[str, Any], affinity: str) -> Sampled:
        loop = asyncio.get_running_loop()
        asked = _Asked(prompt_ids, loop, loop.create_future())
        self._waiting.append(asked)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(GATHER_S, self._hand_over)
        return await asked.sampled

    def _hand_over(self) -> None:
        batch, self._waiting, self._timer = [one for one in self._waiting if not one.sampled.done()], [], None
        if batch:
            self._batches.put(batch)

    def _sampled(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> Sampled:
        # transformers gives none: the trainer computes them itself, and never sees these zeros
        finish = "stop" if ids and ids[-1] in self._ends else "length"
        return Sampled(list(ids), [0.0] * len(ids) if logprobs is None else logprobs, finish)


@dataclass(frozen=True, slots=True)
class _Asked:
    prompt_ids: list[int]
    loop: asyncio.AbstractEventLoop
    sampled: asyncio.Future[Sampled]

    def answer(self, made: Sampled) -> None:
        self.loop.call_soon_threadsafe(lambda: self.sampled.done() or self.sampled.set_result(made))
