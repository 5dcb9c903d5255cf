"""The environment that `rl_soak.py` rolls out: conversations, answers that stall a grader, programs in sandboxes.

Each process that loads it keeps a `Ledger` of its model calls in a file, which is there also after it was killed.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import verifiers as vf
from verifiers.clients.client import ModelRequest
from verifiers.clients.http import HTTPClient
from verifiers.clients.retry import Fault, RetryPolicy
from verifiers.errors import ModelError
from verifiers.sandbox import LocalBackend, SandboxSpec
from verifiers.types import Response

TURNS = {"talk": 10, "maths": 1, "program": 1, "stall": 1}
# Calls are begun, and come to exactly one end. Attempts end in an answer, in a fault, or with their call.
CALLS = ("calls", "answered", "failed", "cancelled")
FAULTS = ("slow down", "server", "timeout", "reset", "malformed", "other")
NAMES = (*CALLS, *FAULTS, "sandboxes", "sandboxes closed", "odd replies")


class Ledger:
    """Counters in a file of their own, kept by the kernel whatever becomes of the process."""

    def __init__(self, folder: Path) -> None:
        path = folder / f"{time.time_ns()}-{os.getpid()}.ledger"
        path.write_bytes(bytes(8 * len(NAMES)))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._places = {name: 8 * number for number, name in enumerate(NAMES)}

    def add(self, name: str) -> None:
        place = self._places[name]
        struct.pack_into("<q", self._map, place, struct.unpack_from("<q", self._map, place)[0] + 1)


def read_ledgers(paths: Iterable[Path]) -> Counter[str]:
    """The sums over all processes that ever kept one."""
    found: Counter[str] = Counter()
    for path in paths:
        found.update(dict(zip(NAMES, struct.unpack(f"<{len(NAMES)}q", path.read_bytes()), strict=True)))
    return found


@dataclass(frozen=True, slots=True)
class CountedRetries(RetryPolicy):
    """The client's own policy, which is asked once for each attempt that failed."""

    ledger: Any = None

    def delay_s(
        self, fault: Fault, tries: int, waited_s: float, proven: bool, share: float | None = None
    ) -> float | None:
        self.ledger.add(fault.kind if fault.kind in FAULTS else "other")
        return RetryPolicy.delay_s(self, fault, tries, waited_s, proven, share)


class CountedClient:
    """A client whose calls are written down when they begin and when they end."""

    def __init__(self, client: HTTPClient, ledger: Ledger) -> None:
        if not isinstance(client.retry, CountedRetries):  # the executor gives all rollouts the same client
            client.retry = CountedRetries(max_retries=client.endpoint.max_retries, ledger=ledger)
        self._client, self._ledger = client, ledger

    async def complete(self, request: ModelRequest) -> Response:
        self._ledger.add("calls")
        try:
            response = await self._client.complete(request)
        except asyncio.CancelledError:
            self._ledger.add("cancelled")
            raise
        except ModelError:
            self._ledger.add("failed")
            raise
        self._ledger.add("answered")
        return response

    async def close(self) -> None:
        await self._client.close()

    def status(self) -> str | None:
        return self._client.status()


class SoakTasks(vf.MultiTurnEnv):
    """What a row is about is in `info.kind`; the server repeats what the prompt has between double brackets."""

    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger(folder)
        self.maths = vf.MathRubric()
        self.backend = LocalBackend(places=2)
        row = {"prompt": [{"role": "user", "content": "[[x]]"}], "answer": "x", "info": {"kind": "talk"}}
        super().__init__(dataset=[row], rubric=vf.Rubric([self.reward]), max_turns=max(TURNS.values()))

    async def setup_state(self, state: vf.State) -> vf.State:
        state["client"] = CountedClient(state["client"], self.ledger)
        if state["info"]["kind"] == "program":
            state["sandbox"] = await self.backend.create(SandboxSpec())
            self.ledger.add("sandboxes")
        return state

    @vf.stop
    async def has_said_enough(self, state: vf.State) -> bool:
        return len(state["trajectory"]) >= TURNS[state["info"]["kind"]]

    async def env_response(self, messages: Any, state: vf.State, **kwargs: Any) -> list[dict[str, str]]:
        return [{"role": "user", "content": "Once more."}]

    async def post_rollout(self, state: vf.State) -> None:
        if state["info"]["kind"] == "program":
            state["printed"] = (await state["sandbox"].exec(["python3", "-c", "print(6 * 7)"])).text.strip()

    @vf.cleanup
    async def close_sandbox(self, state: vf.State) -> None:
        if "sandbox" in state:
            await state["sandbox"].close()
            self.ledger.add("sandboxes closed")

    @vf.teardown
    async def close_backend(self) -> None:
        await self.backend.close()

    async def reward(self, completion: Any, answer: str, state: vf.State) -> float:
        """About half of the right answers are paid, or no group would have anything to learn."""
        kind = state["info"]["kind"]
        if kind == "stall":
            await asyncio.Event().wait()
        if kind == "maths":
            return await self.maths.correct_answer(self.maths.parser, completion, answer)
        said = [message["content"] for message in completion if message["role"] == "assistant"]
        if said != [answer] * TURNS[kind] or state.get("printed", "42") != "42":
            self.ledger.add("odd replies")  # another rollout's, or none
        return float(state.rng.random() < 0.5)


def load_environment(folder: str) -> SoakTasks:
    return SoakTasks(Path(folder))
