"""`Limiter`: rate limits that hold over all workers, counted in the database in sliding windows.

What counts is this window's hits and the previous window's, weighed by how much of it is still in view. A limit with a
`lease` takes several hits from the database at once and spends them in memory: one write for so many requests. What a
worker leaves unspent is lost, so that several workers together may allow a little less, never more.
"""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from hub_server.db import Database
from hub_server.errors import StorageFull, TooMany
from hub_server.models import RateCount

_SWEEP_S = 600.0


@dataclass(frozen=True, slots=True)
class Limit:
    name: str
    amount: int
    window_s: int
    lease: int = 1  # hits taken from the database at once


SIGN_IN = Limit("sign-in", 10, 300)  # per name and address
SIGN_IN_ADDRESS = Limit("sign-in-address", 50, 300)  # one password tried on many names
SIGN_IN_NAME = Limit(
    "sign-in-name", 200, 300
)  # one name tried from many addresses; high, because it locks its user out
REGISTER = Limit("register", 10, 3600)  # per address
DEVICE = Limit("device", 30, 600)  # per address: `vf login`
DEVICE_CODE = Limit("device-code", 30, 600)  # per user: codes that are looked up, so that nobody guesses another's


class Limiter:
    """One per process. `clock` gives seconds since 1970."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()  # guards the leases: taking one is look-and-write
        self._leases: dict[str, tuple[int, int]] = {}  # key → window, hits left
        self._swept_at = 0.0

    def spend(self, limit: Limit, subject: str) -> None:
        """Counts one hit of `subject`, or raises TooMany with the seconds to wait. A refused hit does not count."""
        key = f"{limit.name}:{sha256(subject.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
        moment = self._clock()
        window = int(moment // limit.window_s) * limit.window_s
        if limit.lease > 1 and self._spend_lease(key, window):
            return
        try:
            with self._database.write(seen=False) as session:
                taken = _take(session, limit, key, window, moment)
                self._sweep(session, moment)
        except StorageFull:
            if limit.lease == 1:
                raise
            return  # a full disk stops nobody from searching
        if taken > 1:
            with self._lock:
                if len(self._leases) > 10_000:
                    self._leases.clear()
                self._leases[key] = (window, taken - 1)

    def _spend_lease(self, key: str, window: int) -> bool:
        with self._lock:
            leased, left = self._leases.get(key, (window, 0))
            if leased != window or left == 0:
                return False
            self._leases[key] = (window, left - 1)
            return True

    def _sweep(self, session: Session, moment: float) -> None:
        if moment - self._swept_at > _SWEEP_S:
            self._swept_at = moment
            session.execute(delete(RateCount).where(RateCount.window < int(moment) - 2 * 3600))


def subject_of(address: str) -> str:
    """What counts as one client: an address, of IPv6 the /64 that one customer has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def _take(session: Session, limit: Limit, key: str, window: int, moment: float) -> int:
    """How many hits were free and are now ours: 1 to `lease`. Raises TooMany."""
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    session.execute(insert(RateCount).values(key=key, window=window, count=0).on_conflict_do_nothing())
    # The row is locked from here on (SQLite: the whole database), so that no other worker counts in between.
    rows = session.execute(
        select(RateCount.window, RateCount.count)
        .where(RateCount.key == key, RateCount.window.in_((window, window - limit.window_s)))
        .with_for_update()
    )
    counts = {row[0]: row[1] for row in rows}
    now_count, before = counts.get(window, 0), counts.get(window - limit.window_s, 0)
    elapsed_s = moment - window
    free = math.floor(limit.amount - now_count - before * (1 - elapsed_s / limit.window_s))
    if free < 1:
        raise TooMany(
            f"too many requests of this kind ({limit.name}): {limit.amount} in {limit.window_s} s are allowed",
            code="rate_limited",
            retry_after_s=_wait_s(limit, now_count, before, elapsed_s),
        )
    taken = min(limit.lease, free)
    session.execute(
        update(RateCount).where(RateCount.key == key, RateCount.window == window).values(count=RateCount.count + taken)
    )
    return taken


def _wait_s(limit: Limit, now_count: int, before: int, elapsed_s: float) -> int:
    """Seconds until one hit is free, if no other comes: as soon as enough of the older window is out of view."""
    room = limit.amount - 1 - now_count
    if room >= 0:
        wait_s = limit.window_s * (1 - room / before) - elapsed_s
    else:
        wait_s = limit.window_s - elapsed_s + limit.window_s * max(0.0, 1 - (limit.amount - 1) / now_count)
    return max(1, math.ceil(wait_s))
