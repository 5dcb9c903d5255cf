"""The program of a worker process: it loads one environment and runs groups of it, as its socket says.

`python -c "…; main()" FD`. It ends when its owner does: the socket is closed then.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from functools import partial

from verifiers.executor.local import LocalExecutor
from verifiers.executor.request import EnvSpec, GroupRequest, RowsRequest
from verifiers.executor.wire import (
    Cancel,
    Cancelled,
    Do,
    Done,
    FromWorker,
    Ready,
    Start,
    decode_order,
    failed,
    read_frame,
    write_frame,
)

FRAME_LIMIT_BYTES = 1 << 20  # read ahead of what has been asked for


def main() -> None:
    sys.exit(asyncio.run(_serve(int(sys.argv[1]))))


async def _serve(descriptor: int) -> int:
    owner = socket.socket(fileno=descriptor)
    reader, writer = await asyncio.open_connection(sock=owner, limit=FRAME_LIMIT_BYTES)
    first = await read_frame(reader)
    order = None if first is None else decode_order(first)
    if not isinstance(order, Start):
        return 2
    executor = LocalExecutor()
    try:
        await executor.load(order.spec)
    except Exception as error:
        write_frame(writer, failed(None, error))
        await writer.drain()
        return 3
    write_frame(writer, Ready(os.getpid()))
    await _Desk(executor, order.spec, writer).work(reader)
    await executor.close()
    return 0


async def answered(executor: LocalExecutor, spec: EnvSpec, order: Do) -> FromWorker:
    """What became of an order; it does not raise. Cancelled, it says so once the rollouts have ended."""
    number, request = order.number, order.request
    try:
        if isinstance(request, GroupRequest):
            return Done(number, records=await executor.run_group(request))
        return Done(number, rows=await executor.rows(spec, request))
    except asyncio.CancelledError:
        return Cancelled(number)
    except Exception as error:
        return failed(number, error)


class _Desk:
    """What a worker has in hand."""

    def __init__(self, executor: LocalExecutor, spec: EnvSpec, writer: asyncio.StreamWriter) -> None:
        self.executor, self.spec, self.writer = executor, spec, writer
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def work(self, reader: asyncio.StreamReader) -> None:
        while (data := await read_frame(reader)) is not None:
            order = decode_order(data)
            if isinstance(order, Do):
                task = self.tasks[order.number] = asyncio.create_task(self._do(order.number, order.request))
                task.add_done_callback(partial(self._ended, order.number))
            elif isinstance(order, Cancel) and order.number in self.tasks:
                self.tasks[order.number].cancel()
        for task in self.tasks.values():
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks.values())

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        del self.tasks[number]
        if task.cancelled():  # before it had begun: the cancel came right behind the order, and nobody has answered
            write_frame(self.writer, Cancelled(number))

    async def _do(self, number: int, request: GroupRequest | RowsRequest) -> None:
        answer = await answered(self.executor, self.spec, Do(number, request))
        try:
            write_frame(self.writer, answer)
        except (TypeError, NotImplementedError, ValueError) as error:  # something in a record cannot travel
            write_frame(self.writer, failed(number, error))
