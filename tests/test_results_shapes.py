"""Results read as the classic API gave them: rollout by rollout, and column by column."""

import logging

import pytest

import verifiers as vf
from verifiers.statistics import mean_bounds

ROWS = [{"question": "q0", "answer": "yes", "info": {"k": 1}}, {"question": "q1"}]


def right(completion, answer):
    return float(completion[-1]["content"] == answer)


def length(completion):
    return len(completion[-1]["content"])


def env_of(**options):
    rubric = vf.Rubric([right])
    rubric.add_metric(length)
    options.setdefault("dataset", ROWS)
    return vf.SingleTurnEnv(rubric=rubric, env_id="demo", env_args={"level": 2}, **options)


async def results_of(tries=1, replies=("yes", "no"), **options):
    env = env_of()
    return await env.evaluate(vf.ScriptedClient(list(replies)), "org/m", rollouts_per_example=tries, **options)


async def test_an_output_holds_all_of_a_rollout_with_its_metrics_at_top_level():
    first, second = (await results_of())["outputs"]
    assert first["example_id"] == 0 and first["task"] == "demo" and first["is_completed"] is True
    assert first["prompt"] == [{"role": "user", "content": "q0"}] and first["completion"][0].content == "yes"
    assert first["reward"] == 1.0 and first["right"] == 1.0 and first["length"] == 3.0 and first["num_turns"] == 1.0
    assert first["metrics"] == {"right": 1.0, "length": 3.0, "num_turns": 1.0}
    assert (first["answer"], first["info"]) == ("yes", {"k": 1}) and "answer" not in second and "info" not in second
    assert first["stop_condition"] == "max_turns_reached" and first["is_truncated"] is False and first["error"] is None
    assert set(first["timing"]) == {"generation_ms", "scoring_ms", "total_ms"} and first["timing"]["total_ms"] > 0
    assert first["token_usage"] == {"input_tokens": 2, "output_tokens": 3}


async def test_a_metric_never_hides_what_a_rollout_is():
    def prompt(state):
        return 7.0

    env = vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric([prompt]))
    output = (await env.evaluate(vf.ScriptedClient("x"), "m"))["outputs"][0]
    assert output["prompt"] == [{"role": "user", "content": "q0"}] and output["metrics"]["prompt"] == 7.0


@pytest.mark.parametrize("read", [lambda r, name: r[name], lambda r, name: r.get(name), getattr])
async def test_columns_of_older_releases_read_by_item_get_and_attribute(read):
    results = await results_of()
    assert read(results, "reward") == read(results, "rewards") == [1.0, 0.0]
    assert [c[0]["content"] for c in read(results, "completion")] == ["yes", "no"]
    assert read(results, "answer") == ["yes", ""] and read(results, "info") == [{"k": 1}, {}]
    assert read(results, "task") == ["demo", "demo"] and read(results, "example_id") == read(results, "id") == [0, 1]
    assert read(results, "metrics") == {"right": [1.0, 0.0], "length": [3.0, 2.0], "num_turns": [1.0, 1.0]}
    assert read(results, "stop_conditions") == ["max_turns_reached"] * 2 and read(results, "length") == [3.0, 2.0]
    assert read(results, "outputs") is results["outputs"] and read(results, "metadata")["model"] == "org/m"


async def test_a_column_that_does_not_exist_is_refused():
    results = await results_of()
    with pytest.raises(KeyError):
        _ = results["nothing"]
    with pytest.raises(AttributeError, match="results have no 'nothing'"):
        _ = results.nothing
    assert results.get("nothing", 3) == 3 and not hasattr(results, "_private") and len(repr(results)) < 2_000


async def test_unscored_rollouts_keep_their_place_and_are_no_zero_in_the_mean():
    """Right, right, wrong and a server error: 0.667 of 3 of 4, not 0.5."""
    env = env_of(dataset=[{"question": "q", "answer": "yes"}])
    client = vf.ScriptedClient(["yes", "yes", "no", vf.ModelUnavailableError("503")])
    results = await env.evaluate(client, "m", rollouts_per_example=4)
    metadata = results["metadata"]
    assert results["reward"] == [1.0, 1.0, 0.0, None] and results["outputs"][3]["status"] == "failed"
    assert metadata["avg_reward"] == pytest.approx(2 / 3)
    assert (metadata["num_scored"], metadata["num_rollouts"], metadata["avg_error"]) == (3, 4, 0.25)
    bounds = mean_bounds(results["reward"])
    assert (bounds.lower, bounds.upper) == (0.5, 0.75)
    assert metadata["avg_metrics"]["length"] == pytest.approx(8 / 3)


async def test_nothing_but_errors_has_no_mean():
    metadata = (await results_of(replies=[vf.ModelUnavailableError("503")]))["metadata"]
    assert metadata["avg_reward"] is None and metadata["num_scored"] == 0 and metadata["avg_error"] == 1.0


