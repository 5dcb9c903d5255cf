"""What a training run leaves in its folder can be read after any end, and what people see is read from it."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from verifiers.errors import ConfigError
from verifiers.records import EnvInfo, ModelInfo, RolloutRecord, read_records
from verifiers.rl.metric_log import MetricLog
from verifiers.rl.tally import End
from verifiers.rl.train_config import read_config
from verifiers.rl.train_orchestrator import Rollouts, read_pass_rates
from verifiers.rl.train_view import TrainView
from verifiers.rl.types import PolicyRollout, RolloutGroup
from verifiers.rl.weight_folder import WeightFolder


def test_the_last_figures_of_a_step_count_and_a_torn_line_harms_none(tmp_path):
    log = MetricLog(tmp_path / "new" / "log.jsonl")
    assert log.read() == []
    log.write(0, {"loss": 1.0})
    log.write(1, {"loss": 2.0, "odd": math.nan})
    with log.path.open("ab") as file:
        file.write(b'{"step":2,"ti')  # its writer was killed here
    log.write(1, {"loss": 3.0})
    found = log.read()
    assert [(line.step, line.metrics) for line in found] == [(0, {"loss": 1.0}), (1, {"loss": 3.0})]
    assert json.loads(log.path.read_text().splitlines()[1])["metrics"]["odd"] is None


async def test_news_of_weights_come_with_the_newest_folder_and_old_ones_go(tmp_path):
    weights = WeightFolder(tmp_path / "weights", keep=2)
    assert weights.newest() is None
    waiting = asyncio.create_task(weights.newer_than(0))
    await asyncio.sleep(0)
    for version in (1, 2, 3):
        weights.path(version).mkdir(parents=True)
    (tmp_path / "weights" / ".version_00000004.partial").mkdir()  # is being written
    found = await waiting
    assert (found.version, found.source.folder) == (3, str(weights.path(3)))
    weights.prune()
    assert weights.versions() == [2, 3]


def test_every_rollout_is_a_record_on_a_line_whatever_was_left_there(tmp_path):
    record = RolloutRecord(
        env=EnvInfo(name="e"), example_id=3, rollout_index=0, model=ModelInfo(name="m"),
        prompt=[], messages=[], reward=1.0, status="scored",
    )  # fmt: skip
    rollout = PolicyRollout(record=record, rollout_id="group-1/0", dispatched_version=1, finished_version=1)
    path = tmp_path / "rollouts.jsonl"
    path.write_text('{"env"')  # a killed writer's
    rollouts = Rollouts(path)
    rollouts.add(RolloutGroup(env="e", example_id=3, group_id="group-1", rollouts=[rollout] * 2), End.KEPT)
    rollouts.close()
    assert [found.group_id for found in read_records(path)] == ["group-1"] * 2


def test_pass_rates_of_a_hub_are_read_for_the_examples_that_there_are(tmp_path):
    path = tmp_path / "rates.json"
    examples = [
        {"example_id": 1, "pass_rate": 0.5, "n": 4},
        {"example_id": 2, "pass_rate": None},
        {"example_id": 9, "pass_rate": 1.0},
    ]
    path.write_text(json.dumps({"version": "1", "examples": examples}))
    assert read_pass_rates(path, [{"example_id": 1}, {"example_id": 2}]) == {1: 0.5}
    with pytest.raises(ConfigError, match="a rate for none of the 1 examples"):
        read_pass_rates(path, [{"example_id": 5}])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_pass_rates(tmp_path / "none.json", [])


def test_the_view_shows_where_the_run_is_and_what_it_gives(tmp_path):
    (tmp_path / "run.toml").write_text(
        f'run = "{tmp_path}/run"\nsteps = 40\n[model]\npath = "{tmp_path}"\n[[env]]\nid = "reverse-letters"\n'
        "[schedule]\ngroups_per_step = 4\nmax_in_flight = 32\n[samples]\nseq_len = 64\n"
        '[inference]\nservers = ["http://127.0.0.1:8000/v1"]\n'
    )
    config = read_config(tmp_path / "run.toml")
    view = TrainView(config)
    assert "0 of 40 steps done" in view.opening()
    assert any("no batch yet" in line for line in view.lines(100, 10))
    for step in range(12):
        view.stepped(
            step, {"reward/mean": 0.4 + step / 50, "off_policy/mean": 1.25, "off_policy/max": 3.0, "run/stale": 2.0}
        )
    MetricLog(config.folder / "trainer.jsonl").write(11, {"mismatch_kl": 1.5e-5, "step_s": 2.0, "tokens_per_s": 1234.0})
    MetricLog(config.folder / "evaluations.jsonl").write(8, {"reward/held": 0.55})
    lines = "\n".join(view.lines(120, 10))
    for words in (
        "12/40 steps", "reward 0.620, mean of 10 steps 0.530", "▁", "█", "age 1.2 (most 3) versions",
        "2 groups dropped", "mismatch KL 1.50e-05", "1,234 tokens/s", "held out at version 8: held 0.550",
    ):  # fmt: skip
        assert words in lines, words
    assert "step 12/40" in view.plain()
    again = TrainView(config)  # of a run that goes on: nothing to show of this part yet, but the run's place
    assert "held out" in again.plain()
