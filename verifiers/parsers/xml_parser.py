"""XMLParser: named fields, each written as `<field>...</field>`."""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

from verifiers.parsers.parser import FormatRewardFunc, Parser, identity, mean_over_texts


class Tag(NamedTuple):
    name: str
    is_closing: bool
    start: int
    end: int


class Block(NamedTuple):
    """A tag with its closing tag: `text[start:end]` with the tags, `text[inner_start:inner_end]` between them."""

    name: str
    start: int
    inner_start: int
    inner_end: int
    end: int


class XMLParser(Parser):
    """Reads fields in tags. A tuple in `fields` holds alternatives, its first name is the field's own.

    `parse` gives an object with every tag as an attribute, None where it is absent. Tags inside another
    field's block are looked at only when there is none outside, and never those before a `</think>`:
    a draft is not an answer. `parse_answer` takes `answer_field` from the last assistant
    message that has it, through `extract_fn`.

    The format reward of a message, from 0 to 1, is the sum of
    - 0.4 times the share of fields that are there (opened and closed, outside of other fields),
    - 0.2 if the tags are clean: at least one field, each at most once, in the order of `fields`,
      and no tag that is stray, unclosed or nested,
    - 0.2 if the message starts with the first field,
    - 0.2 if it ends with the last field;
    of a completion, the mean over its assistant messages. No tags at all is 0.

    >>> parser = XMLParser(["think", ("answer", "code")])
    >>> parser.parse("<think>1 + 1</think> <answer>2</answer>").answer
    '2'
    """

    def __init__(
        self,
        fields: Sequence[str | Sequence[str]],
        answer_field: str = "answer",
        extract_fn: Callable[[str], Any] = identity,
        **kwargs: Any,
    ) -> None:
        super().__init__(extract_fn=extract_fn, **kwargs)
        self.answer_field = answer_field
        self._fields = _read_fields(fields)

    # Made of `_fields` when first needed: authors' subclasses set that without calling this constructor.

    @cached_property
    def _owner(self) -> dict[str, str]:
        return {name: own for own, names in self._fields for name in names}

    @cached_property
    def _tag_pattern(self) -> re.Pattern[str]:
        tags = "|".join(re.escape(name) for name in {**self._owner, "think": "think"})
        return re.compile(f"<(/?)({tags})>")

    def parse(self, text: str, strip: bool = True, last: bool = False) -> Any:
        """Every tag's content as an attribute; the first block of a tag, or the last one with `last`."""
        text = text or ""
        tags = _with_implied_think(self._tags(text))
        outer = _outer_blocks(tags)
        nested = _without_thought(tags, outer)
        values: dict[str, str | None] = {}
        for name in self._owner:
            blocks = [block for block in outer if block.name == name] or _outer_blocks(
                [tag for tag in nested if tag.name == name]
            )
            values[name] = None
            if blocks:
                block = blocks[-1 if last else 0]
                content = text[block.inner_start : block.inner_end]
                values[name] = content.strip() if strip else content
        return SimpleNamespace(**values)

    def parse_answer(self, completion: Any) -> Any:
        for text in reversed(self.assistant_texts(completion)):
            answer = getattr(self.parse(text), self.answer_field, None)
            if answer is not None:
                return self.extract_fn(answer)
        return None

    def get_fields(self) -> list[str]:
        """Each field's own name, in order."""
        return [own for own, _ in self._fields]

    def get_format_str(self) -> str:
        """The format as a text for a prompt."""
        shown = [names[0] if len(names) == 1 else f"[ {' | '.join(names)} ]" for _, names in self._fields]
        return "\n".join(f"<{name}>\n...\n</{name}>" for name in shown)

    def format(self, **kwargs: Any) -> str:
        """A message with these values, each given under its field's own name or an alternative.

        It is written under the field's own name. Keywords that are no field are ignored, so that a
        whole dataset row can be passed.
        """
        parts = []
        for own, names in self._fields:
            value = next((kwargs[name] for name in names if kwargs.get(name) is not None), None)
            if value is None:
                raise ValueError(
                    f"XMLParser.format: no value for field {own!r} (got: {', '.join(kwargs) or 'nothing'}). "
                    f"Pass {' or '.join(f'{name}=...' for name in names)}"
                )
            parts.append(f"<{own}>\n{value}\n</{own}>")
        return "\n".join(parts)

    def get_format_reward_func(self) -> FormatRewardFunc:
        def format_reward_func(completion: Any, **kwargs: Any) -> float:
            return mean_over_texts(self._format_score, self.assistant_texts(completion))

        return format_reward_func

    def _format_score(self, text: str) -> float:
        text = text.strip()
        tags = [tag for tag in self._tags(text) if tag.name in self._owner]
        blocks = _outer_blocks(tags)
        if not blocks:
            return 0.0
        own_names = self.get_fields()
        found = [self._owner[block.name] for block in blocks]
        # Every tag belongs to one outer block, and the fields met are a subsequence of the declared ones.
        is_clean = len(tags) == 2 * len(blocks) and found == [own for own in own_names if own in found]
        starts = blocks[0].start == 0 and found[0] == own_names[0]
        ends = blocks[-1].end == len(text) and found[-1] == own_names[-1]
        # Counted in tenths, so that a perfect message is exactly 1.0.
        return (4 * len(set(found)) / len(own_names) + 2 * is_clean + 2 * starts + 2 * ends) / 10

    def _tags(self, text: str) -> list[Tag]:
        return [Tag(m[2], m[1] == "/", m.start(), m.end()) for m in self._tag_pattern.finditer(text)]


