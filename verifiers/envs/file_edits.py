"""Edits of a text file as a model asks for them. Pure: text in, text out, or `EditError` with what to do instead."""

from __future__ import annotations

MAX_SHOWN = 400  # lines around what is asked for


class EditError(ValueError):
    """The edit cannot be made; the message is for the model."""


def viewed(text: str, view_range: list[int] | None = None) -> str:
    """The lines, numbered from 1; `[first, last]` of them, and -1 is the last one there is."""
    lines = text.split("\n")
    if len(lines) > 1 and lines[-1] == "":
        lines.pop()
    first, last = 1, len(lines)
    if view_range:
        if len(view_range) != 2 or not all(isinstance(number, int) for number in view_range):
            raise EditError(f"view_range is two numbers of lines, [first, last], got {view_range}")
        first = view_range[0]
        last = len(lines) if view_range[1] == -1 else min(view_range[1], len(lines))
        if not 1 <= first <= last:
            raise EditError(f"view_range {view_range} shows nothing: the file has lines 1 to {len(lines)}")
    shown = [f"{number:6}\t{lines[number - 1]}" for number in range(first, min(last, first + MAX_SHOWN - 1) + 1)]
    if last - first >= MAX_SHOWN:
        shown.append(f"… (lines {first + MAX_SHOWN} to {last} not shown; ask for them by view_range)")
    return "\n".join(shown)


def edited(
    text: str, command: str, old_str: str | None, new_str: str | None, insert_line: int | None
) -> tuple[str, str]:
    """The text after `str_replace` or `insert`, and what is shown of it."""
    new = new_str or ""
    if command == "str_replace":
        changed, line = replaced(text, old_str or "", new)
    elif command == "insert":
        if insert_line is None or new_str is None:
            raise EditError("insert needs insert_line and new_str")
        changed, line = inserted(text, insert_line, new), insert_line + 1
    else:
        raise EditError(f"there is no command {command!r}; there are view, create, str_replace and insert")
    return changed, around(changed, line, new.count("\n") + 1)


def replaced(text: str, old: str, new: str) -> tuple[str, int]:
    """With the one place where `old` stands changed to `new`, and the line where that begins."""
    if not old:
        raise EditError("old_str is empty; give the text to replace, or use the command insert")
    count = text.count(old)
    if count == 0:
        raise EditError("old_str was not found; it must be the file's text exactly, spaces and line ends included")
    if count > 1:
        raise EditError(f"old_str stands there {count} times; give more of the lines around the one that is meant")
    place = text.index(old)
    return text[:place] + new + text[place + len(old) :], text.count("\n", 0, place) + 1


def inserted(text: str, line: int, new: str) -> str:
    """With `new` as lines of its own after a line; after line 0 is at the beginning."""
    lines = text.splitlines(keepends=True)
    if not 0 <= line <= len(lines):
        raise EditError(f"insert_line {line} is not in the file: it has {len(lines)} lines, and 0 is before the first")
    if line and not lines[line - 1].endswith("\n"):
        lines[line - 1] += "\n"
    if not new.endswith("\n"):
        new += "\n"
    return "".join([*lines[:line], new, *lines[line:]])


def around(text: str, line: int, count: int) -> str:
    """What an edit has made, with three lines before and after."""
    total = text.count("\n") + (not text.endswith("\n"))
    first, last = max(1, line - 3), min(total, line + count + 2)
    return viewed(text, [first, last]) if first <= last else ""
