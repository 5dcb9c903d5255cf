"""Muon and AdamW as one optimiser: each as torch has it, every parameter in the right hands, one state to save."""

import copy

import pytest
from rl_policies import SMALL, torch, transformers

from verifiers.rl.trainer.config import OptimConfig
from verifiers.rl.trainer.optim import MuonAdamW, groups_of, newton_schulz, orthogonalised

CONFIG = OptimConfig(lr=0.01, weight_decay=0.1)


def model_of(config=None):
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config or transformers.Qwen3Config(**SMALL, head_dim=8))


def optimizer_of(model, config=CONFIG):
    return MuonAdamW(groups_of(model, [model.get_input_embeddings(), model.get_output_embeddings()], config), config)


def kinds(model):
    of_parameter = {
        id(parameter): (group["kind"], group["weight_decay"])
        for group in optimizer_of(model).param_groups
        for parameter in group["params"]
    }
    return {name: of_parameter[id(parameter)] for name, parameter in model.named_parameters()}


def with_gradients(model, seed):
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)


def test_matrices_inside_the_layers_are_muons_and_the_rest_adamws():
    found = kinds(model_of())
    assert found.pop("model.embed_tokens.weight") == found.pop("lm_head.weight") == ("adamw", 0.1)
    for name, (kind, weight_decay) in found.items():
        is_norm = "norm" in name
        assert (kind, weight_decay) == (("adamw", 0.0) if is_norm else ("muon", 0.1)), name


def test_a_head_that_is_the_embedding_too_is_adamws():
    assert kinds(model_of(transformers.Qwen3Config(**SMALL, head_dim=8, tie_word_embeddings=True)))[
        "model.embed_tokens.weight"
    ] == ("adamw", 0.1)


def test_experts_of_a_layer_are_as_many_matrices():
    moe = transformers.Qwen3MoeConfig(
        **SMALL, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    )
    stacked = [name for name, parameter in model_of(moe).named_parameters() if parameter.ndim == 3]
    assert stacked
    assert {kinds(model_of(moe))[name] for name in stacked} == {("muon", 0.1)}
    torch.manual_seed(0)
    experts = torch.randn(4, 16, 12)
    together = orthogonalised([experts])[0]
    for expert, alone in zip(together, experts, strict=True):
        assert torch.allclose(expert.float(), newton_schulz(alone).float(), atol=0.02)


def test_muons_step_is_that_of_torch():
    shapes = [(12, 20), (20, 12), (16, 16)]
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
    starts = [parameter.detach().clone() for parameter in ours]
    optimizer = MuonAdamW([{"params": ours, "kind": "muon"}], CONFIG)
    peer = torch.optim.Muon(theirs, lr=0.01, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        for own, other in zip(ours, theirs, strict=True):
            own.grad = torch.randn_like(own)
            other.grad = own.grad.clone()
        optimizer.step()
        peer.step()
    for own, other, start in zip(ours, theirs, starts, strict=True):  # to the rounding of bfloat16
        assert (own - other).norm() < 0.01 * (other - start).norm()


def test_adamws_step_is_that_of_torch():
    ours = model_of()
    theirs = copy.deepcopy(ours)
    optimizer = optimizer_of(ours, OptimConfig(lr=0.01, weight_decay=0.0, muon=False))
    peer = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.0, betas=(0.9, 0.95))
    for seed in range(3):
        with_gradients(ours, seed)
        with_gradients(theirs, seed)
        optimizer.step()
        peer.step()
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(own, other)


@pytest.mark.parametrize("shape", [(30, 50), (50, 30), (40, 40), (1, 9)], ids=str)
def test_orthogonalised_matrices_have_singular_values_about_one(shape):
    torch.manual_seed(0)
    found = torch.linalg.svdvals(newton_schulz(torch.randn(shape) * 1e-4).float())
    assert found.min() > 0.3 and found.max() < 1.3


def test_no_gradient_no_step():
    parameter = torch.nn.Parameter(torch.ones(3, 3))
    MuonAdamW([{"params": [parameter], "kind": "muon"}], CONFIG).step()
    assert torch.equal(parameter, torch.ones(3, 3))


def test_one_state_dict_goes_on_with_the_same_steps():
    model = model_of()
    optimizer = optimizer_of(model)
    with_gradients(model, 1)
    optimizer.step()
    second = copy.deepcopy(model)
    again = optimizer_of(second)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for own, of in ((model, optimizer), (second, again)):
        with_gradients(own, 2)
        of.step()
    for left, right in zip(model.parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right)


def test_the_learning_rate_warms_up_and_decays():
    config = OptimConfig(warmup_steps=4, decay="linear", decay_steps=10, min_factor=0.1)
    assert [config.factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert config.factor(4) == 1.0
    assert config.factor(9) == pytest.approx(0.55)
    assert config.factor(14) == config.factor(1000) == pytest.approx(0.1)
    cosine = OptimConfig(decay="cosine", decay_steps=10)
    assert [cosine.factor(step) for step in (0, 5, 10)] == pytest.approx([1.0, 0.5, 0.0])
    assert OptimConfig().factor(10**9) == 1.0


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"lr": -1.0}, r"optim\.lr: -1.0"),
        ({"lr": float("nan")}, r"optim\.lr: nan"),
        ({"betas": (0.9, 1.0)}, r"optim\.betas: 1.0"),
        ({"decay": "cosine"}, r"optim\.decay_steps: 0"),
        ({"warmup_steps": -1}, r"optim\.warmup_steps: -1"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(wrong, named):
    with pytest.raises(ValueError, match=named):
        OptimConfig(**wrong)
