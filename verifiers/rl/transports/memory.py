"""`MemoryTransport`: orchestrator and trainer in one process and one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from verifiers.rl.transports.transport import TransportError, check_order, checked
from verifiers.rl.types import RankBatch


class MemoryTransport:
    """Is the sender; `receiver(rank)` is that of a rank."""

    def __init__(self, world_size: int = 1) -> None:
        self.world_size = world_size
        self._sent: int | None = None
        self._released = [-1] * world_size
        self._kept: list[dict[int, bytes]] = [{} for _ in range(world_size)]  # by rank, by step
        self._changed = asyncio.Condition()

    async def send(self, step: int, payloads: Sequence[bytes]) -> None:
        if len(payloads) != self.world_size:
            raise TransportError(f"{len(payloads)} payloads for {self.world_size} ranks")
        check_order(step, self._sent, self._sent, min(self._released))
        async with self._changed:
            for kept, payload, released in zip(self._kept, payloads, self._released, strict=True):
                for void in [void for void in kept if void > step]:
                    del kept[void]
                if step > released:
                    kept[step] = payload
            self._sent = step
            self._changed.notify_all()

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        return

    def receiver(self, rank: int) -> MemoryReceiver:
        return MemoryReceiver(self, rank)

    async def fetch(self, step: int, rank: int) -> bytes:
        async with self._changed:
            await self._changed.wait_for(lambda: self._sent is not None and self._sent >= step)
        try:
            return self._kept[rank][step]
        except KeyError:
            raise TransportError(f"the batch of step {step} for rank {rank} was released, or never sent") from None

    def release(self, step: int, rank: int) -> None:
        self._released[rank] = max(step, self._released[rank])
        for old in [old for old in self._kept[rank] if old <= step]:
            del self._kept[rank][old]


class MemoryReceiver:
    def __init__(self, transport: MemoryTransport, rank: int) -> None:
        self._transport, self._rank = transport, rank

    async def receive(self, step: int) -> RankBatch:
        return checked(await self._transport.fetch(step, self._rank), step, self._rank)

    async def release(self, step: int) -> None:
        self._transport.release(step, self._rank)

    async def close(self) -> None:
        return
