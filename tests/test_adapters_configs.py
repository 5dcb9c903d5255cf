"""A training run exported for other trainers: what it says arrives, and what does not is told."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import tomllib
from dataclasses import FrozenInstanceError, dataclass, field, fields
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml
from loopback import ROOT
from trainer_packages import folder_of, run_definitions, source_of
from typer.testing import CliRunner

from verifiers.adapters.prime_rl_config import PrimeRun, prime_run
from verifiers.adapters.verl_config import VerlRun, verl_run
from verifiers.cli.main import app
from verifiers.errors import ConfigError
from verifiers.rl.train_config import read_config

REPORT = ROOT / "configs" / "intellect3-rl.toml"
PRIME_FIELDS = json.loads((ROOT / "tests/data/prime_rl_fields.json").read_text("utf-8"))
ACTOR = "actor_rollout_ref.actor"


@pytest.fixture
def export(tmp_path):
    """`export("verl", **{"optim.lr": 1e-5})`: the report's run with changes."""

    def export(trainer: str, **changes: Any) -> Any:
        config = read_config(REPORT, {"model.path": str(tmp_path), **changes})
        return verl_run(config, tmp_path) if trainer == "verl" else prime_run(config)

    return export


# What arrives


def test_verl_is_told_the_report_s_settings(export, tmp_path):
    run: VerlRun = export("verl")
    said = run.overrides
    assert (said["data.train_batch_size"], said["actor_rollout_ref.rollout.n"]) == (256, 16)
    assert said["data.max_prompt_length"] + said["data.max_response_length"] == 65_536
    assert said["trainer.v1.sampler.max_off_policy_threshold"] == 8
    assert said["algorithm.rollout_correction.rollout_is_threshold"] == "0.5_5.0"
    assert said["actor_rollout_ref.model.path"] == str(tmp_path)
    assert [agent["name"] for agent in run.agents][-1] == "aime2024"
    assert run.agents[-1]["split"] == "eval" and run.agents[-1]["env_args"] == {"eval": "aime2024"}


def test_prime_rl_is_told_the_report_s_settings(export):
    run: PrimeRun = export("prime-rl")
    trainer, orchestrator = run.files["trainer"], run.files["orchestrator"]
    assert (orchestrator["batch_size"], orchestrator["rollouts_per_example"]) == (4096, 16)
    assert (orchestrator["seq_len"], orchestrator["max_off_policy_steps"]) == (65_536, 8)
    assert sum(orchestrator["env_mix"]["probabilities"]) == pytest.approx(1.0)
    assert len(orchestrator["env_mix"]["probabilities"]) == len(orchestrator["env"]) == 6
    assert trainer["loss"] == {
        "ratio_type": "token", "mask_ratio_low": 0.5, "mask_ratio_high": 5.0, "sequence_mask_ratio_low": 1e-5,
    }  # fmt: skip
    assert trainer["optim"]["type"] == "muon"


# A setting for each table and each way to be told; a value that is not the report's
CHANGES: dict[str, Any] = {
    "steps": 7, "seed": 3, "eval_places": 3, "save_rollouts": False,
    "model.compute": "float32", "model.offload_activations": False, "model.logit_chunk": 7,
    "schedule.groups_per_step": 128, "schedule.max_in_flight": 5000, "schedule.max_off_policy_steps": 3,
    "schedule.group_timeout_s": 5.0, "samples.seq_len": 4096, "samples.truncated": "zero",
    "samples.baseline": "leave_one_out",
    "samples.skip_trivial": False, "samples.overlong": "cut", "samples.min_group": 3, "samples.turn_reward_weight": 0.5,
    "loss.low": 0.4, "loss.high": 6.0, "loss.drop_below": 1e-4, "optim.lr": 1e-5, "optim.weight_decay": 0.1,
    "optim.muon": False, "optim.momentum": 0.9, "optim.betas": [0.8, 0.9], "optim.eps": 1e-6,
    "optim.max_grad_norm": 0.5,
    "optim.warmup_steps": 5, "trainer.ranks": 4, "trainer.devices": "0", "trainer.checkpoint_every": 9,
    "trainer.weights_dtype": "float32", "trainer.keep_checkpoints": 5, "weights.way": "folder",
    "weight_check.max_gap": 0.2, "inference.routing": "sticky", "inference.servers": ["http://127.0.0.1:9/v1"] * 2,
    "executor.workers": 3,
}  # fmt: skip


@pytest.mark.parametrize("trainer", ["verl", "prime-rl"])
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_setting_either_arrives_or_is_listed(name, trainer, export):
    before = export(trainer)
    assert export(trainer, **{name: CHANGES[name]}) != before


