"""`vf train` (also `vf-train`): runs a training run from its TOML file."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from verifiers.rl.train_config import TrainConfig

_EXPORTS = ("verl", "prime-rl")


def command(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The run.")],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]…", help="Settings over the file's, as optim.lr=1e-5.")
    ] = None,
    part: Annotated[
        str, typer.Option(help="Run one part alone, for several machines: orchestrator, trainer or servers.")
    ] = "all",
    check: Annotated[bool, typer.Option("--check", help="Say what would run, and run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each step, on standard output.")] = False,
    export: Annotated[
        str | None, typer.Option(help="Write the run for another trainer, verl or prime-rl, and run nothing.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder that --export writes to.")] = None,
) -> None:
    """Trains a model on environments: rollouts, batches and new weights until the last step, resumed where it stopped.

    \b
    vf-train run.toml                       all parts on this machine
    vf-train run.toml steps=10 optim.lr=1e-5
    vf-train run.toml --part trainer        one part, where the run's folder is shared
    vf-train run.toml --export verl -o FOLDER

    \b
    Exit code: 0 done, 1 the run failed, 2 usage, 3 set-up, 130 interrupted with everything saved.
    """
    from verifiers.errors import ConfigError
    from verifiers.rl.parts import changes_of
    from verifiers.rl.train_config import read_config
    from verifiers.rl.train_run import PARTS, launches_of, trainer_part

    if part not in PARTS:
        raise typer.BadParameter(f"no part '{part}'; there are: {', '.join(PARTS)}")
    if (export is None) != (output is None) or export not in (None, *_EXPORTS):
        raise typer.BadParameter(f"--export wants one of {', '.join(_EXPORTS)}, and a folder: -o FOLDER")
    given = changes or []
    try:
        found = read_config(config, changes_of(given))
    except ConfigError as error:  # what was typed or written is wrong: usage, not set-up
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    if export and output:
        _export(found, export, output)
        return
    if check:
        for launch in launches_of(found):
            typer.echo(f"server        {launch}")
        trainer = trainer_part(found, config, given)
        processes = "" if trainer.ranks == 1 else f"  ({trainer.ranks} processes)"
        typer.echo(f"trainer       {' '.join(trainer.command)}{processes}")
        typer.echo(f"orchestrator  in this process; {found.steps} steps into {found.folder}")
        return
    raise typer.Exit(asyncio.run(_run(found, config, given, part, as_json)))


def _export(found: TrainConfig, trainer: str, folder: Path) -> None:
    from verifiers.adapters.prime_rl_config import prime_run
    from verifiers.adapters.verl_config import verl_run
    from verifiers.errors import ConfigError

    try:
        run = verl_run(found, folder) if trainer == "verl" else prime_run(found)
    except ConfigError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    for path in run.write(folder):
        typer.echo(str(path))
    for line in run.left_out:
        typer.echo(f"left out, or not the same: {line}", err=True)


async def _run(found: TrainConfig, config: Path, given: list[str], part: str, as_json: bool) -> int:
    from verifiers.eval.display import can_be_live, shown
    from verifiers.eval.interrupts import INTERRUPTED, interruptible
    from verifiers.rl.parts import PartFailed
    from verifiers.rl.scheduler import NoProgress
    from verifiers.rl.train_run import run_training
    from verifiers.rl.train_view import TrainView
    from verifiers.rl.weight_check import WeightMismatch

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    view = TrainView(found)

    def stepped(step: int, metrics: dict[str, float]) -> None:
        view.stepped(step, metrics)
        if as_json:
            typer.echo(json.dumps({"step": step, **metrics}))

    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(run_training(found, config, given, part=part, on_step=stepped))

    def stop() -> None:
        loop.call_soon_threadsafe(task.cancel)

    with interruptible(stop, stop):
        async with shown(view, live=can_be_live(), redact=str):
            try:
                await task
            except asyncio.CancelledError:
                typer.echo(
                    f"interrupted: the run is saved. Go on with:\n  vf-train {config} {' '.join(given)}", err=True
                )
                return INTERRUPTED
            except (NoProgress, PartFailed, WeightMismatch) as error:
                typer.echo(f"error: {error}", err=True)
                return 1
    typer.echo(view.plain(), err=True)
    typer.echo(f"done: {found.folder / 'model'}")
    return 0
