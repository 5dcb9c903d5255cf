"""`ResultsStore`: the folder of one run, appended to as rollouts finish, and continued after an interruption.

    results.jsonl           one record a line; never rewritten
    metadata.json           what was asked, where the run stands, its summary; replaced at once
    results.tokens.jsonl    token traces, only with save_tokens
    journal.jsonl           rollouts that wait for the rest of their group to be scored; gone when none does

A rollout that failed is run again on resume, and its new record follows the old one in the file. So a reader takes
the *last* record of a key: `load_results` does.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets as randomness
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from verifiers.errors import ResultsError
from verifiers.journal import JournalEntry, Pending, journal_line, read_journal, with_traces
from verifiers.line_file import LineFile, is_locked, read_lines
from verifiers.records import RolloutRecord, decode_record, encode_record, encode_traces, read_traces
from verifiers.redaction import Redactor, words_of
from verifiers.run_metadata import (
    METADATA,
    Part,
    RunConfig,
    RunStatus,
    SavedRun,
    as_json,
    begin_part,
    differences,
    read_metadata,
    remarks,
    row_hashes,
    saved_run,
    utc_now,
    utc_text,
    write_metadata,
)

__all__ = [
    "DifferentRun",
    "Pending",
    "ResultsStore",
    "RunConfig",
    "default_folder",
    "find_resumable",
    "load_results",
    "row_hashes",
]

RESULTS = "results.jsonl"
TOKENS = "results.tokens.jsonl"
JOURNAL = "journal.jsonl"

SYNC_EVERY_S = 1.0
METADATA_EVERY_S = 5.0
JOURNAL_KEPT_BYTES = 1 << 20  # an empty journal is cut only above this: cutting after every group costs more

Key = tuple[int, int]


class DifferentRun(ResultsError):
    """`differences` says what keeps the run in `folder` from being continued, a phrase a key."""

    def __init__(self, folder: Path, differences: list[str]) -> None:
        self.differences = differences
        super().__init__(
            f"cannot resume {folder}, another configuration: {'; '.join(differences)}. "
            "Use the saved values, or start a new run without --resume"
        )


class ResultsStore:
    """Writes the results of one run. Appends come from one thread, that of the run.

    >>> import tempfile
    >>> from verifiers.records import EnvInfo
    >>> hashes = row_hashes([{"prompt": "1+1?"}])
    >>> config = RunConfig(env_id="demo", env=EnvInfo(name="demo"), model="m", row_hashes=hashes)
    >>> records = []  # in a real run they arrive one by one
    >>> folder = default_folder("demo", "m", output_dir=tempfile.mkdtemp())
    >>> with ResultsStore.create(folder, config) as store:
    ...     for record in records:
    ...         store.append(record)
    ...     store.finish({"avg_reward": None})
    >>> load_results(folder)
    []
    """

    folder: Path
    finished: list[RolloutRecord]  # answered by earlier parts of the run, sorted; failed rollouts are not among them
    pending: dict[Key, Pending]  # ended in an earlier part, not scored yet
    notes: list[str]  # what a user should know about this folder, a line each

    @classmethod
    def create(
        cls, folder: Path, config: RunConfig, *, secrets: Iterable[str | None] = (), save_tokens: bool = False
    ) -> ResultsStore:
        """A new run. Raises ResultsError when the folder cannot be written or holds a run already."""
        store = cls(folder, config, _redactor(secrets), save_tokens)
        with store._closed_on_error():
            if store._results.size or _size(store.folder / JOURNAL):
                raise ResultsError(
                    f"{folder} already holds {_description(store.folder)}. "
                    f"Go on with that one by --resume-path {folder}, or choose another folder with -o"
                )
            for leftover in (TOKENS, JOURNAL):
                (store.folder / leftover).unlink(missing_ok=True)
            store._start()
        return store

    @classmethod
    def resume(
        cls, folder: Path, config: RunConfig, *, secrets: Iterable[str | None] = (), save_tokens: bool = False
    ) -> ResultsStore:
        """The run in `folder`, to be continued. Raises DifferentRun when `config` is that of another run."""
        redactor = _redactor(secrets)
        saved = read_metadata(folder)
        if found := differences(config, saved, redactor):
            raise DifferentRun(folder, found)
        store = cls(folder, config, redactor, save_tokens)
        with store._closed_on_error():
            store._take_over(saved)
            store._start()
        return store

    def __init__(self, folder: Path, config: RunConfig, redactor: Redactor, save_tokens: bool) -> None:
        """For `create` and `resume` alone."""
        self.folder = Path(folder)
        self.finished = []
        self.pending = {}
        self.notes = []
        self._config = config
        self._redactor = redactor
        self._save_tokens = save_tokens
        self._results = _open_locked(self.folder)
        self._tokens: LineFile | None = None
        self._journal: LineFile | None = None
        self._part = begin_part(config)
        self._parts = [self._part]
        self._began = time.monotonic()
        self._statuses: dict[Key, str] = {}  # of the last record of each key
        self._counts: Counter[str] = Counter()  # the same, counted
        self._waiting: set[Key] = set()  # in the journal, not scored yet
        self._spent: dict[str, float | None] = {"prompt": None, "completion": None, "reasoning": None, "cost": None}
        self._status: RunStatus = "running"
        self._summary: dict[str, Any] = {}
        self._changed = False
        self._inexact = False
        self._broken: ResultsError | None = None
        self._stop = threading.Event()
        self._keeper: threading.Thread | None = None
        self._closed = False

    def __enter__(self) -> ResultsStore:
        return self

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        self._close("failed" if isinstance(error, Exception) else "interrupted")

    def append(self, record: RolloutRecord) -> None:
        """Returns when the line is with the operating system; at most a second later it is on the disk.

        Raises ResultsError when it cannot be written (disk full): the file then ends in its last whole line, and
        every later append is refused.
        """
        if record.status == "pending":
            raise ValueError(f"rollout {record.key} waits for its group: journal() it")
        self._refuse_if_broken()
        line, _ = self._encoded(record)
        try:
            # Traces first: whoever finds the record finds its traces too.
            if self._save_tokens and (traces := encode_traces(record)) is not None:
                self._tokens = self._tokens or LineFile(self.folder / TOKENS)
                self._tokens.append(traces)
            self._results.append(self._redactor.data(line))
        except OSError as error:
            raise self._give_up(error) from error
        self._part.rollouts += 1
        self._count(record)
        self._waiting.discard(record.key)
        if self._journal is not None and not self._waiting and self._journal.size > JOURNAL_KEPT_BYTES:
            self._journal.clear()

    def journal(self, record: RolloutRecord, extra: dict[str, Any]) -> None:
        """Keeps a rollout that waits for its group, with the author's own state keys `extra`.

        A key that would not come back from JSON the same marks the entry as not resumable: the rollout is run again.
        """
        self._refuse_if_broken()
        line, exact = self._encoded(record)
        traces = [turn.tokens for turn in record.turns] if self._save_tokens else []
        entry = journal_line(line, traces, extra, exact=exact, redactor=self._redactor)
        try:
            self._journal = self._journal or LineFile(self.folder / JOURNAL)
            self._journal.append(entry)
        except OSError as error:
            raise self._give_up(error) from error
        self._waiting.add(record.key)
        self._changed = True

    def finish(self, summary: dict[str, Any], *, status: RunStatus | None = None) -> None:
        """Writes the final `metadata.json`. By default the run is "done" when every rollout has a record."""
        self._stop_keeper()
        complete = len(self._statuses) >= self._config.total
        self._status = status or ("done" if complete else "interrupted")
        self._summary = dict(summary)
        try:
            self._sync()
            self._write_metadata()
        except OSError as error:
            if self._broken is None:  # else that was said already
                raise self._give_up(error) from error

    def close(self) -> None:
        """Syncs and unlocks. A run that was not finished is marked interrupted. Closing twice is fine."""
        self._close("interrupted")

    def _close(self, unfinished: RunStatus) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_keeper()
        if self._status == "running":
            self._status = unfinished if self._broken is None else "failed"
            with contextlib.suppress(OSError):  # it can be told from the results
                self._write_metadata()
        files = [file for file in (self._tokens, self._journal, self._results) if file is not None]
        failed: OSError | None = None
        for file in files:  # the lock, which the results carry, goes last
            if file is self._results and not self._waiting:
                (self.folder / JOURNAL).unlink(missing_ok=True)
            try:
                file.close()
            except OSError as error:
                failed = error
        if failed is not None and self._broken is None:
            raise self._give_up(failed) from failed

    def _take_over(self, saved: SavedRun) -> None:
        """Reads what earlier parts left, and cuts off what they could not finish writing."""
        written = datetime.fromtimestamp((self.folder / RESULTS).stat().st_mtime, UTC)
        if torn := self._results.cut_torn_line():
            self.notes.append(f"{RESULTS}: dropped a half-written last line of {torn} bytes")
        latest = self._read_results()
        if (self.folder / TOKENS).exists():
            self._tokens = LineFile(self.folder / TOKENS)
            self._tokens.cut_torn_line()
            if self._save_tokens:
                latest = _join_tokens(latest, self.folder / TOKENS)
        self.finished = [latest[key] for key in sorted(latest) if latest[key].status != "failed"]
        answered = {record.key for record in self.finished}
        if (self.folder / JOURNAL).exists():
            self._journal = LineFile(self.folder / JOURNAL)
            self._journal.cut_torn_line()
            self.pending, notes = read_journal(self.folder / JOURNAL, answered)
            self.notes += notes
        self._waiting = set(self.pending)
        if saved.status == "running":
            _close_killed_part(saved.parts[-1], written)
        if saved.save_tokens != self._save_tokens:
            self.notes.append("token traces are saved for one part of the run only")
        self.notes += remarks(self._config, saved, self._part)
        self._parts = [*saved.parts, self._part]

    def _read_results(self) -> dict[Key, RolloutRecord]:
        latest: dict[Key, RolloutRecord] = {}
        twice = 0
        for record in read_lines(self.folder / RESULTS, decode_record):
            earlier = latest.get(record.key)
            twice += earlier is not None and earlier.status != "failed"
            latest[record.key] = record
            self._count(record)
        if twice:
            self.notes.append(f"{RESULTS}: {twice} rollouts are there more than once; the last record of each counts")
        return latest

    def _encoded(self, record: RolloutRecord) -> tuple[bytes, bool]:
        """The record's line, and whether it says all. A paid rollout is not lost for a value that JSON cannot hold."""
        try:
            return encode_record(record), True
        except (TypeError, ValueError, NotImplementedError) as error:  # ValueError: text with half a surrogate pair
            turns = [msgspec.structs.replace(turn, tokens=None) for turn in record.turns]
            line = msgspec.json.encode(as_json(msgspec.structs.replace(record, turns=turns)))
            if not self._inexact:
                self.notes.append(
                    f"values that JSON cannot hold are saved as text, first in rollout {record.key}: {error}"
                )
            self._inexact = True
            return line, False

    def _count(self, record: RolloutRecord) -> None:
        earlier = self._statuses.get(record.key)
        if earlier is not None:
            self._counts[earlier] -= 1
        self._statuses[record.key] = record.status
        self._counts[record.status] += 1
        for name, spent in self._spent.items():
            if (more := getattr(record.usage, name)) is not None:
                self._spent[name] = more if spent is None else spent + more
        self._changed = True

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise ResultsError(str(self._broken))

    def _give_up(self, error: OSError) -> ResultsError:
        count = len(self._statuses)
        saved = f"The {count} rollouts saved until then are whole: make room" if count else "Make room"
        self._broken = ResultsError(
            f"cannot write to {self.folder}: {error.strerror or error}. {saved}, then go on with "
            f"--resume-path {self.folder}"
        )
        return self._broken

    def _start(self) -> None:
        try:
            self._write_metadata()
        except OSError as error:
            raise ResultsError(f"cannot write to {self.folder}: {error.strerror}. Make room, or use -o") from error
        self._keeper = threading.Thread(target=self._keep, name="results", daemon=True)
        self._keeper.start()

    def _keep(self) -> None:
        """In a thread of its own, because a disk may take long: syncs, and refreshes the metadata."""
        refreshed = time.monotonic()
        while not self._stop.wait(SYNC_EVERY_S):
            try:
                self._sync()
            except OSError as error:  # told to the next append
                self._give_up(error)
                return
            if self._changed and time.monotonic() - refreshed >= METADATA_EVERY_S:
                with contextlib.suppress(OSError):  # stale, not wrong; `finish` reports it
                    self._write_metadata()
                refreshed = time.monotonic()

    def _stop_keeper(self) -> None:
        self._stop.set()
        if self._keeper is not None:
            self._keeper.join()
            self._keeper = None

    def _sync(self) -> None:
        for file in (self._tokens, self._journal, self._results):
            if file is not None:
                file.sync()

    def _write_metadata(self) -> None:
        self._changed = False
        self._part.ended = utc_now()
        self._part.seconds = round(time.monotonic() - self._began, 3)
        counts = dict(self._counts)  # one step for the interpreter: the run may be counting meanwhile
        failed = counts.pop("failed", 0)
        counts = {"total": self._config.total, "finished": sum(counts.values()), "failed": failed, **counts}
        run = saved_run(
            self._config,
            status=self._status,
            parts=self._parts,
            counts={**counts, "pending": len(self._waiting)},
            tokens=dict(self._spent),
            save_tokens=self._save_tokens,
        )
        write_metadata(self.folder, run, self._summary, self._redactor)

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        """An opened folder that turns out to be unusable is left as it was, and unlocked."""
        try:
            yield
        except BaseException:
            for file in (self._tokens, self._journal, self._results):
                if file is not None:
                    file.close()
            raise


