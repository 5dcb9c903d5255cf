"""`Reply`: what the server of `vf view` sends; `document` makes one of a page's parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verifiers.viewer.html import Child, tag

TEXT, HTML, JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"


@dataclass(frozen=True)
class Reply:
    status: int
    media_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class NotFound(LookupError):
    pass


def document(
    title: str,
    body: Child,
    *,
    heading: Child = None,
    crumbs: list[tuple[str, str]] | None = None,
    status: int = 200,
    again_s: int | None = None,
) -> Reply:
    trail = [
        tag("a", text, href=url, rel="up" if n == len(crumbs or ()) - 1 else None)
        for n, (text, url) in enumerate(crumbs or ())
    ]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="refresh", content=str(again_s)) if again_s else None,
        tag("title", f"{title} · vf view"),
        tag("link", rel="icon", href="data:,"),  # else the browser asks for one
        tag("link", rel="stylesheet", href="/assets/viewer.css"),
        tag("script", src="/assets/viewer.js", defer=True),
    )
    page = tag(
        "body",
        tag("nav", *trail, class_="rv rv-crumbs", aria_label="Where this is") if trail else None,
        tag(
            "main",
            tag("h1", heading or title, class_=f"rv rv-h1{'' if heading else ' rv-sr'}"),
            body,
        ),
        class_="rv-page",
    )
    html = "<!doctype html>\n" + tag("html", head, page, lang="en")
    return Reply(status, HTML, html.encode("utf-8"))
