"""Samples and micro-batches as they travel: round trips, lengths that must agree, older and newer schemas."""

from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.rl.types import (
    SCHEMA_VERSION,
    MicroBatch,
    RankBatch,
    TrainSample,
    decode_rank_batch,
    decode_sample,
    encode,
)


def buffer(code, values):
    return array(code, values).tobytes()


def sample_of(ids, mask, logprobs, advantages, **fields):
    return TrainSample(
        env="sums",
        example_id=1,
        group_id="g",
        rollout_id="r",
        token_buffer=buffer("i", ids),
        mask_buffer=bytes(mask),
        logprob_buffer=buffer("f", logprobs),
        advantage_buffer=buffer("f", advantages),
        version_min=0,
        version_max=2,
        **fields,
    )


def micro_batch(seq_lens=(2, 1), **changes):
    tokens = 3
    fields = {
        "step": 1,
        "input_buffer": buffer("i", range(tokens)),
        "position_buffer": buffer("i", [0, 1, 0]),
        "mask_buffer": bytes([0, 1, 0]),
        "advantage_buffer": buffer("f", [0, 0.5, 0]),
        "logprob_buffer": buffer("f", [0, -1, 0]),
        "temperature_buffer": buffer("f", [1.0, 0.5]),
        "seq_lens": list(seq_lens),
        "rollouts": [0, 1],
        "total_tokens": 1,
    }
    return MicroBatch(**{**fields, **changes})


@given(
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.booleans(), st.floats(-9, 0, width=32), st.floats(-9, 9, width=32)),
        max_size=8,
    ),
    st.none() | st.floats(allow_nan=False),
)
def test_a_sample_comes_back_as_it_was_sent(tokens, reward):
    ids, mask, logprobs, advantages = zip(*tokens) if tokens else ((), (), (), ())
    sample = sample_of(ids, mask, logprobs, advantages, reward=reward, branch=2, actor="prover", temperature=0.7)
    back = decode_sample(encode(sample))
    assert back == sample
    assert list(back.token_ids) == list(ids) and list(back.mask) == list(mask)
    assert list(back.logprobs) == list(logprobs) and list(back.advantages) == list(advantages)
    assert (back.num_tokens, back.num_trained) == (len(ids), sum(mask))


def test_a_rank_batch_comes_back_as_it_was_sent():
    batch = RankBatch(step=1, rank=0, world_size=2, micro_batches=[micro_batch()], metrics={"reward": 0.5})
    back = decode_rank_batch(encode(batch))
    assert back == batch
    (micro,) = back.micro_batches
    assert list(micro.input_ids) == [0, 1, 2] and list(micro.position_ids) == [0, 1, 0]
    assert list(micro.loss_mask) == [0, 1, 0] and list(micro.temperatures) == [1.0, 0.5]
    assert list(micro.advantages) == [0, 0.5, 0] and list(micro.inference_logprobs) == [0, -1, 0]


@pytest.mark.parametrize("short", range(4))
def test_a_sample_whose_arrays_differ_in_length_cannot_be_built(short):
    arrays = [[1, 2], [0, 1], [0, -1], [0, 1]]
    arrays[short] = arrays[short][:1]
    with pytest.raises(ValueError, match="token ids, but a mask of"):
        sample_of(*arrays)


def test_nor_decoded():
    torn = msgspec.msgpack.decode(encode(sample_of([1, 2], [0, 1], [0, -1], [0, 1])))
    torn["mask_buffer"] = b"\1"
    with pytest.raises(msgspec.ValidationError, match="token ids, but a mask of"):
        decode_sample(msgspec.msgpack.encode(torn))


@pytest.mark.parametrize(
    "changes",
    [
        {"seq_lens": [2, 2]},
        {"position_buffer": buffer("i", [0, 1])},
        {"mask_buffer": bytes(2)},
        {"rollouts": [0]},
        {"temperature_buffer": buffer("f", [1.0])},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_micro_batch_whose_parts_do_not_agree_cannot_be_built(changes):
    with pytest.raises(ValueError):
        micro_batch(**changes)


def test_a_newer_schema_is_refused_and_what_to_do_is_said():
    newer = sample_of([1], [0], [0], [0], schema_version=SCHEMA_VERSION + 1)
    with pytest.raises(msgspec.ValidationError, match="upgrade"):
        decode_sample(encode(newer))
    batch = RankBatch(step=0, rank=0, world_size=1, micro_batches=[], schema_version=SCHEMA_VERSION + 1)
    with pytest.raises(msgspec.ValidationError, match="upgrade"):
        decode_rank_batch(encode(batch))


def test_a_field_of_the_future_is_passed_over():
    """A change may add optional fields: readers of the same schema version must not stumble over them."""
    message = msgspec.msgpack.decode(encode(sample_of([1, 2], [0, 1], [0, -1], [0, 1])))
    assert decode_sample(msgspec.msgpack.encode({**message, "routed_experts": b""})).num_tokens == 2


def test_a_sample_is_about_thirteen_bytes_a_token():
    size = 10_000
    sample = sample_of(range(size), [1] * size, [-1.0] * size, [0.5] * size)
    assert len(encode(sample)) / size < 13.1
