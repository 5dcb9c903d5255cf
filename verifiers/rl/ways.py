"""`Way`: a process group of the trainer with the workers of one server, by which tensors go there one after the other.

`gloo` meets our own engine in vLLM's workers (`inside_vllm`), `nccl` vLLM's.
"""

# pyright: reportMissingImports=false
# torch is an extra

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import datetime
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from verifiers.rl.admin import AdminError, AdminLink

if TYPE_CHECKING:
    import torch

Backend = Literal["gloo", "nccl"]
T = TypeVar("T")

TIMEOUT_S = 300.0  # of one tensor on its way, and of servers to join
_POLL_S = 0.02


class TensorSpec(NamedTuple):
    name: str
    shape: tuple[int, ...]
    dtype: str  # torch's name without "torch."

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> TensorSpec:
        """Of a sharded tensor, the shape of the whole; nothing is gathered."""
        return cls(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


@dataclass(frozen=True)
class Agreement:
    """What a server is told once: what will be sent each time, and where it is to meet the trainer."""

    manifest: Sequence[TensorSpec]
    host: str
    timeout_s: float


class Way(Protocol):
    """A process group with the workers of one server."""

    def start(self, tensor: torch.Tensor) -> None:
        """Begins to send."""
        ...

    def wait(self) -> None:
        """Until what was begun is done. Raises when that fails, and soon after `close`."""
        ...

    def close(self) -> None: ...


Opener = Callable[[Agreement, AdminLink, int], Awaitable[Way]]  # the number is that of the ranks, ours included


class _GlooWay:
    def __init__(self, store: Any, group: Any) -> None:
        self._store: Any = store
        self._group: Any = group
        self._pending: Any = None
        self._is_closed = False

    @classmethod
    async def open(cls, agreed: Agreement, link: AdminLink, world_size: int) -> _GlooWay:
        import torch.distributed as dist

        limit = datetime.timedelta(seconds=agreed.timeout_s)
        store = dist.TCPStore(agreed.host, 0, is_master=True, wait_for_workers=False, timeout=limit)
        init_info = columns(agreed.manifest) | {
            "host": agreed.host,
            "port": store.port,
            "world_size": world_size,
            "rank_offset": 1,
            "timeout_s": agreed.timeout_s,
        }
        timeout_s = agreed.timeout_s
        joining = asyncio.ensure_future(
            link.post("/init_weight_transfer_engine", {"init_info": init_info}, timeout_s=timeout_s)
        )
        try:
            # Forming the group waits for all its members, so not before it is known that they come
            while not joining.done() and store.add("joined", 0) < world_size - 1:
                await asyncio.sleep(_POLL_S)
            if joining.done():
                joining.result()
            options: Any = dist.ProcessGroupGloo._Options()
            options._timeout = limit
            # Left to itself, gloo takes what the machine's own name stands for, which is often loopback
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=agreed.host)]
            group: Any = await in_daemon(lambda: dist.ProcessGroupGloo(store, 0, world_size, options))
            await joining
        finally:
            joining.cancel()
        return cls(store, group)

    def start(self, tensor: torch.Tensor) -> None:
        import torch

        # as bytes: whatever the type, gloo need not know it
        self._pending = self._group.broadcast(tensor.cpu().contiguous().reshape(-1).view(torch.uint8), 0)

    def wait(self) -> None:
        work, pause_s = self._pending, 5e-5
        while work is not None and not work.is_completed():  # `work.wait()` could not be ended by `close`
            if self._is_closed:
                raise ConnectionError("the connection was given up")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 5e-3)
        if work is not None:
            work.wait()  # raises what became of it

    def close(self) -> None:
        """Gloo ends what has begun or runs into its timeout, and its destructor waits for that: not here."""
        self._is_closed = True
        store, group, pending = self._store, self._group, self._pending
        self._store = self._group = self._pending = None

        def bury(held: list[Any]) -> None:
            try:
                if held[-1] is not None:
                    held[-1].wait()
            except RuntimeError:
                pass
            held.clear()

        threading.Thread(target=bury, args=([store, group, pending],), daemon=True, name="weights").start()


