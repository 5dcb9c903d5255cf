"""`Graded`: a reward with what there is to tell about it; and who was asked as a judge for it."""

from __future__ import annotations

from contextvars import ContextVar

from verifiers.records import JudgeInfo

# The reason of a judge's score for an answer that it accepted and the rules did not.
RESCUED = "accepted by the judge, not by the rules"


class Graded(float):
    """A number that a reward function returns with the reason for it; the reason is kept in the record's score.

    >>> zero = Graded(0.0, "reasoning not finished")
    >>> zero + 1, zero.reason
    (1.0, 'reasoning not finished')
    """

    reason: str | None

    def __new__(cls, value: float, reason: str | None = None) -> Graded:
        graded = super().__new__(cls, value)
        graded.reason = reason
        return graded

    def __reduce__(self) -> tuple[type[Graded], tuple[float, str | None]]:
        return type(self), (float(self), self.reason)


# The judges asked while one reward function runs. A list that is shared with the tasks and threads the function
# starts: what they set in a context variable of their own would not come back.
asked_judges: ContextVar[list[JudgeInfo] | None] = ContextVar("asked_judges", default=None)


def judge_was_asked(judge: JudgeInfo) -> None:
    """Notes a judge's verdict for the score of the reward function that is running, if one is."""
    asked = asked_judges.get()
    if asked is not None:
        asked.append(judge)
