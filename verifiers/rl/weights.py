"""Weights on their way from a trainer to model servers: from a folder, or sent tensor by tensor.

`FolderWeights` is a description and may come from anywhere; servers read the files themselves. `WeightSender` lives in
the process of the trainer's first rank and speaks vLLM's weight transfer: `gloo` with our own engine in vLLM's workers
(`inside_vllm`), `nccl` with vLLM's. Neither side ever holds a second copy of the model: one tensor at a time is
gathered, sent and put into its layer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from verifiers.errors import ConfigError
from verifiers.rl.admin import AdminError, AdminLink, Round
from verifiers.rl.ways import OPENERS, TIMEOUT_S, Agreement, Backend, Opener, TensorSpec, Way, columns, in_daemon

Post = Callable[[dict[str, Any]], Awaitable[Any]]


class WeightSource(Protocol):
    """Where the weights of one version are to be had."""

    @property
    def repeatable(self) -> bool:
        """Whether a server may be given them once more in the same round, after an update that broke off."""
        ...

    @property
    def is_lasting(self) -> bool:
        """Whether a server may be given them now, by itself, after the round of the others."""
        ...

    def round(self, urls: Sequence[str]) -> Round:
        """The way to these servers. Each of them is delivered to, or left out by `leave`."""
        ...

    def leave(self, round_: Round, url: str) -> None:
        """This server takes no part in it after all."""
        ...


class FolderWeights:
    """A folder of safetensors files in the layout of a Hugging Face checkpoint, whole, that every server can read.

    >>> await pool.update(3, FolderWeights("/shared/weights/step_3"))
    """

    repeatable = is_lasting = True

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(Path(folder).absolute())

    def round(self, urls: Sequence[str]) -> FolderWeights:
        return self

    def leave(self, round_: Round, url: str) -> None:
        pass

    async def connect(self, link: AdminLink) -> None:
        pass

    async def deliver(self, link: AdminLink, post: Post) -> None:
        await post({"folder": self.folder})

    def __repr__(self) -> str:
        return f"FolderWeights({self.folder!r})"


class WeightSender:
    """The trainer's end of the connections to all servers.

    `manifest` says what is sent each time, in order. Each server has a process group of its own with the trainer, so
    that one that dies takes no other with it: n servers cost n times the bandwidth of one. `host` is the address of
    this machine as the servers see it.

    >>> sender = WeightSender([TensorSpec.of(name, p) for name, p in model.named_parameters()])
    >>> await pool.update(3, sender.weights(model.named_parameters()))
    """

    def __init__(
        self,
        manifest: Iterable[TensorSpec],
        *,
        backend: Backend = "gloo",
        host: str = "127.0.0.1",
        timeout_s: float = TIMEOUT_S,
        open_way: Opener | None = None,  # a transport of another kind; the servers' engine must know it
    ) -> None:
        self.manifest = list(manifest)
        if not self.manifest:
            raise ConfigError("a weight sender needs the names and shapes of what it is to send; the manifest is empty")
        self.backend: Backend = backend
        self._agreement = Agreement(self.manifest, host, timeout_s)
        self._open_way: Opener = open_way or OPENERS[backend]
        self._ways: dict[str, Way] = {}  # by URL
        self._since: dict[str, Any] = {}  # by URL: with which workers

    def weights(self, named: Iterable[tuple[str, Any]]) -> SentWeights:
        """The weights as they are when they are sent: `named` is gone through once, in a thread of its own."""
        return SentWeights(self, named)

    async def connect(self, link: AdminLink) -> None:
        """A process group with the server's workers, unless there is one with these very workers. Raises AdminError."""
        since = await link.workers_since()
        if link.url in self._ways and self._since.get(link.url) == since:
            return
        self.disconnect(link.url)
        workers = int((await link.get("/get_world_size"))["world_size"])
        self._ways[link.url] = await self._open_way(self._agreement, link, 1 + workers)
        self._since[link.url] = since

    def disconnect(self, url: str) -> None:
        """The next update to the server forms a new group; its workers, if they wait, see the connection break."""
        way = self._ways.pop(url, None)
        if way is not None:
            way.close()

    def update_info(self) -> dict[str, Any]:
        """What a server is told of an update before it gets it."""
        return update_info(self.backend, self.manifest)

    def send(self, named: Iterable[tuple[str, Any]], urls: Iterable[str]) -> dict[str, Exception]:
        """Sends to all that are connected, and returns those that failed. Blocks.

        Raises ValueError when `named` is not what the manifest says, after breaking with all of them: their weights
        would be half new.
        """
        failures: dict[str, Exception] = {}
        ways = {url: self._ways[url] for url in urls if url in self._ways}
        try:
            for tensor in whole_tensors(named, self.manifest):
                # all at once, then wait for each
                for step in ("start", "wait"):
                    for url, way in list(ways.items()):
                        try:
                            way.start(tensor) if step == "start" else way.wait()
                        except Exception as error:
                            failures[url] = error
                            del ways[url]
                            self.disconnect(url)
        except BaseException:
            for url in ways:
                self.disconnect(url)
            raise
        return failures

    def close(self) -> None:
        for url in list(self._ways):
            self.disconnect(url)