def latest_records(path: Path) -> list[RolloutRecord]:
    """The last record of each rollout in a results file of any name, sorted by example and try. A half-written last
    line is left out. Raises OSError, and ResultsError naming a line that is damaged."""
    latest = {record.key: record for record in read_lines(path, decode_record)}
    return [latest[key] for key in sorted(latest)]


def load_results(folder: Path, *, tokens: bool = False) -> list[RolloutRecord]:
    """The records of a run, the last one of each rollout, sorted by example and try. Works while the run goes on.

    A half-written last line is left out. With `tokens` the traces of the sidecar are put back in. Raises ResultsError
    when there are no results, or naming the line that is damaged.
    """
    path = Path(folder) / RESULTS
    try:
        latest = {record.key: record for record in latest_records(path)}
        if tokens and (path.parent / TOKENS).exists():
            latest = _join_tokens(latest, path.parent / TOKENS)
    except OSError as error:
        raise ResultsError(f"no results to read in {folder}: {path}: {error.strerror}") from error
    return [latest[key] for key in sorted(latest)]


def default_folder(env_name: str, model: str, output_dir: str | Path | None = None) -> Path:
    """A new folder for a run of `env_name` with `model`; not created yet."""
    return _runs_folder(env_name, model, output_dir) / randomness.token_hex(4)


