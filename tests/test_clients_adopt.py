"""What may be passed as a client, and what becomes of it. Descriptions open nothing."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import AsyncMock, MagicMock

import pytest

from verifiers.clients import (
    Client,
    ClientConfig,
    Endpoint,
    HTTPClient,
    ModelRequest,
    OpenAIChatCompletionsClient,
    OpenAIChatCompletionsTokenClient,
    OpenAICompletionsClient,
    ScriptedClient,
    as_client,
)
from verifiers.clients.foreign import ForeignClient
from verifiers.errors import (
    AuthenticationError,
    ConfigError,
    InvalidModelResponseError,
    MissingKeyError,
    ModelError,
    OverlongPromptError,
)
from verifiers.types import ToolCall, UserMessage

URL = "http://127.0.0.1:8000/v1"


def request(**more) -> ModelRequest:
    return ModelRequest("m", [UserMessage("hello")], **more)


def test_importing_the_clients_loads_neither_aiohttp_nor_openai():
    code = (
        "import sys, verifiers.clients as c; c.as_client; c.HTTPClient('http://127.0.0.1:1/v1'); c.ScriptedClient('x');"
        "print([m for m in ('aiohttp', 'openai', 'pydantic', 'datasets') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


# --- endpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://h:1/v1/", "http://h:1/v1"),
        ("http://h/v1/chat/completions", "http://h/v1"),
        ("localhost:8000/v1", "http://localhost:8000/v1"),
        ("api.example.com/v1", "https://api.example.com/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("https://user:pw@h/v1?x=1", "https://h/v1"),
    ],
)
def test_base_urls_are_tidied(given, url):
    assert Endpoint(given).base_url == url


@pytest.mark.parametrize("given", ["", "ftp://h/v1", "http://", "http://h:port/v1", "gpt 4"])
def test_what_is_no_base_url_is_refused(given):
    with pytest.raises(ConfigError, match="no base URL"):
        Endpoint(given)


def test_keys_and_secret_headers_are_not_shown(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "from-environment\n")
    endpoint = Endpoint(URL, api_key="very-secret", headers={"X-Api-Key": "also-secret", "X-Plain": "plain"})
    assert "secret" not in repr(endpoint)
    assert set(endpoint.secrets()) == {"very-secret", "also-secret"}
    assert Endpoint(URL, api_key_var="SOME_KEY").key() == "from-environment"
    with pytest.raises(ConfigError) as caught:
        Endpoint(URL, api_key="line\nbreak").key()
    assert "break\n" not in str(caught.value) and "line\n" not in str(caught.value)


def test_user_information_in_a_url_becomes_a_header():
    endpoint = Endpoint("https://user:p%40ss@h/v1")
    assert dict(endpoint.headers) == {"Authorization": "Basic dXNlcjpwQHNz"}
    assert "p@ss" not in repr(endpoint)


def test_a_client_config_reads_as_the_classic_one():
    config = ClientConfig(api_base_url=URL, api_key_var="K", timeout=60, surprise=1)
    assert (config.timeout, config.max_retries, config.max_connections, config.surprise) == (60, 10, 28000, 1)
    assert config.model_copy(update={"timeout": 5}).timeout == 5
    assert config.model_dump()["connect_timeout"] == 5.0
    assert ClientConfig.model_validate({"api_base_url": URL}).api_base_url == URL
    endpoint = Endpoint.of(config)
    assert (endpoint.base_url, endpoint.api_key_var, endpoint.timeout_s, endpoint.dialect) == (URL, "K", 60.0, "chat")


def test_endpoint_configs_are_replicas_that_inherit():
    parts = [{"api_base_url": "http://a/v1"}, ClientConfig(api_base_url="http://b/v1", api_key_var="B")]
    endpoint = Endpoint.of(ClientConfig(api_key_var="K", timeout=9, endpoint_configs=parts, api_base_url=URL))
    assert [(r.base_url, r.api_key_var, r.timeout_s) for r in endpoint.all_replicas] == [
        ("http://a/v1", "K", 9.0),
        ("http://b/v1", "B", 9.0),
    ]


def test_an_unknown_client_type_is_refused():
    with pytest.raises(ConfigError, match="OpenAI-compatible address"):
        Endpoint.of(ClientConfig(client_type="anthropic_messages", api_base_url=URL))


def test_nothing_given_is_what_the_environment_says(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", URL)
    assert Endpoint.of(None).base_url == URL
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(MissingKeyError):
        Endpoint.of(None)


def test_openai_clients_are_read_as_descriptions():
    from openai import AsyncOpenAI, OpenAI

    for kind in (AsyncOpenAI, OpenAI):
        client = kind(base_url=URL, api_key="secret-key", timeout=77, max_retries=4, default_headers={"X-A": "b"})
        adopted = as_client(client)
        assert isinstance(adopted, HTTPClient)
        endpoint = adopted.endpoint
        assert (endpoint.base_url, endpoint.key()) == (URL, "secret-key")
        assert (endpoint.timeout_s, endpoint.max_retries) == (77, 4)
        assert dict(endpoint.headers)["X-A"] == "b"


def test_openais_own_retry_default_is_not_taken_for_a_choice():
    from openai import AsyncOpenAI

    endpoint = Endpoint.of(AsyncOpenAI(base_url=URL, api_key="x"))
    assert endpoint.max_retries == 10
    assert (endpoint.timeout_s, endpoint.connect_timeout_s) == (600, 5)


# --- as_client ------------------------------------------------------------------------------------------------------


def test_our_clients_are_taken_as_they_are():
    for client in (ScriptedClient("x"), HTTPClient(URL)):
        assert as_client(client) is client
        assert isinstance(client, Client)


def test_the_message_type_chooses_the_dialect():
    assert as_client(URL).dialect.name == "chat"
    assert as_client(URL, message_type="completion").dialect.name == "completions"
    assert as_client(HTTPClient(URL), message_type="completion").dialect.name == "completions"
    tokens = ClientConfig(client_type="openai_chat_completions_token", api_base_url=URL)
    assert as_client(tokens).dialect.name == "tokens"


def test_classic_names_make_clients_of_their_dialect():
    kinds = [OpenAIChatCompletionsClient, OpenAICompletionsClient, OpenAIChatCompletionsTokenClient]
    clients = [kind(ClientConfig(api_base_url=URL)) for kind in kinds]
    assert [c.dialect.name for c in clients] == ["chat", "completions", "tokens"]
    assert all(as_client(c) is c for c in clients)


async def test_the_same_description_is_one_client_within_a_loop():
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=URL, api_key="x")
    assert as_client(client) is as_client(client)
    assert as_client(ClientConfig(api_base_url=URL)) is as_client(ClientConfig(api_base_url=URL))
    assert as_client(ClientConfig(api_base_url=URL)) is not as_client(ClientConfig(api_base_url=URL, timeout=1))
    before = as_client(client)
    client.base_url = "http://127.0.0.1:9/v1"
    assert as_client(client) is not before


@pytest.mark.parametrize("given", [5, object(), [URL]])
def test_anything_else_is_refused(given):
    with pytest.raises(ConfigError, match="a client is"):
        as_client(given)


# --- somebody else's client -----------------------------------------------------------------------------------------


def fake(create) -> SimpleNamespace:
    return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))


def openai_reply(content="hi", calls=None):
    from openai.types.chat import ChatCompletion

    message = {"role": "assistant", "content": content, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return ChatCompletion.model_validate(
        {
            "id": "r",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        }
    )


async def test_a_fake_client_is_called_with_openai_keywords():
    seen = {}

    async def create(**given):
        seen.update(given)
        return openai_reply(calls=[{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}])

    client = as_client(fake(create))
    response = await client.complete(request(sampling={"temperature": 0.5, "extra_body": {"top_k": 3}, "top_p": None}))
    assert isinstance(client, ForeignClient)
    assert seen["model"] == "m" and seen["messages"] == [{"role": "user", "content": "hello"}]
    assert seen["temperature"] == 0.5 and seen["extra_body"] == {"top_k": 3}
    assert "top_p" not in seen and "top_k" not in seen
    assert response.message.tool_calls == [ToolCall("c", "f", "{}")]
    assert response.usage.completion_tokens == 2


@pytest.mark.parametrize(
    "reply",
    [
        lambda **_: {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]},
        lambda **_: SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content="hi", tool_calls=None))]),
        lambda **_: "hi",
        lambda **_: openai_reply(),
    ],
)
async def test_replies_of_fakes_may_be_dicts_objects_or_text(reply):
    assert (await as_client(fake(reply)).complete(request())).text == "hi"


async def test_mock_objects_in_which_every_name_exists_are_read_by_kind():
    mock = MagicMock()
    mock.choices = [MagicMock()]
    mock.choices[0].message.content = "hi"
    client = MagicMock()
    client.chat.completions.create = AsyncMock(return_value=mock)
    response = await as_client(client).complete(request())
    assert (response.text, response.finish_reason, response.message.get("tool_calls")) == ("hi", None, None)


async def test_a_patched_openai_client_is_called_and_not_read():
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=URL, api_key="x")
    client.chat.completions.create = AsyncMock(return_value=openai_reply("patched"))  # type: ignore[method-assign]
    assert (await as_client(client).complete(request())).text == "patched"


async def test_a_transport_of_ones_own_is_used_and_its_errors_are_ours():
    import httpx2
    from openai import AsyncOpenAI

    answers = [
        httpx2.Response(401, json={"error": {"message": "bad key"}}),
        httpx2.Response(400, json={"error": {"message": "x", "code": "context_length_exceeded"}}),
        httpx2.Response(200, json={"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}),
    ]
    transport = httpx2.MockTransport(lambda _: answers.pop(0))
    openai = AsyncOpenAI(base_url=URL, api_key="x", http_client=httpx2.AsyncClient(transport=transport))
    client = as_client(openai)
    with pytest.raises(AuthenticationError, match="bad key"):
        await client.complete(request())
    with pytest.raises(OverlongPromptError):
        await client.complete(request())
    assert (await client.complete(request())).text == "hi"
    await openai.close()


async def test_errors_of_fakes_are_model_errors():
    async def create(**_):
        raise ValueError("boom")

    with pytest.raises(ModelError, match="ValueError: boom"):
        await as_client(fake(create)).complete(request())
    with pytest.raises(InvalidModelResponseError):
        await as_client(fake(lambda **_: {"choices": [{}]})).complete(request())


# --- ScriptedClient -------------------------------------------------------------------------------------------------


async def test_a_script_is_followed_and_starts_again():
    error = OverlongPromptError("full")

    async def later(asked: ModelRequest) -> str:
        return asked.messages[-1].content.upper()

    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    client = ScriptedClient(["a", {"content": None, "tool_calls": [call]}, later, error])
    assert (await client.complete(request())).text == "a"
    response = await client.complete(request())
    assert (response.finish_reason, response.message.tool_calls[0].name) == ("tool_calls", "f")
    assert (await client.complete(request())).text == "HELLO"
    with pytest.raises(OverlongPromptError):
        await client.complete(request())
    assert (await client.complete(request())).text == "a"
    assert len(client.requests) == 5


async def test_a_script_that_must_not_start_again_says_so():
    client = ScriptedClient(["a"], cycle=False)
    await client.complete(request())
    with pytest.raises(ConfigError, match="1 replies and was asked for one more"):
        await client.complete(request())
    with pytest.raises(ConfigError, match="at least one"):
        ScriptedClient([])


async def test_a_scripted_request_is_kept_as_it_was():
    client, messages = ScriptedClient(lambda asked: "x"), [UserMessage("one")]
    await client.complete(ModelRequest("m", messages))
    messages.append(UserMessage("two"))
    assert len(client.requests[0].messages) == 1


async def test_scripted_tokens_continue_from_turn_to_turn():
    client = ScriptedClient(["yes it is", "no"], with_tokens=True)
    first = await client.complete(request())
    again = await ScriptedClient("yes it is", with_tokens=True).complete(request())
    assert first.tokens == again.tokens
    assert len(first.tokens.completion_ids) == len(first.tokens.logprobs) == 4
    messages = [UserMessage("hello"), first.message, UserMessage("sure?")]
    second = await client.complete(ModelRequest("m", messages))
    shared = [*first.tokens.prompt_ids, *first.tokens.completion_ids]
    assert list(second.tokens.prompt_ids)[: len(shared)] == shared
