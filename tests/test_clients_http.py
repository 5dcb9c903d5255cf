"""`HTTPClient` against a real server on this machine that misbehaves to order."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate

import pytest
from waiting import steady, until

from verifiers.clients import Endpoint, HTTPClient, ModelRequest, RetryPolicy, as_client, list_models
from verifiers.errors import (
    AuthenticationError,
    EmptyModelResponseError,
    EnvironmentFault,
    InvalidModelResponseError,
    ModelNotFoundError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
    OverlongPromptError,
)
from verifiers.types import AssistantMessage, TextMessage, Tool, ToolMessage, UserMessage

KEY = "sk-very-secret-key-123"
QUICK = RetryPolicy(base_s=0.005, cap_s=0.02)


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    body: dict = field(default_factory=dict)


def http(status: int, body: bytes | str | dict, **headers: str) -> bytes:
    data = json.dumps(body).encode() if isinstance(body, dict) else body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def reply(content: str | None = "hi", **more) -> dict:
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **more.pop("choice", {})}
    return {"id": "r1", "created": 1, "model": "served", "choices": [choice], **more}


OK = http(200, reply())
RESET, HANG = b"reset", b"hang"


class Server:
    """Answers each request with the next of `script`, then with `default`."""

    def __init__(self, script=(), default=OK) -> None:
        self.script, self.default = list(script), default
        self.asked: list[Asked] = []
        self.opened = self.working = self.most_working = 0
        self.closed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, port: int | None = None) -> Server:
        """At a free port; or at one that is held by SO_REUSEPORT."""
        is_held = port is not None
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", port or 0, backlog=4096, reuse_port=is_held or None
        )
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def stop(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0.01)  # their tasks end

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                asked = Asked(method, path, headers, raw, json.loads(raw) if raw else {})
                self.asked.append(asked)
                answer = self.script.pop(0) if self.script else self.default
                self.working += 1
                self.most_working = max(self.most_working, self.working)
                try:
                    if callable(answer):
                        answer = answer(asked)
                        answer = await answer if asyncio.iscoroutine(answer) else answer
                finally:
                    self.working -= 1
                if answer == RESET:
                    writer.transport.abort()
                    return
                if answer == HANG:
                    await reader.read()  # until the client gives up
                    return
                writer.write(answer)
                if b"Connection: close" in answer:
                    await writer.drain()
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            self.closed.set()
            writer.close()


@asynccontextmanager
async def serving(*script, default=OK):
    server = await Server(script, default).start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def asking(*script, default=OK, retry=QUICK, dialect=None, **endpoint):
    async with serving(*script, default=default) as server:
        client = HTTPClient(Endpoint(server.url, **{"api_key": KEY, **endpoint}), retry=retry, dialect=dialect)
        try:
            yield server, client
        finally:
            await client.close()


def request(text="hello", **more) -> ModelRequest:
    return ModelRequest("m", [UserMessage(text)], **more)


@pytest.fixture
def unused_port():
    """Nobody listens there; and nobody else is given it meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


# --- what is sent ---------------------------------------------------------------------------------------------------


async def test_request_has_the_openai_shape_and_the_key():
    async with asking() as (server, client):
        sampling = {"max_tokens": 5, "temperature": None, "n": 1, "extra_headers": {"X-A": "b"}, "stream": True}
        tool = Tool("f", "does", {"type": "object"})
        wire = {"name": "f", "description": "does", "parameters": {"type": "object"}}
        response = await client.complete(request(sampling=sampling, seed=7, tools=[tool]))
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["x-a"] == "b"
    assert asked.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"type": "function", "function": wire}],
        "max_tokens": 5,
        "seed": 7,
    }
    assert (response.text, response.model, response.finish_reason) == ("hi", "served", "stop")


async def test_extra_body_is_merged_over_the_rest_and_n_is_sent_when_it_is_not_one():
    async with asking() as (server, client):
        await client.complete(request(sampling={"n": 2, "top_p": 0.5, "extra_body": {"top_p": 0.9, "min_p": 0.1}}))
    assert server.asked[0].body["n"] == 2
    assert server.asked[0].body["top_p"] == 0.9
    assert server.asked[0].body["min_p"] == 0.1


async def test_connections_are_kept_and_used_again():
    async with asking() as (server, client):
        for _ in range(5):
            await client.complete(request())
    assert server.opened == 1


