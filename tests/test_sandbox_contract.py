"""What every sandbox backend must do. A backend that this machine does not offer is left out, with the reason."""

import asyncio
import io
import json
import os
import socket
import tarfile
import time
import uuid
from pathlib import Path

import pytest
from clusters import KubernetesOverJails
from gateways import RemoteOverLocal, RemoteOverPodman
from sandbox_programs import MORE, NEED_NAMESPACES
from waiting import steady, until

from verifiers.errors import SandboxError, SetupError
from verifiers.sandbox import DockerBackend, LocalBackend, PodmanBackend, RunscBackend, SandboxLimits, SandboxSpec

CASES = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "sandbox_programs.jsonl").read_text().splitlines()
]
PATIENT_S = 30.0  # wall time of what is to end by itself: a busy machine is no failure
LIMITS = SandboxLimits(wall_s=PATIENT_S, cpu_s=4, memory_mb=256, output_kb=256, processes=16, file_mb=10)

IMAGE = os.environ.get("VF_TEST_CONTAINER_IMAGE", "localhost/vf-test:1")  # as scripts/setup_podman.sh makes it
# name → how to make it. One that this machine lacks says so by SetupError from `capabilities()`.
BACKENDS = {
    "local": lambda: LocalBackend(min_level=2),
    "local-cold": lambda: LocalBackend(min_level=2, warm=False),
    "local-level-2": lambda: LocalBackend(min_level=2, max_level=2),
    "local-level-1": lambda: LocalBackend(min_level=1, max_level=1),
    "remote": RemoteOverLocal,
    "remote-podman": lambda: RemoteOverPodman(IMAGE),
    "kubernetes": KubernetesOverJails,
    "docker": lambda: DockerBackend(image=IMAGE, host=os.environ.get("VF_TEST_DOCKER_HOST")),
    "podman": lambda: PodmanBackend(image=IMAGE, host=os.environ.get("VF_TEST_CONTAINER_HOST")),
    "podman-writable": lambda: PodmanBackend(
        image=IMAGE, host=os.environ.get("VF_TEST_CONTAINER_HOST"), read_only=False
    ),
    "runsc": lambda: RunscBackend(image=IMAGE, host=os.environ.get("VF_TEST_RUNSC_HOST")),
}

# What a machine may say for not offering a backend; another reason is a failure.
NOT_OFFERED = ("not installed", "needs Linux", "not permitted", "Permission denied", "no Landlock", "does not answer")

# Classes that the program itself tells, by what it prints.
TOLD = {"process-limit", "file-limit", "blocked-network", "blocked-file"}


# Variants of one that is tried anyway.
SLOW = {"local-cold", "local-level-2", "podman-writable"}


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in BACKENDS]
)
def made(request):
    backend = BACKENDS[request.param]()
    try:
        backend.found = asyncio.run(backend.capabilities())
    except SetupError as error:
        asyncio.run(backend.close())
        if not any(reason in str(error) for reason in NOT_OFFERED):
            raise
        pytest.skip(str(error))
    if any("is not here yet" in note for note in backend.found.notes):
        pytest.skip(f"the image {IMAGE} is not here: sh scripts/setup_podman.sh makes it")
    yield backend
    asyncio.run(backend.close())


@pytest.fixture
def backend(made):
    """The same in every test, each of which has its own event loop."""
    return made


@pytest.fixture
async def sandbox(backend):
    async with await backend.create(SandboxSpec(limits=LIMITS)) as made:
        yield made


