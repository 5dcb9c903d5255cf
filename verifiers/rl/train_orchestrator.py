"""`orchestrate`: the orchestrator of a run as its configuration says it, with the environments and servers it needs."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from verifiers.errors import ConfigError
from verifiers.executor import opened
from verifiers.executor.request import EnvSpec, RolloutExecutor, RowsRequest
from verifiers.installed import declared
from verifiers.line_file import LineFile
from verifiers.other_python import isolated_for
from verifiers.records import encode_record
from verifiers.rl.evaluation import Evaluation, EvaluationResult
from verifiers.rl.inference import InferencePool
from verifiers.rl.metric_log import MetricLog
from verifiers.rl.orchestrator import Orchestrator
from verifiers.rl.pack import pack
from verifiers.rl.policy import NewWeights
from verifiers.rl.sample_policy import SamplePolicy
from verifiers.rl.samples import SampleSet, samples_of_group
from verifiers.rl.sent_feed import SentFeed
from verifiers.rl.source import Source
from verifiers.rl.state import StateFolder
from verifiers.rl.tally import End
from verifiers.rl.train_config import EnvTable, EvalTable, TrainConfig
from verifiers.rl.transports.files import FileSender
from verifiers.rl.types import RolloutGroup
from verifiers.rl.weight_check import ScoredTexts, WeightCheck
from verifiers.rl.weight_folder import WeightFolder

SamplesOf = Callable[[RolloutGroup, SamplePolicy], SampleSet]

logger = logging.getLogger("verifiers")


async def orchestrate(
    config: TrainConfig,
    servers: list[str],
    on_step: Callable[[int, dict[str, float]], None] | None = None,
    samples_of: SamplesOf = samples_of_group,
) -> None:
    """To the last step, from where the run's folder says that it was. Raises what the orchestrator raises.

    `samples_of` makes a group's samples; another one makes another algorithm.
    """
    folder = config.folder
    executor = opened(config.executor.kind, config.executor.workers)
    log, evaluations = MetricLog(folder / "orchestrator.jsonl"), MetricLog(folder / "evaluations.jsonl")
    rollouts = Rollouts(folder / "rollouts.jsonl") if config.save_rollouts else None

    check = check_of(config)

    def stepped(step: int, metrics: dict[str, float]) -> None:
        if check is not None:
            metrics = metrics | check.metrics()
        log.write(step, metrics)
        if on_step is not None:
            on_step(step, metrics)

    def evaluated(result: EvaluationResult) -> None:
        if result.reward is not None:
            evaluations.write(result.version, {f"reward/{result.name}": result.reward, "seconds": result.seconds})

    try:
        sources = [await source_of(table, config, executor) for table in config.env]
        held_out = [await evaluation_of(table, config, executor) for table in config.eval]
        async with policy_of(config, servers, check) as (pool, weights):
            orchestrator = Orchestrator(
                sources,
                executor=executor,
                policy=pool,
                feed=weights,
                sender=FileSender(folder / "batches", config.trainer.ranks),
                samples_of=lambda group: samples_of(group, config.samples),
                pack=lambda samples, step, metrics: pack(
                    samples, config.samples.seq_len or 0, config.trainer.ranks, step, metrics=metrics
                ),
                settings=config.schedule,
                states=StateFolder(folder / "state"),
                evaluations=held_out,
                evaluation_places=config.eval_places,
                on_step=stepped,
                on_group=rollouts.add if rollouts else None,
                on_evaluation=evaluated,
            )
            await orchestrator.run(config.steps)
            if isinstance(weights, SentFeed):  # the trainer has more to train, and asks before each step
                await weights.end(config.steps)
    finally:
        await executor.close()
        if rollouts is not None:
            rollouts.close()


@asynccontextmanager
async def policy_of(
    config: TrainConfig, servers: list[str], check: WeightCheck | None = None
) -> AsyncGenerator[tuple[InferencePool, WeightFolder | SentFeed], None]:
    """The servers, with the newest weights that there are, and news of newer ones.

    Servers that were started anew have the weights of the beginning. Raises SetupError for servers that lack something.
    """
    newest: NewWeights | None = None
    async with AsyncExitStack() as stack:
        if config.weights.way == "folder":
            feed = WeightFolder(config.folder / "weights", keep=config.trainer.keep_weights)
            newest = feed.newest()
        else:
            feed = await stack.enter_async_context(SentFeed(config.folder))
        pool = InferencePool(
            servers,
            model=config.inference.model,
            routing=config.inference.routing,
            version=newest.version if newest else 0,
            start_wait_s=config.inference.start_wait_s,
            check=check,
        )
        await stack.enter_async_context(pool)
        if isinstance(feed, SentFeed):
            await feed.begin(pool)
        elif newest is not None:
            await pool.update(newest.version, newest.source)
        yield pool, feed


def check_of(config: TrainConfig) -> WeightCheck | None:
    table = config.weight_check
    if table.on_mismatch == "off":
        return None
    texts = ScoredTexts(config.folder / "weight_checks")
    return WeightCheck(texts, config.inference.model, max_gap=table.max_gap, on_mismatch=table.on_mismatch)


async def source_of(table: EnvTable, config: TrainConfig, executor: RolloutExecutor) -> Source:
    """Raises SetupError when the environment cannot be loaded, ConfigError for settings that do not fit its rows."""
    source = await _rows_of(table, "train", config, executor)
    rates = read_pass_rates(Path(table.pass_rates), source.rows) if table.pass_rates else {}
    return replace(source, weight=table.weight, max_retries=table.max_retries, pools=table.pools, pass_rates=rates)


async def evaluation_of(table: EvalTable, config: TrainConfig, executor: RolloutExecutor) -> Evaluation:
    return Evaluation(await _rows_of(table, "eval", config, executor), table.every, table.at_start)


async def _rows_of(
    table: EnvTable | EvalTable, split: Literal["train", "eval"], config: TrainConfig, executor: RolloutExecutor
) -> Source:
    spec = spec_of(table)
    found = await executor.rows(spec, RowsRequest(split=split, n=table.examples))
    return Source(
        name=table.label,
        spec=spec,
        rows=found.rows,
        scored_together=found.scored_together,
        model=config.inference.model,
        tries=table.tries,
        sampling=table.sampling,
        rollout_timeout_s=table.timeout_s,
    )


def spec_of(table: EnvTable | EvalTable) -> EnvSpec:
    """Of the interpreter that the table names, or of the one that was made for the environment alone."""
    python = table.python
    if python is None and (isolated := isolated_for(table.id)) is not None:
        python = str(isolated.program)
    keys = table.keys if table.keys is not None else list(declared(table.id, "required_keys")[1] or ())
    version = table.version if isinstance(table, EnvTable) else None
    return EnvSpec(
        env_id=table.id, env_args=table.args, settings=table.settings, version=version, python=python, keys=keys
    )


class _PassRate(msgspec.Struct):
    """One example as a hub tells of it (`GET …/pass-rates`)."""

    example_id: int
    pass_rate: float | None = None


class _PassRates(msgspec.Struct):
    examples: list[_PassRate]


def read_pass_rates(path: Path, rows: Sequence[Mapping[str, Any]]) -> Mapping[int, float]:
    """How often an earlier model solved each example, as `vf hub pass-rates` saves it.

    Raises ConfigError for a file that is none, and for one that tells of none of the rows.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_PassRates)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"pass_rates: {path} cannot be read: {error}") from None
    known = {row["example_id"] for row in rows}
    rates = {e.example_id: e.pass_rate for e in found.examples if e.pass_rate is not None and e.example_id in known}
    if not rates:
        raise ConfigError(f"pass_rates: {path} has a rate for none of the {len(rows)} examples to train on")
    return rates


class Rollouts:
    """Every rollout of a run, a record a line; what an earlier part of the run has left is kept."""

    def __init__(self, path: Path) -> None:
        self._file = LineFile(path)
        self._file.cut_torn_line()

    def add(self, group: RolloutGroup, end: End) -> None:
        for rollout in group.rollouts:
            self._file.append(encode_record(msgspec.structs.replace(rollout.record, group_id=group.group_id)))

    def close(self) -> None:
        self._file.close()
