"""Several environments as one: every row reaches its own, scored by its own rubric."""

import pytest

import verifiers as vf


class Named(vf.SingleTurnEnv):
    """Notes which environment rolled out what."""

    def __init__(self, name, rows=2, rubric=None, **kwargs):
        self.name, self.tasks = name, []
        dataset = [{"question": f"{name}{i}", "answer": name, "info": {"i": i}} for i in range(rows)]
        super().__init__(dataset=dataset, rubric=rubric or vf.Rubric([self.mine]), **kwargs)

    def mine(self, answer, task):
        self.tasks.append(task)
        return float(answer == self.name)

    async def setup_state(self, state):
        state["rolled_out_by"] = self.name


async def outputs_of(group, **options):
    results = await group.evaluate(vf.ScriptedClient("x"), "m", state_columns=["rolled_out_by"], **options)
    return results["outputs"]


async def test_nested_groups_route_every_row_to_its_own_environment():
    a, b, c, d = (Named(name) for name in "abcd")
    inner = vf.EnvGroup([b, c], env_names=["b", "c"])
    group = vf.EnvGroup([a, vf.EnvGroup([inner, d], env_names=["inner", "d"])], env_names=["a", "outer"])
    outputs = await outputs_of(group)
    assert [o["rolled_out_by"] for o in outputs] == ["a", "a", "b", "b", "c", "c", "d", "d"]
    assert [o["task"] for o in outputs[::2]] == ["a", "outer/inner/b", "outer/inner/c", "outer/d"]
    assert [o["example_id"] for o in outputs] == list(range(8))
    assert [o["reward"] for o in outputs] == [1.0] * 8
    assert group.get_env_for_task("outer/inner/c") is c


async def test_a_member_sees_the_task_and_info_of_its_own_rows():
    a, b = Named("a", env_id="task-a"), Named("b")
    outputs = await outputs_of(vf.EnvGroup([a, b]))
    assert a.tasks == ["task-a"] * 2 and b.tasks == ["default"] * 2
    assert [o["info"]["i"] for o in outputs] == [0, 1, 0, 1]


async def test_rows_that_went_through_a_dataset_route_the_same():
    group = vf.EnvGroup([Named("a"), Named("b")], env_names=["a", "b"])
    results = await group.generate(
        group.get_dataset(seed=1), vf.ScriptedClient("x"), "m", state_columns=["rolled_out_by"]
    )
    assert {(o["task"], o["rolled_out_by"]) for o in results["outputs"]} == {("a", "a"), ("b", "b")}


def test_names_are_unique_and_default_to_the_ids():
    assert vf.EnvGroup([Named("a", env_id="x"), Named("b")]).env_names == ["x", "env_1"]
    with pytest.raises(ValueError, match="the same name"):
        vf.EnvGroup([Named("a", env_id="x"), Named("b", env_id="x")])
    with pytest.raises(ValueError, match="2 environments but 1 names"):
        vf.EnvGroup([Named("a"), Named("b")], env_names=["a"])
    with pytest.raises(ValueError, match="at least one environment"):
        vf.EnvGroup([])


async def test_an_unknown_task_is_an_error_and_goes_nowhere():
    a = Named("a")
    group = vf.EnvGroup([a, Named("b")], env_names=["a", "b"])
    with pytest.raises(LookupError, match=r"no environment 'z' in this group \(it has: a, b\)"):
        group.get_env_for_task("z")
    rows = [{**group.eval_rows()[0], "task": "z"}, group.eval_rows()[3]]
    lost, found = (await group.generate(rows, vf.ScriptedClient("x"), "m"))["outputs"]
    assert lost["error"]["side"] == "environment" and "no environment 'z'" in lost["error"]["message"]
    assert lost["reward"] is None and found["reward"] == 1.0 and a.tasks == []


async def test_metrics_are_the_members_own_and_never_filled_with_zero():
    def style(state):
        return 0.5

    group = vf.EnvGroup([Named("a", rows=1, rubric=vf.Rubric([style])), Named("b", rows=1)], env_names=["a", "b"])
    results = await group.evaluate(vf.ScriptedClient("x"), "m")
    first, second = results["outputs"]
    assert "style" in first["metrics"] and "style" not in second["metrics"] and "mine" not in first["metrics"]
    assert results["metadata"]["avg_metrics"]["style"] == 0.5
    assert results["metrics"]["style"] == [0.5, None]


async def test_group_rewards_of_one_member_leave_the_others_alone():
    def together(states):
        return [float(i) for i in range(len(states))]

    a, b = Named("a", rows=1, rubric=vf.Rubric([together])), Named("b", rows=1)
    outputs = await outputs_of(vf.EnvGroup([vf.EnvGroup([a]), b]), rollouts_per_example=3)
    assert [o["reward"] for o in outputs] == [0.0, 1.0, 2.0, 1.0, 1.0, 1.0]


async def test_a_members_rubric_is_cleaned_up_after():
    class Holding(vf.Rubric):
        cleaned = 0

        async def cleanup(self, state):
            self.cleaned += 1

    rubric = Holding()
    await outputs_of(vf.EnvGroup([Named("a", rubric=rubric), Named("b")]))
    assert rubric.cleaned == 2


async def test_settings_and_teardown_reach_the_members():
    torn = []

    class Torn(Named):
        @vf.teardown
        async def close(self):
            torn.append(self.name)

    inner = Torn("a")
    group = vf.EnvGroup([vf.EnvGroup([inner]), Torn("b")])
    group.set_max_seq_len(99)
    assert inner.max_seq_len == 99
    await group.teardown()
    assert torn == ["a", "b"]


