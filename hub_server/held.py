"""`Held`: what a worker remembers of the database, until any worker commits something that pages or tokens show."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from hub_server.db import Freshness

V = TypeVar("V")


class Held(Generic[V]):
    """Entries older than `max_age_s`, or made before the last commit, are as good as missing."""

    def __init__(self, freshness: Freshness, *, max_age_s: float, max_entries: int = 10_000) -> None:
        self._freshness = freshness
        self._max_age_s = max_age_s
        self._max_entries = max_entries
        self._entries: dict[Hashable, tuple[int, float, V]] = {}

    def peek(self, key: Hashable) -> V | None:
        """The held value, in microseconds: safe to call on the event loop."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        generation, until, value = entry
        if generation != self._freshness.current() or until < time.monotonic():
            return None
        return value

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The held value, or what `make` reads from the database now."""
        found = self.peek(key)
        if found is not None:
            return found
        generation = self._freshness.current()  # before `make` reads: a commit in between makes the entry old at once
        value = make()
        if len(self._entries) >= self._max_entries:
            self._entries.clear()
        self._entries[key] = (generation, time.monotonic() + self._max_age_s, value)
        return value
