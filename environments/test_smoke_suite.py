"""configs/smoke.toml plays every environment here; by right answers each pays what its package declares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from loopback import ROOT, outside_variables

SUITE = ROOT / "configs" / "smoke.toml"
PACKAGES = {
    tomllib.loads(path.read_text())["project"]["name"]: path
    for path in sorted(ROOT.glob("environments/*/pyproject.toml"))
}


def declared_reward(name: str) -> float:
    """What right answers are paid; 1.0 where the package says nothing else."""
    ours: dict[str, Any] = tomllib.loads(PACKAGES[name].read_text())["tool"]["verifiers"]
    return ours.get("validate", {}).get("reference_reward", 1.0)


def test_every_package_is_in_the_suite():
    assert [table["env_id"] for table in tomllib.loads(SUITE.read_text())["eval"]] == sorted(PACKAGES)


@pytest.mark.slow
def test_right_answers_are_paid_in_full_by_every_environment(tmp_path: Path):
    path = os.pathsep.join([str(ROOT), *(str(file.parent) for file in PACKAGES.values())])
    variables = outside_variables() | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    code = "from verifiers.cli.main import eval_main; eval_main()"
    command = [sys.executable, "-P", "-c", code, str(SUITE), "-m", "reference", "--json", "-o", str(tmp_path)]
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    evals = json.loads(done.stdout)["evals"]
    assert [(one["env_id"], one["n_scored"]) for one in evals] == [(name, 2) for name in PACKAGES]
    short = {one["env_id"]: one["avg_reward"] for one in evals if one["avg_reward"] < declared_reward(one["env_id"])}
    assert short == {}
