"""`TrainSample`, `MicroBatch` and what leads to them: the data that passes between rollouts and a trainer.

Per-token data are little-endian buffers (about 13 bytes a token), read as `array` by the property of the same noun.
All buffers of one sample or micro-batch have the length of its token ids, which is checked when it is built.
Readers accept every older `schema_version`, so a change may only add optional fields.
"""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

from verifiers.records import RolloutRecord, array_of

SCHEMA_VERSION = 1


class PolicyRollout(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A finished rollout and the policy versions it was made under. A version counts weight updates from 0."""

    record: RolloutRecord
    rollout_id: str  # unique in a training run
    dispatched_version: int  # the trainer's newest version when the request left
    finished_version: int


class RolloutGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The rollouts of one example that share a baseline, in the order of their tries."""

    env: str
    example_id: int
    group_id: str  # unique in a training run
    rollouts: list[PolicyRollout]


class TrainSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One token sequence of T tokens to train on: a whole rollout, or one branch of it where the context was rewritten.

    Raises ValueError when the buffers differ in length.
    """

    env: str
    example_id: int
    group_id: str
    rollout_id: str
    token_buffer: bytes  # int32 [T]
    mask_buffer: bytes  # uint8 [T]; 1: sampled by the policy, and trained on. The first token is never trained on
    logprob_buffer: bytes  # float32 [T], finite, of the policy that sampled; 0.0 where the mask is 0
    advantage_buffer: bytes  # float32 [T]; 0.0 where the mask is 0
    version_min: int  # oldest and newest policy version that sampled a trained token
    version_max: int
    branch: int = 0  # a rollout's samples are numbered from 0
    actor: str = "assistant"
    temperature: float = 1.0
    reward: float | None = None  # of the rollout, for logs; training reads the advantages
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        _check_lengths(self.token_buffer, self.mask_buffer, self.logprob_buffer, self.advantage_buffer)

    @property
    def token_ids(self) -> array[int]:
        return array_of("i", self.token_buffer)

    @property
    def mask(self) -> array[int]:
        return array_of("B", self.mask_buffer)

    @property
    def logprobs(self) -> array[float]:
        return array_of("f", self.logprob_buffer)

    @property
    def advantages(self) -> array[float]:
        return array_of("f", self.advantage_buffer)

    @property
    def num_tokens(self) -> int:
        return len(self.mask_buffer)

    @property
    def num_trained(self) -> int:
        return self.mask_buffer.count(1)


class MicroBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Several samples laid end to end, L tokens: one forward and backward pass of one data rank.

    Attention does not cross from one sequence to the next, and position ids start anew with each. A filler, which
    gives a rank as many passes as the others have, is a sequence with an empty mask.
    Raises ValueError when the buffers differ in length or `seq_lens` do not add up to it.
    """

    step: int  # the trainer step that it belongs to
    input_buffer: bytes  # int32 [L]
    position_buffer: bytes  # int32 [L]
    mask_buffer: bytes  # uint8 [L]
    advantage_buffer: bytes  # float32 [L]
    logprob_buffer: bytes  # float32 [L], of the policy that sampled
    temperature_buffer: bytes  # float32 [N], one a sequence
    seq_lens: list[int]  # [N]
    rollouts: list[int]  # [N]; sequences of equal number are branches of one rollout of this step
    total_tokens: int  # trained tokens of the whole step, over all ranks and passes: what the loss is divided by
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        _check_lengths(self.input_buffer, self.mask_buffer, self.logprob_buffer, self.advantage_buffer)
        if len(self.position_buffer) != len(self.input_buffer) or sum(self.seq_lens) != len(self.mask_buffer):
            raise ValueError(f"sequences of {self.seq_lens} tokens do not make up {len(self.mask_buffer)} tokens")
        if not len(self.seq_lens) == len(self.rollouts) == len(self.temperature_buffer) // 4:
            raise ValueError(f"{len(self.seq_lens)} sequences, but {len(self.rollouts)} numbers of rollouts")

    @property
    def input_ids(self) -> array[int]:
        return array_of("i", self.input_buffer)

    @property
    def position_ids(self) -> array[int]:
        return array_of("i", self.position_buffer)

    @property
    def loss_mask(self) -> array[int]:
        return array_of("B", self.mask_buffer)

    @property
    def advantages(self) -> array[float]:
        return array_of("f", self.advantage_buffer)

    @property
    def inference_logprobs(self) -> array[float]:
        return array_of("f", self.logprob_buffer)

    @property
    def temperatures(self) -> array[float]:
        return array_of("f", self.temperature_buffer)


class RankBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one data rank does in one trainer step. All ranks get equally many micro-batches."""

    step: int
    rank: int
    world_size: int
    micro_batches: list[MicroBatch]
    metrics: dict[str, float] = {}  # of the rollouts of the whole step, for the trainer's log
    schema_version: int = SCHEMA_VERSION


def encode(value: TrainSample | RankBatch) -> bytes:
    return _encoder.encode(value)


def decode_sample(data: bytes) -> TrainSample:
    """Raises msgspec.ValidationError for what is no sample, or one of a newer schema."""
    return _of_today(_samples.decode(data))


def decode_rank_batch(data: bytes) -> RankBatch:
    """Raises msgspec.ValidationError for what is no batch, or one of a newer schema."""
    return _of_today(_batches.decode(data))


_encoder = msgspec.msgpack.Encoder()
_samples = msgspec.msgpack.Decoder(TrainSample)
_batches = msgspec.msgpack.Decoder(RankBatch)


def _of_today(value: Any) -> Any:
    if value.schema_version > SCHEMA_VERSION:
        raise msgspec.ValidationError(
            f"{type(value).__name__} of schema version {value.schema_version}; "
            f"this library reads up to {SCHEMA_VERSION}: upgrade it"
        )
    return value


def _check_lengths(ids: bytes, mask: bytes, logprobs: bytes, advantages: bytes) -> None:
    if not len(ids) == len(logprobs) == len(advantages) == 4 * len(mask):
        raise ValueError(
            f"{len(ids) // 4} token ids, but a mask of {len(mask)}, {len(logprobs) // 4} log-probabilities "
            f"and {len(advantages) // 4} advantages"
        )
