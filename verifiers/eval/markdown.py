"""`report_of`: a saved run as a page of Markdown, for a model card or a pull request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verifiers.eval import wording
from verifiers.eval.summary import summarise_run
from verifiers.records import RolloutRecord


def report_of(records: Sequence[RolloutRecord], metadata: Mapping[str, Any]) -> str:
    """`metadata` is what the run's `metadata.json` holds. There is at least one record."""
    asked = (metadata.get("counts") or {}).get("total") or len(records)
    threshold = metadata.get("pass_threshold") or 0.5
    found = summarise_run(records, total=asked, time_s=metadata.get("time") or 0.0, pass_threshold=threshold)
    first = records[0]
    name = f"{first.env.name} {first.env.version}" if first.env.version else first.env.name
    parts = [
        f"# {_cell(name)}: {_cell(first.model.name)}\n",
        _table(("reward", "standard error", "95 % interval", "scored"), [_reward(found)]),
        _table(("reward function", "mean", "weight", "adds"), map(_score, found["scores"])),
    ]
    if any(at["n_examples"] for at in found["at_k"]):
        parts.append(_table(("k", "pass@k", "pass^k", "avg@k", "examples"), map(_at_k, found["at_k"])))
    if found["errors"]:
        parts.append(_table(("failures", "side", "error", "message"), map(_error, found["errors"])))
    parts.append(_table(("setting", "value"), _settings(metadata, found["usage"])))
    return "\n".join(parts)


def _reward(found: dict[str, Any]) -> Sequence[str]:
    reward = found["reward"]
    interval = reward["interval"]
    return (
        wording.number(reward["mean"]),
        wording.number(reward["standard_error"]),
        f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else "",
        f"{found['n_scored']} of {found['n_total']}",
    )


def _score(score: dict[str, Any]) -> Sequence[str]:
    adds = wording.number(score["contribution"]) if score["weight"] else ""
    return score["name"], wording.number(score["mean"]), f"{score['weight']:g}", adds


def _at_k(at: dict[str, Any]) -> Sequence[str]:
    rates = (wording.number(at[key]) for key in ("pass_at_k", "pass_hat_k", "avg_at_k"))
    return str(at["k"]), *rates, str(at["n_examples"])


def _error(error: dict[str, Any]) -> Sequence[str]:
    return str(error["count"]), error["side"], error["type"], wording.cut(error["message"], 200)


def _settings(metadata: Mapping[str, Any], usage: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    if "num_examples" in metadata:
        yield "examples × tries", f"{metadata['num_examples']} × {metadata.get('rollouts_per_example')}"
    for name, key in (("sampling", "sampling_args"), ("arguments", "env_args")):
        yield name, _json(metadata.get(key))
    for name, key in (("seed", "seed"), ("rows", "rows_hash"), ("date", "date")):
        if metadata.get(key) is not None:
            yield name, str(metadata[key])
    if usage["input_tokens"] is not None and usage["output_tokens"] is not None:
        yield "tokens", f"{usage['input_tokens']:,} in, {usage['output_tokens']:,} out"
    if usage["cost"] is not None:
        yield "cost", wording.money(usage["cost"])


def _json(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False, sort_keys=True)}`" if value else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    """One line, in which nothing ends the cell."""
    return " ".join(text.split()).replace("|", "\\|")
