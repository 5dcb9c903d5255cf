"""What every `vf hub` command begins and ends with: a signed-in client, a reference, a table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from verifiers.hub.client import HubClient
    from verifiers.refs import EnvRef

HubUrl = Annotated[str | None, typer.Option("--hub", help="The hub's address. [default: the one used last]")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Environment = Annotated[str, typer.Argument(metavar="OWNER/NAME[@VERSION]", help="An environment on the hub.")]


@contextmanager
def session(hub: str | None) -> Iterator[HubClient]:
    from verifiers.hub.client import HubClient
    from verifiers.hub.credentials import current_login

    with HubClient(current_login(hub)) as client:
        yield client


def project_of(environment: str) -> tuple[str, EnvRef]:
    """Owner and reference. Raises ConfigError for a name without an owner."""
    from verifiers.errors import ConfigError
    from verifiers.refs import EnvRef

    ref = EnvRef.parse(environment)
    if ref.owner is None:
        raise ConfigError(f"'{environment}' names no owner: write OWNER/{ref.name}")
    return ref.owner, ref


def version_of(environment: str) -> tuple[str, str, str]:
    """Owner, name and version. Raises ConfigError when one is missing."""
    from verifiers.errors import ConfigError

    owner, ref = project_of(environment)
    if ref.version is None:
        raise ConfigError(f"which version of '{environment}'? Write {owner}/{ref.name}@VERSION")
    return owner, ref.name, ref.version


def tell(answer: Any, as_json: bool, line: str) -> None:
    """The hub's answer for programs, a line for people."""
    typer.echo(json.dumps(answer) if as_json else line)


def tell_rows(
    answer: Sequence[dict[str, Any]], as_json: bool, row: Callable[[dict[str, Any]], list[str]], none: str
) -> None:
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        typer.echo(table([row(one) for one in answer]) if answer else none)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; the last one runs on."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[-1]]) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def printable(text: str) -> str:
    """What others wrote, for a terminal: control characters, which could move the cursor or worse, become `�`."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "�", text)


def confirm(question: str, yes: bool) -> None:
    """Ends the command when the answer is no."""
    if not yes and not typer.confirm(question, err=True):
        raise typer.Abort
