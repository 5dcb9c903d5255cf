"""A real `vf-eval`, killed with SIGKILL again and again: nothing that was recorded is lost, or run again."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from loopback import Desk, Loopback, wait_until

from verifiers.records import read_records

ENVIRONMENT = """
import verifiers as vf


def right(completion, answer):
    return float(completion[-1]["content"] == answer)


def above_average(completions) -> list[float]:
    lengths = [len(completion[-1]["content"]) for completion in completions]
    return [float(length >= sum(lengths) / len(lengths)) for length in lengths]


def load_environment(by_group=False):
    rows = [{"question": f"{i} + {i}", "answer": str(2 * i)} for i in range(12)]
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[right, *[above_average] * by_group]))
"""
EXAMPLES, TRIES, AT_ONCE = 12, 5, 4
TOTAL = EXAMPLES * TRIES
KILLS = 20


def add(body: dict) -> str:
    a, b = re.findall(r"\d+", body["messages"][-1]["content"])
    return str(int(a) + int(b))


def whole_lines(file: Path) -> list[bytes]:
    """Without what follows the last newline."""
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []


def seeds(lines: list[bytes]) -> set[int]:
    return {json.loads(line)["seed"] for line in lines}


class Killed:
    """One run, killed often: what of it is on the disk, and how often each of its rollouts asked the model."""

    def __init__(self, folder: Path, server: Loopback) -> None:
        self.server = server
        self.results, self.journal = folder / "results.jsonl", folder / "journal.jsonl"
        self.saved: list[bytes] = []  # the whole lines of the results
        self.ended: dict[int, int] = {}  # seed of a rollout that has ended → requests that it had made by then

    @property
    def n_ended(self) -> int:
        return len(whole_lines(self.results)) + len(whole_lines(self.journal))

    def wait_for(self, more: int, process: subprocess.Popen[str]) -> None:
        """Until so many more rollouts have ended."""
        wanted = self.n_ended + more
        wait_until(lambda: self.n_ended >= wanted or process.poll() is not None, f"{more} rollouts")

    def check(self) -> None:
        lines = whole_lines(self.results)
        assert lines[: len(self.saved)] == self.saved, "a recorded rollout was lost or changed"
        self.saved = lines
        waiting = {json.loads(line)["record"]["seed"] for line in whole_lines(self.journal)}
        for seed in seeds(lines) | waiting:
            self.ended.setdefault(seed, self.server.requests[seed])
        again = {seed for seed, count in self.ended.items() if self.server.requests[seed] != count}
        assert not again, "a rollout that had ended asked the model again"


@pytest.mark.slow
@pytest.mark.parametrize("by_group", [False, True], ids=["one by one", "by group"])
def test_after_kills_at_random_moments_everything_recorded_is_there_and_nothing_is_run_twice(tmp_path, by_group):
    chance = random.Random(1)
    desk = Desk(tmp_path)
    desk.write("tiny_env", ENVIRONMENT)
    with Loopback(add) as server:
        server.delay_s = lambda: 0.02 + 0.06 * random.random()
        command = f"vf-eval tiny-env -m m -b {server.url} -n {EXAMPLES} -r {TRIES} -c {AT_ONCE}"
        command += f" -a by_group={json.dumps(by_group)}"
        run: Killed | None = None
        torn = 0
        for number in range(KILLS):
            process = desk.start(f"{command} --resume-path {run.results.parent}" if run else command)
            if run is None:
                wait_until(lambda: any(desk.folder.glob("outputs/evals/*/*/metadata.json")), "the run's folder")
                run = Killed(desk.saved_run(), server)
            if number % 5:  # else somewhere in its start
                run.wait_for(chance.randrange(3), process)
            time.sleep(0.08 * chance.random())
            process.send_signal(signal.SIGKILL)
            _, err = process.communicate(timeout=120)
            assert process.returncode == -signal.SIGKILL, err
            run.check()
            if number % 7 == 6 and run.saved:  # a kill in the middle of a write
                with run.results.open("ab") as file:
                    file.write(run.saved[-1][: len(run.saved[-1]) // 2])
                torn += 1
        assert run is not None and 0 < len(run.ended) < TOTAL
        done = desk.run(f"{command} --resume-path {run.results.parent} --json")
        assert done.returncode == 0, done.stderr
        run.check()
    records = list(read_records(run.results))
    assert sorted(record.key for record in records) == [(i, j) for i in range(EXAMPLES) for j in range(TRIES)]
    assert {record.status for record in records} == {"scored"}
    assert len({record.seed for record in records}) == TOTAL
    assert not run.journal.exists()
    metadata = json.loads((run.results.parent / "metadata.json").read_text())
    assert (metadata["status"], metadata["n_scored"], metadata["n_total"]) == ("done", TOTAL, TOTAL)
    assert metadata["usage"]["input_tokens"] == 10 * TOTAL and metadata["usage"]["output_tokens"] == 4 * TOTAL
    assert metadata["avg_reward"] == pytest.approx(sum(record.reward for record in records) / TOTAL)
    again = sum(server.requests.values()) - TOTAL
    assert 0 < again <= KILLS * AT_ONCE, "what was in flight, and no more, is asked again"
    assert torn
