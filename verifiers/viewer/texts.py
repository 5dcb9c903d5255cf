"""`Texts`: the texts of one page, each and all together kept to a size that a browser likes."""

from __future__ import annotations

from collections.abc import Callable

from verifiers.viewer.html import Html, join, tag

EACH = 12_000  # characters of one text
TOTAL = 400_000  # … of all texts of a page
LEAST = 600  # … of one text when the page is full


class Texts:
    """Shows texts whole where they fit; else their beginning and end, with a link to the whole.

    A part is named by its place in the record, such as `messages.3.reasoning`.
    """

    def __init__(self, whole: Callable[[str], str] | None = None) -> None:
        self._whole = whole  # name of a part → address of its whole text; None: there is none
        self._left = TOTAL

    def show(self, text: str, part: str) -> Html:
        """The text as markup, without an element around it."""
        limit = max(LEAST, min(EACH, self._left))
        if len(text) <= limit:
            self._left -= len(text)
            return join([text])
        self._left -= limit
        tail = limit // 4  # an answer stands at the end
        return join([text[: limit - tail], self._gap(len(text) - limit, part), text[-tail:]])

    def _gap(self, n_left_out: int, part: str) -> Html:
        left_out = f"… {n_left_out:,} characters are not shown"
        link = None if self._whole is None else tag("a", "whole text", href=self._whole(part), class_="rv-whole")
        return tag("span", left_out, " · " if link else None, link, " …", class_="rv-gap")

    def block(self, text: str, part: str) -> Html:
        return tag("pre", self.show(text, part), class_="rv-text", dir="auto")


class OneText(Texts):
    """Keeps the one text that is asked for, instead of showing any."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part
        self.found: str | None = None

    def show(self, text: str, part: str) -> Html:
        if part == self._part:
            self.found = text
        return Html("")
