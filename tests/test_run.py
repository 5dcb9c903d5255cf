"""Many rollouts: how many at once, which seeds, what a failure costs, and how a run is stopped."""

import asyncio
from collections import Counter

import pytest
from waiting import until

import verifiers as vf
from verifiers.errors import ModelNotFoundError
from verifiers.run import Run


def rows(count):
    return [{"question": f"q{i}", "answer": str(i)} for i in range(count)]


def right(completion, answer):
    return float(completion[-1]["content"] == answer)


def env_of(count=3, funcs=(right,), **options):
    return vf.SingleTurnEnv(dataset=rows(count), rubric=vf.Rubric(list(funcs)), **options)


def run_of(env, client, **options):
    return Run(env, env.train_rows(), client=client, model="m", **options)


def number_asked(request) -> str:
    return request.messages[-1].content.removeprefix("q")


class Counting:
    """A script that notes how many requests were in flight."""

    def __init__(self):
        self.now = self.most = 0

    async def __call__(self, request):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        return number_asked(request)


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (3, 3), (100, 12), (-1, 12)])
async def test_no_more_rollouts_are_in_flight_than_asked_for(limit, most):
    counting = Counting()
    records = await run_of(env_of(12), vf.ScriptedClient(counting), max_concurrent=limit).execute()
    assert counting.most == most and [r.reward for r in records] == [1.0] * 12


async def test_records_come_in_the_order_of_examples_and_tries():
    others_are_done = asyncio.Event()

    async def later_first(request):
        if number_asked(request) != "2":
            await others_are_done.wait()
        return "x"

    kept = []

    def keep(record):
        kept.append(record)
        others_are_done.set()

    run = run_of(env_of(3), vf.ScriptedClient(later_first), rollouts_per_example=2, on_record=keep)
    records = await run.execute()
    assert [r.key for r in records] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert kept[0].example_id == 2 and run.done == run.total == len(kept) == 6


async def seeds(count, tries=2, seed=0):
    client = vf.ScriptedClient("x")
    records = await run_of(env_of(count), client, rollouts_per_example=tries, seed=seed).execute()
    assert {r.seed for r in records} == {request.seed for request in client.requests}
    return {record.key: record.seed for record in records}


async def test_seeds_differ_by_rollout_and_stay_when_the_run_grows():
    few, many = await seeds(3), await seeds(6, tries=3)
    assert {key: many[key] for key in few} == few == await seeds(3)
    assert len(set(many.values())) == 18
    assert not set((await seeds(3, seed=1)).values()) & set(few.values())


async def test_an_authors_randomness_repeats():
    class Dice(vf.SingleTurnEnv):
        async def setup_state(self, state):
            state["dice"] = state.rng.randint(1, 10**9)

    async def thrown():
        env = Dice(dataset=rows(3), rubric=vf.Rubric())
        results = await env.evaluate(vf.ScriptedClient("x"), "m", rollouts_per_example=2, state_columns=["dice"])
        return [o["dice"] for o in results["outputs"]]

    first = await thrown()
    assert first == await thrown() and len(set(first)) == 6


# --- failures


async def test_a_failed_rollout_is_not_zero_and_its_siblings_go_on():
    client = vf.ScriptedClient(lambda r: vf.ModelUnavailableError("503") if number_asked(r) == "1" else number_asked(r))
    records = await run_of(env_of(4), client).execute()
    assert [r.reward for r in records] == [1.0, None, 1.0, 1.0]
    assert [r.status for r in records] == ["scored", "failed", "scored", "scored"]
    assert (records[1].errors[0].type, records[1].errors[0].side) == ("ModelUnavailableError", "model")


async def test_a_failed_reward_is_not_zero():
    def reward(answer):
        return 1 / int(answer)

    records = await run_of(env_of(3, [reward]), vf.ScriptedClient("x")).execute()
    assert [(r.reward, r.status) for r in records] == [(None, "fault"), (1.0, "scored"), (0.5, "scored")]
    assert records[0].scores[0].reason == "raised ZeroDivisionError: division by zero" and records[0].errors == []


async def test_a_rubric_that_raises_costs_only_its_rollout():
    class Broken(vf.Rubric):
        async def score_rollout(self, state):
            await super().score_rollout(state)
            if state["answer"] == "1":
                raise RuntimeError("no grader")

    env = vf.SingleTurnEnv(dataset=rows(3), rubric=Broken([right]))
    records = await run_of(env, vf.ScriptedClient(number_asked)).execute()
    assert [r.reward for r in records] == [1.0, None, 1.0] and "no grader" in records[1].scores[0].reason


@pytest.mark.parametrize("where", ["init_state", "rollout"])
async def test_a_loop_of_the_authors_own_that_raises_costs_only_its_rollout(where):
    class Own(vf.SingleTurnEnv):
        async def init_state(self, input, client, model, sampling_args=None):
            if where == "init_state" and input["example_id"] == 1:
                raise RuntimeError("cannot begin")
            return await super().init_state(input, client, model, sampling_args)

        async def rollout(self, input, client, model, sampling_args=None):
            if where == "rollout" and input["example_id"] == 1:
                raise RuntimeError("cannot begin")
            return await super().rollout(input, client, model, sampling_args)

    env = Own(dataset=rows(3), rubric=vf.Rubric([right]))
    records = await run_of(env, vf.ScriptedClient(number_asked)).execute()
    assert [r.reward for r in records] == [1.0, None, 1.0]
    assert records[1].status == "failed" and records[1].stop_condition == "has_error"
    assert records[1].errors[0].message == "RuntimeError: cannot begin"
    assert records[1].prompt == [{"role": "user", "content": "q1"}]


