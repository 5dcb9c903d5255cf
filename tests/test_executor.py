"""The same group gives the same records wherever it runs; a worker is kept apart from us, and may die."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from loopback import Loopback
from waiting import is_running, until

from verifiers.clients.endpoint import Endpoint
from verifiers.errors import AuthenticationError, EnvironmentLoadError, EnvironmentNotFound
from verifiers.executor.local import LocalExecutor
from verifiers.executor.process import ProcessExecutor
from verifiers.executor.request import EnvSpec, GroupRequest, RowsRequest
from verifiers.types import UserMessage

ENVIRONMENT = """
import asyncio, os, signal, subprocess, time
from pathlib import Path
import verifiers as vf

FOLDER = Path(__file__).parent


def longest(completion, answer):
    return float(len(completion[-1]["content"]) == len(answer))


def group_best(completions, **_):
    longest = max(len(c[-1]["content"]) for c in completions)
    return [float(len(c[-1]["content"]) == longest) for c in completions]


class Odd(vf.SingleTurnEnv):
    async def setup_state(self, state):
        what = state["info"].get("do")
        with (FOLDER / "pids").open("a") as file:
            file.write(f"{os.getpid()}\\n")
        if what == "die":
            os._exit(7)
        if what == "die once" and not (FOLDER / "died").exists():
            (FOLDER / "died").touch()
            os._exit(7)
        if what == "leave a child" and not (FOLDER / "child").exists():
            (FOLDER / "child").write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "print":
            print("a line for nobody")
        if what == "variables":
            state["seen"] = sorted(os.environ)
        if what == "block":
            time.sleep(10_000)
        if what == "wait":
            (FOLDER / "began").touch()
            try:
                await asyncio.sleep(10_000)
            finally:
                (FOLDER / "cleaned up").touch()
        return state

    @vf.teardown
    async def end(self):
        (FOLDER / f"teardown {os.getpid()}").touch()


def load_environment(by_group=False, fail=""):
    if fail:
        raise RuntimeError(fail)
    rubric = vf.Rubric([longest, group_best] if by_group else [longest])
    return Odd(dataset=[{"question": "q", "answer": "four"}], rubric=rubric)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    (tmp_path / "odd_env_of_tests.py").write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # a cluster's workers are not told of our path
    return tmp_path


@pytest.fixture
def server():
    with Loopback(lambda body: "x" * (body["seed"] % 7)) as server:
        yield server


@pytest.fixture(scope="session")
def cluster():
    """Of Ray, for as long as the tests run: it takes some seconds to start."""
    ray = pytest.importorskip("ray", reason="the executor of clusters needs ray (the extra 'ray')")
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture(params=["process", "ray"])
def kind(request):
    if request.param == "ray":
        request.getfixturevalue("cluster")
    return request.param


@pytest.fixture
async def workers(kind):
    executor = opened(kind)
    yield executor
    await executor.close()


def opened(kind: str, **options):
    if kind == "process":
        return ProcessExecutor(2, **options)
    from verifiers.executor.ray_cluster import RayExecutor

    return RayExecutor(2, cpus=0.5, **options)


def group(server: Loopback, do: str = "", *, example_id: int = 0, tries: int = 3, keys=(), **options) -> GroupRequest:
    args = options.pop("args", {})
    return GroupRequest(
        spec=EnvSpec(env_id="odd-env-of-tests", env_args=args, keys=["PYTHONPATH", *keys]),
        row={"prompt": [UserMessage("q")], "answer": "four", "info": {"do": do}, "example_id": example_id},
        group_id=f"g{example_id}",
        tries=tries,
        endpoint=Endpoint(server.url, max_retries=0),
        model="m",
        **options,
    )


def told(records) -> list[tuple]:
    return [(r.key, r.seed, r.status, r.reward, r.metrics, [m["content"] for m in r.messages]) for r in records]


def pids(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "pids").read_text().split()]


@pytest.mark.parametrize("args", [{}, {"by_group": True}])
async def test_a_group_gives_the_same_records_here_and_in_a_worker(folder, server, workers, args):
    here = LocalExecutor()
    request = group(server, args=args, first_try=5, seed=3)
    try:
        expected = await here.run_group(request)
    finally:
        await here.close()
    found = await workers.run_group(request)
    assert told(found) == told(expected)
    assert [record.rollout_index for record in found] == [5, 6, 7]
    assert [record.env.name for record in found] == ["odd-env-of-tests"] * 3
    assert set(pids(folder)) - {os.getpid()}, "it ran in this process"


async def test_a_worker_has_only_the_variables_that_are_declared(folder, server, workers, monkeypatch):
    monkeypatch.setenv("DECLARED_KEY", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "ours")
    request = group(server, "variables", keys=["DECLARED_KEY"], state_columns=["seen"], tries=1)
    (record,) = await workers.run_group(request)
    seen = record.state_columns["seen"]
    assert "DECLARED_KEY" in seen and "PATH" in seen
    assert "OPENAI_API_KEY" not in seen


async def test_what_an_environment_prints_disturbs_nothing(folder, server, workers):
    (record,) = await workers.run_group(group(server, "print", tries=1))
    assert record.status == "scored"


async def test_groups_of_a_worker_that_dies_are_run_again(folder, server, workers):
    found = await asyncio.gather(
        workers.run_group(group(server, "die once")), *(workers.run_group(group(server, example_id=i)) for i in (1, 2))
    )
    assert [record.status for records in found for record in records] == ["scored"] * 9
    assert workers.deaths == 1


