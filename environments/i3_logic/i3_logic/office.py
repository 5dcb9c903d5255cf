"""Puzzles of an office: a table with mistakes to undo, and a time at which everybody is free."""

from __future__ import annotations

import random
import re
from typing import Any

import verifiers as vf
from i3_logic.kind import LogicKind, read_integers
from verifiers.rubrics.logic_task import Puzzle

Table = list[list[Any]]

COLUMNS = ("day", "item", "price", "count", "till")
ITEMS = ("bread", "cheese", "honey", "olives", "tea")
DAYS: tuple[str, ...] = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")


class BuggyTables(LogicKind):
    """A table that a faulty program wrote; numbers from the table as it should be."""

    name = "buggy_tables"
    parts = ("table", "bugs", "asked")
    answer_form = "Write the numbers in the order of the questions, separated by spaces."
    grows = "rows: 5, 8, 11, 14, 17; mistakes: 1, 2, 3, 4, 5"
    is_unique = True
    example = {
        "table": [["Monday", "tea", 3, 2, 1], ["Friday", "bread", 5, 1, 2]],
        "bugs": [["turned", 3, 0]],
        "asked": [["count", "item", "tea"], ["price", "till", 2]],
    }
    example_answer = "1 5"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        rows = 2 + 3 * difficulty
        table: Table = [
            [rng.choice(DAYS), rng.choice(ITEMS), rng.randint(2, 40), rng.randint(1, 9), rng.randint(1, 3)]
            for _ in range(rows)
        ]
        while True:
            bugs: list[list[Any]] = []
            for _ in range(difficulty):
                kind = rng.choice(("moved", "turned", "exchanged", "raised"))
                column = rng.choice((2, 3, 3, 4, 1, 0))
                if kind == "exchanged":
                    bugs.append([kind, *sorted(rng.sample((2, 3, 4), 2))])
                elif kind == "raised":
                    bugs.append([kind, rng.choice((2, 3)), rng.randint(2, 9)])
                else:
                    bugs.append([kind, column, rng.randint(1, rows - 1) if kind == "moved" else 0])
            asked = [self._question(rng, table) for _ in range(2)]
            shown = table
            for bug in bugs:
                shown = _bug(shown, bug)
            numbers = [_total(table, question) for question in asked]
            if asked[0] != asked[1] and all(_total(shown, question) != n for question, n in zip(asked, numbers)):
                return {"table": shown, "bugs": bugs, "asked": asked}, " ".join(map(str, numbers))

    def _question(self, rng: random.Random, table: Table) -> list[Any]:
        by = rng.choice(("day", "item", "till"))
        return [rng.choice(("price", "count")), by, rng.choice(table)[COLUMNS.index(by)]]

    def rules(self, puzzle: Puzzle) -> str:
        said = {
            "moved": "the entries of column {0} were moved down by {1} rows, those that fell off at the end coming in "
            "again at the top",
            "turned": "the entries of column {0} were written from the last row to the first",
            "exchanged": "the entries of columns {0} and {1} were exchanged in every row",
            "raised": "{1} was added to every entry of column {0}",
        }
        bugs: list[str] = []
        for kind, column, argument in puzzle["bugs"]:
            second = COLUMNS[argument] if kind == "exchanged" else argument
            bugs.append(f"- {said[kind].format(COLUMNS[column], second)}")
        return "\n".join(
            ["A faulty program has spoilt a table, in these steps, one after the other:", *bugs,
             "Undo this, and answer from the table as it was at first."]
        )  # fmt: skip

    def show(self, puzzle: Puzzle) -> str:
        rows = [" | ".join(map(str, row)) for row in (list(COLUMNS), *puzzle["table"])]
        asked = [
            f"{n}. What is the sum of {column} over the rows whose {by} is {value}?"
            for n, (column, by, value) in enumerate(puzzle["asked"], 1)
        ]
        return "\n".join([*rows, *asked])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        table: Table = puzzle["table"]
        for bug in reversed(puzzle["bugs"]):
            table = _undone(table, bug)
        numbers = [_total(table, question) for question in puzzle["asked"]]
        for place, (found, wanted) in enumerate(zip(read_integers(answer, len(numbers)), numbers), 1):
            if found != wanted:
                raise vf.WrongAnswer(f"the answer to question {place} is not {found}")


def _columns(table: Table) -> list[list[Any]]:
    return [list(column) for column in zip(*table)]


def _bug(table: Table, bug: list[Any]) -> Table:
    kind, column, argument = bug
    columns = _columns(table)
    old = columns[column]
    if kind == "moved":
        columns[column] = old[-argument:] + old[:-argument]
    elif kind == "turned":
        columns[column] = old[::-1]
    elif kind == "exchanged":
        columns[column], columns[argument] = columns[argument], old
    else:
        columns[column] = [value + argument for value in old]
    return _columns(columns)


