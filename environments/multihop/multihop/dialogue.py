"""`Dialogue`: where a rollout stands, read off the model's replies: no other state has to be kept in step with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import verifiers as vf
from multihop.graph import Graph, Triplet, Verdict, folded, written_triplets

MOST_TRIPLETS = 6  # in one reply; those after it are not looked at and count as wrong
PARSER = vf.XMLParser(["triplets", "answer"], answer_field="answer")
_THOUGHTS = vf.MaybeThinkParser()


@dataclass(frozen=True, slots=True)
class Checked:
    """One line of a reply's triplets; `triplet` is `None` where it could not be read."""

    triplet: Triplet | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Reply:
    answer: str  # empty: none, or several that differ
    checked: tuple[Checked, ...]
    left_out: int  # triplets beyond the most that are looked at


@dataclass(slots=True)
class Dialogue:
    """`replies` so far; a reply with an answer moves on to the next question."""

    questions: Sequence[Mapping[str, Any]]
    graph: Graph
    replies: list[Reply] = field(default_factory=list[Reply])

    @property
    def answers(self) -> list[str]:
        return [reply.answer for reply in self.replies if reply.answer][: len(self.questions)]

    @property
    def is_over(self) -> bool:
        return len(self.answers) == len(self.questions)

    @property
    def needed(self) -> set[tuple[str, str, str]]:
        return {self.graph.key(Triplet(*question["triplet"])) for question in self.questions}

    @property
    def given(self) -> set[tuple[str, str, str]]:
        """Different triplets that were looked at."""
        looked_at = [one.triplet for reply in self.replies for one in reply.checked if one.triplet is not None]
        return {self.graph.key(triplet) for triplet in looked_at}

    @property
    def spoiled(self) -> int:
        """Lines that are no triplets, and those that were too many."""
        unreadable = [one for reply in self.replies for one in reply.checked if one.triplet is None]
        return len(unreadable) + sum(reply.left_out for reply in self.replies)

    def has_shown(self, number: int) -> bool:
        """Whether a reply gave the triplet that answers a question."""
        return self.graph.key(Triplet(*self.questions[number]["triplet"])) in self.given


def dialogue_of(state: vf.State) -> Dialogue:
    info = state["info"]
    graph = graph_of(info)
    texts = [PARSER.assistant_texts(step["completion"])[-1] for step in state["trajectory"]]
    return Dialogue(info["questions"], graph, [read_reply(text, graph) for text in texts])


def graph_of(info: Mapping[str, Any]) -> Graph:
    return _graph(tuple(Triplet(*fact) for fact in info["graph"]), tuple((a, name) for a, name in info["aliases"]))


@lru_cache(maxsize=256)  # asked for at every turn and by every reward function of the rollouts in flight
def _graph(facts: tuple[Triplet, ...], aliases: tuple[tuple[str, str], ...]) -> Graph:
    return Graph(facts, aliases)


def read_reply(text: str, graph: Graph) -> Reply:
    text = _THOUGHTS.parse(text)
    lines = written_triplets(text)
    looked_at = [Checked(t, "unreadable" if t is None else graph.verdict(t)) for t in lines[:MOST_TRIPLETS]]
    return Reply(_answer(text), tuple(looked_at), max(0, len(lines) - MOST_TRIPLETS))


def _answer(text: str) -> str:
    written = [PARSER.parse(text).answer, PARSER.parse(text, last=True).answer]
    different = {folded(answer): answer.strip() for answer in written if answer and folded(answer)}
    return next(iter(different.values())) if len(different) == 1 else ""
