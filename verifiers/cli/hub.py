"""`vf hub`: looks around a hub, and after what one published there. Each command is one request of the hub's API, so
`--json` prints what that says; the shapes are in docs/hub-client.md."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from verifiers.cli import hub_accounts, hub_projects, hub_results
from verifiers.cli.hub_session import AsJson, Environment, HubUrl, printable, project_of, session, table

app = typer.Typer(
    help="Search a hub, and look after what you published there.",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def search(
    text: Annotated[str, typer.Argument(help="Words of its name, summary, README or tags.")] = "",
    owner: Annotated[str | None, typer.Option(help="Only this owner's.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag (repeat: with all).")] = None,
    license: Annotated[str | None, typer.Option(help="Only under this licence.")] = None,
    task_type: Annotated[str | None, typer.Option(help="Only of this kind of task.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only those you have a role on.")] = False,
    starred: Annotated[bool, typer.Option("--starred", help="Only those you starred.")] = False,
    sort: Annotated[str | None, typer.Option(help="updated, created, stars, downloads, name or relevance.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="The next page: what the last one ended with.")] = None,
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Finds environments; without words, lists them, the newest first."""
    with session(hub) as client:
        found = client.get(
            "projects", search=text, owner=owner, tag=tag, license=license, task_type=task_type,
            mine=mine or None, starred=starred or None, sort=sort, limit=limit, after=after,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found))
        return
    rows = [
        [f"{one['owner']}/{one['name']}", one["version"] or "-", f"★{one['n_stars']}", _mark(one), one["summary"]]
        for one in found["environments"]
    ]
    typer.echo(table(rows) if rows else "nothing was found")
    if found["next"]:
        typer.echo(f"more: --after {found['next']}")


@app.command()
def info(environment: Environment, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """What an environment is: its newest or named version, what it needs, how it is installed."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        found = client.get("projects", owner, ref.name)
        lines = client.get("projects", owner, ref.name, "install", version=ref.version)
        if ref.version:
            found["latest"] = client.get("projects", owner, ref.name, "versions", ref.version)
    if as_json:
        typer.echo(json.dumps({**found, "install": lines}))
        return
    card, shown = found["card"], found["latest"]
    typer.echo(f"{card['owner']}/{card['name']}  {_mark(card)}".rstrip())
    typer.echo(printable(card["summary"]))
    if shown is None:
        typer.echo("nothing is published yet")
        return
    told = {
        "version": f"{shown['info']['version']} of {shown['info']['created_at'][:10]}",
        "licence": shown["license"],
        "tags": ", ".join(card["tags"]),
        "needs": ", ".join(need["requirement"] for need in shown["needs"]),
        "keys to set": ", ".join(shown["required_keys"]),
        "stars": str(card["n_stars"]),
        "install": lines["vf_install"],
        "with uv": lines["uv_pip"],
    }
    typer.echo(table([[f"{name}:", value] for name, value in told.items() if value]))
    if lines["warning"]:
        typer.echo(f"warning: {lines['warning']}")


@app.command()
def versions(environment: Environment, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Lists the versions of an environment, the newest first."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        found = client.get("projects", owner, ref.name, "versions")
    if as_json:
        typer.echo(json.dumps(found))
        return
    rows = [
        [
            one["version"],
            one["created_at"][:10],
            one["published_by"] or "",
            _release_mark(one),
            one["content_hash"] or "",
        ]
        for one in found
    ]
    typer.echo(table(rows) if rows else "nothing is published yet")


@app.command()
def files(
    environment: Environment,
    path: Annotated[str | None, typer.Argument(help="Print this file of the source.")] = None,
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Lists the source files of a version, or prints one of them."""
    owner, ref = project_of(environment)
    place = ("projects", owner, ref.name, "versions", ref.version or "latest", "files")
    with session(hub) as client:
        found = client.get(*place, *(path.split("/") if path else ()))
    if as_json:
        typer.echo(json.dumps(found))
    elif path:
        text = found["text"] if found.get("text") is not None else "(not text)\n"
        typer.echo(printable(text) if sys.stdout.isatty() else text, nl=False)
    else:
        typer.echo(table([[f"{one['size_bytes']:,}", one["path"]] for one in found["members"]]))


@app.command()
def diff(
    environment: Environment,
    old: Annotated[str, typer.Argument(help="A version.")],
    new: Annotated[str, typer.Argument(help="A version.")] = "latest",
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Shows what changed in the source from one version to another."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        found = client.get("projects", owner, ref.name, "diff", old=old, new=new)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for change in found["changes"]:
        was = f" (was {change['old_path']})" if change["old_path"] else ""
        typer.echo(f"{change['change']:7}  {change['path']}{was}")
        for line in change["lines"]:
            typer.echo(printable(line))
        if change["left_out"]:
            typer.echo(f"({change['left_out']})")
    typer.echo(f"{found['n_unchanged']} files are unchanged")


def _mark(card: dict[str, Any]) -> str:
    marks = [card["visibility"]] if card["visibility"] == "private" else []
    if card["status"] != "active":
        marks.append(card["status"])
    return f"[{', '.join(marks)}]" if marks else ""


def _release_mark(release: dict[str, Any]) -> str:
    if release["yanked"]:
        return f"yanked: {release['yanked_reason']}" if release["yanked_reason"] else "yanked"
    return "latest" if release["is_latest"] else ""


for _part in (hub_projects, hub_results, hub_accounts):
    _part.add_to(app)
