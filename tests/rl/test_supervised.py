"""Supervised stages: what they read, in which order, that they learn it, and that a run that died goes on the same."""

import json

import msgspec
import pytest
import tiny_model
from rl_policies import SMALL, torch, transformers, write_model
from safetensors.torch import load_file

from verifiers.errors import ConfigError
from verifiers.records import EnvInfo, Failure, ModelInfo, RolloutRecord, TokenTrace, Turn, encode_record, encode_traces
from verifiers.rl.chat_tokenizer import load_chat_tokenizer
from verifiers.rl.render import TemplateRenderer
from verifiers.rl.trainer.config import ModelConfig, OptimConfig
from verifiers.rl.trainer.conversations import DataConfig, StageData
from verifiers.rl.trainer.supervised import StageConfig, SupervisedConfig, train_supervised

PRAISE = "The answer is four."


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a tiny model and a tokenizer with a chat template."""
    folder = tmp_path_factory.mktemp("model")
    config = transformers.Qwen3Config(
        **SMALL | {"vocab_size": tiny_model.VOCABULARY}, head_dim=8, tie_word_embeddings=True
    )
    write_model(folder, config)
    tiny_model.make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def renderer(model):
    return TemplateRenderer(load_chat_tokenizer(model))


def chat(question, answer=PRAISE):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def write_chats(path, chats):
    path.write_text("".join(json.dumps(one) + "\n" for one in chats))
    return str(path)


def record(example_id, reward, *, answer=PRAISE, **fields):
    return RolloutRecord(
        env=EnvInfo(name="test"),
        example_id=example_id,
        rollout_index=0,
        model=ModelInfo(name="m"),
        prompt=[{"role": "user", "content": f"Question {example_id}?"}],
        messages=[{"role": "assistant", "content": answer}],
        reward=reward,
        status="unscored" if reward is None else "scored",
        turns=fields.pop("turns", [Turn(start=0, end=1)]),
        **fields,
    )


def write_records(folder, records):
    folder.mkdir()
    (folder / "results.jsonl").write_bytes(b"".join(encode_record(one) + b"\n" for one in records))
    traces = [line for one in records if (line := encode_traces(one))]
    (folder / "results.tokens.jsonl").write_bytes(b"".join(line + b"\n" for line in traces))
    return str(folder)


def trained_text(renderer, sample):
    return renderer.chat.decode([token for token, of in zip(sample.token_ids, sample.mask) if of])


def test_only_what_the_assistant_wrote_is_trained(renderer, tmp_path):
    path = write_chats(tmp_path / "chats.jsonl", [chat("What is two and two?")])
    (sample,) = StageData.read(DataConfig(chats=[path]), renderer).samples
    assert trained_text(renderer, sample) == f"{PRAISE}<|im_end|>"
    assert "two and two" in renderer.chat.decode(list(sample.token_ids))


def test_rollouts_are_chosen_by_their_reward(renderer, tmp_path):
    records = [
        record(0, 1.0, answer="good"),
        record(1, 0.5, answer="fair"),
        record(2, 0.2, answer="bad"),
        record(3, None, answer="unknown"),
        record(4, 1.0, answer="cut", is_truncated=True),
        record(5, 1.0, answer="broken", errors=[Failure(side="tool", type="E", message="m")]),
    ]
    data = StageData.read(DataConfig(records=[write_records(tmp_path / "run", records)], min_reward=0.5), renderer)
    assert [trained_text(renderer, sample) for sample in data.samples] == ["good<|im_end|>", "fair<|im_end|>"]
    assert (data.counts.conversations, data.counts.low_reward, data.counts.broken) == (6, 2, 2)
    assert data.counts.sequences == 2
    assert data.counts.trained_tokens == sum(sample.num_trained for sample in data.samples)


def test_saved_tokens_are_trained_as_they_were_sampled(renderer, tmp_path):
    """Ids that no tokenizer would give for the text, so that nothing can have been rendered."""
    first = TokenTrace.of([5, 6, 7], [8, 9], [-0.1, -0.2])
    second = TokenTrace.of([10], [11, 12], [-0.3, -0.4], prefix_length=5)
    turns = [Turn(start=0, end=1, tokens=first), Turn(start=0, end=1, tokens=second)]
    folder = write_records(tmp_path / "run", [record(0, 1.0, turns=turns)])
    (sample,) = StageData.read(DataConfig(records=[folder]), renderer).samples
    assert list(sample.token_ids) == [5, 6, 7, 8, 9, 10, 11, 12]
    assert list(sample.mask) == [0, 0, 0, 1, 1, 0, 1, 1]


def test_each_epoch_has_every_sequence_once_in_an_order_of_its_own(renderer, tmp_path):
    path = write_chats(tmp_path / "chats.jsonl", [chat(f"Number {number}?") for number in range(7)])
    config = DataConfig(chats=[path], batch_size=1, epochs=3)
    data = StageData.read(config, renderer, seed=4)
    order = [sequences(data.batch(step))[0] for step in range(data.steps)]
    epochs = [order[start : start + 7] for start in (0, 7, 14)]
    assert len(order) == 21
    assert [len(set(epoch)) for epoch in epochs] == [7, 7, 7]
    assert epochs[0] != epochs[1] != epochs[2]
    again = StageData.read(config, renderer, seed=4)
    assert again.batch(12) == data.batch(12)  # without the steps before it
    assert [sequences(StageData.read(config, renderer, seed=5).batch(step))[0] for step in range(7)] != epochs[0]


def test_steps_take_as_many_sequences_as_they_are_told_and_the_last_one_the_rest(renderer, tmp_path):
    path = write_chats(tmp_path / "chats.jsonl", [chat(f"Number {number}?") for number in range(7)])
    data = StageData.read(DataConfig(chats=[path], batch_size=3, epochs=2), renderer)
    assert [len(sequences(data.batch(step))) for step in range(data.steps)] == [3, 3, 3, 3, 2]


def sequences(ranks):
    found = []
    for micro in ranks[0].micro_batches:
        start = 0
        for length in micro.seq_lens:
            found.append(tuple(micro.input_ids[start : start + length]))
            start += length
    return found


def test_sequences_that_do_not_fit_are_left_out_and_counted(renderer, tmp_path):
    path = write_chats(tmp_path / "chats.jsonl", [chat("Short?"), chat("Long?", PRAISE * 40)])
    data = StageData.read(DataConfig(chats=[path], seq_len=64), renderer)
    assert (data.counts.sequences, data.counts.overlong) == (1, 1)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["not json"], "chats.jsonl:2"),
        (['{"messages": "hello"}'], "chats.jsonl:2"),
    ],
    ids=["no JSON", "of another shape"],
)
def test_a_line_that_is_no_chat_is_named(lines, words, renderer, tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join([json.dumps(chat("Fine?")), *lines]))
    with pytest.raises(ConfigError, match=words):
        StageData.read(DataConfig(chats=[str(path)]), renderer)


def test_a_missing_file_and_no_data_at_all_are_said(renderer, tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        StageData.read(DataConfig(chats=[str(tmp_path / "nowhere.jsonl")]), renderer)
    with pytest.raises(ConfigError, match="nothing is left"):
        folder = write_records(tmp_path / "run", [record(0, 0.0)])
        StageData.read(DataConfig(records=[folder], min_reward=1.0), renderer)
    with pytest.raises(ConfigError, match="both empty"):
        DataConfig()


def config_of(model, tmp_path, **options):
    chats = write_chats(tmp_path / "chats.jsonl", [chat(f"Number {number}?") for number in range(6)])
    records = write_records(tmp_path / "run", [record(number, 1.0) for number in range(4)])
    optim = OptimConfig(lr=0.01)
    stages = [
        StageConfig(name="reasoning", data=DataConfig(chats=[chats], batch_size=3, epochs=3), optim=optim),
        StageConfig(name="agents", data=DataConfig(records=[records], batch_size=2, epochs=2), optim=optim),
    ]
    return SupervisedConfig(model=ModelConfig(path=str(model)), stages=stages, folder=str(tmp_path / "out"), **options)


class Stop(Exception):
    pass


def test_stages_follow_one_another_and_learn(model, renderer, tmp_path):
    told = []
    last = train_supervised(config_of(model, tmp_path), renderer, on_step=lambda *step: told.append(step), device="cpu")
    assert [(stage, step, of) for stage, step, of, _ in told] == [
        *(("reasoning", step, 6) for step in range(6)),
        *(("agents", step, 4) for step in range(4)),
    ]
    losses = [metrics["loss"] for *_, metrics in told]
    assert losses[0] == pytest.approx(6.93, abs=0.2)  # ln 1024: random weights
    assert losses[5] < losses[0] - 2
    assert losses[6] < losses[0] - 2  # the second stage asks for the same answers, and begins where the first one ended
    assert losses[9] < losses[6]
    assert (last / "tokenizer.json").exists()
    assert last == tmp_path / "out" / "agents" / "model"
    assert not (tmp_path / "out" / "agents" / "checkpoints").exists()


@pytest.mark.parametrize("stop_after", [2, 8], ids=["in the first stage", "in the second"])
def test_a_run_that_died_goes_on_to_the_same_weights(stop_after, model, renderer, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    straight = train_supervised(config_of(model, tmp_path / "a"), renderer, device="cpu")
    config = config_of(model, tmp_path / "b", checkpoint_every=2)
    seen = []

    def dies(*step):
        seen.append(step[:2])
        if len(seen) > stop_after:
            raise Stop

    with pytest.raises(Stop):
        train_supervised(config, renderer, on_step=dies, device="cpu")
    last = train_supervised(config, renderer, on_step=lambda *step: seen.append(step[:2]), device="cpu")
    assert len(seen) < 13  # it did not begin anew
    expected = load_file(straight / "model.safetensors")
    for name, tensor in load_file(last / "model.safetensors").items():
        assert torch.equal(tensor, expected[name]), name


def test_a_config_from_toml_is_checked_by_field(model, tmp_path):
    told = msgspec.to_builtins(config_of(model, tmp_path))
    assert msgspec.convert(told, SupervisedConfig) == msgspec.convert(told, SupervisedConfig)
    told["stages"][1]["name"] = "reasoning"
    with pytest.raises(msgspec.ValidationError, match="stages: names"):
        msgspec.convert(told, SupervisedConfig)
    told["stages"][1] = {"name": "agents", "data": {"chats": ["c"], "sequence_length": 5}}
    with pytest.raises(msgspec.ValidationError, match="sequence_length"):
        msgspec.convert(told, SupervisedConfig)
