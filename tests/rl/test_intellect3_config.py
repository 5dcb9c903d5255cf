"""configs/: the files after the INTELLECT-3 report name what is here, and say what the report says."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from loopback import ROOT

from verifiers.errors import ConfigError
from verifiers.eval.config import configs_of
from verifiers.rl.train_config import read_config

CONFIGS = ROOT / "configs"
PACKAGES = {tomllib.loads(path.read_text())["project"]["name"] for path in ROOT.glob("environments/*/pyproject.toml")}


def test_the_training_run_is_read_and_has_the_report_s_settings(tmp_path: Path):
    config = read_config(CONFIGS / "intellect3-rl.toml", {"model.path": str(tmp_path)})
    assert {table.id for table in (*config.env, *config.eval)} <= PACKAGES
    assert {table.tries for table in config.env} == {16}
    assert sum(table.weight for table in config.env) == pytest.approx(1.0)
    assert (config.schedule.groups_per_step, config.schedule.max_off_policy_steps) == (256, 8)
    assert config.samples.seq_len == 65_536
    assert (config.loss.low, config.loss.high, config.loss.drop_below) == (0.5, 5.0, 1e-5)
    assert config.optim.muon and config.model.fp32_head


def test_without_a_model_it_says_which_field_wants_one():
    with pytest.raises(ConfigError, match=r"model\.path: models/dense is no folder"):
        read_config(CONFIGS / "intellect3-rl.toml")


def test_the_suite_of_benchmarks_takes_as_many_samples_as_the_report():
    found = [(one.env_id, one.env_args["eval"], one.rollouts_per_example) for one in suite()]
    assert found == [
        ("i3-math", "aime2024", 32),
        ("i3-math", "aime2025", 32),
        ("i3-code", "livecodebench", 2),
        ("i3-science", "gpqa", 4),
        ("i3-science", "mmlu-pro", 1),
        ("i3-science", "hle", 1),
    ]
    assert {one.num_examples for one in suite()} == {-1}


@pytest.mark.parametrize("number", range(6))
def test_each_benchmark_s_environment_loads_with_the_suite_s_arguments(number, monkeypatch):
    one = suite()[number]
    module = one.env_id.replace("-", "_")
    monkeypatch.syspath_prepend(str(ROOT / "environments" / module))
    env = __import__(module).load_environment(**one.env_args)
    assert env.row_splits.has("eval")


def suite():
    return configs_of(str(CONFIGS / "eval-suite.toml"), {})
