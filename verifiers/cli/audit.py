"""`vf audit`: a person looks at what a judge decided in a saved run."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from verifiers.cli.install import Debug

if TYPE_CHECKING:
    from verifiers.eval.audit import Kind


def command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a saved run.")],
    kind: Annotated[
        str, typer.Option("--kind", "-k", help="Of which answers: rescued, right, wrong or undecided.")
    ] = "rescued",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many, drawn by chance; 0: all.")] = 30,
    seed: Annotated[int, typer.Option("--seed", help="Another seed draws others.")] = 0,
    as_list: Annotated[bool, typer.Option("--list", help="Print them with their labels and ask nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and ask nothing.")] = False,
    debug: Debug = False,
) -> None:
    """Shows answers that a judge accepted, one by one, and keeps what you say of them beside the run.

    \b
    vf audit outputs/evals/math-env--m/0a1b2c3d
    vf audit outputs/evals/math-env--m/0a1b2c3d --json

    \b
    Exit code: 0 done or left, 2 usage, 3 set-up (no such run, or no such answers in it).
    """
    from verifiers.eval.audit import KINDS, Audit, in_words, listed

    if kind not in KINDS:
        raise typer.BadParameter(f"no kind '{kind}'; there are {', '.join(KINDS)} (--kind)")
    audit = Audit(run, cast("Kind", kind), limit=limit or None, seed=seed)
    if audit.damaged:
        typer.echo(f"note: {audit.damaged} lines of audit.jsonl cannot be read and do not count", err=True)
    if not as_list and not as_json:
        audit.ask(sys.stdin, sys.stdout)
    summary: dict[str, Any] = audit.summary()
    if as_json:
        if as_list:
            summary["items"] = [item.as_json(audit.labels.get(item.key)) for item in audit.sample]
        typer.echo(json.dumps(summary, ensure_ascii=False))
        return
    if as_list:
        for item in audit.sample:
            typer.echo(listed(item, audit.labels.get(item.key)))
    for line in in_words(summary):
        typer.echo(line)
