"""Packing: nothing lost, no bin too long, every rank the same number of passes and about the same work."""

import time
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_rollouts import Said, rollout

from verifiers.rl.pack import FILLER_ROLLOUT, pack
from verifiers.rl.samples import samples_of

SEQ_LEN = 32


def sample(tokens, trained=1, rollout_id="r0", branch=0):
    (one,) = samples_of(rollout([Said([1] * (tokens - trained), list(range(trained)))], name=rollout_id), 0.5).samples
    return type(one)(**{**{name: getattr(one, name) for name in one.__struct_fields__}, "branch": branch})


@st.composite
def steps(draw):
    """Samples of many rollouts, some of several branches."""
    samples = []
    for number in range(draw(st.integers(1, 12))):
        for branch in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
            tokens = draw(st.integers(2, SEQ_LEN))
            samples.append(sample(tokens, draw(st.integers(1, tokens - 1)), f"r{number}", branch))
    return samples


def sequences(batches):
    """(micro-batch, sequence's slices) of all ranks, fillers left out."""
    for batch in batches:
        for micro in batch.micro_batches:
            at = 0
            for length, number in zip(micro.seq_lens, micro.rollouts):
                if number != FILLER_ROLLOUT:
                    yield micro, slice(at, at + length), number
                at += length


@given(steps(), st.integers(1, 5))
@settings(deadline=None)
def test_every_sample_is_in_exactly_one_micro_batch_unchanged(samples, world_size):
    batches = pack(samples, SEQ_LEN, world_size, step=3)
    packed = Counter(
        (
            micro.input_ids[of].tobytes(),
            micro.loss_mask[of].tobytes(),
            micro.advantages[of].tobytes(),
            micro.inference_logprobs[of].tobytes(),
        )
        for micro, of, _ in sequences(batches)
    )
    assert packed == Counter((s.token_buffer, s.mask_buffer, s.advantage_buffer, s.logprob_buffer) for s in samples)


@given(steps(), st.integers(1, 5))
@settings(deadline=None)
def test_ranks_get_as_many_micro_batches_and_none_is_too_long(samples, world_size):
    batches = pack(samples, SEQ_LEN, world_size, step=3, metrics={"reward": 0.5})
    assert [batch.rank for batch in batches] == list(range(world_size))
    assert len({len(batch.micro_batches) for batch in batches}) == 1
    micro_batches = [micro for batch in batches for micro in batch.micro_batches]
    assert all(0 < len(micro.input_ids) <= SEQ_LEN for micro in micro_batches)
    assert {micro.total_tokens for micro in micro_batches} == {sum(s.num_trained for s in samples)}
    assert sum(micro.loss_mask.count(1) for micro in micro_batches) == micro_batches[0].total_tokens
    assert all(batch.step == 3 and batch.metrics == {"reward": 0.5} for batch in batches)


@given(steps(), st.integers(1, 5))
@settings(deadline=None)
def test_positions_start_anew_with_each_sequence(samples, world_size):
    for micro, of, _ in sequences(pack(samples, SEQ_LEN, world_size, step=0)):
        assert list(micro.position_ids[of]) == list(range(of.stop - of.start))


@given(steps(), st.integers(1, 5))
@settings(deadline=None)
def test_the_branches_of_a_rollout_share_a_number_and_a_micro_batch_where_they_fit(samples, world_size):
    lengths = defaultdict(list)
    for one in samples:
        lengths[one.rollout_id].append(one.num_tokens)
    places = defaultdict(set)
    found = defaultdict(list)
    for micro, of, number in sequences(pack(samples, SEQ_LEN, world_size, step=0)):
        places[number].add(id(micro))
        found[number].append(of.stop - of.start)
    assert sorted(sorted(one) for one in found.values()) == sorted(sorted(one) for one in lengths.values())
    for number, of_rollout in found.items():
        if sum(of_rollout) <= SEQ_LEN:
            assert len(places[number]) == 1


@given(steps(), st.integers(2, 5))
@settings(deadline=None)
def test_no_rank_has_more_work_than_another_by_more_than_a_micro_batch(samples, world_size):
    def work(micro):
        return 0 if micro.rollouts == [FILLER_ROLLOUT] else len(micro.input_ids)

    batches = pack(samples, SEQ_LEN, world_size, step=0)
    of_ranks = [sum(map(work, batch.micro_batches)) for batch in batches]
    assert max(of_ranks) - min(of_ranks) <= max(work(micro) for batch in batches for micro in batch.micro_batches)


def test_no_rank_is_always_given_the_largest():
    samples = [sample(n, rollout_id=str(n)) for n in range(25, 33)]  # no two fit into one micro-batch
    one, other = pack(samples, SEQ_LEN, 2, step=0)
    assert [micro.seq_lens for micro in one.micro_batches] == [[32], [29], [28], [25]]
    assert [micro.seq_lens for micro in other.micro_batches] == [[31], [30], [27], [26]]


@given(steps(), st.integers(1, 5))
@settings(deadline=None)
def test_a_rank_idles_only_when_nothing_is_left_to_divide(samples, world_size):
    batches = pack(samples, SEQ_LEN, world_size, step=0)
    idle = sum(micro.rollouts == [FILLER_ROLLOUT] for batch in batches for micro in batch.micro_batches)
    assert idle < world_size
    if idle:
        assert all(len(set(micro.rollouts)) == 1 for batch in batches for micro in batch.micro_batches)


def test_a_filler_is_a_pass_that_trains_on_nothing():
    one, other = pack([sample(8, 3)], SEQ_LEN, 2, step=0)
    (filler,) = other.micro_batches
    assert one.micro_batches[0].total_tokens == filler.total_tokens == 3
    assert list(filler.loss_mask) == [0, 0] and list(filler.position_ids) == [0, 1]


def test_first_fit_decreasing_fills_the_first_bin_with_room():
    lengths = [2, 11, 20, 3, 12, 18, 2]
    (batch,) = pack([sample(n, rollout_id=str(at)) for at, n in enumerate(lengths)], SEQ_LEN, 1, step=0)
    assert [micro.seq_lens for micro in batch.micro_batches] == [[20, 12], [18, 11, 3], [2, 2]]


def test_a_sample_longer_than_a_micro_batch_is_named():
    with pytest.raises(ValueError, match=r"sample 2 of rollout r5 has 33 tokens, more than seq_len = 32"):
        pack([sample(SEQ_LEN + 1, rollout_id="r5", branch=2)], SEQ_LEN, 1, step=0)


def test_a_step_without_a_token_to_train_on_is_refused():
    with pytest.raises(ValueError, match="step 4"):
        pack([], SEQ_LEN, 1, step=4)


def test_temperatures_stay_with_their_sequences():
    samples = [samples_of(rollout([Said([1] * n, [2])], sampling={"temperature": n / 4})).samples[0] for n in (3, 7)]
    (batch,) = pack(samples, SEQ_LEN, 1, step=0)
    (micro,) = batch.micro_batches
    assert dict(zip(micro.seq_lens, micro.temperatures)) == {4: 0.75, 8: 1.75}


def test_many_small_bins_are_found_without_looking_at_each():
    """20,000 samples into some 10,000 bins: looking through the bins one by one takes minutes."""
    samples = [sample(17, 1, rollout_id=str(n)) for n in range(50)] * 400
    started = time.process_time()
    batches = pack(samples, 34, 8, step=0)
    assert time.process_time() - started < 20
    assert sum(len(batch.micro_batches) for batch in batches) >= 10_000
