"""`ScienceRubric`: each rollout is scored by the rubric that its row names."""

from __future__ import annotations

from typing import Any

import verifiers as vf
from verifiers.rubrics import REASONING_JUDGE_PROMPT
from verifiers.rubrics.math_rubric import strict_boxed


class ScienceRubric(vf.Rubric):
    """`info["scored_by"]` is "choice", "rules" or "judge". Without a judge no row may name it."""

    def __init__(self, judge_model: str | None = None, judge_client: Any = None) -> None:
        super().__init__()
        self.members: dict[str, vf.Rubric] = {"choice": vf.ChoiceRubric()}
        if judge_model is None:
            self.members["rules"] = vf.HybridMathRubric()
            return
        judge: dict[str, Any] = {"judge_model": judge_model, "judge_client": judge_client}
        judge["judge_sampling_args"] = {"temperature": 0}
        self.members["rules"] = vf.HybridMathRubric(use_judge_fallback=True, **judge)
        parser = vf.MaybeThinkParser(strict_boxed)
        asked = vf.JudgeRubric(parser=parser, judge_prompt=REASONING_JUDGE_PROMPT, **judge)
        asked.add_reward_func(asked.verdict)
        self.members["judge"] = asked

    def member(self, state: vf.State) -> vf.Rubric:
        return self.members[state["info"]["scored_by"]]

    @property
    def needs_group(self) -> bool:
        return any(member.needs_group for member in self.members.values())

    async def score_rollout(self, state: vf.State | Any = None, *of_old: Any, **named: Any) -> Any:
        return await self.member(state).score_rollout(state, *of_old, **named)

    async def score_group(self, states: list[vf.State]) -> None:
        """The states of one example, which one rubric scores."""
        await self.member(states[0]).score_group(states)

    async def check_setup(self) -> None:
        for member in self.members.values():
            await member.check_setup()

    async def teardown(self) -> None:
        for member in self.members.values():
            await member.teardown()
