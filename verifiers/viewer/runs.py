"""`Run`: a saved run as the viewer opens it, and where runs are found."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from verifiers.errors import ConfigError
from verifiers.records import RolloutRecord
from verifiers.results import RESULTS, latest_records
from verifiers.run_metadata import METADATA
from verifiers.viewer.filters import parse_filter
from verifiers.viewer.rows import SampleRow
from verifiers.viewer.run_file import RunFile
from verifiers.viewer.values import as_dict

MAX_DEPTH = 6  # folders below the one given
MAX_RUNS = 2_000
DEFAULT_FOLDER = Path("outputs")


@dataclass(frozen=True)
class Run:
    """A results file with what is known of it."""

    id: str  # in addresses
    path: Path  # of the results
    file: RunFile = field(compare=False, repr=False)

    @property
    def metadata(self) -> dict[str, Any]:
        """Read anew each time, because a running evaluation replaces it. Empty without one that can be read."""
        try:
            found = msgspec.json.decode((self.path.parent / METADATA).read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        return as_dict(found)

    def records(self) -> list[RolloutRecord]:
        """All at once: the last record of each rollout, by example and try. Raises ConfigError when there is none,
        ResultsError naming a line that is damaged."""
        found = latest_records(self.path)
        if not found:
            raise ConfigError(f"{self.path} has no rollouts yet")
        return found

    @property
    def written(self) -> datetime:
        """When something was added last."""
        try:
            return datetime.fromtimestamp(self.path.stat().st_mtime, UTC)
        except OSError:
            return datetime.fromtimestamp(0, UTC)


class Runs:
    """The runs below a folder, or the one of a file. Nothing outside of these can be asked for.

    Raises ConfigError when there is no such place.
    """

    def __init__(self, *paths: Path) -> None:
        for path in paths:
            if not path.exists():
                raise ConfigError(
                    f"{path} does not exist: give the folder of a run, a results.jsonl, or a folder of runs"
                )
        self._paths = paths
        self._by_id: dict[str, Run] = {}
        self._by_path: dict[Path, Run] = {}
        self.scan()

    def scan(self) -> list[Run]:
        """All runs there are now, the one written to last first."""
        found = [self._run(path) for place in self._paths for path in _results_below(place)]
        return sorted(dict.fromkeys(found), key=lambda run: run.written, reverse=True)

    def __getitem__(self, id_: str) -> Run:
        """Raises LookupError."""
        if id_ not in self._by_id:
            self.scan()
        try:
            return self._by_id[id_]
        except KeyError:
            raise LookupError(f"no run '{id_[:80]}' here") from None

    def at(self, path: Path) -> Run | None:
        """The run whose folder or results file this is."""
        for candidate in (path, path / RESULTS):
            if (run := self._by_path.get(candidate.resolve())) is not None:
                return run
        return None

    def _run(self, path: Path) -> Run:
        path = path.resolve()
        if (run := self._by_path.get(path)) is not None:
            return run
        name = path.parent.name if path.name == RESULTS else path.stem
        id_ = base = re.sub(r"[^\w.-]", "_", name) or "run"
        n = 1
        while id_ in self._by_id:
            n += 1
            id_ = f"{base}-{n}"
        run = self._by_id[id_] = self._by_path[path] = Run(id_, path, RunFile(path))
        return run


def run_at(path: Path) -> Run:
    """Raises ConfigError for a path that is neither a run's folder nor a results file."""
    run = Runs(path).at(path)
    if run is None:
        raise ConfigError(f"{path} is not one run: give a folder with a results.jsonl in it, or that file")
    return run


def matching_rows(file: RunFile, text: str) -> list[SampleRow]:
    """The rows of a file that a filter lets through; names that are no scores of theirs are refused (ConfigError)."""
    rows = file.rows
    names = dict.fromkeys(name for row in rows for name in row.scores)
    chosen = parse_filter(text, score_names=names if rows else None)
    phrases = chosen.phrases
    return [row for row in rows if chosen.matches(row, lambda key=row.key: file.text(key, phrases))]


def _results_below(place: Path) -> Iterator[Path]:
    """The file itself; or the results of the folder; or those of all folders below it."""
    if place.is_file():
        yield place
        return
    if (place / RESULTS).is_file():
        yield place / RESULTS
        return
    n = 0
    for folder, folders, files in os.walk(place):
        depth = len(Path(folder).relative_to(place).parts)
        hidden = {name for name in folders if name.startswith(".") or name in ("node_modules", "__pycache__")}
        folders[:] = sorted(set(folders) - hidden) if depth < MAX_DEPTH else []
        if RESULTS in files:
            folders.clear()
            yield Path(folder) / RESULTS
            n += 1
            if n >= MAX_RUNS:
                return
