"""The table of examples in docs/rewards.md says what the rubrics do, and its checklist has all forty patterns."""

import asyncio
import re
from pathlib import Path

import pytest

import verifiers as vf
from verifiers.types import State

PAGE = (Path(__file__).parents[1] / "docs" / "rewards.md").read_text("utf-8")
EXAMPLES = re.findall(r"^\| `(\w+)` \| (?:`(.+?)`)? ?\| (?:`(.+?)`)? ?\| (\w+) \|$", PAGE, re.M)
OPTIONS = {"options": ["Rome", "Paris"]}


def judge():
    rubric = vf.JudgeRubric(judge_client=vf.ScriptedClient("yes"), canaries=())
    rubric.add_reward_func(rubric.verdict)
    return rubric


MADE = {
    "MathRubric": vf.MathRubric,
    "ChoiceRubric": vf.ChoiceRubric,
    "CodeRubric": lambda: vf.CodeRubric(engine="unsafe-local"),
    "JudgeRubric": judge,
}


@pytest.mark.parametrize(("kind", "reply", "answer", "told"), EXAMPLES)
def test_replies_in_the_table_have_the_score_it_says(kind, reply, answer, told):
    state = State(
        input={"prompt": "?", "answer": answer, "info": OPTIONS if kind == "ChoiceRubric" else {}},
        completion=[{"role": "assistant", "content": f"```python\n{reply}\n```" if kind == "CodeRubric" else reply}],
        trajectory=[],
    )
    asyncio.run(MADE[kind]().score_rollout(state))
    score = state["scores"][0]
    assert told == (f"{score.value:g}" if score.status == "scored" else score.status), score.reason


def test_no_example_of_the_table_is_passed_over():
    assert len(EXAMPLES) == len(re.findall(r"^\| `\w+Rubric` \|", PAGE, re.M)) > 30
    assert {kind for kind, *_ in EXAMPLES} == MADE.keys()


def test_the_checklist_numbers_all_forty():
    checklist = PAGE.partition("\n## Forty ways")[2]
    assert re.findall(r"^\| (\d+) \|", checklist, re.M) == [str(number) for number in range(1, 41)]
