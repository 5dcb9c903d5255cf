"""Environments and callers of every release since 0.1.3 run as they were written."""

import asyncio
import json
from pathlib import Path

import pytest
from loopback import Loopback
from openai import AsyncOpenAI, OpenAI

import verifiers as vf
from verifiers.errors import ConfigError

ROWS = [{"question": "q", "answer": "a"}]
GENERATIONS = Path(__file__).parent / "data" / "generations"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(GENERATIONS)
    return vf.load_environment


def says(*texts):
    return vf.ScriptedClient(list(texts), cycle=False)


def texts(messages):
    return [m["content"] for m in messages]


async def roll(env, client):
    return await env.rollout(env.train_rows()[0], client, "m")


def calls(*named):
    return {"content": None, "tool_calls": [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for i, (name, args) in enumerate(named)
    ]}  # fmt: skip


# --- whole environments


async def test_an_environment_of_0_1_3_runs_as_it_was_written(load):
    env = load("g1-number-hunt")
    results = await env.evaluate(says("<guess>9</guess>", "<guess>42</guess>", "never asked"), "m", num_examples=1)
    assert results["reward"] == [pytest.approx(1.1)] and results["turns"] == [1.0]
    assert texts(results.completion[0]) == ["<guess>9</guess>", "higher", "<guess>42</guess>", "yes"]
    assert results.task == ["hunt"] and results.answer == ["42"] and results.metadata.num_examples == 1
    assert [step[:3] for step in env.seen] == [
        ("is_completed", 0, 2),
        ("is_completed", 1, 3), ("env_response", 1, 3), ("is_completed", 1, 4),
        ("is_completed", 2, 5), ("env_response", 2, 5), ("is_completed", 2, 6),
    ]  # fmt: skip
    assert [step[3] for step in env.seen if step[0] == "is_completed"] == [0, 1, 2, 3, 4]  # a completion that grows


async def test_super_is_completed_of_0_1_3_keeps_to_max_turns(load):
    env = load("g1-number-hunt", max_turns=2)
    state = await roll(env, says("<guess>1</guess>", "<guess>2</guess>"))
    assert texts(state["completion"]) == ["<guess>1</guess>", "higher", "<guess>2</guess>"]
    assert state["stop_condition"] == "max_turns_reached"


async def test_an_environment_of_0_1_8_runs_as_it_was_written(load):
    env = load("g2-till")
    client = says(calls(("charge", {"cents": 40})), calls(("charge", {"cents": 60, "till": {"cents": 999}})), "yes!")
    results = await env.evaluate(client, "m")
    assert results["reward"] == [1.5] and results["stop_conditions"] == ["is_full"] and env.closed == [100]
    assert texts(results["completion"][0])[1::2] == ["40 in the till", "100 in the till"]
    assert client.requests[0].tools[0]["name"] == "charge"
    assert list(client.requests[0].tools[0]["parameters"]["properties"]) == ["cents"]
    assert client.requests[-1].sampling == {"temperature": 0.0}


async def test_an_environment_of_0_1_11_runs_as_it_was_written(load):
    env = load("g3-quiz")
    client = says("ready", "Paris", "Lima", "never asked")
    results = await env.evaluate(client, "m")
    assert results["outputs"][0]["reward"] == 1.0 and len(client.requests) == 3
    assert texts(results["outputs"][0]["completion"])[-2:] == ["Lima", "That was all."]
    assert client.requests[0].tools[0].name == "look_up"


# --- is_completed and env_response


class Once(vf.MultiTurnEnv):
    """Its `is_completed` waits for what the environment wrote about the last reply, and asks nobody for max_turns."""

    def __init__(self, **kwargs):
        super().__init__(dataset=ROWS, **kwargs)

    async def env_response(self, messages, state, **kwargs):
        state["heard"] = messages[-1]["content"]
        return [{"role": "user", "content": f"heard {state['heard']}"}], state


