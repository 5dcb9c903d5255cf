"""Containers: what a real engine holds, and what we make of one that fails. The contract is in another file."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from container_engine import CounterpartEngine
from waiting import until

from verifiers.errors import ConfigError, SandboxError, SetupError
from verifiers.sandbox import DockerBackend, PodmanBackend, RunscBackend, SandboxLimits, SandboxSpec
from verifiers.sandbox.backends import survey
from verifiers.sandbox.container_plan import EXPIRES, LABEL, OWNER, is_left_over, this_owner
from verifiers.sandbox.container_shell import MarkedStream, Report
from verifiers.sandbox.engine import Engine, docker_hosts, podman_hosts

HOST = os.environ.get("VF_TEST_CONTAINER_HOST")
IMAGE = os.environ.get("VF_TEST_CONTAINER_IMAGE", "localhost/vf-test:1")


# Against the counterpart


@pytest.fixture
async def engine(tmp_path):
    async with CounterpartEngine(tmp_path / "engine.sock") as made:
        yield made


@pytest.fixture
async def docker(engine):
    async with DockerBackend(host=engine.host, image="here:1") as made:
        yield made


async def test_every_limit_is_asked_for(engine, docker):
    limits = SandboxLimits(memory_mb=100, processes=20, file_mb=30)
    async with await docker.create(SandboxSpec(limits=limits, env={"A": "b"}, run_id="r", lifetime_s=60)):
        asked = next(iter(engine.containers.values()))["Config"]
    host = asked["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 100 << 20
    assert 20 < host["PidsLimit"] <= 40
    assert host["NanoCpus"] == 1_000_000_000
    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]  # Docker's own seccomp profile stays
    assert host["ReadonlyRootfs"] and host["AutoRemove"] and not host["Privileged"]
    assert set(host["Tmpfs"]) == {"/work", "/tmp"}
    assert all(f"size={30 << 20}" in said and "nr_inodes=" in said for said in host["Tmpfs"].values())
    assert {one["Name"]: one["Hard"] for one in host["Ulimits"]}["fsize"] == 30 << 20
    assert "A=b" in asked["Env"] and asked["Entrypoint"][-1] == "60"
    assert asked["Labels"][f"{LABEL}.run"] == "r"


async def test_a_network_is_there_only_when_asked_for(engine, docker):
    async with await docker.create(SandboxSpec(limits=SandboxLimits(network=True))):
        assert next(iter(engine.containers.values()))["Config"]["HostConfig"]["NetworkMode"] == "bridge"


async def test_a_program_is_run_and_its_report_read(docker):
    async with await docker.create() as sandbox:
        done = await sandbox.exec(["say", "this"])
    assert (done.outcome, done.text, done.error_text) == ("ok", "say this", "")
    assert (done.cpu_s, done.peak_memory_mb, done.attempts) == (1.5, 1.0, 1)


async def test_an_engine_may_be_behind_a_port():
    async with CounterpartEngine() as engine, DockerBackend(host=engine.host, image="here:1") as made:
        async with await made.create() as sandbox:
            assert (await sandbox.exec(["say", "this"])).text == "say this"
        async with PodmanBackend(host=engine.host, image="here:1") as podman, await podman.create():
            asked = next(iter(engine.containers.values()))["Config"]["HostConfig"]
            assert asked["SecurityOpt"] == ["no-new-privileges"]  # it has not our files


async def test_no_engine_is_said_with_what_to_do(tmp_path):
    for backend, what in ((DockerBackend, "Start Docker"), (PodmanBackend, "podman system service")):
        async with backend(host=f"unix://{tmp_path}/nothing.sock") as made:
            with pytest.raises(SetupError, match=f"does not answer.*nothing.sock.*{what}"):
                await made.capabilities()


async def test_something_else_at_the_socket_is_no_engine(engine):
    engine.version = ["not", "an engine"]
    async with DockerBackend(host=engine.host) as made:
        with pytest.raises(SetupError, match="no container engine"):
            await made.capabilities()


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="unix:///path or tcp://"):
        Engine("ssh://somewhere")


def test_an_engine_is_looked_for_where_the_user_says(tmp_path):
    assert docker_hosts({"DOCKER_HOST": "tcp://a:1"}) == ["tcp://a:1"]
    assert podman_hosts({"CONTAINER_HOST": "unix:///b"}) == ["unix:///b"]
    (tmp_path / "podman").mkdir()
    (tmp_path / "podman" / "podman.sock").touch()
    assert podman_hosts({"XDG_RUNTIME_DIR": str(tmp_path)})[0] == f"unix://{tmp_path}/podman/podman.sock"


async def test_capabilities_say_what_an_engine_cannot_hold(engine, docker):
    engine.info |= {"PidsLimit": False, "SwapLimit": False}
    found = await docker.capabilities()
    assert found.enforced["processes"] == "no" and found.enforced["memory"] == "enforced"
    assert any("swap" in note for note in found.notes)
    assert found.images and "docker 1.2.3" in found.level


async def test_runsc_is_offered_only_where_it_is_installed(engine):
    async with RunscBackend(host=engine.host) as made:
        with pytest.raises(SetupError, match="runtime runsc is not installed in docker"):
            await made.capabilities()
    engine.info["Runtimes"] = {"runc": {}, "runsc": {}}
    async with RunscBackend(host=engine.host, image="here:1") as made, await made.create():
        assert next(iter(engine.containers.values()))["Config"]["HostConfig"]["Runtime"] == "runsc"


async def test_podman_does_not_run_by_another_runtime_than_was_asked_for(tmp_path):
    async with CounterpartEngine(tmp_path / "s", is_podman=True) as engine:
        engine.info["Runtimes"] = {"runc": {}, "runsc": {}}
        async with RunscBackend(host=engine.host) as made:
            with pytest.raises(SetupError, match="--runtime runsc system service"):
                await made.capabilities()


async def test_podman_gets_a_seccomp_profile_and_does_without_where_it_cannot_read_it(tmp_path):
    engine = CounterpartEngine(tmp_path / "s", is_podman=True)
    async with engine, PodmanBackend(host=engine.host, image="here:1") as made:
        async with await made.create():
            asked = next(iter(engine.containers.values()))["Config"]["HostConfig"]
            assert any(option.startswith("seccomp=/") for option in asked["SecurityOpt"])
        plain = engine._plain

        def refuse(kind, path, query, body):
            if kind == "POST /containers/create" and "seccomp=" in json.dumps(body):
                return 500, {"message": "opening seccomp profile failed: no such file or directory"}
            return plain(kind, path, query, body)

        engine._plain = refuse
        async with await made.create():
            asked = next(iter(engine.containers.values()))["Config"]["HostConfig"]
            assert asked["SecurityOpt"] == ["no-new-privileges"]
        assert any("user namespaces" in note for note in (await made.capabilities()).notes)


async def test_many_at_once_ask_the_engine_about_itself_once(engine, docker):
    await asyncio.gather(*(docker.create() for _ in range(20)))
    assert (engine.calls.count("GET /info"), engine.calls.count("POST /containers/create")) == (1, 20)


# Images


async def test_an_image_is_pulled_once_and_progress_is_said(engine, docker, caplog):
    engine.registry["far:1"] = [{"status": "Pulling", "id": "a"}, {"status": "Pull complete", "id": "a"}]
    engine.line_s = 0.05
    with caplog.at_level(logging.INFO, "verifiers"):
        made = await asyncio.gather(*(docker.create(SandboxSpec(image="far:1")) for _ in range(5)))
    assert engine.calls.count("POST /images/create") == 1
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "pulling the image far:1" and said[-1].startswith("pulled the image far:1 in")
    await asyncio.gather(*(sandbox.close() for sandbox in made))


async def test_an_image_that_nobody_has_is_no_sandbox(docker):
    with pytest.raises(SandboxError, match=r"image gone:1 is not here and could not be pulled: manifest"):
        await docker.create(SandboxSpec(image="gone:1"))


async def test_a_pull_that_breaks_off_is_tried_again_by_the_next(engine, docker):
    engine.registry["far:1"] = [{"status": "Pulling"}]
    engine.faults["POST /images/create"] = ["hang up"]
    with pytest.raises(SandboxError, match="could not be pulled"):
        await docker.create(SandboxSpec(image="far:1"))
    async with await docker.create(SandboxSpec(image="far:1")) as sandbox:
        assert (await sandbox.exec("x")).ok


async def test_one_who_waits_for_an_image_may_leave_without_the_others(engine, docker):
    engine.registry["far:1"] = [{"status": "Pulling"}] * 4
    engine.line_s = 0.1
    first, second = (asyncio.ensure_future(docker.create(SandboxSpec(image="far:1"))) for _ in range(2))
    await asyncio.sleep(0.15)
    first.cancel()
    async with await second as sandbox:
        assert (await sandbox.exec("x")).ok
    assert engine.calls.count("POST /images/create") == 1


# An engine in trouble


@pytest.mark.parametrize("fault", ["hang up", 503])
async def test_a_passing_trouble_does_not_stop_a_creation(engine, docker, fault):
    engine.faults["POST /containers/create"] = [fault]
    engine.faults["POST /containers/*/start"] = [fault]
    async with await docker.create() as sandbox:
        assert (await sandbox.exec("x")).ok
        assert len(engine.containers) == 1


async def test_an_answer_that_was_lost_makes_no_second_container(engine, docker):
    plain = engine._plain

    def lose(kind, path, query, body):
        answer = plain(kind, path, query, body)
        if kind == "POST /containers/create" and engine.calls.count(kind) == 1:
            return 503, {"message": "the answer was lost"}
        return answer

    engine._plain = lose
    async with await docker.create():
        assert len(engine.containers) == 1


async def test_an_engine_that_refuses_is_infrastructure_and_leaves_nothing(engine, docker):
    engine.faults["POST /containers/*/start"] = [500]
    with pytest.raises(SandboxError, match="made up: 500") as raised:
        await docker.create()
    assert raised.value.side == "sandbox"
    assert not engine.containers


async def test_an_engine_that_goes_away_is_not_the_programs_end(engine, docker):
    async with await docker.create() as sandbox:
        engine.faults["POST /containers/*/exec"] = ["hang up"] * 3
        with pytest.raises(SandboxError, match="does not answer"):
            await sandbox.exec("x")
        assert (await sandbox.exec("x")).ok


async def test_making_a_program_ready_is_tried_again_and_starting_it_is_not(engine, docker):
    async with await docker.create() as sandbox:
        engine.faults["POST /containers/*/exec"] = ["hang up"]
        assert (await sandbox.exec("x")).attempts == 2
        engine.faults["POST /exec/*/start"] = ["hang up"]
        before = engine.calls.count("POST /exec/*/start")
        with pytest.raises(SandboxError):
            await sandbox.exec("x")
        assert engine.calls.count("POST /exec/*/start") == before + 1


async def test_a_program_that_cannot_be_started_is_a_sandbox_error(engine, docker):
    async with await docker.create() as sandbox:
        engine.faults["POST /exec/*/start"] = [409]
        with pytest.raises(SandboxError, match="made up: 409"):
            await sandbox.exec("x")


async def test_an_engine_that_falls_silent_is_not_waited_for_for_ever(engine, docker, monkeypatch):
    async def say_nothing(_, stage):
        await asyncio.sleep(60)

    monkeypatch.setattr("verifiers.sandbox.container_program.START_TIMEOUT_S", 0.3)
    async with await docker.create() as sandbox:
        engine.plays = say_nothing
        with pytest.raises(SandboxError, match=r"did not start in its container within 0.3 s"):
            await sandbox.exec("x")


@pytest.mark.parametrize("sent", [b"", b"\1\0\0", b"\1\0\0\0\0\0\0\x09part"], ids=["between", "in a head", "in a part"])
async def test_an_engine_that_hangs_up_while_a_program_runs_is_not_its_end(engine, docker, sent):
    async def hang_up(_, stage):
        stage.begin()
        stage.say(1, b"some")
        stage.writer.write(sent)
        engine.programs = {number: program | {"Running": True} for number, program in engine.programs.items()}

    async with await docker.create() as sandbox:
        engine.plays = hang_up
        with pytest.raises(SandboxError, match=r"hung up|still runs"):
            await sandbox.exec("x")


async def test_a_shell_that_is_killed_with_its_program_is_a_signal(engine, docker):
    async def die(_, stage):
        stage.begin()
        stage.say(1, b"last words")
        engine.programs = {number: program | {"ExitCode": 137} for number, program in engine.programs.items()}

    async with await docker.create() as sandbox:
        engine.plays = die
        done = await sandbox.exec("x")
    assert (done.outcome, done.signal, done.text) == ("nonzero-exit", 9, "last words")


async def test_an_engine_that_loses_the_end_of_a_program_makes_no_success_of_it(engine, docker):
    async def lose(_, stage):
        stage.begin()
        stage.say(1, b"some")

    async with await docker.create() as sandbox:
        engine.plays = lose
        with pytest.raises(SandboxError, match="lost the end"):
            await sandbox.exec("x")


async def test_a_container_that_is_made_for_nobody_is_gone_when_the_backend_is_closed(engine, docker):
    engine.faults["POST /containers/*/start"] = ["hang up", "hang up"]  # which is tried again, a little later
    cancelled = asyncio.create_task(docker.create())
    await until(lambda: "POST /containers/create" in engine.calls, by=cancelled)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    late = asyncio.create_task(docker.create())
    await asyncio.sleep(0)
    await docker.close()
    with pytest.raises(SandboxError, match="closed"):
        await late
    assert not engine.containers


async def test_a_container_that_ran_out_of_memory_is_the_programs_end(engine, docker):
    async def die(_, stage):
        stage.begin()
        for container in engine.containers.values():
            container["State"] |= {"Running": False, "OOMKilled": True}

    async with await docker.create() as sandbox:
        engine.plays = die
        assert (await sandbox.exec("x")).limit == "memory"


async def test_a_container_that_is_gone_is_said(engine, docker):
    sandbox = await docker.create()
    engine.containers.clear()
    with pytest.raises(SandboxError, match="has ended"):
        await sandbox.exec("x")
    await sandbox.close()


async def test_an_image_without_a_shell_is_said(engine, docker):
    async def no_shell(_, stage):
        stage.say(2, b"exec /bin/sh: no such file")

    async with await docker.create() as sandbox:
        engine.plays = no_shell
        with pytest.raises(SandboxError, match=r"no such file.*needs /bin/sh"):
            await sandbox.exec("x")


async def test_output_comes_whole_in_whatever_parts_it_is_sent(engine, docker):
    async def in_bytes(_, stage):
        mark, stage.mark = stage.mark, b""
        for byte in b"\x1e no mark " + mark[:9]:
            stage.say(1, bytes([byte]))
        stage.say(2, mark + b"77\nerr")
        for byte in mark:
            stage.say(1, bytes([byte]))
        for byte in mark + b"3 0 0 - 0m0s 0m0s\n0m0s 0m0s\n\x1e":
            stage.say(2, bytes([byte]))

    async with await docker.create() as sandbox:
        engine.plays = in_bytes
        done = await sandbox.exec("x")
    assert (done.exit_code, done.stderr) == (3, b"err")
    assert done.stdout.startswith(b"\x1e no mark \x1e") and len(done.stdout) == 19


async def test_a_creation_that_nobody_waits_for_any_more_leaves_nothing(engine, docker):
    await docker.capabilities()
    engine.faults["POST /containers/*/start"] = [503]  # so that it takes a while
    task = asyncio.create_task(docker.create())
    await until(lambda: engine.containers, by=task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not engine.containers)


async def test_what_expired_or_lost_its_owner_is_removed_by_the_next_start(engine):
    def left(number, owner, expires):
        return {number: {"Id": number, "Name": number, "Labels": {LABEL: "1", OWNER: owner, EXPIRES: str(expires)}}}

    soon, machine = time.time() + 99, this_owner().split(":")[0]
    engine.containers |= left("expired", "elsewhere:1:1", time.time() - 1)
    engine.containers |= left("orphan", f"{machine}:{os.getpid()}:1", soon)  # its number is ours now
    engine.containers |= left("ours", this_owner(), soon)
    engine.containers |= left("elsewhere", "elsewhere:1:1", soon)
    engine.containers["foreign"] = {"Id": "foreign", "Name": "foreign", "Labels": {}}
    async with DockerBackend(host=engine.host, image="here:1") as made, await made.create():
        assert {"ours", "elsewhere", "foreign"} == set(engine.containers) & {
            "expired", "orphan", "ours", "elsewhere", "foreign",
        }  # fmt: skip


def test_a_container_of_somebody_else_is_never_left_over():
    assert not is_left_over({LABEL: "1"}, time.time())
    assert not is_left_over({EXPIRES: "never", OWNER: "x"}, time.time())


async def test_a_run_is_closed_also_when_another_process_made_it(engine, docker):
    async with DockerBackend(host=engine.host, image="here:1") as other:
        await other.create(SandboxSpec(run_id="r"))
        await docker.create(SandboxSpec(run_id="r"))
        await docker.create(SandboxSpec(run_id="s"))
        assert await docker.close_run("r") == 2
        assert len(engine.containers) == 1


async def test_the_same_key_is_the_same_container_from_another_process_too(engine, docker):
    async with DockerBackend(host=engine.host, image="here:1") as other:
        assert (await other.create(SandboxSpec(key="k"))).id == (await docker.create(SandboxSpec(key="k"))).id
        assert len(engine.containers) == 1


def test_a_mark_is_found_wherever_it_is_cut():
    text, mark = b"before\x1eabbefore", b"\x1eabc"
    for cut in range(len(text + mark) + 1):
        stream = MarkedStream(mark)
        whole = text + mark + b"after"
        first, tail = stream.feed(whole[:cut])
        second, rest = (b"", tail + whole[cut:]) if tail is not None else stream.feed(whole[cut:])
        assert first + second == text and rest == b"after"


def test_a_report_that_is_none_is_refused():
    with pytest.raises(ValueError):
        Report.read(b"nothing")
    assert Report.read(b"139 1 2 - 0m0s 0m0s\n1m2.5s 0m0.5s\n") == Report(-11, 1, 2, None, 63.0)


def test_the_profile_is_what_its_script_writes(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "scripts")
    import seccomp_profile

    assert seccomp_profile.TARGET.read_text() == seccomp_profile.text(), "run: python scripts/seccomp_profile.py"


async def test_the_survey_tells_why_a_backend_is_not_offered(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    found = {finding.name: finding for finding in await survey()}
    assert not found["docker"].is_offered
    assert "does not answer" in found["docker"].what and "none.sock" in found["docker"].what


# Against a real engine


@pytest.fixture
async def podman():
    async with PodmanBackend(host=HOST, image=IMAGE) as made:
        try:
            notes = (await made.capabilities()).notes
        except SetupError as error:
            pytest.skip(f"{error} (scripts/setup_podman.sh starts one; VF_TEST_CONTAINER_HOST names it)")
        if any("is not here yet" in note for note in notes):
            pytest.skip(f"the image {IMAGE} is not here: sh scripts/setup_podman.sh makes it")
        yield made


async def containers(host: str) -> list[dict]:
    query = {"all": "true", "filters": json.dumps({"label": [LABEL]})}
    return await Engine(host).call("GET", "/containers/json", query=query)


async def until_gone(host: str, number: str) -> None:
    async def is_gone():
        return not any(one["Id"].startswith(number) for one in await containers(host))

    await until(is_gone)


async def test_a_podman_container_has_no_rights(podman):
    async with await podman.create() as sandbox:
        status = (await sandbox.exec(["cat", "/proc/self/status"])).text
        wanted = {"CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"}
        assert wanted.items() <= dict(line.split(":\t") for line in status.splitlines() if ":\t" in line).items()
        for path in ("/x", "/usr/x", "/etc/x", "/run/x", "/var/tmp/x", "/sys/x", "/proc/sys/kernel/x"):
            assert not (await sandbox.exec(["touch", path])).ok
        assert (await sandbox.exec(["cat", "/proc/net/dev"])).text.count(":") == 1  # the loopback alone


async def test_a_podman_containers_first_process_cannot_be_ended_from_inside(podman):
    async with await podman.create() as sandbox:
        await sandbox.exec("kill -9 -1; kill -9 1")
        assert (await sandbox.exec("echo alive")).text == "alive\n"


async def test_a_podman_containers_memory_is_of_all_its_processes(podman):
    program = (
        "import os, sys, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        x = bytearray(60 << 20); x[::4096] = x[::4096]; time.sleep(2); os._exit(0)\n"
        "for _ in range(4): os.wait()\n"
    )
    done = await podman.run_once(program, limits=SandboxLimits(memory_mb=128))
    assert done.limit == "memory"
    assert done.peak_memory_mb is not None and done.peak_memory_mb <= 129


async def test_what_a_program_in_podman_leaves_running_ends_when_time_is_up(podman):
    async with await podman.create() as sandbox:
        slow = await sandbox.exec("sleep 98 & (sleep 97; true) & sleep 99", limits=SandboxLimits(wall_s=0.5))
        assert slow.limit == "wall"
        assert "sleep 9" not in (await sandbox.exec("for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; done")).text


async def test_a_podman_sandbox_whose_process_table_is_full_comes_to_an_end(podman):
    async with await podman.create(SandboxSpec(limits=SandboxLimits(processes=8))) as sandbox:
        bomb = "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)\n"
        assert (await sandbox.exec(["python3", "-c", bomb], limits=SandboxLimits(wall_s=1))).limit == "wall"
        try:
            assert (await sandbox.exec("echo alive")).text == "alive\n"
        except SandboxError as error:
            assert "could not be ended" in str(error)


async def test_a_podman_container_outlives_neither_its_time_nor_its_maker(podman):
    host = podman.host or podman._found[0].host
    make = (
        "import asyncio, os, sys\nfrom verifiers.sandbox import PodmanBackend, SandboxSpec\n"
        "async def main():\n"
        f"    made = PodmanBackend(host={host!r}, image={IMAGE!r})\n"
        "    print((await made.create(SandboxSpec(lifetime_s=float(sys.argv[1])))).id, flush=True)\n"
        "    return made\n"
        "made = asyncio.run(main())\n"
        "if sys.argv[2] == 'hard': os._exit(0)\n"
    )

    def leave(lifetime_s: str, how: str) -> str:
        run = [sys.executable, "-c", make, lifetime_s, how]
        return subprocess.run(run, capture_output=True, text=True, check=True, timeout=120).stdout.strip()

    await until_gone(host, await asyncio.to_thread(leave, "1", "hard"))  # the container itself counts
    await until_gone(host, await asyncio.to_thread(leave, "600", "soft"))  # at the interpreter's end
    orphan = await asyncio.to_thread(leave, "600", "hard")
    assert any(one["Id"].startswith(orphan) for one in await containers(host))
    async with PodmanBackend(host=host, image=IMAGE) as next_start:
        await next_start.capabilities()
        await until_gone(host, orphan)


async def test_a_podman_image_that_may_be_written_to(podman):
    host = podman.host or podman._found[0].host
    async with PodmanBackend(host=host, image=IMAGE, read_only=False) as made:
        async with await made.create(SandboxSpec(user="0")) as sandbox:
            assert (await sandbox.exec("echo x > /usr/x && cat /usr/x; id -u; pwd")).text == "x\n0\n/work\n"
        assert (await made.capabilities()).enforced["files"] == "best effort"


async def test_a_program_reaches_a_podman_container_as_it_is(podman):
    assert (await podman.run_once("print('é', ' $HOME \\x41')\n#" + "x" * 200_000)).text == "é  $HOME A\n"
    latin = b"# coding: latin-1\nprint(ascii('\xe9'))".decode("utf-8", "surrogateescape")
    assert (await podman.run_once(latin)).text == "'\\xe9'\n"
    assert (await podman.run_once("print('%s', \"'\")")).text == "%s '\n"


async def test_a_podman_program_that_leaves_its_stdin_unread_tells_how_it_ended(podman):
    async with await podman.create() as sandbox:
        command = "echo out; echo err >&2; exit 3"
        done = [await sandbox.exec(command, stdin="x" * 70_000) for _ in range(30)]
        assert {(one.exit_code, one.text, one.error_text) for one in done} == {(3, "out\n", "err\n")}
        assert (await sandbox.exec("grep -sl count_all /proc/[0-9]*/cmdline | wc -l")).text <= "2\n", "no shell is left"


async def test_a_podman_sandbox_ends_while_a_program_runs(podman):
    sandbox = await podman.create()
    running = asyncio.create_task(sandbox.exec("sleep 250", limits=SandboxLimits(wall_s=250)))
    process = await sandbox.open_process("sleep 250")
    await asyncio.sleep(0.5)
    await sandbox.close()
    with pytest.raises(SandboxError, match="has ended"):
        await running
    with pytest.raises(SandboxError, match="has ended"):
        await process.wait()


async def test_much_output_of_a_podman_process_is_read_as_it_comes(podman):
    async with await podman.create() as sandbox:
        process = await sandbox.open_process("head -c 5000000 /dev/zero; echo done >&2")
        await asyncio.sleep(0.5)
        size = 0
        while data := await process.read(1 << 20):
            size += len(data)
        assert size == 5_000_000
        assert (await process.wait()).stderr == b"done\n"
