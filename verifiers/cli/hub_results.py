"""`vf hub`, results: leaderboards, evaluations, comparisons, pass rates."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer

from verifiers.cli.hub_session import (
    AsJson,
    Environment,
    HubUrl,
    Yes,
    confirm,
    project_of,
    session,
    table,
    tell,
    tell_rows,
)

Evaluation = Annotated[str, typer.Argument(metavar="ID", help="An evaluation's id.")]


def add_to(app: typer.Typer) -> None:
    for command in (leaderboard, evaluations, compare, pass_rates):
        app.command(command.__name__.replace("_", "-"))(command)
    one = typer.Typer(help="One evaluation.", no_args_is_help=True)
    for command in (evaluation_show, evaluation_visibility, evaluation_delete):
        one.command(command.__name__.rpartition("_")[2])(command)
    app.add_typer(one, name="evaluation")


def leaderboard(environment: Environment, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Ranks models by the lower bound of their mean reward: what was not scored counts as the minimum."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        found = client.get("projects", owner, ref.name, "leaderboard", version=ref.version)
    if as_json:
        typer.echo(json.dumps(found))
        return
    head = ["", "model", "reward", "95 % interval", "lower bound", "n", "version", ""]
    rows = [
        [
            "-" if one["rank"] is None else str(one["rank"]),
            one["model"],
            _number(one["mean_reward"]),
            "-" if one["interval"] is None else f"{_number(one['interval'][0])} to {_number(one['interval'][1])}",
            _number(one["lower_bound"]),
            f"{one['n_examples']}×{one['rollouts_per_example']}",
            one["version"],
            "verified" if one["is_verified"] else "recomputed",
        ]
        for one in found["rows"]
    ]
    typer.echo(table([head, *rows]) if rows else "no results yet: vf-eval … --push")


def evaluations(
    environment: Environment,
    model: Annotated[str | None, typer.Option("-m", "--model", help="Only of this model.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=200)] = 50,
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Lists the evaluations of an environment, the newest first."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        found = client.get("projects", owner, ref.name, "evaluations", model=model, version=ref.version, limit=limit)
    tell_rows(found["evaluations"], as_json, _row, "none that you may see")


def compare(
    baseline: Annotated[str, typer.Argument(help="An evaluation's id.")],
    candidate: Annotated[str, typer.Argument(help="The id of the one that may be better.")],
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000, help="Examples to list.")] = 20,
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Compares two evaluations example by example, the largest differences first."""
    with session(hub) as client:
        found = client.get("evaluations", baseline, "compare", candidate, limit=limit)
    if as_json:
        typer.echo(json.dumps(found))
        return
    difference = found["difference"]
    if difference is not None and difference["mean"] is not None:
        interval = difference.get("interval")
        within = f" ({_number(interval['low'])} to {_number(interval['high'])})" if interval else ""
        typer.echo(f"candidate - baseline: {difference['mean']:+.4f}{within} over {difference['n_examples']} examples")
    for caution in found["cautions"]:
        typer.echo(f"caution: {caution}")
    rows = [
        [str(one["example_id"]), "-" if one["difference"] is None else f"{one['difference']:+.4f}", one["bucket"]]
        for one in found["examples"]
    ]
    if rows:
        typer.echo(table([["example", "difference", ""], *rows]))


def pass_rates(
    environment: Environment,
    model: Annotated[str | None, typer.Option("-m", "--model", help="Only of this model.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1)] = 1000,
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """How often each example was passed: where training may begin, and which rows look broken."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        found = client.get("projects", owner, ref.name, "pass-rates", model=model, version=ref.version, limit=limit)
    if as_json:
        typer.echo(json.dumps(found))
        return
    rows = [
        [str(one["example_id"]), _number(one["pass_rate"]), f"{one['n_passed']} of {one['n_scored']}", _flags(one)]
        for one in found["examples"]
    ]
    typer.echo(table([["example", "pass rate", "passed", ""], *rows]) if rows else "no results yet")


def evaluation_show(evaluation: Evaluation, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Shows an evaluation's figures."""
    with session(hub) as client:
        found = client.get("evaluations", evaluation)
    tell(found, as_json, table([_row(found)]))


def evaluation_visibility(
    evaluation: Evaluation,
    to: Annotated[Literal["private", "project", "public"], typer.Argument(help="Who sees it.")],
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Shows an evaluation to you alone, to whoever has a role on the environment, or to whoever sees that."""
    with session(hub) as client:
        done = client.call("PUT", "evaluations", evaluation, "visibility", json={"visibility": to})
    tell(done, as_json, f"{evaluation} is {to}")


def evaluation_delete(evaluation: Evaluation, yes: Yes = False, hub: HubUrl = None) -> None:
    """Deletes an evaluation with its samples."""
    confirm(f"Delete the evaluation {evaluation} and its samples for ever?", yes)
    with session(hub) as client:
        client.call("DELETE", "evaluations", evaluation)
    typer.echo(f"deleted {evaluation}")


def _row(one: dict[str, Any]) -> list[str]:
    bound = one["version"] or "edited copy"
    return [
        one["id"], one["model"], _number(one["mean_reward"]), f"{one['n_samples']} samples", bound, one["state"],
        one["visibility"], one["created_at"][:10],
    ]  # fmt: skip


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _flags(example: dict[str, Any]) -> str:
    return ", ".join(example.get("flags") or [])
