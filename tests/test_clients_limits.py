"""How many requests at a time, when to try again, and when time is up."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import steady

from verifiers.clients.deadlines import Deadlines
from verifiers.clients.limiter import BURST, Limiter
from verifiers.clients.pool import raise_file_limit
from verifiers.clients.retry import Fault, RetryPolicy, retry_after_s


async def take(limiter: Limiter, *, again: bool = False) -> None:
    if not limiter.try_take():
        await limiter.wait(again=again)


async def test_places_are_given_in_order_and_a_retry_goes_first():
    limiter, order = Limiter(1), []
    await take(limiter)

    async def worker(name: str, again: bool = False) -> None:
        await take(limiter, again=again)
        order.append(name)
        limiter.give()

    tasks = [asyncio.create_task(worker(n)) for n in "abc"]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(worker("retry", again=True)))
    await asyncio.sleep(0)
    limiter.give()
    await asyncio.gather(*tasks)
    assert order == ["retry", "a", "b", "c"]
    assert (limiter.taken, limiter.waiting) == (0, 0)


async def test_a_cancelled_waiter_loses_no_place():
    limiter = Limiter(1)
    await take(limiter)
    waiters = [asyncio.create_task(limiter.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    limiter.give()  # goes to the second
    waiters[1].cancel()  # which is cancelled in the same pass
    await asyncio.wait(waiters[:2])
    await asyncio.wait_for(waiters[2], 60)
    assert limiter.taken == 1


async def test_a_slow_down_halves_the_load_once_a_round_trip():
    limiter = Limiter(1000)
    sent = time.monotonic()
    for _ in range(32):
        await take(limiter)
    for _ in range(5):
        limiter.slow_down(sent)  # five complaints about requests that were all sent before
    assert limiter.places == 16
    limiter.slow_down(time.monotonic())
    assert limiter.places == 8


async def test_the_load_recovers_when_things_go_well():
    limiter = Limiter(64)
    for _ in range(64):
        await take(limiter)
    limiter.slow_down(time.monotonic())
    assert limiter.places == 32
    for _ in range(2000):
        limiter.went_well()
    assert limiter.places == 64
    assert not limiter.is_reduced


async def test_one_pass_of_the_loop_starts_a_bounded_number():
    limiter, started = Limiter(10_000), []

    async def worker() -> None:
        await take(limiter)
        started.append(1)

    tasks = [asyncio.create_task(worker()) for _ in range(1000)]
    steps, before = [], 0
    while not all(t.done() for t in tasks):
        await asyncio.sleep(0)
        steps.append(len(started) - before)
        before = len(started)
    assert len(started) == 1000
    assert max(steps) <= 2 * BURST


def test_the_soft_file_limit_is_raised_to_the_hard_one():
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        assert raise_file_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 512
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- deadlines ------------------------------------------------------------------------------------------------------


async def limited(deadlines: Deadlines, timeout_s: float, work_s: float) -> str:
    task = deadlines.start(timeout_s)
    try:
        await asyncio.sleep(work_s)
        return "done"
    except asyncio.CancelledError:
        if deadlines.is_up(task):
            return "time up"
        raise
    finally:
        deadlines.end(task)


@steady(0.2)
async def test_time_is_up_soon_after_the_limit_and_only_then():
    deadlines = Deadlines()
    slow = asyncio.create_task(limited(deadlines, 60, 0.3))  # set the long pause first
    began = time.monotonic()
    assert await limited(deadlines, 0.1, 250) == "time up"
    assert 0.1 <= time.monotonic() - began < 3
    assert await slow == "done"
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    await asyncio.sleep(0.02)
    deadlines.close()


async def test_a_cancellation_from_elsewhere_is_not_taken_for_a_deadline():
    deadlines = Deadlines()
    task = asyncio.create_task(limited(deadlines, 250, 250))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadlines.close()


# --- retries --------------------------------------------------------------------------------------------------------


def test_back_off_doubles_with_full_jitter_up_to_the_cap():
    policy = RetryPolicy(base_s=1, cap_s=8)
    fault = Fault("server", "x", status=500)
    assert [policy.delay_s(fault, n, 0, True, share=1.0) for n in range(1, 6)] == [1, 2, 4, 8, 8]
    assert policy.delay_s(fault, 3, 0, True, share=0.0) == 0


def test_retries_are_bounded_in_number_and_in_sum():
    policy = RetryPolicy()
    fault = Fault("server", "x", status=500)
    assert policy.delay_s(fault, 10, 0, True) is not None
    assert policy.delay_s(fault, 11, 0, True) is None
    assert policy.delay_s(fault, 5, 299, True, share=1.0) is None
    assert policy.delay_s(Fault("timeout", "x"), 4, 0, True) is None
    assert policy.delay_s(Fault("final", "x"), 1, 0, True) is None


@given(st.lists(st.floats(0, 1), min_size=10, max_size=10))
def test_the_whole_wait_is_bounded(shares):
    policy, waited = RetryPolicy(), 0.0
    for tries, share in enumerate(shares, 1):
        waited += policy.delay_s(Fault("reset", "x"), tries, waited, True, share) or 0.0
    assert waited <= policy.total_s


def test_an_unproven_address_is_given_up_within_three_seconds():
    policy, waits = RetryPolicy(), []
    while (delay := policy.delay_s(Fault("refused", "x"), len(waits) + 1, 0, False)) is not None:
        waits.append(delay)
    assert len(waits) == 3
    assert sum(waits) < 3
    assert policy.delay_s(Fault("refused", "x"), 9, 0, True) is not None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "2"}, 2.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "2", "retry-after-ms": "150"}, 0.15),
        ({"Retry-After": formatdate(1_000_010, usegmt=True)}, 10.0),
        ({"Retry-After": formatdate(999_000, usegmt=True)}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after_in_all_its_forms(headers, seconds):
    assert retry_after_s(headers, now=1_000_000) == seconds
