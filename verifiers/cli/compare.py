"""`vf compare`: two saved runs in the terminal, and an exit code for a CI job."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from verifiers.cli.install import Debug


def command(
    baseline: Annotated[Path, typer.Argument(metavar="BASELINE", help="A run's folder, or its results.jsonl.")],
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="The run that is held against it.")],
    allow: Annotated[
        float, typer.Option("--allow", min=0.0, help="How much lower the candidate's mean reward may be.")
    ] = 0.0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail unless it is sure (95 %) that it is not lower by more than that.")
    ] = False,
    most: Annotated[int, typer.Option("--examples", "-n", min=0, help="Show so many that changed sides.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: Debug = False,
) -> None:
    """Compares two runs over the examples that both scored: the difference with its interval, and what changed sides.

    Examples are matched by id and count once each, however many tries they had. `vf view BASELINE CANDIDATE` shows the
    same with the conversations.

    \b
    vf compare outputs/evals/math-env--m/0a1b2c3d outputs/evals/math-env--m/4e5f6a7b
    vf compare main.jsonl mine.jsonl --allow 0.02 --strict

    \b
    Exit code: 0 not worse, 1 worse by more than --allow (with --strict: or it cannot be told), 2 usage,
    3 set-up (no such run).
    """
    from verifiers.eval.compare import RunComparison

    comparison = RunComparison(baseline, candidate)
    fails = comparison.is_worse(allow) or (strict and comparison.may_be_worse(allow))
    if as_json:
        typer.echo(json.dumps({**comparison.as_json(), "allow": allow, "strict": strict, "ok": not fails}))
    else:
        for line in comparison.lines(most, shutil.get_terminal_size((120, 24)).columns):
            typer.echo(line)
    if fails:
        raise typer.Exit(1)
