"""Searching and fetching over real HTTP on this machine: what is tried again, what is refused, what a page becomes."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import web
from deep_research import load_environment
from deep_research.addresses import AddressGuard, is_public
from deep_research.html_text import read_html
from deep_research.provider import PageError, RateLimited, Refused, Unavailable
from deep_research.serper import SearchService, Serper
from deep_research.web_pages import MOST_BYTES, WebPages

import verifiers as vf

ORGANIC = [
    {"title": "Oak\n tree", "link": "https://trees.example/oak", "snippet": "An  oak.", "position": 1},
    {"title": "Answers", "link": "https://sub.blocked.example/rows", "snippet": "The answer."},
    {"link": "https://bare.example/"},
    {"title": "No link"},
]
HERE = ipaddress.ip_address("127.0.0.1")


@asynccontextmanager
async def served(handler: Any) -> AsyncIterator[str]:
    """A server for every path and method; gives its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def guard(allowed: Any = lambda address: address == HERE, lookup: Any = None) -> AddressGuard:
    return AddressGuard(allowed, ports=None, lookup=lookup)


async def searched(replies: Replies, **options: Any) -> Any:
    """What a search gives, with pauses too short to notice."""
    async with served(replies.answer) as url:
        service = SearchService("secret-key", f"{url}/search", **{"pause_s": 0.001, **options})
        serper = Serper(service, WebPages(guard(), blocked=["blocked.example"]))
        try:
            return await serper.search("oak")
        finally:
            await serper.close()


