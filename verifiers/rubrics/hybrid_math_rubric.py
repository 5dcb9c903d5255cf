"""`HybridMathRubric`: rules first; a judge is asked only about an answer that they did not accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verifiers.errors import JudgeError, RewardFault, Undecided
from verifiers.parsers import MaybeThinkParser, Parser
from verifiers.rubrics.graded import RESCUED, Graded
from verifiers.rubrics.judge_prompt import REASONING_JUDGE_PROMPT
from verifiers.rubrics.judge_rubric import JudgeRubric
from verifiers.rubrics.math_rubric import MathRubric, strict_boxed
from verifiers.types import State


class HybridMathRubric(JudgeRubric):
    r"""`correct_answer` is 1.0 when `MathRubric` accepts the answer, or, with `use_judge_fallback`, when a judge does.

    The judge can add but never take away: it is not asked what the rules accepted, nor where there is no answer. What
    it accepted is told by the score's reason, so that `vf audit` finds it. `math_verify_score` and `judge_score` are
    reported as metrics. The other arguments are those of `JudgeRubric`.

    >>> import asyncio
    >>> from verifiers.clients import ScriptedClient
    >>> judge = ScriptedClient("They name the same city. Verdict: A")
    >>> rubric = HybridMathRubric(use_judge_fallback=True, judge_client=judge, canaries=())
    >>> state = State(input={"prompt": "Which city?", "answer": "Paris"}, completion=r"\boxed{the city of Paris}")
    >>> asyncio.run(rubric.score_rollout(state)); state["metrics"]
    {'math_verify_score': 0.0, 'judge_score': 1.0, 'correct_answer': 1.0}
    """

    def __init__(
        self,
        parser: Parser | None = None,
        use_judge_fallback: bool = False,
        judge_client: Any = None,
        judge_model: str = "gpt-4.1-nano",
        judge_prompt: str = REASONING_JUDGE_PROMPT,
        judge_sampling_args: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> None:
        """`timeout_seconds` and `max_workers` of old have no effect."""
        super().__init__(
            parser=parser or MaybeThinkParser(strict_boxed),
            judge_client=judge_client,
            judge_model=judge_model,
            judge_prompt=judge_prompt,
            judge_sampling_args=judge_sampling_args,
            **attributes,
        )
        self.use_judge_fallback = use_judge_fallback
        self.math_rubric = MathRubric(parser=self.parser)
        self.add_metric(self.math_verify_score)
        self.add_metric(self.judge_score)
        self.add_reward_func(self.correct_answer)  # the last: it reads what the two wrote

    async def math_verify_score(self, completion: Any, answer: Any, state: State, **kwargs: Any) -> float:
        """What the rules say. Where they cannot tell, the judge is asked; without one, that is the outcome."""
        for name in ("math_verify_score", "judge_score", "judge_result"):
            state.pop(name, None)
        try:
            score = await self.math_rubric.correct_answer(self.parser, completion, answer)
        except (RewardFault, Undecided) as error:
            if not self.use_judge_fallback or not str(answer or "").strip():
                raise
            score = Graded(0.0, f"the rules cannot tell: {error}")
        state["math_verify_score"] = float(score)
        return score

    async def judge_score(self, prompt: Any, completion: Any, answer: Any, state: State, **kwargs: Any) -> float:
        """What the judge says, or, when it is not asked, the rules."""
        rules = state.get("math_verify_score")
        if rules is None:
            raise Undecided("the rules gave no score")
        if rules == 1.0 or not self.use_judge_fallback or not str(self.parser.parse_answer(completion) or "").strip():
            state["judge_score"] = rules
            return rules
        try:
            verdict = await self.verdict(prompt, completion, answer, state)
        except (JudgeError, Undecided) as error:
            state["judge_result"] = error  # `correct_answer` raises the same
            raise
        state["judge_score"] = float(verdict)
        if replies := state.get("judge_response"):
            state["judge_result"] = list(replies.values())[-1]
        return Graded(1.0, RESCUED) if verdict else verdict

    async def correct_answer(self, state: State, **kwargs: Any) -> float:
        """Raises JudgeError when the judge failed, Undecided when it or the rules could not tell."""
        rules, judged = state.get("math_verify_score"), state.get("judge_score")
        if rules == 1.0:
            return 1.0
        if isinstance(why := state.get("judge_result"), (JudgeError, Undecided)):
            raise why
        if rules is None or judged is None:
            raise Undecided("neither the rules nor the judge could tell", side="reward" if rules is None else "judge")
        return float(judged)
