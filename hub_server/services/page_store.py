"""`PageStore`: finished pages that a process keeps, up to a size, until anything is committed that could change one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from hub_server.db import Freshness
from hub_server.principal import Principal

MIB = 1 << 20
T = TypeVar("T")


class PageStore(Generic[T]):
    """The least recently used go first when `max_bytes` or `max_entries` is passed.

    A page is kept under the generation that was read before the page was made. Whoever commits in between makes
    `Freshness` grow, and the page is dropped with the next question: never stale, over several workers too.
    """

    def __init__(self, freshness: Freshness, *, max_bytes: int = 16 * MIB, max_entries: int = 20_000) -> None:
        self._freshness = freshness
        self._max_bytes, self._max_entries = max_bytes, max_entries
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._used_bytes = 0
        self._generation = -1
        self._lock = threading.Lock()  # guards the three above: pages are made in threads

    def generation(self) -> int:
        """To be read before a page is made that is then given to `keep`."""
        current = self._freshness.current()
        if current != self._generation:
            with self._lock:
                self._values.clear()
                self._used_bytes = 0
                self._generation = current
        return current

    def get(self, key: Hashable) -> T | None:
        self.generation()
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, value: T, generation: int, size_bytes: int = 500) -> None:
        with self._lock:
            if generation != self._generation or size_bytes > self._max_bytes:
                return
            before = self._values.pop(key, None)
            self._values[key] = value, size_bytes
            self._used_bytes += size_bytes - (before[1] if before else 0)
            while self._used_bytes > self._max_bytes or len(self._values) > self._max_entries:
                self._used_bytes -= self._values.popitem(last=False)[1][1]


def rights_of(who: Principal) -> Hashable:
    """What two principals must share for each to be shown what was computed for the other. `None`: nobody's rights."""
    if who.is_anonymous:
        return None
    return who.user_id, who.is_admin, who.scope, who.owner_id, who.project_id