@pytest.mark.parametrize("trainer", ["verl", "prime-rl"])
def test_what_a_trainer_has_not_got_is_listed_with_its_reason(trainer, export):
    listed = export(trainer, **{"trainer.devices": "0,1"}).left_out
    assert "trainer.devices = '0,1': no counterpart" in listed
    assert any(line.startswith("executor.kind = 'ray': environments run in") for line in listed)
    assert not any(line.startswith(("optim.lr", "steps", "env.id")) for line in listed)
    listed = export(trainer, env=[{"id": "swe", "timeout_s": 9.0}, {"id": "i3-math", "timeout_s": 8.0}]).left_out
    assert "env.timeout_s = 9.0, 8.0: no counterpart" in listed


@pytest.mark.parametrize("trainer", ["verl", "prime-rl"])
def test_tables_that_differ_where_there_is_one_value_are_told(trainer, export):
    two = [{"id": "swe", "tries": 16}, {"id": "i3-math", "tries": 8}]
    assert any(line.startswith("env.tries: 16 for all") for line in export(trainer, env=two).left_out)


@pytest.mark.parametrize("trainer", ["verl", "prime-rl"])
def test_a_loss_that_it_has_not_got_is_refused(trainer, export):
    with pytest.raises(ConfigError, match=r"loss\.type: 'cross_entropy'"):
        export(trainer, loss={"type": "cross_entropy"})


def test_prime_rl_takes_nccl_at_one_level_only(export):
    with pytest.raises(ConfigError, match=r"weights\.way: 'nccl' with schedule\.max_async_level = 2"):
        export("prime-rl", **{"schedule.max_async_level": 2})


# The files


def run_export(trainer: str, model: Path, folder: Path) -> Any:
    arguments = ["train", str(REPORT), f"model.path={model}", "--export", trainer, "-o", str(folder)]
    return CliRunner().invoke(app, arguments)


def test_the_command_writes_for_prime_rl_and_says_what_is_left_out(tmp_path, export):
    done = run_export("prime-rl", tmp_path, tmp_path / "out")
    assert done.exit_code == 0, done.output
    read = {
        name: tomllib.loads((tmp_path / f"out/{name}.toml").read_text("utf-8")) for name in export("prime-rl").files
    }
    assert read == export("prime-rl").files
    assert "left out, or not the same: executor.kind" in done.output


def test_the_command_writes_for_verl(tmp_path):
    done = run_export("verl", tmp_path, tmp_path / "out")
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "out/overrides.txt").read_text("utf-8").splitlines()
    assert "algorithm.rollout_correction.rollout_is_threshold='0.5_5.0'" in lines
    agents = yaml.safe_load((tmp_path / "out/agents.yaml").read_text("utf-8"))
    assert agents[0]["_target_"] == "verifiers.adapters.verl.EnvironmentAgentLoop"


def test_an_unknown_trainer_is_refused_with_those_there_are(tmp_path):
    done = run_export("trl", tmp_path, tmp_path / "out")
    assert done.exit_code == 2 and "verl" in done.output and "prime-rl" in done.output


# Against the packages


def unknown(table: Any, known: Any, place: str = "") -> list[str]:
    """Keys of a nested table that are not in the known ones; a list's tables have the names of the list."""
    if isinstance(table, list):
        return [name for one in table for name in unknown(one, known, place)]
    if not isinstance(table, dict) or known == "any":
        return []
    return [
        name
        for key, value in table.items()
        for name in ([f"{place}{key}"] if key not in known else unknown(value, known[key], f"{place}{key}."))
    ]


