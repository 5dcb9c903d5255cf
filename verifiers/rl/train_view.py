"""`TrainView`: what people see of a training run: where it is, reward, lengths, ages, throughput, mismatch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from verifiers.eval import wording
from verifiers.rl.metric_log import MetricLog, StepMetrics
from verifiers.rl.train_config import TrainConfig

_BARS = "▁▂▃▄▅▆▇█"
KEPT = 60  # steps of which the curve is drawn


class TrainView:
    """Shown by `eval.display.shown`. `stepped` is told of each step; the trainer's figures are read from its file."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        names = ", ".join(table.label for table in config.env)
        self.title = f"training {Path(config.model.path).name} on {names} · {config.run}"
        self.began = time.monotonic()
        self._steps: deque[tuple[int, Mapping[str, float]]] = deque(maxlen=KEPT)
        for line in MetricLog(config.folder / "orchestrator.jsonl").read()[-KEPT:]:
            self._steps.append((line.step, _finite(line)))
        self._first: int | None = None
        self._trainer = _Tail(config.folder / "trainer.jsonl")
        self._evaluations = _Tail(config.folder / "evaluations.jsonl")

    def stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        self._first = step if self._first is None else self._first
        self._steps.append((step, metrics))

    def opening(self) -> str:
        return f"{self.title} · {self._done()} of {self.config.steps} steps done"

    def lines(self, width: int, height: int) -> list[str]:
        found = [self.title, self._progress(width), self._reward(width), self._rollouts(), self._training()]
        found += [line for line in (self._held_out(),) if line]
        return [wording.cut(line, width) for line in found[: max(1, height)]]

    def plain(self) -> str:
        parts = [f"step {self._done()}/{self.config.steps}", self._rate(), self._reward(0), self._rollouts()]
        parts += [self._training(), self._held_out()]
        return wording.cut(" · ".join(part for part in parts if part), 400)

    def _done(self) -> int:
        return self._steps[-1][0] + 1 if self._steps else 0

    def _progress(self, width: int) -> str:
        done, all_steps = self._done(), self.config.steps
        text = f"  {done}/{all_steps} steps  {self._rate()}"
        room = max(8, min(40, width - len(text) - 1))
        full = round(room * done / all_steps)
        return "█" * full + "░" * (room - full) + text

    def _rate(self) -> str:
        gone = time.monotonic() - self.began
        text = f"{wording.duration(gone)} gone"
        made = 0 if self._first is None else self._done() - self._first
        if made > 1:
            text += f", ~{wording.duration(gone / made * (self.config.steps - self._done()))} left"
        return text

    def _reward(self, width: int) -> str:
        if not self._steps:
            return "reward –  no batch yet: rollouts of the first are being made"
        rewards = [metrics["reward/mean"] for _, metrics in self._steps if "reward/mean" in metrics]
        recent = rewards[-10:]
        text = f"reward {rewards[-1]:.3f}, mean of {len(recent)} steps {sum(recent) / len(recent):.3f}"
        return f"{text}  {_curve(rewards[-max(0, min(KEPT, width - len(text) - 3)) :])}" if width else text

    def _rollouts(self) -> str:
        if not self._steps:
            return ""
        last = self._steps[-1][1]
        parts = [
            f"{last.get('batch/trained_tokens_per_rollout', 0.0):.0f} tokens a rollout",
            f"{last.get('batch/truncated', 0.0):.0%} cut off",
            f"age {last.get('off_policy/mean', 0.0):.1f} (most {last.get('off_policy/max', 0.0):.0f}) versions",
            f"{last.get('run/in_flight', 0.0):.0f} in flight",
        ]
        dropped = sum(last.get(f"run/{end}", 0.0) for end in ("stale", "stalled", "broken", "expired"))
        return " · ".join([*parts, f"{dropped:.0f} groups dropped"] if dropped else parts)

    def _training(self) -> str:
        last = self._trainer.last()
        if last is None:
            return ""
        parts = [f"version {last.step + 1}"]
        found = _finite(last)
        if "mismatch_kl" in found:
            parts.append(f"mismatch KL {found['mismatch_kl']:.2e}")
        masked = found.get("share_masked_low", 0.0) + found.get("share_masked_high", 0.0)
        if masked:
            parts.append(f"masked {masked:.2%}")
        if "grad_norm" in found:
            parts.append(f"gradient {found['grad_norm']:.2g}")
        if seconds := found.get("step_s"):
            parts.append(f"{found.get('tokens_per_s', 0.0):,.0f} tokens/s, {seconds:.1f} s a step")
        return " · ".join(parts)

    def _held_out(self) -> str:
        last = self._evaluations.last()
        if last is None:
            return ""
        rewards = [f"{n.removeprefix('reward/')} {v:.3f}" for n, v in _finite(last).items() if n.startswith("reward/")]
        return f"held out at version {last.step}: {', '.join(rewards)}"


class _Tail:
    """The last line of a log that another process writes, read again when the file has grown."""

    def __init__(self, path: Path) -> None:
        self._log, self._size = MetricLog(path), -1
        self._last: StepMetrics | None = None

    def last(self) -> StepMetrics | None:
        try:
            size = self._log.path.stat().st_size
        except OSError:
            return None
        if size != self._size:
            self._size = size
            self._last = next(reversed(self._log.read()), None)
        return self._last


def _finite(line: StepMetrics) -> dict[str, float]:
    return {name: value for name, value in line.metrics.items() if value is not None}


def _curve(values: list[float]) -> str:
    """A bar a value, from the least to the greatest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in values)
