"""Reading samples: one rollout, filtered lists, examples with their tries, a page at a time.

A list walks the light rows in order of example and try and stops when its page is full, or when it has looked for long
enough: `next_after` then says where to go on. What a project keeps at home (`publish_answers = false`) is taken away
before a filter sees it, so that nobody finds an answer by asking for it.
"""

from __future__ import annotations

import heapq
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec
from sqlalchemy import literal, select, tuple_

from hub_server.errors import BadRequest, NotFound
from hub_server.hub import Hub
from hub_server.models import Sample, SampleChunk
from hub_server.principal import Principal
from hub_server.services.evaluation_access import evaluation_for_reading
from hub_server.services.sample_chunks import read_chunk
from hub_server.services.withholding import row_without_answers
from verifiers.records import RolloutRecord, decode_record, without_answers
from verifiers.viewer import ORDERS, Example, Filter, SampleRow, parse_filter, searchable_text

Key = tuple[int, int]  # example_id, rollout_index

READ_AT_ONCE = 1_000
MOST_ON_A_PAGE = 1_000
LOOK_S = 2.0  # a page that is still not full after so long is given as it is
CHUNKS_HELD = 4

_row_decoder = msgspec.json.Decoder(SampleRow)
_CURSOR = re.compile(r"(-?\d{1,19})\.(\d{1,19})")


@dataclass(frozen=True, slots=True)
class SamplePage:
    rows: Sequence[SampleRow]
    next_after: str | None  # for the next page; None: all were looked at
    n_looked_at: int


@dataclass(frozen=True, slots=True)
class ExamplePage:
    """Examples of which at least one try fits the filter, each with all its tries that do."""

    examples: Sequence[Example]
    n_examples: int | None  # that fit in all; None: not all were looked at
    next_offset: int | None


def rollout(hub: Hub, who: Principal, evaluation_id: str, example_id: int, rollout_index: int) -> RolloutRecord:
    """One record. Raises NotFound."""
    reader = _Reader(hub, who, evaluation_id)
    with hub.database.read() as session:
        found = session.execute(
            select(Sample.chunk, Sample.line).where(
                Sample.evaluation_id == evaluation_id,
                Sample.example_id == example_id,
                Sample.rollout_index == rollout_index,
            )
        ).one_or_none()
    if found is None:
        raise NotFound(f"evaluation {evaluation_id} has no rollout {rollout_index} of example {example_id}")
    return reader.record(*found)


def rows(hub: Hub, who: Principal, evaluation_id: str) -> Iterator[SampleRow]:
    """Every row, by example and try. Raises NotFound at once, not at the first row."""
    return (row for row, _, _ in _Reader(hub, who, evaluation_id).walk(None))


def page(
    hub: Hub,
    who: Principal,
    evaluation_id: str,
    *,
    filter_text: str = "",
    after: str | None = None,
    limit: int = 100,
    look_s: float = LOOK_S,
) -> SamplePage:
    """Rows that fit `filter_text` (the filter language of the viewer). Raises BadRequest where that errs."""
    reader, filter, start = _Reader(hub, who, evaluation_id), _parsed(filter_text), _cursor(after)
    limit = max(1, min(limit, MOST_ON_A_PAGE))
    until, looked = time.monotonic() + look_s, 0
    found: list[SampleRow] = []
    for row, chunk, line in reader.walk(start):
        looked += 1
        if reader.fits(filter, row, chunk, line):
            found.append(row)
        if len(found) == limit or (time.monotonic() > until):
            return SamplePage(found, f"{row.example_id}.{row.rollout_index}", looked)
    return SamplePage(found, None, looked)


