"""A loop that is held up and a run that is silent are told of, with the places where they are."""

import asyncio
import logging

from virtual_time import virtually

from verifiers.rl.watchdog import Watchdog, waiting, waits_at


def watched(body, **given):
    async def run():
        watchdog = Watchdog(lambda: "the report", **given)
        watch = asyncio.create_task(watchdog.watch())
        await asyncio.sleep(0)
        await body(watchdog)
        watch.cancel()
        await asyncio.wait([watch])
        return watchdog

    return virtually(run())


def test_code_that_blocks_the_loop_shows_as_its_lag(caplog):
    async def body(watchdog):
        await asyncio.sleep(1)
        assert watchdog.max_lag_s() == 0
        asyncio.get_running_loop()._virtual.now_s += 5  # as if a function had computed for so long
        await asyncio.sleep(1)
        assert 3 < watchdog.max_lag_s() <= 5
        assert watchdog.max_lag_s() == 0, "since it was last asked"

    with caplog.at_level(logging.WARNING):
        watched(body)
    assert "the event loop stood still for" in caplog.text


def test_silence_is_told_of_again_and_again_and_signs_of_life_end_it(caplog):
    async def body(watchdog):
        await asyncio.sleep(65)
        assert watchdog.alarms == 2
        for _ in range(10):
            watchdog.seen()
            await asyncio.sleep(20)
        assert watchdog.alarms == 2

    with caplog.at_level(logging.WARNING):
        watched(body, silence_s=30.0)
    assert "the report" in caplog.text
    assert "tasks at" in caplog.text


async def test_where_a_task_waits_is_its_own_innermost_line():
    async def inner():
        await asyncio.sleep(60)

    async def outer():
        await inner()

    task = asyncio.create_task(outer())
    await asyncio.sleep(0)
    line = inner.__code__.co_firstlineno + 1
    assert waits_at(task).endswith(f"test_watchdog.py:{line}")
    assert f"1 tasks at {__file__}:{line}" in waiting()
    task.cancel()
    await asyncio.wait([task])
    assert waits_at(task) == "its end"
