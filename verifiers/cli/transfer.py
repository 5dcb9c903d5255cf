"""`transfer_bar`: progress of something that is sent or fetched."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def transfer_bar(text: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on a terminal; elsewhere a line when it begins, so that logs stay short."""
    if not sys.stderr.isatty():
        print(text, file=sys.stderr)
        yield lambda done, total: None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
