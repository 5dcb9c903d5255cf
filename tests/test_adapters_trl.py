"""An environment in TRL: the rewards of rollouts and of single turns, and a real `GRPOTrainer` that learns."""

from types import SimpleNamespace

import pytest
from letter_chat import END, Letters
from trl_runs import logged, needs_trl, reverse_letters, settings, start_in

import verifiers as vf
from verifiers.adapters.trl import environment_reward, reward_function, rollout_func
from verifiers.errors import ConfigError
from verifiers.rl.rollouts import EnvRollouts


def exact(completion, answer):
    if "boom" in completion[-1]["content"]:
        raise vf.Undecided("not readable")
    return float(completion[-1]["content"] == answer)


def words(rubric=None):
    rows = [{"question": "abc", "answer": "cba"}, {"question": "de", "answer": "ed"}]
    return EnvRollouts(vf.SingleTurnEnv(dataset=rows, rubric=rubric or vf.Rubric([exact])))


def asked(question):
    return [{"role": "user", "content": question}]


def said(text):
    return [{"role": "assistant", "content": text}]


def test_single_turn_completions_are_scored_by_the_environments_rubric_in_their_places():
    score = reward_function(words())
    prompts = [asked("abc"), asked("de"), asked("abc"), asked("de")]
    completions = [said("cba"), said("cba"), said("no"), said("ed")]
    assert score(prompts=prompts, completions=completions, completion_ids=[[1]] * 4) == [1.0, 0.0, 0.0, 1.0]


def test_an_undecided_completion_has_no_reward_and_moves_no_others():
    score = reward_function(words())
    assert score(prompts=[asked("abc")] * 3, completions=[said("cba"), said("boom"), said("no")]) == [1.0, None, 0.0]


def test_a_reward_over_the_group_sees_the_whole_group():
    def longest(completions):
        sizes = [len(c[-1]["content"]) for c in completions]
        return [float(size == max(sizes)) for size in sizes]

    score = reward_function(words(vf.Rubric([longest])))
    assert score(prompts=[asked("abc")] * 3, completions=[said("a"), said("aaa"), said("aa")]) == [0.0, 1.0, 0.0]


def test_an_environment_that_answers_is_refused_as_a_reward_function():
    class Twice(vf.MultiTurnEnv):
        async def env_response(self, messages, state, **kwargs):
            return asked("again")

    env = Twice(dataset=[{"question": "abc", "answer": "cba"}], rubric=vf.Rubric([exact]), max_turns=2)
    with pytest.raises(ConfigError, match="several turns: train it with rollout_func"):
        reward_function(EnvRollouts(env))(prompts=[asked("abc")], completions=[said("cba")])


async def test_completions_are_scored_where_a_loop_is_running_already():
    """As in a notebook."""
    assert reward_function(words())(prompts=[asked("abc")], completions=["cba"]) == [1.0]


def test_what_generation_raises_is_raised_and_is_no_rollouts_failure():
    trainer = FakeTrainer(lambda prompts: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rollout_func(words())([asked("abc")] * 2, trainer)


def test_turns_that_are_asked_for_together_are_generated_together():
    letters = Letters()
    batches = []

    def generate(prompts):
        batches.append([letters.decode(ids) for ids in prompts])
        return [[*letters.encode("cba" if "abc" in text else "x"), END] for text in batches[-1]]

    output = rollout_func(words())([asked("abc"), asked("de"), asked("abc")], FakeTrainer(generate))
    assert [sorted(batch) for batch in batches] == [
        ["<user>abc<assistant>", "<user>abc<assistant>", "<user>de<assistant>"]
    ]
    assert output["environment_reward"] == [1.0, 0.0, 1.0]
    assert [letters.decode(ids) for ids in output["completion_ids"]] == ["cba<end>", "x<end>", "cba<end>"]
    assert output["env_mask"] == [[1] * 4, [1] * 2, [1] * 4]
    assert output["logprobs"] is None  # the trainer computes them where its engine gives none


def test_a_rollout_without_a_reward_is_none_to_the_trainer_and_not_trained():
    letters = Letters()
    replies = [[*letters.encode(text), END] for text in ("boom", "cba")]
    output = rollout_func(words())([asked("abc")] * 2, FakeTrainer(lambda prompts: replies))
    assert sorted(map(str, environment_reward(**output))) == ["1.0", "None"]
    assert sorted(any(mask) for mask in output["env_mask"]) == [False, True]
    (problem,) = (problem for problem in output["environment_problem"] if problem)
    assert problem == "undecided: exact: not readable"


def test_several_trainer_processes_need_an_endpoint():
    with pytest.raises(ConfigError, match="2 trainer processes generate in step"):
        rollout_func(words())([asked("abc")], FakeTrainer(list, processes=2))


class FakeTrainer:
    """As much of a GRPOTrainer as a rollout function sees; `generate` is its engine."""

    def __init__(self, generate, processes=1):
        self.generate = generate
        self.processing_class = Letters()
        self.accelerator = SimpleNamespace(num_processes=processes)
        self.eos_token_ids = [END]

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations):
        return self.generate(prompt_ids), None


