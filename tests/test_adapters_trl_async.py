"""An environment as the rollout worker of TRL's asynchronous trainer: its queue, its ends, and the real trainer."""

import asyncio
import queue

import pytest
from letter_chat import Engine
from trainer_packages import definition, source_of
from trl_runs import logged, needs_trl, reverse_letters, settings, start_in
from waiting import until

import verifiers as vf
from verifiers.adapters.trl_async import POLL_S, EnvironmentWorker
from verifiers.adapters.trl_sample import RolloutSample
from verifiers.errors import ConfigError, ModelNotFoundError, SetupError
from verifiers.rl.chat_tokenizer import HuggingFaceChat
from verifiers.rl.rollouts import EnvRollouts
from verifiers.rl.sample_policy import SamplePolicy
from verifiers.rl.token_client import Sampled, TokenClient


class Twice(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "z"}]


def reversed_last(completion, answer):
    if completion[-1]["content"] == "x":
        raise vf.Undecided("no word")
    return float(completion[-1]["content"] == answer)


def words(turns=1):
    rows = [{"question": "abc", "answer": "cba"}, {"question": "de", "answer": "ed"}]
    return EnvRollouts(Twice(dataset=rows, rubric=vf.Rubric([reversed_last]), max_turns=turns))


def client_of(engine):
    async def sample(prompt_ids, sampling, affinity):
        return Sampled(*await engine.answer(prompt_ids))

    return TokenClient(sample, HuggingFaceChat(engine.tokenizer))


@pytest.fixture
def worker():
    """Makes workers, and stops them."""
    made = []

    def make(reply, *, turns=1, **given):
        engine = Engine(reply) if callable(reply) else reply
        made.append(EnvironmentWorker(words(turns), client_of(engine), "policy", **{"group_size": 4, **given}))
        return made[-1], engine

    yield make
    for one in made:
        one.stop()


def taken(one, count):
    return [one.rollout_buffer.get(timeout=60) for _ in range(count)]


def metrics_of(one):
    found = []
    while True:
        try:
            found.append(one.metrics_queue.get_nowait())
        except queue.Empty:
            return found


def test_samples_of_groups_reach_the_queue_as_the_trainer_reads_them(worker):
    one, engine = worker(lambda question, number: "cba" if number % 2 else "aa", groups_in_flight=1)
    one.start()
    first = taken(one, 4)
    assert {sample.group_id for sample in first} == {0}
    assert sorted(sample.advantage for sample in first) == [-0.5, -0.5, 0.5, 0.5]
    for sample in first:
        text = "cba" if sample.advantage > 0 else "aa"
        assert engine.tokenizer.decode(sample.input_ids.tolist()) == f"<user>abc<assistant>{text}<end>"
        trained = sample.input_ids[sample.completion_mask == 1].tolist()
        assert engine.tokenizer.decode(trained) == f"{text}<end>"
        assert sample.old_log_probs.tolist() == (-0.25 * sample.completion_mask).tolist()
        assert sample.completion[-1]["content"] == text


def test_what_the_environment_said_between_the_replies_is_not_trained(worker):
    one, engine = worker(lambda question, number: "cba" if number % 2 else "aa", turns=2, groups_in_flight=1)
    one.start()
    for sample in taken(one, 4):
        text = engine.tokenizer.decode(sample.input_ids[sample.completion_mask == 0].tolist())
        assert text == "<user>abc<assistant><user>z<assistant>"


def test_a_sample_has_the_version_that_its_group_began_under(worker):
    release = asyncio.Event()

    class Held(Engine):
        async def answer(self, prompt_ids, **asked):
            made = await super().answer(prompt_ids, **asked)
            await release.wait()
            return made

    one, engine = worker(Held(lambda question, number: "cba" if number % 2 else "aa"), groups_in_flight=1)
    one.update_model_version(3)
    one.start()
    asyncio.run(until(lambda: len(engine.asked) == 4))
    one.update_model_version(4)  # while they are in flight
    one._loop.submit(_set(release)).result()
    assert {sample.model_version for sample in taken(one, 4)} == {3}
    assert {sample.model_version for sample in taken(one, 4)} == {4}


async def _set(event):
    event.set()


def test_a_group_that_teaches_nothing_is_not_handed_on_but_counts_in_the_means(worker):
    said = iter([*["cba"] * 4, *["x", "a", "ed", "ed"]])
    one, _ = worker(lambda question, number: next(said, "x"), groups_in_flight=1)
    one.start()
    assert [sample.group_id for sample in taken(one, 3)] == [1, 1, 1]
    right, mixed = metrics_of(one)[:2]
    assert right["reward"] == right["environment/reversed_last"] == (4.0, 4)
    assert mixed["reward"] == mixed["environment/reversed_last"] == (2.0, 3)
    assert (right["samples/trivial_groups_total"], mixed["samples/undecided_total"]) == (1, 1)


