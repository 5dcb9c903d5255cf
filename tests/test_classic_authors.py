"""What authors of classic environments do to rubrics, tools and datasets beyond calling them."""

# pyright: reportIncompatibleMethodOverride=false, reportAttributeAccessIssue=false, reportOptionalSubscript=false
# pyright: reportMissingImports=false
# old signatures, and old paths that have no files, are what is tested

import logging

import pytest
from datasets import Dataset

import verifiers as vf
from verifiers.errors import DatasetError

ROWS = [{"question": "q", "answer": "a"}]


def says(*texts):
    return vf.ScriptedClient(list(texts), cycle=False)


def call(name, arguments):
    function = {"name": name, "arguments": arguments}
    return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def one(completion):
    return 1.0


def half(completion):
    return 0.5


async def outcome(env, *texts, **options):
    results = await env.evaluate(says(*texts or ("a",)), "m", **options)
    return results["outputs"][0]


# --- rubrics


async def test_functions_and_weights_may_be_changed_in_place():
    rubric = vf.Rubric(funcs=[one], weights=[1.0])
    rubric.funcs.append(half)
    rubric.weights.append(2.0)
    assert rubric.funcs == [one, half] and rubric.weights == [1.0, 2.0]
    env = vf.SingleTurnEnv(dataset=ROWS, rubric=rubric)
    assert (await outcome(env))["reward"] == 2.0
    rubric.funcs[0], rubric.weights[0] = half, 0.0
    assert (await outcome(env))["reward"] == 1.0


@pytest.mark.parametrize("weights", [None, [1.0, 0.2]])
async def test_functions_may_be_assigned_by_the_name_of_0_1_3(weights):
    class Mine(vf.Rubric):
        def __init__(self):
            super().__init__()
            self.reward_funcs = [self.mine]
            if weights:
                self.reward_weights = [weights[0]]
                self.reward_weights.append(weights[1])
            self.reward_funcs.append(half)

        def mine(self, completion, **kwargs):
            return 1.0

    out = await outcome(vf.SingleTurnEnv(dataset=ROWS, rubric=Mine()))
    assert out["metrics"]["mine"] == 1.0
    assert out["reward"] == pytest.approx(1.1 if weights else 1.5)  # a weight that was left out is 1


async def test_functions_may_be_given_by_the_name_of_0_1_3():
    rubric = vf.Rubric(reward_funcs=[half])
    assert (await outcome(vf.SingleTurnEnv(dataset=ROWS, rubric=rubric)))["reward"] == 0.5


async def test_a_tool_metric_may_be_given_a_weight():
    def look(at: str) -> str:
        return at

    rubric = vf.ToolRubric(tools=[look])
    rubric.reward_weights[1] = 0.2
    env = vf.ToolEnv(dataset=ROWS, tools=[look], rubric=vf.RubricGroup([vf.Rubric(funcs=[one]), rubric]))
    out = await outcome(env, call("look", '{"at": "it"}'), "done")
    assert out["metrics"]["look_calls"] == 1.0 and out["reward"] == pytest.approx(1.2)
    env.remove_tool(look)
    assert [f.__name__ for f in rubric.funcs] == ["total_tool_calls"]


def test_names_weights_and_functions_are_told_by_every_name_they_had():
    env = vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(funcs=[one, half], weights=[1.0, 0.5]))
    rubric = env.rubric
    assert rubric.get_reward_func_names() == ["one", "half", "num_turns"]
    assert rubric.get_reward_funcs()[:2] == [one, half] == env.get_reward_funcs()[:2] == rubric.reward_funcs[:2]
    assert rubric.get_reward_weights() == [1.0, 0.5, 0.0] == env.get_reward_weights() == rubric.reward_weights


