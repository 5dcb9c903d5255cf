"""The figures that a trainer leaves for the check of its servers are those of its own weights, before and after."""

from array import array

import pytest
from rl_policies import batch_of, some_samples, torch, transformers, write_model

from verifiers.rl.trainer.checked_step import checked_step
from verifiers.rl.trainer.config import ModelConfig, OptimConfig, TrainerConfig
from verifiers.rl.trainer.trainer import Trainer
from verifiers.rl.weight_check import ScoredTexts


def logprobs(folder, ids):
    """By transformers alone, of all tokens but the first."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        told = model(torch.tensor([ids])).logits[0].log_softmax(1)
    return told[:-1].gather(1, torch.tensor(ids[1:])[:, None]).squeeze(1).tolist()


def test_a_step_leaves_a_text_scored_before_it_and_after_it(tmp_path):
    folder = write_model(tmp_path / "model")
    config = TrainerConfig(model=ModelConfig(path=str(folder)), optim=OptimConfig(lr=0.01))
    trainer, plain = Trainer.start(config, device="cpu"), Trainer.start(config, device="cpu")
    texts, batch = ScoredTexts(tmp_path / "texts"), batch_of(some_samples(12))
    metrics = checked_step(trainer, batch, texts)
    assert metrics["loss"] == plain.step(batch)["loss"]  # it changes nothing
    text = texts.read(trainer.version)
    trainer.export(tmp_path / "new", torch.float32)
    assert len(text.token_ids) > 2 and sum(map(len, text.token_ids)) > 20
    first = batch.micro_batches[0]
    assert array("i", text.token_ids[0]) == first.input_ids[: first.seq_lens[0] - 1]
    for ids, before, now in zip(text.token_ids, text.before, text.logprobs, strict=True):
        assert before == pytest.approx(logprobs(folder, ids), abs=1e-5)
        assert now == pytest.approx(logprobs(tmp_path / "new", ids), abs=1e-5)
        assert now != pytest.approx(before, abs=1e-3)


def test_where_nobody_checks_nothing_is_left(tmp_path):
    trainer = Trainer.start(TrainerConfig(model=ModelConfig(path=str(write_model(tmp_path / "model")))), device="cpu")
    assert "loss" in checked_step(trainer, batch_of(some_samples(4)), None)
    assert not (tmp_path / "texts").exists()
