#!/usr/bin/env python
"""Does a policy learn as well while its weights change under its rollouts? Two trainings at equal samples, for real.

    python benchmarks/rl_curves.py                     step times at three ratios, curves at 1:3
    python benchmarks/rl_curves.py --json curves.json --require 2.0

Needs the extra `train`. Real are the environment (`reverse-letters`) and its rewards, the orchestrator, samples, packing
and trainer, and the sampling: an engine in this process draws each token from the weights that it has at that moment.
Simulated is the time: a rollout draws a token every so many beats, by a law with a long tail (as in `rl_simulate.py`), a
step of the trainer takes its share of what a batch takes alone, an update stops the engine for a beat. So updates fall
into rollouts, and a reply is made by several versions, each token with the log-probability that its own version gave.

Both runs have the same start, examples, seeds and number of samples a step. Reported at each step: the mean reward of
the batch, the loss, and the chance that the policy answers held-out words rightly, computed and not sampled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "environments" / "reverse_letters"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "train_tiny"))

import torch
from make_start import main as make_start
from reverse_letters import load_environment
from transformers import AutoModelForCausalLM
from virtual_time import virtually

import verifiers as vf
from verifiers.clients import Endpoint
from verifiers.clients.client import ModelRequest
from verifiers.executor.request import EnvSpec, GroupRequest
from verifiers.recording import Origin, record_of
from verifiers.records import EnvInfo, RolloutRecord, TokenTrace, VersionSpan
from verifiers.rl.chat_tokenizer import load_chat_tokenizer
from verifiers.rl.orchestrator import Orchestrator
from verifiers.rl.pack import pack
from verifiers.rl.policy import MemoryFeed
from verifiers.rl.pools import PoolSettings
from verifiers.rl.render import TemplateRenderer
from verifiers.rl.samples import samples_of_group
from verifiers.rl.schedule_settings import ScheduleSettings
from verifiers.rl.source import Source
from verifiers.rl.tally import End
from verifiers.rl.trainer.config import ModelConfig, OptimConfig, TrainerConfig
from verifiers.rl.trainer.trainer import Trainer
from verifiers.rl.transports.memory import MemoryTransport
from verifiers.rl.types import MicroBatch, RolloutGroup
from verifiers.run import rollout_seed
from verifiers.types import AssistantMessage, Response, Usage

TRIES, GROUPS = 8, 12
MEDIAN, SPREAD, LONGEST = 3.0, 0.9, 24  # beats between two tokens of a rollout
BEAT_S = 4.0  # whatever is due at one beat is decoded together
MAX_TOKENS = 8
SAMPLING = {"temperature": 1.0, "max_tokens": MAX_TOKENS}
UPDATE_S = 4.0
SEQ_LEN = 2_048
HELD_OUT = 100  # words
LR = 5e-4
RATIOS = (1, 3, 6)  # train : generate = 1 : so much
CURVES_AT = 3
STEPS_FOR_TIME = 9  # at the other ratios


@dataclass
class Outcome:
    """One training. Lists have an entry a step."""

    step_s: list[float] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)  # chance of the right answer, after the step
    reward: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    mismatch_kl: list[float] = field(default_factory=list)
    age: list[float] = field(default_factory=list)
    rollouts: int = 0
    crossed: int = 0  # rollouts whose tokens come from several versions
    versions: int = 0  # at most, in one rollout
    thrown_away: float = 0.0  # of all groups, for their age

    @property
    def mean_step_s(self) -> float:
        return fmean(self.step_s[len(self.step_s) // 3 :])  # the first steps fill the pipeline, with what is short


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--steps", type=int, default=40, help="at 1:3; at the other ratios a few, for their time")
    asked.add_argument("--ratios", type=int, nargs="+", default=list(RATIOS))
    asked.add_argument("--start", type=Path, help="the model of examples/train_tiny/make_start.py; made when not given")
    asked.add_argument("--json", type=Path, help="all figures, in a file")
    asked.add_argument("--require", type=float, default=0.0, help="at 1:3, at least so many times faster")
    given = asked.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        start = given.start or Path(made)
        if given.start is None:
            make_start(start)
        report = compare(start / "start" / "model", given.steps, given.ratios)
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n")
    faster = report["ratios"].get("3", {}).get("faster", math.inf)
    if faster < given.require:
        raise SystemExit(f"{faster:.2f} times faster at 1:3; at least {given.require:g} are required")


def compare(model: Path, steps: int, ratios: Sequence[int]) -> dict[str, Any]:
    cpu = time.process_time()
    alone_s = training(model, min(steps, STEPS_FOR_TIME), 0.0, is_async=False).mean_step_s
    report: dict[str, Any] = {"steps": steps, "samples_a_step": TRIES * GROUPS, "alone_s": alone_s, "ratios": {}}
    print(f"{TRIES * GROUPS} samples a step; alone a batch is generated in {alone_s:.0f} s")
    for ratio in ratios:
        most = steps if ratio == CURVES_AT else min(steps, STEPS_FOR_TIME)
        slow, fast = (training(model, most, alone_s / ratio, is_async=is_async) for is_async in (False, True))
        faster = slow.mean_step_s / fast.mean_step_s
        report["ratios"][str(ratio)] = {"faster": faster, "synchronous": asdict(slow), "asynchronous": asdict(fast)}
        show(ratio, slow, fast)
    report["cpu_s"] = time.process_time() - cpu
    print(f"{report['cpu_s']:.0f} s CPU")
    return report


def show(ratio: int, slow: Outcome, fast: Outcome) -> None:
    print(
        f"\ntrain : generate = 1 : {ratio}: {slow.mean_step_s:.0f} s a step synchronous, {fast.mean_step_s:.0f} s "
        f"asynchronous, {slow.mean_step_s / fast.mean_step_s:.2f} times faster\n"
        f"asynchronous: {fast.crossed} of {fast.rollouts} rollouts by several versions, by {fast.versions} at most; "
        f"off-policy by {fmean(fast.age):.1f} steps; {100 * fast.thrown_away:.1f} % thrown away for its age; "
        f"synchronous: {slow.crossed} by several",
        flush=True,
    )
    if ratio == CURVES_AT:
        curves(slow, fast)


def curves(slow: Outcome, fast: Outcome) -> None:
    print(f"{'':6}{'held out':>18}{'reward':>18}{'loss':>20}{'mismatch KL':>20}")
    print(f"{'step':6}" + "".join(f"{'sync':>9}{'async':>9}" for _ in range(2)) + f"{'sync':>10}{'async':>10}" * 2)
    names = ("held_out", "reward", "loss", "mismatch_kl")
    for step in range(len(slow.loss)):
        if step % max(1, len(slow.loss) // 12) and step != len(slow.loss) - 1:
            continue
        pairs = [getattr(run, name)[step] for name in names for run in (slow, fast)]
        print(f"{step:<6}" + "".join(f"{v:9.3f}" for v in pairs[:4]) + "".join(f"{v:10.4f}" for v in pairs[4:]))


def training(model: Path, steps: int, train_s: float, *, is_async: bool) -> Outcome:
    return virtually(_training(model, steps, train_s, is_async))


async def _training(model: Path, steps: int, train_s: float, is_async: bool) -> Outcome:
    loop, found = asyncio.get_running_loop(), Outcome()
    env = load_environment()
    renderer = TemplateRenderer(load_chat_tokenizer(model))
    engine = Engine(model, renderer)
    optim = OptimConfig(lr=LR, warmup_steps=3)
    trainer = Trainer.start(TrainerConfig(model=ModelConfig(path=str(model)), optim=optim), device="cpu")
    transport, feed = MemoryTransport(), MemoryFeed()
    exam = Exam(env, renderer)

    def on_step(step: int, metrics: dict[str, float]) -> None:
        found.reward.append(metrics["reward/mean"])
        found.age.append(metrics["off_policy/mean"])
        found.thrown_away = (metrics["run/stale"] + metrics["run/expired"]) / metrics["run/started"]

    def on_group(group: RolloutGroup, end: End) -> None:
        for rollout in group.rollouts:
            versions = len(rollout.record.turns[0].versions)
            found.rollouts += 1
            found.crossed += versions > 1
            found.versions = max(found.versions, versions)

    orchestrator = Orchestrator(
        [
            Source(
                name="reverse-letters",
                spec=EnvSpec(env_id="reverse-letters"),
                rows=env.train_rows(),
                model="policy",
                tries=TRIES,
                scored_together=False,
                sampling=SAMPLING,
                pools=PoolSettings(retire_from=None, max_returns=10**9),
            )
        ],
        executor=InProcess(env, engine),
        policy=engine,
        feed=feed,
        sender=transport,
        samples_of=samples_of_group,
        pack=_packed,
        settings=ScheduleSettings(
            groups_per_step=GROUPS,
            max_in_flight=TRIES * GROUPS,
            max_async_level=1 if is_async else 0,
            max_off_policy_steps=8 if is_async else 0,
            group_timeout_s=None,
        ),
        silence_s=1e9,
        on_step=on_step,
        on_group=on_group,
    )

    async def train() -> None:
        receiver, before_s = transport.receiver(0), 0.0
        for step in range(steps):
            batch = await receiver.receive(step)
            await asyncio.sleep(train_s)
            metrics = trainer.step(batch)
            found.loss.append(metrics["loss"])
            found.mismatch_kl.append(max(0.0, metrics["mismatch_kl"]))  # rounding may put it below
            found.held_out.append(exam.chance(trainer))
            found.step_s.append(loop.time() - before_s)
            before_s = loop.time()
            await receiver.release(step)
            await feed.announce(step + 1, {name: tensor.clone() for name, tensor in trainer.named_weights()})

    trainer_task = asyncio.create_task(train())
    await orchestrator.run(steps)
    await trainer_task
    trainer.close()
    return found


def _packed(samples: Sequence[Any], step: int, metrics: Mapping[str, float]) -> Any:
    return pack(samples, SEQ_LEN, 1, step, metrics=metrics)


class Engine:
    """The policy: one model, which decodes all requests that are due at the same second together.

    Nothing is cached, so that from an update on a reply is continued by what the new weights say of all of it.
    """

    def __init__(self, model: Path, renderer: TemplateRenderer) -> None:
        self.version = 0
        self.renderer = renderer
        self._model: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self._end: int = self._model.generation_config.eos_token_id
        self._due: list[tuple[list[int], float, asyncio.Future[tuple[int, float, int]]]] = []
        self._runs = asyncio.Event()
        self._runs.set()

    # --- as the orchestrator meets it -------------------------------------------------------------------------------

    @contextmanager
    def group(self, problem: str, rollouts: int = 1):
        yield Endpoint("http://127.0.0.1:1/v1")

    def sampling(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return dict(given)

    async def update(self, version: int, source: Mapping[str, Any]) -> None:
        self._runs.clear()
        await asyncio.sleep(UPDATE_S)
        self._model.load_state_dict(source, strict=False)  # a tied head comes once
        self.version = version
        self._runs.set()

    # --- as clients meet it -----------------------------------------------------------------------------------------

    async def reply(self, request: ModelRequest, seed: int) -> Response:
        prompt = list(self.renderer.prompt(request.messages))
        ids: list[int] = []
        logprobs: list[float] = []
        versions: list[int] = []
        pace = _pace(seed)
        while len(ids) < MAX_TOKENS and self._end not in ids:
            token, logprob, version = await self._next(prompt + ids, pace, f"{seed} {len(ids)}")
            ids.append(token)
            logprobs.append(logprob)
            versions.append(version)
        text = self.renderer.chat.decode([token for token in ids if token != self._end])
        return Response(
            AssistantMessage(text),
            finish_reason="stop" if ids[-1] == self._end else "length",
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids), total_tokens=len(prompt) + len(ids)),
            tokens=TokenTrace.of(prompt, ids, logprobs),
            versions=_spans(versions),
            model=request.model,
        )

    async def _next(self, ids: list[int], pace: int, seed: str) -> tuple[int, float, int]:
        loop = asyncio.get_running_loop()
        due_s = (math.floor(loop.time() / BEAT_S + 1e-6) + pace) * BEAT_S
        await asyncio.sleep(due_s - loop.time())
        await self._runs.wait()
        made: asyncio.Future[tuple[int, float, int]] = loop.create_future()
        if not self._due:
            loop.call_soon(self._decode)  # after the others that are due now
        self._due.append((ids, random.Random(seed).random(), made))
        return await made

    @torch.no_grad()
    def _decode(self) -> None:
        due, self._due = self._due, []
        longest = max(len(ids) for ids, _, _ in due)
        padded = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _, _ in due])  # behind: nobody looks there
        last = torch.tensor([len(ids) - 1 for ids, _, _ in due])
        told = self._model(padded).logits[torch.arange(len(due)), last].log_softmax(1)
        drawn = torch.tensor([share for _, share, _ in due], dtype=torch.float64)[:, None]
        tokens = (told.double().exp().cumsum(1) < drawn).sum(1).clamp(max=told.shape[1] - 1)
        chosen = told.gather(1, tokens[:, None]).squeeze(1)
        for (_, _, made), token, logprob in zip(due, tokens.tolist(), chosen.tolist(), strict=True):
            if not made.done():
                made.set_result((token, logprob, self.version))


def _pace(seed: int) -> int:
    drawn = random.Random(f"pace {seed}").lognormvariate(0.0, SPREAD) * MEDIAN
    return min(LONGEST, max(1, round(drawn)))


def _spans(versions: Sequence[int]) -> list[VersionSpan]:
    spans: list[VersionSpan] = []
    for version, tokens in Counter(versions).items():  # they only rise
        start = spans[-1].end if spans else 0
        spans.append(VersionSpan(start, start + tokens, str(version)))
    return spans


class InProcess:
    """An executor: rollouts of the environment, each with a client of its own, which knows the try's seed."""

    def __init__(self, env: vf.Environment, engine: Engine) -> None:
        self._env, self._engine = env, engine
        self._origin = Origin(env=EnvInfo(name="reverse-letters"), sampling=SAMPLING)

    async def run_group(self, request: GroupRequest) -> list[RolloutRecord]:
        numbers = range(request.first_try, request.first_try + request.tries)
        states = await asyncio.gather(*(self._rolled_out(request, number) for number in numbers))
        return [record_of(state, self._origin, rollout_index=number) for number, state in zip(numbers, states)]

    async def _rolled_out(self, request: GroupRequest, number: int) -> vf.State:
        seed = rollout_seed(request.seed, "", request.row["example_id"], number)
        client = SeededClient(self._engine, seed)
        state = await self._env.rollout(request.row, client, request.model, request.sampling)
        await self._env.rubric.score_rollout(state)
        return state

    async def close(self) -> None: ...


