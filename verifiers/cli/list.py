"""`vf list`: the environments installed here, and those in a folder that are not."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verifiers.cli.install import Debug

if TYPE_CHECKING:
    from verifiers.installed import InstalledEnv


def command(
    path: Annotated[str, typer.Option("-p", "--path", help="Folder to look in besides.")] = "./environments",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Shows the environments installed here and those in ./environments that are not."""
    rows = listing(path)
    if as_json:
        typer.echo(json.dumps(rows))
    elif not rows:
        typer.echo(f"no environments, here or in {path}. Start one with: vf-init my-env")
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for line in table(rows, width):
            typer.echo(line)


def listing(path: str | Path) -> list[dict[str, Any]]:
    """One row an environment: name, version, installed, place, summary."""
    from verifiers.env_source import project_of
    from verifiers.errors import ConfigError
    from verifiers.installed import installed_environments
    from verifiers.loading import local_environments
    from verifiers.other_python import isolated_environments
    from verifiers.refs import normalised

    installed = installed_environments()
    rows = [_row(_id(env), env.version, True, str(env.root or env.file.parent), env.summary) for env in installed]
    rows += [_row(ref.id, None, True, str(other.program), "(isolated)") for ref, other in isolated_environments()]
    names = {normalised(env.name) for env in installed}
    for folder in local_environments(path).values():
        try:
            project = project_of(folder)
        except ConfigError as error:
            rows.append(_row(folder.name, None, False, str(folder), f"unreadable: {error}"))
            continue
        if normalised(project["name"]) not in names:
            summary = project.get("description", "")
            rows.append(_row(project["name"], project.get("version"), False, str(folder), summary))
    return rows


def _id(env: InstalledEnv) -> str:
    return f"{env.owner}/{env.name}" if env.owner else env.name


def _row(name: str, version: str | None, installed: bool, place: str, summary: str) -> dict[str, Any]:
    return {"name": name, "version": version, "installed": installed, "place": place, "summary": summary}


def table(rows: list[dict[str, Any]], width: int | None) -> list[str]:
    """The rows as aligned lines, cut to a terminal's width."""
    cells = [
        (
            row["name"],
            row["version"] or "-",
            "" if row["installed"] else "not installed",
            _short(row["place"]),
            row["summary"],
        )
        for row in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    lines = []
    for row in cells:
        columns = [text.ljust(size) for text, size in zip(row[:4], widths, strict=True) if size]
        lines.append("  ".join([*columns, row[4]])[:width].rstrip())
    return lines


def _short(place: str) -> str:
    """The place relative to the current folder or the home folder when it lies below one."""
    path = Path(place)
    if not path.is_absolute():
        return place
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else place
