"""A README shows what its author wrote and does nothing: no script, no style, no request of the server's."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from hub_packages import Package
from hub_uploads import upload_wheel
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from waiting import steady

from hub_server.models import Release
from hub_server.services.readme import MAX_CHARACTERS, cleaned, plain, rendered
from hub_server.services.readme_process import ReadmeRenderer

MARKDOWN = "text/markdown"


@pytest.fixture(scope="module")
def renderer() -> Iterator[ReadmeRenderer]:
    renderer = ReadmeRenderer()  # a second, as a hub has it
    yield renderer
    renderer.close()


class Seen(HTMLParser):
    """Tags with their attributes, as a browser would find them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


# fmt: off
HARMLESS = {
    "a", "abbr", "b", "blockquote", "br", "code", "dd", "del", "details", "div", "dl", "dt", "em", "h1", "h2",
    "h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "kbd", "li", "ol", "p", "pre", "q", "s", "samp", "small",
    "span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "th", "thead", "tr", "tt", "ul", "var",
}
HARMLESS_ATTRIBUTES = {
    "href", "id", "class", "title", "align", "src", "alt", "width", "height", "start", "colspan", "rowspan",
    "open", "rel",
}
# fmt: on


def assert_harmless(text: str) -> None:
    for tag, attributes in Seen(text).tags:
        assert tag in HARMLESS, f"<{tag}> in {text[:200]}"
        assert set(attributes) <= HARMLESS_ATTRIBUTES, f"{attributes} in {text[:200]}"
        for address in (attributes.get("href"), attributes.get("src")):
            assert address is None or address.lower().startswith(("http://", "https://", "mailto:", "#readme-"))


# What is shown


def test_markdown_is_rendered():
    html = rendered("# Title\n\n*a* **b** `c` ~~d~~\n\n- one\n- two\n\n|x|y|\n|-|-|\n|1|2|\n", MARKDOWN)
    for part in ('<h1 id="readme-title">Title</h1>', "<em>a</em>", "<strong>b</strong>", "<code>c</code>", "<s>d</s>"):
        assert part in html
    assert html.count("<li>") == 2
    assert "<td>2</td>" in html


def test_code_is_coloured_by_classes_alone():
    html = rendered("```python\ndef f(x):\n    return '<b>'\n```\n\n```nothing-known\n<b>\n```\n", MARKDOWN)
    assert '<span class="k">def</span>' in html
    assert "style=" not in html
    assert html.count("&lt;b&gt;") == 2


def test_a_table_of_contents_leads_to_its_headings():
    html = rendered("[to it](#how-to-use-it)\n\n## How to *use* it?\n\n## How to *use* it?\n", MARKDOWN)
    assert 'href="#readme-how-to-use-it"' in html
    assert 'id="readme-how-to-use-it"' in html
    assert 'id="readme-how-to-use-it-1"' in html


@pytest.mark.parametrize("kind", [None, "text/plain", "text/x-rst", "text/html", "nonsense"])
def test_what_is_no_markdown_is_shown_as_it_was_written(kind):
    assert rendered("<script>x</script> & *y*", kind) == "<pre>&lt;script&gt;x&lt;/script&gt; &amp; *y*</pre>"


def test_nothing_is_nothing(renderer):
    assert renderer.render(" \n", MARKDOWN) == ""


def test_links_are_somebody_elses():
    html = rendered("[a](https://example.com/x) <https://example.com/y> [m](mailto:a@example.com)", MARKDOWN)
    assert html.count('rel="nofollow noopener noreferrer ugc"') == 3


@pytest.mark.parametrize(
    "link", ["docs/more.md", "/admin", "//evil.example/x", "../../logout", "?tab=x", "javascript:x"]
)
def test_links_into_this_hub_lead_nowhere(link):
    assert "href" not in rendered(f"[text]({link})", MARKDOWN)


# Item 23


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        "<SCRIPT/x>alert(1)</SCRIPT>",
        "<scr<script>ipt>alert(1)</scr</script>ipt>",
        '<img src="x" onerror="alert(1)">',
        '<a href="javascript:alert(1)">x</a>',
        '<a href="JaVa&#x09;Script:alert(1)">x</a>',
        "[x](javascript:alert(1))",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "[x](vbscript:x)",
        "![x](data:image/svg+xml;base64,PHN2Zz4=)",
        '<svg onload="alert(1)"><script>alert(1)</script></svg>',
        '<math><mi xlink:href="data:x">x</mi></math>',
        '<iframe src="https://example.com"></iframe>',
        "<object data=x></object><embed src=x>",
        '<form action="/logout" method=post><input type=submit><button>x</button></form>',
        "<style>body{display:none}</style>",
        '<p style="position:fixed;inset:0">x</p>',
        '<link rel=stylesheet href="https://example.com/x.css">',
        '<meta http-equiv=refresh content="0;url=https://example.com">',
        '<base href="https://example.com">',
        '<div id="main" class="login-form" hx-get="/logout" data-x=1>x</div>',
        '<input autofocus onfocus="alert(1)">',
        '<details open ontoggle="alert(1)">x</details>',
        "<template><script>x</script></template>",
        "<textarea><script>x</script></textarea>",
        "<title><a href=javascript:x></title>",
        "<noscript><p title='</noscript><img src=x onerror=x>'>",
        '<a href="https://example.com" target="_top" onclick=x>x</a>',
        "<!-- <script>x</script> --><!--><script>x</script>-->",
        "```\"onload=alert(1)\nx\n```",
        '<video src=x onerror=x></video><audio src=x></audio><source src=x>',
        "<marquee onstart=alert(1)>x</marquee>",
    ],
)  # fmt: skip
def test_item_23_nothing_in_a_readme_acts(evil):
    html = rendered(f"before\n\n{evil}\n\nafter", MARKDOWN)
    assert_harmless(html)
    assert "before" in html


