"""A part that dies is started again, one that cannot live is told of, and none outlives its run."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import is_running, until

from verifiers.rl.parts import Part, PartFailed

pytestmark = pytest.mark.skipif(os.name == "nt", reason="parts are POSIX processes")


def part(folder: Path, program: str) -> Part:
    return Part("trainer", [sys.executable, "-c", program], folder / "part.log")


async def test_a_part_that_dies_is_started_again_and_may_end_well(tmp_path):
    seen = str(tmp_path / "seen")
    one = part(tmp_path, f"import os, sys; there = os.path.exists({seen!r}); open({seen!r}, 'w'); sys.exit(not there)")
    await one.run()
    assert one.deaths == 1


async def test_what_a_dead_part_had_started_does_not_outlive_it(tmp_path):
    left = tmp_path / "pid"
    program = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        f"open({str(left)!r}, 'w').write(str(child.pid)); os._exit(0)"
    )
    await part(tmp_path, program).run()
    await until(lambda: not is_running(int(left.read_text())))


async def test_a_part_that_dies_again_and_again_ends_the_run_with_its_last_words(tmp_path):
    with pytest.raises(PartFailed, match=r"trainer ended 3 times, at last with exit status 4(.|\n)*out of memory"):
        await part(tmp_path, "import sys; print('out of memory'); sys.exit(4)").run()


async def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PartFailed, match="trainer cannot be started: /no/python: No such file or directory"):
        await Part("trainer", ["/no/python"], tmp_path / "log").run()


async def test_a_run_that_ends_ends_its_parts(tmp_path):
    one = part(tmp_path, "import time; time.sleep(1000)")
    running = asyncio.create_task(one.run())
    pid = await until(lambda: one.pid, running)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_running(pid)


async def test_a_program_that_another_try_would_not_help_is_not_tried_again(tmp_path):
    one = part(tmp_path, "import sys; print('no such address'); sys.exit(3)")
    with pytest.raises(PartFailed, match=r"trainer cannot run(.|\n)*no such address"):
        await one.run()
    assert one.deaths == 1


def ranks(folder: Path, program: str) -> Part:
    return Part("trainer", [sys.executable, "-c", program], folder / "part.log", ranks=3)


async def test_each_rank_is_told_its_place_and_says_what_it_says_to_a_file_of_its_own(tmp_path):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")
    one = ranks(tmp_path, f"import os; print([os.environ[n] for n in {names}], os.environ['MASTER_PORT'])")
    await one.run()
    told = [(tmp_path / name).read_text().rpartition(" ") for name in ("part.log", "part-1.log", "part-2.log")]
    assert [words for words, _, _ in told] == [f"['{n}', '{n}', '3', '127.0.0.1']" for n in range(3)]
    assert len({port for _, _, port in told}) == 1


async def test_a_rank_that_dies_ends_the_others_and_its_words_are_told(tmp_path):
    program = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit('out of memory'); time.sleep(1000)"
    one = ranks(tmp_path, program)
    running = asyncio.create_task(one.run())
    pids = set(await until(lambda: one.pids[:] if len(one.pids) == 3 else None, running))
    with pytest.raises(PartFailed, match=r"trainer \(rank 1\) ended 3 times(.|\n)*out of memory"):
        await running
    assert not any(is_running(pid) for pid in pids)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
async def test_parts_end_with_an_orchestrator_that_is_killed(tmp_path):
    program = f"""
import asyncio, pathlib, sys
from verifiers.rl.parts import Part
part = Part("trainer", [sys.executable, "-c", "import time; time.sleep(1000)"], pathlib.Path({str(tmp_path / "log")!r}))
async def main():
    task = asyncio.create_task(part.run())
    while part.pid is None:
        await asyncio.sleep(0.01)
    print(part.pid, flush=True)
    await task
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(await asyncio.to_thread(owner.stdout.readline))
        owner.send_signal(signal.SIGKILL)
    await until(lambda: not is_running(pid))