def _undone(table: Table, bug: list[Any]) -> Table:
    kind, column, argument = bug
    if kind == "moved":
        return _bug(table, [kind, column, len(table) - argument])
    return _bug(table, [kind, column, -argument] if kind == "raised" else bug)


def _total(table: Table, question: list[Any]) -> int:
    column, by, value = question
    return sum(row[COLUMNS.index(column)] for row in table if row[COLUMNS.index(by)] == value)


OPENS, CLOSES = 9 * 60, 17 * 60  # minutes of the day
MOST_STARTS = 4  # quarters of an hour at which the meeting can begin


class TimeSequence(LogicKind):
    """A day and a time at which everybody is free for a meeting."""

    name = "time_sequence"
    parts = ("minutes", "days", "busy")
    answer_form = "Write the day and the time at which it begins, like: Monday 10:30."
    grows = "people: 2, 3, 4, 5, 6; days: 1, 2, 3, 4, 5"
    example = {"minutes": 420, "days": ["Monday"], "busy": {"Ada": {"Monday": [[540, 600]]}}}
    example_answer = "Monday 10:00"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        people, days = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn")[: 1 + difficulty], list(DAYS[:difficulty])
        minutes = rng.choice((30, 45, 60, 75))
        day, begins = rng.choice(days), rng.randrange(OPENS, CLOSES - minutes, 15)
        busy: dict[str, dict[str, list[list[int]]]] = {name: {one: [] for one in days} for name in people}
        while len(starts := _starts(busy, days, minutes)) > MOST_STARTS:
            # somebody gets busy at a time that is still free for all, but never at the time that is kept
            on, at = rng.choice([start for start in starts if start != (day, begins)])
            before, after = rng.choice((0, 15, 30)), rng.choice((15, 30, 45, 60))
            slot = [max(OPENS, at - before), min(CLOSES, at + after)]
            if on == day and slot[0] < begins + minutes and begins < slot[1]:
                slot = [slot[0], begins] if at < begins else [begins + minutes, slot[1]]
            if slot[0] < slot[1]:
                name = rng.choice(people)
                busy[name][on] = _joined([*busy[name][on], slot])
        return {"minutes": minutes, "days": days, "busy": busy}, f"{day} {_clock(begins)}"

    def rules(self, puzzle: Puzzle) -> str:
        return (
            f"A meeting of {puzzle['minutes']} minutes is held on one of these days: {', '.join(puzzle['days'])}. "
            f"It begins at {_clock(OPENS)} or later and ends at {_clock(CLOSES)} or earlier. "
            "When is everybody free all the time?"
        )

    def show(self, puzzle: Puzzle) -> str:
        lines: list[str] = []
        for name, days in puzzle["busy"].items():
            for day, slots in days.items():
                times = ", ".join(f"{_clock(start)} to {_clock(end)}" for start, end in slots)
                lines.append(f"{name} is busy on {day}: {times or 'never'}")
        return "\n".join(lines)

    def check(self, puzzle: Puzzle, answer: str) -> None:
        read = re.fullmatch(r"\s*([A-Za-z]{6,9})[\s,]+(?:at\s+)?([0-9]{1,2}):([0-9]{2})\s*\.?\s*", answer)
        day = next((day for day in puzzle["days"] if read and day.casefold() == read[1].casefold()), None)
        if not read or day is None:
            raise vf.WrongAnswer(f"{answer.strip()!r:.40} is no day and time of this puzzle")
        if int(read[3]) > 59:
            raise vf.WrongAnswer(f"an hour has no minute {read[3]}")
        begins = 60 * int(read[2]) + int(read[3])
        ends = begins + puzzle["minutes"]
        if begins < OPENS or ends > CLOSES:
            raise vf.WrongAnswer(f"the meeting would be from {_clock(begins)} to {_clock(ends)}")
        for name, days in puzzle["busy"].items():
            for start, end in days[day]:
                if start < ends and begins < end:
                    raise vf.WrongAnswer(f"{name} is busy from {_clock(start)} to {_clock(end)}")


def _starts(busy: dict[str, dict[str, list[list[int]]]], days: list[str], minutes: int) -> list[tuple[str, int]]:
    """The quarters of an hour at which a meeting can begin."""
    return [
        (day, at)
        for day in days
        for at in range(OPENS, CLOSES - minutes + 1, 15)
        if all(at + minutes <= start or end <= at for slots in busy.values() for start, end in slots[day])
    ]


def _joined(slots: list[list[int]]) -> list[list[int]]:
    """The same times without overlaps, in order."""
    found: list[list[int]] = []
    for start, end in sorted(slots):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return found


def _clock(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02}"