async def test_metadata_says_what_was_run():
    metadata = (await results_of(2, sampling_args={"temperature": 0.5}, state_columns=["turn"]))["metadata"]
    expected = {
        "env_id": "demo", "env_args": {"level": 2}, "model": "org/m", "num_examples": 2, "rollouts_per_example": 2,
        "sampling_args": {"temperature": 0.5}, "state_columns": ["turn"], "pass_threshold": 0.5, "path_to_save": None,
        "base_url": "", "tools": None,
    }  # fmt: skip
    assert {name: metadata[name] for name in expected} == expected
    assert metadata["usage"] == {"input_tokens": 2.0, "output_tokens": 3.0} and metadata["time_ms"] > 0


async def test_pass_at_k_is_reported_for_the_tries_there_are():
    env = env_of(dataset=[{"question": "q", "answer": "yes"}])
    results = await env.evaluate(
        vf.ScriptedClient(["yes", "no", "no", "no"]), "m", rollouts_per_example=4, max_concurrent=1
    )
    assert results["metadata"]["pass_at_k"] == pytest.approx({"1": 0.25, "2": 0.5, "4": 1.0})
    assert results["metadata"]["pass_all_k"] == pytest.approx({"1": 0.25, "2": 0.0, "4": 0.0})


async def test_state_columns_bring_what_was_asked_for():
    class Env(vf.SingleTurnEnv):
        async def setup_state(self, state):
            state["mine"] = object

    results = await Env(dataset=ROWS).evaluate(
        vf.ScriptedClient("x"), "m", state_columns=["mine", "trajectory", "none"]
    )
    output = results["outputs"][0]
    assert output["mine"] is object and output["none"] is None
    assert (
        output["trajectory"][0]["completion"][0].content == "x" and output["trajectory"][0]["prompt"][0].content == "q0"
    )


async def test_base_models_are_completed_as_text():
    env = vf.SingleTurnEnv(
        dataset=[{"prompt": "Once"}], message_type="completion", rubric=vf.Rubric([lambda completion: len(completion)])
    )
    output = (await env.evaluate(vf.ScriptedClient(" upon a time", message_type="completion"), "m"))["outputs"][0]
    assert output["completion"] == " upon a time" and output["reward"] == 12.0


async def test_progress_is_told_as_rollouts_end():
    told, started, logged = [], [], []

    def progressed(all_outputs, new, metadata):
        told.append((len(all_outputs), len(new), new[0]["reward"] is not None))

    await results_of(
        2, on_progress=progressed,
        on_start=lambda rows, filtered: started.append(len(rows)), on_log=logged.append,
    )  # fmt: skip
    assert told == [(1, 1, True), (2, 1, True), (3, 1, True), (4, 1, True)] and started == [4] and "org/m" in logged[0]


def test_the_synchronous_names_work_in_plain_code():
    results = env_of().evaluate_sync(vf.ScriptedClient("yes"), "m", num_examples=1)
    assert results["reward"] == [1.0]
    assert env_of().generate_sync(env_of().train_rows(1), vf.ScriptedClient("yes"), model="m").reward == [1.0]


async def test_the_synchronous_names_work_inside_a_running_loop():
    assert env_of().evaluate_sync(vf.ScriptedClient("yes"), "m")["reward"] == [1.0, 0.0]


async def test_generate_takes_rows_as_they_are_formatted_or_not():
    for inputs in (ROWS, env_of().get_dataset(), env_of().train_rows()):
        results = await env_of().generate(inputs, vf.ScriptedClient("yes"), "m")
        assert [(o["example_id"], o["prompt"][-1]["content"], o["reward"]) for o in results["outputs"]] == [
            (0, "q0", 1.0), (1, "q1", 0.0),
        ]  # fmt: skip


async def test_one_group_can_be_run_alone():
    row = env_of().train_rows()[0]
    outputs = await env_of().run_group([row, row], vf.ScriptedClient(["yes", "no"]), "m")
    assert [(o["reward"], o["rollout_index"]) for o in outputs] == [(1.0, 0), (0.0, 1)]
    assert (await env_of().run_rollout(row, vf.ScriptedClient("yes"), "m"))["reward"] == 1.0


def test_settings_that_are_no_arguments_become_attributes(caplog):
    with caplog.at_level(logging.WARNING):
        env = env_of(description="A demo.", max_concurrent=3)
    assert env.description == "A demo." and env.max_concurrent == 3
    env.set_kwargs(max_seq_len=5, anything="x")
    assert env.max_seq_len == 5 and env.anything == "x"
    with pytest.raises(TypeError, match=r"rubric must be a vf.Rubric, got list"):
        vf.SingleTurnEnv(dataset=ROWS, rubric=[right])
