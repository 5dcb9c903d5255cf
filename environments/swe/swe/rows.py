"""The rows of each data set, as `SWEEnv` reads them."""

from __future__ import annotations

import random
from typing import Any

import verifiers as vf
from swe.own import own_rows

PUBLIC = {
    "r2e-gym": vf.DataSource(
        "R2E-Gym/R2E-Gym-Subset",
        split="train",
        columns=("repo_name", "docker_image", "commit_hash", "problem_statement", "expected_output_json"),
    ),
    "swe-smith": vf.DataSource(
        "SWE-bench/SWE-smith",
        split="train",
        columns=("instance_id", "repo", "patch", "FAIL_TO_PASS", "PASS_TO_PASS", "image_name", "problem_statement"),
    ),
    "swe-bench-verified": vf.DataSource(
        "princeton-nlp/SWE-bench_Verified",
        split="test",
        columns=(
            "instance_id", "repo", "base_commit", "patch", "test_patch", "problem_statement", "FAIL_TO_PASS",
            "PASS_TO_PASS",
        ),
    ),
}  # fmt: skip
DATASETS = ("own", *PUBLIC)
_ANY = vf.DataSource("rows of SWE-bench, SWE-smith, R2E-Gym or vf.SWETask")  # which of them, `SWEEnv` tells by columns


def rows_of(dataset: str, data: str | None, num: int, seed: int | None) -> list[dict[str, Any]]:
    """Raises DatasetError where a public data set can neither be fetched nor is cached, or a row lacks a column."""
    if data is not None:
        rows = PUBLIC.get(dataset, _ANY).rows(data=data, num=num, seed=seed)
    elif dataset == "own":
        rows = [{**row, "source": "own repositories, no benchmark"} for row in own_rows()]
        if seed is not None:
            rows = random.Random(seed).sample(rows, len(rows))
        rows = rows if num < 0 else rows[:num]
    else:
        rows = PUBLIC[dataset].rows(num=num, seed=seed)
    # SWE-smith has rows for whose bug no issue was written yet
    asked = [row for row in rows if not _is_unasked(row)]
    if not asked:
        raise vf.DatasetError(
            f"dataset={dataset!r}: no row with a problem_statement. It is fetched once with a network, or passed as "
            "data=PATH; its images need docker or podman. dataset='own' runs without any of these"
        )
    return [{**row, "info": {"dataset": dataset, "source": row["source"]}} for row in asked]


def _is_unasked(row: dict[str, Any]) -> bool:
    return "problem_statement" in row and not str(row["problem_statement"] or "").strip()
