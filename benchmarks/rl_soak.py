#!/usr/bin/env python
"""A long training run in which everything goes wrong now and then, and an account of it at the end.

    python benchmarks/rl_soak.py --calls 5000
    nice -n 10 taskset -c 1 python benchmarks/rl_soak.py --calls 1000000 --json soak.json

Real orchestrator, executor, environment, HTTP client, rubric and sandboxes against the fake endpoint of `server/`;
the trainer only gives versions. The endpoint refuses (429, 500), breaks connections, sends malformed replies and never
answers; the worker process is killed; answers stall the grader of mathematics, and some reward functions never return.

Fails, and says where, unless at the end
- every group that was started has one end, and every batch was trained once;
- every model call has one end, every request that the endpoint counted was the attempt of a call, kind by kind, and no
  reply reached another rollout than its own;
- no task, thread, process, file descriptor, sandbox or file of one is left;
- memory is what it was after a tenth of the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "drivers"))

import mathcorpus
from measure import descendants
from rl_schedule import Servers, packed, train
from run import build_server
from soak_tasks import FAULTS, TURNS, read_ledgers

from verifiers.clients import Endpoint
from verifiers.executor.process import ProcessExecutor
from verifiers.executor.request import EnvSpec
from verifiers.rl.orchestrator import Orchestrator
from verifiers.rl.policy import MemoryFeed
from verifiers.rl.pools import PoolSettings
from verifiers.rl.samples import samples_of_group
from verifiers.rl.sampling import training_sampling
from verifiers.rl.schedule_settings import ScheduleSettings
from verifiers.rl.source import Source
from verifiers.rl.tally import End
from verifiers.rl.transports.memory import MemoryTransport
from verifiers.rl.types import RolloutGroup

TRIES, GROUPS, PROBLEMS = 8, 16, 1_000
SHARES = {"talk": 0.9, "maths": 0.06, "program": 0.03, "stall": 0.01}  # of the groups
STEPS = 10**9  # the run is ended by its calls
TIMEOUT_S = 2.0  # of one attempt
FAULTY = {"p429": 0.004, "p500": 0.004, "preset": 0.004, "pmalformed": 0.004, "phang": 0.0002}
KINDS = {"slow down": "e429", "server": "e500", "reset": "resets", "malformed": "malformed", "timeout": "hangs"}
PR_SET_CHILD_SUBREAPER = 36
GONE_S = 30.0  # for what was told to end
ROOM_MIB = 30.0  # of growth after the first tenth


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--calls", type=int, default=20_000)
    asked.add_argument("--kills", type=int, help="of the worker process; one for every 25,000 calls, but at least 2")
    asked.add_argument("--in-flight", type=int, default=192, help="rollouts")
    asked.add_argument("--group-s", type=float, default=20.0, help="after which a group that stalls is cancelled")
    asked.add_argument("--json", type=Path, help="the account, in a file")
    given = asked.parse_args()
    kills = max(2, given.calls // 25_000) if given.kills is None else given.kills
    # What a killed worker leaves behind becomes a child of ours, and is seen.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="soak-") as made, endpoint(Path(made)) as url:
        account = asyncio.run(soak(given.calls, kills, given.in_flight, given.group_s, Path(made), url))
        account |= left_behind(Path(made))
    account["wrong"] = wrong = faults_in(account)
    print(json.dumps(account, indent=2))
    if given.json:
        given.json.write_text(json.dumps(account, indent=2) + "\n")
    if wrong:
        raise SystemExit("\n".join(["the account does not add up:", *wrong]))


async def soak(calls: int, kills: int, in_flight: int, group_s: float, folder: Path, url: str) -> dict[str, Any]:
    ledgers = folder / "ledgers"
    ledgers.mkdir()
    os.environ["TMPDIR"] = str(folder / "tmp")  # of the workers, and of what they start
    (folder / "tmp").mkdir()
    files = open_files()
    executor = ProcessExecutor(1)
    transport, feed, policy = MemoryTransport(), MemoryFeed(), Policy(url)
    book = Book()
    orchestrator = Orchestrator(
        [source(kind, ledgers) for kind in TURNS],
        executor=executor,
        policy=policy,
        feed=feed,
        sender=transport,
        samples_of=samples_of_group,
        pack=packed,
        settings=ScheduleSettings(groups_per_step=GROUPS, max_in_flight=in_flight, group_timeout_s=group_s),
        on_step=book.step,
        on_group=book.group,
    )
    trainer = asyncio.create_task(train(transport.receiver(0), feed, STEPS))
    run = asyncio.create_task(orchestrator.run(STEPS))
    began = time.monotonic()
    watched = Watch(calls, kills, folder)
    while not run.done() and not watched.is_over:
        await asyncio.sleep(0.1)
        watched.look(orchestrator.scheduler.tally)
    for task in (run, trainer):
        task.cancel()
    await asyncio.wait([run, trainer])
    for task in (run, trainer):
        if not task.cancelled():
            task.result()  # raises what the run ended with
    await executor.close()
    await asyncio.sleep(0)
    gc.collect()  # it is seldom made during a run, and what it would close is no leak
    tally = orchestrator.scheduler.tally
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return {
        "seconds": round(time.monotonic() - began, 1),
        "cpu_s": cpu_s(),
        "groups": {"started": tally.started, **tally.ended},
        "batches": {"shipped": tally.shipped, "expired": tally.expired, "ready": len(orchestrator.scheduler.ready)},
        "steps": book.steps,
        "group_size": GROUPS,
        "seen": dict(book.seen),
        "in_flight": {
            "groups": len(orchestrator.scheduler.flights),
            "rollouts": orchestrator.scheduler.flights.rollouts,
        },
        "abandoned": orchestrator.scheduler.flights.abandoned,
        "killed": watched.killed,
        "deaths": executor.deaths,
        "calls": dict(read_ledgers(ledgers.iterdir())),
        "of_killed": dict(read_ledgers(watched.ledgers_of_killed())),
        "server": stats(url),
        "memory_mib": watched.memory_mib,
        "tasks": sorted(task.get_name() for task in tasks),
        "threads": sorted(t.name for t in threading.enumerate() if not t.name.startswith(("MainThread", "asyncio_"))),
        "files": len(open_files() - files),
    }


class Policy(Servers):
    """The endpoint, with new versions at once."""

    def __init__(self, url: str) -> None:
        self._endpoint = Endpoint(f"{url}/v1", timeout_s=TIMEOUT_S, max_retries=2)

    def sampling(self, given: Any) -> dict[str, Any]:
        return training_sampling(given, self.version)


class Book:
    """What came of the groups that ran to their end."""

    def __init__(self) -> None:
        self.steps = 0
        self.seen: Counter[str] = Counter()

    def step(self, step: int, metrics: dict[str, float]) -> None:
        self.steps += 1

    def group(self, group: RolloutGroup, end: End) -> None:
        records = [rollout.record for rollout in group.rollouts]
        self.seen[f"groups {end.value}"] += 1
        self.seen["rollouts"] += len(records)
        self.seen["answers"] += sum(len(record.turns) for record in records)
        self.seen["short"] += sum(r.status != "failed" and len(r.turns) != TURNS[group.env] for r in records)
        for record in records:
            self.seen[f"rollouts {record.status}"] += 1
            self.seen.update(f"error {error.type}" for error in record.errors)
            self.seen.update("graders stalled" for score in record.scores if "time" in (score.reason or ""))


class Watch:
    """Looks at the run while it goes on: counts calls, kills the worker, measures memory, says how far it is."""

    def __init__(self, calls: int, kills: int, folder: Path) -> None:
        self._calls, self._folder, self._began = calls, folder, time.monotonic()
        self._kills = [(number + 1) * calls // (kills + 1) for number in range(kills)]
        self._marks = [calls * tenth // 10 for tenth in range(1, 11)]
        self.killed: list[int] = []
        self.memory_mib: dict[str, dict[str, float]] = {}
        self.is_over = False

    def look(self, tally: Any) -> None:
        made = read_ledgers((self._folder / "ledgers").iterdir())["calls"]
        if self._kills and made >= self._kills[0] and (worker := worker_process()) is not None:
            del self._kills[0]
            self.killed.append(worker)
            os.kill(worker, signal.SIGKILL)
        while self._marks and made >= self._marks[0]:
            share = f"{10 * (11 - len(self._marks))} %"
            del self._marks[0]
            worker = worker_process()
            self.memory_mib[share] = {"orchestrator": resident_mib(os.getpid()), "worker": resident_mib(worker)}
            told = f"{share}: {made} calls, {time.monotonic() - self._began:.0f} s, {tally}, {self.memory_mib[share]}"
            print(told, file=sys.stderr, flush=True)
        self.is_over = made >= self._calls

    def ledgers_of_killed(self) -> list[Path]:
        """By the process, which is in the name of its file."""
        pids = set(map(str, self.killed))
        return [path for path in (self._folder / "ledgers").iterdir() if path.stem.partition("-")[2] in pids]


def source(kind: str, ledgers: Path) -> Source:
    return Source(
        name=kind,
        spec=EnvSpec(env_id="soak-tasks", env_args={"folder": str(ledgers)}),
        rows=list(rows(kind)),
        model="fake",
        tries=TRIES,
        weight=SHARES[kind],
        scored_together=kind != "talk",
        pools=PoolSettings(retire_from=None, max_returns=10**9),
        sampling={"max_tokens": 8},
    )


def rows(kind: str) -> Iterator[dict[str, Any]]:
    golds = [gold for _, gold, _ in corpus()]
    for number in range(len(golds) if kind == "maths" else PROBLEMS):
        text, answer = (f"c:{number}", golds[number]) if kind == "maths" else (f"{kind}-{number}", f"{kind}-{number}")
        prompt = [{"role": "user", "content": f"[[{text}]]"}]
        yield {"example_id": number, "prompt": prompt, "answer": answer, "info": {"kind": kind}}


def corpus() -> list[tuple[str, str, str]]:
    return mathcorpus.make(400, pathological=0.03)


@contextlib.contextmanager
def endpoint(folder: Path) -> Iterator[str]:
    lines = folder / "corpus"
    lines.write_text("".join(json.dumps(text)[1:-1] + "\n" for text, _, _ in corpus()))
    options = [f"--{name}={value}" for name, value in FAULTY.items()]
    command = [str(build_server()), "--tokens=4", f"--corpus={lines}", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
    finally:
        server.terminate()
        server.wait()
        lines.unlink()


def stats(url: str) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/__stats", timeout=10) as reply:
        return json.load(reply)


def worker_process() -> int | None:
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if (
                b"verifiers.executor.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
                and parent_of(pid) == os.getpid()
            ):
                return pid
    return None


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# What a killed worker had open is removed when sandboxes are next started on the machine.
NEXT_START = """
import asyncio
from verifiers.sandbox import LocalBackend
async def start():
    async with LocalBackend() as backend:
        await backend.capabilities()
