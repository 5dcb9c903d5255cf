"""`Attempt`: the framework's bookkeeping of one rollout while it runs, beside the author's `State`."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from verifiers.clients.client import Seen
from verifiers.clock import Clock
from verifiers.types import Message, MessageType, Response


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run decides for a rollout before it starts."""

    seed: int | None = None  # None: not seeded
    timeout_s: float | None = None  # wall-clock limit without queueing; None: the environment's own


# `Environment.rollout` has the signature that authors override; what a run plans for it travels beside.
planned: ContextVar[Plan | None] = ContextVar("planned", default=None)


@dataclass(frozen=True, slots=True)
class SeenTurn:
    """The conversation up to a reply, as far as it tells whether `Attempt.seen` still stands for it."""

    contents: list[Any]  # of each message
    reasoning: Any  # of the reply
    is_whole: bool
    asked: tuple[Any, ...]


class Attempt:
    """The framework's own bookkeeping of one rollout, beside the author's `State`."""

    __slots__ = (
        "_clients", "asked", "clock", "conversation", "last_step", "plan", "prompt", "prompt_kept", "seen", "seen_turn",
        "token_budget",
    )  # fmt: skip

    def __init__(self, plan: Plan, prompt: list[Message]) -> None:
        self.plan = plan
        self.clock = Clock(plan.timeout_s)
        self.prompt = prompt  # the conversation began with these
        self.prompt_kept = len(prompt)  # how many of them it still begins with; fewer: an author rewrote the context
        self.last_step: Any = None  # the TrajectoryStep made last, also where an author keeps it out of the trajectory
        self.conversation: list[Message] | None = None  # shared by all turns, only appended to
        self.seen: bytes = b""  # int32 buffer: all tokens up to the last turn that had any
        self.seen_turn: SeenTurn | None = None
        self.asked: tuple[Any, ...] = ()  # model, client and tools of the last request
        self.token_budget: int | None = None  # completion tokens left; None: no budget
        self._clients: dict[int, Any] = {}

    @classmethod
    def begin(cls, prompt: list[Message]) -> Attempt:
        """An attempt as the run that started it planned it."""
        return cls(planned.get() or Plan(), prompt)

    def beside(self, prompt: list[Message]) -> Attempt:
        """The bookkeeping of another conversation in the same rollout; time and clients are those of this one."""
        made = Attempt(self.plan, prompt)
        made.clock, made._clients = self.clock, self._clients
        return made

    def fork(self) -> Attempt:
        """The same of one that was this one until now."""
        made = self.beside(self.prompt)
        made.prompt_kept, made.last_step = self.prompt_kept, self.last_step
        made.conversation = None if self.conversation is None else self.conversation[:]
        made.seen, made.seen_turn, made.asked = self.seen, self.seen_turn, self.asked
        return made

    def completion(self) -> list[Message] | str:
        """The conversation after the prompt so far; text when it is a base model's."""
        added = (self.conversation or [])[self.prompt_kept :]
        if self.prompt and all(m.get("role") == "text" for m in self.prompt):
            return "".join(str(m.get("content") or "") for m in added)
        return added

    def limit_time(self, timeout_s: float | None) -> None:
        """Applies the environment's own limit where it is the smaller one."""
        if timeout_s is not None:
            self.clock.limit_s = timeout_s if self.clock.limit_s is None else min(timeout_s, self.clock.limit_s)

    def remember(self, history: list[Message], response: Response) -> None:
        """Notes what `seen` stands for, once the reply is the last message of `history`."""
        trace = response.tokens
        if not self.seen or not (trace.prefix_length or trace.prompt_buffer):  # the reply alone is not enough
            self.seen_turn = None
            return
        contents = [m.get("content") for m in history]
        contents[-1] = response.message.get("content")  # not what an author made of it
        is_whole = response.finish_reason != "length"
        self.seen_turn = SeenTurn(contents, response.message.get("reasoning_content"), is_whole, self.asked)

    def seen_in(self, messages: list[Message], asked: tuple[Any, ...]) -> Seen | None:
        """The tokens that `messages` begin with; `None` when they, or who is asked, are others than in the last turn.

        A message whose content an author has changed in place since then counts as another one.
        """
        turn = self.seen_turn
        if turn is None or len(messages) <= len(turn.contents) or asked != turn.asked:
            return None
        known = messages[: len(turn.contents)]
        if [m.get("content") for m in known] != turn.contents or known[-1].get("role") != "assistant":
            return None
        if known[-1].get("reasoning_content") != turn.reasoning:
            return None
        return Seen(len(known), self.seen, turn.is_whole)

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
