"""A `TrainConfig` as verl's ppo trainer takes it: Hydra overrides, and the file of agent loops. After verl 0.9.1.

Three files are written; the run is then `xargs -d '\\n' python -m verl.trainer.main_ppo < overrides.txt`. Rollouts have
GPUs of their own there, and go on while it trains (`trainer.v1.trainer_mode=separate_async`).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from verifiers.adapters.left_out import left_out, shared
from verifiers.errors import ConfigError
from verifiers.rl.train_config import EnvTable, EvalTable, TrainConfig
from verifiers.rl.trainer.config import CrossEntropy, MaskedImportanceSampling

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_ADVANTAGE = {"mean": "grpo", "leave_one_out": "rloo", "length_weighted": "opo"}
_SAMPLING = ("temperature", "top_p", "top_k")
_PROMPT_SHARE = 16  # a prompt gets one part in so many of a sequence, all turns after it the others

_SAID = (
    *("run", "steps", "seed", "model.path", "model.compute", "model.*activation*", "env.id", "env.args", "env.name"),
    *("env.tries", "env.max_retries", "eval.id", "eval.args", "eval.name", "eval.tries", "eval.every", "eval.at_start"),
    *("schedule.groups_per_step", "schedule.max_off_policy_steps", "samples.seq_len", "samples.baseline"),
    *("samples.skip_trivial", "loss.*", "optim.lr", "optim.weight_decay", "optim.betas", "optim.eps", "optim.decay*"),
    *("optim.warmup_steps", "optim.min_factor", "optim.max_grad_norm", "trainer.ranks", "trainer.checkpoint_every"),
    *("trainer.keep_checkpoints", "inference.servers", "inference.launch.count", "inference.launch.tensor_parallel"),
    *("env.sampling", "eval.sampling", "schedule.seed"),
)
_WHY = {
    "env.weight": "verl draws lines of the dataset: write as many of each environment as its share asks for",
    "eval.examples": "write so many lines into the dataset of evaluation",
    "samples.truncated": "an agent loop's rollout is trained as it is; its mask is the environment's",
    "schedule.max_in_flight": "verl has as many in flight as its async mode asks for",
    "weights.*": "verl sends weights by its own checkpoint engine, here NCCL",
    "executor.*": "environments run in verl's agent loop workers, on its Ray cluster",
    "inference.*": "verl starts its own engines",
}


@dataclass(frozen=True)
class VerlRun:
    overrides: dict[str, Any]  # by dotted name
    agents: list[dict[str, Any]]  # of `agent_loop_config_path`; a line of the dataset names one
    left_out: list[str]

    def lines(self) -> list[str]:
        """One override a line, as Hydra reads it."""
        return [f"{name}={_hydra(value)}" for name, value in self.overrides.items()]

    def write(self, folder: Path) -> list[Path]:
        """`overrides.txt`, `agents.yaml` and `left_out.txt`. JSON is YAML, and needs no library for it."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            "overrides.txt": "\n".join(self.lines()),
            "agents.yaml": json.dumps(self.agents, indent=2),
            "left_out.txt": "\n".join(self.left_out),
        }
        for name, text in texts.items():
            (folder / name).write_text(text + "\n", "utf-8")
        return [folder / name for name in texts]


def verl_run(config: TrainConfig, folder: Path) -> VerlRun:
    """The run for verl, whose files will lie in `folder`. Raises ConfigError for a loss that verl has not got."""
    notes: list[str] = []
    folder = folder.resolve()
    found: dict[str, Any] = {
        **_data(config, folder, notes),
        **_model(config, notes),
        **_optimiser(config, notes),
        **_loss(config, notes),
        **_rollouts(config, folder, notes),
        **_steps(config, notes),
    }
    agents = [
        *(_agent(table, "train") | {"max_retries": table.max_retries} for table in config.env),
        *(_agent(table, "eval") for table in config.eval),
    ]
    return VerlRun(found, agents, notes + left_out(config, _SAID, _WHY))


def _agent(table: EnvTable | EvalTable, split: str) -> dict[str, Any]:
    target = "verifiers.adapters.verl.EnvironmentAgentLoop"
    return {"name": table.label, "_target_": target, "env": table.id, "env_args": table.args, "split": split}


