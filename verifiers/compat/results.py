"""Results as the classic API gives them: a flat dict for each rollout, and a table that reads both ways."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verifiers.recording import library_version, state_of
from verifiers.records import EnvInfo, RolloutRecord
from verifiers.results import ResultsStore, RunConfig, default_folder, row_hashes
from verifiers.run import Run, as_rows
from verifiers.types import Attributed


class RolloutOutput(dict[str, Any]):
    """One rollout, flat: `output["reward"]`, and every metric at top level. `record` holds the whole."""

    __slots__ = ("record",)
    record: RolloutRecord


def output_of(record: RolloutRecord) -> RolloutOutput:
    metrics = record.metrics
    timing = record.timing
    error = record.errors[0] if record.errors else None
    completion: Any = record.messages
    if completion and all(m.get("role") == "text" for m in completion):
        completion = "".join(m["content"] for m in completion)
    output = RolloutOutput(
        example_id=record.example_id,
        rollout_index=record.rollout_index,
        prompt=record.prompt,
        completion=completion,
        task=record.task,
        reward=record.reward,
        metrics=metrics,
        status=record.status,
        timing={
            "generation_ms": 1000 * timing.total_s,
            "scoring_ms": 1000 * timing.score_s,
            "total_ms": 1000 * (timing.total_s + timing.score_s),
        },
        is_completed=True,
        is_truncated=record.is_truncated,
        stop_condition=record.stop_condition,
        error=None if error is None else {"error": error.type, "message": error.message, "side": error.side},
        token_usage=None
        if record.usage.prompt is None
        else {"input_tokens": record.usage.prompt, "output_tokens": record.usage.completion},
    )
    if record.answer is not None:
        output["answer"] = record.answer
    if record.info:
        output["info"] = record.info
    for name, value in metrics.items():
        output.setdefault(name, value)
    output.update(record.state_columns)
    output.record = record
    return output


class Metadata(Attributed):
    """What was run and how it went: `results.metadata.num_examples`, or by item."""

    __slots__ = ()


class GenerateOutputs(dict[str, Any]):
    """`results["outputs"]` and `results["metadata"]`; a column name of 0.1.9 and before gives that column.

    `results["reward"]` and `results.reward` are the rewards of all rollouts, `None` where there is none.
    `results.state` is rebuilt from the records: of the author's own keys it has those asked for as `state_columns`.
    """

    _NAMES = {"rewards": "reward", "prompts": "prompt", "completions": "completion", "answers": "answer"}

    def __repr__(self) -> str:
        """Short: asyncio.run itself asks for the repr of what it returns."""
        return f"GenerateOutputs({len(dict.__getitem__(self, 'outputs'))} rollouts, metadata={self['metadata']})"

    @property
    def records(self) -> list[RolloutRecord]:
        return [output.record for output in self["outputs"]]

    def __missing__(self, key: str) -> Any:
        outputs = dict.__getitem__(self, "outputs")
        if key == "metrics":
            names = dict.fromkeys(name for o in outputs for name in o["metrics"])
            return {name: [o["metrics"].get(name) for o in outputs] for name in names}
        if key == "stop_conditions":
            return [o["stop_condition"] for o in outputs]
        if key == "state":
            return [state_of(o.record, o.record.state_columns) for o in outputs]
        if key == "id":
            return [o["example_id"] for o in outputs]
        key = self._NAMES.get(key, key)
        if not outputs or (not any(key in o for o in outputs) and key not in ("answer", "info")):
            raise KeyError(key)
        return [o.get(key, "" if key == "answer" else {} if key == "info" else None) for o in outputs]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"results have no '{name}'") from None

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


async def generate(
    env: Any,
    inputs: Any,
    client: Any,
    model: str,
    sampling_args: Mapping[str, Any] | None,
    *,
    max_concurrent: int,
    results_path: Path | str | None,
    state_columns: Any,
    save_results: bool,
    independent_scoring: bool,
    max_retries: int,
    on_start: Any,
    on_progress: Any,
    on_log: Any,
    seed: int,
    rollout_timeout_s: float | None,
    score: bool,
) -> GenerateOutputs:
    """`Environment.generate`: a `Run`, its results in classic shape."""
    began = time.time()
    rows = as_rows(inputs, env)
    columns: list[str] = list(state_columns or ())
    store = _store(env, rows, client, model, sampling_args, columns, results_path, seed) if save_results else None
    made: dict[tuple[int, int], RolloutOutput] = {}
    outputs: list[RolloutOutput] = []
    callbacks = on_progress if isinstance(on_progress, list) else [on_progress] if callable(on_progress) else []

    def progressed(record: RolloutRecord) -> None:
        new = made[record.key] = output_of(record)
        outputs.append(new)
        for callback in callbacks:
            callback(outputs, [new], {})

    run = Run(
        env, rows, client=client, model=model, sampling_args=sampling_args, max_concurrent=max_concurrent,
        max_retries=max_retries, seed=seed, store=store, score=score, independent_scoring=independent_scoring,
        rollout_timeout_s=rollout_timeout_s, state_columns=columns, on_record=progressed if callbacks else None,
    )  # fmt: skip
    if callable(on_start):
        on_start(rows, rows)
    if callable(on_log):
        on_log(f"{len(rows)} rollouts of {env.env_id or type(env).__name__} with {model}")
    metadata = Metadata()
    try:
        records = await run.execute()
        if run.fatal is not None:
            raise run.fatal
        metadata = Metadata(_metadata(env, records, client, model, sampling_args, columns, began))
        if store is not None:
            store.finish(metadata)
        metadata["path_to_save"] = store.folder if store is not None else None
    finally:
        if store is not None:
            store.close()
    return GenerateOutputs(outputs=[made.get(record.key) or output_of(record) for record in records], metadata=metadata)


def _store(
    env: Any, rows: list[Any], client: Any, model: str, sampling_args: Any, columns: list[str], path: Any, seed: int
) -> ResultsStore:
    """The folder of a run that saves. One that holds the same run already is continued."""
    unique = {row["example_id"]: row for row in rows}
    name = env.env_id or type(env).__name__
    config = RunConfig(
        env_id=name,
        env=EnvInfo(name=name),
        env_args=env.env_args,
        model=model,
        base_url=_base_url(client),
        row_hashes=row_hashes(unique.values()),
        sampling_args=dict(sampling_args or {}),
        rollouts_per_example=max(1, len(rows) // max(1, len(unique))),
        seed=seed,
        state_columns=columns,
    )
    folder = Path(path) if path else default_folder(name, model)
    is_there = (folder / "metadata.json").exists()
    return ResultsStore.resume(folder, config) if is_there else ResultsStore.create(folder, config)


def _metadata(
    env: Any,
    records: list[RolloutRecord],
    client: Any,
    model: str,
    sampling_args: Any,
    columns: list[str],
    began: float,
) -> dict[str, Any]:
    from verifiers.statistics import summarise

    summary = summarise([(r.example_id, r.reward) for r in records], pass_threshold=env.pass_threshold)
    examples = len({r.example_id for r in records})
    metrics: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.metrics.items():
            if value is not None:
                metrics.setdefault(name, []).append(value)
    known = [r.usage for r in records if r.usage.prompt is not None]
    return {
        "env_id": env.env_id,
        "env_args": env.env_args,
        "model": model,
        "base_url": _base_url(client),
        "num_examples": examples,
        "rollouts_per_example": max(1, len(records) // max(1, examples)),
        "sampling_args": dict(sampling_args or {}),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(began)),
        "time_ms": 1000 * (time.time() - began),
        "time": time.time() - began,
        "avg_reward": summary.mean,
        "num_scored": summary.n_scored,
        "num_rollouts": summary.n_total,
        "statuses": dict(Counter(record.status for record in records).most_common()),
        "avg_metrics": {name: sum(values) / len(values) for name, values in metrics.items()},
        "avg_error": sum(bool(r.errors) for r in records) / len(records) if records else 0.0,
        "pass_at_k": {str(a.k): a.pass_at_k for a in summary.at_k},
        "pass_all_k": {str(a.k): a.pass_hat_k for a in summary.at_k},
        "pass_threshold": env.pass_threshold,
        "usage": {
            "input_tokens": sum(u.prompt or 0 for u in known) / max(1, len(known)),
            "output_tokens": sum(u.completion or 0 for u in known) / max(1, len(known)),
        },
        "state_columns": columns,
        "tools": env.tool_defs,
        "version_info": {"vf_version": library_version(), "env_version": None},
    }


def _base_url(client: Any) -> str:
    return str(getattr(client, "base_url", "") or getattr(client, "api_base_url", ""))