async def test_before_0_1_8_the_environment_also_answers_the_last_allowed_turn():
    class Old(Once):
        async def is_completed(self, messages, state, **kwargs):
            return state.get("heard") == "done"

    state = await roll(Old(max_turns=2), says("one", "done"))
    assert state["heard"] == "done" and state["stop_condition"] == "is_completed"
    assert texts(state["completion"]) == ["one", "heard one", "done", "heard done"]
    state = await roll(Old(max_turns=2), says("one", "two", "never asked"))
    assert state["heard"] == "two" and state["stop_condition"] == "max_turns_reached"


async def test_since_0_1_8_it_does_not():
    class New(Once):
        async def is_completed(self, state, **kwargs):
            return await super().is_completed(state, **kwargs) or state.get("heard") == "done"

    state = await roll(New(max_turns=2), says("one", "done"))
    assert state["heard"] == "one" and state["stop_condition"] == "max_turns_reached"


async def test_a_question_has_one_turn_whatever_its_is_completed_says():
    class Old(vf.SingleTurnEnv):
        def is_completed(self, messages, state, **kwargs):
            return False

    state = await roll(Old(dataset=ROWS), says("one"))
    assert state["error"] is None and state["stop_condition"] == "max_turns_reached"


async def test_a_broken_server_ends_a_rollout_of_the_old_kind():
    class Old(Once):
        async def is_completed(self, messages, state, **kwargs):
            return False

    client = vf.ScriptedClient([vf.ModelError("gone")])
    state = await roll(Old(), client)
    assert isinstance(state["error"], vf.ModelError) and len(client.requests) == 1 and "heard" not in state


async def test_stop_conditions_may_be_asked_by_name():
    class Old(Once):
        async def is_completed(self, messages, state, **kwargs):
            return await self.prompt_too_long(state) or await self.max_turns_reached(state)

    state = await roll(Old(max_turns=1), says("one"))
    assert "heard" not in state and len(state["trajectory"]) == 1


async def test_post_rollout_comes_after_the_completion_and_before_the_clean_up():
    class Env(Once):
        async def post_rollout(self, state):
            state["order"] = [("post_rollout", len(state["completion"]))]

        @vf.cleanup
        async def tidy(self, state):
            state["order"].append(("tidy", len(state["completion"])))

    assert (await roll(Env(max_turns=1), says("one")))["order"] == [("post_rollout", 1), ("tidy", 1)]


async def test_get_prompt_messages_may_be_overridden_in_every_way_seen():
    class Fresh(Once):
        async def get_prompt_messages(self, state):
            if len(state["trajectory"]) == 0:
                return state["prompt"]
            last = state["trajectory"][-1]
            messages = last["prompt"] + last["completion"]
            return [*messages, *(await self.env_response(messages, state))[0]]

    class Filtered(Once):
        async def get_prompt_messages(self, state):
            return [m for m in await super().get_prompt_messages(state) if "heard" not in m.content]

    assert texts((await roll(Fresh(max_turns=2), says("one", "two")))["completion"]) == ["one", "heard one", "two"]
    client = says("one", "two")
    await roll(Filtered(max_turns=2), client)
    assert texts(client.requests[1].messages) == ["q", "one"]


# --- tools


LOOK = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("given", [LOOK, {"name": "look", "parameters": {"type": "object"}}, vf.Tool(name="look")])
@pytest.mark.parametrize("keyword", ["oai_tools", "tool_defs"])
async def test_tools_are_offered_by_either_name_in_either_shape(keyword, given):
    client = says("one")
    env = Once(max_turns=1, **{keyword: [given]})
    state = await roll(env, client)
    assert client.requests[0].tools[0]["name"] == "look"
    assert env.oai_tools[0]["function"]["name"] == state["oai_tools"][0]["function"]["name"] == "look"


@pytest.mark.parametrize("key", ["oai_tools", "tool_defs"])
async def test_a_row_has_tools_of_its_own(key):
    class Env(Once):
        pass

    env = Env(max_turns=1, oai_tools=[{"name": "of_all"}])
    env.dataset = [{"question": "q", "info": {key: [LOOK]}}, {"question": "q", "info": json.dumps({key: [LOOK]})}]
    for row in env.train_rows():
        client = says("one")
        await env.rollout(row, client, "m")
        assert [tool["name"] for tool in client.requests[0].tools] == ["look"]


