"""`Filter`: which rollouts to show, as a person types it: `reward<0.5 and turns>3`, `status=fault`, `"text"`.

    filter     = or-group
    or-group   = and-group { "or" and-group }
    and-group  = negation { ["and"] negation }
    negation   = "not" negation | "(" or-group ")" | condition
    condition  = field operator value { "," value } | flag | '"text"'
    field      = reward turns errors tokens duration example try | status stop model title | error | score.NAME or NAME
    operator   = "=" "==" ":" "!=" "<" "<=" ">" ">="   and, of text, "~" (contains) "!~"

A number that a rollout does not have is neither smaller nor larger than any: `reward<1` leaves out the unscored, and
`reward=none` finds them.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, get_args

from verifiers.errors import ConfigError
from verifiers.records import RolloutStatus
from verifiers.viewer.filter_tokens import Token, is_word, tokens
from verifiers.viewer.rows import SampleRow

MAX_LENGTH = 2_000  # characters
MAX_DEPTH = 50  # parentheses and "not" inside each other

Text = Callable[[], str]  # everything said in a rollout, in lower case; called only when a phrase asks for it
Test = Callable[[SampleRow, Text], bool]

NUMBERS: dict[str, Callable[[SampleRow], float | None]] = {
    "reward": lambda row: row.reward,
    "turns": lambda row: row.turns,
    "errors": lambda row: row.n_errors,
    "tokens": lambda row: row.tokens,
    "duration": lambda row: row.duration_s,
    "example": lambda row: row.example_id,
    "try": lambda row: row.rollout_index,
}
TEXTS: dict[str, Callable[[SampleRow], Sequence[str]]] = {
    "status": lambda row: (row.status,),
    "stop": lambda row: (row.stop_condition or "none",),
    "model": lambda row: (row.model,),
    "title": lambda row: (row.title,),
    "error": lambda row: (*row.error_sides, *row.error_types) or ("none",),
}
FLAGS: dict[str, Callable[[SampleRow], bool]] = {"truncated": lambda row: row.is_truncated}
FIELDS = (*NUMBERS, *TEXTS, *FLAGS)

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SAME = {"==": "=", ":": "="}
_NUMBER = re.compile(r"([+−-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([km]?)", re.I)
_SCALE = {"": 1, "k": 1_000, "m": 1_000_000}


@dataclass(frozen=True)
class Filter:
    """A parsed filter. An empty one matches every row.

    >>> filter = parse_filter("reward<0.5 and not status=failed")
    >>> filter.matches(SampleRow(example_id=0, rollout_index=0, reward=0.25, status="scored"))
    True
    """

    source: str
    phrases: tuple[str, ...]  # what it looks for in what was said, in lower case
    _test: Test = field(repr=False, compare=False)

    def matches(self, row: SampleRow, text: str | Callable[[], str] | None = None) -> bool:
        """`text` is `searchable_text` of the record, or gets it. Without it phrases are looked for in the row alone."""

        def said() -> str:
            return ((text() if callable(text) else text) or "").lower()

        return self._test(row, said)


def parse_filter(text: str, *, score_names: Iterable[str] | None = None) -> Filter:
    """Raises ConfigError saying what was expected where.

    With `score_names` a name that is neither a field nor one of them is refused; without, it is taken for a score's.
    """
    if len(text) > MAX_LENGTH:
        raise ConfigError(f"filter: {len(text)} characters; up to {MAX_LENGTH} are read")
    parser = _Parser(text, None if score_names is None else frozenset(score_names))
    test = parser.filter()
    return Filter(text.strip(), tuple(parser.phrases), test)


class _Parser:
    def __init__(self, text: str, score_names: frozenset[str] | None) -> None:
        self._text, self._score_names = text, score_names
        self._tokens = list(tokens(text))
        self._next = self._depth = 0
        self.phrases: list[str] = []

    def filter(self) -> Test:
        if self._token.kind == "end":
            return lambda row, text: True
        test = self._or()
        if self._token.kind != "end":
            self._fail("'and', 'or' or the end")
        return test

    def _or(self) -> Test:
        tests = [self._and()]
        while self._takes("or"):
            tests.append(self._and())
        return tests[0] if len(tests) == 1 else lambda row, text: any(test(row, text) for test in tests)

    def _and(self) -> Test:
        tests = [self._negation()]
        while self._takes("and") or self._begins_condition():
            tests.append(self._negation())
        return tests[0] if len(tests) == 1 else lambda row, text: all(test(row, text) for test in tests)

    def _begins_condition(self) -> bool:
        token = self._token
        return (
            token.kind == "quoted" or token[:2] == ("mark", "(") or (token.kind == "word" and not is_word(token, "or"))
        )

    def _negation(self) -> Test:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"at most {MAX_DEPTH} levels of parentheses and 'not'")
        if self._takes("not"):
            inner = self._negation()
            test: Test = lambda row, text: not inner(row, text)  # noqa: E731
        elif self._token[:2] == ("mark", "("):
            opened = self._take()
            test = self._or()
            if self._token[:2] != ("mark", ")"):
                self._fail(f"')' for the '(' at character {opened.at + 1}")
            self._take()
        else:
            test = self._condition()
        self._depth -= 1
        return test

    def _condition(self) -> Test:
        token = self._token
        if token.kind not in ("word", "quoted") or is_word(token, "and", "or"):
            self._fail(f"a field ({', '.join(FIELDS)}, or a score's name) or a text in quotes")
        self._take()
        field_ = token.value.lower() if token.kind == "word" else ""  # what is quoted is a score's name, or a text
        if self._token.kind != "op":
            if token.kind == "quoted":
                return self._phrase(token.value)
            if field_ in FLAGS:
                return lambda row, text: FLAGS[field_](row)
            self._fail_without_operator(token)
        sign = self._take().value
        sign = _SAME.get(sign, sign)
        if field_ in FLAGS:
            return self._flag(FLAGS[field_], sign)
        if field_ in TEXTS:
            return self._text_condition(field_, TEXTS[field_], sign)
        if field_ in NUMBERS:
            return self._number_condition(field_, NUMBERS[field_], sign)
        score = self._score_name(token)
        return self._number_condition(token.value, lambda row: row.scores.get(score), sign)

    def _fail_without_operator(self, token: Token) -> NoReturn:
        name = token.value
        if name.lower() in FIELDS:
            self._fail(f"an operator (= != < <= > >= ~) after '{name}'")
        if near := difflib.get_close_matches(name.lower(), FIELDS, n=1):
            self._fail(f"a condition (did you mean '{near[0]}'?)", token)
        self._fail(f"an operator after '{name}' (to look for this text, put it in quotes: \"{name}\")")

    def _score_name(self, token: Token) -> str:
        name, known = token.value.removeprefix("score."), self._score_names
        if known is not None and name not in known:
            names = [*FIELDS, *sorted(known)]
            near = difflib.get_close_matches(name, names, n=1)
            self._fail(f"a field (did you mean '{near[0]}'?)" if near else f"one of {', '.join(names)}", token)
        return name

    def _phrase(self, phrase: str) -> Test:
        wanted = phrase.lower()
        if not wanted:
            return lambda row, text: True
        self.phrases.append(wanted)

        def test(row: SampleRow, text: Text) -> bool:
            at_hand = (row.title, row.stop_condition or "", *row.error_types)
            return any(wanted in part.lower() for part in at_hand) or wanted in text()

        return test

    def _flag(self, read: Callable[[SampleRow], bool], sign: str) -> Test:
        if sign not in ("=", "!="):
            self._fail("'=' or '!='", self._tokens[self._next - 1])
        token = self._value("yes or no")
        if not is_word(token, "yes", "no", "true", "false"):
            self._fail("yes or no", token)
        wanted = is_word(token, "yes", "true") == (sign == "=")
        return lambda row, text: read(row) == wanted

    def _text_condition(self, name: str, read: Callable[[SampleRow], Sequence[str]], sign: str) -> Test:
        if sign not in ("=", "!=", "~", "!~"):
            self._fail(f"= != ~ or !~, since {name} is a text", self._tokens[self._next - 1])
        tokens = self._values(f"a text to compare {name} with")
        if name == "status" and sign in ("=", "!="):
            self._check_statuses(tokens)
        wanted = [token.value.lower() for token in tokens]
        is_part = sign.endswith("~")

        def test(row: SampleRow, text: Text) -> bool:
            found = [value.lower() for value in read(row)]
            return any((one in value if is_part else one == value) for value in found for one in wanted)

        return (lambda row, text: not test(row, text)) if sign.startswith("!") else test

    def _check_statuses(self, tokens: Sequence[Token]) -> None:
        known = get_args(RolloutStatus)
        for token in tokens:
            if token.value.lower() not in known:
                self._fail(f"a status ({', '.join(known)})", token)

    def _number_condition(self, name: str, read: Callable[[SampleRow], float | None], sign: str) -> Test:
        if sign not in (*_COMPARE, "=", "!="):
            self._fail(f"= != < <= > or >=, since {name} is a number", self._tokens[self._next - 1])
        many = sign in ("=", "!=")
        expected = f"a number{' or none' if many else ''} after '{name}{sign}'"
        tokens = self._values(expected) if many else [self._value(expected)]
        wanted = [self._number(token, expected, may_be_none=many) for token in tokens]
        if many:
            return lambda row, text: any(_same(read(row), one) for one in wanted) == (sign == "=")
        compare, (limit,) = _COMPARE[sign], wanted

        def test(row: SampleRow, text: Text) -> bool:
            value = read(row)
            return value is not None and compare(value, limit)

        return test

    def _number(self, token: Token, expected: str, *, may_be_none: bool) -> float | None:
        if may_be_none and is_word(token, "none"):
            return None
        match = _NUMBER.fullmatch(token.value) if token.kind == "word" else None
        if match is None:
            self._fail(expected, token)
        return float(match[1].replace("−", "-")) * _SCALE[match[2].lower()]

    def _values(self, expected: str) -> list[Token]:
        found = [self._value(expected)]
        while self._token[:2] == ("mark", ","):
            self._take()
            found.append(self._value(expected))
        return found

    def _value(self, expected: str) -> Token:
        if self._token.kind not in ("word", "quoted"):
            self._fail(expected)
        return self._take()

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._token
        self._next += token.kind != "end"
        return token

    def _takes(self, word: str) -> bool:
        if not is_word(self._token, word):
            return False
        self._take()
        return True

    def _fail(self, expected: str, token: Token | None = None) -> NoReturn:
        token = token or self._token
        raise ConfigError(f"filter: expected {expected} at character {token.at + 1}, found {token}")


def _same(value: float | None, wanted: float | None) -> bool:
    """0.1 + 0.2 is what a person calls 0.3."""
    return value is wanted if value is None or wanted is None else math.isclose(value, wanted, abs_tol=1e-12)