async def test_a_reward_function_may_be_called_through_the_rubric():
    rubric = vf.Rubric(thing=3)
    rubric.add_class_object("thing", 3)

    async def scored(prompt, completion, answer, thing, parser):
        return thing * float(parser.parse_answer(completion) == answer)

    assert await rubric.call_reward_func(scored, prompt="q", completion="a", answer="a") == 3.0
    with pytest.raises(ZeroDivisionError):  # not a 0.0
        await rubric.call_reward_func(lambda completion: 1 / 0, completion="a")


async def test_a_rubric_that_scores_nothing_leaves_no_reward():
    states = [vf.State(reward=1.0, metrics={"a": 1.0})]
    await vf.Rubric().dummy_score_group(states)
    assert states[0]["reward"] is None and states[0]["metrics"] == {}


@pytest.mark.parametrize("kind", [vf.Rubric, vf.Parser, vf.XMLParser])
def test_rubrics_and_parsers_have_a_logger(kind, caplog):
    made = kind(["answer"]) if kind is vf.XMLParser else kind()
    with caplog.at_level(logging.INFO, "verifiers"):
        made.logger.info("from the author")
    assert "from the author" in caplog.text


async def test_a_rubric_cleans_up_with_marked_methods():
    class Mine(vf.Rubric):
        @vf.cleanup
        async def close(self, state):
            log.append(state["reward"])

        @vf.cleanup(priority=1)
        def first(self, state):
            log.append("first")

        @vf.teardown
        def end(self):
            log.append("end")

    log = []
    env = vf.SingleTurnEnv(dataset=ROWS, rubric=Mine(funcs=[one]))
    await env.evaluate(says("a"), "m")
    await env.teardown()
    assert log == ["first", 1.0, "end"]


# --- rubrics that score many rollouts themselves, as up to 0.1.7


class ByLength(vf.Rubric):
    async def score_rollouts(self, prompts, completions, answers, states, tasks, infos, **kwargs):
        rewards = [float(len(c[-1]["content"])) for c in completions]
        return self.made(rewards)


class AsScores(ByLength):
    def made(self, rewards):
        from verifiers.rubrics.rubric import RolloutScores

        return RolloutScores(reward=rewards, metrics={"length": rewards})


class AsDict(ByLength):
    def made(self, rewards):
        return {"reward": rewards, "metrics": {"length": rewards}}


class AsList(ByLength):
    def made(self, rewards):
        return rewards


class Alone(vf.Environment):
    """No `MultiTurnEnv`: its rubric stands alone."""

    async def rollout(self, input, client, model, sampling_args=None):
        state = await self.init_state(input, client, model, sampling_args)
        reply = await self.get_model_response(state, state["prompt"])
        state["completion"] = [reply.message]
        state["is_completed"] = True
        return state


@pytest.mark.parametrize("kind", [vf.SingleTurnEnv, Alone])
@pytest.mark.parametrize("rubric", [AsScores, AsDict, AsList])
async def test_score_rollouts_may_be_overridden_as_in_0_1_3(kind, rubric):
    env = kind(dataset=ROWS, rubric=rubric())
    results = await env.evaluate(says("a", "bbb"), "m", rollouts_per_example=2, max_concurrent=1)
    assert [o["reward"] for o in results["outputs"]] == [1.0, 3.0]
    if rubric is not AsList:
        assert [o["metrics"]["length"] for o in results["outputs"]] == [1.0, 3.0]


async def test_score_rollouts_that_forgets_a_rollout_is_a_fault_and_no_zero():
    class Short(ByLength):
        def made(self, rewards):
            return rewards[1:]

    out = await outcome(vf.SingleTurnEnv(dataset=ROWS, rubric=Short()))
    assert out["reward"] is None


async def test_an_old_score_rollout_scores_an_environment_of_any_kind():
    class Old(vf.Rubric):
        async def score_rollout(self, prompt, completion, answer, state, task="default", info=None, **kwargs):
            from verifiers.types import RolloutScore

            return RolloutScore(reward=0.25, metrics={"seen": float(answer == "a")})

    out = await outcome(Alone(dataset=ROWS, rubric=Old()))
    assert out["reward"] == 0.25 and out["metrics"]["seen"] == 1.0


