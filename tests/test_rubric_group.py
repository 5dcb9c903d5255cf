"""Scores of a whole group of tries, and several rubrics over one rollout."""

import asyncio
import logging
from typing import List  # noqa: UP035

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import verifiers as vf
from verifiers.rubrics.rubric import is_group_func
from verifiers.types import AssistantMessage, State, TrajectoryStep


def state_of(answer="4") -> State:
    return State(
        input={"prompt": [], "answer": answer, "task": "t", "info": {}, "example_id": 0},
        completion=[AssistantMessage(answer)], trajectory=[TrajectoryStep(reward=None, advantage=None)], reward=None,
    )  # fmt: skip


async def scored(rubric, *answers) -> list[State]:
    states = [state_of(answer) for answer in answers]
    await rubric.score_group(states)
    return states


def longest(completions, answers, **kwargs):
    best = max(map(len, answers))
    return [float(len(a) == best) for a in answers]


def rewards(states):
    return [state["reward"] for state in states]


# --- group functions


def annotated(state) -> list[float]: ...
def annotated_old(state) -> List[float]: ...  # noqa: UP006
def annotated_bare(state) -> list: ...
def annotated_as_text(state) -> "list[float]": ...
def annotated_as_old_text(state) -> "typing.List[float]": ...  # noqa: F821
def single(state) -> float: ...
def listless(state) -> "listing": ...  # noqa: F821


@pytest.mark.parametrize(
    "func", [annotated, annotated_old, annotated_bare, annotated_as_text, annotated_as_old_text, longest]
)
def test_a_plural_name_or_a_list_annotation_makes_a_group_function(func):
    assert is_group_func(func) and vf.Rubric([func]).needs_group


@pytest.mark.parametrize("func", [single, listless, lambda state: [1.0]])
def test_other_functions_score_one_rollout(func):
    assert not is_group_func(func) and not vf.Rubric([func]).needs_group


async def test_group_functions_get_the_plural_of_everything():
    seen = {}

    def func(prompts, completions, answers, states, tasks, infos, parser):
        seen.update(locals())
        return [1.0] * len(states)

    states = await scored(vf.Rubric([func]), "a", "b")
    assert seen["answers"] == ["a", "b"] and seen["tasks"] == ["t", "t"] and seen["states"] == states
    assert [c[0].content for c in seen["completions"]] == ["a", "b"] and rewards(states) == [1.0, 1.0]


async def test_group_and_single_functions_mix_sync_and_async():
    async def together(states):
        return np.array([0.5] * len(states))

    states = await scored(vf.Rubric([longest, together, lambda answer: len(answer)], weights=[1, 1, 0.1]), "a", "bb")
    assert rewards(states) == pytest.approx([0.6, 1.7])


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ([1.0], "returned 1 scores for 2 rollouts"),
        ([1.0, 2.0, 3.0], "returned 3 scores for 2 rollouts"),
        (1.0, "returned float; a group function returns one number a rollout"),
        (np.float64(1.0), "returned float; a group function returns one number a rollout"),
        (None, "returned NoneType"),
        ("11", "returned str"),
        ({1: 1.0, 2: 1.0}, "returned dict"),
        (KeyError("x"), "raised KeyError: 'x'"),
    ],
)
async def test_pattern_27_a_group_function_that_is_wrong_leaves_all_its_rollouts_unscored(returned, reason):
    def func(states):
        if isinstance(returned, Exception):
            raise returned
        return returned

    states = await scored(vf.Rubric([func, lambda state: 1.0]), "a", "b")
    assert rewards(states) == [None, None]
    assert [reason in state["scores"][0].reason for state in states] == [True, True]
    assert [state["scores"][1].value for state in states] == [1.0, 1.0]


async def test_one_bad_number_of_a_group_spoils_only_its_rollout():
    states = await scored(vf.Rubric([lambda states: [1.0, None, float("nan")]]), "a", "b", "c")
    assert rewards(states) == [1.0, None, None] and states[2]["scores"][0].status == "fault"


async def test_an_undecided_group_is_undecided():
    def func(states):
        raise vf.Undecided("a tie")

    assert {s["scores"][0].status for s in await scored(vf.Rubric([func]), "a", "b")} == {"undecided"}


async def test_a_group_function_cannot_score_one_rollout_and_says_so():
    with pytest.raises(
        TypeError, match="longest: group reward functions score all tries of an example; use score_group"
    ):
        await vf.Rubric([longest]).score_rollout(state_of())