async def test_an_eval_split_of_one_member_is_joined_with_the_rows_of_the_other():
    with_eval = vf.SingleTurnEnv(
        dataset=[{"question": "train"}], eval_dataset=[{"question": "eval"}], rubric=vf.Rubric()
    )
    group = vf.EnvGroup([with_eval, Named("b", rows=1)])
    assert [row["prompt"][-1].content for row in group.eval_rows()] == ["eval", "b0"]
    assert [row["prompt"][-1].content for row in group.train_rows()] == ["train", "b0"]


async def test_each_member_keeps_its_system_prompt_few_shot_and_tools():
    def look(at: str) -> str:
        return f"saw {at}"

    few = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    plain = vf.SingleTurnEnv(dataset=[{"question": "p"}], system_prompt="Be plain.", few_shot=few)
    tools = vf.ToolEnv(dataset=[{"question": "t"}], system_prompt="Use tools.", tools=[look])
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}}
    client = vf.ScriptedClient(["plain", {"content": None, "tool_calls": [call]}, "done"], cycle=False)
    group = vf.EnvGroup([plain, tools], env_names=["plain", "tools"])
    outputs = (await group.evaluate(client, "m", max_concurrent=1))["outputs"]
    first, second, third = client.requests
    assert [m["content"] for m in first.messages] == ["Be plain.", "?", "!", "p"] and not first.tools
    assert [m["content"] for m in second.messages] == ["Use tools.", "t"]
    assert second.tools and second.tools[0]["name"] == "look"
    assert third.messages[-1]["content"] == "saw it"
    assert outputs[1]["metrics"]["look_calls"] == 1.0 and "look_calls" not in outputs[0]["metrics"]


async def test_columns_may_differ_and_an_answer_or_info_may_be_missing():
    seen = []

    def noted(answer, info, state):
        seen.append((answer, info, state["input"].get("level")))
        return 1.0

    members = [
        vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric([noted]))
        for rows in (
            [{"question": "a", "answer": "1", "level": 3}],
            [{"question": "b", "info": {"k": [1]}}],
            [{"prompt": [{"role": "user", "content": "c"}], "answer": 7, "info": '{"other": true}', "task": "own"}],
        )
    ]
    outputs = await outputs_of(vf.EnvGroup(members, env_names=["a", "b", "c"]), max_concurrent=1)
    assert [o["reward"] for o in outputs] == [1.0] * 3 and [o["task"] for o in outputs] == ["a", "b", "c"]
    assert seen == [("1", {}, 3), ("", {"k": [1]}, None), (7, {"other": True}, None)]


def test_rows_with_different_columns_fit_one_dataset():
    members = [
        vf.SingleTurnEnv(dataset=[{"question": "a", "answer": "1", "level": 3}], system_prompt="A"),
        vf.SingleTurnEnv(dataset=[{"question": "b", "info": {"k": 1}}]),
    ]
    table = vf.EnvGroup(members, env_names=["a", "b"]).get_dataset()
    assert table["level"] == [3, None] and table["task"] == ["a", "b"] and table["example_id"] == [0, 1]
    assert [len(prompt) for prompt in table["prompt"]] == [2, 1]


async def test_a_group_reward_compares_only_the_tries_of_one_example_in_one_member():
    sizes = []

    def together(states, answers):
        sizes.append(sorted({s["rolled_out_by"] for s in states}) + answers)
        return [1.0] * len(states)

    members = [Named(name, rows=2, rubric=vf.Rubric([together])) for name in "ab"]
    await outputs_of(vf.EnvGroup(members), rollouts_per_example=2)
    assert sorted(sizes) == [["a", "a", "a"]] * 2 + [["b", "b", "b"]] * 2


async def test_a_try_that_failed_is_no_zero_in_a_group_reward():
    class Fails(Named):
        async def setup_state(self, state):
            await super().setup_state(state)
            self.tasks.append(1)
            if len(self.tasks) == 2:
                raise vf.InfraError("no machine for this one")

    def rank(states):
        return [float(len(states))] * len(states)

    group = vf.EnvGroup([Fails("a", rows=1, rubric=vf.Rubric([rank])), Named("b", rows=1)])
    outputs = await outputs_of(group, rollouts_per_example=3, max_concurrent=1)
    assert [o["reward"] for o in outputs[:3]] == [2.0, None, 2.0]  # compared with the other one that there is
    assert outputs[1]["error"]["error"] == "InfraError" and [o["reward"] for o in outputs[3:]] == [1.0] * 3


async def test_a_member_that_scores_in_its_own_way_is_believed():
    class Many(vf.Rubric):
        async def score_rollouts(self, prompts, completions, answers, states, **_):  # pyright: ignore[reportIncompatibleMethodOverride]
            return {"reward": [0.25] * len(states), "metrics": {"many": [float(len(states))] * len(states)}}

    group = vf.EnvGroup([Named("a", rows=1, rubric=Many()), Named("b", rows=1)], env_names=["a", "b"])
    outputs = await outputs_of(group, rollouts_per_example=2)
    assert [o["reward"] for o in outputs] == [0.25, 0.25, 1.0, 1.0] and outputs[0]["metrics"]["many"] == 2.0
    assert list(getattr(group.rubric, "env_map")) == ["a", "b"]  # noqa: B009 - the name of the classic API


async def test_a_member_may_have_another_name_in_each_group():
    env = Named("a", rows=1)
    group = vf.EnvGroup([vf.EnvGroup([env], env_names=["deep"]), env], env_names=["outer", "plain"])
    assert [o["task"] for o in await outputs_of(group)] == ["outer/deep", "plain"]
