"""Scores: a number, or nothing and the reason for it; never a number that means nothing."""

import asyncio
import logging
import math
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import steady

import verifiers as vf
from verifiers.rubrics import Graded
from verifiers.types import AssistantMessage, State, TrajectoryStep, UserMessage


def state_of(answer="4") -> State:
    return State(
        input={"prompt": [UserMessage("2+2")], "answer": answer, "task": "adding", "info": {"k": 1}, "example_id": 0},
        completion=[AssistantMessage(answer)], trajectory=[TrajectoryStep(reward=None, advantage=None)], reward=None,
    )  # fmt: skip


async def scored(*funcs, weights=None, state=None, **options) -> State:
    state = state or state_of()
    await vf.Rubric(list(funcs), weights, **options).score_rollout(state)
    return state


async def group_scored(*funcs, answers="ab", **options) -> list[State]:
    states = [state_of(answer) for answer in answers]
    await vf.Rubric(list(funcs), **options).score_group(states)
    return states


def named(name, value):
    def func(state):
        if isinstance(value, BaseException):
            raise value
        return value

    func.__name__ = name
    return func


# --- how functions are called


async def test_arguments_are_bound_by_name_whatever_their_order():
    seen = {}

    def func(info, state, answer, task, parser, completion, prompt, missing="default"):
        seen.update(locals())
        return 1

    parser = vf.Parser()
    state = await scored(func, parser=parser)
    seen.pop("seen", None)
    assert state["reward"] == 1.0
    assert seen == {
        "info": {"k": 1}, "state": state, "answer": "4", "task": "adding", "parser": parser, "missing": "default",
        "completion": state["completion"], "prompt": state["prompt"],
    }  # fmt: skip


async def test_kwargs_get_everything_and_class_objects_are_offered():
    got = {}
    rubric = vf.Rubric([lambda **kwargs: got.update(kwargs) or 1, lambda judge_model: float(judge_model == "j")])
    rubric.add_class_object("judge_model", "j")
    state = state_of()
    await rubric.score_rollout(state)
    assert {"prompt", "completion", "answer", "state", "task", "info", "parser", "judge_model"} <= set(got)
    assert state["reward"] == 2.0


async def test_sync_async_methods_and_callable_objects_all_work():
    class Grader:
        def method(self, answer):
            return 1

        async def __call__(self, answer):
            return 2

    async def coroutine(answer):
        await asyncio.sleep(0)
        return 4

    state = await scored(Grader().method, Grader(), coroutine)
    assert state["metrics"] == {"method": 1.0, "Grader": 2.0, "coroutine": 4.0} and state["reward"] == 7.0


async def test_missing_answer_and_info_are_empty_not_absent():
    state = State(input={"prompt": [], "example_id": 0}, completion=[], trajectory=[])
    await vf.Rubric([lambda answer, info: float(answer == "" and info == {})]).score_rollout(state)
    assert state["reward"] == 1.0


async def test_later_functions_see_what_earlier_ones_wrote():
    def first(state):
        state["found"] = 3
        return 0

    assert (await scored(first, lambda state: state["found"]))["reward"] == 3.0
    assert [s["reward"] for s in await group_scored(first, lambda state: state["found"])] == [3.0, 3.0]


def test_weights_must_be_one_for_each_function():
    with pytest.raises(ValueError, match="2 reward functions but 1 weights"):
        vf.Rubric([len, sum], [1.0])
    rubric = vf.Rubric([named("a", 1)])
    rubric.add_reward_func(named("b", 1), weight=0.5)
    rubric.add_metric(named("c", 1))
    assert rubric.weights == [1.0, 0.5, 0.0] and rubric._get_reward_func_names() == ["a", "b", "c"]


# --- what they return


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, 1.0), (0.5, 0.5), (True, 1.0), (False, 0.0), (np.float32(0.5), 0.5), (np.int64(2), 2.0), (np.bool_(True), 1.0),
     (np.array(3.0), 3.0), (-0.0, 0.0)],
)  # fmt: skip
async def test_every_kind_of_number_counts(value, number):
    state = await scored(named("f", value))
    assert state["reward"] == state["metrics"]["f"] == number and type(state["reward"]) is float


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "returned None, not a number"),
        ("1.0", "returned text '1.0', not a number"),
        (math.nan, "returned nan, not a finite number"),
        (math.inf, "returned inf, not a finite number"),
        (np.float64("nan"), "returned nan, not a finite number"),
        ([1.0], "returned list, not a number"),
        (1j, "returned complex, not a number"),
        (10**400, "returned int, not a number"),
        (KeyError("x"), "raised KeyError: 'x'"),
        (ValueError(), "raised ValueError"),
    ],
)
async def test_pattern_23_and_40_what_is_no_number_is_a_fault_with_a_reason_and_no_zero(value, reason, caplog):
    with caplog.at_level(logging.WARNING):
        state = await scored(named("broken", value), named("fine", 1))
    broken, fine = state["scores"]
    assert (broken.value, broken.status, broken.reason, broken.side) == (None, "fault", reason, "reward")
    assert fine.value == 1.0
    assert state["reward"] is None and state["metrics"] == {"broken": None, "fine": 1.0}
    assert "broken" in caplog.text and "unscored" in caplog.text


