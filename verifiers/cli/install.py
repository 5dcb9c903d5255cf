"""`vf install`: installs environments into this interpreter."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verifiers.errors import SetupError

if TYPE_CHECKING:
    from verifiers.installed import InstalledEnv

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def command(
    environments: Annotated[
        list[str], typer.Argument(metavar="ENVIRONMENT...", help="A name, folder, wheel or git URL; several at once.")
    ],
    path: Annotated[str, typer.Option("-p", "--path", help="Folder in which names are looked up.")] = "./environments",
    from_repo: Annotated[
        str | None, typer.Option("-r", "--from-repo", metavar="URL", help="Take the names from this git repository.")
    ] = None,
    branch: Annotated[
        str | None, typer.Option("-b", "--branch", help="Branch, tag or commit. [default: the repository's own]")
    ] = None,
    from_index: Annotated[
        bool, typer.Option("--from-index", help="Take names that are not in the folder from the public package index.")
    ] = False,
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="PATH", help="Install into this interpreter or its folder."),
    ] = None,
    isolated: Annotated[
        bool, typer.Option("--isolated", help="Give each an interpreter of its own, which vf-eval then finds.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Installs environments, each an ordinary Python package. A folder is installed editable.

    \b
    vf-install math-env                    from ./environments
    vf-install ada/math-env@1.2.0          from the hub (VF_HUB_URL, or vf login)
    vf-install ada/math-env --isolated     into an interpreter of its own

    Whatever version of verifiers an environment asks for, the one that runs this command stays, and is what another
    interpreter gets.
    """
    from verifiers.install import install

    if python and isolated:
        raise typer.BadParameter("--python names an interpreter and --isolated makes one: give one of the two")
    done: list[dict[str, Any]] = []
    failed: list[SetupError] = []
    for spec in environments:
        try:
            with progress(f"installing {spec}") as say:
                env = install(
                    spec, path=path, from_repo=from_repo, branch=branch, from_index=from_index,
                    python=python, isolated=isolated, say=say,
                )  # fmt: skip
        except SetupError as error:
            if len(environments) == 1:
                raise
            failed.append(error)
            typer.echo(f"error: {error}", err=True)
            continue
        place = f"{env.owner} on the hub" if env.owner else str(env.root or env.url or "the package index")
        done.append({"name": env.name, "version": env.version, "module": env.module, "from": place})
        if not as_json:
            where = f" into {python}" if python else " into an interpreter of its own" if isolated else ""
            typer.echo(f"installed {env.name} {env.version} from {place}{where}. Next: {_next(env, python)}")
    if as_json:
        typer.echo(json.dumps(done))
    if failed:
        raise typer.Exit(3)


def _next(env: InstalledEnv, python: str | None) -> str:
    from verifiers.other_python import OtherPython, program_of

    name = f"{env.owner}/{env.name}" if env.owner else env.name
    if python is None:
        return f"vf-eval {name}"
    return shlex.join(OtherPython(program_of(python)).vf("eval", name))


@contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """A spinner on a terminal, plain lines elsewhere, both on stderr. Gives the function that says a line."""
    if not sys.stderr.isatty():
        yield lambda line: typer.echo(line, err=True)
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(text):
        yield lambda line: console.print(line, markup=False, highlight=False)