RETRIED = [vf.ModelUnavailableError, vf.ModelTimeoutError, vf.InvalidModelResponseError, vf.SandboxError]


@pytest.mark.parametrize("error", [*RETRIED, vf.ModelRequestError, vf.ToolCallError, KeyError])
async def test_only_failures_that_may_pass_are_tried_again(error):
    client = vf.ScriptedClient([error("once"), error("twice"), "0"], cycle=False)
    (record,) = await run_of(env_of(1), client, max_retries=2).execute()
    is_retried = error in RETRIED
    assert len(client.requests) == (3 if is_retried else 1)
    assert (record.attempt, record.reward) == ((2, 1.0) if is_retried else (0, None))


async def test_retries_end():
    client = vf.ScriptedClient(vf.ModelUnavailableError("down"))
    (record,) = await run_of(env_of(1), client, max_retries=2).execute()
    assert len(client.requests) == 3 and (record.status, record.attempt) == ("failed", 2)


@pytest.mark.parametrize("error", [vf.AuthenticationError("wrong key"), ModelNotFoundError("no model m")])
async def test_an_error_that_concerns_every_rollout_stops_the_run(error):
    async def refused(request):
        await asyncio.sleep(0.01)
        return error

    client = vf.ScriptedClient(refused)
    run = run_of(env_of(50), client, max_concurrent=5)
    assert await run.execute() == [] and run.fatal is error and len(client.requests) <= 5
    with pytest.raises(type(error)):
        await env_of(50).evaluate(client, "m", max_concurrent=5)


async def test_a_refusal_in_the_middle_of_a_rollout_is_its_own_failure():
    class Two(vf.MultiTurnEnv):
        async def env_response(self, messages, state, **kwargs):
            return "go on"

    env = Two(dataset=rows(2), max_turns=2, rubric=vf.Rubric([lambda state: 1.0]))

    def reply(request):
        return vf.AuthenticationError("expired") if len(request.messages) > 1 and "q0" in str(request.messages) else "x"

    run = run_of(env, vf.ScriptedClient(reply))
    assert [r.reward for r in await run.execute()] == [None, 1.0] and run.fatal is None


# --- stopping


async def test_stop_cancels_what_runs_cleans_up_and_keeps_what_is_done():
    cleaned = []

    class Env(vf.SingleTurnEnv):
        @vf.cleanup
        async def close(self, state):
            await asyncio.sleep(0.01)
            cleaned.append(state["example_id"])

    async def reply(request):
        await asyncio.sleep(0.01 if number_asked(request) == "0" else 250)
        return "x"

    env = Env(dataset=rows(10), rubric=vf.Rubric())
    client = vf.ScriptedClient(reply)
    run = run_of(env, client, max_concurrent=4)
    task = asyncio.create_task(run.execute())
    await until(lambda: run.done == 1 and len(client.requests) == 5, by=task)
    assert run.in_flight == 4 and run.waiting == {"scoring": 0, "rollout": 4}
    run.stop()
    run.stop()
    records = await asyncio.wait_for(task, 100)
    assert [r.example_id for r in records] == [0] and sorted(cleaned) == [0, 1, 2, 3, 4] and run.fatal is None


async def test_cancelling_a_run_leaves_nothing_running():
    before = asyncio.all_tasks()
    task = asyncio.create_task(run_of(env_of(5), vf.ScriptedClient("x", delay_s=60)).execute())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


# --- scoring


async def test_a_group_is_scored_together_once_all_its_rollouts_have_ended():
    sizes = []

    def rank(states):
        sizes.append(len(states))
        return [float(i) for i in range(len(states))]

    records = await run_of(env_of(3, [rank]), vf.ScriptedClient("x"), rollouts_per_example=4).execute()
    assert sizes == [4, 4, 4] and Counter(r.reward for r in records) == {0.0: 3, 1.0: 3, 2.0: 3, 3.0: 3}


async def test_a_failed_member_keeps_no_group_from_its_scores():
    replies = iter(["x", vf.ModelUnavailableError("down"), "x"])
    client = vf.ScriptedClient(lambda request: next(replies))
    env = env_of(1, [lambda states: [float(len(states))] * len(states)])
    records = await run_of(env, client, rollouts_per_example=3, max_concurrent=1).execute()
    assert [r.reward for r in records] == [2.0, None, 2.0]


async def test_independent_scoring_is_refused_for_a_group_reward_and_scores_others():
    together = env_of(1, [lambda states: [1.0] * len(states)])
    with pytest.raises(vf.ConfigError, match="this rubric scores the tries of an example together"):
        run_of(together, vf.ScriptedClient("x"), rollouts_per_example=2, independent_scoring=True)
    records = await run_of(
        env_of(1), vf.ScriptedClient("0"), rollouts_per_example=2, independent_scoring=True
    ).execute()
    assert [r.reward for r in records] == [1.0] * 2


@pytest.mark.parametrize("how", ["environment", "run"])
async def test_scoring_can_be_switched_off(how):
    env = env_of(2, [lambda state: pytest.fail("must not be asked")], score_rollouts=how != "environment")
    records = await run_of(env, vf.ScriptedClient("x"), score=how != "run").execute()
    assert [(r.reward, r.status, r.scores) for r in records] == [(None, "unscored", [])] * 2
