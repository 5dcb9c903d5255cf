"""`vf publish` (also `vf-publish`): an environment's folder onto a hub."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from verifiers.cli.install import progress


def command(
    environment: Annotated[
        str, typer.Argument(metavar="PATH", help="The environment's folder, or a name in --path.")
    ] = ".",
    owner: Annotated[str | None, typer.Option(help="You or an organisation of yours. [default: you]")] = None,
    visibility: Annotated[
        Literal["private", "public"] | None,
        typer.Option(help="Who may see it. [default: as it is; a new one is private]"),
    ] = None,
    bump: Annotated[
        str | None,
        typer.Option(help="First raise the version in pyproject.toml: major, minor, patch, rc, post or a version."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Build and check, and send nothing.")] = False,
    path: Annotated[str, typer.Option("-p", "--path", help="Folder in which names are looked up.")] = "./environments",
    hub: Annotated[str | None, typer.Option(help="The hub's address. [default: the one used last]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Builds an environment's wheel and sdist, checks them as the hub will, and publishes both as one release.

    A version can be published once; raise it for the next (--bump patch). A new environment is private until you say
    otherwise. Nothing can be seen before everything is there; when nothing was published, pyproject.toml is put back.
    """
    from verifiers.env_source import source_of
    from verifiers.errors import SetupError
    from verifiers.hub.client import HubClient
    from verifiers.hub.credentials import current_login
    from verifiers.hub.publish import prepared, publish, shown_to
    from verifiers.hub.version_bump import write_version

    source = source_of(environment, path=path)
    if source.kind != "folder":
        raise SetupError(f"cannot publish '{environment}': it is no folder here. Give the folder of an environment")
    with contextlib.ExitStack() as undo, tempfile.TemporaryDirectory(prefix="vf-publish-") as folder:
        if bump is not None:
            file = Path(source.target) / "pyproject.toml"
            before = file.read_bytes() if file.exists() else b""  # without one, the next line says so
            new = write_version(file.parent, bump)
            undo.callback(file.write_bytes, before)
            typer.echo(f"version {new} in pyproject.toml", err=True)
        with progress(f"building {environment}"):
            release = prepared(source.target, Path(folder), path=path)
        if not release.wheel.metadata.description:
            typer.echo('note: its page will have no text. With [project] readme = "README.md" it does', err=True)
        if dry_run:
            _tell_dry_run(release, as_json)
            return
        with HubClient(current_login(hub)) as client:
            publisher: str = owner or client.get("whoami")["name"]
            with progress(f"publishing {release.name} {release.version}") as say:
                done = publish(client, release, publisher, say=say)
                undo.pop_all()  # it is out: the version stays as it was raised
                if visibility is not None:
                    done = shown_to(client, done, visibility)
    if as_json:
        typer.echo(json.dumps({**asdict(done), "install": done.install_line}))
        return
    typer.echo(f"published {done.id} {done.version} ({done.visibility}): {done.page}")
    typer.echo(f"install it: {done.install_line}")


def _tell_dry_run(release: object, as_json: bool) -> None:
    from verifiers.hub.publish import Release

    assert isinstance(release, Release)
    files = [
        {"filename": file.filename, "size_bytes": file.size_bytes, "sha256": file.sha256, "members": len(file.members)}
        for file in release.files
    ]
    if as_json:
        told = {"name": release.name, "version": release.version, "content_hash": release.sdist.content_hash}
        typer.echo(json.dumps({**told, "files": files, "published": False}))
        return
    typer.echo(f"{release.name} {release.version} may be published (nothing was sent):")
    for file in files:
        typer.echo(f"  {file['filename']}  {file['size_bytes']:,} bytes, {file['members']} files")
