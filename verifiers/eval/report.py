"""What is said when a run has ended: the table, where it is saved, what to do next, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifiers.errors import AuthenticationError, ModelNotFoundError, SetupError, one_line
from verifiers.eval import wording
from verifiers.eval.config import EvalConfig
from verifiers.eval.display import terminal_width
from verifiers.eval.endpoints import ModelChoice
from verifiers.eval.interrupts import INTERRUPTED
from verifiers.eval.summary import failed_share, one_reason, render

if TYPE_CHECKING:
    from verifiers.results import RunConfig
    from verifiers.run import Run

DONE, FAILED, SET_UP = 0, 1, 3


@dataclass(frozen=True)
class Outcome:
    """How one evaluation ended."""

    code: int
    metadata: dict[str, Any] = field(default_factory=dict)  # that of the saved run; empty when nothing was run
    table: str = ""  # for standard output
    error: str = ""  # why nothing was run, or why the run had to end

    @property
    def as_json(self) -> dict[str, Any]:
        return self.metadata or {"error": self.error}


def title_of(config: EvalConfig, run: RunConfig) -> str:
    """One line: what runs on what."""
    env = run.env.name if run.env.version is None else f"{run.env.name} {run.env.version}"
    where = run.base_url.split("://", 1)[-1].removesuffix("/v1")
    parts = [
        env,
        f"{run.model} @ {where}",
        f"{_n(run.num_examples, 'example', 'examples')} × {_n(run.rollouts_per_example, 'try', 'tries')}",
    ]
    if config.temperature is not None:
        parts.append(f"temperature {config.temperature:g}")
    if config.seed:
        parts.append(f"seed {config.seed}")
    return " · ".join(parts)


def _n(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def report(
    run: Run,
    folder: Path,
    metadata: dict[str, Any],
    choice: ModelChoice,
    config: EvalConfig,
    title: str,
    again: str | None,
    say: Callable[[str], None],
    spent: str | None = None,
) -> Outcome:
    """Says what went wrong, and returns the outcome. `again` is the command that goes on with the run in `folder`;
    a suite has none for each. `spent` is the limit that ended it."""
    width = max(80, terminal_width())
    table = render(metadata, title=title, abbreviated=config.abbreviated_summary, width=width)
    table = f"\n{table}\n\nsaved          {folder}"
    if run.fatal is not None:
        error = _fatal(run.fatal, choice)
        say(f"error: {error}")
        if metadata["n_finished"] and again:
            say(f"{metadata['n_finished']} of {run.total} rollouts are saved. Mended? Go on with:\n  {again}")
        return Outcome(SET_UP, metadata, table if metadata["n_scored"] else "", error)
    if spent is not None and metadata["n_finished"] < run.total:
        say(
            f"stopped: {spent}; {metadata['n_finished']} of {run.total} rollouts are saved"
            + (f". Go on, with as much again, by:\n  {again}" if again else "")
        )
        return Outcome(FAILED, metadata, table if metadata["n_finished"] else "")
    if run.stopped and metadata["n_finished"] < run.total:
        say(
            f"interrupted: {metadata['n_finished']} of {run.total} rollouts are saved"
            + (f". Go on with:\n  {again}" if again else "")
        )
        return Outcome(INTERRUPTED, metadata, table if metadata["n_finished"] else "")
    if metadata["n_failed"]:
        say(_failures(metadata, config))
        if metadata["counts"].get("failed") and again:
            say(f"Run the failed ones again with:\n  {again}")
    code = FAILED if failed_share(metadata) > config.max_failed else DONE
    return Outcome(code, metadata, table if config.abbreviated_summary else f"{table}\n{_next(choice, config)}")


def _fatal(error: BaseException, choice: ModelChoice) -> str:
    """What ended the whole run, on one line."""
    said = wording.cut(str(error), 300).rstrip(".")
    if isinstance(error, AuthenticationError):
        has_key = any(replica.key() for replica in choice.replicas)
        return (
            f"{said}. Check the key, or name another by -k" if has_key else f"{said}. No key was sent: name one by -k"
        )
    if isinstance(error, ModelNotFoundError):
        return f"{said}. Name another by -m"
    # a SetupError is a disk that is full
    return str(error) if isinstance(error, SetupError) else one_line(error)


def _failures(metadata: dict[str, Any], config: EvalConfig) -> str:
    reason = one_reason(metadata)
    if reason is not None:
        return f"error: {reason}"
    allowed = f" (allowed: {config.max_failed:.0%})" if config.max_failed else ""
    return f"{metadata['n_failed']} of {metadata['n_total']} rollouts have no score{allowed}"


def _next(choice: ModelChoice, config: EvalConfig) -> str:
    if choice.is_local:
        other, any_server = "OPENAI_API_KEY=… vf-eval {0} -m gpt-4.1-mini", "vf-eval {0} -m NAME -b URL"
        lines = f"next           another model: {other}\n               any server:    {any_server}"
        return lines.format(config.env_id)
    return f"next           surer numbers: vf-eval {config.env_id} … -n 100 -r 4"
