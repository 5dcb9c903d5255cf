"""`vf setup`: a workspace: a folder for environments, endpoints, and what a coding agent should know."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from verifiers.cli.install import Debug
from verifiers.errors import SetupError

# where it goes in the workspace → the text's file beside this one
FILES = {
    "environments/.gitkeep": None,
    "configs/endpoints.toml": "endpoints.toml",
    ".gitignore": "gitignore.txt",
    "AGENTS.md": "AGENTS.md",
}
# What each coding agent reads, when that is not AGENTS.md itself.
AGENT_FILES = {"codex": None, "cursor": None, "opencode": None, "amp": None, "claude": "CLAUDE.md"}
POINTER = "See @AGENTS.md: what it says holds for you too.\n"


def command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where the workspace is to be.")] = ".",
    agents: Annotated[
        str | None, typer.Option("--agents", help="Coding agents, with commas: codex, claude, cursor, opencode, amp.")
    ] = None,
    skip_agents_md: Annotated[bool, typer.Option("--skip-agents-md", help="No AGENTS.md.")] = False,
    skip_install: Annotated[
        bool, typer.Option("--skip-install", help="Accepted; nothing is installed in any case.")
    ] = False,
    no_interactive: Annotated[
        bool, typer.Option("--no-interactive", help="Accepted; nothing is asked in any case.")
    ] = False,
    prime_rl: Annotated[bool, typer.Option("--prime-rl", help="Not supported by this library.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Starts a workspace for environments. A file that is there already is never overwritten."""
    if prime_rl:
        raise SetupError("--prime-rl is not supported here: install and configure that trainer by its own commands")
    written = set_up(folder, agents=[] if agents is None else agents.split(","), with_agents_md=not skip_agents_md)
    commands = ["vf-init my-env", "vf-install my-env", "vf-eval my-env"]
    if as_json:
        typer.echo(json.dumps({"folder": folder, "files": [str(file) for file in written], "next": commands}))
        return
    typer.echo(f"workspace in {Path(folder).resolve()}:")
    for line in [*map(str, written), "Next:", *commands]:
        typer.echo(line if line == "Next:" else f"  {line}")


def set_up(folder: str | Path, *, agents: list[str] | None = None, with_agents_md: bool = True) -> list[Path]:
    """Writes the workspace and returns its files. Raises SetupError, and writes nothing, when one of them exists."""
    names = [name.strip().lower() for name in agents or () if name.strip()]
    unknown = [name for name in names if name not in AGENT_FILES]
    if unknown:
        raise SetupError(f"--agents: unknown agent '{unknown[0]}'. There are: {', '.join(AGENT_FILES)}")
    texts = {place: _text(name) if name else "" for place, name in FILES.items() if place != "AGENTS.md"}
    if with_agents_md:
        texts["AGENTS.md"] = _text("AGENTS.md")
        texts |= {pointer: POINTER for pointer in map(AGENT_FILES.get, names) if pointer}
    root = Path(folder)
    if any((root / "environments").glob("*")):  # a folder in use needs no placeholder
        del texts["environments/.gitkeep"]
    taken = [place for place in texts if (root / place).exists()]
    if taken:
        raise SetupError(
            f"{', '.join(taken)} exist(s) in {root.resolve()}. Move away what is there, or use another folder"
        )
    try:
        for place, text in texts.items():
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            (root / place).write_text(text, "utf-8")
    except OSError as error:
        raise SetupError(f"cannot write {root}: {error.strerror or error}") from error
    return [root / place for place in texts]


def _text(name: str) -> str:
    return resources.files("verifiers.cli").joinpath("workspace", name).read_text("utf-8")
