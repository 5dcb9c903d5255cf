"""`BatchSender`, `BatchReceiver`: the two ends of the way that batches take from the orchestrator to the trainer.

What every transport promises, whichever end is killed: a rank gets every step's batch once, whole and in order. A batch
is kept until its rank has released it, so a rank that comes back may ask for it again; a sender that comes back may
send its last batch again, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from verifiers.rl.types import RankBatch, decode_rank_batch


class TransportError(Exception):
    """Batches have been lost, or the two ends do not belong together; the message says which and what to do."""


class BatchSender(Protocol):
    async def send(self, step: int, payloads: Sequence[bytes]) -> None:
        """Hands on the batch of a step: one encoded `RankBatch` for each rank, in the order of the ranks.

        Steps follow one another. A sender that has come back begins with a step that was sent before: what was sent
        after that one is void. Does not wait for anybody to fetch it. Raises TransportError for a gap.
        """
        ...

    async def flush(self) -> None:
        """Returns when every rank can fetch all that was sent, even if this process ends now."""
        ...

    async def close(self) -> None: ...


class BatchReceiver(Protocol):
    """The end of one rank. Its methods are called one at a time."""

    async def receive(self, step: int) -> RankBatch:
        """The batch of a step, as soon as there is one. Raises TransportError when there can be none any more."""
        ...

    async def release(self, step: int) -> None:
        """This rank will ask for no batch up to `step` again: its weights, or a checkpoint of them, have it."""
        ...

    async def close(self) -> None: ...


def check_order(step: int, last: int | None, newest: int | None, released: int) -> None:
    """Raises TransportError when a sender must not send `step`.

    `last` is what this sender sent before, None for its first; `newest` what any sender did, None for nothing that is
    kept; `released` the last step that every rank has released.
    """
    before = newest if last is None else last
    if last is not None and step <= released:
        raise TransportError(
            f"step {step} is sent to ranks that have trained step {released}: this orchestrator went on from a state "
            f"that is too old. Start it from the state of step {released + 1}"
        )
    if step < 0 or (before is not None and step > before + 1):
        raise TransportError(f"step {step} is sent after step {before}: what is between them is missing")


def checked(payload: bytes, step: int, rank: int) -> RankBatch:
    """The batch in a payload, which must be the one that was asked for."""
    batch = decode_rank_batch(payload)
    if (batch.step, batch.rank) != (step, rank):
        raise TransportError(
            f"rank {rank} asked for the batch of step {step} and got that of step {batch.step} for rank {batch.rank}"
        )
    return batch
