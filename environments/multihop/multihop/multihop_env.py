"""`MultihopEnv`: asks one question after the other; with the graph it checks triplets and builds on those that hold."""

from __future__ import annotations

from typing import Any

import verifiers as vf
from multihop.dialogue import MOST_TRIPLETS, Dialogue, Reply, dialogue_of

_SAID = {
    "holds": "holds",
    "contradicted": "contradicted: the documents state something else",
    "not stated": "not stated in the documents",
}


class MultihopEnv(vf.MultiTurnEnv):
    """`graph=False`: the same questions, without a word about triplets."""

    def __init__(self, graph: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.graph = graph

    @vf.stop(priority=1)  # before max_turns_reached: an answer given in the last turn was given
    async def was_answered(self, state: vf.State) -> bool:
        return dialogue_of(state).is_over

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        dialogue = dialogue_of(state)
        last = dialogue.replies[-1]
        parts = [checked(last)] if self.graph else []
        number = len(dialogue.answers)
        if last.answer:
            parts.append(next_question(dialogue, number, self.graph))
        else:
            parts.append(f"I found no single answer. Answer question {number + 1} in <answer>…</answer>.")
        return [vf.UserMessage("\n\n".join(part for part in parts if part))]


def checked(reply: Reply) -> str:
    """What the graph says of a reply's triplets."""
    lines = [f"{one.triplet}: {_SAID[one.verdict]}" if one.triplet else "a line is no (subject | relation | object)"
             for one in reply.checked]  # fmt: skip
    if reply.left_out:
        lines.append(f"{reply.left_out} more were not looked at: at most {MOST_TRIPLETS} in a reply")
    return "\n".join(["Your triplets:", *lines]) if lines else ""


def next_question(dialogue: Dialogue, number: int, graph: bool) -> str:
    """Names what the triplets have shown; else it only refers to it."""
    question = dialogue.questions[number]
    head = f"Question {number + 1} of {len(dialogue.questions)}:"
    if graph and dialogue.has_shown(number - 1):
        return f"{head} {question['grounded']}"
    return f"{head} {question['plain']} (This goes on from the right answer to question {number}.)"
