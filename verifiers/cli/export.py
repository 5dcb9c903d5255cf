"""`vf export`: saved runs as tables, data sets, conversations to train on, or a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verifiers.cli.install import Debug


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of runs, or their results.jsonl.")],
    out: Annotated[Path, typer.Option("--output", "-o", help="What is written; its suffix says in which form.")],
    form: Annotated[
        str | None, typer.Option("--as", help="rows (.jsonl), parquet, dataset (a folder), chat, or markdown (.md).")
    ] = None,
    min_reward: Annotated[
        float | None, typer.Option("--min-reward", help="Leave out rollouts with a lower reward, or with none.")
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="Of each example only the rollout of the highest reward.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    debug: Debug = False,
) -> None:
    """Writes runs in the forms of other tools; what was saved stays as it is.

    \b
    vf export outputs/evals/math-env--m/0a1b2c3d -o rows.parquet
    vf export outputs/evals/math-env--m/0a1b2c3d -o sft.jsonl --as chat --min-reward 1 --best
    vf export outputs/evals/math-env--m/0a1b2c3d -o report.md

    \b
    Exit code: 0 written, 2 usage, 3 set-up (no such run, nothing left to write, or no place for it).
    """
    from verifiers.eval.export import export, form_of
    from verifiers.viewer.runs import run_at
    from verifiers.viewer.wording import count

    chosen = form_of(out, form)
    n = export([run_at(path) for path in runs], out, chosen, min_reward=min_reward, best=best, force=force)
    what = {"chat": "conversation", "markdown": "run"}.get(chosen, "rollout")
    typer.echo(f"{out}: {count(n, what)}", err=True)