class Replies:
    """Answers with these, in order, the last for ever; keeps what was asked."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[dict[str, str], Any]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((dict(request.headers), await request.json()))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        status, body, headers = cast("tuple[int, Any, dict[str, str]]", (*reply, {})[:3])
        if isinstance(body, str):
            return web.Response(status=status, text=body, headers=headers)
        return web.json_response(body, status=status, headers=headers)


OK = (200, {"organic": ORGANIC})

# Searching


async def test_results_are_the_organic_ones_with_a_link_and_not_blocked():
    replies = Replies(OK)
    hits = await searched(replies, results=5)
    assert [(hit.title, hit.url, hit.snippet) for hit in hits] == [
        ("Oak tree", "https://trees.example/oak", "An oak."),
        ("https://bare.example/", "https://bare.example/", ""),
    ]
    headers, body = replies.asked[0]
    assert (headers["X-API-KEY"], body) == ("secret-key", {"q": "oak", "num": 5})


@pytest.mark.parametrize(
    "passing", [(429, {}), (503, "busy"), (200, "<html>"), (200, []), (200, {"organic": 1})], ids=str
)
async def test_what_passes_is_tried_again(passing):
    replies = Replies(passing, passing, OK)
    assert len(await searched(replies)) == 2
    assert len(replies.asked) == 3


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [(429, RateLimited, "HTTP 429"), (500, Unavailable, "HTTP 500"), (502, Unavailable, r"HTTP 502 \(down\), 4 of 4")],
)
async def test_what_does_not_pass_is_a_fault_of_its_kind_after_every_try(status, kind, said):
    replies = Replies((status, {"message": "down"}))
    with pytest.raises(kind, match=said):
        await searched(replies)
    assert len(replies.asked) == 4


async def test_retry_after_is_waited_for():
    loop, replies = asyncio.get_running_loop(), Replies((429, {}, {"Retry-After": "0.2"}), OK)
    began = loop.time()
    await searched(replies)
    assert loop.time() - began >= 0.19


async def test_a_service_that_asks_to_wait_too_long_is_given_up_at_once():
    replies = Replies((429, {}, {"Retry-After": "3600"}))
    with pytest.raises(RateLimited, match="asks to wait 3600 s, 1 of 4 tries"):
        await searched(replies)


@pytest.mark.parametrize(
    "refusal", [(401, {}), (403, {"message": "Unauthorized."}), (400, {"message": "Not enough credits"})]
)
async def test_a_key_that_is_not_taken_is_refused_without_a_second_try_and_not_shown(refusal):
    replies = Replies(refusal)
    with pytest.raises(Refused, match="is the key right") as caught:
        await searched(replies)
    assert len(replies.asked) == 1
    assert "secret-key" not in str(caught.value) + repr(SearchService("secret-key"))


async def test_a_query_that_is_not_taken_is_the_model_s_to_change():
    with pytest.raises(PageError, match="does not take this query: HTTP 400"):
        await searched(Replies((400, {"message": "q is bad"})))


async def test_a_service_that_does_not_answer_in_time_is_unavailable():
    released = asyncio.Event()

    async def silent(request: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    async with served(silent) as url:
        serper = Serper(SearchService("k", url, timeout_s=0.05, tries=2, pause_s=0.001), WebPages(guard()))
        with pytest.raises(Unavailable, match=r"no answer within 0\.05 s, 2 of 2 tries"):
            await serper.search("oak")
        released.set()
        await serper.close()


async def test_nobody_listening_is_unavailable():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        serper = Serper(SearchService("k", url, pause_s=0.001), WebPages(guard()))
        with pytest.raises(Unavailable, match="no connection"):
            await serper.search("oak")
        await serper.close()


# Which addresses


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "240.0.0.1", "255.255.255.255", "198.18.0.1", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "2002:7f00:1::", "2002:0a00:0001::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    ],
)  # fmt: skip
def test_an_internal_address_is_not_public_however_it_is_wrapped(address):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["9.9.9.9", "93.184.215.14", "2620:fe::fe", "::ffff:9.9.9.9", "64:ff9b::909:909"])
def test_an_address_of_the_internet_is_public(address):
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1/", "internal network"),
        ("http://[::1]/", "internal network"),
        ("http://[fe80::1%25eth0]/", "internal network|no address"),
        ("http://169.254.169.254/latest/meta-data", "internal network"),
        ("http://10.0.0.1", "internal network"),
        ("http://127.1/", "internal network|no address"),
        ("http://0177.0.0.1/", "internal network"),
        ("http://2130706433/", "internal network|no address"),
        ("http://１２７.０.０.１/", "internal network"),
        ("https://trees.example:8443/", "port 8443 is not opened"),
        ("ftp://trees.example/", "no address of a web page"),
        ("file:///etc/passwd", "no address of a web page"),
        ("javascript:alert(1)", "no address|port"),
        ("http://localhost/", "no address of a web page"),
        ("http://user:pass@trees.example/", "a user or a password"),
        ("http://trees.example/\r\nX: y", "no address"),
        ("", "no address"),
        ("the oak", "no address"),
        ("http://[::1", "no address"),
        ("https://trees.example/" + "x" * 3000, "no address"),
    ],
    ids=lambda text: text[:24],
)
def test_an_address_that_may_not_be_opened_is_refused(url, said):
    with pytest.raises(PageError, match=said):
        AddressGuard().check(url)


def test_an_address_without_scheme_is_taken_as_https():
    assert str(AddressGuard().check("trees.example/oak")) == "https://trees.example/oak"


# these are 127.0.0.1 to the system's look-up, and no address literals to anybody else
@pytest.mark.parametrize("host", ["2130706433", "127.1", "0x7f.1"])
async def test_a_number_in_disguise_is_looked_up_and_refused(host):
    with pytest.raises(PageError, match="internal network"):
        await AddressGuard().resolve(host, 80)


@pytest.mark.parametrize("address", ["127.1", "127.0.0.1", "::1", "trees.example"])
def test_a_socket_is_given_for_no_address_that_may_not_be_asked(address):
    with pytest.raises(OSError, match="not allowed"):
        AddressGuard().socket_for((socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)))


def answering(*rounds: list[str]) -> tuple[Any, list[str]]:
    """A look-up that gives these addresses, one list after the other; and the names it was asked for."""
    left, asked = list(rounds), []

    async def lookup(host: str, port: int, family: Any) -> Any:
        asked.append(host)
        found = left.pop(0) if len(left) > 1 else left[0]
        return [
            {"hostname": host, "host": address, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
            for address in found
        ]

    return lookup, asked


async def test_a_name_with_one_internal_address_among_others_is_refused():
    lookup, _ = answering(["9.9.9.9", "192.168.0.1"])
    with pytest.raises(PageError, match="internal network"):
        await AddressGuard(lookup=lookup).resolve("trees.example", 443)


async def text_page(request: web.Request) -> web.Response:
    return web.Response(text=f"{request.host.partition(':')[0]} {request.path}")


async def opened(handler: Any, path: str = "/", host: str = "127.0.0.1", pages: WebPages | None = None) -> Any:
    pages = pages or WebPages(guard(), blocked=["blocked.example"])
    async with served(handler) as url:
        try:
            return await pages.open(url.replace("127.0.0.1", host) + path)
        finally:
            await pages.close()


async def test_the_connection_goes_to_the_address_that_was_looked_at():
    lookup, asked = answering(["127.0.0.1"], ["127.0.0.2"])  # the second answer would be refused
    page = await opened(text_page, "/oak", host="trees.example", pages=WebPages(guard(lookup=lookup)))
    assert page.text == "trees.example /oak"
    assert asked == ["trees.example"]


async def test_a_name_that_answers_otherwise_the_next_time_is_looked_at_again():
    lookup, _ = answering(["127.0.0.1"], ["127.0.0.2"])

    async def closing(request: web.Request) -> web.Response:
        response = await text_page(request)
        response.force_close()
        return response

    pages = WebPages(guard(lookup=lookup))
    async with served(closing) as url:
        address = url.replace("127.0.0.1", "trees.example")
        await pages.open(address)
        with pytest.raises(PageError, match="internal network"):
            await pages.open(address)
        await pages.close()


async def test_names_that_nobody_can_look_up_are_a_fault_and_unknown_ones_are_not():
    async def open_when_it_fails_with(code: int) -> None:
        async def lookup(host: str, port: int, family: Any) -> Any:
            raise socket.gaierror(code, "failed")

        pages = WebPages(guard(lookup=lookup))
        try:
            await pages.open("http://trees.example/")
        finally:
            await pages.close()

    with pytest.raises(PageError, match=r"there is no host trees\.example"):
        await open_when_it_fails_with(socket.EAI_NONAME)
    with pytest.raises(Unavailable, match="name service"):
        await open_when_it_fails_with(socket.EAI_AGAIN)


# Fetching


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("http://127.0.0.2/", "internal network"),
        ("http://[::1]:1/", "internal network"),
        ("file:///etc/passwd", "no address of a web page"),
        ("http://blocked.example/", "left out of this research"),
        ("/", "redirects more than 5 times"),
    ],
)
async def test_a_redirect_is_looked_at_like_any_address(target, said):
    async def moved(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": target})

    with pytest.raises(PageError, match=said):
        await opened(moved)


async def test_a_redirect_is_followed_to_the_page():
    async def moved(request: web.Request) -> web.Response:
        if request.path == "/old":
            return web.Response(status=301, headers={"Location": "/new"})
        return await text_page(request)

    page = await opened(moved, "/old")
    assert page.text == "127.0.0.1 /new"
    assert page.url.endswith("/new")


async def test_a_page_is_cut_at_its_bound():
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65_536)
        except ConnectionError:
            return response

    page = await opened(endless)
    assert 0 < len(page.text) <= MOST_BYTES


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ({"status": 404}, "answers 404 Not Found"),
        ({"status": 500}, "answers 500"),
        ({"body": b"%PDF", "content_type": "application/pdf"}, "is application/pdf, which cannot be read"),
    ],
    ids=str,
)
async def test_a_page_that_cannot_be_had_is_told(response, said):
    async def handler(request: web.Request) -> web.Response:
        return web.Response(**response)

    with pytest.raises(PageError, match=said):
        await opened(handler)


async def test_a_page_that_takes_too_long_is_told():
    released = asyncio.Event()

    async def silent(request: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    pages = WebPages(guard(), timeout_s=0.05)
    async with served(silent) as url:
        with pytest.raises(PageError, match=r"did not answer within 0\.05 s"):
            await pages.open(url)
        released.set()
        await pages.close()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<p>Saint-Étienne".encode("latin-1"), "text/html; charset=iso-8859-1"),
        ('<meta charset="iso-8859-1"><p>Saint-Étienne'.encode("latin-1"), "text/html"),
        ("<p>Saint-Étienne".encode(), "text/html"),
        ("<p>Saint-Étienne".encode(), "text/html; charset=x-nothing"),
        ("Saint-Étienne".encode(), "text/plain"),
    ],
)
async def test_a_page_is_read_in_its_own_charset(body, kind):
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": kind})

    assert (await opened(handler)).text == "Saint-Étienne"


# HTML


def test_html_becomes_lines_without_what_is_not_text():
    html = """<!doctype html><html><head><title> The &amp; Oak </title><style>p{}</style></head><body>
    <script>if (a < b) alert("</p>")</script><h1>Oak</h1><p>One <b>two</b>
    three.<br>Four &lt;5&gt; <!-- no <p> --> six.</p><ul><li>seven<li><a href="/leaf#top">eight</a></ul>
    <table><tr><td>nine</td><td>ten</td></tr></table><a href="#x">eleven</a>
    <a href="mailto:a@b.example">12</a></body>"""
    page = read_html(html, "https://trees.example/oak", 1000)
    assert page.title == "The & Oak"
    assert page.text.split("\n") == [
        "Oak", "One two three.", "Four <5> six.", "- seven", "- eight [L1]", "nine | ten", "eleven 12",
    ]  # fmt: skip
    assert page.links == ("https://trees.example/leaf",)


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 100_000, "<!--" * 100_000, "<a " * 100_000, "<" * 300_000, "<" + "a" * 300_000, "<svg>" * 100_000,
        "<script>", "<a href='" + "x" * 300_000, "<title>" * 50_000, "<a href=x>" * 50_000, "",
        "&#0; &#xffffffff; \x00",
    ],
    ids=lambda html: f"{html[:10]}-{len(html)}",
)  # fmt: skip
def test_html_that_was_made_to_hurt_is_read_like_any_other(html):
    page = read_html(html, "https://trees.example/", 1000)
    assert len(page.text) <= 1000


# The environment on the web


def tool_call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"content": "", "tool_calls": [{"id": name, "function": {"name": name, "arguments": json.dumps(arguments)}}]}


async def test_a_search_a_result_and_a_link_of_its_page_lead_to_the_answer(monkeypatch, tmp_path):
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/search":
            return web.json_response({"organic": [{"title": "Oak", "link": f"http://{request.host}/oak"}]})
        body = '<p>See <a href="/leaf">the leaf</a>.' if request.path == "/oak" else "<p>It is green."
        return web.Response(text=body, content_type="text/html")

    monkeypatch.setenv("SERPER_API_KEY", "key")
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({"question": "Which colour?", "answer": "green"}) + "\n")
    async with served(handler) as url:
        env = load_environment(data=str(data), search_url=f"{url}/search", allow_internal=True)
        calls = [tool_call("search", query="oak"), tool_call("open", target="1"), tool_call("open", target="L1")]
        client = vf.ScriptedClient([*calls, tool_call("finish", answer="green")])
        (record,) = (await env.generate(env.eval_rows(1), client, "scripted")).records
    texts = [message["content"] for message in record.messages if message["role"] == "tool"]
    assert "See the leaf [L1]." in texts[1]
    assert "It is green." in texts[2]
    assert record.reward == 1.0


async def test_without_leave_the_environment_opens_nothing_internal(monkeypatch, tmp_path):
    monkeypatch.setenv("SERPER_API_KEY", "key")
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({"question": "Which colour?", "answer": "green"}) + "\n")
    async with served(text_page) as url:
        env = load_environment(data=str(data))
        client = vf.ScriptedClient([tool_call("open", target=url), tool_call("finish", answer="green")])
        (record,) = (await env.generate(env.eval_rows(1), client, "scripted")).records
    assert "port" in record.messages[-2]["content"] or "internal network" in record.messages[-2]["content"]