@pytest.mark.parametrize("place", ["info", "oai_tools", "tool_defs"])
async def test_setup_state_may_choose_the_tools(place):
    class Env(Once):
        async def setup_state(self, state, **kwargs):
            if place == "info":
                state["info"]["oai_tools"] = [LOOK]
            else:
                state[place] = [LOOK]
            return state

    env = Env(max_turns=1)
    env.dataset = [{"question": "q", "info": {"oai_tools": [{"name": "of_the_row"}], "a": 1}}]
    client = says("one")
    await roll(env, client)
    assert [tool["name"] for tool in client.requests[0].tools] == ["look"]


def test_the_environments_tools_may_be_set_by_the_old_name():
    env = Once()
    assert env.oai_tools is None
    env.oai_tools = [LOOK]
    assert env.tool_defs[0]["name"] == "look"


# --- the model call


async def test_get_model_response_may_be_overridden_and_called_with_the_parameters_of_0_1_3():
    class Old(Once):
        async def get_model_response(
            self, client, model, prompt, oai_tools=None, sampling_args=None, message_type=None, **kwargs
        ):
            assert model == "m" and message_type == "chat" and oai_tools[0]["function"]["name"] == "look"
            prompt = [*prompt, {"role": "user", "content": "Be brief."}]
            return await super().get_model_response(
                client, model, prompt, oai_tools, {**sampling_args, "temperature": 0.5}, message_type, **kwargs
            )

    client = says("one")
    state = await roll(Old(max_turns=1, oai_tools=[LOOK]), client)
    assert (
        texts(client.requests[0].messages) == ["q", "Be brief."] and client.requests[0].sampling["temperature"] == 0.5
    )
    assert client.requests[0].affinity == state["trajectory_id"] and texts(state["completion"]) == ["one"]


async def test_an_override_may_ask_somebody_elses_client():
    class Old(Once):
        async def get_model_response(self, client, model, prompt, **kwargs):
            return await self.other.chat.completions.create(model=model, messages=prompt)

    with Loopback(lambda body: f"to {body['messages'][-1]['content']}") as server:
        env = Old(max_turns=1)
        async with AsyncOpenAI(base_url=server.url, api_key="k") as env.other:
            state = await roll(env, says("never asked"))
    assert texts(state["completion"]) == ["to q"] and state["usage"]["output_tokens"] == 4


async def test_an_author_may_ask_the_model_between_turns():
    class Asks(Once):
        async def env_response(self, messages, state, **kwargs):
            said = [{"role": "user", "content": "hint?"}]
            by_place = await self.get_model_response(
                state["client"], state["model"], said, None, {"top_p": 0.5}, "chat"
            )
            by_name = await self.get_model_response(
                client=state["client"], model=state["model"], prompt=said, oai_tools=None, sampling_args={}
            )
            now = await self.get_model_response(state, said)
            return [
                {"role": "user", "content": " ".join(r.choices[0].message.content for r in (by_place, by_name, now))}
            ]

    client = says("one", "A", "B", "C", "two")
    state = await roll(Asks(max_turns=2), client)
    assert texts(state["completion"]) == ["one", "A B C", "two"] and client.requests[1].sampling == {"top_p": 0.5}


async def test_our_clients_answer_to_the_names_of_the_openai_package():
    with Loopback(
        lambda body: {"role": "assistant", "content": f"{body['messages'][0]['content']} {body.get('top_p')}"}
    ) as server:
        for client in (
            vf.as_client(server.url),
            vf.OpenAIChatCompletionsClient(vf.ClientConfig(api_base_url=server.url)),
        ):
            reply = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], top_p=0.5
            )
            assert reply.choices[0].message.content == "hi 0.5" and reply.choices[0].finish_reason == "stop"
            assert reply.usage.total_tokens == 14
            await client.close()
    client = vf.ScriptedClient([calls(("look", {"a": 1}))])
    reply = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], tools=[LOOK])
    assert reply.choices[0].message.tool_calls[0].function.name == "look" and client.requests[0].tools[0].name == "look"
    assert (await vf.ScriptedClient("x").completions.create(model="m", prompt="2 + 2 =")).choices[0].text == "x"


