"""A trainer in one process: a step does what it says, checkpoints go on identically, what it writes can be loaded."""

import json
import math
import random
from array import array

import msgspec
import pytest
from rl_policies import SMALL, batch_of, sample, some_samples, torch, transformers, write_model

from verifiers.rl.trainer.checkpoint import MARKER, checkpoints
from verifiers.rl.trainer.config import ModelConfig, OptimConfig, TrainerConfig
from verifiers.rl.trainer.model import Packed
from verifiers.rl.trainer.trainer import NotFinite, Trainer
from verifiers.rl.trainer.weights import export

OPTIM = OptimConfig(lr=0.003, warmup_steps=2)


def trainer_of(folder, **options):
    model = ModelConfig(path=str(folder), **options.pop("model", {}))
    return Trainer.start(TrainerConfig(model=model, **{"optim": OPTIM} | options), device="cpu")


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.named_weights()}


def steps(count, first=0):
    return [batch_of(some_samples(9, seed=step), step=step) for step in range(first, first + count)]


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path / "model")


def test_a_step_moves_every_weight_and_counts(folder):
    trainer = trainer_of(folder)
    before = weights(trainer)
    (batch,) = steps(1)
    metrics = trainer.step(batch)
    assert (trainer.next_step, trainer.version) == (1, 1)
    assert all(not torch.equal(before[name], tensor) for name, tensor in weights(trainer).items())
    assert metrics["trained_tokens"] == batch.micro_batches[0].total_tokens
    assert metrics["lr"] == pytest.approx(0.003 / 2)
    assert 0 < metrics["ratio_p01"] < metrics["ratio_p99"]
    assert metrics["entropy"] == pytest.approx(math.log(97), rel=0.05)  # random weights choose about evenly
    assert metrics["tokens_per_s"] > 0


def test_how_a_step_is_cut_into_micro_batches_changes_nothing(folder):
    samples = some_samples(12)
    start = weights(trainer_of(folder))
    found = []
    for seq_len in (20, 64, 1000):
        trainer = trainer_of(folder)
        batch = batch_of(samples, seq_len=seq_len)
        found.append((len(batch.micro_batches), trainer.step(batch), weights(trainer)))
    assert [passes for passes, _, _ in found] == sorted({passes for passes, _, _ in found}, reverse=True)
    _, metrics, expected = found[-1]
    for _, other, moved in found[:-1]:
        for name in ("loss", "grad_norm", "mismatch_kl", "share_masked_low", "ratio_p99", "entropy"):
            assert other[name] == pytest.approx(metrics[name], rel=1e-4, abs=1e-7), name
        for name, tensor in expected.items():
            # Newton–Schulz runs in bfloat16, which makes a last bit of a gradient one of a hundredth
            assert (moved[name] - tensor).norm() < 0.02 * (tensor - start[name]).norm(), name


def test_logprobs_are_what_the_loss_sees(folder):
    """Told its own log-probabilities as the sampler's, the trainer finds no mismatch."""
    trainer = trainer_of(folder)
    (micro_batch,) = batch_of(some_samples(5), seq_len=512).micro_batches
    own = array("f", trainer.logprobs(micro_batch)).tobytes()
    batch = batch_of(some_samples(5), seq_len=512)
    same = msgspec.structs.replace(batch, micro_batches=[msgspec.structs.replace(micro_batch, logprob_buffer=own)])
    metrics = trainer.step(same)
    assert metrics["abs_log_ratio"] == pytest.approx(0.0, abs=1e-7)
    assert (metrics["ratio_p01"], metrics["ratio_p99"]) == pytest.approx((1.0, 1.0), abs=1e-6)
    assert metrics["share_masked_low"] == metrics["share_masked_high"] == metrics["share_dropped_tokens"] == 0


