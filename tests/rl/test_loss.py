"""The losses: equal to a plain reference, with the gradient of finite differences, and finite whatever comes."""

import math
import random
from dataclasses import replace

import pytest
import rl_reference_loss as reference
from rl_policies import torch
from rl_reference_loss import Token

from verifiers.rl.trainer.config import CrossEntropy, MaskedImportanceSampling, SequencePolicy
from verifiers.rl.trainer.loss import LossInput, loss_of

IMPORTANCE = MaskedImportanceSampling()
GSPO = SequencePolicy()


def some_tokens(seed, spread=1.0, count=60):
    """Four sequences, the last two of which are one rollout; ratios around 1, a third of the tokens not trained on."""
    rng = random.Random(seed)
    tokens = []
    for _ in range(count):
        sequence, inference = rng.randrange(4), -rng.expovariate(1)
        advantage = {0: 0.5, 1: -0.75, 2: 1.0, 3: 1.0}[sequence]
        tokens.append(
            Token(
                inference + rng.gauss(0, spread), inference, advantage, rng.random() < 0.7, sequence, min(sequence, 2)
            )
        )
    return sorted(tokens, key=lambda token: token.sequence)


def given(tokens, total=None, dtype=torch.float64, logprobs=None):
    if logprobs is None:
        logprobs = torch.tensor([token.trainer for token in tokens], dtype=dtype, requires_grad=True)
    return LossInput(
        logprobs=logprobs,
        inference_logprobs=torch.tensor([token.inference for token in tokens], dtype=dtype),
        advantages=torch.tensor([token.advantage for token in tokens], dtype=dtype),
        mask=torch.tensor([token.trained for token in tokens]),
        sequences=torch.tensor([token.sequence for token in tokens]),
        rollouts=torch.tensor([token.rollout for token in tokens]),
        num_sequences=4,
        total_tokens=trained(tokens) if total is None else total,
    )


def trained(tokens):
    return sum(token.trained for token in tokens)


@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("seed", range(20))
def test_importance_sampling_equals_the_reference(seed, spread):
    tokens = some_tokens(seed, spread)
    expected = reference.masked_importance_sampling(tokens, trained(tokens), 0.5, 5.0, 1e-5)
    assert loss_of(IMPORTANCE)(given(tokens)).loss.item() == pytest.approx(expected, abs=1e-6)
    single = given(tokens, dtype=torch.float32)
    assert loss_of(IMPORTANCE)(single).loss.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("spread", [1e-4, 1.0, 8.0])
@pytest.mark.parametrize("seed", range(20))
def test_gspo_equals_the_reference(seed, spread):
    tokens = some_tokens(seed, spread)
    expected = reference.gspo(tokens, trained(tokens), 3e-4, 4e-4, 10.0)
    assert loss_of(GSPO)(given(tokens)).loss.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("config", [IMPORTANCE, CrossEntropy()], ids=["importance", "cross entropy"])
@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_that_of_finite_differences(config, seed):
    """In float64, with no token so near to a bound that the step of the difference passes over it."""
    tokens = some_tokens(seed, spread=0.8)
    for bound in map(math.log, (0.5, 5.0, 1e-5)):
        assert min(abs(token.trainer - token.inference - bound) for token in tokens) > 1e-5
    start = given(tokens).logprobs
    assert torch.autograd.gradcheck(lambda logprobs: loss_of(config)(given(tokens, logprobs=logprobs)).loss, start)