@pytest.mark.parametrize("asked", [{"stream": True}, {"n": 4}])
async def test_what_they_cannot_do_is_refused(asked):
    with pytest.raises(ConfigError):
        await vf.ScriptedClient("x").chat.completions.create(model="m", messages=[], **asked)


# --- clients


@pytest.mark.parametrize("make", [
    lambda url: AsyncOpenAI(base_url=url, api_key="k"),
    lambda url: OpenAI(base_url=url, api_key="k"),
    lambda url: vf.ClientConfig(api_base_url=url, api_key_var="NONE"),
    lambda url: vf.OpenAIChatCompletionsClient(AsyncOpenAI(base_url=url, api_key="k")),
], ids=["AsyncOpenAI", "OpenAI", "ClientConfig", "OpenAIChatCompletionsClient"])  # fmt: skip
async def test_every_kind_of_client_that_was_ever_passed_is_taken(make, monkeypatch):
    monkeypatch.setenv("NONE", "k")

    async def asks_itself(state) -> float:
        return float(hasattr(state["client"], "chat") or isinstance(state["client"], vf.ClientConfig))

    env = vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(funcs=[asks_itself]))
    with Loopback(lambda body: "said") as server:
        results = await env.generate(env.get_dataset(), make(server.url), "m")
    assert texts(results.completion[0]) == ["said"] and results.reward == [1.0]


# --- running


def exact(completion, answer) -> float:
    return float(completion[-1]["content"] == answer)


def single(**kwargs):
    return vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(funcs=[exact]), **kwargs)


@pytest.mark.parametrize("ask", [
    lambda env, client, prompt: env.rollout(client, "m", prompt, "a", "t", {"i": 1}, {"top_p": 0.5}),
    lambda env, client, prompt: env.rollout(
        client=client, model="m", prompt=prompt, answer="a", task="t", info={"i": 1}, sampling_args={"top_p": 0.5}),
    lambda env, client, prompt: env.rollout(
        client, "m", prompt, answer="a", task="t", info={"i": 1}, sampling_args={"top_p": 0.5}),
], ids=["by place", "by name", "mixed"])  # fmt: skip
async def test_rollout_may_be_called_as_in_0_1_3(ask):
    env, client = single(), says("a")
    completion, state = await ask(env, client, [{"role": "user", "content": "hello"}])
    assert texts(completion) == ["a"] and texts(client.requests[0].messages) == ["hello"]
    assert (state["answer"], state["task"], state["info"]) == ("a", "t", {"i": 1})
    assert client.requests[0].sampling == {"top_p": 0.5} and len(state["responses"]) == 1


async def test_rollout_may_be_overridden_as_in_0_1_3():
    class Whole(vf.MultiTurnEnv):
        async def rollout(self, client, model, prompt, answer="", task="", info=None, sampling_args=None, **kwargs):
            reply = await client.chat.completions.create(model=model, messages=prompt)
            message = {"role": "assistant", "content": reply.choices[0].message.content}
            return [message], {"responses": [reply], "turn": 1, "mine": answer}

    class Wraps(Once):
        async def rollout(self, *args, **kwargs) -> tuple[vf.Messages, vf.State]:
            completion, state = await super().rollout(*args, **kwargs)
            state["mine"] = state["answer"]
            return completion, state

    async def mine(state) -> float:
        return float(state["mine"] == "a" and state["turn"] == 1)

    for env in (
        Whole(dataset=ROWS, rubric=vf.Rubric(funcs=[mine])),
        Wraps(max_turns=1, rubric=vf.Rubric(funcs=[mine])),
    ):
        results = await env.generate(env.get_dataset(), says("a"), "m")
        assert results.reward == [1.0] and texts(results.completion[0]) == ["a"] and results.example_id == [0]


async def test_a_member_of_a_group_may_be_of_any_generation():
    class Wraps(Once):
        async def rollout(self, client, model, prompt, **kwargs):
            return [{"role": "assistant", "content": "old"}], {}

    group = vf.EnvGroup([Wraps(rubric=vf.Rubric(funcs=[exact])), single()], env_names=["old", "new"])
    results = await group.generate(group.get_dataset(), says("a"), "m")
    assert sorted(text for c in results.completion for text in texts(c)) == ["a", "old"]