async def test_advantage_is_the_distance_from_the_mean_of_what_was_scored():
    def func(answer):
        return {"a": 1.0, "b": 0.0, "c": None}[answer]

    states = await scored(vf.Rubric([func]), "a", "b", "c")
    assert [s["advantage"] for s in states] == [0.5, -0.5, None]
    assert [s["trajectory"][0]["reward"] for s in states] == [1.0, 0.0, None]
    assert [s["trajectory"][0]["advantage"] for s in states] == [0.5, -0.5, None]


@given(st.permutations(["a", "bb", "cc", "ddd", ""]))
def test_pattern_27_the_order_of_the_rollouts_in_a_group_does_not_matter(answers):
    rubric = vf.RubricGroup(
        [vf.Rubric([longest, lambda answer: len(answer) / 10]), vf.Rubric([lambda answer: answer > "b"])]
    )
    states = asyncio.run(scored(rubric, *answers))
    found = {s["answer"]: (s["reward"], round(s["advantage"], 9)) for s in states}
    again = asyncio.run(scored(rubric, *sorted(answers)))
    assert found == {s["answer"]: (s["reward"], round(s["advantage"], 9)) for s in again}


# --- RubricGroup


async def test_rubrics_add_up_and_each_keeps_its_parser():
    upper, plain = vf.Parser(str.upper), vf.Parser()

    def parsed(parser, completion):
        return 1.0 if parser.parse_answer(completion) == "X" else 0.25

    group = vf.RubricGroup([vf.Rubric([parsed], parser=upper), vf.Rubric([parsed], weights=[2.0], parser=plain)])
    state = state_of("x")
    await group.score_rollout(state)
    assert state["reward"] == 1.5 and state["metrics"] == {"parsed": 1.25}
    assert group.parser is upper and group.weights == [1.0, 2.0]


async def test_a_missing_score_of_one_member_is_a_missing_reward():
    group = vf.RubricGroup([vf.Rubric([lambda state: 1.0]), vf.Rubric([lambda state: None])])
    assert rewards(await scored(group, "a")) == [None]


async def test_a_function_added_to_a_group_goes_to_its_first_rubric(caplog):
    first, second = vf.Rubric(), vf.Rubric()
    with caplog.at_level(logging.WARNING):
        vf.RubricGroup([first, second]).add_reward_func(longest, weight=0.5)
    assert first.funcs == [longest] and second.funcs == [] and "goes to the first rubric" in caplog.text
    with pytest.raises(ValueError, match="at least one rubric"):
        vf.RubricGroup([])


class Clipped(vf.Rubric):
    async def score_rollout(self, state):
        await super().score_rollout(state)
        state["reward"] = min(1.0, state["reward"])


class OfOld(vf.Rubric):
    """Writes reward and metrics itself, as rubrics of older releases did."""

    async def score_rollout(self, state):
        state["metrics"], state["reward"] = {"own": 0.5}, 0.75


class Whole(vf.Rubric):
    async def score_group(self, states):
        for state in states:
            state["reward"], state["metrics"] = float(len(states)), {}


@pytest.mark.parametrize(
    ("rubric", "reward", "metrics"),
    [
        (lambda: Clipped([lambda state: 5.0]), 1.0, {"<lambda>": 5.0, "reward": 1.0}),
        (OfOld, 0.75, {"own": 0.5, "reward": 0.75}),
        (Whole, 2.0, {"reward": 2.0}),
    ],
)
async def test_a_rubric_that_scores_in_its_own_way_is_believed(rubric, reward, metrics):
    group = vf.RubricGroup([vf.Rubric([lambda state: 10.0], weights=[1.0]), rubric(), vf.Rubric()])
    states = await scored(group, "a", "b")
    assert rewards(states) == [10.0 + reward] * 2
    total = metrics.get("<lambda>", 0.0) + 10.0
    assert states[0]["metrics"] == {**metrics, "<lambda>": total}


@pytest.mark.parametrize("wrote", [None, float("nan"), "text"])
async def test_a_rubric_that_writes_no_number_is_a_fault(wrote):
    class Wrong(vf.Rubric):
        async def score_rollout(self, state):
            state["reward"] = wrote

    states = await scored(vf.RubricGroup([Wrong(), vf.Rubric([lambda state: 1.0])]), "a")
    assert rewards(states) == [None] and "not a finite number" in states[0]["scores"][0].reason
