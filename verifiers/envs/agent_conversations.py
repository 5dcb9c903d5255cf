"""`Conversations`: those that an agent leads with its models, told apart by what its requests begin with.

A request that begins as a conversation stands continues it. One that begins as a part of it, because the agent has
compacted or forked its context, starts another that knows where it came from; one that shares nothing starts afresh.
"""

from __future__ import annotations

from dataclasses import dataclass

from verifiers.attempt import Attempt
from verifiers.envs.agent_endpoint import is_same
from verifiers.types import Message


@dataclass(slots=True)
class Conversation:
    """`attempt` keeps the messages and tokens of this one alone, and shares the rollout's clock."""

    actor: str
    attempt: Attempt
    number: int | None = None  # among the rollout's; None: nothing was answered in it yet
    is_busy: bool = False  # a request is in flight

    @property
    def messages(self) -> list[Message]:
        return self.attempt.conversation or []


class Conversations:
    def __init__(self) -> None:
        self._led: list[Conversation] = []

    def of(self, actor: str, asked: list[Message], rollout: Attempt) -> tuple[Conversation, list[Message]]:
        """The conversation that a request belongs to, and its messages, ours where we know them.

        So the model is asked with its replies as it made them, also where the agent left out its reasoning.
        """
        best, shared = None, 0
        for conversation in reversed(self._led):
            if conversation.actor == actor:
                length = _shared(conversation.messages, asked)
                if length > shared or (best is not None and best.is_busy and length == shared):
                    best, shared = conversation, length
        if best is None:
            return Conversation(actor, rollout.beside(asked)), asked
        messages = best.messages[:shared] + asked[shared:]
        if shared == len(best.messages) < len(asked) and not best.is_busy:
            return best, messages
        return Conversation(actor, best.attempt.fork()), messages

    def keep(self, conversation: Conversation) -> None:
        """Something was answered in it."""
        if conversation.number is None:
            conversation.number = len(self._led)
            self._led.append(conversation)


def _shared(known: list[Message], asked: list[Message]) -> int:
    """How many messages both begin with."""
    length = 0
    for ours, theirs in zip(known, asked, strict=False):
        if not is_same(ours, theirs):
            break
        length += 1
    return length
