"""`Readme`: an environment's description as HTML that may stand in one of our pages.

Whatever an author writes, what comes out has no script, no style, no form, no frame; images only from public hosts and
by https; links that say they are somebody else's. Nothing is ever fetched. The Content-Security-Policy of the pages is
the second wall. `readme_process` runs this within a second, or the text is shown as it is.
"""

from __future__ import annotations

import html
import ipaddress
import itertools
import re
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

MAX_CHARACTERS = 400_000  # more is shown as plain text
MAX_PLAIN_CHARACTERS = 1_000_000
MAX_CODE_CHARACTERS = 50_000  # of one block that is coloured
MAX_HTML_CHARACTERS = 4_000_000  # colours take room
ANCHOR = "readme-"  # before every id, so that none can be one of the page's own

# fmt: off
_TAGS = frozenset(
    {
        "a", "abbr", "b", "blockquote", "br", "code", "dd", "del", "details", "div", "dl", "dt", "em", "h1",
        "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "kbd", "li", "ol", "p", "pre", "q", "s", "samp",
        "small", "span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "th", "thead", "tr", "tt",
        "ul", "var",
    }
)
# fmt: on
_ATTRIBUTES = {
    "*": {"align", "title"},
    "a": {"href", "id"},
    "code": {"class"},
    "details": {"open"},
    "img": {"src", "alt", "width", "height"},
    "ol": {"start"},
    "pre": {"class"},
    "span": {"class"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan"},
    **{f"h{level}": {"id"} for level in range(1, 7)},
}
_CLASSES = re.compile(r"highlight|language-[\w+-]{1,30}|[a-z][a-z0-9]{0,2}", re.ASCII)  # Pygments' are short
_LENGTH = re.compile(r"[0-9]{1,4}(?:px|%)?", re.ASCII)
_FORMATTER = HtmlFormatter[str](nowrap=True)


def rendered(text: str, content_type: str | None) -> str:
    """HTML of a README. Markdown is rendered; anything else, also reStructuredText, is shown as it was written."""
    if not is_markdown(content_type) or len(text) > MAX_CHARACTERS:
        return plain(text)
    source = _markdown().render(text)
    if len(source) > MAX_HTML_CHARACTERS:
        return plain(text)
    return cleaned(source)


def plain(text: str) -> str:
    """The text itself, cut where no page could hold more."""
    cut = text if len(text) <= MAX_PLAIN_CHARACTERS else text[:MAX_PLAIN_CHARACTERS] + "\n…"
    return f"<pre>{html.escape(cut)}</pre>" if cut.strip() else ""


def is_markdown(content_type: str | None) -> bool:
    message = Message()
    message["content-type"] = content_type or "text/x-rst"  # what the core metadata standard takes it for
    return message.get_content_type() == "text/markdown"


def cleaned(source: str) -> str:
    """HTML without anything that acts."""
    return nh3.clean(
        source,
        tags=set(_TAGS),
        clean_content_tags={"script", "style", "svg", "math", "template", "iframe", "noscript", "title", "textarea"},
        attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        attribute_filter=_filtered,
        url_schemes={"http", "https", "mailto"},
        link_rel="nofollow noopener noreferrer ugc",
        strip_comments=True,
    )


def _filtered(tag: str, name: str, value: str) -> str | None:
    """What becomes of an attribute that its tag may have; `None` drops it."""
    match name:
        case "href":
            return _link(value)
        case "src":
            return value if _is_public_image(value) else None
        case "id":
            return value if value.startswith(ANCHOR) else ANCHOR + value
        case "class":
            return " ".join(word for word in value.split() if _CLASSES.fullmatch(word)) or None
        case "align":
            return value if value in ("left", "right", "center") else None
        case "width" | "height" | "start" | "colspan" | "rowspan":
            return value if _LENGTH.fullmatch(value) else None
        case _:
            return value


def _link(value: str) -> str | None:
    """Links lead to other sites or to a place in the same text: relative ones would lead somewhere in this hub."""
    value = value.strip()
    if value.startswith("#"):
        return "#" + (value[1:] if value[1:].startswith(ANCHOR) else ANCHOR + value[1:])
    try:
        parts = urlsplit(value)
    except ValueError:
        return None
    is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    return value if is_address or parts.scheme == "mailto" else None


def _is_public_image(value: str) -> bool:
    """A browser inside a network must not be made to ask its neighbours: only https, and only names that the world
    could know."""
    try:
        parts = urlsplit(value.strip())
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return False
    if parts.scheme != "https" or port not in (None, 443) or parts.username is not None or not host.isascii():
        return False
    if "." not in host or host.endswith((".localhost", ".local", ".internal", ".lan", ".home", ".corp", ".home.arpa")):
        return False
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        # what some readers take for an address: 0x7f.1, 127.1, 2130706433
        return not re.fullmatch(r"[0-9]+|0x[0-9a-f]*", host.rpartition(".")[2], re.I)
    return False


def _markdown() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True, "highlight": _coloured, "maxNesting": 20})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.push("anchors", _set_anchors)
    return parser


def _coloured(code: str, language: str, _attributes: str) -> str:
    """Empty: not coloured, and escaped by the renderer."""
    if not language or len(code) > MAX_CODE_CHARACTERS:
        return ""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return ""
    return f'<pre class="highlight"><code>{highlight(code, lexer, _FORMATTER)}</code></pre>'


def _set_anchors(state: Any) -> None:
    """Headings get ids as tables of contents expect them: lower case, spaces to '-'; repeated ones are numbered."""
    seen: dict[str, int] = {}
    tokens: list[Token] = state.tokens
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open":
            text = "".join(one.content for one in inline.children or [] if one.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")[:80]
            seen[slug] = count = seen.get(slug, -1) + 1
            token.attrSet("id", ANCHOR + (f"{slug}-{count}" if count else slug))