async def test_a_group_that_brings_down_each_worker_fails_alone(folder, server, workers):
    bad, *good = await asyncio.gather(
        workers.run_group(group(server, "die")), *(workers.run_group(group(server, example_id=i)) for i in (1, 2, 3))
    )
    assert [record.status for records in good for record in records] == ["scored"] * 9
    assert [(r.rollout_index, r.status, r.reward) for r in bad] == [(i, "failed", None) for i in range(3)]
    (failure,) = bad[0].errors
    assert failure.type == "WorkerDied" and "odd-env-of-tests" in failure.message
    assert len({record.seed for record in bad}) == 3


async def test_a_worker_killed_from_outside_is_replaced(folder, server, workers):
    server.delay_s = lambda: 0.5
    running = asyncio.create_task(workers.run_group(group(server)))
    await until(lambda: (folder / "pids").exists() and server.requests, running)
    os.kill(pids(folder)[0], signal.SIGKILL)
    assert [record.status for record in await running] == ["scored"] * 3
    assert len(set(pids(folder))) == 2


async def test_a_killed_worker_is_replaced_while_its_child_still_holds_its_output(folder, server, monkeypatch):
    monkeypatch.setattr("verifiers.executor.process.CLOSE_GRACE_S", 1000.0)
    executor = ProcessExecutor(1)
    try:
        found = await asyncio.wait_for(executor.run_group(group(server, "leave a child", tries=1)), 60)
        assert [record.status for record in found] == ["scored"]
        assert is_running(int((folder / "child").read_text()))
    finally:
        os.kill(int((folder / "child").read_text()), signal.SIGKILL)
        await executor.close()


async def test_a_cancel_right_behind_its_order_is_answered(folder, server):
    executor = ProcessExecutor(1, cancel_grace_s=1000)
    try:
        await executor.run_group(group(server))  # the worker is there
        for passes in range(1, 12):  # of the event loop, in one of which the order is written
            running = asyncio.create_task(executor.run_group(group(server, "wait", tries=1)))
            for _ in range(passes):
                await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(running, 30)
        assert executor.deaths == 0
    finally:
        await executor.close()


async def test_an_environment_that_does_not_load_says_why(folder, server, workers):
    with pytest.raises(EnvironmentLoadError, match="no such data"):
        await workers.run_group(group(server, args={"fail": "no such data"}))
    with pytest.raises(EnvironmentLoadError, match="no such data"):  # again, and it does not hang
        await workers.run_group(group(server, args={"fail": "no such data"}))
    request = group(server)
    missing = msgspec.structs.replace(request, spec=EnvSpec(env_id="odd-env-of-nobody"))
    with pytest.raises(EnvironmentNotFound, match="odd-env-of-nobody"):
        await workers.run_group(missing)


async def test_rows_come_from_where_the_environment_is(folder, workers):
    spec = EnvSpec(env_id="odd-env-of-tests", keys=["PYTHONPATH"], settings={"system_prompt": "Be odd."})
    found = await workers.rows(spec, RowsRequest())
    (row,) = found.rows
    assert row["answer"] == "four" and row["example_id"] == 0
    assert [message["content"] for message in row["prompt"]] == ["Be odd.", "q"]
    assert not found.scored_together
    compared = msgspec.structs.replace(spec, env_args={"by_group": True})
    assert (await workers.rows(compared, RowsRequest(split="eval", n=1))).scored_together


async def test_a_wrong_key_is_raised_as_what_it_is(folder, workers):
    refusing = Loopback(lambda body: web.json_response({"error": {"message": "no"}}, status=401))
    with refusing as server, pytest.raises(AuthenticationError):
        await workers.run_group(group(server))


async def test_cancelling_a_group_waits_for_its_clean_up(folder, server, workers):
    running = asyncio.create_task(workers.run_group(group(server, "wait", tries=1)))
    await until(lambda: (folder / "began").exists(), running)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (folder / "cleaned up").exists()
    assert [r.status for r in await workers.run_group(group(server))] == ["scored"] * 3
    assert workers.deaths == 0


async def test_a_worker_that_is_stuck_when_its_group_is_cancelled_is_killed(folder, server, kind):
    workers = opened(kind, cancel_grace_s=0.2)
    running = asyncio.create_task(workers.run_group(group(server, "block", tries=1)))
    await until(lambda: (folder / "pids").exists(), running)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (pid,) = set(pids(folder))
    await until(lambda: not is_running(pid))
    await workers.close()


async def test_close_leaves_no_process_and_ends_environments(folder, server, kind):
    executor = opened(kind)
    await asyncio.gather(*(executor.run_group(group(server, example_id=i)) for i in range(4)))
    running = asyncio.create_task(executor.run_group(group(server, "wait", tries=1)))
    await until(lambda: (folder / "began").exists(), running)
    await executor.close()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (folder / "cleaned up").exists()
    for pid in set(pids(folder)):
        await until(lambda pid=pid: not is_running(pid))
        assert (folder / f"teardown {pid}").exists()


@pytest.mark.parametrize("kind", ["process"], indirect=True)
async def test_another_interpreter_runs_its_own_packages(folder, server, workers):
    """Of this interpreter's path it gets nothing: the module beside this test is not there."""
    spec = EnvSpec(env_id="odd-env-of-tests", python=sys.executable)
    with pytest.raises(EnvironmentNotFound):
        await workers.run_group(msgspec.structs.replace(group(server), spec=spec))
