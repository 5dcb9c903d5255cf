"""`VerdictCache`: the verdicts that a judge has given, by the content of what it was asked.

Only verdicts are kept. A judge that failed, or gave none, is asked again.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

logger = logging.getLogger("verifiers")

MAX_KEPT = 100_000


class _Line(msgspec.Struct, frozen=True):
    key: str
    verdict: bool | None  # None: taken back


_decoder = msgspec.json.Decoder(_Line)


class VerdictCache:
    """In memory, and, with a `path`, in a file of lines that later runs begin with. Several processes may share one.

    >>> cache = VerdictCache()
    >>> key = cache.key("judge-1", "a hash of the prompt", {}, "2 + 2?", "4", "four")
    >>> cache.remember(key, True); cache.get(key)
    True
    """

    def __init__(self, path: str | Path | bool | None = None, max_kept: int = MAX_KEPT) -> None:
        """`True` stands for a file in the user's cache folder. The file is read when it is first needed."""
        self.path = path
        self.max_kept = max_kept
        self.hits = 0
        self._verdicts: OrderedDict[str, bool] = OrderedDict()
        self._file: Path | None = None
        self._is_read = path in (None, False)

    @staticmethod
    def key(model: str, prompt_hash: str, sampling: Any, question: str, gold: str, response: str) -> str:
        content = msgspec.json.encode([model, prompt_hash, sampling, question, gold, response], enc_hook=repr)
        return hashlib.sha256(content).hexdigest()[:32]

    def get(self, key: str) -> bool | None:
        """`None`: not known."""
        if not self._is_read:
            self._read()
        verdict = self._verdicts.get(key)
        if verdict is not None:
            self.hits += 1
            self._verdicts.move_to_end(key)
        return verdict

    def remember(self, key: str, verdict: bool) -> None:
        if self._verdicts.get(key) == verdict:
            return
        self._keep(key, verdict)
        if self._file is not None:
            self._append(_Line(key, verdict))

    def forget(self, keys: Iterable[str]) -> None:
        """Takes verdicts back, in the file too: their judge turned out to be unfit."""
        for key in keys:
            self._verdicts.pop(key, None)
            if self._file is not None:
                self._append(_Line(key, None))

    def _keep(self, key: str, verdict: bool) -> None:
        self._verdicts[key] = verdict
        if len(self._verdicts) > self.max_kept:
            self._verdicts.popitem(last=False)

    def _read(self) -> None:
        self._is_read = True
        self._file = default_path() if self.path is True else Path(str(self.path)).expanduser()
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            for line in _lines(self._file):
                if line.verdict is None:
                    self._verdicts.pop(line.key, None)
                else:
                    self._keep(line.key, line.verdict)
        except OSError as error:
            self._give_up(error)

    def _append(self, line: _Line) -> None:
        """One write of one short line, which the operating system does not mix with another process's."""
        assert self._file is not None
        try:
            with self._file.open("ab", buffering=0) as file:
                file.write(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        logger.warning("verdicts are not kept in %s (%s); this run goes on without the file", self._file, error)
        self._file = None


def default_path() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "verifiers" / "verdicts.jsonl"


def _lines(path: Path) -> Iterator[_Line]:
    """What can be read of the file; a torn line costs one more question."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                yield _decoder.decode(line)
            except msgspec.DecodeError:
                continue
