"""`Selection`: the rollouts that a filter let through, as the list shows them: in examples, in order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from verifiers.viewer.links import Key
from verifiers.viewer.rows import DEFAULT_ORDER, Example, SampleRow, group_examples, ordered
from verifiers.viewer.squares import Scale


class Selection:
    """Made once and asked often: at 100,000 rollouts the grouping costs half a second, looking up nothing.

    >>> keys = [(1, 0), (1, 1), (0, 0), (0, 1)]
    >>> rows = [SampleRow(example_id=e, rollout_index=t, reward=1.0, status="scored") for e, t in keys]
    >>> selection = Selection(rows[:3], others=rows)
    >>> [len(example.tries) for example in selection.examples], selection.keys
    ([2, 2], [(0, 0), (1, 0), (1, 1)])
    """

    def __init__(
        self, rows: Iterable[SampleRow], *, others: Iterable[SampleRow] = (), order: str = DEFAULT_ORDER
    ) -> None:
        """`others` are further tries of the same examples, which the filter left out; they may repeat `rows`."""
        rows, others = list(rows), list(others)
        self.order = order
        self.matching = frozenset(row.key for row in rows)
        wanted = {row.example_id for row in rows}
        self.examples: list[Example] = ordered(
            group_examples([*(row for row in others if row.example_id in wanted), *rows]), order
        )
        self.scale = Scale.of([*rows, *others])

    @cached_property
    def keys(self) -> list[Key]:
        """The matching rollouts in the order of the list."""
        matching = self.matching
        return [key for example in self.examples for key in (row.key for row in example.tries) if key in matching]

    @cached_property
    def position(self) -> dict[Key, int]:
        """Index of each key in `keys`."""
        return {key: n for n, key in enumerate(self.keys)}

    @cached_property
    def example_position(self) -> dict[int, int]:
        """Index of each example id in `examples`."""
        return {example.example_id: n for n, example in enumerate(self.examples)}
