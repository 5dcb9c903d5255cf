"""HTML to a page's text: headings, paragraphs, lists, tables and marked links, without scripts and styles.

Read as a row of tags, in one pass: building the tree that the HTML standard asks for takes minutes for a page of some
hundred thousand tags inside each other, which anybody can serve.
"""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urldefrag, urljoin

from deep_research.provider import Document

_SKIPPED = frozenset({
    "script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "button", "select", "textarea",
    "audio", "video", "title",
})  # fmt: skip
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hr",
    "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
})  # fmt: skip
_CELLS = frozenset({"td", "th"})
_MOST_LINKS = 5_000
# A tag ends before the next one begins: looking further for its ">" would make a page of "<a <a <a" quadratic.
_TAG = re.compile(r"<(/?)([a-zA-Z][\w:-]*+)([^<>]*+)>")
_HREF = re.compile(r"""(?:^|\s)href\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)


def read_html(html: str, base: str, most_chars: int) -> Document:
    """The page at `base`: its title, its text cut to `most_chars`, and the links that the text marks.

    >>> page = read_html("<title>A</title><p>One <a href=/b>two</a>.</p><ul><li>three</ul>", "https://a.example/", 99)
    >>> page.title, page.text, page.links
    ('A', 'One two [L1].\\n- three', ('https://a.example/b',))
    """
    reader = _Reader(html, base)
    while len(reader.pieces) < most_chars and reader.step():
        pass
    title = _TITLE.search(html)
    shown = " ".join(unescape(title[1]).split())[:300] if title else ""
    return Document(base, shown or base, _tidy("".join(reader.pieces))[:most_chars], tuple(reader.links))


class _Reader:
    """Goes through the source once; `pieces` are text and line ends in order."""

    def __init__(self, html: str, base: str) -> None:
        self.html, self.base = html, base
        self.lower = html.lower()
        if len(self.lower) != len(html):  # some capital letters have small ones of another length
            self.lower = html
        self.at = 0
        self.pieces: list[str] = []
        self.links: list[str] = []
        self._anchor = ("", 0)  # the attributes of the open link, and how many pieces there were before its text
        self._unclosed: set[str] = set()  # skipped elements that end nowhere from here on

    def step(self) -> bool:
        """Reads one tag, comment or stretch of text; False at the end."""
        if self.at >= len(self.html):
            return False
        if self.html[self.at] != "<":
            self._take_text(self.html.find("<", self.at))
        elif self.html.startswith(("<!", "<?"), self.at):
            self._pass("-->" if self.html.startswith("<!--", self.at) else ">")
        elif tag := _TAG.match(self.html, self.at):
            self.at = tag.end()
            self._take_tag(tag[2].lower(), bool(tag[1]), tag[3])
        else:
            self._take_text(self.at + 1)
        return True

    def _pass(self, ending: str) -> None:
        end = self.html.find(ending, self.at)
        self.at = len(self.html) if end < 0 else end + len(ending)

    def _take_text(self, end: int) -> None:
        end = len(self.html) if end < 0 else end
        self.pieces.append(re.sub(r"\s+", " ", unescape(self.html[self.at : end])))
        self.at = end

    def _take_tag(self, tag: str, closes: bool, attributes: str) -> None:
        if tag in _SKIPPED and not closes:
            self._skip(tag, attributes)
        elif tag in _BLOCKS:
            self.pieces.append("\n- " if tag == "li" and not closes else "\n")
        elif tag in _CELLS:
            self.pieces.append(" | " if closes else " ")
        elif tag == "a":
            self._end_link()
            if not closes:
                self._anchor = attributes, len(self.pieces)

    def _skip(self, tag: str, attributes: str) -> None:
        if tag in self._unclosed or attributes.endswith("/"):
            return
        end = self.lower.find(f"</{tag}", self.at)
        if end < 0:
            self._unclosed.add(tag)
        self.at = end if end >= 0 else len(self.html) if tag in ("script", "style") else self.at

    def _end_link(self) -> None:
        attributes, before = self._anchor
        has_text = len(self.links) < _MOST_LINKS and any(piece.strip() for piece in self.pieces[before:])
        if attributes and has_text and (link := self._link(attributes)):
            self.links.append(link)
            self.pieces.append(f" [L{len(self.links)}]")
        self._anchor = "", 0

    def _link(self, attributes: str) -> str:
        """Where a link leads; empty when that is no other page."""
        found = _HREF.search(attributes)
        href = unescape(next((text for text in found.groups() if text is not None), "")).strip() if found else ""
        if not href or href.startswith("#"):
            return ""
        try:
            url = urldefrag(urljoin(self.base, href)).url
        except ValueError:
            return ""
        return url if url.startswith(("http://", "https://")) else ""


def _tidy(text: str) -> str:
    lines = [re.sub(r"\s+", " ", line).strip(" |") for line in text.split("\n")]
    return "\n".join(line for line in lines if line and line != "-")