async def test_a_generate_answers_by_columns_and_takes_them():
    columns = {"prompt": [[{"role": "user", "content": c}] for c in "xyz"], "answer": ["a", "a", "b"]}
    results = await single().a_generate(columns, vf.ScriptedClient("a"), "m", {"top_p": 1.0}, max_concurrent=2)
    assert results.reward == results["reward"] == [1.0, 1.0, 0.0] and results.answer == ["a", "a", "b"]
    assert [len(state["responses"]) for state in results.state] == [1, 1, 1]
    assert results.metrics["exact"] == [1.0, 1.0, 0.0] and len(results.prompt) == 3
    assert results.metadata.num_examples == results["metadata"]["num_examples"] == 3


def test_generate_and_evaluate_may_be_called_without_await_as_in_0_1_3():
    client = vf.ScriptedClient("a")
    assert single().generate({"prompt": [[{"role": "user", "content": "x"}]], "answer": ["a"]}, client, "m").reward == [
        1.0
    ]
    results = single().evaluate(client, "m", num_examples=1, rollouts_per_example=2)
    assert len(results.prompt) == 2 and results["reward"] == [1.0, 1.0] and results.metadata.num_examples == 1
    assert len(client.requests) == 3


async def test_results_that_are_awaited_run_once_wherever_they_are_awaited():
    client = vf.ScriptedClient("a")
    tasks = [single().evaluate(client, "m"), asyncio.create_task(single().evaluate(client, "m"))]
    assert not hasattr(tasks[0], "cr_code") and client.requests == []
    assert [results.reward for results in await asyncio.gather(*tasks)] == [[1.0], [1.0]]
    assert len(client.requests) == 2
    late = single().evaluate(vf.ScriptedClient("a"), "m")
    assert asyncio.iscoroutine(late)
    late.close()


async def test_scoring_may_be_left_out_for_one_run():
    results = await single().a_generate(ROWS, vf.ScriptedClient("a"), "m", score_rollouts=False)
    assert results.reward == [None]


def test_client_and_model_may_be_the_environments():
    env = single(client=vf.ScriptedClient("a"), model="m")
    assert env.generate_sync(ROWS).reward == [1.0]
    with pytest.raises(ConfigError, match="model"):
        single().generate_sync(ROWS, vf.ScriptedClient("a"))


# --- rubrics


async def test_score_rollout_may_be_called_as_in_0_1_3():
    prompt, completion = [{"role": "user", "content": "q"}], [{"role": "assistant", "content": "a"}]

    def noted(state) -> float:
        state["noted"] = True
        return 0.5

    plain = vf.Rubric(funcs=[exact, noted], weights=[1.0, 1.0])
    for rubric in (plain, vf.RubricGroup([plain])):
        state = {}
        score = await rubric.score_rollout(prompt, completion, "a", state)
        assert (
            score.reward == score["reward"] == 1.5 and score.metrics == {"exact": 1.0, "noted": 0.5} and state["noted"]
        )
        score = await rubric.score_rollout(
            prompt=prompt, completion=completion, answer="b", state={}, task="t", info={}
        )
        assert score.reward == 0.5
        scores = await rubric.score_rollouts([prompt] * 2, [completion] * 2, ["a", "b"], [{}, {}], ["t"] * 2, [{}] * 2)
        assert scores.reward == [1.5, 0.5] and scores.metrics["exact"] == [1.0, 0.0]


async def test_score_rollout_takes_the_semaphore_that_0_1_9_passed():
    state = await roll(single(), says("a"))
    await vf.Rubric(funcs=[exact]).score_rollout(state, score_sem=None)
    assert state["reward"] == 1.0


@pytest.mark.parametrize("answer", [
    lambda score: score, lambda score: {"reward": score.reward, "metrics": score.metrics}, lambda score: score.reward,
], ids=["object", "dict", "number"])  # fmt: skip
async def test_score_rollout_may_be_overridden_as_in_0_1_3(answer):
    class Old(vf.Rubric):
        async def score_rollout(self, prompt, completion, answer, state, **kwargs):
            return wrapped(await super().score_rollout(prompt, completion, answer, state, **kwargs))

    wrapped = answer
    env = vf.SingleTurnEnv(dataset=ROWS, rubric=Old(funcs=[exact]))
    results = await env.evaluate(says("a"), "m")
    assert results.reward == [1.0] and results.metrics["num_turns"] == [1.0]