def examples(
    hub: Hub,
    who: Principal,
    evaluation_id: str,
    *,
    filter_text: str = "",
    order: str = "example",
    offset: int = 0,
    limit: int = 100,
    look_s: float = 4 * LOOK_S,
) -> ExamplePage:
    """A page of examples in one of the viewer's `ORDERS`. Holds `offset + limit` examples, however many there are."""
    reader, filter = _Reader(hub, who, evaluation_id), _parsed(filter_text)
    if order not in ORDERS:
        raise BadRequest(f"order is one of {', '.join(ORDERS)}, not '{order[:40]}'", code="bad_order")
    limit, offset = max(1, min(limit, MOST_ON_A_PAGE)), max(0, min(offset, 100_000))
    until, is_whole = time.monotonic() + look_s, True
    counted = 0
    may_stop = order == "example" and not filter.source  # they come in this order, and their number is known

    def fitting() -> Iterator[Example]:
        nonlocal counted, is_whole
        for example_id, found in groupby(reader.walk(None), key=lambda item: item[0].example_id):
            tries = tuple(row for row, chunk, line in found if reader.fits(filter, row, chunk, line))
            if tries:
                counted += 1
                yield Example(example_id, tries)
            if time.monotonic() > until or (may_stop and counted > offset + limit):
                is_whole = False
                return

    _, key = ORDERS[order]
    best = heapq.nsmallest(offset + limit, fitting(), key=lambda example: (key(example), example.example_id))
    n_examples = counted if is_whole else reader.n_examples if may_stop else None
    return ExamplePage(best[offset:], n_examples, offset + limit if counted > offset + limit else None)


def _parsed(text: str) -> Filter:
    try:
        return parse_filter(text)
    except ValueError as error:  # the filter's own, which says what was expected where
        raise BadRequest(str(error), code="bad_filter") from None


def _cursor(after: str | None) -> Key | None:
    if after is None:
        return None
    match = _CURSOR.fullmatch(after)
    if match is None or max(abs(int(match[1])), int(match[2])) >= 1 << 63:
        raise BadRequest("after: not the end of a page of this list", code="bad_cursor")
    return int(match[1]), int(match[2])


class _Reader:
    """One evaluation's samples, for whoever may see it."""

    def __init__(self, hub: Hub, who: Principal, evaluation_id: str) -> None:
        self._hub, self._id = hub, evaluation_id
        with hub.database.read() as session:
            evaluation = evaluation_for_reading(session, who, evaluation_id)
            self._has_answers = evaluation.project.publish_answers
            self.n_examples = evaluation.n_examples or None  # None: samples are still arriving
        self._chunks: OrderedDict[int, list[bytes]] = OrderedDict()

    def walk(self, after: Key | None) -> Iterator[tuple[SampleRow, int, int]]:
        """Rows with their chunk and line, read in slices: no transaction is open while somebody looks at them."""
        columns = select(Sample.row, Sample.chunk, Sample.line).where(Sample.evaluation_id == self._id)
        ordered = columns.order_by(Sample.example_id, Sample.rollout_index).limit(READ_AT_ONCE)
        while True:
            key = tuple_(Sample.example_id, Sample.rollout_index)
            wanted = ordered if after is None else ordered.where(key > tuple_(literal(after[0]), literal(after[1])))
            with self._hub.database.read() as session:
                found = session.execute(wanted).all()
            for text, chunk, line in found:
                row = _row_decoder.decode(text)
                after = row.key
                yield (row if self._has_answers else row_without_answers(row)), chunk, line
            if len(found) < READ_AT_ONCE:
                return

    def fits(self, filter: Filter, row: SampleRow, chunk: int, line: int) -> bool:
        return filter.matches(row, lambda: searchable_text(self.record(chunk, line)))

    def record(self, chunk: int, line: int) -> RolloutRecord:
        record = decode_record(self._lines(chunk)[line])
        return record if self._has_answers else without_answers(record)

    def _lines(self, chunk: int) -> list[bytes]:
        if chunk in self._chunks:
            self._chunks.move_to_end(chunk)
            return self._chunks[chunk]
        with self._hub.database.read() as session:
            found = session.get(SampleChunk, (self._id, chunk))
        if found is None:
            raise NotFound("these samples are gone: the evaluation was deleted")
        lines = self._chunks[chunk] = read_chunk(self._hub, found.key)
        if len(self._chunks) > CHUNKS_HELD:
            self._chunks.popitem(last=False)
        return lines