@pytest.fixture
def filled_in(tmp_path, monkeypatch):
    """Puts into a program what it is to try to reach."""
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    (tmp_path / "open").mkdir()
    monkeypatch.setenv("VF_TEST_SECRET_NAME", "value")
    abstract = f"vf-test-{os.getpid()}"
    listener = socket.create_server(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(f"\0{abstract}" if hasattr(os, "memfd_create") else str(tmp_path / "socket"))
    unix.listen()
    values = {
        "__PORT__": str(listener.getsockname()[1]),
        "__ABSTRACT__": abstract,
        "__SECRET_FILE__": str(secret),
        "__OUTSIDE_DIR__": str(tmp_path / "open"),
        "__ENV_NAME__": "VF_TEST_SECRET_NAME",
        "__TEST_PID__": str(os.getpid()),
    }

    def fill_in(program: str) -> str:
        for name, value in values.items():
            program = program.replace(name, value)
        return program

    yield fill_in
    listener.close()
    unix.close()


def check_end(result, expected_class: str) -> None:
    allowed = {expected_class, "ok"} if expected_class in TOLD else {expected_class}
    assert result.outcome in allowed, result


# Programs


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
async def test_a_program_ends_in_its_class(backend, case, filled_in):
    if case["kind"] == "process_burst" and backend.found.enforced["processes"] != "enforced":
        pytest.skip("processes are not counted here")
    expected = case["expected"]
    wall_s = case["limits"]["wall_s"] if expected["class"] == "timeout" else PATIENT_S
    limits = SandboxLimits.read(case["limits"] | {"wall_s": wall_s})
    result = await backend.run_once(filled_in(case["program"]), stdin=case["stdin"], limits=limits)
    assert expected["class"] == "timeout" or result.wall_s < PATIENT_S  # it ended by what its class says
    check_end(result, expected["class"])
    assert result.text == expected.get("stdout", result.text)
    assert "stdout_must_not_contain" not in expected or expected["stdout_must_not_contain"] not in result.text
    assert len(result.stdout) + len(result.stderr) <= limits.output_kb << 10


@pytest.mark.parametrize("case", MORE, ids=lambda case: case[0])
async def test_a_program_of_another_kind_ends_in_its_class(backend, case, filled_in):
    name, program, stdin, changed, expected_class, stdout = case
    if name in NEED_NAMESPACES and backend.found.level.startswith("1"):
        pytest.skip("not held without namespaces")
    notes = " ".join(backend.found.notes)
    if name == "many_files" and "how many files is not limited" in notes:
        pytest.skip("how many files is not limited")
    if name in ("many_files", "two_files") and "not the size of all" in notes:
        pytest.skip("files are limited one by one")
    limits = SandboxLimits.read({name: getattr(LIMITS, name) for name in LIMITS.__struct_fields__} | changed)
    result = await backend.run_once(filled_in(program), stdin=stdin, limits=limits)
    check_end(result, expected_class)
    assert stdout is None or result.text == stdout
    assert "DONE" not in result.text or name == "kill_first"


async def test_the_limit_that_fired_is_named(backend):
    async def limit_of(program: str, wall_s: float = PATIENT_S) -> str | None:
        limits = SandboxLimits(wall_s=wall_s, memory_mb=128, output_kb=64)
        return (await backend.run_once(program, limits=limits)).limit

    assert await limit_of("print(1)") is None
    assert await limit_of("1/0") is None
    assert await limit_of("import time; time.sleep(99)", wall_s=1) == "wall"
    assert await limit_of("x = bytearray(1 << 30); x[::4096] = x[::4096]") == "memory"
    assert await limit_of("while True: print('x' * 999)") == "output"


async def test_how_it_ended_is_told_apart(backend):
    done = await backend.run_once("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (done.exit_code, done.signal, done.stdout, done.stderr) == (3, None, b"out\n", b"err\n")
    assert done.cpu_s is not None and done.wall_s > 0
    killed = await backend.run_once("import os; os.kill(os.getpid(), 11)")
    assert (killed.exit_code, killed.signal, killed.outcome) == (None, 11, "nonzero-exit")


async def test_a_traceback_shows_the_program_alone(backend):
    done = await backend.run_once("def f():\n    raise ValueError('no')\nf()\n")
    lines = done.error_text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: no"
    assert all("main.py" in line for line in lines if line.startswith("  File"))
    assert "raise ValueError('no')" in done.error_text


async def test_output_that_was_cut_is_marked(backend):
    done = await backend.run_once("while True: print('x' * 999)", limits=SandboxLimits(output_kb=64))
    assert done.stdout_truncated and not done.stderr_truncated
    assert len(done.stdout) == 64 << 10


async def test_environment_is_what_was_given(backend):
    program = "import os; print(sorted(set(os.environ) - {'LC_CTYPE'}), os.environ['A'])"
    done = await backend.run_once(program, env={"A": "é"})
    names = done.text.rpartition("]")[0]
    assert done.text.endswith("é\n")
    assert "VF_" not in names and "PYTEST" not in names


async def test_one_run_leaves_nothing_to_the_next(backend):
    leave = (
        "import pathlib\nfor f in ('left', '/tmp/left', '/dev/shm/left'):\n    try: pathlib.Path(f).write_text('x')\n"
    )
    leave += "    except OSError: pass\nimport builtins, json; json.left = builtins.left = 1\n"
    look = "import os, json\nprint(os.path.exists('left'), os.path.exists('/tmp/left'), "
    look += "os.path.exists('/dev/shm/left'), hasattr(json, 'left'), 'left' in dir(__builtins__))"
    assert (await backend.run_once(leave)).ok
    assert set((await backend.run_once(look)).text.split()) == {"False"}


async def test_random_numbers_differ_between_runs(backend):
    program = "import random; print(random.random())"
    assert len({(await backend.run_once(program)).text for _ in range(3)}) == 3


async def test_many_at_once_each_get_their_own_answer(backend):
    runs = [backend.run_once(f"print(input() + '{number}')", stdin=f"{number} ") for number in range(24)]
    assert [done.text for done in await asyncio.gather(*runs)] == [f"{number} {number}\n" for number in range(24)]


@steady(0.5)
async def test_waiting_for_a_place_costs_no_wall_time(backend):
    program = "import time; time.sleep(0.4)"
    done = await asyncio.gather(*(backend.run_once(program, limits=SandboxLimits(wall_s=3)) for _ in range(12)))
    assert [one.outcome for one in done] == ["ok"] * 12


async def test_a_run_can_have_files(backend):
    done = await backend.run_once("import helper; print(helper.x, open('d/t').read())",
                                  files={"helper.py": b"x = 4", "d/t": b"text"})  # fmt: skip
    assert done.text == "4 text\n"


async def test_a_cancelled_run_ends_at_once(backend):
    task = asyncio.create_task(backend.run_once("import time; time.sleep(250)", limits=SandboxLimits(wall_s=250)))
    await asyncio.sleep(0.5)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 100  # at once, and not when the program ends
    assert (await backend.run_once("print(1)")).ok


# Sandboxes that stay


async def test_files_stay_between_programs(sandbox):
    assert (await sandbox.exec("echo one > a; mkdir d; pwd")).text == f"{sandbox.work}\n"
    assert (await sandbox.exec(["cat", "../a"], cwd="d")).text == "one\n"
    assert await sandbox.read_file("a") == b"one\n"


async def test_a_program_gets_stdin_and_variables(sandbox):
    done = await sandbox.exec('read x; echo "$x $A"; echo e >&2; exit 4', stdin="in\n", env={"A": "b"})
    assert (done.text, done.error_text, done.exit_code, done.outcome) == ("in b\n", "e\n", 4, "nonzero-exit")


async def test_a_program_that_is_not_there_is_the_programs_end(sandbox):
    assert (await sandbox.exec(["vf-no-such-program"])).exit_code == 127
    assert (await sandbox.exec("vf-no-such-program")).exit_code == 127


async def test_python_is_there(sandbox):
    done = await sandbox.exec(["python3", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", "a b"])
    assert done.text == '["a b"]\n'


async def test_a_limit_ends_the_program_and_not_the_sandbox(sandbox):
    await sandbox.write_file("kept", "x")
    slow = await sandbox.exec("sleep 60", limits=SandboxLimits(wall_s=0.5))
    assert (slow.outcome, slow.limit) == ("timeout", "wall")
    loud = await sandbox.exec("while true; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done")
    assert (loud.outcome, loud.limit) == ("output-limit", "output")
    assert (await sandbox.exec("cat kept")).text == "x"


BEATS = "while true; do echo beat >> beats; sleep 0.05; done"


async def beats(sandbox) -> int:
    """How far the program has come."""
    try:
        return len(await sandbox.read_file("beats"))
    except FileNotFoundError:
        return 0


async def goes_on(sandbox):
    before = await beats(sandbox)

    async def has_gone_on():
        return await beats(sandbox) > before

    await until(has_gone_on)


async def has_stopped(sandbox):
    """Nothing came for much longer than a beat, twice: a program that lives is not held up so often."""
    seen = [await beats(sandbox)]
    while len(seen) < 3 or len(set(seen[-3:])) > 1:
        assert len(seen) < 60, "it goes on"
        await asyncio.sleep(1)
        seen.append(await beats(sandbox))


def processes_of(mark: str) -> list[str]:
    """Those of this machine, jails and containers included, that were started with these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if mark.encode() in path.read_bytes() else []
        except OSError:  # it has just ended
            pass
    return found


async def test_background_programs_go_on_and_end_with_the_sandbox(backend):
    mark = f"mark{uuid.uuid4().hex}"
    async with await backend.create() as sandbox:
        assert (await sandbox.exec(f": {mark}; ({BEATS}) & echo started")).text == "started\n"
        await goes_on(sandbox)
        await goes_on(sandbox)
        is_here = bool(processes_of(mark))  # and not on another machine, whose processes nobody can see from here
    assert sandbox.is_closed
    if is_here:
        await until(lambda: not processes_of(mark))


async def test_files_go_in_and_out_as_they_are(sandbox):
    data = bytes(range(256)) * 5000
    await sandbox.write_file("deep/er/b.bin", data)
    assert await sandbox.read_file("deep/er/b.bin") == data
    assert await sandbox.read_file("deep/er/b.bin", max_bytes=3) == b"\0\1\2"
    await sandbox.write_file("run.sh", "#!/bin/sh\necho ran\n", mode=0o755)
    assert (await sandbox.exec(["./run.sh"])).text == "ran\n"


async def test_files_that_cannot_be_read_say_why(sandbox):
    with pytest.raises(FileNotFoundError):
        await sandbox.read_file("nothing")
    with pytest.raises(IsADirectoryError):
        await sandbox.read_file(".")
    with pytest.raises(OSError):
        await sandbox.write_file("/usr/nothing", b"x")


async def test_what_is_no_regular_file_is_refused_at_once(sandbox):
    """Else a program makes a file that never ends, and whoever grades it takes that for a failure of the sandbox."""
    make = "import os; os.mkfifo('pipe'); os.symlink('/dev/zero', 'zero'); os.symlink('pipe', 'link')"
    assert (await sandbox.exec(["python3", "-c", make])).ok
    began = time.monotonic()
    for name in ("pipe", "zero", "link"):
        with pytest.raises(OSError, match="regular"):
            await sandbox.read_file(name)
        with pytest.raises(OSError):
            await sandbox.write_file(name, "x")
    assert time.monotonic() - began < 50  # a read that hung would take minutes


async def test_a_link_leads_nowhere_outside(sandbox, tmp_path):
    (tmp_path / "secret").write_text("the secret")
    await sandbox.exec(["ln", "-s", str(tmp_path / "secret"), "link"])
    with pytest.raises(OSError):
        await sandbox.read_file("link")


async def test_archives_go_in_and_out(sandbox):
    await sandbox.write_file("tree/a.txt", "A")
    await sandbox.write_file("tree/sub/b.txt", "B")
    archive = await sandbox.get_archive("tree")
    with tarfile.open(fileobj=io.BytesIO(archive)) as read:
        assert {"tree/a.txt", "tree/sub/b.txt"} <= set(read.getnames())
    await sandbox.put_archive(archive, "copy")
    assert await sandbox.read_file("copy/tree/sub/b.txt") == b"B"


async def test_an_archive_that_leads_out_is_refused(sandbox):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../../escaped"))
    with pytest.raises(OSError):
        await sandbox.put_archive(buffer.getvalue(), "in")


async def test_a_process_is_talked_to_while_it_runs(sandbox):
    process = await sandbox.open_process(["python3", "-u", "-c", "while True: print(int(input()) * 2)"])
    for number in (4, 21):
        await process.write(b"%d\n" % number)
        answer = b""
        while not answer.endswith(b"\n"):
            answer += await process.read()
        assert int(answer) == 2 * number
    await process.close_stdin()
    done = await process.wait()
    assert done.exit_code == 1
    assert b"EOFError" in done.stderr


async def test_a_process_is_read_and_waited_for_at_the_same_time(sandbox):
    process = await sandbox.open_process("for i in 1 2 3; do echo $i; sleep 0.1; done")

    async def read_all() -> bytes:
        found = b""
        while piece := await process.read():
            found += piece
        return found

    reading, done = await asyncio.wait_for(asyncio.gather(read_all(), process.wait()), 120)
    assert (reading + done.stdout, done.exit_code) == (b"1\n2\n3\n", 0)


async def test_a_process_that_leaves_another_writing_comes_to_an_end(sandbox):
    process = await sandbox.open_process("(while true; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done) & exit 3")
    done = await asyncio.wait_for(process.wait(), 120)
    assert done.exit_code == 3 and len(done.stdout) <= 2 << 20


async def test_a_process_can_be_killed(sandbox):
    process = await sandbox.open_process("echo ready; sleep 60")
    assert await process.read() == b"ready\n"
    await process.kill()
    assert (await process.wait()).signal == 9
    assert await process.read() == b""


async def test_programs_of_one_sandbox_run_side_by_side(sandbox):
    waits_for_all = "touch $$.here; while set -- *.here; [ $# -lt 4 ]; do sleep 0.05; done; echo $$"
    done = await asyncio.gather(*(sandbox.exec(waits_for_all) for _ in range(4)))
    assert len({one.text for one in done}) == 4


async def test_sandboxes_do_not_see_each_other(backend):
    async with await backend.create() as one, await backend.create() as two:
        await one.exec("echo secret > /tmp/x 2>/dev/null; echo secret > x; sleep 60 & echo")
        assert (await two.exec("ls; cat /tmp/x x 2>/dev/null; ps x 2>/dev/null | grep 'sleep 6[0]'")).text == ""


async def test_a_closed_sandbox_says_so(backend):
    sandbox = await backend.create()
    await sandbox.close()
    await sandbox.close()
    assert sandbox.is_closed
    with pytest.raises(SandboxError, match="ended"):
        await sandbox.exec("true")
    with pytest.raises(SandboxError, match="ended"):
        await sandbox.read_file("x")


async def test_a_sandbox_ends_with_its_time(backend):
    for spec in (SandboxSpec(lifetime_s=0.6), SandboxSpec(idle_s=0.6)):
        sandbox = await backend.create(spec)
        await asyncio.sleep(2)
        with pytest.raises(SandboxError, match="ended"):
            await sandbox.exec("true")
        await sandbox.close()


async def test_a_sandbox_does_not_end_before_its_time(backend):
    began = time.monotonic()
    async with await backend.create(SandboxSpec(lifetime_s=1.0)) as sandbox:
        with pytest.raises(SandboxError):
            while True:
                await sandbox.exec("true")
    assert time.monotonic() - began >= 1.0


@steady(0.5)
async def test_use_puts_off_the_end_by_idleness(backend):
    async with await backend.create(SandboxSpec(idle_s=2)) as sandbox:
        assert (await sandbox.exec("sleep 3; echo 1")).text == "1\n"


async def test_the_same_key_gives_the_same_sandbox(backend):
    spec = SandboxSpec(key="one")
    async with await backend.create(spec) as first:
        assert (await backend.create(spec)).id == first.id
    async with await backend.create(spec) as second:
        assert second.id != first.id


async def test_the_sandboxes_of_a_run_are_closed_together(backend):
    ours = [await backend.create(SandboxSpec(run_id="ours")) for _ in range(2)]
    async with await backend.create(SandboxSpec(run_id="others")) as other:
        assert await backend.close_run("ours") == 2
        assert all(sandbox.is_closed for sandbox in ours)
        assert not other.is_closed


async def test_a_cancelled_exec_ends_its_program(sandbox):
    task = asyncio.create_task(sandbox.exec(BEATS))
    await goes_on(sandbox)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await has_stopped(sandbox)


async def test_files_and_variables_of_the_spec_are_there(backend):
    async with await backend.create(SandboxSpec(files={"a/b": b"c"}, env={"A": "1"})) as sandbox:
        assert (await sandbox.exec("cat a/b; echo $A")).text == "c1\n"