def _read_fields(fields: Sequence[str | Sequence[str]]) -> list[tuple[str, list[str]]]:
    """Each field as (its own name, all its names)."""
    if isinstance(fields, str) or not fields:
        raise ValueError(f"XMLParser: fields must be a list of at least one name, got {fields!r}. Try: ['answer']")
    read: list[tuple[str, list[str]]] = []
    seen: set[str] = set()
    for field in fields:
        names = _field_names(field)
        for name in names:
            if name in seen:
                raise ValueError(f"XMLParser: the field name {name!r} is given twice in {list(fields)!r}")
            seen.add(name)
        read.append((names[0], names))
    return read


def _field_names(field: Any) -> list[str]:
    names = list(field) if isinstance(field, (tuple, list)) else [field]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"XMLParser: a field is a name or a tuple of alternative names, got {field!r}")
    return names


def _with_implied_think(tags: list[Tag]) -> list[Tag]:
    """Many chat templates write the `<think>` into the prompt; then the message starts inside the thought."""
    first = next((tag for tag in tags if tag.name == "think"), None)
    return [Tag("think", False, 0, 0), *tags] if first is not None and first.is_closing else tags


def _outer_blocks(tags: list[Tag]) -> list[Block]:
    """The blocks outside all others, in order. A tag that never closes is passed over. Linear in the tags."""
    next_closing: dict[str, int] = {}
    closing_of = [-1] * len(tags)
    for i in range(len(tags) - 1, -1, -1):
        if tags[i].is_closing:
            next_closing[tags[i].name] = i
        else:
            closing_of[i] = next_closing.get(tags[i].name, -1)
    blocks: list[Block] = []
    i = 0
    while i < len(tags):
        j = closing_of[i]
        if j >= 0:
            blocks.append(Block(tags[i].name, tags[i].start, tags[i].end, tags[j].start, tags[j].end))
            i = j
        i += 1
    return blocks


def _without_thought(tags: list[Tag], outer: list[Block]) -> list[Tag]:
    """The tags that do not lie inside a closed `<think>`."""
    kept: list[Tag] = []
    thoughts = iter([block for block in outer if block.name == "think"])
    thought = next(thoughts, None)
    for tag in tags:
        while thought is not None and tag.start >= thought.end:
            thought = next(thoughts, None)
        if thought is None or tag.start < thought.inner_start or tag.start >= thought.inner_end:
            kept.append(tag)
    return kept
