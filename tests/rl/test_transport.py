"""Every rank gets every step's batch once, whole and in order, whichever end is killed."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from verifiers.rl.transports import wire
from verifiers.rl.transports.files import FileReceiver, FileSender, released_step, steps_of
from verifiers.rl.transports.memory import MemoryTransport
from verifiers.rl.transports.stream import SocketReceiver, SocketSender
from verifiers.rl.transports.transport import TransportError
from verifiers.rl.types import RankBatch, encode


def payloads(step, world_size=2, size=0):
    """One for each rank; what `size` makes longer is the name of a figure."""
    figures = {"x" * (size + 1): 1.0}
    ranks = range(world_size)
    return [
        encode(RankBatch(step=step, rank=n, world_size=world_size, micro_batches=[], metrics=figures)) for n in ranks
    ]


@asynccontextmanager
async def memory(tmp_path):
    transport = MemoryTransport(2)
    yield transport, [transport.receiver(rank) for rank in range(2)]


@asynccontextmanager
async def files(tmp_path):
    yield FileSender(tmp_path, 2), [FileReceiver(tmp_path, rank, poll_s=0.01) for rank in range(2)]


@asynccontextmanager
async def sockets(tmp_path):
    sender = SocketSender(2)
    await sender.start()
    receivers = [SocketReceiver("127.0.0.1", sender.port, rank, 2, patience_s=60) for rank in range(2)]
    try:
        yield sender, receivers
    finally:
        for receiver in receivers:
            await receiver.close()
        await sender.close()


@pytest.fixture(params=[memory, files, sockets], ids=lambda make: make.__name__)
def ends(request, tmp_path):
    return lambda: request.param(tmp_path)


# What all of them promise


async def test_every_rank_gets_its_own_batches_in_order(ends):
    async with ends() as (sender, receivers):
        for step in range(3):
            await sender.send(step, payloads(step))
        for rank, receiver in enumerate(receivers):
            for step in range(3):
                batch = await receiver.receive(step)
                assert (batch.step, batch.rank) == (step, rank)


async def test_a_rank_waits_for_what_is_not_there_yet(ends):
    async with ends() as (sender, receivers):
        waiting = asyncio.create_task(receivers[0].receive(0))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await sender.send(0, payloads(0))
        assert (await waiting).step == 0


async def test_a_batch_may_be_asked_for_again_until_it_is_released(ends):
    async with ends() as (sender, receivers):
        await sender.send(0, payloads(0))
        await sender.send(1, payloads(1))
        for _ in range(2):
            assert [(await receivers[0].receive(step)).step for step in (0, 1)] == [0, 1]
        await receivers[0].release(0)
        assert (await receivers[0].receive(1)).step == 1
        with pytest.raises(TransportError, match="released"):
            await receivers[0].receive(0)


async def test_one_rank_releases_nothing_of_another(ends):
    async with ends() as (sender, receivers):
        await sender.send(0, payloads(0))
        await receivers[0].receive(0)
        await receivers[0].release(0)
        assert (await receivers[1].receive(0)).rank == 1


async def test_a_gap_is_refused_by_the_sender(ends):
    async with ends() as (sender, _):
        await sender.send(0, payloads(0))
        with pytest.raises(TransportError, match="step 2 is sent after step 0"):
            await sender.send(2, payloads(2))


async def test_a_batch_for_another_number_of_ranks_is_refused(ends):
    async with ends() as (sender, _):
        with pytest.raises(TransportError, match="3 payloads for 2 ranks"):
            await sender.send(0, payloads(0, world_size=3))


async def test_what_was_sent_after_a_step_that_is_sent_again_is_void(ends):
    """An orchestrator that went on from an older state makes other batches."""
    async with ends() as (sender, receivers):
        for step in range(3):
            await sender.send(step, payloads(step))
        await sender.send(1, payloads(1, size=9))
        assert len(next(iter((await receivers[0].receive(1)).metrics))) == 10
        waiting = asyncio.create_task(receivers[0].receive(2))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await sender.send(2, payloads(2, size=9))
        assert len(next(iter((await waiting).metrics))) == 10


async def test_an_orchestrator_that_is_behind_its_trainer_is_told(ends):
    async with ends() as (sender, receivers):
        for step in range(3):
            await sender.send(step, payloads(step))
        for receiver in receivers:
            await receiver.receive(0)
            await receiver.release(2)
        await until(lambda: _has_heard(sender))
        with pytest.raises(TransportError, match="Start it from the state of step 3"):
            await sender.send(1, payloads(1))


def _has_heard(sender):
    ranks = getattr(sender, "_ranks", None)
    return ranks is None or all(rank.released == 2 for rank in ranks)


# Files


async def test_the_last_step_may_be_sent_again_by_the_next_life_of_a_sender(tmp_path):
    await FileSender(tmp_path, 1).send(0, payloads(0, 1))
    before = (tmp_path / "step_00000000" / "rank_0.bin").stat().st_mtime_ns
    again = FileSender(tmp_path, 1)
    await again.send(0, payloads(0, 1))
    await again.send(1, payloads(1, 1))
    assert (tmp_path / "step_00000000" / "rank_0.bin").stat().st_mtime_ns == before
    assert steps_of(tmp_path) == [0, 1]


async def test_half_written_steps_are_nobodys(tmp_path):
    at = tmp_path / "step_00000000"
    at.mkdir()
    (at / "rank_0.bin").write_bytes(payloads(0, 1)[0])
    (at / ".rank_0.bin.new").write_bytes(b"half")
    receiver = FileReceiver(tmp_path, 0, poll_s=0.01)
    waiting = asyncio.create_task(receiver.receive(0))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await FileSender(tmp_path, 1).send(0, payloads(0, 1, size=5))
    assert len(next(iter((await waiting).metrics))) == 6


async def test_bytes_that_a_shared_disk_shows_late_are_waited_for(tmp_path):
    await FileSender(tmp_path, 1).send(0, payloads(0, 1))
    path = tmp_path / "step_00000000" / "rank_0.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    waiting = asyncio.create_task(FileReceiver(tmp_path, 0, poll_s=0.01).receive(0))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    path.write_bytes(whole)
    assert (await waiting).step == 0


async def test_bytes_that_stay_wrong_are_an_error_that_names_the_file(tmp_path):
    await FileSender(tmp_path, 1).send(0, payloads(0, 1))
    path = tmp_path / "step_00000000" / "rank_0.bin"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(TransportError, match=r"rank_0\.bin is not what its whole\.json says"):
        await FileReceiver(tmp_path, 0, poll_s=0.01, settle_s=0.05).receive(0)


async def test_a_lost_step_is_told_and_not_waited_for(tmp_path):
    sender = FileSender(tmp_path, 1)
    await sender.send(0, payloads(0, 1))
    await sender.send(1, payloads(1, 1))
    (tmp_path / "step_00000000" / "whole.json").unlink()
    with pytest.raises(TransportError, match="has step 1 but not step 0"):
        await FileReceiver(tmp_path, 0, poll_s=0.01).receive(0)


async def test_released_files_are_gone_and_their_steps_are_not_written_again(tmp_path):
    sender = FileSender(tmp_path, 2)
    for step in range(3):
        await sender.send(step, payloads(step))
    for rank in range(2):
        await FileReceiver(tmp_path, rank).release(1)
    assert steps_of(tmp_path) == [2]
    assert released_step(tmp_path, 0) == 1
    await FileSender(tmp_path, 2).send(1, payloads(1))
    assert not (tmp_path / "step_00000001").exists()


async def test_a_batch_that_is_sent_again_is_written_only_for_ranks_that_may_ask_for_it(tmp_path):
    await FileSender(tmp_path, 2).send(0, payloads(0))
    await FileReceiver(tmp_path, 0).release(0)
    await FileSender(tmp_path, 2).send(0, payloads(0, size=9))
    assert len(next(iter((await FileReceiver(tmp_path, 1).receive(0)).metrics))) == 10
    await FileReceiver(tmp_path, 1).release(0)
    assert not (tmp_path / "step_00000000").exists()


WRITER = """
import asyncio, sys
from pathlib import Path
from verifiers.rl.transports.files import FileSender, steps_of
from verifiers.rl.types import RankBatch, encode
def batch(step, rank):
    return encode(RankBatch(step=step, rank=rank, world_size=2, micro_batches=[], metrics={"x" * 200_000: 1.0}))