def test_groups_that_teach_nothing_for_long_are_an_error(worker):
    one, _ = worker(lambda question, number: "a", group_size=2)
    one.start()
    asyncio.run(until(lambda: one._work.done(), limit_s=240))
    with pytest.raises(SetupError, match="the last 100 groups of Twice taught nothing"):
        one.check_health(300)


def test_no_group_begins_while_enough_samples_wait(worker):
    one, engine = worker(lambda question, number: question[::-1] if number % 2 else "a", ahead=4, groups_in_flight=2)
    one.start()
    asyncio.run(until(lambda: one.rollout_buffer.qsize() >= 4))
    one._loop.submit(asyncio.sleep(3 * POLL_S)).result()
    assert len(engine.asked) == one.rollout_buffer.qsize() <= 2 * 4  # what was in flight came on top
    taken(one, one.rollout_buffer.qsize())
    asyncio.run(until(lambda: len(engine.asked) > 2 * 4))


def test_what_ends_the_rollouts_is_raised_to_the_trainer(worker):
    class Broken(Engine):
        async def answer(self, prompt_ids, **asked):
            raise ModelNotFoundError("no such model")

    one, _ = worker(Broken(str))
    one.start()
    asyncio.run(until(lambda: one._work.done()))
    with pytest.raises(ModelNotFoundError, match="no such model"):
        one.check_health(300)


def test_a_server_that_does_not_answer_is_told_and_stopping_ends_its_rollouts(worker):
    ended = []

    class Silent(Engine):
        async def answer(self, prompt_ids, **asked):
            self.asked.append({})
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(prompt_ids)

    one, engine = worker(Silent(str), groups_in_flight=1)
    one.start()
    asyncio.run(until(lambda: len(engine.asked) == 4))
    one.check_health(300)
    with pytest.raises(TimeoutError, match="no group of Twice came to its end"):
        one.check_health(0)
    one.stop()
    assert len(ended) == 4


def test_rewards_of_single_turns_are_refused():
    with pytest.raises(ConfigError, match="one advantage for a whole sample"):
        EnvironmentWorker(words(), None, "policy", policy=SamplePolicy(turn_reward_weight=1.0))


# Against the package


def test_the_installed_package_reads_the_fields_and_calls_the_methods_that_there_are():
    module = source_of("trl", "experimental/async_grpo/async_rollout_worker.py")
    fields = [node.target.id for node in definition(module, "RolloutSample").body if hasattr(node, "target")]
    assert fields == list(RolloutSample.__dataclass_fields__)
    trainer = source_of("trl", "experimental/async_grpo/async_grpo_trainer.py")
    body = definition(trainer, "RolloutWorkerProtocol").body
    wanted = {node.target.id for node in body if hasattr(node, "target")} | {n.name for n in body if hasattr(n, "name")}
    assert wanted == {
        *("rollout_buffer", "metrics_queue"),
        *("start", "stop", "update_model_version", "check_health"),
    }
    assert all(hasattr(EnvironmentWorker(words(), None, "policy"), name) for name in wanted)


# With the real trainer


@needs_trl
@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # TRL and what it imports warn of their own matters
def test_a_real_trainer_steps_on_samples_of_weights_that_it_updates_meanwhile(tmp_path_factory, tmp_path, monkeypatch):
    """All of it but what there is for GPUs only: its attention, how fast they are, and vLLM."""
    from transformers import AutoTokenizer
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, packing
    from trl_async_cpu import Server, kernels

    monkeypatch.setattr(packing, "_flash_attn", lambda: kernels)
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)
    model = start_in(tmp_path_factory.getbasetemp())
    tokenizer = AutoTokenizer.from_pretrained(model)
    server = Server(model, tokenizer.eos_token_id, max_tokens=6)
    rollouts = reverse_letters(200)
    trainer = AsyncGRPOTrainer(
        model,
        args=AsyncGRPOConfig(
            **settings(tmp_path, max_steps=8, per_device_train_batch_size=64),
            token_budget=0,
            max_staleness=2,
        ),
        train_dataset=rollouts.dataset(),
        processing_class=tokenizer,
        rollout_worker=EnvironmentWorker(rollouts, TokenClient(server, HuggingFaceChat(tokenizer)), "policy"),
        weight_transfer=server,
    )
    trainer.train()
    assert server.updates == 9  # before the first step, and after each
    assert len(logged(trainer, "loss")) == 8
    assert all(0.1 < reward < 0.9 for reward in logged(trainer, "reward"))
    assert max(logged(trainer, "sample/staleness_max")) <= 2
    # the first step's samples are of the weights that it starts from: the trainer finds what the server found
    assert logged(trainer, "ratio")[0] == pytest.approx(1.0, abs=1e-3)
    assert logged(trainer, "kl")[0] < 1e-4
    assert trainer.rollout_worker._work is None  # stopped
