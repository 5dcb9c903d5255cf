"""What ends a rollout from outside: the context, budgets of tokens and time; and contexts that an author rewrites."""

import asyncio
import time

import pytest
from waiting import steady

import verifiers as vf
from verifiers.recording import Origin, record_of
from verifiers.records import EnvInfo, decode_record, encode_record
from verifiers.types import AssistantMessage, Response, SystemMessage, Usage, UserMessage

ROWS = [{"question": "q w e", "answer": "a"}]
ORIGIN = Origin(env=EnvInfo(name="demo"))
OVERLONG = vf.OverlongPromptError("4096 tokens are the most; the answer is 42")


async def roll(env, client, **sampling):
    return await env.rollout(env.train_rows()[0], client, "m", sampling or None)


def texts(messages):
    return [m["content"] for m in messages]


class Echo(vf.MultiTurnEnv):
    def __init__(self, **kwargs):
        kwargs.setdefault("rubric", vf.Rubric(funcs=[lambda completion: float(len(completion))]))
        super().__init__(dataset=ROWS, **kwargs)

    async def env_response(self, messages, state, **kwargs):
        return "go on"


# --- a context that is full


async def test_a_full_context_ends_the_rollout_which_is_scored_with_what_was_there():
    env = Echo()
    (output,) = (await env.evaluate(vf.ScriptedClient(["one", "two", OVERLONG]), "m"))["outputs"]
    assert output["stop_condition"] == "prompt_too_long" and output["is_truncated"] and output["error"] is None
    assert texts(output["completion"]) == ["one", "go on", "two", "go on"] and output["reward"] == 4.0
    assert "42" not in str(output["completion"])


async def test_a_full_context_with_nothing_to_score_is_a_failure_and_no_zero():
    (output,) = (await Echo().evaluate(vf.ScriptedClient(OVERLONG), "m"))["outputs"]
    assert output["reward"] is None and output["status"] == "failed" and output["completion"] == []
    assert output["stop_condition"] == "prompt_too_long" and output["is_truncated"]
    assert output["error"]["error"] == "OverlongPromptError" and output["error"]["side"] == "model"


async def test_a_full_context_before_the_first_turn_is_a_failure_too():
    class Env(Echo):
        async def setup_state(self, state):
            raise OVERLONG

    client = vf.ScriptedClient("x")
    state = await roll(Env(), client)
    assert state["error"] is OVERLONG and client.requests == [] and state["is_completed"]


@pytest.mark.parametrize("with_tokens", [True, False], ids=["token ids", "usage alone"])
async def test_max_seq_len_ends_the_rollout_and_cuts_the_tokens(with_tokens):
    client = vf.ScriptedClient("a b c d", with_tokens=with_tokens)
    state = await roll(Echo(max_seq_len=16), client)
    assert state["stop_condition"] == "prompt_too_long" and state["is_truncated"]
    assert len(state["trajectory"]) == 2
    if with_tokens:
        lengths = [len(s["tokens"]["prompt_ids"]) + len(s["tokens"]["completion_ids"]) for s in state["trajectory"]]
        assert max(lengths) == 16 and state["trajectory"][-1]["is_truncated"]


# --- tokens


async def test_a_token_budget_bounds_the_rollout_and_each_request():
    client = vf.ScriptedClient(lambda request: " ".join("x" * 10))  # 12 tokens with the marks
    state = await roll(Echo(max_total_completion_tokens=30), client, max_tokens=20)
    assert [request.sampling["max_tokens"] for request in client.requests] == [20, 18, 6]
    assert state["stop_condition"] == "max_total_completion_tokens_reached" and state["is_truncated"]
    assert state["usage"]["output_tokens"] == 36


async def test_the_budget_lowers_the_limit_under_its_own_name():
    client = vf.ScriptedClient("x")
    await roll(Echo(max_turns=1, max_total_completion_tokens=30), client, max_completion_tokens=50)
    await roll(Echo(max_turns=1, max_total_completion_tokens=30), client)
    await roll(Echo(max_turns=1), client)
    sent = [r.sampling for r in client.requests]
    assert sent == [{"max_completion_tokens": 30}, {"max_tokens": 30}, {}]


# --- time


async def test_time_that_is_up_ends_the_rollout_which_is_scored_with_what_was_there():
    async def slower(request):
        await asyncio.sleep(0.0 if len(client.requests) < 3 else 0.6)
        return "x"

    client = vf.ScriptedClient(slower)
    (output,) = (await Echo(timeout_s=0.5).evaluate(client, "m"))["outputs"]
    assert output["stop_condition"] == "timeout_reached" and output["is_truncated"] and output["error"] is None
    assert output["reward"] == len(output["completion"]) > 0


async def test_an_environment_that_hangs_is_given_up_when_time_is_up():
    class Hangs(Echo):
        async def env_response(self, messages, state, **kwargs):
            await asyncio.sleep(250)

    began = time.monotonic()
    state = await roll(Hangs(timeout_s=0.5), vf.ScriptedClient("x"))
    assert time.monotonic() - began < 100
    assert (
        state["stop_condition"] == "timeout_reached" and state["error"] is None and texts(state["completion"]) == ["x"]
    )