async def main():
    folder = Path(sys.argv[1])
    sender, step = FileSender(folder, 2), max(steps_of(folder), default=0)
    while True:
        await sender.send(step, [batch(step, 0), batch(step, 1)])
        step += 1
asyncio.run(main())
"""


async def test_a_writer_that_is_killed_again_and_again_loses_nothing(tmp_path):
    receiver, step = FileReceiver(tmp_path, 1, poll_s=0.01), 0
    for life in range(4):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
        try:
            for _ in range(3):
                assert (await asyncio.wait_for(receiver.receive(step), 200)).step == step
                await receiver.release(step)
                step += 1
            await asyncio.sleep(0.003 * life)
        finally:
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()


# Sockets


async def test_flush_waits_for_every_rank():
    async with sockets(None) as (sender, receivers):
        await sender.send(0, payloads(0))
        flushing = asyncio.create_task(sender.flush())
        await receivers[0].receive(0)
        await asyncio.sleep(0.1)
        assert not flushing.done()
        await receivers[1].receive(0)
        await asyncio.wait_for(flushing, 100)


async def test_a_rank_that_comes_back_goes_on_where_it_was():
    async with sockets(None) as (sender, receivers):
        for step in range(4):
            await sender.send(step, payloads(step))
        await receivers[0].receive(0)
        await receivers[0].receive(1)
        await receivers[0].close()
        again = SocketReceiver("127.0.0.1", sender.port, 0, 2)
        assert [(await again.receive(step)).step for step in (1, 2, 3)] == [1, 2, 3]
        await again.close()


async def test_a_sender_that_comes_back_is_found_again():
    sender = SocketSender(1)
    await sender.start()
    receiver = SocketReceiver("127.0.0.1", sender.port, 0, 1, patience_s=60)
    await sender.send(0, payloads(0, 1))
    assert (await receiver.receive(0)).step == 0
    waiting = asyncio.create_task(receiver.receive(1))
    await asyncio.sleep(0.05)
    await sender.close()
    await asyncio.sleep(0.2)
    again = SocketSender(1, port=sender.port)
    await again.start()
    await again.send(0, payloads(0, 1))  # what its state says was sent last
    await again.send(1, payloads(1, 1))
    assert (await asyncio.wait_for(waiting, 100)).step == 1
    await receiver.close()
    await again.close()


async def test_a_sender_that_comes_back_too_old_is_told_and_so_is_the_rank():
    async with sockets(None) as (sender, receivers):
        waiting = asyncio.create_task(receivers[0].receive(7))
        await asyncio.sleep(0.05)
        await sender.send(3, payloads(3))
        with pytest.raises(TransportError, match="asks for step 7, and this orchestrator is at step 3"):
            await waiting


async def test_a_rank_that_wants_what_was_never_kept_is_told():
    async with sockets(None) as (sender, receivers):
        await sender.send(5, payloads(5))
        with pytest.raises(TransportError, match="start the orchestrator from the state of step 2"):
            await receivers[0].receive(2)


async def test_a_rank_of_another_run_is_refused():
    async with sockets(None) as (sender, _):
        stranger = SocketReceiver("127.0.0.1", sender.port, 0, 5)
        with pytest.raises(TransportError, match="rank 0 of 5 asks, and batches are made for 2 ranks"):
            await stranger.receive(0)


async def test_nobody_at_the_other_end_is_told_after_the_patience():
    receiver = SocketReceiver("127.0.0.1", 1, 0, 1, patience_s=0.2)
    with pytest.raises(TransportError, match=r"no orchestrator at 127\.0\.0\.1:1"):
        await receiver.receive(0)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 8, b"\x00" * 7 + b"\x03abc", b""])
async def test_strangers_at_the_port_disturb_nobody(said):
    async with sockets(None) as (sender, receivers):
        reader, writer = await asyncio.open_connection("127.0.0.1", sender.port)
        writer.write(said)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 100) == b""
        await wire.hang_up(writer)
        await sender.send(0, payloads(0))
        assert (await receivers[0].receive(0)).step == 0


@settings(max_examples=15)
@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=6))
def test_a_connection_cut_at_any_byte_loses_and_repeats_nothing(cuts):
    async def body():
        sender = SocketSender(1)
        await sender.start()
        async with Cutter(sender.port, cuts) as cutter:
            receiver = SocketReceiver("127.0.0.1", cutter.port, 0, 1, patience_s=60)
            for step in range(5):
                await sender.send(step, payloads(step, 1, size=20_000))
            got = [(await receiver.receive(step)).step for step in range(5)]
            await receiver.close()
        await sender.close()
        return got

    assert asyncio.run(body()) == list(range(5))


class Cutter:
    """A proxy that hangs up after as many bytes of an answer as the next of `cuts` says; after them it only passes."""

    def __init__(self, port, cuts):
        self._to, self._cuts, self._tasks = port, [*cuts], set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    async def _pass(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        left = self._cuts.pop() if self._cuts else 1 << 60
        forwarding = asyncio.ensure_future(self._forward(reader, back))
        while left and (data := await there.read(min(left, 65536))):
            left -= len(data)
            writer.write(data)
        forwarding.cancel()
        await asyncio.wait([forwarding])
        await wire.hang_up(back)
        await wire.hang_up(writer)

    async def _forward(self, reader, back):
        while data := await reader.read(65536):
            back.write(data)
        back.close()


RANK = """
import asyncio, sys
from verifiers.rl.transports.stream import SocketReceiver
async def main():
    receiver = SocketReceiver("127.0.0.1", int(sys.argv[1]), 0, 1)
    step = int(sys.argv[2])
    while True:
        batch = await receiver.receive(step)
        print(step, flush=True)
        await receiver.release(step)
        step += 1
