"""Checkpoints: all that a trainer needs to go on as if it had never stopped, in folders `step_00000012`.

A folder is written under another name, synced, and renamed when it is complete, with a list of its files and their
sizes in it. A folder that the list does not fit is no checkpoint: it is passed over. Each rank writes its own rows, and
another number of ranks can read them.
"""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from verifiers.rl.trainer.model import PolicyModel
from verifiers.rl.trainer.ranks import Ranks
from verifiers.whole_file import sync

SCHEMA_VERSION = 1
MARKER = "COMPLETE.json"


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """Written last. `files` has the size in bytes of every other file of the folder."""

    step: int
    version: int  # of the policy: the number of weight updates
    world_size: int
    files: dict[str, int]
    extra: dict[str, Any] = {}  # of whoever trains: which stage, which data
    schema_version: int = SCHEMA_VERSION


def save_checkpoint(
    root: Path,
    model: PolicyModel,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks,
    *,
    step: int,
    version: int,
    extra: dict[str, Any] | None = None,
    keep: int = 2,
) -> Path:
    """To be called on all ranks. Returns the folder; older ones than the newest `keep` are deleted."""
    folder = root / f"step_{step:08d}"
    partial = root / f".{folder.name}.partial"
    if ranks.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    ranks.barrier()
    with _alone(ranks) as no_dist:
        save(_state(model, optimizer), checkpoint_id=partial / "state", no_dist=no_dist)
    torch.save(_random_state(), partial / f"random_{ranks.rank}.pt")
    ranks.barrier()
    if ranks.rank == 0:
        files = {str(path.relative_to(partial)): path.stat().st_size for path in _files(partial)}
        marker = Marker(step=step, version=version, world_size=ranks.world_size, files=files, extra=extra or {})
        (partial / MARKER).write_bytes(msgspec.json.encode(marker))
        for path in [*_files(partial), partial / "state", partial]:
            sync(path)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        sync(root)
        for old in checkpoints(root)[:-keep]:
            shutil.rmtree(old)
    ranks.barrier()
    return folder


def load_checkpoint(folder: Path, model: PolicyModel, optimizer: torch.optim.Optimizer, ranks: Ranks) -> Marker:
    """Puts everything back, on all ranks. Raises ValueError for a folder that is no complete checkpoint."""
    marker = _marker(folder)
    if marker is None:
        raise ValueError(f"{folder} is no complete checkpoint: files are missing or cut off. Take an older one")
    state = _state(model, optimizer)
    with _alone(ranks) as no_dist:
        load(state, checkpoint_id=folder / "state", no_dist=no_dist)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    path = folder / f"random_{ranks.rank}.pt"
    if path.exists() and marker.world_size == ranks.world_size:  # another number of ranks draws anew
        _set_random_state(torch.load(path, weights_only=True))
    return marker


def checkpoints(root: Path) -> list[Path]:
    """The complete ones, from the oldest to the newest."""
    return [path for path in sorted(root.glob("step_*")) if _marker(path) is not None]


@contextmanager
def _alone(ranks: Ranks) -> Iterator[bool]:
    """Whether this is the only process; torch warns of that even when it is told."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield ranks.world_size == 1


def _state(model: PolicyModel, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optimizer": of_optimizer}


def _marker(folder: Path) -> Marker | None:
    try:
        marker = msgspec.json.decode((folder / MARKER).read_bytes(), type=Marker)
        fits = all((folder / name).stat().st_size == size for name, size in marker.files.items())
    except (OSError, msgspec.DecodeError):
        return None
    return marker if fits and marker.schema_version <= SCHEMA_VERSION else None


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _random_state() -> dict[str, Any]:
    version, words, gauss = random.getstate()
    state = {"torch": torch.get_rng_state(), "python": [version, list(words), gauss]}
    return state | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_initialized() else {})


def _set_random_state(state: dict[str, Any]) -> None:
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(state["cuda"])