def find_resumable(
    env_name: str,
    model: str,
    config: RunConfig,
    output_dir: str | Path | None = None,
    *,
    secrets: Iterable[str | None] = (),
) -> Path | None:
    """The run written to last that `config` would continue: the same configuration, incomplete, not being written."""
    redactor = _redactor(secrets)
    found = _runs_folder(env_name, model, output_dir).glob(f"*/{METADATA}")
    for path in sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            saved = read_metadata(path.parent)
        except ResultsError:
            continue
        if differences(config, saved, redactor) or saved.is_complete_for(config) or is_locked(path.parent / RESULTS):
            continue
        return path.parent
    return None


def _runs_folder(env_name: str, model: str, output_dir: str | Path | None) -> Path:
    base = Path("outputs" if output_dir is None else output_dir)
    return base / "evals" / f"{file_name(env_name)}--{file_name(model)}"


def file_name(name: str) -> str:
    """Part of a path: `/` becomes `--`; a name too long for a file system is cut, with a hash for its tail."""
    clean = re.sub(r"[^\w.@+,=-]", "_", name.replace("/", "--"))
    clean = re.sub(r"^\.+", "_", clean)
    return clean if len(clean.encode()) <= 100 else f"{clean[:60].encode()[:60].decode(errors='ignore')}-{_hash(name)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


