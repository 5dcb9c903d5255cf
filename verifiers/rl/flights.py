"""`Flights`: the groups in flight, each with its limits. Every one of them ends exactly once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from verifiers.records import RolloutRecord
from verifiers.rl.curriculum import Draw
from verifiers.rl.tally import End
from verifiers.rl.watchdog import waits_at

logger = logging.getLogger("verifiers")


@dataclass(slots=True, eq=False)
class Flight:
    """A group in flight."""

    draw: Draw
    tries: int
    places: int  # that it holds: of tries that have not ended
    version: int  # of the policy that it was begun under
    started_s: float  # of the event loop's clock
    run: asyncio.Task[list[RolloutRecord]]
    timers: list[asyncio.TimerHandle] = field(default_factory=list[asyncio.TimerHandle])
    cut: End | None = None  # why it was cancelled; None: it was not

    @property
    def seconds(self) -> float:
        return asyncio.get_running_loop().time() - self.started_s

    def __str__(self) -> str:
        draw = self.draw
        return f"{draw.group_id} (example {draw.example_id} of {draw.env}, policy {self.version})"


class Flights:
    """Tasks that run groups. `on_end(flight)` is called once for each, when its task is done, or when a cancelled one
    has not ended within `grace_s`; an ended flight is not in here any more. A group is cancelled after `limit_s`."""

    def __init__(self, *, limit_s: float | None, grace_s: float, on_end: Callable[[Flight], None]) -> None:
        self._limit_s, self._grace_s, self._on_end = limit_s, grace_s, on_end
        self._flights: dict[int, Flight] = {}  # by the number of the draw
        self.rollouts = 0
        self.abandoned = 0

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(list(self._flights.values()))

    def launch(self, draw: Draw, tries: int, version: int, group: Coroutine[Any, Any, list[RolloutRecord]]) -> None:
        loop = asyncio.get_running_loop()
        run = loop.create_task(group, name=f"{draw.group_id} of {draw.env}")
        flight = Flight(draw, tries, tries, version, loop.time(), run)
        self._flights[draw.number] = flight
        self.rollouts += tries
        if self._limit_s is not None:
            flight.timers.append(loop.call_later(self._limit_s, self._stalled, flight))
        run.add_done_callback(lambda _: self._landed(flight))

    def try_ended(self, draw: Draw) -> None:
        """One of a group's tries has ended before the others: its place is free."""
        flight = self._flights.get(draw.number)
        if flight is not None and flight.places > 0:
            flight.places -= 1
            self.rollouts -= 1

    def cut(self, flight: Flight, end: End) -> None:
        """Cancels a group. Its place is free when its clean-up has ended."""
        if flight.cut is None:
            flight.cut = end
            flight.timers.append(asyncio.get_running_loop().call_later(self._grace_s, self._abandon, flight))
            flight.run.cancel()

    async def settle(self, at_most_s: float) -> None:
        """Returns when no cancelled group is left, or after that time."""
        ending = [flight.run for flight in self if flight.cut is not None]
        if ending:
            await asyncio.wait(ending, timeout=at_most_s)

    def report(self, most: int = 10) -> str:
        """The oldest ones and where each waits, for a log."""
        oldest = sorted(self, key=lambda flight: flight.started_s)[:most]
        lines = (f"  {flight}, {flight.seconds:.0f} s, at {waits_at(flight.run)}" for flight in oldest)
        return "\n".join((f"{len(self)} groups in flight, {self.rollouts} rollouts", *lines))

    def _stalled(self, flight: Flight) -> None:
        logger.warning("%s is cancelled after %g s; it waits at %s", flight, self._limit_s, waits_at(flight.run))
        self.cut(flight, End.STALLED)

    def _landed(self, flight: Flight) -> None:
        if self._flights.get(flight.draw.number) is flight:
            self._end(flight)
        elif not flight.run.cancelled():  # abandoned before: what it raises now is nobody's
            flight.run.exception()

    def _abandon(self, flight: Flight) -> None:
        """Gives the place of a cancelled group away that does not end. What it holds (a sandbox), it still holds."""
        logger.error("%s has not ended %g s after it was cancelled", flight, self._grace_s)
        self.abandoned += 1
        self._end(flight)

    def _end(self, flight: Flight) -> None:
        del self._flights[flight.draw.number]
        self.rollouts -= flight.places
        for timer in flight.timers:
            timer.cancel()
        self._on_end(flight)