def test_large_gradients_are_clipped(folder):
    norms = []
    for most in (0.0, 0.01):
        trainer = trainer_of(folder, optim=OptimConfig(lr=0.0, max_grad_norm=most))
        norms.append(trainer.step(steps(1)[0])["grad_norm"])
    assert norms[0] == norms[1] > 0.01  # what is told is the norm before clipping
    trainer = trainer_of(folder, optim=OptimConfig(max_grad_norm=0.01, muon=False))
    batch = steps(1)[0]
    trainer.optimizer.step = lambda: None  # so that the gradients that it is given can be looked at
    trainer.optimizer.zero_grad = lambda set_to_none=True: None
    trainer.step(batch)
    squares = sum(parameter.grad.square().sum().item() for parameter in trainer.model.parameters())
    assert math.sqrt(squares) == pytest.approx(0.01, rel=1e-3)


def test_weights_stay_when_a_gradient_is_no_number(folder):
    trainer = trainer_of(folder)
    before = weights(trainer)
    (batch,) = steps(1)
    broken = msgspec.structs.replace(
        batch,
        micro_batches=[
            msgspec.structs.replace(micro, advantage_buffer=array("f", [math.inf] * len(micro.mask_buffer)).tobytes())
            for micro in batch.micro_batches
        ],
    )
    with pytest.raises(NotFinite, match=r"step 0: .*were left"):
        trainer.step(broken)
    assert trainer.version == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(trainer).items())
    trainer.step(batch)  # and the step can be had with another batch


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": 3}, "its next step is 0"),
        ({"rank": 1, "world_size": 2}, "rank 1 of 2"),
        ({"micro_batches": []}, "fillers"),
    ],
    ids=["a step too far", "of another rank", "nothing in it"],
)
def test_a_batch_that_is_not_the_next_one_is_refused(change, words, folder):
    with pytest.raises(ValueError, match=words):
        trainer_of(folder).step(msgspec.structs.replace(steps(1)[0], **change))


def test_resumed_training_is_the_same_bit_for_bit(folder, tmp_path):
    straight = trainer_of(folder)
    expected = [straight.step(batch) for batch in steps(4)][2:]
    first = trainer_of(folder)
    for batch in steps(2):
        first.step(batch)
    first.extra = {"stage": 1}
    torch.rand(5), random.random()  # so that what is drawn next is not what a fresh process draws
    first.save(tmp_path / "checkpoints")
    next_draw = (torch.rand(3).tolist(), random.random())
    second = trainer_of(write_model(tmp_path / "other", seed=1))  # whatever it began with
    assert second.resume(tmp_path / "checkpoints")
    assert (second.next_step, second.version, second.extra) == (2, 2, {"stage": 1})
    assert (torch.rand(3).tolist(), random.random()) == next_draw
    found = [second.step(batch) for batch in steps(2, first=2)]
    for ours, theirs in zip(found, expected, strict=True):
        timeless = {"step_s", "tokens_per_s"}
        assert {k: v for k, v in ours.items() if k not in timeless} == {
            k: v for k, v in theirs.items() if k not in timeless
        }
    for name, tensor in weights(straight).items():
        assert torch.equal(weights(second)[name], tensor), name


def test_no_checkpoint_is_said_and_nothing_changes(folder, tmp_path):
    trainer = trainer_of(folder)
    assert not trainer.resume(tmp_path / "nowhere")
    assert trainer.next_step == 0


