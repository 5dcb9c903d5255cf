"""`Attempt`: the framework's bookkeeping of one rollout while it runs, beside the author's `State`."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from verifiers.clock import Clock
from verifiers.types import Message, MessageType


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run decides for a rollout before it starts."""

    seed: int | None = None  # None: not seeded
    timeout_s: float | None = None  # wall-clock limit without queueing; None: the environment's own


# `Environment.rollout` has the signature that authors override; what a run plans for it travels beside.
planned: ContextVar[Plan | None] = ContextVar("planned", default=None)


class Attempt:
    """The framework's own bookkeeping of one rollout, beside the author's `State`."""

    __slots__ = (
        "_clients", "clock", "conversation", "last_step", "plan", "prompt", "prompt_kept", "seen", "token_budget",
    )  # fmt: skip

    def __init__(self, plan: Plan, prompt: list[Message]) -> None:
        self.plan = plan
        self.clock = Clock(plan.timeout_s)
        self.prompt = prompt  # the conversation began with these
        self.prompt_kept = len(prompt)  # how many of them it still begins with; fewer: an author rewrote the context
        self.last_step: Any = None  # the TrajectoryStep made last, also where an author keeps it out of the trajectory
        self.conversation: list[Message] | None = None  # shared by all turns, only appended to
        self.seen: bytes = b""  # int32 buffer: all tokens up to the last turn that had any
        self.token_budget: int | None = None  # completion tokens left; None: no budget
        self._clients: dict[int, Any] = {}

    @classmethod
    def begin(cls, prompt: list[Message]) -> Attempt:
        """An attempt as the run that started it planned it."""
        return cls(planned.get() or Plan(), prompt)

    def limit_time(self, timeout_s: float | None) -> None:
        """Applies the environment's own limit where it is the smaller one."""
        if timeout_s is not None:
            self.clock.limit_s = timeout_s if self.clock.limit_s is None else min(timeout_s, self.clock.limit_s)

    def client(self, given: Any, message_type: MessageType) -> Any:
        """Our client for what the caller or author passed."""
        if hasattr(type(given), "complete"):
            return given
        found = self._clients.get(id(given))
        if found is None:
            from verifiers.clients import as_client

            found = self._clients[id(given)] = as_client(given, message_type=message_type)
        return found

    def limit_tokens(self, args: dict[str, Any]) -> None:
        """Lowers `max_tokens` to what the rollout's budget leaves."""
        if self.token_budget is None:
            return
        name = "max_completion_tokens" if "max_completion_tokens" in args else "max_tokens"
        args[name] = max(1, min(args.get(name) or self.token_budget, self.token_budget))