async def test_a_large_body_is_sent_whole():
    async with asking() as (server, client):
        await client.complete(request("x" * 3_000_000))
    assert len(server.asked[0].body["messages"][0]["content"]) == 3_000_000


async def test_what_is_no_json_is_the_environments_fault():
    async with asking() as (server, client):
        with pytest.raises(EnvironmentFault, match="cannot be sent as JSON"):
            await client.complete(request(sampling={"stop": object()}))
    assert not server.asked


async def test_query_and_affinity_header_are_sent():
    async with asking(query={"api-version": "2"}, affinity_headers=("X-Session-ID",)) as (server, client):
        await client.complete(request(affinity="r-17"))
    assert server.asked[0].path == "/v1/chat/completions?api-version=2"
    assert server.asked[0].headers["x-session-id"] == "r-17"


async def test_a_proxy_of_the_environment_is_not_used_for_loopback(monkeypatch, unused_port):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_port}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with asking() as (_, client):
        assert (await client.complete(request())).text == "hi"


async def test_other_addresses_go_through_the_proxy_of_the_environment(monkeypatch):
    async with serving() as proxy:
        for name in ("NO_PROXY", "no_proxy", "http_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1").replace("//", "//user:pass@"))
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1").replace("//", "//user:pass@"))
        client = HTTPClient(Endpoint("http://models.example/v1"))
        response = await client.complete(request())
        await client.close()
    assert response.text == "hi"
    assert proxy.asked[0].path == "http://models.example/v1/chat/completions"
    assert proxy.asked[0].headers["proxy-authorization"].startswith("Basic ")


# --- reasoning ------------------------------------------------------------------------------------------------------


async def test_reasoning_is_kept_and_sent_back_with_tool_calls():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    first = http(200, reply(None, message={"reasoning_content": "I think", "tool_calls": [call]}))
    async with asking(first) as (server, client):
        messages = [UserMessage("go")]
        answer = (await client.complete(ModelRequest("m", messages))).message
        await client.complete(ModelRequest("m", [*messages, answer, ToolMessage("42", "c1")]))
    sent = server.asked[1].body["messages"][1]
    assert sent["reasoning_content"] == "I think"
    assert sent["tool_calls"] == [call]
    assert sent["content"] is None


async def test_a_server_that_calls_it_reasoning_gets_it_back_under_that_name():
    async with asking(http(200, reply("4", message={"reasoning": "two and two"}))) as (server, client):
        answer = (await client.complete(request())).message
        await client.complete(ModelRequest("m", [UserMessage("hello"), answer, UserMessage("more")]))
    assert answer.reasoning_content == "two and two"
    assert server.asked[1].body["messages"][1] == {"role": "assistant", "content": "4", "reasoning": "two and two"}


async def test_a_server_that_refuses_reasoning_is_asked_without_it():
    refusal = http(400, {"error": {"message": "unknown field messages.1.reasoning_content"}})
    async with asking(refusal) as (server, client):
        history = [UserMessage("a"), AssistantMessage("b", reasoning_content="c"), UserMessage("d")]
        for _ in range(2):
            await client.complete(ModelRequest("m", history))
    assert len(server.asked) == 3
    assert all("reasoning_content" not in m for asked in server.asked[1:] for m in asked.body["messages"])


# --- quirks ---------------------------------------------------------------------------------------------------------


async def test_max_tokens_is_renamed_once_the_server_asks_for_it():
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    refusal = http(400, {"error": {"message": words, "param": "max_tokens", "code": "unsupported_parameter"}})
    async with asking(refusal) as (server, client):
        for _ in range(2):
            await client.complete(request(sampling={"max_tokens": 9}))
        await client.complete(ModelRequest("other", [UserMessage("x")], {"max_tokens": 9}))
    assert ["max_tokens" in a.body for a in server.asked] == [True, False, False, True]
    assert server.asked[2].body["max_completion_tokens"] == 9


async def test_a_server_that_wants_neither_name_is_not_asked_for_ever():
    def refuse(asked: Asked) -> bytes:
        name = "max_tokens" if "max_tokens" in asked.body else "max_completion_tokens"
        return http(400, {"error": {"message": f"Unrecognized argument: {name}"}})

    async with asking(default=refuse) as (server, client):
        with pytest.raises(ModelRequestError, match="Unrecognized"):
            await client.complete(request(sampling={"max_tokens": 9}))
    assert len(server.asked) == 2


