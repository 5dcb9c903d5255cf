"""A `TrainConfig` as prime-rl took it at the time of the INTELLECT-3 report: the files of its three programs.

Field names are those of its version whose orchestrator has `env_mix` (late 2025). Later versions have others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tomlkit

from verifiers.adapters.left_out import left_out, shared
from verifiers.errors import ConfigError
from verifiers.rl.train_config import EvalTable, TrainConfig
from verifiers.rl.trainer.config import CrossEntropy, MaskedImportanceSampling

_SAMPLING = ("temperature", "repetition_penalty", "max_tokens", "min_tokens", "seed")
_SAID = (
    *("run", "steps", "seed", "model.path", "model.compute", "model.*activation*", "env.id", "env.args", "env.name"),
    *(
        "env.weight",
        "env.tries",
        "env.sampling",
        "eval.id",
        "eval.args",
        "eval.name",
        "eval.tries",
        "eval.every",
        "eval.examples",
    ),
    *("eval.at_start", "eval.sampling", "schedule.groups_per_step", "schedule.max_in_flight", "schedule.max_off_*"),
    *("schedule.max_async_level", "schedule.seed", "samples.seq_len", "samples.truncated", "samples.baseline"),
    *("samples.skip_trivial", "loss.*", "optim.lr", "optim.weight_decay", "optim.betas", "optim.muon", "optim.decay*"),
    *("optim.warmup_steps", "optim.min_factor", "optim.max_grad_norm", "trainer.ranks", "trainer.checkpoint_every"),
    *("trainer.keep_checkpoints", "weights.*", "inference.servers", "inference.launch.*"),
)
_WHY = {
    "env.max_retries": "a rollout that fails is not tried again there",
    "executor.*": "environments run in the orchestrator's process",
}


@dataclass(frozen=True)
class PrimeRun:
    files: dict[str, dict[str, Any]]  # of `trainer`, `orchestrator` and `inference`
    left_out: list[str]

    def write(self, folder: Path) -> list[Path]:
        """`trainer.toml`, `orchestrator.toml`, `inference.toml` and `left_out.txt`."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {f"{name}.toml": tomlkit.dumps(table) for name, table in self.files.items()}
        texts["left_out.txt"] = "\n".join(self.left_out) + "\n"
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
        return [folder / name for name in texts]


def prime_run(config: TrainConfig) -> PrimeRun:
    """The run for prime-rl. Raises ConfigError for a loss that its RL trainer has not got."""
    notes: list[str] = []
    both: dict[str, Any] = {
        "max_steps": config.steps,
        "max_async_level": config.schedule.max_async_level,
        "output_dir": config.run,
        "ckpt": {"interval": config.trainer.checkpoint_every, "keep": config.trainer.keep_checkpoints},
        "weight_broadcast": _broadcast(config, notes),
    }
    trainer = both | _trainer(config, notes)
    if both["weight_broadcast"]["type"] == "nccl":
        trainer["weight_broadcast"] = both["weight_broadcast"] | {"inference_world_size": _gpus(config, notes)}
    files = {
        "trainer": trainer,
        "orchestrator": both | _orchestrator(config, notes),
        "inference": _inference(config, notes),
    }
    return PrimeRun(files, notes + left_out(config, _SAID, _WHY))


