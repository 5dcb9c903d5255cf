"""GradingPool: limits, canaries, a pool that is itself broken. The graders are real modules, written by the test."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import steady, until

from verifiers.errors import RewardFault
from verifiers.rubrics.grading import GradingPool
from verifiers.rubrics.grading_process import Limits

GRADER = """
import os, time
CANARY = ({"do": "echo", "value": 1}, 1)
def prepare(): pass
def grade(task):
    if task["do"] == "spin":
        while True: pass
    if task["do"] == "sleep": time.sleep(60)
    if task["do"] == "nap": open(task["begun"], "w").close(); time.sleep(0.5)
    if task["do"] == "fill": return len(bytearray(task["value"]))
    if task["do"] == "die": os.abort()
    if task["do"] == "raise": raise ValueError("odd task")
    if task["do"] == "print": print("a line that is no reply")
    if task["do"] == "environment": return sorted(os.environ)
    if task["do"] == "pid": return os.getpid()
    return task.get("value")
"""


@pytest.fixture
def make_pool(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    pools = []

    def make(source=GRADER, **limits):
        name = f"grader_{tmp_path.name.replace('-', '_')}_{len(pools)}"
        (tmp_path / f"{name}.py").write_text(source)
        pool = GradingPool(name, Limits(**{"cpu_s": 1.0, "wall_s": 60.0, **limits}), max_workers=2)
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        pool.close()
        sys.modules.pop(pool.server.grader, None)


async def test_values_come_back_to_who_asked(make_pool):
    pool = make_pool()
    grades = await asyncio.gather(*(pool.grade({"do": "echo", "value": i}) for i in range(100)))
    assert [grade.value for grade in grades] == list(range(100))


@pytest.mark.parametrize(
    ("task", "limit"),
    [
        ({"do": "spin"}, "1 s of CPU time"),
        ({"do": "sleep"}, "more than 3 s"),
        ({"do": "fill", "value": 4 << 30}, "used up its memory"),
        ({"do": "die"}, "SIGABRT"),
    ],
)
@steady(1.0)
async def test_limit_is_the_tasks_own_and_the_next_task_is_graded(make_pool, task, limit):
    pool = make_pool(wall_s=3.0 if task["do"] == "sleep" else 60.0)
    grade = await pool.grade(task)
    assert grade.value is None and limit in grade.limit
    began = time.monotonic()
    assert (await pool.grade({"do": "echo", "value": 7})).value == 7
    assert time.monotonic() - began < 60


async def test_memory_that_earlier_tasks_left_behind_is_not_the_tasks_own(make_pool):
    leaky = GRADER.replace("def grade(task):", "LEFT = []\ndef grade(task):\n    LEFT.append(bytearray(60 << 20))")
    pool = make_pool(leaky, memory_bytes=400 << 20)
    grades = [await pool.grade({"do": "echo", "value": number}) for number in range(24)]
    assert [grade.value for grade in grades] == list(range(24))
    assert (await pool.grade({"do": "fill", "value": 4 << 30})).limit == "grading used up its memory"


@steady(0.5)
async def test_pattern_32_waiting_in_the_queue_counts_against_no_limit(make_pool):
    pool = make_pool(wall_s=2.0, cpu_s=10.0)
    slow = [pool.grade({"do": "sleep"}) for _ in range(4)]  # two at a time, 2 s each
    grades = await asyncio.gather(*slow, pool.grade({"do": "echo", "value": 7}))
    assert grades[-1].value == 7


async def test_pool_that_fails_its_canary_is_at_fault_not_the_task(make_pool):
    pool = make_pool(GRADER + "\ndef grade(task):\n    return 'nonsense'\n")
    with pytest.raises(RewardFault, match="known simple case"):
        await pool.grade({"do": "echo", "value": 1})


async def test_grader_that_cannot_be_loaded_is_a_fault_that_says_why(make_pool):
    pool = make_pool("import a_module_that_is_not_there\nCANARY = ({}, 1)\n")
    with pytest.raises(RewardFault, match="a_module_that_is_not_there"):
        await pool.grade({})


async def test_grader_that_raises_is_a_fault_and_its_worker_lives(make_pool):
    pool = make_pool()
    with pytest.raises(RewardFault, match="odd task"):
        await pool.grade({"do": "raise"})
    assert (await pool.grade({"do": "echo", "value": 2})).value == 2


async def test_worker_that_prints_still_answers(make_pool):
    assert (await make_pool().grade({"do": "print", "value": 3})).value == 3


async def test_pattern_38_workers_see_no_keys_of_ours(make_pool, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    assert "SOME_API_KEY" not in (await make_pool().grade({"do": "environment"})).value


async def test_worker_is_replaced_after_its_share_of_tasks(make_pool):
    pool = make_pool(tasks=3)
    pids = {(await pool.grade({"do": "pid"})).value for _ in range(8)}
    assert len(pids) >= 3


@steady(0.3)
async def test_cancelled_task_that_still_waits_is_never_graded(make_pool):
    pool = make_pool(wall_s=2.0)
    busy = [asyncio.ensure_future(pool.grade({"do": "sleep"})) for _ in range(2)]
    await asyncio.sleep(0.5)  # they have begun
    waiting = asyncio.ensure_future(pool.grade({"do": "echo"}))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.gather(*busy)
    assert (await pool.grade({"do": "echo", "value": 1})).value == 1


async def test_closing_ends_what_is_being_graded(make_pool):
    pool = make_pool(wall_s=60.0, cpu_s=60.0)
    assert (await pool.grade({"do": "echo", "value": 1})).value == 1
    running = asyncio.ensure_future(pool.grade({"do": "spin"}))
    await asyncio.sleep(0.3)
    began = time.monotonic()
    await asyncio.to_thread(pool.close)
    assert time.monotonic() - began < 20
    with pytest.raises(RewardFault, match="closed"):
        await running


PAUSED = """
import asyncio, sys
from verifiers.rubrics.grading import GradingPool
from verifiers.rubrics.grading_process import Limits
sys.path.insert(0, sys.argv[1])
async def main():
    pool = GradingPool("paused_grader", Limits(cpu_s=60.0, wall_s=1.0), max_workers=1)
    print(await pool.grade({"do": "nap", "begun": sys.argv[2], "value": 7}))
    pool.close()
asyncio.run(main())
"""


async def test_time_in_which_the_machine_stood_still_is_not_the_tasks_own(tmp_path):
    """As when a virtual machine is paused: all of its processes stop, and one that waits may be let run first again."""
    (tmp_path / "paused_grader.py").write_text(GRADER)
    begun = tmp_path / "begun"
    program = [sys.executable, "-c", PAUSED, str(tmp_path), str(begun)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as asker:
        await until(lambda: begun.exists() or asker.poll() is not None)
        graders = children_of(asker.pid)
        for pid in (asker.pid, *graders):
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(3)
        os.kill(asker.pid, signal.SIGCONT)
        await asyncio.sleep(0.5)
        for pid in graders:
            os.kill(pid, signal.SIGCONT)
        assert asker.communicate()[0] == "Grade(value=7, limit=None)\n"


def children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *children_of(child)]
    return found
