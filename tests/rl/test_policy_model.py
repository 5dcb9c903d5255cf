"""The policy's log-probabilities: packed as alone, chunked as whole, of every architecture that is let in."""

import pytest
from rl_policies import SMALL, batch_of, sample, some_samples, torch, transformers, write_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from verifiers.rl.trainer.attention import UnsupportedModel
from verifiers.rl.trainer.config import ModelConfig
from verifiers.rl.trainer.model import Packed, load_model
from verifiers.rl.types import MicroBatch

CPU = torch.device("cpu")
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
ARCHITECTURES = {
    "qwen3 tied": lambda: transformers.Qwen3Config(**SMALL, head_dim=8, tie_word_embeddings=True),
    "qwen3 moe": lambda: transformers.Qwen3MoeConfig(**SMALL, **MOE, num_experts=4),
    "glm4 moe": lambda: transformers.Glm4MoeConfig(
        **SMALL, **MOE, n_routed_experts=4, n_group=1, topk_group=1, first_k_dense_replace=1
    ),
    "llama": lambda: transformers.LlamaConfig(**SMALL),
    "mistral, window of 5": lambda: transformers.MistralConfig(**SMALL, sliding_window=5),
    "gemma3, window of 5": lambda: transformers.Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=5),
    "phi3": lambda: transformers.Phi3Config(**SMALL),
}


def packed(samples):
    (micro_batch,) = batch_of(samples, seq_len=512).micro_batches
    return Packed.of(micro_batch, CPU)


def plain_logprobs(causal, packed):
    """Each sequence on its own, by transformers' own attention and a softmax over all logits: [T]."""
    found = []
    temperatures = iter(packed.temperatures.tolist())
    start = 0
    for length in packed.seq_lens:
        ids, mask = (values[start : start + length] for values in (packed.input_ids, packed.mask))
        start += length
        with torch.no_grad():
            logits = causal(ids[None]).logits[0]
        for place in mask.nonzero().squeeze(1).tolist():
            found.append((logits[place - 1] / next(temperatures)).log_softmax(0)[ids[place]])
    return torch.stack(found)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_pack_says_of_each_sequence_what_it_says_alone(architecture, tmp_path):
    write_model(tmp_path, ARCHITECTURES[architecture]())
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    together = packed(some_samples(7))
    logprobs, _ = load_model(ModelConfig(path=str(tmp_path), logit_chunk=5))(together)
    assert torch.allclose(logprobs[together.mask], plain_logprobs(plain, together), atol=2e-6)
    assert (logprobs[~together.mask] == 0).all()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (lambda: transformers.Gemma2Config(**SMALL, head_dim=8), "final_logit_softcapping"),
        (lambda: transformers.Qwen3NextConfig(**SMALL, **MOE, num_experts=4), "linear_attention"),
        (lambda: transformers.T5Config(), "not a causal language model"),
    ],
    ids=["capped logits", "linear attention", "no language model"],
)
def test_what_would_be_computed_wrongly_is_refused(config, reason, tmp_path):
    config().save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=reason):
        load_model(ModelConfig(path=str(tmp_path)))


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model\.path"):
        load_model(ModelConfig(path=str(tmp_path / "nowhere")))


def test_one_sequence_cannot_change_another(tmp_path):
    model = load_model(ModelConfig(path=str(write_model(tmp_path))))
    first = sample([5, 6, 7, 8, 9, 10], rollout="a")
    alone, _ = model(packed([first, sample([11, 12, 13], rollout="b")]))
    changed, _ = model(packed([first, sample([21, 22, 23], rollout="b")]))
    assert torch.equal(alone[:6], changed[:6])
    assert not torch.equal(alone[6:], changed[6:])


def gradients(folder, **options):
    model = load_model(ModelConfig(path=str(folder), **options))
    logprobs, entropy = model(packed(some_samples(7)))
    (logprobs * torch.linspace(-1, 1, len(logprobs))).sum().backward()
    return entropy.item(), {name: parameter.grad for name, parameter in model.named_parameters()}


def test_gradients_do_not_depend_on_the_chunk(tmp_path):
    write_model(tmp_path)
    entropy, whole = gradients(tmp_path, logit_chunk=10_000)
    chunked_entropy, chunked = gradients(tmp_path, logit_chunk=3)
    assert chunked_entropy == pytest.approx(entropy, rel=1e-5)
    for name, grad in whole.items():
        assert torch.allclose(chunked[name], grad, atol=1e-6), name


def test_gradients_are_those_of_a_softmax_over_all_logits(tmp_path):
    write_model(tmp_path)
    _, ours = gradients(tmp_path)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    together = packed(some_samples(7))
    weights = torch.linspace(-1, 1, len(together.input_ids))[together.trained]
    losses, start, row = [], 0, 0
    for length in together.seq_lens:
        ids = together.input_ids[start : start + length]
        places = together.mask[start : start + length].nonzero().squeeze(1)
        start += length
        here = slice(row, row := row + len(places))
        logits = plain(ids[None]).logits[0][places - 1] / together.temperatures[here, None]
        chosen = logits.log_softmax(1).gather(1, ids[places, None]).squeeze(1)
        losses.append((chosen * weights[here]).sum())
    torch.stack(losses).sum().backward()
    for name, parameter in plain.named_parameters():
        assert torch.allclose(ours[f"causal.{name}"], parameter.grad, atol=2e-6), name


def test_checkpointing_changes_no_gradient(tmp_path):
    write_model(tmp_path)
    _, kept = gradients(tmp_path)
    _, again = gradients(tmp_path, activation_checkpointing=True)
    for name, grad in kept.items():
        assert torch.equal(again[name], grad), name


class LargestResult(TorchDispatchMode):
    """How many numbers the largest tensor held that any operation made."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor):
                self.numel = max(self.numel, value.numel())
        return result


def test_logits_of_all_tokens_exist_at_no_time(tmp_path):
    vocabulary = 2000
    config = transformers.Qwen3Config(**SMALL | {"vocab_size": vocabulary}, head_dim=8, tie_word_embeddings=True)
    model = load_model(ModelConfig(path=str(write_model(tmp_path, config)), logit_chunk=4))
    together = packed(some_samples(20))
    with LargestResult() as largest:
        model(together)[0].sum().backward()
    assert largest.numel == model.head.numel() < len(together.trained) * vocabulary / 4


def test_dropout_is_off(tmp_path):
    config = transformers.LlamaConfig(**SMALL, attention_dropout=0.5)
    model = load_model(ModelConfig(path=str(write_model(tmp_path, config))))
    together = packed(some_samples(5))
    assert torch.equal(model(together)[0], model(together)[0])


def test_a_first_token_that_is_trained_on_is_refused():
    fields = {"mask_buffer": bytes([1, 1]), "input_buffer": bytes(8), "position_buffer": bytes(8)}
    numbers = {"advantage_buffer": bytes(8), "logprob_buffer": bytes(8), "temperature_buffer": bytes(4)}
    wrong = MicroBatch(step=4, seq_lens=[2], rollouts=[0], total_tokens=2, **fields, **numbers)
    with pytest.raises(ValueError, match="step 4: the first token"):
        Packed.of(wrong, CPU)
