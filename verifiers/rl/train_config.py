"""`TrainConfig`: one training run as its TOML file says it. Every mistake in it is told before anything starts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints
from urllib.parse import urlsplit

import msgspec

from verifiers.errors import ConfigError
from verifiers.executor import ExecutorName
from verifiers.refs import near
from verifiers.rl.inference import Routing
from verifiers.rl.pools import PoolSettings
from verifiers.rl.sample_policy import SamplePolicy
from verifiers.rl.schedule_settings import ScheduleSettings
from verifiers.rl.trainer.config import (
    LossConfig,
    MaskedImportanceSampling,
    ModelConfig,
    OptimConfig,
    Precision,
    TrainerConfig,
)

WeightWay = Literal["folder", "gloo", "nccl"]
_HERE = ("127.0.0.1", "localhost", "::1")


class EnvTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[env]]`: an environment to train on."""

    id: str
    args: dict[str, Any] = {}
    name: str | None = None  # in metrics and logs; None: the id
    weight: float = 1.0  # its part of all groups
    tries: int = 8  # of an example: the size of a group
    sampling: dict[str, Any] = {}
    settings: dict[str, Any] = {}  # for its set_kwargs, such as max_seq_len
    examples: int = -1  # the first so many of its training rows; -1: all
    max_retries: int = 0  # of a rollout, after failures that another try may not meet
    timeout_s: float | None = None  # of a rollout
    version: str | None = None  # that must be installed
    python: str | None = None  # the interpreter that has it; None: its isolated one, or this one
    keys: list[str] | None = None  # environment variables that it may read; None: what it declares
    pass_rates: str | None = None  # file of an earlier model's pass rates, as a hub gives them
    pools: PoolSettings = PoolSettings()

    @property
    def label(self) -> str:
        return self.name or self.id


class EvalTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[eval]]`: held-out rows of an environment, rolled out now and then."""

    id: str
    every: int  # policy versions
    args: dict[str, Any] = {}
    name: str | None = None
    examples: int = 100
    tries: int = 1
    sampling: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    at_start: bool = True
    timeout_s: float | None = None
    python: str | None = None
    keys: list[str] | None = None

    @property
    def label(self) -> str:
        return self.name or f"{self.id}-eval"


class LaunchTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[inference.launch]`: vLLM servers on this machine, started and ended with the run."""

    python: str  # of the virtual environment that has vLLM
    count: int = 1
    port: int = 8000  # of the first; the others follow
    devices: list[str] = []  # CUDA_VISIBLE_DEVICES of each server; empty: as it is here
    cpu: bool = False
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    tensor_parallel: int = 1
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    suffix_decoding: str | None = None  # the version of vLLM, to switch it on; None: off
    extra: list[str] = []  # more arguments of vLLM


class InferenceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    servers: list[str] = []  # base URLs, of servers that run already
    launch: LaunchTable | None = None
    model: str = "policy"  # the name that requests give it
    routing: Routing = "least_loaded"
    start_wait_s: float = 900.0  # for servers that are loading


class TrainerTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ranks: int = 1  # processes on this machine, one a GPU
    device: str | None = None  # "cpu" or "cuda"; None: a GPU where there is one
    devices: str | None = None  # its CUDA_VISIBLE_DEVICES; None: as it is here
    python: str | None = None  # an interpreter with torch; None: this one
    checkpoint_every: int = 10  # steps
    keep_checkpoints: int = 2
    keep_weights: int = 3  # versions; servers may still be reading the one before the last
    weights_dtype: Precision = "bfloat16"  # that servers are given weights in


class WeightsTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[weights]`: how new weights get from the trainer to the servers. Their type is `trainer.weights_dtype`."""

    way: WeightWay = "folder"  # "gloo", "nccl": the trainer's first rank sends them, tensor by tensor
    host: str = "127.0.0.1"  # of the trainer's first rank, as servers and orchestrator reach it; for gloo and nccl
    timeout_s: float = 300.0  # of one tensor on its way, and of servers to join; for gloo and nccl


class WeightCheckTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[weight_check]`: after each update, servers' log-probabilities beside the trainer's."""

    on_mismatch: Literal["stop", "leave_out", "off"] = "stop"  # the run ends; the server is left out; nobody looks
    max_gap: float = 0.1  # nats, mean of absolute differences; float32 on both sides gives less than 0.001


class ExecutorTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: ExecutorName = "process"
    workers: int | None = None  # None: one a core


class TrainConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    run: str  # folder of the run; what is there already is gone on with
    steps: int
    model: ModelConfig
    env: list[EnvTable]
    schedule: ScheduleSettings
    eval: list[EvalTable] = []
    eval_places: int = 64  # rollouts of evaluations at the same time
    seed: int = 0
    samples: SamplePolicy
    loss: LossConfig = MaskedImportanceSampling()
    optim: OptimConfig = OptimConfig()
    trainer: TrainerTable = TrainerTable()
    weights: WeightsTable = WeightsTable()
    weight_check: WeightCheckTable = WeightCheckTable()
    inference: InferenceTable = InferenceTable()
    executor: ExecutorTable = ExecutorTable()
    save_rollouts: bool = True

    @property
    def folder(self) -> Path:
        return Path(self.run)

    @property
    def of_trainer(self) -> TrainerConfig:
        return TrainerConfig(
            model=self.model,
            loss=self.loss,
            optim=self.optim,
            seed=self.seed,
            keep_checkpoints=self.trainer.keep_checkpoints,
        )


def read_config(path: Path, changes: Mapping[str, Any] | None = None) -> TrainConfig:
    """The run that a file describes; `changes` go over it, by dotted names such as `optim.lr`.

    A relative `run` is relative to the working folder, as are all paths in it. Raises ConfigError naming the field,
    its nearest known one or the value that does not fit.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    for name, value in (changes or {}).items():
        _put(document, name, value)
    _refuse_unknown(document, TrainConfig, str(path))
    document.setdefault("run", f"outputs/train/{path.stem}")
    if isinstance(document.get("schedule"), dict):
        document["schedule"].setdefault("seed", document.get("seed", 0))
    try:
        config = msgspec.convert(document, TrainConfig)
    except msgspec.ValidationError as error:
        cause = error.__cause__
        text, _, place = str(error).partition(" - at ")
        field = place.strip("`").removeprefix("$.").removeprefix("$")
        told = str(cause) if isinstance(cause, ConfigError) else text
        raise ConfigError(f"{path}: {field + ': ' if field and field not in told else ''}{told}") from None
    _check(config, str(path))
    return config