def test_gspo_moves_every_token_of_a_sequence_by_the_ratio_of_the_sequence():
    """GSPO's gradient: with one advantage A a sequence, -A · s / total at each of its tokens, however long it is."""
    config = SequencePolicy(clip_low=0.9, clip_high=8.0)
    tokens = some_tokens(3, spread=0.5)
    start = given(tokens)
    loss_of(config)(start).loss.backward()
    for place, token in enumerate(tokens):
        own = [other for other in tokens if other.sequence == token.sequence and other.trained]
        ratio = math.exp(sum(other.trainer - other.inference for other in own) / len(own))
        expected = -token.advantage * ratio / trained(tokens) if token.trained else 0.0
        assert start.logprobs.grad[place].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("config", [IMPORTANCE, GSPO], ids=["importance", "gspo"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("distance", [1e4, -1e4])
def test_ratios_of_any_size_give_finite_losses_and_gradients(config, dtype, distance):
    tokens = some_tokens(0, spread=0.1)
    tokens = [
        replace(token, trainer=token.inference + distance) if at % 5 == 0 else token for at, token in enumerate(tokens)
    ]
    start = given(tokens, dtype=dtype)
    output = loss_of(config)(start)
    output.loss.backward()
    assert math.isfinite(output.loss.item())
    assert start.logprobs.grad.isfinite().all()
    assert all(math.isfinite(value.item()) for value in output.sums.values())


def test_what_stands_where_nothing_is_trained_plays_no_part():
    tokens = some_tokens(1)
    expected = loss_of(IMPORTANCE)(given(tokens)).loss.item()
    for filler in (1.0, -1e30, math.inf, math.nan):
        filled = [token if token.trained else replace(token, trainer=filler, inference=-filler) for token in tokens]
        start = given(filled)
        output = loss_of(IMPORTANCE)(start)
        output.loss.backward()
        assert output.loss.item() == expected
        assert start.logprobs.grad.isfinite().all()


def test_a_trained_token_that_is_no_number_is_not_hidden():
    tokens = some_tokens(1)
    place = next(at for at, token in enumerate(tokens) if token.trained)
    tokens[place] = replace(tokens[place], trainer=math.nan)
    assert math.isnan(loss_of(IMPORTANCE)(given(tokens)).loss.item())


def test_a_rollout_is_dropped_with_all_its_sequences():
    tokens = some_tokens(2, spread=0.01)
    place = next(at for at, token in enumerate(tokens) if token.trained and token.sequence == 3)
    tokens[place] = replace(tokens[place], trainer=tokens[place].inference + math.log(0.9e-5))
    start = given(tokens)
    output = loss_of(IMPORTANCE)(start)
    output.loss.backward()
    moved = {token.sequence for token, slope in zip(tokens, start.logprobs.grad, strict=True) if slope != 0}
    assert moved == {0, 1}  # 2 and 3 are branches of one rollout
    assert output.sums["dropped_rollouts"].item() == 1
    assert output.sums["dropped_tokens"].item() == sum(token.trained and token.sequence >= 2 for token in tokens)


def test_a_ratio_just_above_the_floor_masks_its_token_alone():
    tokens = some_tokens(2, spread=0.01)
    place = next(at for at, token in enumerate(tokens) if token.trained and token.sequence == 3)
    tokens[place] = replace(tokens[place], trainer=tokens[place].inference + math.log(1.1e-5))
    start = given(tokens)
    output = loss_of(IMPORTANCE)(start)
    output.loss.backward()
    still = [at for at, slope in enumerate(start.logprobs.grad) if slope == 0 and tokens[at].trained]
    assert still == [place]
    assert (output.sums["masked_low"].item(), output.sums["dropped_tokens"].item()) == (1, 0)


@pytest.mark.parametrize(("ratio", "kept"), [(0.5, True), (5.0, True), (0.4999, False), (5.0001, False)], ids=str)
def test_the_bounds_belong_to_what_is_kept(ratio, kept):
    token = Token(math.log(ratio), 0.0, 1.0, True, 0, 0)
    start = given([token])
    loss_of(IMPORTANCE)(start).loss.backward()
    assert (start.logprobs.grad.item() != 0) == kept


@pytest.mark.parametrize("config", [IMPORTANCE, GSPO, CrossEntropy()], ids=["importance", "gspo", "cross entropy"])
def test_micro_batches_add_up_to_the_step(config):
    tokens = some_tokens(4, spread=1.5)
    whole = loss_of(config)(given(tokens))
    parts = [
        loss_of(config)(given([token for token in tokens if (token.rollout == 0) == is_first], total=trained(tokens)))
        for is_first in (True, False)
    ]
    assert sum(part.loss.item() for part in parts) == pytest.approx(whole.loss.item(), abs=1e-12)
    for name, value in whole.sums.items():
        assert sum(part.sums[name].item() for part in parts) == pytest.approx(value.item(), abs=1e-9), name


def test_mismatch_is_nought_between_equals_and_positive_otherwise():
    equal = [replace(token, trainer=token.inference) for token in some_tokens(5)]
    assert loss_of(IMPORTANCE)(given(equal)).sums["mismatch_kl"].item() == 0
    assert loss_of(IMPORTANCE)(given(some_tokens(5))).sums["mismatch_kl"].item() > 0


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: MaskedImportanceSampling(low=1.5), "loss.drop_below, low, high"),
        (lambda: MaskedImportanceSampling(high=math.inf), "loss.drop_below, low, high"),
        (lambda: MaskedImportanceSampling(drop_below=0.0), "loss.drop_below, low, high"),
        (lambda: SequencePolicy(max_ratio=0.5), "max_ratio"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(wrong, named):
    with pytest.raises(ValueError, match=named):
        wrong()
