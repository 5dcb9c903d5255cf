"""An environment as SkyRL's generator: its output, and the package's own check of it where it is installed."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from letter_chat import Engine
from trainer_packages import definition, parameters, run_definitions, source_of

import verifiers as vf
from verifiers.adapters.skyrl import EnvironmentGenerator, rows
from verifiers.errors import SetupError
from verifiers.rl.rollouts import EnvRollouts


class Twice(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "z"}]


def share(completion):
    text = completion[-1]["content"]
    if text == "x":
        raise vf.Undecided("no word")
    return {"a": 1.0, "b": 0.5}.get(text, 0.0)


@dataclass
class Sampling:
    max_generate_length: int = 4
    temperature: float = 1.0
    stop: Any = None
    additional_kwargs: Any = field(default_factory=lambda: {"seed": 3})


class Client(Engine):
    """SkyRL's inference client."""

    def __init__(self, reply):
        super().__init__(reply)
        self.salts, self.weight_version = [], 0

    async def generate(self, input_batch, model=None):
        (prompt_ids,) = input_batch["prompt_token_ids"]
        sampling, sessions = input_batch["sampling_params"], input_batch["session_ids"]
        self.salts.append(input_batch["cache_salt"])
        ids, logprobs = await self.answer(prompt_ids, sampling=sampling, session=sessions, model=model)
        return {"response_ids": [ids], "response_logprobs": [logprobs], "stop_reasons": ["stop"], "responses": [""]}


def generator(reply, *, turns=1, **given):
    env = Twice(
        dataset=[{"question": q, "answer": ""} for q in ("abc", "de")], rubric=vf.Rubric([share]), max_turns=turns
    )
    client = Client(reply)
    config = SimpleNamespace(sampling_params=Sampling(), max_input_length=30)
    return EnvironmentGenerator(EnvRollouts(env), client, client.tokenizer, config, **given), client


def batch(*questions, **given):
    return {
        "prompts": [[{"role": "user", "content": q}] for q in questions],
        "trajectory_ids": list(questions),
        **given,
    }


async def test_one_sequence_for_each_prompt_in_their_order():
    made, client = generator(lambda question, number: {"abc": "a", "de": "b"}[question])
    output = await made.generate(batch("abc", "de", "abc", "de"))
    assert output["rewards"] == [1.0, 0.5, 1.0, 0.5]
    decoded = [client.tokenizer.decode(ids) for ids in output["prompt_token_ids"]]
    assert decoded == ["<user>abc<assistant>", "<user>de<assistant>"] * 2
    assert output["trajectory_ids"] == ["abc", "de", "abc", "de"]
    assert output["rollout_metrics"] == {
        "environment/share": 0.75,
        "environment/num_turns": 1.0,
        "environment/unscored": 0.0,
    }


async def test_a_rollout_without_a_reward_changes_nothing_for_its_siblings():
    said = iter(["a", "x", "b"])
    made, _ = generator(lambda question, number: next(said))
    output = await made.generate(batch("abc", "abc", "abc"))
    assert output["rewards"] == [1.0, 0.75, 0.5]
    assert [any(mask) for mask in output["loss_masks"]] == [True, False, True]
    assert output["rollout_metrics"]["environment/unscored"] == 1.0


async def test_when_nothing_has_a_reward_nothing_is_trained():
    made, _ = generator(lambda question, number: "x")
    with pytest.raises(SetupError, match=r"not one of 2 rollouts .* no word"):
        await made.generate(batch("abc", "abc"))


async def test_turns_are_one_session_and_what_lies_between_is_masked():
    made, client = generator(lambda question, number: "a", turns=2)
    output = await made.generate(batch("abc"))
    assert client.tokenizer.decode(output["response_ids"][0]) == "a<end><user>z<assistant>a<end>"
    assert output["loss_masks"] == [[1, 1, 0, 0, 0, 1, 1]]
    assert output["rollout_logprobs"] == [[-0.25, -0.25, 0.0, 0.0, 0.0, -0.25, -0.25]]
    first, second = client.asked
    assert first["session"] == second["session"]


async def test_sampling_is_the_configurations_and_an_evaluations_own_goes_before_it():
    made, client = generator(lambda question, number: "a", model="policy")
    await made.generate(batch("abc"))
    await made.generate(batch("abc", sampling_params={"temperature": 0.0, "max_tokens": 2}))
    trained, evaluated = client.asked
    assert trained["sampling"] == {"temperature": 1.0, "max_tokens": 4, "seed": 3, "logprobs": 1}
    assert evaluated["sampling"] == {"temperature": 0.0, "max_tokens": 2, "seed": 3, "logprobs": 1}
    assert trained["model"] == "policy"


async def test_prefix_caches_of_older_weights_are_shut_out():
    made, client = generator(lambda question, number: "a", model="policy")
    await made.generate(batch("abc"))
    client.weight_version += 1
    await made.generate(batch("abc"))
    assert client.salts == ["policy@0", "policy@1"]


async def test_evaluation_runs_on_the_rows_of_evaluation():
    env = vf.SingleTurnEnv(dataset=[{"question": "q", "answer": ""}], rubric=vf.Rubric([share]))
    made, _ = generator(lambda question, number: "a", evaluation=EnvRollouts(env))
    output = await made.generate(batch("q", batch_metadata=SimpleNamespace(training_phase="eval", global_step=1)))
    assert output["rewards"] == [1.0]


def test_rows_are_the_prompts_with_a_name():
    made, _ = generator(lambda question, number: "a")
    assert [row["prompt"][0]["content"] for row in rows(made.rollouts)] == ["abc", "de"]


# Against the package


async def test_the_installed_package_finds_the_output_valid():
    np = pytest.importorskip("numpy")
    base = source_of("skyrl", "train/generators/base.py")
    fields = {node.target.id for node in definition(base, "GeneratorOutput").body if hasattr(node, "target")}
    trainer = source_of("skyrl", "train/utils/trainer_utils.py")
    names = {"np": np, "GeneratorOutput": dict, "logger": SimpleNamespace(warning=pytest.fail)}
    check = run_definitions(trainer, ["validate_generator_output"], names)["validate_generator_output"]
    made, _ = generator(lambda question, number: "a", turns=2)
    output = await made.generate(batch("abc", "de"))
    assert output.keys() == fields
    check(2, output)


def test_the_installed_package_calls_as_ours_is_called_and_answers_as_ours_expects():
    base = source_of("skyrl", "train/generators/base.py")
    assert parameters(base, "GeneratorInterface", "generate") == ["input_batch"]
    servers = source_of("skyrl", "backends/skyrl_train/inference_servers/base.py")
    assert parameters(servers, "InferenceEngineInterface", "generate") == ["input_batch", "model"]

    def named(name):
        return {node.target.id for node in definition(servers, name).body if hasattr(node, "target")}

    assert {"prompts", "prompt_token_ids", "sampling_params", "session_ids", "cache_salt"} <= named(
        "InferenceEngineInput"
    )
    assert {"response_ids", "response_logprobs", "stop_reasons"} <= named("InferenceEngineOutput")
