"""What people see while a run goes on: a few live lines on a terminal, a plain line every 10 s elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from verifiers.eval import wording
from verifiers.eval.progress import Progress
from verifiers.records import RolloutRecord

LIVE_S = 0.25
PLAIN_S = 10.0
PLAIN_WIDTH = 400
_BAR = "█░"


class Running(Protocol):
    """The part of `run.Run` that is shown."""

    @property
    def total(self) -> int: ...

    @property
    def done(self) -> int: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def waiting(self) -> dict[str, int]: ...


@dataclass(frozen=True)
class Place:
    """Of an evaluation among those of its suite."""

    number: int  # from 1
    count: int
    began: float  # time.monotonic() at the start of the suite


class Shown(Protocol):
    """What `shown` shows."""

    def opening(self) -> str:
        """The first of the plain lines."""
        ...

    def plain(self) -> str: ...

    def lines(self, width: int, height: int) -> list[str]: ...


class View:
    """The lines of the display, as plain text: what is most worth knowing comes first."""

    def __init__(
        self,
        title: str,
        run: Running,
        progress: Progress,
        client_status: Callable[[], str | None],
        place: Place | None = None,
    ) -> None:
        self.title = title if place is None else f"{place.number}/{place.count} · {title}"
        self.run, self.progress, self.client_status, self.place = run, progress, client_status, place

    def lines(self, width: int, height: int) -> list[str]:
        """At most `height` lines of at most `width` characters; the last of them are finished rollouts."""
        progress = self.progress
        lines = [self.title, self._bar(width), self._reward(), self._where()]
        lines += [line for line in (self._overall(width), self._ungraded(), self._scores(), self._errors()) if line]
        room = height - len(lines)
        if room > 0 and progress.recent:
            lines += [_finished(record) for record in list(progress.recent)[-room:]]
        return [wording.cut(line, width) for line in lines[: max(1, height)]]

    def opening(self) -> str:
        return f"{self.title} · {self.run.done}/{self.run.total} done"

    def plain(self) -> str:
        """Everything on one line."""
        parts = [f"{self.run.done}/{self.run.total} done", self._reward(), self._errors() or "no errors"]
        if ungraded := self._ungraded():
            parts.insert(2, ungraded)
        if self.place is not None:
            parts.insert(0, f"evaluation {self.place.number} of {self.place.count}")
        return wording.cut(" · ".join([*parts, self._clock(), self._in_flight()]), PLAIN_WIDTH)

    def _bar(self, width: int) -> str:
        run = self.run
        text = f"  {run.done}/{run.total}  {self._share():.0%}  {self._clock()}"
        return _bar(self._share(), text, width)

    def _share(self) -> float:
        return self.run.done / self.run.total if self.run.total else 1.0

    def _overall(self, width: int) -> str:
        """How much of the suite is done, an evaluation counting as much as any other."""
        place = self.place
        if place is None:
            return ""
        share = (place.number - 1 + self._share()) / place.count
        gone = wording.duration(time.monotonic() - place.began)
        return _bar(share, f"  evaluation {place.number} of {place.count}  {share:.0%}  {gone} gone", width)

    def _clock(self) -> str:
        progress, run = self.progress, self.run
        text = f"{wording.duration(progress.seconds)} gone"
        left, rate = progress.seconds_left(run.total), progress.rate()
        if left is not None and rate is not None and run.done < run.total:
            text += f", ~{wording.duration(left)} left, {rate:.1f}/s"
        return text

    def _reward(self) -> str:
        reward, done = self.progress.reward, self.progress.n_done
        scored = f"{reward.n} of {done} scored"
        if reward.mean is None:
            return f"reward –  {scored}"
        return f"reward {reward.mean:.3f} {wording.interval(reward.interval)}  {scored}".replace("  ", " ", 1)

    def _scores(self) -> str:
        parts = [
            f"{name} {wording.number(score.mean, 2)} {wording.weight(score.weight)}"
            for name, score in self.progress.scores.items()
        ]
        return "   ".join(parts)

    def _ungraded(self) -> str:
        return wording.ungraded(self.progress.ungraded.now)

    def _errors(self) -> str:
        errors = self.progress.errors
        if not errors:
            return ""
        kinds = [f"{side} {kind} {n}" for (side, kind), n in errors.most_common(3)]
        return f"errors {errors.total()}: " + ", ".join(kinds)

    def _where(self) -> str:
        progress = self.progress
        parts = [self._in_flight()]
        parts.append(f"tokens {wording.count(progress.tokens_in)} in {wording.count(progress.tokens_out)} out")
        if progress.cost is not None:
            parts.append(f"cost {wording.money(progress.cost)}")
        return " · ".join(parts)

    def _in_flight(self) -> str:
        """How many run, what they do other than the rollout itself, and why the server makes them wait."""
        text = f"running {self.run.in_flight}"
        kinds = [f"{kind} {n}" for kind, n in self.run.waiting.items() if n and kind != "rollout"]
        if kinds:
            text += f" ({', '.join(kinds)})"
        status = self.client_status()
        return f"{text} · waiting: {status}" if status else text


def _bar(share: float, text: str, width: int) -> str:
    room = max(8, min(40, width - len(text) - 1))
    full = round(share * room)
    return _BAR[0] * full + _BAR[1] * (room - full) + text


def _finished(record: RolloutRecord) -> str:
    turns = "1 turn" if len(record.turns) == 1 else f"{len(record.turns)} turns"
    head = f"#{record.example_id}/{record.rollout_index}  {wording.number(record.reward, 2)}  {turns}"
    return f"{head}  {record.timing.total_s:.1f} s  {_last_words(record)}"


def _last_words(record: RolloutRecord) -> str:
    if record.errors:
        failure = record.errors[0]
        return f"{failure.side}: {failure.type}: {failure.message}"
    for message in reversed(record.messages):
        content = message.get("content")
        if message.get("role") in ("assistant", "text") and isinstance(content, str) and content.strip():
            text = " ".join(content.split())
            return f'"{text}"' if len(text) <= 50 else f'"…{text[-50:]}"'
    return record.stop_condition or ""


@asynccontextmanager
async def shown(view: Shown, *, live: bool, redact: Callable[[str], str]) -> AsyncIterator[None]:
    """Shows `view` on stderr while the body runs. `live` needs a terminal; else lines are printed."""
    show = _live if live else _plain
    task = asyncio.create_task(show(view, redact))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _plain(view: Shown, redact: Callable[[str], str]) -> None:
    line = view.opening()
    while True:
        with suppress(OSError):  # nobody reads it any more
            print(redact(line), file=sys.stderr, flush=True)
        await asyncio.sleep(PLAIN_S)
        line = view.plain()


async def _live(view: Shown, redact: Callable[[str], str]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as screen:
        while True:
            lines = view.lines(console.width - 1, max(4, console.height // 3))
            screen.update(_styled([redact(line) for line in lines]), refresh=True)
            await asyncio.sleep(LIVE_S)


def _styled(lines: list[str]) -> Any:
    """Text with the title and the reward in bold, finished rollouts dim, errors red; NO_COLOR is rich's own matter."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop")
    for number, line in enumerate(lines):
        text.append(line, style=_style(number, line))
        text.append("\n" if number < len(lines) - 1 else "")
    return text


def _style(number: int, line: str) -> str:
    if number in (0, 2):
        return "bold"
    return "dim" if line.startswith("#") else "red" if line.startswith(("errors", "ALARM")) else ""


def can_be_live() -> bool:
    """Whether stderr is a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("dumb", "")


def terminal_width(default: int = 80) -> int:
    try:
        return max(40, os.get_terminal_size(2).columns)
    except OSError:
        return default
