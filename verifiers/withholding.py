"""`without_answers`: a record as it may leave home when its environment keeps its test set there.

What the model itself wrote stays: without it there would be nothing to look at.
"""

from __future__ import annotations

from typing import Any

import msgspec

from verifiers.records import Failure, RolloutRecord, Score, Turn

MODEL_ROLES = ("assistant", "text")  # "text": a completion that is no chat


def without_answers(record: RolloutRecord) -> RolloutRecord:
    """Prompt, answer and info are gone, and so are the words of whoever may quote them: environment, tools, judges."""
    return msgspec.structs.replace(
        record,
        prompt=[],
        answer=None,
        info=None,
        messages=[_own_words(message) for message in record.messages],
        turns=[_bare_turn(turn) for turn in record.turns],
        scores=[_bare_score(score) for score in record.scores],
        errors=[Failure(side=error.side, type=error.type, message="") for error in record.errors],
        state_columns={},
    )


def _own_words(message: dict[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    return dict(message) if role in MODEL_ROLES else {"role": role, "content": ""}


def _bare_turn(turn: Turn) -> Turn:
    if turn.prompt is None and turn.completion is None:
        return turn
    kept = None if turn.completion is None else [_own_words(message) for message in turn.completion]
    return msgspec.structs.replace(turn, prompt=None if turn.prompt is None else [], completion=kept)


def _bare_score(score: Score) -> Score:
    judge = score.judge
    if judge is not None:
        judge = msgspec.structs.replace(judge, response=None, reply=None)
    return msgspec.structs.replace(score, reason=None, judge=judge)