async def test_undecided_is_no_fault_and_no_reward():
    state = await scored(named("unsure", vf.Undecided("two readings")))
    (score,) = state["scores"]
    assert (score.status, score.reason, score.value, state["reward"]) == ("undecided", "two readings", None, None)


@pytest.mark.parametrize(
    "error", [vf.JudgeError("x"), vf.ModelUnavailableError("x"), vf.SandboxError("x"), OSError("x")]
)
async def test_the_side_that_failed_is_kept(error):
    (score,) = (await scored(named("f", error)))["scores"]
    sides = {vf.JudgeError: "judge", vf.ModelUnavailableError: "judge", vf.SandboxError: "sandbox", OSError: "reward"}
    assert score.side == sides[type(error)]


async def test_a_score_of_weight_zero_never_matters():
    state = await scored(named("metric", KeyError("x")), named("reward", 1), weights=[0.0, 1.0])
    assert state["reward"] == 1.0 and state["metrics"]["metric"] is None


async def test_a_reason_travels_with_the_number():
    assert (await scored(named("f", Graded(0.0, "reasoning not finished"))))["scores"][
        0
    ].reason == "reasoning not finished"


@given(st.lists(st.tuples(
    st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(-5, 5), st.booleans()), st.floats(-10, 10)
), max_size=5))  # fmt: skip
def test_the_reward_is_the_weighted_sum_or_none(pairs):
    state = asyncio.run(scored(*[named(f"f{i}", v) for i, (v, _) in enumerate(pairs)], weights=[w for _, w in pairs]))
    if any(value is None and weight for value, weight in pairs):
        assert state["reward"] is None
    else:
        assert state["reward"] == pytest.approx(sum(v * w for v, w in pairs if v is not None))


async def test_scores_of_equal_name_add_up_or_are_missing_together():
    assert (await scored(named("f", 1), named("f", 2)))["metrics"] == {"f": 3.0}
    for order in ((None, 1), (1, None)):
        assert (await scored(*[named("f", value) for value in order]))["metrics"] == {"f": None}


# --- time, threads, signals


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_function_that_takes_too_long_is_a_fault(blocking):
    release = threading.Event()

    def slow(state):
        release.wait(250)
        return 1

    async def async_slow(state):
        await asyncio.sleep(250)
        return 1

    state = await scored(slow if blocking else async_slow, timeout_s=0.05)
    release.set()
    assert state["reward"] is None and "took longer than 0.05 s" in state["scores"][0].reason


@steady(0.2)
async def test_waiting_for_a_free_thread_is_not_timed():
    def slow(state):
        time.sleep(0.5)
        return 1

    # The last of them wait for 5.5 s: there are 32 threads.
    rubric, states = vf.Rubric([slow], timeout_s=5.0), [state_of() for _ in range(384)]
    await asyncio.gather(*[rubric.score_rollout(state) for state in states])
    assert {state["reward"] for state in states} == {1.0}


async def test_functions_that_hang_do_not_take_the_threads_of_others():
    release = threading.Event()

    def hangs(state):
        release.wait(250)
        return 1

    await asyncio.gather(*[scored(hangs, timeout_s=0.05) for _ in range(70)])
    assert (await asyncio.wait_for(scored(named("fine", 1), timeout_s=100), 100))["reward"] == 1.0
    release.set()


@pytest.mark.parametrize("swallows", [True, False])
@pytest.mark.parametrize("timeout_s", [None, 250])
async def test_a_function_with_a_signal_alarm_of_its_own_keeps_working(swallows, timeout_s):
    """Outside the main thread Python refuses signals, and many graders make a 0.0 of every exception."""

    def graded(state):
        try:
            before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
            signal.setitimer(signal.ITIMER_REAL, 250)
            time.sleep(0.03)  # slow enough to be moved to a thread
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        except ValueError:
            if swallows:
                return 0.0
            raise
        return 1.0

    rubric = vf.Rubric([graded], timeout_s=timeout_s)
    for _ in range(3):
        state = state_of()
        await rubric.score_rollout(state)
        assert state["reward"] == 1.0


async def test_a_grader_on_math_verify_keeps_working():
    from math_verify import parse, verify

    def grade(answer):
        time.sleep(0.03)
        return float(verify(parse("$\\frac{1}{2}$"), parse(f"${answer}$")))

    rubric = vf.Rubric([grade])
    for _ in range(3):
        state = state_of("0.5")
        await rubric.score_rollout(state)
        assert state["reward"] == 1.0