OTHERS: dict[str, dict[str, Any]] = {
    "report": {},
    "folder": {"weights.way": "folder"},
    "gspo": {"loss": {"type": "gspo"}},
    "cosine": {"optim.decay": "cosine", "optim.decay_steps": 9},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_prime_rl_s_fields_have_the_names_that_are_written_down(export, changes):
    files = export("prime-rl", **changes).files
    assert [name for part, table in files.items() for name in unknown(table, PRIME_FIELDS[part])] == []
    assert unknown({"optim": {"momentum": 1}}, PRIME_FIELDS["trainer"]) == ["optim.momentum"]


def verl_yaml() -> dict[str, Any]:
    path = folder_of("verl") / "verl/trainer/config/_generated_ppo_trainer.yaml"
    return yaml.safe_load(path.read_text("utf-8"))


def put(document: dict[str, Any], overrides: dict[str, Any]) -> None:
    for name, value in overrides.items():
        *tables, last = name.split(".")
        table = document
        for step in tables:
            table = table[step]
        assert last in table, f"verl has no {name}"
        table[last] = value


@pytest.mark.parametrize("loss", [{"type": "masked_importance_sampling"}, {"type": "gspo"}], ids=["masked", "gspo"])
def test_verl_has_each_key_and_a_value_of_its_kind(export, loss):
    before, after = verl_yaml(), verl_yaml()
    overrides = export("verl", loss=loss).overrides
    put(after, overrides)
    for name, value in overrides.items():
        old: Any = before
        for step in name.split("."):
            old = old[step]
        if isinstance(old, bool | list) or (isinstance(old, str) and not old.startswith("${")):
            assert type(value) is type(old), name
        elif isinstance(old, int | float):
            is_threshold = name.endswith("rollout_is_threshold")  # a number, or two of them as text
            assert is_threshold or type(value) in (int, float), name


def verl_classes() -> dict[str, Any]:
    """verl's own config classes, without what they import: stand-ins for profiling, quantisation and models."""
    names: dict[str, Any] = {
        "__name__": "verl_configs", "dataclass": dataclass, "field": field, "fields": fields, "Any": Any,
        "Optional": Optional, "collections": collections, "FrozenInstanceError": FrozenInstanceError, "MISSING": "???",
    }  # fmt: skip
    sys.modules["verl_configs"] = type(sys)("verl_configs")  # where dataclasses look their module up
    for path, classes in (
        ("base_config.py", "BaseConfig"),
        ("trainer/config/algorithm.py", "KLControlConfig FilterGroupsConfig RolloutCorrectionConfig AlgoConfig"),
        ("trainer/config/config.py", "CheckpointConfig"),
        ("workers/config/optimizer.py", "OptimizerConfig FSDPOptimizerConfig"),
        ("workers/config/engine.py", "EngineRouterReplayConfig EngineConfig QATEngineConfig FSDPEngineConfig"),
        ("workers/config/actor.py", "PolicyLossConfig RouterReplayConfig ActorConfig FSDPActorConfig"),
        ("workers/config/rollout.py", "SamplingConfig CustomAsyncServerConfig AgentLoopConfig CheckpointEngineConfig"),
    ):
        run_definitions(source_of("verl", path), classes.split(), names)
        for stand_in in ("ProfilerConfig", "QATConfig", "HFModelConfig"):
            names[stand_in] = names["BaseConfig"]
    return names


def built(cls: Any, table: dict[str, Any]) -> Any:
    return cls(**{name: value for name, value in table.items() if name in {one.name for one in fields(cls)}})


@pytest.mark.parametrize("loss", [{"type": "masked_importance_sampling"}, {"type": "gspo"}], ids=["masked", "gspo"])
def test_verl_s_own_classes_take_the_tables(export, loss):
    document, classes = verl_yaml(), verl_classes()
    put(document, export("verl", loss=loss).overrides)
    actor, rollout = document["actor_rollout_ref"]["actor"], document["actor_rollout_ref"]["rollout"]
    actor["optim"] = built(classes["FSDPOptimizerConfig"], actor["optim"])
    actor["fsdp_config"] = built(classes["FSDPEngineConfig"], actor["fsdp_config"])
    actor["policy_loss"] = built(classes["PolicyLossConfig"], actor["policy_loss"])
    made = built(classes["FSDPActorConfig"], actor)
    assert made.engine.strategy == "fsdp2" and made.optim.betas == [0.9, 0.95]
    assert made.ppo_mini_batch_size == document["data"]["train_batch_size"]  # asked by its separate_async trainer
    assert built(classes["CheckpointEngineConfig"], rollout["checkpoint_engine"]).backend != "naive"
    assert built(classes["AgentLoopConfig"], rollout["agent"]).default_agent_loop == "i3-math"
    assert built(classes["SamplingConfig"], rollout["val_kwargs"]).n == 4
    built(classes["AlgoConfig"], document["algorithm"])


def test_the_masked_loss_is_verl_s_own_preset_with_a_filter_of_the_worst_token(export):
    document, correction = verl_yaml(), verl_classes()["RolloutCorrectionConfig"]
    put(document, export("verl").overrides)
    made = dict(built(correction, document["algorithm"]["rollout_correction"]))
    preset = dict(correction.bypass_pg_token_icepop(5.0, 0.5))
    assert {name for name in made if made[name] != preset[name]} == {"rollout_rs", "rollout_rs_threshold"}
    assert f'"{made["rollout_rs"]}"' in (folder_of("verl") / "verl/trainer/ppo/rollout_corr_helper.py").read_text(
        "utf-8"
    )


def test_hydra_composes_verl_s_config_with_the_overrides(export, tmp_path):
    folder = folder_of("verl")
    if not (folder / "hydra").is_dir():
        pytest.skip(f"needs hydra-core in {folder}")
    export("verl").write(tmp_path)
    program = (
        "import sys; from hydra import compose, initialize_config_dir\n"
        "with initialize_config_dir(sys.argv[1], version_base=None):\n"
        "    c = compose('ppo_trainer', overrides=open(sys.argv[2]).read().splitlines())\n"
        "print(c.algorithm.rollout_correction.rollout_is_threshold, c.actor_rollout_ref.rollout.n)\n"
    )
    arguments = [str(folder / "verl/trainer/config"), str(tmp_path / "overrides.txt")]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0.5_5.0", "16"]