async def test_our_own_seed_is_dropped_and_one_that_was_given_is_not():
    def refuse(asked: Asked) -> bytes:
        return http(400, {"error": {"message": "seed is not supported"}}) if "seed" in asked.body else OK

    async with asking(default=refuse) as (server, client):
        assert (await client.complete(request(seed=5))).text == "hi"
        with pytest.raises(ModelRequestError, match="seed is not supported"):
            await client.complete(ModelRequest("other", [UserMessage("x")], {"seed": 5}))
    assert len(server.asked) == 3


# --- failures that pass ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        http(500, "boom"),
        http(502, "<html><body>Bad gateway</body></html>"),
        http(408, ""),
        http(409, ""),
        http(429, {"error": {"message": "slow down"}}),
        RESET,
        http(200, "<!doctype html><p>Welcome"),
        http(200, '{"choices": [{"mess'),
        http(200, {"choices": []}),
        http(200, {"choices": None}),
        http(200, {"choices": "x"}),
        http(200, "[1]"),
        http(200, {"error": {"message": "upstream", "code": 502}}),
        http(200, reply(choice={"finish_reason": "abort"})),
        http(200, ""),
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\nConnection: close\r\n\r\n{",
    ],
)
async def test_a_passing_failure_is_tried_again(failure):
    async with asking(failure) as (server, client):
        response = await client.complete(request())
    assert response.text == "hi"
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (http(503, "busy\n\nnow"), ModelUnavailableError, "in 3 tries: 503 busy now"),
        (http(429, {"error": {"message": "too fast"}}), ModelUnavailableError, "429 too fast"),
        (RESET, ModelUnavailableError, "3 tries"),
        (http(200, "<html><p>Welcome</p></html>"), InvalidModelResponseError, "not JSON: HTML page: Welcome"),
        (http(200, '{"choices": [{'), InvalidModelResponseError, "not JSON"),
        (http(200, {"choices": []}), EmptyModelResponseError, "no choices"),
    ],
)
async def test_a_lasting_failure_names_url_tries_and_body(failure, kind, words):
    policy = RetryPolicy(max_retries=2, base_s=0.002)
    async with asking(default=failure, retry=policy) as (server, client):
        with pytest.raises(kind, match=words) as caught:
            await client.complete(request())
    assert len(server.asked) == 3
    assert f"{server.url}/chat/completions" in str(caught.value)
    assert "\n" not in str(caught.value)


@steady(0.1)
async def test_a_request_never_answered_ends_by_its_timeout_and_is_tried_again():
    async with asking(HANG) as (_, client):
        began = time.monotonic()
        response = await client.complete(request(timeout_s=0.5))
        took = time.monotonic() - began
    assert response.text == "hi"
    assert took > 0.49
    assert response.model_s < took - 0.4


@steady(0.1)
async def test_timeouts_end_in_a_timeout_error():
    async with asking(default=HANG, retry=RetryPolicy(timeout_retries=1, base_s=0.002)) as (server, client):
        with pytest.raises(ModelTimeoutError, match=r"2 tries.*within 0.4 s"):
            await client.complete(request(timeout_s=0.4))
    assert len(server.asked) == 2


@steady(0.1)
async def test_the_budget_covers_all_attempts():
    async with asking(default=HANG) as (server, client):
        began = time.monotonic()
        with pytest.raises(ModelTimeoutError):
            await client.complete(request(budget_s=0.3))
        assert time.monotonic() - began < 60  # the server never answers
        with pytest.raises(ModelTimeoutError, match="no time left"):
            await client.complete(request(budget_s=0.0))
    assert len(server.asked) == 1


async def test_a_slow_body_is_read_to_its_end():
    async def slowly(asked: Asked) -> bytes:
        await asyncio.sleep(0.15)
        return OK

    async with asking(slowly) as (_, client):
        response = await client.complete(request(timeout_s=60))
    assert response.text == "hi"
    assert response.model_s >= 0.15
    assert response.queue_s < response.model_s


@steady(0.1)
async def test_retry_after_is_honoured_and_counted_as_queueing():
    for headers in ({"Retry_After": "1"}, {"retry_after_ms": "200"}):
        async with asking(http(429, {}, **headers)) as (_, client):
            response = await client.complete(request())
        assert response.text == "hi"
        assert response.queue_s >= (1.0 if "Retry_After" in headers else 0.2)
        assert response.model_s < response.queue_s