def _broadcast(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    way = config.weights
    if way.way == "gloo":
        notes.append("weights.way = 'gloo': a folder, with all its options; there are 'filesystem' and 'nccl'")
    if way.way != "nccl":
        return {"type": "filesystem"}
    if config.schedule.max_async_level != 1:
        raise ConfigError(
            f"weights.way: 'nccl' with schedule.max_async_level = {config.schedule.max_async_level}; prime-rl takes "
            "NCCL at level 1 only: set that, or weights.way = 'folder'"
        )
    return {"type": "nccl", "host": way.host, "timeout": int(way.timeout_s)}


def _gpus(config: TrainConfig, notes: list[str]) -> int:
    launch = config.inference.launch
    if launch:
        return launch.count * launch.tensor_parallel
    notes.append("inference.servers: one GPU each; if not so, change `inference_world_size` of the trainer")
    return len(config.inference.servers)


def _trainer(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    model: dict[str, Any] = {"name": config.model.path}
    if config.model.activation_checkpointing:
        model["ac"] = {"freq": 1}
    if config.model.offload_activations:
        notes.append("model.offload_activations: where [model] has `ac_offloading`, which came about then")
    if config.model.fp32_head:
        notes.append("model.fp32_head: no setting of its own")
    if config.model.compute != "bfloat16":
        notes.append(f"model.compute = {config.model.compute!r}: its trainer computes in bfloat16")
    return {
        "model": model,
        "loss": _loss(config, notes),
        "optim": _optimiser(config, notes),
        "scheduler": _scheduler(config, notes),
    }


def _loss(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    loss = config.loss
    if isinstance(loss, CrossEntropy):
        raise ConfigError("loss.type: 'cross_entropy'; prime-rl has no supervised loss for RL; see its sft trainer")
    if isinstance(loss, MaskedImportanceSampling):
        return {
            "ratio_type": "token",
            "mask_ratio_low": loss.low,
            "mask_ratio_high": loss.high,
            "sequence_mask_ratio_low": loss.drop_below,
        }
    notes.append("loss: the ratio of a sequence, masked and not clipped: nearest to GSPO there, and not GSPO")
    return {
        "ratio_type": "sequence",
        "ratio_length_norm": True,
        "mask_ratio_low": 1 - loss.clip_low,
        "mask_ratio_high": 1 + loss.clip_high,
    }


def _optimiser(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    optim = config.optim
    if optim.muon:
        notes.append("optim.momentum: Muon's is fixed there")
    return {
        "type": "muon" if optim.muon else "adamw",
        "lr": optim.lr,
        "weight_decay": optim.weight_decay,
        "max_norm": optim.max_grad_norm or 1e9,  # 0 is no clipping here, and a gradient of 0 there
        "betas1": optim.betas[0],
        "betas2": optim.betas[1],
    }


def _scheduler(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    optim = config.optim
    if optim.decay == "constant":
        if optim.warmup_steps:
            notes.append(f"optim.warmup_steps = {optim.warmup_steps}: a constant learning rate has no warm-up there")
        return {"type": "constant"}
    found = {"type": optim.decay, "warmup_steps": optim.warmup_steps, "min_lr": optim.lr * optim.min_factor}
    if optim.decay == "linear":
        notes.append("optim.decay: its linear decay is over the last steps of the run")
        return found | {"decay_steps": optim.decay_steps}
    notes.append(f"optim.decay_steps = {optim.decay_steps}: its cosine goes to the last step")
    return found


def _orchestrator(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    schedule, samples = config.schedule, config.samples
    tries = shared("env.tries", [table.tries for table in config.env], notes)
    batch = schedule.groups_per_step * tries
    whole = sum(table.weight for table in config.env)
    sampling = shared("env.sampling", [table.sampling for table in config.env], notes)
    notes += [f"env.sampling.{key} = {sampling[key]!r}: no counterpart" for key in sampling if key not in _SAMPLING]
    if samples.truncated == "drop":
        notes.append("samples.truncated = 'drop': masked, which leaves its reward in the group's mean")
    found: dict[str, Any] = {
        "model": {"name": config.model.path},
        "client": {"base_url": config.inference.servers or _launched(config)},
        "sampling": {"temperature": 1.0} | {key: sampling[key] for key in _SAMPLING if key in sampling},
        "env": [_env(table) for table in config.env],
        "env_mix": {
            "strategy": "interleave",
            "probabilities": [table.weight / whole for table in config.env],
            "seed": config.seed,
        },
        "buffer": {"type": "online-difficulty" if samples.skip_trivial else "simple", "seed": config.seed},
        "advantage": {
            "std_norm": False,
            "leave_one_out": samples.baseline == "leave_one_out",
            "length_weighted_mean": samples.baseline == "length_weighted",
        },
        "batch_size": batch,
        "rollouts_per_example": tries,
        "oversampling_factor": max(1.0, schedule.max_in_flight / batch),
        "seq_len": samples.seq_len,
        "mask_truncated_completions": samples.truncated in ("mask", "drop"),
        "zero_truncated_completions": samples.truncated == "zero",
        "num_train_workers": config.trainer.ranks,
        "max_off_policy_steps": schedule.max_off_policy_steps,
        "seed": config.seed,
    }
    if samples.skip_trivial:
        notes.append("samples.skip_trivial: groups with a mean under 0.01 or over 0.99, which fits rewards in [0, 1]")
    return found | ({"eval": _eval(config, notes)} if config.eval else {})


def _env(table: Any) -> dict[str, Any]:
    return {"id": table.id, "name": table.label} | ({"args": table.args} if table.args else {})


def _eval(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    def row(table: EvalTable) -> dict[str, Any]:
        return _env(table) | {"num_examples": table.examples, "rollouts_per_example": table.tries}

    sampling = shared("eval.sampling", [table.sampling for table in config.eval], notes)
    return {
        "interval": shared("eval.every", [table.every for table in config.eval], notes),
        "eval_base_model": any(table.at_start for table in config.eval),
        "sampling": sampling,
        "env": [row(table) for table in config.eval],
    }


def _inference(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    launch = config.inference.launch
    model: dict[str, Any] = {"name": config.model.path, "max_model_len": config.samples.seq_len}
    port = urlsplit((config.inference.servers or _launched(config))[0]).port or 8000
    found: dict[str, Any] = {
        "server": {"port": port},
        "model": model,
        "weight_broadcast": {"type": "nccl" if config.weights.way == "nccl" else "filesystem"},
    }
    notes.append("inference: one file is one server; start it once for each address of `client.base_url`")
    if launch is None:
        return found
    notes.append("inference.launch: no more than model length, type, tensor parallelism, ports and tool parser")
    model |= {"dtype": launch.dtype, "max_model_len": launch.max_model_len or config.samples.seq_len}
    if launch.tool_parser:
        model |= {"enable_auto_tool_choice": True, "tool_call_parser": launch.tool_parser}
    return found | {"parallel": {"tp": launch.tensor_parallel}}


def _launched(config: TrainConfig) -> list[str]:
    launch = config.inference.launch
    return [f"http://127.0.0.1:{launch.port + one}/v1" for one in range(launch.count)] if launch else []
