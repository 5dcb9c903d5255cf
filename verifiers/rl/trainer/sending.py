"""`SendingOutlet`: the trainer's end where its first rank sends the weights (`verifiers.rl.sending` has the messages).

Between two steps, rank 0 does what the orchestrator orders. Gathering a tensor takes all ranks, so the others wait for
its word meanwhile: go through the weights once more, or go on.
"""

# pyright: reportMissingImports=false
# torch is an extra

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist

from verifiers.errors import SetupError
from verifiers.rl import sending
from verifiers.rl.admin import AdminError, AdminLink
from verifiers.rl.sending import Address
from verifiers.rl.train_config import WeightsTable
from verifiers.rl.trainer.trainer import Trainer
from verifiers.rl.transports.transport import BatchReceiver
from verifiers.rl.types import RankBatch
from verifiers.rl.ways import Backend, TensorSpec, in_daemon
from verifiers.rl.weights import WeightSender, whole_tensors

T = TypeVar("T")

_GO_ON, _SEND = 0, 1  # rank 0's word to the others
_WHILE_IT_TAKES = timedelta(days=365)  # a batch may be long in coming; a rank that dies is noticed all the same

logger = logging.getLogger("verifiers")


class SendingOutlet:
    """Raises SetupError at `open` where this machine cannot send."""

    def __init__(self, trainer: Trainer, run: Path, table: WeightsTable, dtype: torch.dtype) -> None:
        assert table.way != "folder"
        self._trainer, self._run, self._table, self._dtype = trainer, run, table, dtype
        self._backend: Backend = table.way
        self._manifest: list[TensorSpec] = []
        self._words: Any = None  # the ranks' group for rank 0's word; None: it is alone
        self._desk: _Desk | None = None  # rank 0 has one

    async def open(self) -> None:
        if self._backend == "nccl" and not (torch.cuda.is_available() and dist.is_nccl_available()):
            raise SetupError("weights.way = 'nccl': the trainer has no GPU that torch can use; 'gloo' goes anywhere")
        ranks = self._trainer.ranks
        if ranks.world_size > 1:
            self._words = dist.new_group(backend="gloo", timeout=_WHILE_IT_TAKES)
        self._manifest = [TensorSpec.of(name, tensor) for name, tensor in self._weights()]
        if ranks.rank == 0:
            sender = WeightSender(
                self._manifest, backend=self._backend, host=self._table.host, timeout_s=self._table.timeout_s
            )
            self._desk = _Desk(sender, self._run)
            await self._desk.open(self._table.host, self._trainer.version)
        await self.give()

    async def receive(self, receiver: BatchReceiver, step: int) -> RankBatch:
        if self._desk is None:
            self._follow()
            return await receiver.receive(step)
        batch = await self._lead(self._desk, receiver.receive(step))
        await self._desk.begin_step()
        return batch

    async def give(self) -> None:
        if self._desk is None:
            self._follow()
            return
        self._desk.hold(self._trainer.version)
        await self._lead(self._desk, self._desk.until_go_on())

    async def done(self) -> None:
        if self._desk is not None:
            self._desk.say_done(self._trainer.version)

    async def close(self) -> None:
        if self._desk is not None:
            await self._desk.close()

    # --- together ---------------------------------------------------------------------------------------------------

    async def _lead(self, desk: _Desk, waited_for: Awaitable[T]) -> T:
        """On rank 0: sends what is ordered until what is waited for has come."""
        waiting = asyncio.ensure_future(waited_for)
        try:
            while (order := await desk.next_order(waiting)) is not None:
                self._say(_SEND)
                failures = await in_daemon(lambda urls=order.send.urls: desk.sender.send(self._weights(), urls))
                desk.answer(order, failures)
            self._say(_GO_ON)
            return waiting.result()
        finally:
            waiting.cancel()

    def _follow(self) -> None:
        """On the other ranks."""
        while self._heard() == _SEND:
            for _ in whole_tensors(self._weights(), self._manifest):
                pass

    def _weights(self) -> Any:
        return self._trainer.named_weights(self._dtype)

    def _say(self, word: int) -> None:
        if self._words is not None:
            dist.broadcast(torch.tensor([word]), 0, group=self._words)

    def _heard(self) -> int:
        word = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(word, 0, group=self._words)
        return int(word.item())


class _Order(NamedTuple):
    send: sending.Send
    by: asyncio.StreamWriter  # who is answered: the numbers of two orchestrators may be the same


