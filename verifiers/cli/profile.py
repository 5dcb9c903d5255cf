"""`vf profile`: where the time of a saved run's rollouts went."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verifiers.cli.install import Debug


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or its results.jsonl.")],
    slowest: Annotated[int, typer.Option("--slowest", "-n", min=0, help="Show so many of the slowest rollouts.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: Debug = False,
) -> None:
    """Shows where the time of a run's rollouts went: queue, model, tools, sandboxes, scoring, and the slowest ones.

    \b
    vf profile outputs/evals/math-env--m/0a1b2c3d

    \b
    Exit code: 0 shown, 2 usage, 3 set-up (no such run).
    """
    import msgspec

    from verifiers.eval.profile import profile
    from verifiers.viewer.runs import run_at

    found = profile(run_at(run).records(), slowest=slowest)
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
        return
    for line in found.lines():
        typer.echo(line)
