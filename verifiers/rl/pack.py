"""`pack`: the samples of one trainer step as micro-batches for each data rank.

First-fit decreasing into bins of `seq_len` tokens. A rollout's branches go into one bin where they fit, because the
loss judges a rollout by all of them. Every rank gets equally many micro-batches and about as many tokens: ranks wait
for one another at each, so those that run side by side are of like size.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from verifiers.rl.types import MicroBatch, RankBatch, TrainSample

FILLER_TOKENS = 2  # one prediction: some models and kernels take no less
FILLER_ROLLOUT = -1


@dataclass(slots=True, eq=False)
class _Unit:
    """Samples that stay together, and how many tokens they are."""

    samples: list[TrainSample]
    tokens: int


@dataclass(slots=True, eq=False)
class _Bin:
    units: list[_Unit] = field(default_factory=list[_Unit])
    tokens: int = 0

    def add(self, unit: _Unit) -> None:
        self.units.append(unit)
        self.tokens += unit.tokens


_tokens = attrgetter("tokens")


def pack(
    samples: Sequence[TrainSample],
    seq_len: int,
    world_size: int,
    step: int,
    *,
    metrics: Mapping[str, float] | None = None,
) -> list[RankBatch]:
    """One batch per rank, with every sample in exactly one micro-batch of at most `seq_len` tokens.

    Where there are fewer bins than places, the fullest bins are divided; what is left empty is filled with a filler.
    Raises ValueError when there is nothing to train on, and for a sample longer than `seq_len`.
    """
    if world_size < 1 or seq_len < FILLER_TOKENS:
        raise ValueError(f"cannot pack for {world_size} ranks of {seq_len} tokens")
    total_tokens = sum(sample.num_trained for sample in samples)
    if not total_tokens:
        raise ValueError(f"step {step}: not one of {len(samples)} samples has a token to train on")
    bins = _bins(_units(samples, seq_len), seq_len)
    rounds = -(-len(bins) // world_size)
    _divide(bins, rounds * world_size)
    bins.sort(key=_tokens, reverse=True)  # a filler's place is at the end
    numbers: dict[str, int] = {}
    for sample in samples:
        numbers.setdefault(sample.rollout_id, len(numbers))
    positions = array("i", range(max(sample.num_tokens for sample in samples))).tobytes()
    ranks: list[list[MicroBatch]] = [[] for _ in range(world_size)]
    for row in range(rounds):
        side_by_side = bins[row * world_size : (row + 1) * world_size]
        # back and forth, so that no rank is always given the largest of its row
        for micro_batches, bin in zip(ranks if row % 2 == 0 else reversed(ranks), side_by_side):
            micro_batches.append(_micro_batch(bin, step, total_tokens, numbers, positions))
    return [
        RankBatch(step=step, rank=rank, world_size=world_size, micro_batches=micro_batches, metrics=dict(metrics or {}))
        for rank, micro_batches in enumerate(ranks)
    ]


def _units(samples: Sequence[TrainSample], seq_len: int) -> list[_Unit]:
    of_rollout: dict[str, list[TrainSample]] = {}
    for sample in samples:
        if sample.num_tokens > seq_len:
            raise ValueError(
                f"sample {sample.branch} of rollout {sample.rollout_id} has {sample.num_tokens} tokens, more than "
                f"seq_len = {seq_len}: give SamplePolicy this seq_len, so that it is dropped or cut"
            )
        of_rollout.setdefault(sample.rollout_id, []).append(sample)
    units: list[_Unit] = []
    for branches in of_rollout.values():
        singles = [_Unit([sample], sample.num_tokens) for sample in branches]
        if len(singles) == 1:
            units += singles
            continue
        for bin in _bins(singles, seq_len):  # one, where they fit into one
            units.append(_Unit([unit.samples[0] for unit in bin.units], bin.tokens))
    return units


def _bins(units: list[_Unit], seq_len: int) -> list[_Bin]:
    """First-fit decreasing: each unit into the first bin with room, the largest unit first."""
    first = _FirstFit(len(units), seq_len)
    bins: list[_Bin] = []
    for unit in sorted(units, key=_tokens, reverse=True):
        at = first.place(unit.tokens)
        if at == len(bins):
            bins.append(_Bin())
        bins[at].add(unit)
    return bins


class _FirstFit:
    """Finds the first of many bins with room in logarithmic time: a tree over their room, the largest at the root."""

    def __init__(self, bins: int, room: int) -> None:
        self._leaves = 1 << (bins - 1).bit_length()
        self._room = [room] * (2 * self._leaves)

    def place(self, tokens: int) -> int:
        """The number of the bin that takes them. There are as many bins as units, so one always has room."""
        room, at = self._room, 1
        while at < self._leaves:
            at *= 2
            if room[at] < tokens:
                at += 1
        found = at - self._leaves
        room[at] -= tokens
        while at > 1:
            at //= 2
            room[at] = max(room[2 * at], room[2 * at + 1])
        return found


def _divide(bins: list[_Bin], places: int) -> None:
    """Divides the fullest bins until every place has one, or none is left that can be divided."""
    while len(bins) < places:
        fullest = max((bin for bin in bins if len(bin.units) > 1), key=_tokens, default=None)
        if fullest is None:
            bins += [_Bin() for _ in range(places - len(bins))]
            return
        one, other = _Bin(), _Bin()
        for unit in sorted(fullest.units, key=_tokens, reverse=True):
            min(one, other, key=_tokens).add(unit)
        bins[bins.index(fullest)] = one
        bins.append(other)


def _micro_batch(bin: _Bin, step: int, total_tokens: int, numbers: Mapping[str, int], positions: bytes) -> MicroBatch:
    if not bin.units:
        return _filler(step, total_tokens)
    samples = list(chain.from_iterable(unit.samples for unit in bin.units))
    return MicroBatch(
        step=step,
        input_buffer=b"".join([sample.token_buffer for sample in samples]),
        position_buffer=b"".join([positions[: len(sample.token_buffer)] for sample in samples]),
        mask_buffer=b"".join([sample.mask_buffer for sample in samples]),
        advantage_buffer=b"".join([sample.advantage_buffer for sample in samples]),
        logprob_buffer=b"".join([sample.logprob_buffer for sample in samples]),
        temperature_buffer=array("f", [sample.temperature for sample in samples]).tobytes(),
        seq_lens=[sample.num_tokens for sample in samples],
        rollouts=[numbers[sample.rollout_id] for sample in samples],
        total_tokens=total_tokens,
    )


def _filler(step: int, total_tokens: int) -> MicroBatch:
    """A pass that trains on nothing, for a rank that has fewer than the others."""
    zeros = bytes(4 * FILLER_TOKENS)
    return MicroBatch(
        step=step,
        input_buffer=zeros,
        position_buffer=array("i", range(FILLER_TOKENS)).tobytes(),
        mask_buffer=bytes(FILLER_TOKENS),
        advantage_buffer=zeros,
        logprob_buffer=zeros,
        temperature_buffer=array("f", [1.0]).tobytes(),
        seq_lens=[FILLER_TOKENS],
        rollouts=[FILLER_ROLLOUT],
        total_tokens=total_tokens,
    )
