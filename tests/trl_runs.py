"""What runs of TRL's real trainers have in common: the model that examples/train_tiny starts from, rows, settings."""

from __future__ import annotations

import importlib.util
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from verifiers.rl.rollouts import EnvRollouts

ROOT = Path(__file__).parents[1]
needs_trl = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="needs the package 'trl'")


@cache
def start_in(folder: Path) -> str:
    """The folder of the model, made in `folder` once."""
    runpy.run_path(str(ROOT / "examples/train_tiny/make_start.py"))["main"](folder / "start")
    (config,) = {path.parent for path in (folder / "start").rglob("config.json")} - {folder / "start/random"}
    return str(config)


def reverse_letters(n: int) -> EnvRollouts:
    """The environment of the repository, installed or not."""
    module = runpy.run_path(str(ROOT / "environments/reverse_letters/reverse_letters.py"))
    return EnvRollouts(module["load_environment"](), n=n)


def settings(folder: Path, **given: Any) -> dict[str, Any]:
    """Of a configuration of TRL, for a run on one thread of a CPU."""
    import torch

    torch.set_num_threads(1)
    return {
        "output_dir": str(folder),
        "num_generations": 8,
        "max_completion_length": 6,  # five letters and the end
        "learning_rate": 1e-4,
        "warmup_steps": 3,
        "lr_scheduler_type": "constant_with_warmup",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "seed": 0,
        "disable_tqdm": True,
        **given,
    }


def logged(trainer: Any, name: str) -> list[float]:
    """A figure of every step."""
    return [entry[name] for entry in trainer.state.log_history if name in entry]