@steady(0.1)
async def test_a_date_in_retry_after_is_understood():
    async with asking(http(503, {}, Retry_After=formatdate(time.time() + 2, usegmt=True))) as (_, client):
        response = await client.complete(request())
    assert 0.9 <= response.queue_s <= 3


async def test_a_wait_beyond_the_total_is_refused_at_once():
    async with asking(http(429, {}, Retry_After="4000")) as (server, client):
        with pytest.raises(ModelUnavailableError, match="asked to wait 4000 s"):
            await client.complete(request())
    assert len(server.asked) == 1


async def test_a_dead_server_is_said_within_seconds(unused_port):
    client = HTTPClient(Endpoint(f"http://127.0.0.1:{unused_port}/v1"))
    began = time.monotonic()
    with pytest.raises(ModelUnavailableError, match=r"4 tries: connection refused\. Is the server running"):
        await client.complete(request())
    assert time.monotonic() - began < 60  # 3 on a quiet machine; one that has answered before is tried for 300
    await client.close()


async def test_a_server_that_has_answered_before_is_waited_for():
    held = socket.socket()  # nobody else is given the port while nobody listens there
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    server = await Server().start(port)
    policy = RetryPolicy(max_retries=1000, base_s=0.02, cap_s=0.1, unproven_retries=0)
    client = HTTPClient(Endpoint(server.url), retry=policy)
    await client.complete(request())
    await server.stop()
    asking = asyncio.create_task(client.complete(request()))
    await asyncio.sleep(0.2)
    assert not asking.done()
    again = await Server().start(port)
    assert (await asking).text == "hi"
    assert (await asyncio.wait_for(client.complete(request()), 60)).text == "hi"
    await client.close()
    await again.stop()
    held.close()


async def test_cancelling_closes_the_connection_at_once():
    async with asking(default=HANG) as (server, client):
        asked = asyncio.create_task(client.complete(request()))
        await until(lambda: server.asked, by=asked)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await asyncio.wait_for(server.closed.wait(), 60)
        assert client.pool().replicas[0].limiter.taken == 0


# --- failures that do not -------------------------------------------------------------------------------------------


async def test_the_key_is_never_shown_even_when_the_server_repeats_it(caplog, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    body = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    async with asking(default=http(401, body), api_key=None, api_key_var="MY_KEY") as (server, client):
        with pytest.raises(AuthenticationError, match="MY_KEY") as caught:
            await client.complete(request())
        assert server.url in str(caught.value)
        shown = f"{caught.value!r} {caught.value} {client!r} {client.endpoint!r} {caplog.text}"
    assert len(server.asked) == 1
    assert KEY not in shown
    assert "***" in str(caught.value)


async def test_the_key_is_struck_out_of_bodies_that_are_retried():
    async with asking(default=http(500, f"debug {KEY}"), retry=RetryPolicy(max_retries=0)) as (_, client):
        with pytest.raises(ModelUnavailableError) as caught:
            await client.complete(request())
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (http(403, {"error": {"message": "no access"}}), AuthenticationError, "api_key: no access"),
        (http(404, {"error": {"message": "The model `m` does not exist"}}), ModelNotFoundError, "no model 'm'"),
        (http(404, "not found"), ModelRequestError, "usually end in /v1"),
        (http(404, {"detail": "Not Found"}), ModelRequestError, "Not Found"),
        (http(422, {"detail": [{"msg": "bad"}]}), ModelRequestError, "bad"),
        (http(400, {"error": "temperature must be positive"}), ModelRequestError, "temperature must be positive"),
        (http(429, {"error": {"message": "pay", "code": "insufficient_quota"}}), ModelRequestError, "no credit"),
        (http(301, "", Location="https://elsewhere/v1"), ModelRequestError, "redirect to https://elsewhere/v1"),
        (
            http(400, {"error": {"message": "max_tokens is too large: 9. It supports at most 5 completion tokens"}}),
            ModelRequestError,
            "too large",
        ),
    ],
)
async def test_a_refusal_is_not_tried_again(answer, kind, words):
    async with asking(default=answer) as (server, client):
        with pytest.raises(kind, match=words) as caught:
            await client.complete(request())
    assert type(caught.value) is kind
    assert len(server.asked) == 1