@dataclass
class _Desk:
    """Rank 0's: where the orchestrator's orders come in. Its loop stands still while a step is computed."""

    sender: WeightSender
    run: Path
    _secret: str = field(default_factory=lambda: secrets.token_hex(16))
    _server: asyncio.Server | None = None
    _writer: asyncio.StreamWriter | None = None  # of the newest orchestrator
    _held: int | None = None
    _passed: int = -1  # versions up to this one need not be held
    _orders: list[_Order] = field(default_factory=list[_Order])
    _connecting: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _serving: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self, host: str, version: int) -> None:
        try:
            self._server = await asyncio.start_server(self._serve, host, 0, limit=sending.LINE_BYTES)
        except OSError as error:
            raise SetupError(f"weights.host: {host} is no address of the trainer's machine ({error})") from None
        self._address = Address(
            host=host, port=self._server.sockets[0].getsockname()[1], secret=self._secret, version=version
        )
        self._address.write(self.run)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [*self._serving, *self._connecting]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.sender.close()

    def say_done(self, version: int) -> None:
        """In the run's folder, where it is found after this process has ended."""
        Address(host="", port=0, secret="", version=version, is_done=True).write(self.run)

    # --- between two steps ------------------------------------------------------------------------------------------

    def hold(self, version: int) -> None:
        self._held = version
        sending.put(self._writer, sending.Holding(version))

    async def until_go_on(self) -> None:
        while self._held is not None and self._passed < self._held:
            self._changed.clear()
            await self._changed.wait()

    async def next_order(self, waiting: asyncio.Future[Any]) -> _Order | None:
        """None: what was waited for has come, and nothing is under way."""
        while True:
            if self._orders:
                return self._orders.pop(0)
            if waiting.done() and not self._connecting:
                return None
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait(
                [changed, *self._connecting, *([] if waiting.done() else [waiting])],
                return_when=asyncio.FIRST_COMPLETED,
            )
            changed.cancel()

    async def begin_step(self) -> None:
        self._held = None
        sending.put(self._writer, sending.Busy())
        if self._writer is not None:
            with contextlib.suppress(OSError):
                await self._writer.drain()  # said before the loop stands still

    def answer(self, order: _Order, failures: dict[str, Exception]) -> None:
        for url, error in failures.items():
            logger.warning("sending weights to %s failed: %s", url, error)
        told = {url: str(error) or type(error).__name__ for url, error in failures.items()}
        sending.put(order.by, sending.Sent(order.send.number, told))

    # --- orders -----------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            sending.keep_alive(writer)
            if not await self._is_let_in(reader, writer):
                return
            if self._writer is not None:
                self._writer.close()
            self._writer = writer
            self._orders.clear()  # of an orchestrator that is gone
            sending.put(writer, sending.Welcome(self.sender.backend, self.sender.manifest))
            if self._held is not None:
                sending.put(writer, sending.Holding(self._held))
            while True:
                self._do(sending.orders.decode(await sending.take(reader)), writer)
        except (OSError, ValueError) as error:
            logger.info("the orchestrator's connection ended: %s", error)
        except asyncio.CancelledError:
            pass  # at the end of the program; asyncio's server would tell of it as of an error
        finally:
            self._serving.discard(task)
            if self._writer is writer:
                self._writer = None
            writer.close()

    async def _is_let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        hello = sending.orders.decode(await sending.take(reader))
        if not isinstance(hello, sending.Hello) or not hmac.compare_digest(hello.secret, self._secret):
            return False
        if hello.protocol != sending.PROTOCOL:
            sending.put(
                writer, sending.Refused(f"the trainer speaks protocol {sending.PROTOCOL}, not {hello.protocol}")
            )
            await writer.drain()
            return False
        return True

    def _do(self, order: sending.Order, writer: asyncio.StreamWriter) -> None:
        match order:
            case sending.Connect():
                task = asyncio.ensure_future(self._connect(order, writer))
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)
            case sending.Disconnect(url):
                self.sender.disconnect(url)
            case sending.Send(number, version, urls) if version != self._held:
                now = f"it is at version {self._held}" if self._held is not None else "it computes a step"
                sending.put(writer, sending.Sent(number, dict.fromkeys(urls, f"version {version} is gone: {now}")))
            case sending.Send():
                self._orders.append(_Order(order, writer))
            case sending.GoOn(version):
                self._passed = max(self._passed, version)
            case sending.Hello():
                raise ValueError("a second hello")
        self._changed.set()

    async def _connect(self, order: sending.Connect, writer: asyncio.StreamWriter) -> None:
        link = AdminLink(order.url)
        try:
            await self.sender.connect(link)
            problem = None
        except (AdminError, OSError, RuntimeError) as error:
            problem = str(error) or type(error).__name__
        finally:
            await link.close()
        sending.put(writer, sending.Connected(order.number, problem))