def test_a_prompt_of_another_dataset_is_refused():
    with pytest.raises(ConfigError, match="no row with the prompt"):
        reward_function(words())(prompts=[asked("xyz")], completions=[said("zyx")])


def test_two_answers_to_one_prompt_are_refused():
    rows = [{"question": "abc", "answer": "cba"}, {"question": "abc", "answer": "bca"}]
    with pytest.raises(ConfigError, match=r"rows 0 and 1 of .* same prompt"):
        EnvRollouts(vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric([exact])))


# With the real trainer


@pytest.fixture
def start(tmp_path_factory):
    return start_in(tmp_path_factory.getbasetemp())


def trainer_of(model, folder, rollouts, *, steps, batch=64, rewards=environment_reward, **given):
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        **settings(folder, max_steps=steps, per_device_train_batch_size=batch),
        beta=0.0,
        scale_rewards="none",
        loss_type="dapo",
    )
    return GRPOTrainer(
        model=model,
        args=config,
        train_dataset=rollouts.dataset(),
        reward_funcs=rewards,
        processing_class=AutoTokenizer.from_pretrained(model),
        **given,
    )


@needs_trl
@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # TRL and what it imports warn of their own matters
def test_the_reward_rises_in_a_real_trainer(start, tmp_path):
    rollouts = reverse_letters(500)
    trainer = trainer_of(start, tmp_path, rollouts, steps=30, batch=256, rollout_func=rollout_func(rollouts))
    trainer.train()
    rewards = logged(trainer, "reward")
    assert len(rewards) == 30
    before, after = sum(rewards[:5]) / 5, sum(rewards[-5:]) / 5
    assert after > before + 0.15, rewards  # by 0.3, as a rule


@needs_trl
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_real_trainer_takes_the_rubric_as_its_reward_function(start, tmp_path):
    rollouts = reverse_letters(50)
    trainer = trainer_of(start, tmp_path, rollouts, steps=2, rewards=reward_function(rollouts))
    trainer.train()
    assert all(0.2 < reward < 0.8 for reward in logged(trainer, "reward"))  # as often right as the start is


@needs_trl
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_turns_of_an_environment_reach_the_trainer_with_a_mask(start, tmp_path):
    class Again(vf.MultiTurnEnv):
        async def env_response(self, messages, state, **kwargs):
            return asked("ab")

    rows = [{"question": f"abcd{letter}", "answer": f"{letter}dcba"} for letter in "abcdefgh"]
    rollouts = EnvRollouts(Again(dataset=rows, rubric=vf.Rubric([exact]), max_turns=2))
    seen = []

    def watched(prompts, trainer):
        seen.append(rollout_func(rollouts)(prompts, trainer))
        return dict(seen[-1])

    trainer = trainer_of(start, tmp_path, rollouts, steps=1, rollout_func=watched)
    trainer.train()
    (output,) = seen
    text = trainer.processing_class.decode
    for prompt, completion, mask in zip(
        output["prompt_ids"], output["completion_ids"], output["env_mask"], strict=True
    ):
        assert text(prompt)[:10] == "<user>abcd"
        assert text([i for i, m in zip(completion, mask, strict=True) if not m]) in ("<user>ab<assistant>", "")
    assert sum("<user>ab<assistant>" in text(ids) for ids in output["completion_ids"]) > 32