asyncio.run(main())
"""


async def test_a_rank_that_is_killed_again_and_again_loses_nothing():
    sender = SocketSender(1)
    await sender.start()
    for step in range(30):
        await sender.send(step, payloads(step, 1, size=100_000))
    trained = []
    while len(trained) < 30:
        arguments = [sys.executable, "-c", RANK, str(sender.port), str(len(trained))]
        rank = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
        for _ in range(min(8, 30 - len(trained))):
            trained.append(int(await asyncio.wait_for(rank.stdout.readline(), 60)))
        rank.kill()
        # what it said before it died, and what of that it had released, is all that is lost with it
        rest = await rank.stdout.read()
        trained += [int(line) for line in rest.split()]
        await rank.wait()
    assert trained == list(range(30))
    await sender.close()


async def test_a_stranger_that_says_a_rank_s_name_twice_does_not_keep_the_old_connection():
    async with sockets(None) as (sender, receivers):
        await sender.send(0, payloads(0))
        await receivers[0].receive(0)
        reader, writer = await asyncio.open_connection("127.0.0.1", sender.port)
        wire.put(writer, wire.Hello(wire.PROTOCOL, 0, 2, 0, -1))
        await writer.drain()
        assert (await wire.take(reader)).step == 0
        await sender.send(1, payloads(1))
        assert (await receivers[0].receive(1)).step == 1, "it connects anew"
        await wire.hang_up(writer)