def _put(document: dict[str, Any], name: str, value: Any) -> None:
    *tables, last = name.split(".")
    table = document
    for step in tables:
        table = table.setdefault(step, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{name}: '{step}' is no table")
    table[last] = value


def _refuse_unknown(table: Mapping[str, Any], kind: Any, place: str) -> None:
    """msgspec names an unknown key; this one also says which was meant, in tables of tables too."""
    known = _field_types(kind)
    for key, value in table.items():
        if key not in known:
            close = near(key, [*known])
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(known))}"
            raise ConfigError(f"{place}: unknown key '{key}'; {hint}")
        inner = _table_type(known[key])
        if inner is None:
            continue
        for number, entry in enumerate(value if isinstance(value, list) else [value], 1):
            if isinstance(entry, dict):
                at = f"[[{key}]] {number}" if isinstance(value, list) else f"[{key}]"
                _refuse_unknown(entry, inner, f"{place}, {at}")


def _field_types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    names = [f.name for f in fields(kind)] if is_dataclass(kind) else list(kind.__struct_fields__)
    return {name: hints[name] for name in names}


def _table_type(hint: Any) -> Any:
    """The one table that a value of this type holds, alone or in a list; `None`: no table, or one of several."""
    found = [
        kind
        for kind in (hint, *getattr(hint, "__args__", ()))
        if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or is_dataclass(kind))
    ]
    return found[0] if len(found) == 1 else None


def _check(config: TrainConfig, place: str) -> None:
    wrong: list[str] = []
    if config.steps < 1:
        wrong.append(f"steps: {config.steps}; should be at least 1")
    if not config.env:
        wrong.append("env: there is no [[env]]; name at least one environment to train on")
    labels = [table.label for table in (*config.env, *config.eval)]
    wrong += [
        f"name: '{n}' is given twice; names tell figures apart" for n in {x for x in labels if labels.count(x) > 1}
    ]
    if not Path(config.model.path).is_dir():
        wrong.append(f"model.path: {config.model.path} is no folder; it should hold a model in Hugging Face's layout")
    if bool(config.inference.servers) == (config.inference.launch is not None):
        wrong.append("inference: give either servers = ['http://…/v1'] or a table [inference.launch]")
    launch = config.inference.launch
    if launch is not None and launch.devices and len(launch.devices) != launch.count:
        wrong.append(
            f"inference.launch.devices: {len(launch.devices)} for {launch.count} servers; one for each, or none"
        )
    if config.samples.seq_len is None:
        wrong.append("samples.seq_len: missing; it is the length of a micro-batch, in tokens")
    for table, names in (
        (config.trainer, ("ranks", "checkpoint_every", "keep_checkpoints", "keep_weights")),
        (config.executor, ("workers",)),
    ):
        for name in names:
            value = getattr(table, name)
            if value is not None and value < 1:
                wrong.append(
                    f"{type(table).__name__.removesuffix('Table').lower()}.{name}: {value}; should be at least 1"
                )
    wrong += _wrong_way(config)
    if not config.weight_check.max_gap > 0:
        wrong.append(f"weight_check.max_gap: {config.weight_check.max_gap}; should be above 0")
    most = max((table.tries for table in config.env), default=0)
    if most > config.schedule.max_in_flight:
        wrong.append(f"schedule.max_in_flight: {config.schedule.max_in_flight}; should hold a group of {most} rollouts")
    if wrong:
        raise ConfigError("\n".join(f"{place}: {line}" for line in wrong))


def _wrong_way(config: TrainConfig) -> list[str]:
    """What would keep weights from being sent."""
    weights, launch = config.weights, config.inference.launch
    if weights.way == "folder":
        return []
    wrong: list[str] = []
    if not weights.timeout_s > 0:
        wrong.append(f"weights.timeout_s: {weights.timeout_s}; should be more than 0")
    if weights.way == "nccl":
        on_cpu = [
            name
            for name, is_so in (
                ("trainer.device", config.trainer.device == "cpu"),
                ("inference.launch.cpu", launch is not None and launch.cpu),
            )
            if is_so
        ]
        wrong += [f"{name}: a CPU; weights.way = 'nccl' is between GPUs, 'gloo' goes anywhere" for name in on_cpu]
    away = [url for url in config.inference.servers if urlsplit(url).hostname not in _HERE]
    if away and weights.host in _HERE:
        wrong.append(
            f"weights.host: {weights.host}, which {away[0]} cannot reach; should be the address of the machine of the "
            "trainer's first rank"
        )
    return wrong
