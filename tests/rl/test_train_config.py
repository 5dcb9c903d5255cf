"""A wrong configuration names the field and what would be right, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifiers.errors import ConfigError
from verifiers.rl.parts import changes_of
from verifiers.rl.train_config import read_config
from verifiers.rl.train_run import launches_of, trainer_part

GOOD = """
steps = 10

[model]
path = "{model}"

[[env]]
id = "reverse-letters"

[schedule]
groups_per_step = 4
max_in_flight = 32

[samples]
seq_len = 512

[inference]
servers = ["http://127.0.0.1:8000/v1"]
"""

LAUNCH = """
[inference.launch]
python = "vllm/bin/python"
count = 2
port = 9000
devices = ["0", "1"]
suffix_decoding = "0.32.0"
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "model").mkdir()

    def write(text: str = GOOD, **changes: str) -> Path:
        text = text.format(model=tmp_path / "model")
        for old, new in changes.items():
            old = old.replace("__", " = ")
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "run.toml"
        path.write_text(text)
        return path

    return write


def test_a_small_file_is_enough_and_has_defaults(write):
    config = read_config(write())
    assert config.folder == Path("outputs/train/run")
    assert (config.env[0].tries, config.schedule.max_off_policy_steps, config.loss.high) == (8, 8, 5.0)
    assert config.of_trainer.model.path == config.model.path


def test_changes_go_over_the_file(write):
    changes = changes_of(["steps=3", "seed=5", "optim.lr=1e-3", "run=elsewhere", 'inference.servers=["http://h/v1"]'])
    config = read_config(write(), changes)
    assert (config.steps, config.optim.lr, config.run) == (3, 1e-3, "elsewhere")
    assert (config.seed, config.schedule.seed, config.of_trainer.seed) == (5, 5, 5)
    assert config.inference.servers == ["http://h/v1"]
    with pytest.raises(ConfigError, match="'steps' is no setting; write name=value"):
        changes_of(["steps"])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("steps = 10", "step = 10", "unknown key 'step'; did you mean 'steps'?"),
        ("groups_per_step = 4", "group_per_step = 4", r"\[schedule\]: unknown key 'group_per_step'; did you mean"),
        ('id = "reverse-letters"', 'id = "x"\ntry_s = 3', r"\[\[env\]\] 1: unknown key 'try_s'; did you mean 'tries'"),
        ("steps = 10", 'steps = "ten"', "steps: Expected `int`, got `str`"),
        ("steps = 10", "steps = 0", "steps: 0; should be at least 1"),
        ("groups_per_step = 4", "groups_per_step = 0", "groups_per_step must be more than 0; got 0"),
        ("max_in_flight = 32", "max_in_flight = 4", "schedule.max_in_flight: 4; should hold a group of 8 rollouts"),
        ("seq_len = 512", 'truncated = "whole"', "samples.truncated: Invalid enum value 'whole'"),
        ("seq_len = 512", "min_group = 2", "samples.seq_len: missing; it is the length of a micro-batch"),
        ('servers = ["http://127.0.0.1:8000/v1"]', "", r"give either servers = .* or a table \[inference.launch\]"),
        ("steps = 10", "steps = 10\n[optim]\nlr = -1.0", "optim.lr: -1.0; should be a finite number of at least 0"),
        ("steps = 10", 'steps = 10\n[loss]\ntype = "ppo"', "loss.type: Invalid value 'ppo'"),
        ("steps = 10", 'steps = 10\n[executor]\nkind = "slurm"', "executor.kind: Invalid enum value 'slurm'"),
        ("steps = 10", "steps = 10\n[trainer]\nranks = 0", "trainer.ranks: 0; should be at least 1"),
        ("steps = 10", "steps = ", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named(write, old, new, words):
    path = write()
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=words):
        read_config(path)


def test_a_model_that_is_not_there_and_two_environments_of_one_name_are_told_together(write, tmp_path):
    path = write()
    (tmp_path / "model").rmdir()
    path.write_text(path.read_text() + '\n[[env]]\nid = "reverse-letters"\n')
    with pytest.raises(ConfigError) as found:
        read_config(path)
    assert "model.path" in str(found.value) and "'reverse-letters' is given twice" in str(found.value)


def test_servers_and_trainer_are_started_as_the_file_says(write):
    text = GOOD.replace('[inference]\nservers = ["http://127.0.0.1:8000/v1"]', LAUNCH) + "\n[trainer]\nranks = 2\n"
    path = write(text)
    config = read_config(path)
    first, second = launches_of(config)
    assert (first.url, second.url) == ("http://127.0.0.1:9000/v1", "http://127.0.0.1:9001/v1")
    assert [one.variables["CUDA_VISIBLE_DEVICES"] for one in (first, second)] == ["0", "1"]
    assert '"method":"suffix"' in " ".join(first.command)
    trainer = trainer_part(config, path, ["steps=3"])
    assert trainer.ranks == 2
    assert trainer.command[1:] == ["-m", "verifiers.rl.trainer.program", str(path), "steps=3"]


@pytest.mark.parametrize(
    ("weights", "changes", "words"),
    [
        ("way = 'rdma'", {}, r"weights.way: Invalid enum value 'rdma'"),
        ("way = 'nccl'", {"trainer.device": "cpu"}, r"trainer.device: a CPU; weights.way = 'nccl' is between GPUs"),
        (
            "way = 'gloo'",
            {"inference.servers": ["http://node2:8000/v1"]},
            r"weights.host: 127.0.0.1, which http://node2",
        ),
        ("way = 'gloo'\ntimeout_s = 0", {}, r"weights.timeout_s: 0.0; should be more than 0"),
    ],
    ids=["no way", "between CPUs", "to another machine", "no time"],
)
def test_a_way_that_weights_cannot_go_is_named(write, weights, changes, words):
    with pytest.raises(ConfigError, match=words):
        read_config(write(GOOD + f"\n[weights]\n{weights}\n"), changes)


def test_servers_are_started_for_the_way_that_weights_go(write):
    text = GOOD.replace('[inference]\nservers = ["http://127.0.0.1:8000/v1"]', LAUNCH)
    for way, transfer in (("folder", "verifiers"), ("gloo", "verifiers"), ("nccl", "nccl")):
        launches = launches_of(read_config(write(text), {"weights.way": way}))
        assert [launch.transfer for launch in launches] == [transfer] * 2
