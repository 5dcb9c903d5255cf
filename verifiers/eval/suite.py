"""`Suite`: the folder of several evaluations that are run as one; its `suite.json` names their runs.

The results are those of the runs, each in its own folder. What `suite.json` adds is which run belongs to which
evaluation of the file, so that the whole can go on after an interruption, also when the file was changed meanwhile.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets as randomness
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from verifiers.errors import ResultsError
from verifiers.eval.config import EvalConfig
from verifiers.line_file import LineFile
from verifiers.redaction import Redactor
from verifiers.results import file_name
from verifiers.run_metadata import as_json, utc_now
from verifiers.whole_file import replace_file

SUITE = "suite.json"
SCHEMA_VERSION = 1
_NESTED = ("env_args", "extra_env_kwargs", "sampling_args")


class Entry(msgspec.Struct, kw_only=True):
    """One evaluation: what it was asked for, and its run."""

    asked: dict[str, Any]  # what its results depend on: another value is another evaluation
    server: str | None = None  # may change from part to part; tells two evaluations apart that are otherwise equal
    num_examples: int | None = None  # as asked of the run; the next part may ask for more
    folder: str | None = None  # of the run, seen from that of the suite; None: not begun


class SavedSuite(msgspec.Struct, kw_only=True):
    """What `suite.json` holds."""

    schema_version: int = SCHEMA_VERSION
    config: str  # the file of evaluations, seen from the folder of results
    started: str  # UTC, ISO 8601
    command: list[str]
    evaluations: list[Entry]
    set_aside: list[Entry] = []  # no longer in the file; taken up again when they return


def entry_of(config: EvalConfig, redactor: Redactor) -> Entry:
    names = ("env_id", "model", "endpoint_id", "api_client_type", "rollouts_per_example", "seed", "independent_scoring")
    asked = {name: getattr(config, name) for name in names}
    tables = {
        "env_args": config.env_args,
        "extra_env_kwargs": config.extra_env_kwargs,
        "sampling_args": config.sampling,
    }
    asked |= {f"{name}.{key}": value for name, table in tables.items() for key, value in table.items()}
    asked = {key: value for key, value in asked.items() if value is not None}
    server = config.api_base_url or config.provider
    return Entry(
        asked=redactor.value(as_json(asked)),
        server=redactor.text(server) if server else None,
        num_examples=config.num_examples,
    )


def varied(configs: Sequence[EvalConfig], redactor: Redactor) -> list[dict[str, Any]]:
    """For each evaluation the settings in which it differs from others of the same environment and model."""
    settings = [{**entry_of(config, redactor).asked, **redactor.value(_further(config))} for config in configs]
    found: list[dict[str, Any]] = []
    for config, own in zip(configs, settings, strict=True):
        alike = [
            other
            for peer, other in zip(configs, settings, strict=True)
            if (peer.env_id, peer.model) == (config.env_id, config.model)
        ]
        differing = {
            key: own.get(key) for key in _keys(alike) if any(own.get(key) != other.get(key) for other in alike)
        }
        found.append({_short(key, differing): value for key, value in differing.items()})
    return found


def _further(config: EvalConfig) -> dict[str, Any]:
    names = ("num_examples", "api_base_url", "provider", "timeout_s", "max_retries", "max_concurrent")
    return {name: getattr(config, name) for name in names}


def _keys(tables: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for table in tables for key in table))


def _short(key: str, among: dict[str, Any]) -> str:
    """`env_args.difficulty` → `difficulty`, unless another setting is called that too."""
    table, _, name = key.partition(".")
    is_clear = sum(other.partition(".")[2] == name or other == name for other in among) == 1
    return name if table in _NESTED and is_clear else key


class Suite:
    """Use it as a context: until the end no other process can go on with the same suite."""

    def __init__(self, folder: Path, saved: SavedSuite, entries: Sequence[Entry]) -> None:
        """For `create` and `resume` alone."""
        self.folder, self._saved, self._asked = folder, saved, entries
        self._lock: LineFile | None = None
        self.notes: list[str] = []  # for people, a line each

    @classmethod
    def create(cls, source: Path, base: Path, entries: Sequence[Entry], command: Sequence[str]) -> Suite:
        """A new one of the file `source`, below the folder of results `base`."""
        folder = base / "suites" / f"{file_name(source.stem)}--{randomness.token_hex(4)}"
        saved = SavedSuite(
            config=_seen_from(base, source), started=utc_now(), command=list(command), evaluations=list(entries)
        )
        return cls(folder, saved, entries)

    @classmethod
    def resume(cls, folder: Path, entries: Sequence[Entry]) -> Suite:
        """The one in `folder`, asked for `entries` now; those that it knows keep their runs, the others are new."""
        saved = read_suite(folder)
        matched, left = _match(entries, [*saved.evaluations, *saved.set_aside])
        suite = cls(folder, saved, entries)
        suite.notes = _told(entries, matched, [entry for entry in left if entry in saved.evaluations])
        saved.evaluations = [
            msgspec.structs.replace(known, server=entry.server) if known else entry
            for entry, known in zip(entries, matched, strict=True)
        ]
        saved.set_aside = [entry for entry in left if entry.folder]
        return suite

    def __enter__(self) -> Suite:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = LineFile(self.folder / ".lock", lock=True)
        except BlockingIOError:
            raise ResultsError(f"{self.folder} is being run by another process: wait for it to end") from None
        except OSError as error:
            raise ResultsError(
                f"cannot write to {self.folder}: {error.strerror}. Choose another place with -o"
            ) from error
        try:
            self._write()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def run_folder(self, index: int) -> Path | None:
        """Of the evaluation with this index; `None` if it was not begun."""
        folder = self._saved.evaluations[index].folder
        return None if folder is None else Path(os.path.normpath(self.folder / folder))

    def asks_the_same(self, index: int) -> bool:
        """Whether as many examples are wanted as of the run that was begun."""
        return self._saved.evaluations[index].num_examples == self._asked[index].num_examples

    def begin(self, index: int, folder: Path) -> None:
        """Notes where the run is or will be; on the disk when it returns."""
        entry = self._saved.evaluations[index]
        entry.folder, entry.num_examples = _seen_from(self.folder, folder), self._asked[index].num_examples
        self._write()

    def _write(self) -> None:
        try:
            replace_file(self.folder / SUITE, msgspec.json.format(msgspec.json.encode(self._saved), indent=2) + b"\n")
        except OSError as error:
            raise ResultsError(f"cannot write to {self.folder}: {error.strerror}. Make room, or use -o") from error


def find_suite(source: Path, base: Path) -> Path | None:
    """The one of the file `source` that was written to last."""
    found = base.glob(f"suites/{glob.escape(file_name(source.stem))}--*/{SUITE}")
    for path in sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        with contextlib.suppress(ResultsError):
            if read_suite(path.parent).config == _seen_from(base, source):
                return path.parent
    return None


def read_suite(folder: Path) -> SavedSuite:
    """Raises ResultsError when there is none, or when it is not ours."""
    path = folder / SUITE
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=SavedSuite)
    except (FileNotFoundError, NotADirectoryError):
        raise ResultsError(f"no suite in {folder}: it has no {SUITE}. Give the folder of a saved suite") from None
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ResultsError(f"{path} was not written by this library, or is damaged ({error})") from error
    if saved.schema_version > SCHEMA_VERSION:
        raise ResultsError(
            f"{path} has schema version {saved.schema_version}; this library reads up to {SCHEMA_VERSION}: upgrade it"
        )
    return saved


def _match(entries: Sequence[Entry], earlier: Sequence[Entry]) -> tuple[list[Entry | None], list[Entry]]:
    """For each of `entries` the earlier one that asked for the same, if possible on the same server; and the rest."""
    left = list(earlier)
    matched: list[Entry | None] = [None] * len(entries)
    for also_server in (True, False):
        for index, entry in enumerate(entries):
            alike = [e for e in left if e.asked == entry.asked and (e.server == entry.server or not also_server)]
            if matched[index] is None and alike:
                matched[index] = alike[0]
                left = [e for e in left if e is not alike[0]]
    return matched, left


def _told(entries: Sequence[Entry], matched: Sequence[Entry | None], left: Sequence[Entry]) -> list[str]:
    """What is new, changed or gone since the suite was begun."""
    notes, gone = [], list(left)
    for number, (entry, known) in enumerate(zip(entries, matched, strict=True), 1):
        if known is not None:
            continue
        same = [e for e in gone if all(e.asked.get(key) == entry.asked.get(key) for key in ("env_id", "model"))]
        if same:
            changes = "; ".join(_differences(same[0].asked, entry.asked))
            notes.append(f"evaluation {number} was changed and is run anew: {changes}")
            gone = [e for e in gone if e is not same[0]]
        else:
            notes.append(f"evaluation {number} is new in the file")
    for entry in gone:
        what = " · ".join(str(entry.asked[key]) for key in ("env_id", "model") if key in entry.asked)
        where = f"; its run stays in {entry.folder}" if entry.folder else ""
        notes.append(f"no longer in the file: {what}{where}")
    return notes


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    def shown(table: dict[str, Any], key: str) -> str:
        return repr(table[key]) if key in table else "not given"

    differing = [key for key in _keys([old, new]) if old.get(key) != new.get(key)]
    return [f"{key}: saved {shown(old, key)}, now {shown(new, key)}" for key in differing]


def _seen_from(folder: Path, path: Path) -> str:
    """Relative, so that results stay whole when they are moved together."""
    return os.path.relpath(path.resolve(), folder.resolve())