# --- tools


async def test_tools_may_be_written_into_the_tool_map():
    class Mine(vf.StatefulToolEnv):
        def __init__(self, **kwargs):
            super().__init__(tools=[], **kwargs)
            self.tools = [self.look]
            self.oai_tools = [vf.envs.tool_env.convert_func_to_tool_def(tool) for tool in self.tools]
            self.tool_map = {tool.__name__: tool for tool in self.tools}

        def look(self, at: str) -> str:
            return f"saw {at}"

        def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
            return tool_args

    env = Mine(dataset=ROWS, max_turns=3)
    client = says(call("look", '{"at": "it"}'), "done")
    out = (await env.evaluate(client, "m"))["outputs"][0]
    assert [m["content"] for m in out["completion"]] == [None, "saw it", "done"]
    assert client.requests[0].tools[0]["name"] == "look"
    env.tool_map["look"] = lambda at: f"saw {at} anew"
    assert (await env.call_tool("look", {"at": "it"}, "c"))["content"] == "saw it anew"


# --- stop conditions without await


@pytest.mark.parametrize("limit", [1, 2])
async def test_is_completed_may_be_asked_without_await_as_in_0_1_2(limit):
    class Game(vf.MultiTurnEnv):
        def is_completed(self, messages, state, **kwargs):
            if super().is_completed(messages, state, **kwargs):
                return True
            return "stop" in str(messages[-1]["content"])

        def env_response(self, messages, state, **kwargs):
            return [{"role": "user", "content": "go on"}], state

    env = Game(dataset=ROWS, max_turns=limit)
    state = await env.rollout(env.train_rows()[0], says("a", "stop", "never asked"), "m")
    assert len(state["trajectory"]) == limit and state["error"] is None


async def test_a_condition_that_waits_must_be_awaited_and_says_so():
    class Slow(vf.MultiTurnEnv):
        @vf.stop(priority=200)
        async def slow(self, state):
            import asyncio

            await asyncio.sleep(0)
            return False

    env = Slow(dataset=ROWS)
    state = await env.init_state(env.train_rows()[0], says("a"), "m")
    assert await env.is_completed(state) is False
    with pytest.raises(TypeError, match=r"await super\(\)\.is_completed"):
        bool(env.is_completed(state))


# --- datasets


async def test_a_split_that_a_filter_emptied_is_an_error_only_when_it_is_used():
    table = Dataset.from_list(ROWS)
    env = vf.SingleTurnEnv(dataset=table.filter(lambda row: False), eval_dataset=table, rubric=vf.Rubric(funcs=[one]))
    assert (await outcome(env))["reward"] == 1.0
    with pytest.raises(DatasetError, match="no rows to roll out"):
        env.train_rows()


def test_datasets_and_prompts_may_be_formatted_by_hand():
    from verifiers.utils.data_utils import format_dataset

    env = vf.SingleTurnEnv(dataset=ROWS)
    table = Dataset.from_list([{"ask": "2 + 2?", "right": "4", "example_id": 7}])
    few = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]
    for made in (
        format_dataset(table, "Add.", few, question_key="ask", answer_key="right"),
        env.format_dataset(table, "Add.", few, "ask", "right"),
    ):
        assert made["answer"] == ["4"] and made["example_id"] == [7]
        assert [m["content"] for m in made[0]["prompt"]] == ["Add.", "1 + 1?", "2", "2 + 2?"]
    assert [m["role"] for m in env.format_prompt("?", "Add.")] == ["system", "user"]
    assert env.build_dataset().num_rows == 1 and env.build_eval_dataset() is None


# --- a loop of the author's own