asyncio.run(start())
"""


def left_behind(folder: Path) -> dict[str, Any]:
    """Processes and files that are still there, when all have had the time to go."""
    subprocess.run([sys.executable, "-c", NEXT_START], check=True)
    deadline = time.monotonic() + GONE_S
    while (found := processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    files = [path for path in (folder / "tmp").rglob("*") if not path.is_dir() or path.name.startswith("vf-sandbox")]
    return {"processes": found, "temporary_files": sorted(str(path.relative_to(folder)) for path in files)}


def processes() -> list[str]:
    """The endpoint aside, which is still running; those that have only to be asked for their status are asked."""
    found: list[str] = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                os.waitpid(pid, os.WNOHANG)
                continue
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "fakeoai" not in command:
                found.append(f"{pid} {command[:200]}")
    return found


def open_files() -> set[str]:
    """The numbers of the file descriptors of this process."""
    with os.scandir("/proc/self/fd") as entries:
        return {entry.name for entry in entries if os.path.exists(f"/proc/self/fd/{entry.name}")}


def resident_mib(pid: int | None) -> float:
    with contextlib.suppress(OSError):
        return round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)
    return 0.0


def cpu_s() -> float:
    """Of this process and the workers that have ended."""
    used = os.times()
    return round(used.user + used.system + used.children_user + used.children_system, 1)


def faults_in(account: dict[str, Any]) -> list[str]:
    """What does not add up; empty when all of it does."""
    calls, killed, server, groups = account["calls"], account["of_killed"], account["server"], account["groups"]
    seen, batches = account["seen"], account["batches"]
    ran = ("kept", "trivial", "broken", "unlucky")
    attempts = calls["answered"] + sum(calls[kind] for kind in FAULTS)
    # Of a call that was cut, or whose process was killed, the last attempt may have been answered without it.
    died = calls["calls"] - calls["answered"] - calls["failed"] - calls["cancelled"]
    cut = calls["cancelled"] + died
    died_of_killed = killed.get("calls", 0) - sum(killed.get(name, 0) for name in ("answered", "failed", "cancelled"))
    # A reply that comes too late is a reply to the endpoint, and a time-out to who waited for it.
    unheard = {"answered or too late": server["ok"] + server["hangs"] - calls["answered"] - calls["timeout"]}
    unheard |= {kind: server[name] - calls[kind] for kind, name in KINDS.items() if kind != "timeout"}
    orchestrator = account["memory_mib"].get("100 %", {}).get("orchestrator", 0.0)
    first = account["memory_mib"].get("10 %", {}).get("orchestrator", 0.0)
    open_sandboxes = calls["sandboxes"] - calls["sandboxes closed"]
    killed_sandboxes = killed.get("sandboxes", 0) - killed.get("sandboxes closed", 0)
    account["unheard"], account["cut_calls"] = unheard, cut
    account["lost_answers"] = calls["answered"] - seen.get("answers", 0)
    promises: list[tuple[str, Callable[[], bool]]] = [
        ("every started group has one end", lambda: groups["started"] == sum(n for e, n in groups.items() if e != "started")),
        ("no group or rollout is in flight", lambda: account["in_flight"] == {"groups": 0, "rollouts": 0}),
        ("no group was given up in its clean-up", lambda: account["abandoned"] == 0),
        ("every group that ran to its end was told", lambda: all(seen.get(f"groups {e}", 0) == groups[e] for e in ran)),
        ("every kept group was shipped, expired or waits", lambda: groups["kept"] == sum(batches.values())),
        ("batches are whole", lambda: batches["shipped"] == account["steps"] * account["group_size"]),
        ("every rollout of a group has a record", lambda: seen["rollouts"] == TRIES * sum(groups[e] for e in ran)),
        ("no rollout is short of turns", lambda: seen.get("short", 0) == 0),
        ("every reply reached its own rollout", lambda: calls["odd replies"] == 0),
        ("every kill was a death", lambda: account["deaths"] == len(account["killed"])),
        ("calls without an end are of killed processes", lambda: died == died_of_killed),
        ("records hold no more answers than were given", lambda: account["lost_answers"] >= 0),
        ("the endpoint met every attempt, kind by kind", lambda: min(unheard.values()) >= 0 and calls["other"] == 0),
        ("what nobody heard was cut", lambda: 0 <= server["requests"] - attempts <= cut),
        ("the endpoint accounts for its requests", lambda: server["requests"] == server["ok"] + sum(server[n] for n in KINDS.values())),
        ("open sandboxes are of killed processes", lambda: open_sandboxes == killed_sandboxes),
        ("memory is flat", lambda: orchestrator <= first + ROOM_MIB),
        *((f"no {name} is left: {account[name]}", lambda name=name: not account[name]) for name in ("tasks", "threads", "files", "processes", "temporary_files")),
    ]  # fmt: skip
    return [name for name, holds in promises if not holds()]


if __name__ == "__main__":
    main()
