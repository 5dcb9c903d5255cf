"""The rollout loop: the order of things, what the conversation holds, and that a failure ends one rollout."""

import asyncio

import pytest

import verifiers as vf
from verifiers.types import AssistantMessage, ToolMessage, UserMessage

ROWS = [{"question": "q", "answer": "a"}]


def says(*texts):
    return vf.ScriptedClient(list(texts), cycle=False)


async def roll(env, client, **sampling):
    return await env.rollout(env.train_rows()[0], client, "m", sampling or None)


def texts(messages):
    return [m["content"] for m in messages]


class Echo(vf.MultiTurnEnv):
    def __init__(self, **kwargs):
        super().__init__(dataset=ROWS, **kwargs)

    async def env_response(self, messages, state, **kwargs):
        state.setdefault("answered", []).append(messages[-1]["content"])
        return [{"role": "user", "content": f"you said {messages[-1]['content']}"}]


# --- order of the loop


async def test_the_environment_answers_before_the_next_turn_and_not_after_the_last():
    client = says("one", "two", "three")
    state = await roll(Echo(max_turns=3), client)
    assert state["answered"] == ["one", "two"]
    assert texts(state["completion"]) == ["one", "you said one", "two", "you said two", "three"]
    assert [texts(r.messages) for r in client.requests[1:]] == [
        ["q", "one", "you said one"], ["q", "one", "you said one", "two", "you said two"],
    ]  # fmt: skip
    assert state["stop_condition"] == "max_turns_reached" and state["is_completed"] and not state["is_truncated"]
    assert [texts(step["prompt"]) for step in state["trajectory"]] == [texts(r.messages) for r in client.requests]


async def test_max_turns_is_unlimited_for_games_ten_for_tools_and_one_for_questions():
    assert Echo().max_turns == -1
    assert vf.ToolEnv(dataset=ROWS).max_turns == vf.StatefulToolEnv(dataset=ROWS).max_turns == 10
    assert vf.SingleTurnEnv(dataset=ROWS, max_turns=5).max_turns == 1

    class Ends(Echo):
        @vf.stop
        async def enough(self, state):
            return len(state["trajectory"]) == 25

    assert len((await roll(Ends(), vf.ScriptedClient("x")))["trajectory"]) == 25


@pytest.mark.parametrize("kind", ["None", "same", "new state", "plain dict", "sync"])
async def test_setup_state_may_return_the_state_a_new_one_or_nothing(kind):
    class Env(Echo):
        async def setup_state(self, state, **kwargs):
            state["mine"] = 1
            if kind == "new state":
                return vf.State(dict(state))
            return {"None": None, "same": state, "plain dict": {**state}}[kind]

    class SyncEnv(Echo):
        def setup_state(self, state):
            state["mine"] = 1
            return super().setup_state(state)

    state = await roll(SyncEnv(max_turns=1) if kind == "sync" else Env(max_turns=1), says("x"))
    assert state["error"] is None and state["mine"] == 1 and texts(state["completion"]) == ["x"]
    assert state["answer"] == "a"


async def test_a_prompt_that_setup_state_wrote_is_the_prompt():
    class Env(Echo):
        async def setup_state(self, state):
            state["prompt"] = [*state["prompt"], {"role": "user", "content": "extra"}]

    client = says("x")
    state = await roll(Env(max_turns=1), client)
    assert texts(client.requests[0].messages) == ["q", "extra"] and texts(state["completion"]) == ["x"]


@pytest.mark.parametrize(
    ("answer", "heard"),
    [
        ([{"role": "user", "content": "u"}, vf.UserMessage("v")], ["u", "v"]),
        ({"role": "user", "content": "u"}, ["u"]),
        ("u", ["u"]),
        (([{"role": "user", "content": "u"}], {"score": 7}), ["u"]),
        (("u", {"score": 7}), ["u"]),
        ([], []),
        (None, []),
    ],
    ids=["list", "dict", "str", "tuple of old", "str in a tuple", "empty", "None"],
)
async def test_every_shape_that_env_response_ever_had_is_understood(answer, heard):
    class Env(Echo):
        def env_response(self, messages, state, **kwargs):
            return answer

    state = await roll(Env(max_turns=2), says("one", "two"))
    assert state["error"] is None and texts(state["completion"]) == ["one", *heard, "two"]
    assert state.get("score") == (7 if isinstance(answer, tuple) else None)


async def test_a_final_answer_of_the_environment_costs_no_model_call_and_is_there_once():
    class Env(Echo):
        async def env_response(self, messages, state, **kwargs):
            state["final_env_response"] = [{"role": "user", "content": "game over"}]
            return state["final_env_response"]

    client = says("one")
    state = await roll(Env(), client)
    assert len(client.requests) == 1 and texts(state["completion"]) == ["one", "game over"]
    assert state["stop_condition"] == "has_final_env_response"


