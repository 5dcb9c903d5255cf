"""What authors and trainers of the classic API rely on, one promise a test; what other files test is not repeated."""

import json

import pytest

import verifiers as vf
from verifiers.parsers import Parser

ROWS = [{"question": "q", "answer": "a"}, {"question": "r", "answer": "b"}]


def exact(completion, answer) -> float:
    return float(completion[-1]["content"] == answer)


def single(**kwargs):
    return vf.SingleTurnEnv(**{"dataset": ROWS, "rubric": vf.Rubric(funcs=[exact]), **kwargs})


class Echo(vf.MultiTurnEnv):
    def __init__(self, **kwargs):
        super().__init__(dataset=ROWS, **kwargs)

    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "go on"}]


async def roll(env, client):
    return await env.rollout(env.train_rows()[0], client, "m")


# --- datasets and construction


def test_default_sampling_is_one_reply_and_an_empty_extra_body():
    assert single().sampling_args == {"n": 1, "extra_body": {}}


async def test_sampling_arguments_override_and_extra_body_is_joined():
    env = single(sampling_args={"temperature": 0.5, "extra_body": {"top_k": 5}})
    client = vf.ScriptedClient("a")
    await env.rollout(env.train_rows()[0], client, "m", {"temperature": 0.1, "extra_body": {"min_p": 0.2}})
    assert client.requests[0].sampling == {"temperature": 0.1, "extra_body": {"top_k": 5, "min_p": 0.2}}


@pytest.mark.parametrize(("n", "rows"), [(-1, 2), (0, 2), (1, 1), (99, 2)])
def test_get_dataset_takes_the_first_rows_or_all(n, rows):
    assert len(single().get_dataset(n)) == rows


async def test_an_absent_answer_is_empty_text_in_rewards():
    seen = []

    def note(answer, info, task) -> float:
        seen.append((answer, info, task))
        return 1.0

    env = vf.SingleTurnEnv(dataset=[{"question": "q"}], rubric=vf.Rubric(funcs=[note]))
    await env.evaluate(vf.ScriptedClient("a"), "m")
    assert seen == [("", {}, "default")]


@pytest.mark.parametrize("task", ["math", "vf/math-env"])
async def test_a_task_column_of_text_reaches_rewards_and_results(task):
    env = single(dataset=[{"question": "q", "answer": "a", "task": task}])
    results = await env.evaluate(vf.ScriptedClient("a"), "m")
    assert results["task"] == [task] and results["reward"] == [1.0]


def test_the_rubric_of_an_environment_holds_the_authors_beside_its_own_metrics():
    rubric = vf.Rubric(funcs=[exact])
    env = single(rubric=rubric)
    assert env.rubric is not rubric and rubric in env.rubric.rubrics
    assert env.rubric._get_reward_func_names() == ["exact", "num_turns"]


# --- state


KEYS = (
    "input client model sampling_args is_completed is_truncated stop_condition tool_defs trajectory trajectory_id "
    "completion reward metrics error final_env_response timing usage prompt answer task info example_id"
)


async def test_a_state_has_every_key_of_the_classic_api_from_the_start():
    class Env(Echo):
        async def setup_state(self, state, **kwargs):
            state["lacks"] = [key for key in KEYS.split() if key not in state and key != "info"]
            state["read"] = {key: state[key] for key in KEYS.split() if key in state}

    state = await roll(Env(max_turns=1), vf.ScriptedClient("a"))
    assert state["lacks"] == [] and state["read"]["reward"] is None and not state["read"]["completion"]
    assert {"start_time", "generation_ms", "scoring_ms", "total_ms"} <= set(state["timing"])


