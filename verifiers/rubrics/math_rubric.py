"""`MathRubric`: whether the boxed answer is mathematically the reference answer."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from verifiers.errors import RewardFault, Undecided
from verifiers.parsers import MaybeThinkParser, Parser, extract_boxed_answer, is_reasoning_unfinished
from verifiers.rubrics.graded import Graded
from verifiers.rubrics.grading import pool_for
from verifiers.rubrics.grading_process import Limits
from verifiers.rubrics.math_answers import BrokenGold, Comparison, compare, read_gold
from verifiers.rubrics.rubric import Rubric

GRADERS = {  # in the order they are asked; both together end within 6 s, also where they wait for cores
    "verifiers.rubrics.math_grader": Limits(cpu_s=1.0, wall_s=1.2),
    "verifiers.rubrics.math_verify_grader": Limits(cpu_s=1.5, wall_s=1.75),
}
MAX_CACHED = 20_000
MAX_INLINE_CHARS = 1_500  # longer answers are read in a worker too
TURN_S = 0.005  # how long a turn of the event loop may last before comparisons wait for the next one


class MathRubric(Rubric):
    r"""Rewards an answer that equals `answer`: 1.0 or 0.0, as the metric `correct_answer`.

    The answer is the last `\boxed{…}` that closes, after the last `</think>`; a parser of one's own may say otherwise.
    Most answers are compared exactly within microseconds; the others are graded in worker processes. Too much time or
    memory there is the answer's own doing: wrong, with a reason. A reference that cannot be read is a fault of the
    data.

    >>> import asyncio
    >>> rubric = MathRubric()
    >>> asyncio.run(rubric.correct_answer(rubric.parser, r"So it is \boxed{0.5}.", r"\frac{1}{2}"))
    1.0
    """

    def __init__(
        self,
        funcs: Sequence[Callable[..., Any]] | None = None,
        weights: Sequence[float] | None = None,
        parser: Parser | None = None,
        max_verify_chars: int = 50_000,
        **attributes: Any,
    ) -> None:
        """`max_verify_chars`: a longer answer is wrong. `max_workers` and `timeout_seconds` of old have no effect."""
        super().__init__(funcs=funcs, weights=weights, parser=parser or MaybeThinkParser(strict_boxed), **attributes)
        self.max_verify_chars = max_verify_chars
        self._cache: OrderedDict[tuple[str, str], Comparison] = OrderedDict()
        self._turns: dict[asyncio.AbstractEventLoop, float] = {}  # when the first comparison of each loop's turn began
        self._in_flight: dict[tuple[Any, str, str], asyncio.Future[Comparison]] = {}
        self.add_reward_func(self.correct_answer)

    async def correct_answer(self, parser: Parser, completion: Any, answer: Any, **kwargs: Any) -> float:
        """Raises RewardFault for a reference that cannot be read, Undecided where neither way is certain."""
        gold = _gold_text(answer)
        try:
            read_gold(gold)
        except BrokenGold as error:
            raise RewardFault(str(error)) from None
        response = parser.parse_answer(completion)
        response = "" if response is None else str(response)
        if not response.strip():
            return Graded(0.0, _why_empty(parser, completion))
        if len(response) > self.max_verify_chars:
            return Graded(0.0, f"the answer has {len(response)} characters")
        found = await self.compare(gold, response)
        if found.same is None:
            raise Undecided(found.reason or "the answers could not be compared")
        return 1.0 if found.same else Graded(0.0, found.reason) if found.reason else 0.0

    async def compare(self, gold: str, answer: str) -> Comparison:
        """Compares two answers: at once where that is exact, else in a worker. Equal questions are asked once."""
        key = (gold, answer)
        found = self._cache.get(key)
        if found is not None:
            return found
        if len(answer) > MAX_INLINE_CHARS and answer.strip() != gold.strip():
            return await self._shared(key)
        found = await self._inline(gold, answer)
        if found.same is None:
            return await self._shared(key)
        self._remember(key, found)
        return found

    async def _inline(self, gold: str, answer: str) -> Comparison:
        """Compares in the event loop; when a turn of it has lasted long, what is left waits for the next."""
        loop = asyncio.get_running_loop()
        began = self._turns.get(loop)
        while began is not None and time.perf_counter() - began > TURN_S:
            await asyncio.sleep(0)
            began = self._turns.get(loop)
        if began is None:
            self._turns[loop] = time.perf_counter()
            loop.call_soon(self._turns.pop, loop, None)
        return compare(gold, answer)

    async def _shared(self, key: tuple[str, str]) -> Comparison:
        """The workers' verdict; those who ask while it is being made wait for the same one."""
        place = (asyncio.get_running_loop(), *key)
        running = self._in_flight.get(place)
        if running is None:
            running = self._in_flight[place] = asyncio.ensure_future(self._by_worker(*key))
            running.add_done_callback(lambda done: self._settled(place, done))
        return await asyncio.shield(running)

    def _settled(self, place: tuple[Any, str, str], done: asyncio.Future[Comparison]) -> None:
        self._in_flight.pop(place, None)
        if not done.cancelled():
            done.exception()  # those who wait see it; when none is left, nobody is to be told

    async def _by_worker(self, gold: str, answer: str) -> Comparison:
        found = Comparison(None)
        for grader, limits in GRADERS.items():
            grade = await pool_for(grader, limits).grade({"gold": gold, "answer": answer})
            if grade.limit is not None:
                found = Comparison(False, grade.limit)
            elif "broken" in grade.value:
                raise RewardFault(grade.value["broken"])
            else:
                found = Comparison(grade.value["same"], grade.value["reason"])
            if found != Comparison(None):
                break
        self._remember((gold, answer), found)
        return found

    def _remember(self, key: tuple[str, str], found: Comparison) -> None:
        self._cache[key] = found
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)


def strict_boxed(text: str) -> str:
    """The last boxed answer, or nothing."""
    return extract_boxed_answer(text, strict=True)


def _gold_text(answer: Any) -> str:
    if isinstance(answer, str) or hasattr(answer, "__float__"):  # numpy's numbers too
        return str(answer)
    raise RewardFault(f"the reference answer is {answer!r:.60}, not a text or a number")


def _why_empty(parser: Parser, completion: Any) -> str:
    texts = parser.assistant_texts(completion)
    if not texts:
        return "the model wrote nothing"
    return "reasoning not finished" if is_reasoning_unfinished(texts[-1]) else "no answer in the expected form"