OVERLONG = [
    "This model's maximum context length is 4096 tokens. However, your prompt contains 5000 input tokens, which "
    "exceeds this limit even without any output tokens. Please reduce the length of the input prompt.",
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 10000 tokens.",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "Input length (5000) exceeds model's maximum context length (4096).",
    "max_tokens must be at least 1, got -904.",
    "request (2048 tokens) exceeds the available context size (512 tokens), try increasing it",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "Requested token count exceeds the model's maximum context length of 4096 tokens.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2100 `inputs` tokens",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Please reduce the length of the messages or completion.",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "the input length exceeds the context length",
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
]


@pytest.mark.parametrize("words", OVERLONG)
async def test_a_full_context_is_recognised_in_every_wording(words):
    async with asking(default=http(400, {"error": {"message": words}})) as (server, client):
        with pytest.raises(OverlongPromptError):
            await client.complete(request())
    assert len(server.asked) == 1


@pytest.mark.parametrize("code", ["context_length_exceeded", "exceed_context_size_error"])
async def test_a_full_context_is_recognised_by_its_code(code):
    async with asking(default=http(400, {"error": {"message": "no", "code": 400, "type": code}})) as (_, client):
        with pytest.raises(OverlongPromptError):
            await client.complete(request())


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 4100 tokens (4 in the messages)",
        "max_tokens=4096 cannot be greater than max_model_len=4096. Please request fewer output tokens.",
    ],
)
async def test_an_answer_limit_as_large_as_the_context_is_a_wrong_setting(words):
    async with asking(default=http(400, {"error": {"message": words}})) as (_, client):
        with pytest.raises(ModelRequestError, match="leaves no room for a prompt in a context of 4096"):
            await client.complete(request(sampling={"max_tokens": 4096}))


# --- load -----------------------------------------------------------------------------------------------------------


async def test_429_halves_the_load_says_so_and_loses_nothing():
    async def at_most_four(asked: Asked) -> bytes:
        if server.working > 4:
            return http(429, {"error": {"message": "slow down"}}, retry_after_ms="30")
        await asyncio.sleep(0.01)
        return OK

    async with asking(default=at_most_four, retry=RetryPolicy(max_retries=60, base_s=0.02)) as (server, client):
        tasks = [asyncio.create_task(client.complete(request())) for _ in range(32)]
        seen = set()
        while not all(t.done() for t in tasks):
            seen.add(client.status())
            await asyncio.sleep(0.002)
        responses = await asyncio.gather(*tasks)
        assert client.status() is None
    assert len(responses) == 32
    said = [s for s in seen if s and s.startswith("server says slow down (429), ") and " places, retrying in 0 s" in s]
    assert said, seen
    assert client._pools == {} or client.pool().replicas[0].limiter.limit < 32


async def test_requests_never_exceed_the_ceiling():
    async def work(asked: Asked) -> bytes:
        await asyncio.sleep(0.01)
        return OK

    async with asking(default=work, max_connections=3) as (server, client):
        responses = await asyncio.gather(*(client.complete(request()) for _ in range(12)))
    assert server.most_working == 3
    assert max(r.queue_s for r in responses) > 0.02


@steady(0.1)
async def test_waiting_for_a_place_does_not_count_against_the_timeout():
    async def work(asked: Asked) -> bytes:
        await asyncio.sleep(0.1)
        return OK

    async with asking(default=work, max_connections=1) as (server, client):
        responses = await asyncio.gather(*(client.complete(request(timeout_s=0.4)) for _ in range(7)))
    assert len(server.asked) == len(responses) == 7


STARVED = """
import asyncio, resource, sys
from verifiers.clients import HTTPClient, ModelRequest, RetryPolicy
from verifiers.types import UserMessage

async def main():
    client = HTTPClient(sys.argv[1], retry=RetryPolicy(max_retries=50, base_s=0.02, cap_s=0.1))
    client.pool()  # it learns the limit here, and finds it lower afterwards
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    asked = (client.complete(ModelRequest("m", [UserMessage("x")])) for _ in range(200))
    print(len(await asyncio.gather(*asked)), client.pool().replicas[0].limiter.ceiling < 40)
    await client.close()

asyncio.run(main())
"""


async def test_running_out_of_file_descriptors_loses_no_request():
    pytest.importorskip("resource")

    async def work(asked: Asked) -> bytes:
        await asyncio.sleep(0.05)
        return OK

    async with serving(default=work) as server:
        command = [sys.executable, "-W", "error", "-c", STARVED, server.url]
        child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = await asyncio.wait_for(child.communicate(), 200)
    assert out.split() == [b"200", b"True"], err[-2000:].decode()


