"""The words, operators and quoted texts that a filter consists of, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from verifiers.errors import ConfigError

_TOKEN = re.compile(
    r"""\s*(?:(?P<op><=|>=|!=|!~|==|[<>=:~])|(?P<mark>[(),])|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<word>[^\s()<>=!~:,"']+))""",
    re.S,
)


class Token(NamedTuple):
    kind: str  # op, mark, quoted, word, end
    value: str
    at: int  # index of its first character

    def __str__(self) -> str:
        return {"end": "the end", "quoted": f'the text "{self.value}"'}.get(self.kind, f"'{self.value}'")


def is_word(token: Token, *words: str) -> bool:
    return token.kind == "word" and token.value.lower() in words


def tokens(text: str) -> Iterator[Token]:
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at, end)
        if match is None:
            rest = text[at:end].lstrip()
            start = end - len(rest)
            if rest[0] in "\"'":
                raise ConfigError(f"filter: expected a closing {rest[0]} for the one at character {start + 1}")
            raise ConfigError(
                f"filter: expected a field, operator or value at character {start + 1}, found '{rest[0]}'"
            )
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "quoted":
            value = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.S)
        yield Token(kind, value, match.start(match.lastgroup or 0))
        at = match.end()
    yield Token("end", "", end)
