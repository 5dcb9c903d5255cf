"""`Limiter`: how many requests one server is given at a time, learnt from what it says.

It starts at the ceiling, halves when the server asks to slow down (429) or leaves a request unanswered, and climbs
back by a sixteenth of the former load for every round trip that goes well.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

# Requests started in one pass of the event loop. Thousands at once would keep it from reading the first replies.
BURST = 32


class Pace:
    """Lets `per_pass` through in one pass of the event loop; the others follow in the next ones, in order.

    Replies arrive in crowds. What follows a reply (decoding, scoring, the record) takes a fraction of a millisecond,
    and a thousand of them in one pass would hold up everything else for as many.
    """

    def __init__(self, per_pass: int = BURST) -> None:
        self._per_pass = self._left = per_pass
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._renewal: asyncio.Handle | None = None

    def try_pass(self) -> bool:
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().call_soon(self._renew)
        if self._waiting or self._left <= 0:
            return False
        self._left -= 1
        return True

    async def wait(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _renew(self) -> None:
        self._renewal, self._left = None, self._per_pass
        while self._waiting and self._left > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._waiting:
            self._renewal = asyncio.get_running_loop().call_soon(self._renew)


class Limiter:
    """Places at a server, handed out first come, first served. Belongs to one event loop.

    >>> if not limiter.try_take():
    ...     await limiter.wait()
    >>> try: ...
    >>> finally: limiter.give()
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = max(1, ceiling)
        self.limit = float(self.ceiling)
        self.taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._burst = BURST
        self._renewal: asyncio.Handle | None = None
        self._cut_at = float("-inf")
        self._step = 1.0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_reduced(self) -> bool:
        """Fewer places than the ceiling, because the server asked for it."""
        return self.limit < self.ceiling

    @property
    def places(self) -> int:
        return max(1, int(self.limit))

    def try_take(self) -> bool:
        if self._waiting or self._burst <= 0 or self.taken >= self.places:
            return False
        self._start_one()
        return True

    async def wait(self, *, again: bool = False) -> None:
        """Take a place when there is one. A request sent `again` has waited longest, so it goes to the front."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if again else self._waiting.append)(turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give()  # it was granted and cancelled in the same pass of the loop
            else:
                turn.cancel()
            raise

    def give(self) -> None:
        self.taken -= 1
        if self._waiting:
            self._admit()

    def went_well(self) -> None:
        if self.limit < self.ceiling:
            self.limit = min(float(self.ceiling), self.limit + self._step / self.limit)

    def slow_down(self, sent_at: float) -> None:
        """Halve, unless the complaint is about a request sent before the last cut: it says nothing new."""
        if sent_at < self._cut_at:
            return
        self._cut_at = time.monotonic()
        load = min(self.limit, max(1, self.taken))
        self._step = max(1.0, load / 16)
        self.limit = max(1.0, load / 2)

    def lower_ceiling(self, ceiling: int) -> None:
        """For good: this process can hold no more connections."""
        self.ceiling = max(1, min(self.ceiling, ceiling))
        self.limit = min(self.limit, float(self.ceiling))

    def _start_one(self) -> None:
        self.taken += 1
        self._burst -= 1
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._renewal = None
        self._burst = BURST
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        places = self.places
        while self._waiting and self.taken < places and self._burst > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                self._start_one()
                turn.set_result(None)