# --- replicas -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def replicated(*urls: str, retry=QUICK):
    client = HTTPClient(Endpoint(urls[0], replicas=tuple(Endpoint(u) for u in urls)), retry=retry)
    try:
        yield client
    finally:
        await client.close()


async def test_replicas_are_used_in_turn_and_by_affinity_always_the_same():
    async with serving() as a, serving() as b, serving() as c, replicated(a.url, b.url, c.url) as client:
        for _ in range(9):
            await client.complete(request())
        assert [len(s.asked) for s in (a, b, c)] == [3, 3, 3]
        for key in range(20):
            before = [len(s.asked) for s in (a, b, c)]
            for _ in range(3):
                await client.complete(request(affinity=f"rollout-{key}"))
            assert sorted(len(s.asked) - n for s, n in zip((a, b, c), before)) == [0, 0, 3]
        assert all(len(s.asked) > 3 for s in (a, b, c)), "affinity should spread over the replicas"


@steady(0.5)
async def test_a_dead_replica_is_rested_and_the_others_take_over(unused_port):
    async with serving() as alive, replicated(f"http://127.0.0.1:{unused_port}/v1", alive.url) as client:
        responses = [await client.complete(request(affinity=str(i))) for i in range(10)]
        assert len(alive.asked) == 10
        assert sum(r.queue_s for r in responses) < 5
        assert client.pool().replicas[0].rested_until > time.monotonic()


# --- the pool's life ------------------------------------------------------------------------------------------------


def test_a_loop_that_ends_closes_the_connections_without_a_warning():
    async def once() -> HTTPClient:
        server = await Server().start()
        client = HTTPClient(Endpoint(server.url))
        await client.complete(request())
        await server.stop()
        return client

    client = asyncio.run(once())
    gc.collect()  # an unclosed session would warn, and warnings are errors
    asyncio.run(once())
    assert all(loop.is_closed() for loop in client._pools)


def test_one_client_serves_several_loops_one_after_the_other():
    async def ask(client: HTTPClient | None) -> HTTPClient:
        async with serving() as server:
            client = client or HTTPClient(Endpoint(server.url))
            client.endpoint = Endpoint(server.url)
            assert (await client.complete(request())).text == "hi"
            return client

    client = asyncio.run(ask(None))
    asyncio.run(ask(client))
    assert len(client._pools) == 1


async def test_a_dropped_client_closes_its_connections():
    async with serving() as server:
        client = HTTPClient(Endpoint(server.url))
        await client.complete(request())
        del client
        gc.collect()
        await asyncio.wait_for(server.closed.wait(), 60)


async def test_a_closed_client_opens_again():
    async with asking() as (server, client):
        await client.complete(request())
        await client.close()
        assert (await client.complete(request())).text == "hi"
    assert server.opened == 2


async def test_evaluating_twice_shares_one_client():
    async with serving() as server:
        first, second = as_client(server.url), as_client(server.url)
        assert first is second
        await first.complete(request())
        await as_client(server.url, message_type="completion").complete(request())
        assert server.opened == 1
        await first.close()


# --- other dialects -------------------------------------------------------------------------------------------------