class SentWeights:
    """What one update sends."""

    repeatable = is_lasting = False

    def __init__(self, sender: WeightSender, named: Iterable[tuple[str, Any]]) -> None:
        self._sender, self._named = sender, named

    def round(self, urls: Sequence[str]) -> SendingRound:
        # With nobody left too: the other ranks of the trainer go through the weights in step with this one
        def send(ready: set[str]) -> Awaitable[Mapping[str, Exception]]:
            return in_daemon(lambda: self._sender.send(self._named, ready))

        return SendingRound(self._sender, send, urls)

    def leave(self, round_: Round, url: str) -> None:
        assert isinstance(round_, SendingRound)
        round_.leave(url)

    def __repr__(self) -> str:
        return f"SentWeights({len(self._sender.manifest)} tensors by {self._sender.backend})"


class Connections(Protocol):
    """The connections of a sender to servers: its own, or those of one in another process."""

    async def connect(self, link: AdminLink) -> None: ...

    def disconnect(self, url: str) -> None: ...

    def update_info(self) -> dict[str, Any]: ...


class SendingRound:
    """Begins to send when each server either waits for the weights or has been left out.

    `send` sends to those that are ready, and tells which of them failed.
    """

    folder: str | None = None

    def __init__(
        self,
        connections: Connections,
        send: Callable[[set[str]], Awaitable[Mapping[str, Exception]]],
        urls: Sequence[str],
    ) -> None:
        self._connections, self._send_to = connections, send
        self._awaited, self._ready = set(urls), set[str]()
        self._sending: asyncio.Future[Mapping[str, Exception]] = asyncio.get_running_loop().create_future()
        self._work: asyncio.Task[None] | None = None

    async def connect(self, link: AdminLink) -> None:
        await self._connections.connect(link)

    async def deliver(self, link: AdminLink, post: Post) -> None:
        self._ready.add(link.url)
        posting = asyncio.ensure_future(post(self._connections.update_info()))
        try:
            self._settle(link.url)
            await asyncio.wait([posting, self._sending], return_when=asyncio.FIRST_COMPLETED)
            if posting.done() and not self._sending.done():
                posting.result()  # a refusal, most likely; that it has them all is told when all have been sent
            failure = (await asyncio.shield(self._sending)).get(link.url)
            if failure is not None:
                raise AdminError(f"sending weights to {link.url} failed: {failure}")
            await posting
        finally:
            posting.cancel()
            await asyncio.wait([posting])
            if not posting.cancelled():
                posting.exception()  # it is told by what was raised here

    def leave(self, url: str) -> None:
        self._connections.disconnect(url)  # whatever state it is in, it begins anew next time
        self._ready.discard(url)
        self._settle(url)

    def _settle(self, url: str) -> None:
        self._awaited.discard(url)
        if not self._awaited and self._work is None:
            self._work = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        try:
            failures = await self._send_to(self._ready)
        except Exception as error:
            failures = dict.fromkeys(self._ready, error)
        self._sending.set_result(failures)


def update_info(backend: Backend, manifest: Sequence[TensorSpec]) -> dict[str, Any]:
    """Our engine knows from the connecting what will come; vLLM's is told each time."""
    return {"names": [spec.name for spec in manifest]} if backend == "gloo" else columns(manifest)


def whole_tensors(named: Iterable[tuple[str, Any]], manifest: Sequence[TensorSpec]) -> Iterator[Any]:
    """The tensors of a model, whole, one at a time. Raises ValueError at the first that is not what was agreed on.

    Gathering a sharded tensor takes all ranks of the trainer: while the first sends, the others go through this too.
    """
    expected = iter(manifest)
    for name, tensor in named:
        spec, found = next(expected, None), TensorSpec.of(name, tensor)
        if found != spec:
            raise ValueError(f"the trainer's weights are not what it said: {found} where {spec or 'nothing more'} was")
        whole = tensor.detach()
        yield whole.full_tensor() if hasattr(whole, "full_tensor") else whole
    if (spec := next(expected, None)) is not None:
        raise ValueError(f"the trainer's weights ended before {spec.name}")