async def test_a_loop_that_adds_its_steps_itself_goes_on_with_the_conversation():
    from verifiers.utils.response_utils import parse_response_message, parse_response_tokens

    from verifiers.types import TrajectoryStep

    class Own(vf.MultiTurnEnv):
        async def rollout(self, input, client, model, sampling_args=None):
            state = await self.init_state(input, client, model, sampling_args)
            while not await self.is_completed(state):
                prompt = await self.get_prompt_messages(state)
                response = await self.get_model_response(state, prompt)
                step = TrajectoryStep(
                    prompt=prompt, completion=await parse_response_message(response), response=response,
                    tokens=await parse_response_tokens(response, self.max_seq_len), reward=None, advantage=None,
                    is_truncated=False, trajectory_id=state["trajectory_id"], extras={},
                )  # fmt: skip
                await self.add_trajectory_step(state, step)
            await self.render_completion(state)
            return state

        async def env_response(self, messages, state, **kwargs):
            return [{"role": "user", "content": f"after {messages[-1]['content']}"}]

    client = says("a", "b")
    out = (await Own(dataset=ROWS, max_turns=2, rubric=vf.Rubric(funcs=[one])).evaluate(client, "m"))["outputs"][0]
    assert [m["content"] for m in client.requests[1].messages] == ["q", "a", "after a"]
    assert [m["content"] for m in out["completion"]] == ["a", "after a", "b"] and out["reward"] == 1.0


def ping(text: str) -> str:
    return text


async def test_a_stop_condition_of_the_framework_may_be_taken_out():
    class Stubborn(vf.ToolEnv):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self._stop_conditions = [c for c in self._stop_conditions if c.__name__ != "no_tools_called"]

        async def env_response(self, messages, state, **kwargs):
            return [{"role": "user", "content": "use a tool"}]

    env = Stubborn(dataset=ROWS, tools=[ping], max_turns=2)
    out = await outcome(env, "no", "no")
    assert out["metrics"]["num_turns"] == 2.0 and out["stop_condition"] == "max_turns_reached"


async def test_the_tool_metrics_of_an_environment_may_be_changed():
    env = vf.ToolEnv(dataset=ROWS, tools=[ping])
    env.tool_monitor_rubric.add_tool_metric("other")
    env.tool_monitor_rubric.remove_tool_metric(ping)
    assert env.tool_monitor_rubric.tool_names == ["other"]
    assert "other_calls" in (await outcome(env))["metrics"]
    env.tool_monitor_rubric.funcs, env.tool_monitor_rubric.weights = [], []
    assert set((await outcome(env))["metrics"]) == {"num_turns"}
    assert vf.envs.tool_env.ToolMonitorRubric(tool_names=["a"]).tool_names == ["a"]


async def test_tokens_of_calls_beside_the_loop_are_counted():
    class Asks(vf.SingleTurnEnv):
        async def setup_state(self, state):
            self.increment_state_usage(state, 3, 4)
            self.increment_state_usage_from_response(state, {"usage": "none of ours"})
            reply = await self.get_model_response(state, [{"role": "user", "content": "beside"}])
            self.increment_state_usage_from_response(state, reply)
            state["beside"] = reply.usage["completion_tokens"]

    env = Asks(dataset=ROWS)
    state = await env.rollout(env.train_rows()[0], says("one two", "three"), "m")
    assert state["error"] is None and state["beside"] > 0
    assert (
        env.get_state_usage(state)["output_tokens"]
        == 4 + state["beside"] + state["trajectory"][0]["response"].usage["completion_tokens"]
    )


async def test_arguments_that_the_author_repaired_are_the_ones_used():
    class Repairs(vf.ToolEnv):
        async def env_response(self, messages, state, **kwargs):
            for call in messages[-1].tool_calls:
                call.arguments = '{"text": "repaired"}'
            return await super().env_response(messages, state, **kwargs)

    for written in ("{text: broken", '{"text": "fine"}'):
        client = says(call("ping", written), "done")
        out = (await Repairs(dataset=ROWS, tools=[ping]).evaluate(client, "m"))["outputs"][0]
        assert out["completion"][1]["content"] == "repaired"


# --- replies and clients, as since 0.1.11


