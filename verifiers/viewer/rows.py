"""`SampleRow`: what a list shows of one rollout; examples with their tries, and their order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from verifiers.records import RolloutRecord, RolloutStatus
from verifiers.statistics import mean_scored
from verifiers.viewer.values import as_dict, as_json, as_list, text_of

TITLE_LENGTH = 160


class SampleRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A rollout without its conversation. Keep these of a whole run; read records one at a time."""

    example_id: int
    rollout_index: int
    reward: float | None  # None: see `status`
    status: RolloutStatus
    stop_condition: str | None = None
    turns: int = 0
    n_errors: int = 0
    error_sides: tuple[str, ...] = ()  # of errors and of scores that a fault took, each side once
    error_types: tuple[str, ...] = ()
    tokens: int | None = None  # prompt and completion; None: the server did not count
    duration_s: float = 0.0
    is_truncated: bool = False
    scores: dict[str, float | None] = {}
    model: str = ""
    title: str = ""  # the beginning of the last question in the prompt

    @property
    def key(self) -> tuple[int, int]:
        return self.example_id, self.rollout_index


def sample_row(record: RolloutRecord) -> SampleRow:
    """The row of a record.

    >>> from verifiers.records import EnvInfo, ModelInfo
    >>> record = RolloutRecord(env=EnvInfo(name="demo"), example_id=3, rollout_index=0, model=ModelInfo(name="m"),
    ...                        prompt=[{"role": "user", "content": "2 + 2?"}], messages=[], reward=1.0, status="scored")
    >>> row = sample_row(record)
    >>> row.key, row.reward, row.title
    ((3, 0), 1.0, '2 + 2?')
    """
    faults = [score.side for score in record.scores if score.status == "fault" and score.side is not None]
    usage = record.usage
    counted = [n for n in (usage.prompt, usage.completion) if n is not None]
    return SampleRow(
        example_id=record.example_id,
        rollout_index=record.rollout_index,
        reward=_finite(record.reward),
        status=record.status,
        stop_condition=record.stop_condition,
        turns=len(record.turns),
        n_errors=len(record.errors) + len(faults),
        error_sides=tuple(dict.fromkeys([*(error.side for error in record.errors), *faults])),
        error_types=tuple(dict.fromkeys(error.type for error in record.errors)),
        tokens=sum(counted) if counted else None,
        duration_s=record.timing.total_s,
        is_truncated=record.is_truncated,
        scores={name: _finite(value) for name, value in record.metrics.items()},
        model=record.model.name,
        title=title_of(record.prompt),
    )


def _finite(value: float | None) -> float | None:
    """A number of which one can take a mean. A record that was not read from JSON may hold another."""
    return value if value is not None and math.isfinite(value) else None


def title_of(prompt: Sequence[dict[str, Any]]) -> str:
    """One line: how the last message of the prompt that is not the system's begins."""
    asked = [message for message in prompt if message.get("role") != "system"] or list(prompt)
    return " ".join(text_of(asked[-1].get("content"))[: 4 * TITLE_LENGTH].split())[:TITLE_LENGTH] if asked else ""


def searchable_text(record: RolloutRecord) -> str:
    """What a phrase of a filter is looked for in: every message, tool call, error, reason and the answer."""
    found: list[str] = []
    for message in [*record.prompt, *record.messages]:
        found.append(text_of(message.get("content")))
        found += [text_of(message[key]) for key in ("reasoning_content", "reasoning") if message.get(key)]
        for call in as_list(message.get("tool_calls")):
            function = as_dict(as_dict(call).get("function"))
            found += [text_of(function.get("name")), text_of(function.get("arguments"))]
    found += [as_json(turn.completion) for turn in record.turns if turn.completion]  # of contexts that were rewritten
    found += [f"{error.type}: {error.message}" for error in record.errors]
    found += [score.reason for score in record.scores if score.reason]
    return "\n".join([*found, text_of(record.answer)])


class Example(msgspec.Struct, frozen=True, gc=False):
    """The tries of one example, by index."""

    example_id: int
    tries: tuple[SampleRow, ...]

    @property
    def title(self) -> str:
        return self.tries[0].title

    @property
    def mean(self) -> float | None:
        """Mean reward of the scored tries; None without any."""
        return mean_scored(row.reward for row in self.tries)

    @property
    def spread(self) -> float:
        """How much the tries disagree: the largest reward less the smallest."""
        rewards = [row.reward for row in self.tries if row.reward is not None]
        return max(rewards) - min(rewards) if rewards else 0.0


def group_examples(rows: Iterable[SampleRow]) -> list[Example]:
    """By example id; of rows with equal keys the last counts."""
    tries: dict[int, dict[int, SampleRow]] = {}
    for row in rows:
        tries.setdefault(row.example_id, {})[row.rollout_index] = row
    return [Example(id_, tuple(of[i] for i in sorted(of))) for id_, of in sorted(tries.items())]


def _or_last(value: float | None) -> float:
    return math.inf if value is None else value


# name → (what the page calls it, sort key)
ORDERS: dict[str, tuple[str, Callable[[Example], Any]]] = {
    "example": ("by example", lambda example: example.example_id),
    "disagreement": ("tries disagree most", lambda example: -example.spread),
    "worst": ("lowest reward", lambda example: _or_last(example.mean)),
    "best": ("highest reward", lambda example: _or_last(None if example.mean is None else -example.mean)),
    "errors": ("most errors", lambda example: -sum(row.n_errors for row in example.tries)),
    "turns": ("most turns", lambda example: -max(row.turns for row in example.tries)),
    "tokens": ("most tokens", lambda example: -max(row.tokens or 0 for row in example.tries)),
    "slowest": ("slowest", lambda example: -max(row.duration_s for row in example.tries)),
}
DEFAULT_ORDER = "example"


def ordered(examples: Iterable[Example], order: str = DEFAULT_ORDER) -> list[Example]:
    """Sorted by one of `ORDERS`; an order that does not exist is that by example. Ties keep the example's id."""
    _, key = ORDERS.get(order, ORDERS[DEFAULT_ORDER])
    return sorted(examples, key=lambda example: (key(example), example.example_id))
