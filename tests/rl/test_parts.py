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