async def test_a_stop_that_the_answer_brought_about_costs_no_model_call():
    class Env(Echo):
        asked = 0

        async def env_response(self, messages, state, **kwargs):
            state["done"] = True
            return "DONE"

        @vf.stop
        async def is_done(self, state):
            self.asked += 1
            return state.get("done", False)

    env, client = Env(), says("one")
    state = await roll(env, client)
    assert len(client.requests) == 1 and state["stop_condition"] == "is_done"
    assert texts(state["completion"]) == ["one", "DONE"]
    assert env.asked == 3  # before the first turn, after it, after the answer


async def test_num_turns_is_reported_and_weighs_nothing():
    results = await Echo(max_turns=3).evaluate(vf.ScriptedClient("x"), "m")
    assert results["outputs"][0]["num_turns"] == 3.0 and results["outputs"][0]["reward"] == 0.0


# --- is_completed, in both styles


class OldStyle(Echo):
    """As environments before 0.1.8 were written."""

    async def is_completed(self, messages, state, **kwargs):
        return await super().is_completed(messages, state, **kwargs) or "two" in messages[-1]["content"]


class OldStyleAlone(Echo):
    def is_completed(self, messages, state, **kwargs):
        return messages[-1]["content"] == "two" and state["turn"] == 2


class NewStyle(Echo):
    async def is_completed(self, state, **kwargs):
        return await super().is_completed(state) or len(state["trajectory"]) == 2


class NewStyleAlone(Echo):
    async def is_completed(self, state, **kwargs):
        return len(state["trajectory"]) == 2


STYLES = pytest.mark.parametrize("env", [OldStyle, OldStyleAlone, NewStyle, NewStyleAlone])


@STYLES
async def test_an_overridden_is_completed_ends_the_rollout(env):
    state = await roll(env(), says("one", "two"))
    assert state["error"] is None and len(state["trajectory"]) == 2
    assert state["is_completed"] is True and state["stop_condition"] == "is_completed"


@STYLES
async def test_an_overridden_is_completed_does_not_switch_off_max_turns_or_errors(env):
    assert (await roll(env(max_turns=1), says("one")))["stop_condition"] == "max_turns_reached"
    client = vf.ScriptedClient(vf.ModelUnavailableError("down"))
    state = await asyncio.wait_for(roll(env(), client), 60)
    assert len(client.requests) == 1 and state["stop_condition"] == "has_error"


# --- failures end one rollout


async def test_an_exception_of_the_author_ends_only_its_rollout():
    class Env(Echo):
        async def env_response(self, messages, state, **kwargs):
            if state["example_id"] == 1:
                raise ZeroDivisionError("in the game")
            return "go on"

    env = Env(max_turns=2)
    rows = [{**env.train_rows()[0], "example_id": i} for i in range(3)]
    outputs = (await env.generate(rows, vf.ScriptedClient("x"), "m"))["outputs"]
    assert [o["reward"] for o in outputs] == [0.0, None, 0.0]
    failure = outputs[1].record.errors[0]
    assert (failure.side, failure.type) == ("environment", "EnvironmentFault")
    assert failure.message == "ZeroDivisionError: in the game"
    assert texts(outputs[1]["completion"]) == ["x"]  # what there was is kept


@pytest.mark.parametrize("error", [vf.ModelUnavailableError("down"), vf.SandboxError("gone"), vf.ToolCallError("no")])
async def test_an_error_of_ours_is_recorded_as_it_is(error):
    state = await roll(Echo(max_turns=2), says("one", error))
    assert state["error"] is error and state["stop_condition"] == "has_error" and len(state["trajectory"]) == 1


async def test_a_broken_stop_condition_costs_no_further_model_call():
    class Env(Echo):
        @vf.stop
        async def broken(self, state):
            return state["no such key"]

    client = says("one")
    state = await roll(Env(), client)
    assert client.requests == [] and isinstance(state["error"], vf.EnvironmentFault)


# --- what stays in the conversation


async def test_reasoning_is_kept_and_sent_back():
    reply = {"content": "one", "reasoning_content": "hm"}
    client = says(reply, "two")
    state = await roll(Echo(max_turns=2), client)
    assert client.requests[1].messages[1] == {"role": "assistant", **reply}
    assert state["completion"][0]["reasoning_content"] == "hm"


async def test_tool_messages_of_the_environment_are_in_the_completion():
    class Env(Echo):
        async def env_response(self, messages, state, **kwargs):
            return [ToolMessage("r", tool_call_id="c"), UserMessage("u")]

    state = await roll(Env(max_turns=2), says("one", "two"))
    assert [m["role"] for m in state["completion"]] == ["assistant", "tool", "user", "assistant"]


async def test_history_is_shared_by_the_turns_and_requests():
    env = Echo(max_turns=50)
    state = await roll(env, vf.ScriptedClient(lambda request: AssistantMessage("x" * 10)))
    histories = {id(step.history) for step in state["trajectory"]}
    assert len(histories) == 1 and all("prompt" not in dict(step) for step in state["trajectory"])
    assert [len(step["prompt"]) for step in state["trajectory"]] == list(range(1, 101, 2))
