"""A sender's weights to several servers: one tensor at a time, and what becomes of the others when one fails."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from inference_servers import FakeInference
from waiting import until

from verifiers.errors import ConfigError
from verifiers.rl.inference import InferencePool, UpdateError
from verifiers.rl.ways import TensorSpec
from verifiers.rl.weights import WeightSender, whole_tensors

NAMES = [f"layer{i}.weight" for i in range(40)]
pytestmark = pytest.mark.timeout(200)


class Tensor:
    """As much of one as a sender looks at."""

    alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
    shape, dtype = (2, 3), "torch.float32"

    def __init__(self) -> None:
        self.alive.add(self)

    def detach(self) -> Tensor:
        return self


class MemoryWay:
    """Takes tensors for a server in memory. `dies_at`: the number of the tensor that breaks it."""

    def __init__(self) -> None:
        self.taken, self.most_alive, self.is_closed = 0, 0, False
        self.dies_at: int | None = None
        self.is_held = threading.Event()
        self.is_held.set()

    def start(self, tensor: Tensor) -> None:
        self.most_alive = max(self.most_alive, len(Tensor.alive))

    def wait(self) -> None:
        assert self.is_held.wait(20)
        if self.is_closed:
            raise ConnectionError("given up")
        if self.taken == self.dies_at:
            raise ConnectionError("its connection broke")
        self.taken += 1

    def close(self) -> None:
        self.is_closed = True


class Ways:
    """Opens one for each server; `opened[url]` lists them."""

    def __init__(self) -> None:
        Tensor.alive.clear()  # a thread of another test may hold one
        self.opened: dict[str, list[MemoryWay]] = {}
        self.dies_at: dict[str, int] = {}

    async def open(self, agreed, link, world_size) -> MemoryWay:
        way = MemoryWay()
        way.dies_at = self.dies_at.pop(link.url, None)
        self.opened.setdefault(link.url, []).append(way)
        return way


@pytest.fixture
async def servers():
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(FakeInference()) for _ in range(3)]


@pytest.fixture
def ways() -> Ways:
    return Ways()


@pytest.fixture
def sender(ways) -> WeightSender:
    return WeightSender([TensorSpec(name, (2, 3), "float32") for name in NAMES], open_way=ways.open)


def pool_of(servers) -> InferencePool:
    return InferencePool([server.url for server in servers], model="m", watch_s=3600)


def named(names: list[str] = NAMES) -> Iterator[tuple[str, Tensor]]:
    for name in names:
        yield name, Tensor()


async def test_every_server_gets_every_tensor_and_no_more_than_two_are_alive(servers, sender, ways):
    async with pool_of(servers) as pool:
        report = await pool.update(1, sender.weights(named()))
        assert len(report.updated) == 3
    for (way,) in ways.opened.values():
        assert way.taken == len(NAMES)
        assert way.most_alive <= 2, "the next is made while the last is still held"


async def test_what_will_be_sent_is_told_to_the_server(servers, sender):
    async with pool_of(servers[:1]) as pool:
        await pool.update(1, sender.weights(named()))
    (body,) = servers[0].bodies["/update_weights"]
    assert body["update_info"]["names"] == NAMES


async def test_connections_last(servers, sender, ways):
    async with pool_of(servers) as pool:
        for version in range(1, 4):
            await pool.update(version, sender.weights(named()))
    assert [[way.taken for way in opened] for opened in ways.opened.values()] == [[3 * len(NAMES)]] * 3


async def test_a_connection_that_breaks_takes_no_other_with_it_and_is_made_anew(servers, sender, ways):
    bad = servers[0]
    ways.dies_at[bad.root] = 7
    bad.state = "torn"
    async with pool_of(servers) as pool:
        report = await pool.update(1, sender.weights(named()))
        assert set(report.failed) == {bad.url}
        assert "its connection broke" in report.failed[bad.url]
        assert len(pool.serving) == 2
        bad.state = "whole"
        report = await pool.update(2, sender.weights(named()))
        assert report.failed == {}
        assert len(pool.serving) == 3
    assert [way.taken for way in ways.opened[bad.root]] == [7, len(NAMES)]


async def test_a_server_that_refuses_is_waited_for_by_nobody(servers, sender, ways):
    bad = servers[0]
    bad.faults["/start_weight_update"] = [(500, "no")]
    async with pool_of(servers) as pool:
        report = await pool.update(1, sender.weights(named()))
    assert set(report.failed) == {bad.url}
    assert [ways.opened[server.root][0].taken for server in servers] == [0, len(NAMES), len(NAMES)]


async def test_nothing_is_sent_before_all_are_ready(servers, sender, ways):
    slow = servers[0]
    is_let_go = asyncio.Event()

    async def wait_first(agreed, link, world_size):
        if link.url == slow.root:
            await is_let_go.wait()
        return await ways.open(agreed, link, world_size)

    sender = WeightSender(sender.manifest, open_way=wait_first)
    async with pool_of(servers) as pool:
        updating = asyncio.create_task(pool.update(1, sender.weights(named())))
        await until(lambda: all("/update_weights" in s.asked for s in servers[1:]), by=updating)
        await asyncio.sleep(0.05)
        assert [ways.opened[server.root][0].taken for server in servers[1:]] == [0, 0]
        is_let_go.set()
        await updating


@pytest.mark.parametrize(
    "sent, told",
    [
        (NAMES[:-1], "ended before layer39.weight"),
        ([*NAMES, "extra"], "where nothing more was"),
        ([*NAMES[:5], "other", *NAMES[6:]], "name='other'"),
    ],
    ids=["too few", "too many", "another"],
)
async def test_other_weights_than_were_announced_are_no_version(servers, sender, ways, sent, told):
    async with pool_of(servers) as pool:
        with pytest.raises(UpdateError, match=told):
            await pool.update(1, sender.weights(named(sent)))
        assert pool.version == 0
    assert all(way.is_closed for (way,) in ways.opened.values())
    assert not any(server.is_paused for server in servers)


async def test_without_any_server_left_the_weights_are_gone_through_all_the_same(servers, sender):
    """The other ranks of a trainer gather each tensor together with this one, and would wait for it for ever."""
    gone_through = []

    def counted() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in named():
            gone_through.append(name)
            yield name, tensor

    for server in servers:
        server.faults["/start_weight_update"] = [(500, "no")]
    async with pool_of(servers) as pool:
        with pytest.raises(UpdateError):
            await pool.update(1, sender.weights(counted()))
        await until(lambda: gone_through == NAMES)


async def test_a_cancel_while_it_is_sending_leaves_nobody_paused(servers, sender, ways):
    async with pool_of(servers) as pool:
        updating = asyncio.create_task(pool.update(1, sender.weights(named())))
        await until(lambda: len(ways.opened) == 3, by=updating)
        ways.opened[servers[0].root][0].is_held.clear()
        await until(lambda: all("/update_weights" in s.asked for s in servers), by=updating)
        updating.cancel()
        await asyncio.wait([updating])
        ways.opened[servers[0].root][0].is_held.set()
    assert not any(server.is_paused for server in servers)


def test_sharded_tensors_are_gathered_one_at_a_time():
    gathered: weakref.WeakSet[Tensor] = weakref.WeakSet()

    class Shard(Tensor):
        def full_tensor(self) -> Tensor:
            whole = Tensor()
            gathered.add(whole)
            return whole

    most = 0
    for _ in whole_tensors(((n, Shard()) for n in NAMES), [TensorSpec(n, (2, 3), "float32") for n in NAMES]):
        most = max(most, len(gathered))
    assert 1 <= most <= 2


def test_a_sender_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="the manifest is empty"):
        WeightSender([])