class _NCCLWay:
    """With vLLM's own `nccl` engine, over NCCL as torch binds it. vLLM need not be installed beside the trainer.

    A server that dies while it receives leaves a kernel on the trainer's GPU that only ends with the process: the
    timeout is noticed, the others are served, and a restart of the trainer from its checkpoint frees the stream.
    """

    def __init__(self, communicator: Any, timeout_s: float) -> None:
        import torch

        self._communicator, self._timeout_s = communicator, timeout_s
        self._stream, self._done = torch.cuda.Stream(), torch.cuda.Event()
        self._data: Any = None
        self._is_closed = False

    @classmethod
    async def open(cls, agreed: Agreement, link: AdminLink, world_size: int) -> _NCCLWay:
        import torch
        from torch.cuda import nccl

        unique = nccl.unique_id()
        init_info = nccl_init_info(bytes(unique), world_size)
        device = torch.cuda.current_device()

        def join() -> Any:
            torch.cuda.set_device(device)
            communicator = nccl.init_rank(world_size, unique, 0)
            one = torch.ones(1, device=f"cuda:{device}")
            nccl.all_reduce([one], comms=[communicator])  # vLLM's end does this once at first, and waits for ours
            torch.cuda.synchronize()
            return communicator

        timeout_s = agreed.timeout_s
        joining = asyncio.ensure_future(
            link.post("/init_weight_transfer_engine", {"init_info": init_info}, timeout_s=timeout_s)
        )
        forming = in_daemon(join)
        try:
            await asyncio.wait([joining, forming], return_when=asyncio.FIRST_EXCEPTION, timeout=timeout_s)
            if not (joining.done() and forming.done()):
                if joining.done():
                    joining.result()
                raise AdminError(f"{link.url} did not join the weight transfer within {timeout_s:g} s")
            joining.result()
            return cls(forming.result(), timeout_s)
        finally:
            joining.cancel()

    def start(self, tensor: torch.Tensor) -> None:
        import torch
        from torch.cuda import nccl

        data = tensor.cuda().contiguous()
        self._stream.wait_stream(torch.cuda.current_stream())
        nccl.broadcast([data], root=0, streams=[self._stream], comms=[self._communicator])
        self._done.record(self._stream)
        self._data = data  # its memory is not for others until it has been sent

    def wait(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not self._done.query():
            if time.monotonic() > deadline or self._is_closed:
                raise TimeoutError(f"a tensor was not taken within {self._timeout_s:g} s")
            time.sleep(5e-4)
        self._data = None

    def close(self) -> None:
        self._is_closed = True


def nccl_init_info(unique_id: bytes, world_size: int) -> dict[str, Any]:
    """For vLLM's `nccl` engine: its workers are the ranks from 1 on, and tensors come one by one."""
    return {
        "rank_offset": 1,
        "world_size": world_size,
        "nccl_unique_id_b64": base64.b64encode(unique_id).decode(),
        "packed": False,
    }


OPENERS: dict[Backend, Opener] = {"gloo": _GlooWay.open, "nccl": _NCCLWay.open}


def columns(manifest: Sequence[TensorSpec]) -> dict[str, Any]:
    """As vLLM wants it: names, types and shapes side by side."""
    return {
        "names": [spec.name for spec in manifest],
        "dtype_names": [spec.dtype for spec in manifest],
        "shapes": [list(spec.shape) for spec in manifest],
    }


def in_daemon(work: Callable[[], T]) -> asyncio.Future[T]:
    """Runs `work` in a thread that does not keep the process alive: a peer that hangs must not."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():  # from here on it cannot be cancelled, only left alone
            return
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="weights").start()
    return asyncio.wrap_future(future)