async def test_base_models_are_asked_for_completions():
    answer = {
        "choices": [
            {
                "text": " world",
                "finish_reason": "length",
                "token_ids": [5, 6],
                "prompt_token_ids": [1],
                "logprobs": {"token_logprobs": [-0.5, -1.0], "tokens": ["a", "b"]},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    async with asking(http(200, answer), dialect="completions") as (server, client):
        messages = [TextMessage("hel"), TextMessage("lo")]
        response = await client.complete(ModelRequest("m", messages, {"logprobs": True, "max_tokens": 2}))
    assert server.asked[0].path == "/v1/completions"
    assert server.asked[0].body == {"model": "m", "prompt": "hello", "logprobs": 1, "max_tokens": 2}
    assert (response.message.role, response.text, response.is_truncated) == ("text", " world", True)
    assert list(response.tokens.prompt_ids) == [1]
    assert list(response.tokens.completion_ids) == [5, 6]
    assert list(response.tokens.logprobs) == [-0.5, -1.0]
    assert response.usage.completion_tokens == 2


def engine(asked: Asked) -> bytes:
    """The three routes of token-in/token-out."""
    if asked.path.endswith("/render"):
        return http(200, {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 4}, "model": "m"})
    if asked.path.endswith("/derender"):
        return http(200, reply("said", message={"reasoning": "why"}))
    spans = [{"version": "v1", "start": 0, "end": 1}, {"version": "v2", "start": 1, "end": 2}]
    scored = {"content": [{"token_id": 7, "logprob": -0.25}, {"token_id": 8, "logprob": -0.5}]}
    choice = {"index": 0, "token_ids": [7, 8], "finish_reason": "stop", "logprobs": scored, "weight_versions": spans}
    return http(200, {"request_id": "g", "choices": [choice]})


async def test_tokens_in_and_out_with_the_weights_that_made_them():
    async with asking(default=engine, dialect="tokens") as (server, client):
        response = await client.complete(request(sampling={"max_tokens": 4}))
        salted = {"max_tokens": 4, "extra_body": {"cache_salt": "version 3", "priority": 1}}
        given = await client.complete(request(prompt_ids=[9, 9], sampling=salted))
    paths = [a.path for a in server.asked]
    assert paths[:3] == ["/v1/chat/completions/render", "/inference/v1/generate", "/v1/chat/completions/derender"]
    assert paths[3:] == paths[1:3]
    assert server.asked[1].body["token_ids"] == [1, 2, 3]
    assert server.asked[1].body["sampling_params"] == {"max_tokens": 4, "logprobs": 1}
    assert server.asked[2].body["generate_response"]["choices"][0]["token_ids"] == [7], "8 ended it"
    assert server.asked[3].body["token_ids"] == [9, 9]
    assert server.asked[3].body["sampling_params"] == {"max_tokens": 4, "logprobs": 1}
    assert (server.asked[3].body["cache_salt"], server.asked[3].body["priority"]) == ("version 3", 1)
    assert (response.text, response.message.reasoning_content) == ("said", "why")
    assert list(response.tokens.prompt_ids) == [1, 2, 3]
    assert list(response.tokens.completion_ids) == [7, 8]
    assert list(response.tokens.logprobs) == [-0.25, -0.5]
    assert [(v.start, v.end, v.version) for v in response.versions] == [(0, 1, "v1"), (1, 2, "v2")]
    assert list(given.tokens.prompt_ids) == [9, 9]


async def test_a_server_without_the_token_routes_is_asked_for_ids_in_chat_completions():
    def plain(asked: Asked) -> bytes:
        if asked.path != "/v1/chat/completions":
            return http(404, {"detail": "Not Found"})
        scored = {"content": [{"token": "x", "logprob": -0.5}]}
        return http(200, reply(choice={"token_ids": [4], "logprobs": scored}, prompt_token_ids=[1]))

    async with asking(default=plain, dialect="tokens") as (server, client):
        for _ in range(2):
            response = await client.complete(request())
    assert [a.path.removeprefix("/v1/chat/completions") for a in server.asked] == ["/render", "", ""]
    assert server.asked[1].body["return_token_ids"] is True
    assert list(response.tokens.completion_ids) == [4]


async def test_a_model_that_is_not_served_yet_does_not_close_the_token_routes():
    loading = [http(404, {"error": {"message": "The model `m` does not exist."}})] * 2
    async with asking(*loading, default=engine, dialect="tokens") as (server, client):
        with pytest.raises(ModelNotFoundError):
            await client.complete(request())
        assert list((await client.complete(request())).tokens.completion_ids) == [7, 8]
    assert server.asked[-1].path == "/v1/chat/completions/derender"


# --- the list of models ---------------------------------------------------------------------------------------------


async def test_list_models_reads_the_names():
    async with serving(http(200, {"data": [{"id": "a"}, {"id": "b"}]})) as server:
        assert await list_models(Endpoint(server.url)) == ["a", "b"]
    assert (server.asked[0].method, server.asked[0].path) == ("GET", "/v1/models")


@pytest.mark.parametrize("answer", [http(404, ""), http(500, ""), http(200, "<html>"), http(200, {"x": 1})])
async def test_a_server_without_a_list_gives_none(answer):
    async with serving(answer) as server:
        assert await list_models(server.url) is None


async def test_list_models_says_that_nobody_answers_or_the_key_is_wrong(unused_port):
    with pytest.raises(ModelUnavailableError, match="refused"):
        await list_models(f"http://127.0.0.1:{unused_port}/v1")
    async with serving(http(401, "no"), HANG) as server:
        with pytest.raises(AuthenticationError):
            await list_models(server.url)
        with pytest.raises(ModelTimeoutError):
            await list_models(server.url, 0.1)