def _data(config: TrainConfig, folder: Path, notes: list[str]) -> dict[str, Any]:
    length = cast(int, config.samples.seq_len)
    prompt = max(1, length // _PROMPT_SHARE)
    notes += [
        f"samples.seq_len: prompts get {prompt} tokens of {length}, for verl divides a sequence; change both as needed",
        "the datasets: write train.parquet and eval.parquet with `rows` of verifiers.adapters.verl, one agent a line",
    ]
    return {
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / "eval.parquet"),
        "data.train_batch_size": config.schedule.groups_per_step,
        "data.max_prompt_length": prompt,
        "data.max_response_length": length - prompt,
        "data.filter_overlong_prompts": True,
        "data.seed": config.seed,
    }


def _model(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    model = config.model
    if model.fp32_head and model.compute != "float32":
        notes.append(f"model.fp32_head: the head computes in {model.compute} too")
    return {
        "actor_rollout_ref.model.path": model.path,
        "actor_rollout_ref.model.enable_gradient_checkpointing": model.activation_checkpointing,
        "actor_rollout_ref.model.enable_activation_offload": model.offload_activations,
        "actor_rollout_ref.model.use_remove_padding": True,
        f"{_ACTOR}.strategy": "fsdp2",
        f"{_ACTOR}.fsdp_config.model_dtype": "fp32",
        f"{_ACTOR}.fsdp_config.dtype": model.compute,
        f"{_ACTOR}.fsdp_config.seed": config.seed,
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": config.samples.seq_len,
        f"{_ACTOR}.ppo_mini_batch_size": config.schedule.groups_per_step,
        f"{_ACTOR}.ppo_epochs": 1,
    }


def _optimiser(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    optim = config.optim
    if optim.muon:
        notes.append("optim.muon: AdamW for all; verl has one optimiser for every parameter, and Muon is for matrices")
    if optim.decay == "linear":
        notes.append("optim.decay = 'linear': a constant learning rate; there are 'constant' and 'cosine'")
    if optim.decay == "cosine" and optim.warmup_steps + optim.decay_steps != config.steps:
        notes.append(f"optim.decay_steps = {optim.decay_steps}: to the last step, as verl's cosine always goes")
    clip = optim.max_grad_norm or 1e9  # 0 is no clipping here, and a gradient of 0 there
    return {
        f"{_ACTOR}.optim.optimizer": "AdamW",
        f"{_ACTOR}.optim.lr": optim.lr,
        f"{_ACTOR}.optim.weight_decay": optim.weight_decay,
        f"{_ACTOR}.optim.betas": list(optim.betas),
        f"{_ACTOR}.optim.override_optimizer_config": {"eps": optim.eps},
        f"{_ACTOR}.optim.clip_grad": clip,
        f"{_ACTOR}.optim.lr_warmup_steps": optim.warmup_steps,
        f"{_ACTOR}.optim.lr_scheduler_type": "cosine" if optim.decay == "cosine" else "constant",
        f"{_ACTOR}.optim.min_lr_ratio": optim.min_factor,
    }


def _loss(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    loss = config.loss
    if isinstance(loss, CrossEntropy):
        raise ConfigError("loss.type: 'cross_entropy'; verl's ppo trainer has no supervised loss, its sft trainer has")
    found: dict[str, Any] = {
        "algorithm.adv_estimator": _ADVANTAGE[config.samples.baseline],
        "algorithm.norm_adv_by_std_in_grpo": False,
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": config.samples.skip_trivial,
        f"{_ACTOR}.use_kl_loss": False,
        f"{_ACTOR}.entropy_coeff": 0,
    }
    if isinstance(loss, MaskedImportanceSampling):
        notes += [
            f"loss.drop_below = {loss.drop_below}: a rollout is dropped for a ratio above "
            f"{1 / loss.drop_below:g} too, for verl's filter of the worst token, 0.5 × (log ratio)², knows no sign",
        ]
        return found | {
            f"{_ACTOR}.loss_agg_mode": "token-mean",
            "algorithm.rollout_correction.bypass_mode": True,  # the ratio is trainer / inference, nothing between
            "algorithm.rollout_correction.loss_type": "reinforce",
            "algorithm.rollout_correction.rollout_is": "token",
            "algorithm.rollout_correction.rollout_is_threshold": f"{loss.low}_{loss.high}",  # outside: weight 0
            "algorithm.rollout_correction.rollout_rs": "seq_max_k2",
            "algorithm.rollout_correction.rollout_rs_threshold": 0.5 * math.log(loss.drop_below) ** 2,
        }
    notes.append(f"loss.max_ratio = {loss.max_ratio}: verl's GSPO bounds a ratio by its clipping alone")
    return found | {
        f"{_ACTOR}.loss_agg_mode": "seq-mean-token-mean",
        f"{_ACTOR}.policy_loss.loss_mode": "gspo",
        f"{_ACTOR}.clip_ratio_low": loss.clip_low,
        f"{_ACTOR}.clip_ratio_high": loss.clip_high,
    }


def _rollouts(config: TrainConfig, folder: Path, notes: list[str]) -> dict[str, Any]:
    launch = config.inference.launch
    parallel = launch.tensor_parallel if launch else 1
    gpus = parallel * launch.count if launch else len(config.inference.servers)
    notes.append(f"inference: {gpus} GPUs on a node of their own for verl's vLLM engines; change it to what there is")
    tries = shared("env.tries", [table.tries for table in config.env], notes)
    sampling = _sampling("env.sampling", [table.sampling for table in config.env], notes)
    evals = _sampling("eval.sampling", [table.sampling for table in config.eval] or [{}], notes)
    eval_tries = shared("eval.tries", [table.tries for table in config.eval] or [1], notes)
    return {
        "actor_rollout_ref.hybrid_engine": False,
        f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.n": tries,
        f"{_ROLLOUT}.nnodes": 1,
        f"{_ROLLOUT}.n_gpus_per_node": gpus,
        f"{_ROLLOUT}.tensor_model_parallel_size": parallel,
        f"{_ROLLOUT}.max_model_len": config.samples.seq_len,
        f"{_ROLLOUT}.calculate_log_probs": True,
        f"{_ROLLOUT}.checkpoint_engine.backend": "nccl",
        f"{_ROLLOUT}.agent.agent_loop_config_path": str(folder / "agents.yaml"),
        f"{_ROLLOUT}.agent.default_agent_loop": config.env[0].label,
        f"{_ROLLOUT}.val_kwargs.n": eval_tries,
        f"{_ROLLOUT}.val_kwargs.do_sample": True,
        **{f"{_ROLLOUT}.{name}": value for name, value in sampling.items()},
        **{f"{_ROLLOUT}.val_kwargs.{name}": value for name, value in evals.items()},
    }


def _sampling(name: str, tables: list[dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    given = shared(name, tables, notes)
    notes += [f"{name}.{key} = {given[key]!r}: no counterpart" for key in given if key not in _SAMPLING]
    return {"temperature": 1.0} | {key: given[key] for key in _SAMPLING if key in given}


def _steps(config: TrainConfig, notes: list[str]) -> dict[str, Any]:
    every = shared("eval.every", [table.every for table in config.eval] or [-1], notes)
    return {
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": config.trainer.ranks,
        "trainer.total_training_steps": config.steps,
        "trainer.total_epochs": config.steps,  # an epoch has a step at least, so that steps end the run
        "trainer.save_freq": config.trainer.checkpoint_every,
        "trainer.max_actor_ckpt_to_keep": config.trainer.keep_checkpoints,
        "trainer.default_local_dir": str(config.folder / "checkpoints"),
        "trainer.test_freq": every,
        "trainer.val_before_train": any(table.at_start for table in config.eval),
        "trainer.project_name": "verifiers",
        "trainer.experiment_name": config.folder.name,
        "trainer.logger": ["console"],
        "trainer.v1.trainer_mode": "separate_async",
        "trainer.v1.separate_async.parameter_sync_step": 1,
        "trainer.v1.sampler.max_off_policy_threshold": config.schedule.max_off_policy_steps,
    }


def _hydra(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_hydra(one)}" for key, one in cast(dict[str, Any], value).items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_hydra, cast(list[Any], value))) + "]"
    if isinstance(value, str):  # in quotes always: Hydra takes 0.5_5.0 for a number
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return json.dumps(value)
