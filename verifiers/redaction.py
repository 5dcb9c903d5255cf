"""`Redactor`: takes the values of secrets out of whatever is written, logged or sent away."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from verifiers.records import RolloutRecord

MASK = "***"
MIN_LENGTH = 6  # a shorter value would hit ordinary words


class Redactor:
    """Replaces secrets by value, wherever they stand: plain, inside JSON inside JSON (tool arguments), in URLs.

    Two kinds of value are left alone: those shorter than 6 characters, and those that are part of a word of the saved
    format (a server that wants the key "prompt"), since masking these would break the file and hide nothing.

    >>> Redactor(["sk-12345678"]).text("key sk-12345678 refused")
    'key *** refused'
    """

    def __init__(self, secrets: Iterable[str | None] = (), *, words: frozenset[str] | None = None) -> None:
        """`words` are the field names and fixed values of the format written; by default the record's."""
        values = {
            value for secret in secrets if secret for value in (secret, secret.strip()) if len(value) >= MIN_LENGTH
        }
        if values:
            words = words_of(RolloutRecord) if words is None else words
            values = {value for value in values if not any(value in word for word in words)}
        forms = {form for value in values for form in _spellings(value) if len(form) >= MIN_LENGTH}
        self._forms = sorted(forms, key=len, reverse=True)  # a longer one may contain a shorter one
        self._needles = [needle.encode("utf-8", "surrogatepass") for value in values for needle in _needles(value)]

    def __repr__(self) -> str:
        return f"Redactor({MASK})"

    def text(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    def value(self, value: Any) -> Any:
        """A copy of plain nested data with every string in it redacted, keys too. Numbers are left as they are."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def data(self, encoded: bytes) -> bytes:
        """Encoded JSON, redacted; the very same object when there is nothing to hide. Other bytes are taken as text."""
        if not any(needle in encoded for needle in self._needles):
            return encoded
        try:
            value = msgspec.json.decode(encoded)
        except msgspec.DecodeError:
            return self.text(encoded.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        # Only strings are touched, so that a secret of digits or of JSON's own characters cannot break the document.
        return msgspec.json.encode(self.value(value))


def words_of(*types: type) -> frozenset[str]:
    """Field names and fixed values that the JSON of these structs may contain."""
    return _words_of(types)


@functools.cache
def _words_of(types: tuple[type, ...]) -> frozenset[str]:
    _, schemas = msgspec.json.schema_components(types)
    return frozenset(_schema_words(schemas))


def _schema_words(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        yield from (value for value in schema.get("enum", ()) if isinstance(value, str))
        for part in schema.values():
            yield from _schema_words(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _schema_words(part)


def _spellings(secret: str) -> set[str]:
    """The forms in which a value turns up in text: on one line, in a URL, in a `repr`, in JSON up to three deep."""
    one_line = " ".join(secret.split())  # error messages are joined so
    layer = {secret, one_line, repr(secret)[1:-1]}
    layer |= {encode(secret, safe="", errors="replace") for encode in (quote, quote_plus)}
    found = set(layer)
    for _ in range(3):
        layer = {form for shape in layer for form in _escaped(shape)}
        found |= layer
    return found


def _needles(secret: str) -> set[str]:
    """Strings of which one occurs wherever the secret does, in JSON: what `data` looks for before it works harder."""
    plain = max(re.findall(r"[A-Za-z0-9_.-]+", secret), key=len, default="")  # spelled the same in every form
    if len(plain) >= 4:
        return {plain}
    return {form for shape in _spellings(secret) for form in (shape, *_escaped(shape))}


def _escaped(text: str) -> tuple[str, str]:
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