@given(st.text(alphabet=st.sampled_from("<>/=\"'&;:#()[]!`*_ \n\tabcsriptonejvhf0"), max_size=200))
@settings(max_examples=150, deadline=None)
def test_item_23_no_text_makes_anything_that_acts(text):
    assert_harmless(rendered(text, MARKDOWN))
    assert_harmless(cleaned(text))


@steady(0.3)
@pytest.mark.parametrize(
    "evil",
    ["[" * 100_000, ">" * 100_000, "*a _b " * 40_000, "[a](<" * 40_000, "<a " * 60_000, "`a``b```" * 30_000,
     "".join(" " * depth + "- a\n" for depth in range(600)), "<div>" * 60_000, "|a" * 30_000 + "\n" + "|-" * 30_000,
     "```sql\n" + "'" * 49_000 + "\n```", "&" * 300_000, "# " * 100_000, "![[]()" * 50_000],
    ids=["brackets", "quotes", "stars", "links", "tags", "ticks", "lists", "divs", "table", "sql", "entities", "hashes",
         "images"],
)  # fmt: skip
def test_item_23_a_readme_that_is_made_to_take_long_takes_a_second(renderer, evil):
    renderer.render("*warm*", MARKDOWN)  # starting the process is not rendering
    started = time.monotonic()
    html = renderer.render(evil, MARKDOWN)
    assert time.monotonic() - started < 2.5  # one second of rendering, on a busy machine
    assert html
    assert renderer.render("*still* there", MARKDOWN).strip() == "<p><em>still</em> there</p>"


def test_item_23_a_readme_of_ten_megabytes_is_plain_text_and_cut():
    html = rendered("# x\n" * (10 << 18), MARKDOWN)
    assert html.startswith("<pre># x")
    assert len(html) < 1_100_000
    assert rendered("# x\n" * (MAX_CHARACTERS // 4 + 1), MARKDOWN).startswith("<pre>")


def test_item_23_what_the_renderer_cannot_do_in_time_is_plain_text():
    slow = ReadmeRenderer(render_s=0.0)
    try:
        assert slow.render("*a* <b>", MARKDOWN) == plain("*a* <b>") == "<pre>*a* &lt;b&gt;</pre>"
    finally:
        slow.close()


def test_item_23_an_upload_with_a_hostile_readme_is_published_without_any_of_it(client, hub, world):
    ada = world.user("ada")
    package = Package("math-env", readme="# Hi\n\n<script>alert(1)</script>\n\n![x](http://169.254.169.254/latest)\n")
    assert upload_wheel(client, ada.headers, package).status_code == 200
    with hub.database.read() as session:
        release = session.scalars(select(Release)).one()
    assert_harmless(release.readme_html)
    assert "script" not in release.readme_html
    assert "169.254" not in release.readme_html
    assert "<script>" in release.readme_text  # what the author wrote, for the source view


# Item 24


@pytest.mark.parametrize(
    "address",
    [
        "http://example.com/x.png", "https://127.0.0.1/x.png", "https://[::1]/x.png", "https://10.0.0.1/x.png",
        "https://192.168.1.1/admin", "https://169.254.169.254/latest", "https://localhost/x", "https://router/x",
        "https://printer.local/x", "https://db.internal/x", "https://wiki.corp/x", "https://nas.home.arpa/x",
        "https://2130706433/x", "https://0x7f.1/x", "https://127.1/x", "https://user:pw@example.com/x",
        "https://example.com:8443/x", "//example.com/x.png", "/admin/delete", "images/x.png", "ftp://example.com/x",
        "https:///x", "https://[bad/x",
    ],
)  # fmt: skip
def test_item_24_images_from_the_inside_network_are_not_shown(address):
    assert "src=" not in rendered(f'![alt]({address})\n\n<img src="{address}" alt="alt">', MARKDOWN)


def test_images_of_public_hosts_are_shown():
    assert 'src="https://img.example.com/badge.svg"' in rendered("![b](https://img.example.com/badge.svg)", MARKDOWN)


def test_item_24_nothing_is_ever_fetched(client, world, monkeypatch):
    """Neither what a README names nor what the metadata do: no connection leaves the server while a release is made."""
    asked = []

    def refuse(_: socket.socket, address: object) -> None:
        asked.append(address)
        raise AssertionError(f"the server connects to {address}")

    ada = world.user("ada")
    readme = "![x](https://img.example.com/x.png) [y](http://10.0.0.1/)\n\n<img src=https://img.example.com/y.png>"
    with monkeypatch.context() as network:
        network.setattr(socket.socket, "connect", refuse)
        network.setattr(socket, "getaddrinfo", lambda *a, **k: refuse(socket.socket(), a))  # type: ignore[arg-type]
        assert upload_wheel(client, ada.headers, Package("math-env", readme=readme)).status_code == 200
    assert asked == []