class SeededClient:
    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine, self._seed = engine, seed

    async def complete(self, request: ModelRequest) -> Response:
        return await self._engine.reply(request, self._seed)

    async def close(self) -> None: ...

    def status(self) -> str | None:
        return None


class Exam:
    """Held-out words, and the chance that a policy answers them rightly at temperature 1: no luck is in it."""

    def __init__(self, env: vf.Environment, renderer: TemplateRenderer) -> None:
        ids, masks = [], []
        for row in env.eval_rows(HELD_OUT):
            asked = {"role": "user", "content": row["prompt"][-1]["content"]}
            rendered = renderer.render([asked, {"role": "assistant", "content": row["answer"]}])
            ids.append(list(rendered.ids))
            masks.append(list(rendered.mask))
        self._lengths = [len(one) for one in ids]
        total = sum(self._lengths)
        self._text = MicroBatch(
            step=0,
            input_buffer=b"".join(array("i", one).tobytes() for one in ids),
            position_buffer=b"".join(array("i", range(length)).tobytes() for length in self._lengths),
            mask_buffer=b"".join(bytes(mask) for mask in masks),
            advantage_buffer=bytes(4 * total),
            logprob_buffer=bytes(4 * total),
            temperature_buffer=array("f", [1.0] * len(ids)).tobytes(),
            seq_lens=self._lengths,
            rollouts=list(range(len(ids))),
            total_tokens=total,
        )

    def chance(self, trainer: Trainer) -> float:
        logprobs, start, chances = trainer.logprobs(self._text), 0, []
        for length in self._lengths:
            chances.append(math.exp(sum(logprobs[start : start + length])))  # 0 where the mask is
            start += length
        return fmean(chances)


if __name__ == "__main__":
    main()