def _redactor(secrets: Iterable[str | None]) -> Redactor:
    return Redactor(secrets, words=words_of(RolloutRecord, SavedRun, JournalEntry))


def _open_locked(folder: Path) -> LineFile:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return LineFile(folder / RESULTS, lock=True)
    except BlockingIOError:
        raise ResultsError(
            f"{folder} is being written by another process{_writer(folder)}: wait for it to end, or choose another "
            "folder with -o"
        ) from None
    except OSError as error:
        raise ResultsError(
            f"cannot write results to {folder}: {error.strerror}. Choose another place with -o"
        ) from error


def _writer(folder: Path) -> str:
    try:
        part = read_metadata(folder).parts[-1]
    except ResultsError:
        return ""
    return f" ({part.pid} on {part.host})"


def _description(folder: Path) -> str:
    try:
        saved = read_metadata(folder)
    except ResultsError:
        return "results"
    return f"a run of {saved.env_id} with {saved.model} from {saved.date[:16].replace('T', ' ')}"


def _close_killed_part(part: Part, last_write: datetime) -> None:
    """A killed process could not say when it ended; its last line did."""
    ended = datetime.fromisoformat(part.ended)
    if last_write > ended:
        part.seconds = round(part.seconds + (last_write - ended).total_seconds(), 3)
        part.ended = utc_text(last_write)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _join_tokens(records: dict[Key, RolloutRecord], path: Path) -> dict[Key, RolloutRecord]:
    joined = dict(records)
    try:
        for line in read_traces(path):
            key = line.example_id, line.rollout_index
            if key in joined:
                joined[key] = with_traces(records[key], line.turns)
    except msgspec.DecodeError as error:
        raise ResultsError(f"{path} is damaged ({error}). Restore it, or read the run without its tokens") from error
    return joined
