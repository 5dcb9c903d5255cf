"""`vf-eval --executor`: the same results, from workers."""

from __future__ import annotations

import json
import signal

import pytest
from loopback import Desk, Loopback, wait_until

ENVIRONMENT = """
import os
import verifiers as vf

def right(completion, answer):
    return float(completion[-1]["content"] == answer)

def longest(completions):
    most = max(len(c[-1]["content"]) for c in completions)
    return [float(len(c[-1]["content"]) == most) for c in completions]

class Where(vf.SingleTurnEnv):
    async def setup_state(self, state):
        state["pid"] = os.getpid()
        if state["answer"] == "die":
            os._exit(9)
        return state

def load_environment(n=4, by_group=False, last="x"):
    rows = [{"question": str(i), "answer": "x" * i} for i in range(n - 1)] + [{"question": "last", "answer": last}]
    return Where(dataset=rows, rubric=vf.Rubric([right, longest] if by_group else [right]))
"""


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    desk.write("where_env", ENVIRONMENT)
    return desk


@pytest.fixture
def server():
    with Loopback(lambda body: "x" * (body["seed"] % 3)) as server:
        yield server


def records(desk: Desk, folder=None) -> list[dict]:
    lines = ((folder or desk.saved_run()) / "results.jsonl").read_text().splitlines()
    return sorted(map(json.loads, lines), key=lambda r: (r["example_id"], r["rollout_index"]))


def told(found: list[dict]) -> list[tuple]:
    return [(r["example_id"], r["rollout_index"], r["seed"], r["reward"], r["messages"][0]["content"]) for r in found]


@pytest.mark.parametrize("args", ["", "-a by_group=true"])
def test_workers_give_the_results_that_this_process_gives(desk, server, tmp_path, args):
    common = f"vf-eval where-env -m m -b {server.url} -n 4 -r 3 {args} -C pid --output-dir"
    here = desk.run(f"{common} here")
    assert here.returncode == 0, here.stderr
    there = desk.run(f"{common} there --executor process -w 2")
    assert there.returncode == 0, there.stderr
    (one,), (other,) = (list(tmp_path.glob(f"{name}/**/metadata.json")) for name in ("here", "there"))
    assert told(records(desk, other.parent)) == told(records(desk, one.parent))
    pids = [{r["state_columns"]["pid"] for r in records(desk, file.parent)} for file in (one, other)]
    assert len(pids[0]) == 1 and len(pids[1]) == 2


def test_an_example_that_kills_its_workers_fails_and_the_others_are_done(desk, server):
    flags = "-n 4 -r 1 -a last=die --executor process -w 1 --max-failed 0.3"
    done = desk.run(f"vf-eval where-env -m m -b {server.url} {flags}")
    assert done.returncode == 0, done.stderr
    *others, last = records(desk)
    assert [r["status"] for r in others] == ["scored"] * 3
    assert last["status"] == "failed" and last["errors"][0]["type"] == "WorkerDied"
    assert "exit status 9" in last["errors"][0]["message"]


def test_an_interrupted_run_goes_on_in_workers_again(desk, server):
    server.delay_s = lambda: 0.2
    command = f"vf-eval where-env -m m -b {server.url} -n 4 -r 4 -c 2 --executor process -w 1"
    process = desk.start(command)
    wait_until(lambda: server.requests.total() > 4, "the fifth request", 120)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    server.delay_s = lambda: 0.0
    done = desk.run(f"{command} --resume")
    assert done.returncode == 0, done.stderr
    assert [(r["example_id"], r["rollout_index"]) for r in records(desk)] == [
        (i, j) for i in range(4) for j in range(4)
    ]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--executor slurm", "executor: Invalid enum value 'slurm'"),
        ("--executor process -w 0", "num_workers must be 1 or more, got 0"),
        ("--executor process -w many", "num_workers is a count or 'auto', got 'many'"),
    ],
)
def test_what_is_no_executor_is_refused_before_anything_runs(desk, server, flags, words):
    done = desk.run(f"vf-eval where-env -m m -b {server.url} {flags}")
    assert done.returncode == 2
    assert words in done.stderr
    assert not server.requests
