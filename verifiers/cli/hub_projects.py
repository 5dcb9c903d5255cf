"""`vf hub`, an environment of one's own: who sees it, in which state it is, its releases, its people."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from verifiers.cli.hub_session import (
    AsJson,
    Environment,
    HubUrl,
    Yes,
    confirm,
    project_of,
    session,
    tell,
    tell_rows,
    version_of,
)

Reason = Annotated[str, typer.Option(help="Why, for those who use it.")]


def add_to(app: typer.Typer) -> None:
    for command in (
        yank, unyank, visibility, status, answers, transfer, delete, star, unstar, stars, lineage, used_by, validations
    ):  # fmt: skip
        app.command(command.__name__.replace("_", "-"))(command)
    people = typer.Typer(help="Who may do what with one environment.", no_args_is_help=True)
    for command in (collaborators_list, collaborators_set, collaborators_remove):
        people.command(command.__name__.rpartition("_")[2])(command)
    app.add_typer(people, name="collaborators")


def yank(environment: Environment, reason: Reason = "", hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Makes installers pass a version over, unless someone asks for exactly that one. Can be taken back."""
    owner, name, version = version_of(environment)
    with session(hub) as client:
        done = client.call("PUT", "projects", owner, name, "versions", version, "yank", json={"reason": reason})
    tell(done, as_json, f"{owner}/{name}@{version} is yanked")


def unyank(environment: Environment, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Offers a yanked version again."""
    owner, name, version = version_of(environment)
    with session(hub) as client:
        done = client.call("DELETE", "projects", owner, name, "versions", version, "yank")
    tell(done, as_json, f"{owner}/{name}@{version} is offered again")


def visibility(
    environment: Environment,
    to: Annotated[Literal["private", "public"], typer.Argument(help="Who sees it.")],
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Shows an environment to everybody, or only to those with a role on it."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        done = client.call("PUT", "projects", owner, ref.name, "visibility", json={"visibility": to})
    tell(done, as_json, f"{owner}/{ref.name} is {to}")


def status(
    environment: Environment,
    to: Annotated[Literal["active", "deprecated", "archived", "quarantined"], typer.Argument(help="The new state.")],
    reason: Reason = "",
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Deprecates, archives (no more uploads) or quarantines (no downloads either) an environment, or revives it."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        done = client.call("PUT", "projects", owner, ref.name, "status", json={"status": to, "reason": reason})
    tell(done, as_json, f"{owner}/{ref.name} is {to}")


def answers(
    environment: Environment,
    to: Annotated[Literal["publish", "keep"], typer.Argument(help="Whether samples hold questions and answers.")],
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Keeps the questions and answers of a test set at home when results are pushed, or publishes them."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        body = {"publish_answers": to == "publish"}
        done = client.call("PATCH", "projects", owner, ref.name, "settings", json=body, again=True)
    tell(done, as_json, f"answers of {owner}/{ref.name} are {'published' if to == 'publish' else 'kept at home'}")


def transfer(
    environment: Environment,
    to: Annotated[str, typer.Argument(help="The new owner.")],
    yes: Yes = False,
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Gives an environment to another owner. Its address changes."""
    owner, ref = project_of(environment)
    confirm(f"Give {owner}/{ref.name} to {to}? Its address changes", yes)
    with session(hub) as client:
        done = client.call("POST", "projects", owner, ref.name, "transfer", json={"to": to})
    tell(done, as_json, f"{owner}/{ref.name} is {to}/{ref.name} now")


def delete(environment: Environment, yes: Yes = False, hub: HubUrl = None) -> None:
    """Deletes a version, or without @VERSION the whole environment. Its name can never be used again."""
    owner, ref = project_of(environment)
    what = f"{owner}/{ref.name}" + (f"@{ref.version}" if ref.version else " with all its versions and results")
    confirm(f"Delete {what} for ever? The name cannot be used again; to hide it, yank it or make it private", yes)
    place = ("projects", owner, ref.name, *(("versions", ref.version) if ref.version else ()))
    with session(hub) as client:
        client.call("DELETE", *place)
    typer.echo(f"deleted {what}")


def star(environment: Environment, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Stars an environment."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        done = client.call("PUT", "projects", owner, ref.name, "stars")
    tell(done, as_json, f"{owner}/{ref.name} has {done['n_stars']} stars")


def unstar(environment: Environment, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Takes the star back."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        done = client.call("DELETE", "projects", owner, ref.name, "stars")
    tell(done, as_json, f"{owner}/{ref.name} has {done['n_stars']} stars")


def stars(hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Lists what you starred."""
    with session(hub) as client:
        found = client.get("stars")
    tell_rows(found, as_json, lambda one: [f"{one['owner']}/{one['name']}", one["at"][:10]], "nothing is starred")


def lineage(environment: Environment, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Shows what an environment was made from, and what was made from it."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        found = client.get("projects", owner, ref.name, "lineage")
    up = [f"from {one['ref'] or '(one that you may not see)'} {one['version'] or ''}" for one in found["ancestors"]]
    down = [f"fork {one['owner']}/{one['name']}" for one in found["forks"]]
    tell(found, as_json, "\n".join([*up, *down]) or "no forks")


def used_by(environment: Environment, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Lists the environments that need this one."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        found = client.get("projects", owner, ref.name, "used-by")
    tell_rows(found, as_json, lambda one: [f"{one['owner']}/{one['name']}", one["summary"]], "none that you may see")


def validations(environment: Environment, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Shows what the hub's own checks of each version found."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        found = client.get("projects", owner, ref.name, "validations")["validations"]
    tell_rows(
        found,
        as_json,
        lambda one: [one["version"], one["verdict"] or one["state"], one["reason"]],
        "not validated: this hub has not run its checks",
    )


def collaborators_list(environment: Environment, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Lists the people with a role on an environment."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        found = client.get("projects", owner, ref.name, "collaborators")
    tell_rows(found, as_json, lambda one: [one["name"], one["role"]], "nobody but the owner")


def collaborators_set(
    environment: Environment,
    user: Annotated[str, typer.Argument(help="A user of the hub.")],
    role: Annotated[Literal["reader", "maintainer"], typer.Argument(help="What they may do.")],
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Gives a user a role on an environment."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        done = client.call("PUT", "projects", owner, ref.name, "collaborators", user, json={"role": role})
    tell(done, as_json, f"{user} is {role} of {owner}/{ref.name}")


def collaborators_remove(
    environment: Environment, user: Annotated[str, typer.Argument(help="A user of the hub.")], hub: HubUrl = None
) -> None:
    """Takes a user's role away."""
    owner, ref = project_of(environment)
    with session(hub) as client:
        client.call("DELETE", "projects", owner, ref.name, "collaborators", user)
    typer.echo(f"{user} has no role on {owner}/{ref.name}")
