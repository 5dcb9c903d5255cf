"""`Html`: markup that is safe to send, because only `tag` and `visible` make it and both escape what they are given.

A page of rollouts is mostly text that a model wrote. With a template language each place where such text is printed
must be escaped; here the type says what is markup, and a plain `str` is text wherever it stands.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from itertools import groupby

_VOID = {"br", "hr", "img", "input", "meta", "link"}

# What a browser would obey or not show: control characters, whole ANSI sequences, bidirectional overrides, invisible
# spaces and tags, and halves of surrogate pairs, which UTF-8 cannot even carry.
_ODD = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_SHOWN = re.compile(f"\x1b\\[[0-9;:?]*[A-Za-z]|[{_ODD}]+")
_LONGEST_RUN = 3
_CONTROLS = (  # by code
    *("NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "TAB", "LF", "VT", "FF", "CR", "SO", "SI"),
    *("DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US"),
)


class Html(str):
    """A piece of markup. Templates that know `__html__` (Jinja, Mako, Django) print it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


Child = str | int | float | None | Iterable["Child"]


def tag(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """An element. Children that are no `Html` are text; an attribute that is `None` or `False` is left out.

    `class_` and `for_` lose their underscore, others become dashes.

    >>> tag("a", "<b>", href="/x?a=1&b=2", aria_label="go", hidden=True)
    '<a href="/x?a=1&amp;b=2" aria-label="go" hidden>&lt;b&gt;</a>'
    """
    opening = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        opening.append(key if value is True else f'{key}="{html.escape(plain(str(value)))}"')
    start = f"<{' '.join(opening)}>"
    if name in _VOID:
        return Html(start)
    return Html(f"{start}{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Html:
    return Html("".join(_as_html(child) for child in children))


def _as_html(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return visible(child)
    if isinstance(child, (int, float)):
        return str(child)
    return join(child)


def visible(text: str) -> Html:
    """Escaped, with everything that has no shape of its own shown as a marked symbol.

    >>> visible("a\\x1b[31mb")
    'a<span class="rv-odd">⟨ESC⟩[31m</span>b'
    """
    text = text.replace("\r\n", "\n")
    return Html(_SHOWN.sub(_marked, html.escape(text, quote=False)))


def plain(text: str) -> str:
    """The same symbols where there can be no markup: in attributes and titles."""
    return _SHOWN.sub(lambda match: _symbols(match[0]), text)


def _marked(match: re.Match[str]) -> str:
    return f'<span class="rv-odd">{_symbols(match[0])}</span>'


def _symbols(odd: str) -> str:
    shown: list[str] = []
    for character, run in groupby(odd):
        count = len(list(run))
        symbol = _symbol(character)
        shown.append(symbol * count if count <= _LONGEST_RUN else f"{symbol}×{count}")
    return "".join(shown)


def _symbol(character: str) -> str:
    code = ord(character)
    if code < 0x20 or code == 0x7F:  # by name: fonts lack the control pictures of Unicode
        return f"⟨{_CONTROLS[code] if code < 0x20 else 'DEL'}⟩"
    return character if 0x20 < code < 0x7F else f"⟨U+{code:04X}⟩"  # plain characters are the tail of an ANSI sequence
