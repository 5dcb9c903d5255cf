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