async def test_a_judge_may_be_asked_in_a_reward_function():
    rubric = vf.JudgeRubric(judge_client=vf.ScriptedClient("yes"), judge_model="j")

    async def judged(judge, prompt, completion, answer, state) -> float:
        return float("yes" in await judge(prompt, completion, answer, state))

    rubric.add_reward_func(judged, weight=1.0)
    results = await vf.SingleTurnEnv(dataset=ROWS, rubric=rubric).evaluate(says("a"), "m")
    assert results.reward == [1.0]


# --- base models


async def test_a_base_models_prompt_and_completion_are_text():
    class Story(vf.MultiTurnEnv):
        async def is_completed(self, messages, state, **kwargs):
            state.setdefault("told", []).append(state["completion"])
            return state["turn"] == 2

        async def env_response(self, messages, state, **kwargs):
            assert messages == "Once upon"
            return " and", state

    seen = {}

    def length(prompt, completion, state) -> float:
        seen.update(prompt=prompt, completion=completion, starts=state["responses_start_idx"], in_state=state["prompt"])
        return float(len(completion))

    env = Story(dataset=[{"prompt": "Once"}], message_type="completion", rubric=vf.Rubric(funcs=[length]))
    client = vf.ScriptedClient([" upon", " so on"], message_type="completion")
    results = await env.evaluate(client, "m")
    assert seen == {"prompt": "Once", "completion": " upon and so on", "starts": [0, 9], "in_state": "Once"}
    assert results.completion == [" upon and so on"] and results.outputs[0].record.status == "scored"
    assert "".join(texts(client.requests[1].messages)) == "Once upon and"


# --- trainers


def token_rubric():
    return vf.Rubric(funcs=[lambda completion: float(len(completion))])


async def test_tokens_for_trainers_of_0_1_3_are_the_servers_own():
    env = Once(max_turns=2, rubric=token_rubric())
    client = vf.ScriptedClient(["one", "two words"], with_tokens=True)
    results = await env.a_generate(env.get_dataset(), client, "m")
    out = env.process_env_results_vllm(
        results.prompt, results.completion, results.state, results.reward, processing_class=None,
        max_seq_len=1000, mask_env_responses=True,
    )  # fmt: skip
    step = results.state[0]["trajectory"][-1]["tokens"]
    assert out.prompt_ids[0] + out.completion_ids[0] == step["prompt_ids"] + step["completion_ids"]
    assert len(out.completion_ids[0]) == len(out.completion_mask[0]) == len(out.completion_logprobs[0])
    assert sum(out.completion_mask[0]) == sum(
        len(s["tokens"]["completion_ids"]) for s in results.state[0]["trajectory"]
    )
    assert 0 in out.completion_mask[0] and out.rewards == results.reward and out.is_truncated == [False]


async def test_what_is_cut_for_a_trainer_is_masked_and_worth_nothing_if_asked():
    env = Once(max_turns=2, rubric=token_rubric())
    results = await env.a_generate(env.get_dataset(), vf.ScriptedClient("one", with_tokens=True), "m")
    length = len(env.process_env_results_vllm([], [], results.state, results.reward).prompt_ids[0]) + 1
    out = env.process_env_results_vllm(
        [], [], results.state, results.reward, max_seq_len=length,
        mask_truncated_completions=True, zero_truncated_completions=True,
    )  # fmt: skip
    assert (
        len(out.completion_ids[0]) == 1
        and out.completion_mask == [[0]]
        and out.rewards == [0.0]
        and out.is_truncated[0]
    )


async def test_a_rollout_without_tokens_is_refused_for_training():
    results = await single().a_generate(ROWS, vf.ScriptedClient("a"), "m")
    with pytest.raises(vf.ResultsError, match="token"):
        single().process_env_results_vllm([], [], results.state, results.reward)