async def test_a_setup_that_hangs_says_so():
    class Hangs(Echo):
        async def setup_state(self, state):
            await asyncio.sleep(250)

    state = await roll(Hangs(timeout_s=0.05), vf.ScriptedClient("x"))
    assert "setup_state (in a rollout of at most 0.05 s) took longer than" in str(state["error"])


async def test_a_timeout_of_the_authors_own_is_not_taken_for_ours():
    class Slow(Echo):
        async def env_response(self, messages, state, **kwargs):
            raise TimeoutError("the database")

    state = await roll(Slow(timeout_s=250), vf.ScriptedClient("x"))
    assert "the database" in str(state["error"]) and state["stop_condition"] == "has_error"


@steady(0.03)
async def test_time_spent_queueing_does_not_count():
    async def queued(request):
        await asyncio.sleep(0.06)
        return Response(AssistantMessage("x"), usage=Usage(prompt_tokens=1, completion_tokens=1), queue_s=0.055)

    client = vf.ScriptedClient(queued)
    state = await roll(Echo(timeout_s=0.12, max_turns=4), client)
    assert state["stop_condition"] == "max_turns_reached" and len(state["trajectory"]) == 4
    record = record_of(state, ORIGIN)
    assert record.timing.queue_s == pytest.approx(0.22) and record.timing.total_s > 0.2
    assert [r.budget_s <= 0.12 for r in client.requests] == [True] * 4


# --- contexts that an author rewrites


class Summarised(Echo):
    """From the second turn on the model sees the system message, a summary and nothing else."""

    def __init__(self, **kwargs):
        super().__init__(max_turns=3, system_prompt="S", few_shot=[UserMessage("shot")], **kwargs)

    async def get_prompt_messages(self, state):
        if not state["trajectory"]:
            return await super().get_prompt_messages(state)
        return [SystemMessage("S"), UserMessage(f"summary {len(state['trajectory'])}")]


async def test_a_rewritten_context_keeps_every_turn_as_it_was_sent():
    client = vf.ScriptedClient(["one", "two", "three"], with_tokens=True)
    state = await roll(Summarised(), client)
    assert texts(state["completion"]) == ["summary 2", "three"]  # the last answer is there to be scored
    record = decode_record(encode_record(record_of(state, ORIGIN)))
    assert [texts(turn.prompt) for turn in record.turns] == [texts(r.messages) for r in client.requests]
    assert [texts(turn.completion) for turn in record.turns] == [["one"], ["two"], ["three"]]
    fresh = vf.ScriptedClient(["one", "two", "three"], with_tokens=True)
    for request, step in zip(client.requests, state["trajectory"], strict=True):
        whole = (await fresh.complete(request)).tokens
        assert step["tokens"]["prompt_ids"] == list(whole.prompt_ids)
        assert step["tokens"]["completion_ids"] == list(whole.completion_ids)


@pytest.mark.parametrize("in_place", [True, False])
async def test_what_an_author_adds_to_the_first_prompt_belongs_to_the_prompt(in_place):
    class Env(Echo):
        async def get_prompt_messages(self, state):
            messages = await super().get_prompt_messages(state)
            if state["trajectory"]:
                return messages
            if in_place:
                messages.insert(0, SystemMessage("S"))
                return messages
            return [SystemMessage("S"), *messages]

    client = vf.ScriptedClient(["one", "two"])
    state = await roll(Env(max_turns=2), client)
    record = record_of(state, ORIGIN)
    assert texts(record.prompt) == ["S", "q w e"] and texts(record.messages) == ["one", "go on", "two"]
    assert [(t.start, t.end, t.prompt) for t in record.turns] == [(0, 1, None), (2, 3, None)]
    assert texts(client.requests[1].messages) == ["S", "q w e", "one", "go on"]


async def test_turns_point_into_the_messages_of_the_record():
    state = await roll(Echo(max_turns=3), vf.ScriptedClient(["one", "two", "three"], with_tokens=True))
    record = record_of(state, ORIGIN)
    assert [texts(record.messages[t.start : t.end]) for t in record.turns] == [["one"], ["two"], ["three"]]
    assert [t.tokens.prefix_length > 0 for t in record.turns] == [False, True, True]


async def test_turns_do_not_point_into_a_completion_that_an_author_replaced():
    class Env(Echo):
        async def render_completion(self, state):
            state["completion"] = [AssistantMessage("only this")]

    record = record_of(await roll(Env(max_turns=2), vf.ScriptedClient(["one", "two"])), ORIGIN)
    assert texts(record.messages) == ["only this"]
    assert [texts(t.completion) for t in record.turns] == [["one"], ["two"]]


async def test_tokens_stay_right_when_turns_are_left_out_of_the_trajectory():
    class Env(Echo):
        async def add_trajectory_step(self, state, trajectory_step):
            if trajectory_step["completion"][0]["content"] != "two":
                state["trajectory"].append(trajectory_step)

        @vf.stop
        async def three(self, state):
            return len(state["trajectory"]) == 2

    client = vf.ScriptedClient(["one", "two", "three"], with_tokens=True)
    state = await roll(Env(), client)
    whole = (await vf.ScriptedClient("three", with_tokens=True).complete(client.requests[2])).tokens
    assert state["trajectory"][1]["tokens"]["prompt_ids"] == list(whole.prompt_ids)
    assert record_of(state, ORIGIN).turns[1].tokens == whole