@pytest.mark.parametrize(("finish_reason", "is_truncated"), [("stop", False), ("length", True)])
async def test_a_replys_message_tells_whether_it_was_cut_and_does_not_send_that_back(finish_reason, is_truncated):
    reply = vf.Response(vf.AssistantMessage("a"), finish_reason=finish_reason)
    assert reply.message.is_truncated is is_truncated and reply.message == {"role": "assistant", "content": "a"}
    assert reply.message.tokens is None and isinstance(reply.message, vf.AssistantMessage)
    dump = reply.model_dump()
    assert dump["choices"][0]["message"] == dump["message"] == {"role": "assistant", "content": "a"}
    assert dump["choices"][0]["finish_reason"] == finish_reason


def test_a_tool_call_is_written_where_it_is_read():
    made = vf.ToolCall(id="c", name="look", arguments="{}")
    made.name, made.arguments = "see", '{"at": 1}'
    assert made["function"] == {"name": "see", "arguments": '{"at": 1}'} and set(made) == {"id", "type", "function"}


def test_a_description_resolves_to_the_client_of_its_kind_with_one_of_the_openai_package(monkeypatch):
    from openai import AsyncOpenAI

    from verifiers.clients import resolve_client

    monkeypatch.setenv("SOME_KEY", "secret")
    config = vf.ClientConfig(api_key_var="SOME_KEY", api_base_url="http://127.0.0.1:9/v1", timeout=12.0)
    client = resolve_client(config)
    assert isinstance(client, vf.OpenAIChatCompletionsClient) and isinstance(client.client, AsyncOpenAI)
    assert str(client.client.base_url) == "http://127.0.0.1:9/v1/" and client.client.api_key == "secret"
    scripted = vf.ScriptedClient(["a"])
    assert resolve_client(scripted) is scripted
    assert isinstance(resolve_client({**config, "client_type": "openai_completions"}), vf.OpenAICompletionsClient)


# --- subclasses that make themselves


def test_a_parser_that_sets_its_fields_itself_works():
    class Own(vf.XMLParser):
        def __init__(self, fields, answer_field="answer"):
            vf.Parser.__init__(self)
            self._fields = []
            self.answer_field = answer_field
            for field in fields:
                self._fields.append((field, [field]))

    class Bare(vf.Parser):
        def __init__(self):
            pass

    parser = Own(["think", "answer"])
    assert parser.parse_answer([{"role": "assistant", "content": "<think>x</think> <answer>4</answer>"}]) == "4"
    assert parser.get_format_reward_func()([{"role": "assistant", "content": "<answer>4</answer>"}]) > 0
    assert Bare().parse_answer("4") == "4"


@pytest.mark.parametrize("rows", [ROWS, Dataset.from_list(ROWS), lambda: ROWS])
async def test_format_dataset_may_be_overridden_as_up_to_0_1_8(rows):
    class Own(vf.SingleTurnEnv):
        def __init__(self, ending, **kwargs):
            self.ending = ending
            super().__init__(**kwargs)

        def format_dataset(
            self, dataset, system_prompt=None, few_shot=None, question_key="question", answer_key="answer"
        ):
            made = super().format_dataset(dataset, system_prompt, few_shot, question_key, answer_key)
            return made.map(lambda row: {"prompt": [*row["prompt"], {"role": "user", "content": self.ending}]})

    env = Own("!", dataset=rows, system_prompt="S")
    assert [m["content"] for m in env.train_rows()[0]["prompt"]] == ["S", "q", "!"]


async def test_authors_may_use_likely_names_for_themselves():
    class Counting(vf.Rubric):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.calls, self.names = 0, []
            self.add_reward_func(self.counted)

        def counted(self, completion):
            self.calls += 1
            return float(self.calls)

    class Mine(vf.SingleTurnEnv):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.splits, self.client, self.calls, self.tasks = {"train": ROWS}, None, 0, []

    out = await outcome(Mine(dataset=ROWS, rubric=Counting()))
    assert out["reward"] == 1.0