def test_a_checkpoint_that_was_cut_off_is_passed_over(folder, tmp_path):
    trainer = trainer_of(folder)
    trainer.save(tmp_path)
    trainer.step(steps(1)[0])
    newest = trainer.save(tmp_path)
    largest = max(newest.rglob("*.distcp"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    assert [path.name for path in checkpoints(tmp_path)] == ["step_00000000"]
    assert trainer.resume(tmp_path)
    assert trainer.next_step == 0


def test_a_writer_that_died_leaves_no_checkpoint_and_no_hindrance(folder, tmp_path):
    half = tmp_path / ".step_00000000.partial"
    half.mkdir()
    (half / MARKER).write_text("{}")
    trainer = trainer_of(folder)
    assert not trainer.resume(tmp_path)
    trainer.save(tmp_path)
    assert trainer.resume(tmp_path)


def test_only_the_newest_checkpoints_are_kept(folder, tmp_path):
    trainer = trainer_of(folder, keep_checkpoints=2)
    for batch in steps(4):
        trainer.save(tmp_path)
        trainer.step(batch)
    assert [path.name for path in sorted(tmp_path.glob("step_*"))] == ["step_00000002", "step_00000003"]


@pytest.mark.parametrize("fp32_head", [True, False])
def test_the_output_layer_is_exact_where_it_is_to_be(fp32_head, folder):
    """What comes out of the layers, in bfloat16, times the head's weights as they are kept."""
    trainer = trainer_of(folder, model={"compute": "bfloat16", "fp32_head": fp32_head})
    packed = Packed.of(batch_of(some_samples(9), seq_len=512).micro_batches[0], torch.device("cpu"))
    seen = []
    trainer.model.causal.base_model.register_forward_hook(lambda *told: seen.append(told[2].last_hidden_state[0]))
    with torch.no_grad():
        found = trainer.model(packed)[0][packed.trained]
    logits = seen[0].float()[packed.trained - 1] @ weights(trainer)["model.embed_tokens.weight"].T
    exact = (logits / packed.temperatures[:, None]).log_softmax(1)
    exact = exact.gather(1, packed.input_ids[packed.trained, None]).squeeze(1)
    trainer.close()
    error = (found - exact).abs().max().item()
    assert (error < 1e-5) == fp32_head, error


MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
LAYOUTS = {
    "tied": lambda: transformers.Qwen3Config(**SMALL, head_dim=8, tie_word_embeddings=True),
    "untied": lambda: transformers.Qwen3Config(**SMALL, head_dim=8),
    "experts": lambda: transformers.Qwen3MoeConfig(**SMALL, **MOE),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_exported_folder_is_what_transformers_itself_would_write(layout, tmp_path):
    """Names and values, so that vLLM, which reads by those names, finds them all."""
    trainer = trainer_of(write_model(tmp_path / "model", LAYOUTS[layout]()))
    trainer.step(steps(1)[0])
    trainer.export(tmp_path / "ours", torch.float32)
    trainer.model.causal.save_pretrained(tmp_path / "theirs")
    ours, theirs = _tensors(tmp_path / "ours"), _tensors(tmp_path / "theirs")
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
    again = trainer_of(tmp_path / "ours")
    (micro_batch,) = batch_of(some_samples(3), seq_len=512).micro_batches
    assert again.logprobs(micro_batch) == trainer.logprobs(micro_batch)


def _tensors(folder):
    from safetensors.torch import load_file

    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def test_a_large_model_is_exported_in_several_files_with_an_index(folder, tmp_path):
    trainer = trainer_of(folder)
    (folder / "tokenizer.json").write_text("{}")
    export(trainer.model, tmp_path / "out", trainer.ranks, source=folder, dtype=torch.bfloat16, shard_bytes=5000)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    files = {path.name for path in (tmp_path / "out").glob("*.safetensors")}
    assert len(files) > 2
    assert set(index["weight_map"].values()) == files
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert not list(tmp_path.glob(".out*"))
    found = _tensors(tmp_path / "out")
    assert index["metadata"]["total_size"] == sum(tensor.numel() * 2 for tensor in found.values())
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.bfloat16)
    for name, tensor in weights(trainer).items():
        assert torch.equal(plain.state_dict()[name], tensor.bfloat16()), name


def test_weights_come_whole_and_one_layer_at_a_time(folder):
    trainer = trainer_of(folder)
    seen = [name.split(".")[2] for name, _ in trainer.named_weights() if ".layers." in name]
    assert seen == sorted(seen)
    assert "lm_head.weight" not in dict(trainer.named_weights())


def test_a_learner_of_one_answer_learns_it(folder):
    """Pushed towards one answer and away from another, it comes to prefer the first."""
    trainer = trainer_of(folder, optim=OptimConfig(lr=0.01))
    good, bad = [5, 6, 7, 8], [5, 9, 10, 11]
    for step in range(8):
        (probe,) = batch_of([sample(good, rollout="a"), sample(bad, rollout="b")]).micro_batches
        now = trainer.logprobs(probe)
        pair = [sample(good, now[:4], rollout="a"), sample(bad, now[4:], advantage=-1.0, rollout="b")]
        trainer.step(batch_of(pair, step=step))
    after = trainer.logprobs(probe)
    assert sum(after[:4]) > -6 > sum(after[4:])