async def test_a_trajectory_step_has_every_key_of_the_classic_api():
    step = (await roll(Echo(max_turns=1), vf.ScriptedClient("a", with_tokens=True)))["trajectory"][0]
    keys = [
        "prompt",
        "completion",
        "response",
        "tokens",
        "reward",
        "advantage",
        "is_truncated",
        "trajectory_id",
        "extras",
    ]
    assert all(key in step for key in keys) and step["extras"] == {}
    lists = ["prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "completion_logprobs"]
    assert all(len(step["tokens"][name]) for name in lists)


async def test_keys_of_the_author_of_any_kind_are_kept():
    class Env(Echo):
        async def setup_state(self, state, **kwargs):
            state["game"], state["final_answer"] = object(), None

    state = await roll(Env(max_turns=1), vf.ScriptedClient("a"))
    assert "game" in state and state["final_answer"] is None and state.get("status", "none") == "none"
    with pytest.raises(KeyError):
        state["status"]


# --- the loop


async def test_has_error_is_asked_before_the_authors_conditions():
    class Env(Echo):
        @vf.stop(priority=99)
        async def mine(self, state):
            return True

        async def setup_state(self, state, **kwargs):
            raise vf.ToolError("no")

    state = await roll(Env(), vf.ScriptedClient("a"))
    assert state["stop_condition"] == "has_error" and isinstance(state["error"], vf.ToolError)


async def test_a_context_that_overflows_later_is_truncation_and_no_error():
    client = vf.ScriptedClient(["a", vf.OverlongPromptError("full")])
    state = await roll(Echo(), client)
    assert state["error"] is None and state["prompt_too_long"] and state["is_truncated"]
    assert state["stop_condition"] == "prompt_too_long" and len(state["trajectory"]) == 1


@pytest.mark.parametrize("name", ["max_turns_reached", "prompt_too_long", "has_error", "has_final_env_response"])
async def test_built_in_conditions_may_be_called_by_name(name):
    env = Echo(max_turns=1)
    state = await roll(env, vf.ScriptedClient("a"))
    assert await getattr(env, name)(state) is (name == "max_turns_reached")


# --- messages


async def test_messages_are_dicts_first_and_objects_too():
    seen = []

    class Env(Echo):
        async def env_response(self, messages, state, **kwargs):
            for m in [*messages, *state["prompt"], *state["completion"]]:
                assert isinstance(m, dict) and m["content"] == m.get("content") == m.content
                assert m["role"] == m.role and m.get("tool_calls") is None and m.tool_calls is None
                seen.append(m.role)
            json.dumps(messages)
            return [vf.UserMessage(content="typed"), {"role": "user", "content": "plain"}]

    state = await roll(Env(max_turns=2), vf.ScriptedClient("a"))
    assert seen == ["user", "assistant", "user", "assistant"]
    assert [(m.role, m["content"]) for m in state["completion"][1:3]] == [("user", "typed"), ("user", "plain")]


# --- tools


async def test_update_tool_args_may_be_asynchronous_and_call_tool_overridden():
    class Env(vf.StatefulToolEnv):
        async def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
            return {**tool_args, "b": len(messages)}

        async def call_tool(self, tool_name, tool_args, tool_call_id, **kwargs):
            message = await super().call_tool(tool_name, tool_args, tool_call_id, **kwargs)
            return {**message, "content": f"<{message['content']}>"}

    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    env = Env(dataset=ROWS)
    env.add_tool(add, args_to_skip=["b"])
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    state = await roll(env, vf.ScriptedClient([{"content": "", "tool_calls": [call]}, "done"]))
    assert [m["content"] for m in state["completion"]] == ["", "<3>", "done"]
    assert state["completion"][1]["role"] == "tool" and state["completion"][1]["tool_call_id"] == "1"


def test_a_tool_is_removed_by_function_or_name():
    def one() -> str:
        """One."""
        return ""

    def two() -> str:
        """Two."""
        return ""

    env = vf.ToolEnv(tools=[one, two], dataset=ROWS)
    env.remove_tool(one)
    env.remove_tool("two")
    assert env.tools == [] and env.tool_map == {} and not env.tool_defs and env.oai_tools is None


# --- rubrics and parsers


async def test_a_metric_weighs_nothing_and_weight_may_be_given_by_name():
    def half(completion) -> float:
        return 0.5

    rubric = vf.Rubric()
    rubric.add_reward_func(exact, weight=2.0)
    rubric.add_metric(half)
    results = await single(rubric=rubric).evaluate(vf.ScriptedClient("a"), "m", num_examples=1)
    assert results["reward"] == [2.0] and results["metrics"]["half"] == [0.5]
    assert rubric.get_reward_weights() == [2.0, 0.0] and rubric.get_reward_funcs() == [exact, half]


@pytest.mark.parametrize("parser", [
    Parser(), vf.ThinkParser(), vf.MaybeThinkParser(), vf.XMLParser(["think", "answer"]),
], ids=lambda parser: type(parser).__name__)  # fmt: skip
async def test_every_parser_has_a_format_reward_that_is_a_reward_function(parser):
    text = "<think>\nt\n</think>\n<answer>\na\n</answer>"
    env = single(rubric=vf.Rubric(funcs=[parser.get_format_reward_func()], parser=parser))
    assert (await env.evaluate(vf.ScriptedClient(text), "m"))["reward"] == [1.0, 1.0]


def test_extract_fn_may_be_given_by_place():
    for make in (Parser, vf.ThinkParser, vf.MaybeThinkParser):
        assert make(str.upper).parse("</think> a").strip().endswith("A")


def test_alternatives_of_a_field_are_told_by_the_first_name():
    parser = vf.XMLParser(["think", ("guess", "answer")], answer_field="guess")
    parsed = parser.parse("<think>t</think><answer>a</answer>")
    assert (parsed.think, parsed.answer, parsed.guess) == ("t", "a", None)
    assert parser.get_fields() == ["think", "guess"] and parser.format(think="t", guess="g")


def test_math_rubric_reports_correct_answer_and_judge_rubric_offers_its_judge():
    assert vf.MathRubric()._get_reward_func_names() == ["correct_answer"]
    offered = vf.JudgeRubric(judge_client=vf.ScriptedClient("yes")).class_objects
    assert {"judge", "judge_client", "judge_model", "judge_prompt", "judge_sampling_args", "parser"} <= set(offered)


# --- results


async def test_outputs_come_by_example_and_leave_out_what_is_empty():
    env = vf.SingleTurnEnv(dataset=[{"question": "q", "answer": "a", "info": {"k": 1}}, {"question": "r"}])
    outputs = (await env.evaluate(vf.ScriptedClient("a"), "m", rollouts_per_example=2))["outputs"]
    assert [o["example_id"] for o in outputs] == [0, 0, 1, 1]
    assert outputs[0]["info"] == {"k": 1} and outputs[0]["answer"] == "a"
    assert "answer" not in outputs[2] and "info" not in outputs[2]


METADATA = (
    "env_id env_args model base_url num_examples rollouts_per_example sampling_args date time_ms time avg_reward "
    "avg_metrics avg_error pass_at_k pass_all_k pass_threshold usage version_info state_columns path_to_save tools"
)


async def test_metadata_has_every_key_of_the_classic_api_by_item_and_attribute():
    metadata = (await single().evaluate(vf.ScriptedClient("a"), "m"))["metadata"]
    assert [key for key in METADATA.split() if key not in metadata] == []
    assert metadata.avg_reward == metadata["avg_reward"] == 0.5
    assert json.loads(json.dumps(metadata))["model"] == "m"


# --- trainers


def test_what_trainers_read_and_set_is_there():
    env = vf.EnvGroup([single(), single(system_prompt="s")], env_names=["one", "two"])
    env.set_max_seq_len(100)
    env.set_score_rollouts(False)
    env.set_interleaved_rollouts(True)
    assert env.envs[1].max_seq_len == 100 and env.envs[0].score_rollouts is False
    assert env.envs[1].system_prompt == "s" and env.envs[0].max_turns == 1 and env.env_names == ["one", "two"]
    assert vf.State.INPUT_FIELDS == ["prompt", "answer", "task", "info", "example_id"]
    assert env.rubric._get_reward_func_names() == ["exact", "num_turns"]
    assert [vf.Rubric()._is_group_func(f) for f in (exact, lambda states: [])] == [False, True]


async def test_one_rollout_and_one_group_can_be_run_alone():
    env = single()
    row = env.train_rows()[0]
    one = await env.run_rollout(row, vf.ScriptedClient("a"), "m", {"top_p": 0.5})
    group = await env.run_group([row] * 3, vf.ScriptedClient(["a", "b"]), "m")
    assert one["reward"] == 1.0 and [o["reward"] for o in group] == [1.0, 0.0, 1.0]
