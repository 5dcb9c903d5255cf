"""All three dialects against a real vLLM server: what it says is what we read, and turns continue token by token."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from loopback import Desk
from vllm_server import CONTEXT, MODEL, PYTHON_VAR, VLLMServer, tiny_model, vllm_python

import verifiers as vf
from verifiers.clients import Endpoint, HTTPClient, ModelRequest, list_models
from verifiers.clients.client import Seen
from verifiers.errors import ModelNotFoundError, ModelRequestError, OverlongPromptError
from verifiers.records import RolloutRecord, TokenTrace, read_records
from verifiers.run import Run, as_rows
from verifiers.types import AssistantMessage, TextMessage, Tool, ToolMessage, UserMessage

pytestmark = pytest.mark.vllm

END = 2  # <|im_end|>, which ends a reply
OFTEN_ENDS = {"logit_bias": {str(END): 5.0}}  # one token in eight; the model itself would hardly ever end
ADD = Tool("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
LONG = "zq " * 2 * CONTEXT


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    python = vllm_python()
    if python is None:
        pytest.skip(f"{PYTHON_VAR} does not name the Python of a virtual environment with vLLM (scripts/setup_vllm.sh)")
    folder = tmp_path_factory.mktemp("vllm")
    cache = request.config.cache
    model = tiny_model(folder if cache is None else cache.mkdir("vllm"), python)
    with VLLMServer(python, model, folder / "server.log") as server:
        yield server


@pytest.fixture(params=["chat", "tokens"])
async def chatting(request, server):
    """A client in each dialect for instruct models."""
    async for client in opened(server, request.param):
        yield client


@pytest.fixture
async def tokens(server):
    async for client in opened(server, "tokens"):
        yield client


@pytest.fixture
async def completions(server):
    async for client in opened(server, "completions"):
        yield client


async def opened(server, dialect):
    client = HTTPClient(Endpoint(server.url, dialect=dialect, max_retries=0))
    yield client
    if dialect == "tokens":
        assert client.dialect.has_generate is not False, "the token routes were given up"
    await client.close()


def ask(text: str = "Hello there", *, tools=None, seed: int | None = 1, model: str = MODEL, **sampling) -> ModelRequest:
    sampling = {"max_tokens": 24, "logprobs": True, "extra_body": {"return_token_ids": True}} | sampling
    return ModelRequest(model, [UserMessage(text)], sampling, tools=tools, seed=seed)


def decoded(server, ids) -> str:
    return server.post("/detokenize", {"model": MODEL, "tokens": list(ids)})["prompt"]


async def rolled_out(env: vf.Environment, client: HTTPClient, **sampling) -> RolloutRecord:
    rows = as_rows(env.get_dataset(n=1), env)
    run = Run(env, rows, client=client, model=MODEL, sampling_args={"max_tokens": 12, **sampling})
    (record,) = await run.execute()
    return record


def whole_prompts(record: RolloutRecord) -> list[list[int]]:
    """The prompt of every turn, put together from the traces as their documentation says."""
    prompts, before = [], []
    for turn in record.turns:
        prompt = [*before[: turn.tokens.prefix_length], *turn.tokens.prompt_ids]
        prompts.append(prompt)
        before = [*prompt, *turn.tokens.completion_ids]
    return prompts


class Again(vf.MultiTurnEnv):
    """Asks for more, three times in all."""

    def __init__(self, **more):
        super().__init__(dataset=[{"question": "Say something.", "answer": ""}], max_turns=3, **more)

    async def env_response(self, messages, state, **kwargs):
        return [UserMessage("And then?")]


# --- one request ----------------------------------------------------------------------------------------------------


async def test_ids_log_probabilities_and_usage_agree(chatting, server):
    response = await chatting.complete(ask())
    trace, usage = response.tokens, response.usage
    assert len(trace.completion_ids) == len(trace.logprobs) == usage.completion_tokens == 24
    assert len(trace.prompt_ids) == usage.prompt_tokens
    assert usage.total_tokens == usage.prompt_tokens + 24
    assert all(value < 0 for value in trace.logprobs)
    assert (response.finish_reason, response.is_truncated, response.model) == ("length", True, MODEL)
    assert decoded(server, trace.completion_ids) == response.text
    shown = decoded(server, trace.prompt_ids)
    assert shown.endswith("<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n")


async def test_the_token_that_ends_a_reply_is_among_the_ids_but_not_in_the_text(chatting, server):
    response = await chatting.complete(ask(max_tokens=200, extra_body={"return_token_ids": True, **OFTEN_ENDS}))
    ids = list(response.tokens.completion_ids)
    assert response.finish_reason == "stop"
    assert ids[-1] == END and END not in ids[:-1]
    assert response.usage.completion_tokens == len(ids)
    assert response.text == decoded(server, ids[:-1])


async def test_a_reply_that_ends_at_once_is_empty_text(chatting):
    response = await chatting.complete(ask(extra_body={"return_token_ids": True, "logit_bias": {str(END): 100}}))
    assert (response.text, list(response.tokens.completion_ids), response.finish_reason) == ("", [END], "stop")


async def test_the_text_ends_before_a_stop_string(chatting, server):
    whole = (await chatting.complete(ask())).text
    stop = whole[5:7]
    response = await chatting.complete(ask(stop=[stop]))
    assert response.text == whole[: whole.index(stop)]
    assert response.finish_reason == "stop"
    assert decoded(server, response.tokens.completion_ids).startswith(response.text + stop)


async def test_a_seed_repeats_a_reply_in_every_dialect(server):
    found = []
    for dialect in ("chat", "tokens", "tokens"):
        async for client in opened(server, dialect):
            found.append(await client.complete(ask(seed=7)))
            other = await client.complete(ask(seed=8))
    assert [r.text for r in found] == [found[0].text] * 3 != [other.text] * 3
    assert found[0].tokens.completion_ids == found[1].tokens.completion_ids
    assert list(found[0].tokens.logprobs) == pytest.approx(list(found[1].tokens.logprobs), abs=1e-4)


async def test_a_tool_may_be_offered_demanded_or_named(chatting, server):
    for choice in ("auto", "required", {"type": "function", "function": {"name": "add"}}):
        response = await chatting.complete(ask(tools=[ADD], tool_choice=choice, max_tokens=60))
        assert '"name": "add"' in decoded(server, response.tokens.prompt_ids)
        assert all(call.name == "add" for call in response.message.get("tool_calls", []))


async def test_a_model_that_is_not_served_is_named(chatting, server):
    with pytest.raises(ModelNotFoundError, match="no model 'none'"):
        await chatting.complete(ask(model="none"))
    assert await list_models(server.url) == [MODEL]


async def test_a_full_context_is_told_from_a_bad_request(chatting, completions):
    with pytest.raises(OverlongPromptError, match="1024 tokens"):
        await chatting.complete(ask(LONG))
    with pytest.raises(OverlongPromptError, match="1024 tokens"):
        await completions.complete(ModelRequest(MODEL, [TextMessage(LONG)], {"max_tokens": 4}))
    with pytest.raises(ModelRequestError, match="max_tokens=2048 leaves no room"):
        await chatting.complete(ask(max_tokens=2 * CONTEXT))


async def test_without_a_limit_the_answer_may_fill_the_context(tokens):
    response = await tokens.complete(ask(max_tokens=None, extra_body={"logit_bias": {str(END): -100}}))
    assert response.usage.total_tokens == CONTEXT


# --- tokens in and out ----------------------------------------------------------------------------------------------


async def test_given_ids_are_continued_as_they_are(tokens, server):
    ids = [1, 300, 301, 302]
    request = ask()
    request.prompt_ids = ids
    response = await tokens.complete(request)
    assert list(response.tokens.prompt_ids) == ids
    assert response.text == decoded(server, response.tokens.completion_ids)
    request.prompt_ids = [300] * 2 * CONTEXT
    with pytest.raises(OverlongPromptError):
        await tokens.complete(request)


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("has_called", [True, False])
async def test_new_messages_are_added_to_what_was_seen(tokens, server, is_whole, has_called):
    before = (await tokens.complete(ask())).tokens
    made = [400, 401, *([END] if is_whole else [])]
    seen = [*before.prompt_ids, *made]
    reply, new = AssistantMessage("xy"), [UserMessage("Go on")]
    if has_called:
        reply = AssistantMessage("", [{"id": "c1", "name": "add", "arguments": "{}"}])
        new = [ToolMessage("3", "c1"), ToolMessage("4", "c2")]
    messages = [UserMessage("Hello there"), reply, *new]
    request = ModelRequest(MODEL, messages, {"max_tokens": 4}, tools=[ADD] if has_called else None)
    request.seen = Seen(2, buffer(seen), is_whole)
    prompt = list((await tokens.complete(request)).tokens.prompt_ids)
    assert prompt[: len(seen)] == seen
    added = decoded(server, prompt[len(seen) :])
    ending = "" if is_whole else "<|im_end|>"
    said = "user\nGo on"
    if has_called:
        said = "user\n<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n</tool_response>"
    assert added == f"{ending}\n<|im_start|>{said}<|im_end|>\n<|im_start|>assistant\n"


def buffer(ids) -> bytes:
    return TokenTrace.of(ids, []).prompt_buffer


async def test_a_reply_of_another_end_than_the_template_s_is_rendered_anew(tokens, server):
    request = ModelRequest(MODEL, [UserMessage("a"), AssistantMessage("xy"), UserMessage("b")], {"max_tokens": 4})
    plain = await tokens.complete(request)
    request.seen = Seen(2, buffer([1, 300, 0]), True)
    assert (await tokens.complete(request)).tokens.prompt_ids == plain.tokens.prompt_ids


async def test_every_reply_tells_which_weights_made_it(tokens, server):
    for version in ("step-1", "step-2"):
        server.post("/update_weight_version", {"new_version": version})
        response = await tokens.complete(ask())
        assert [(v.start, v.end, v.version) for v in response.versions] == [(0, 24, version)]


async def test_weights_that_change_during_a_reply_share_its_tokens(tokens, server):
    change = asyncio.to_thread(server.post, "/update_weight_version", {"new_version": "after"})
    server.post("/update_weight_version", {"new_version": "before"})
    asking = asyncio.create_task(tokens.complete(ask(max_tokens=900, extra_body={"logit_bias": {str(END): -100}})))
    await asyncio.sleep(0.3)
    await change
    spans = (await asking).versions
    assert [span.version for span in spans] == ["before", "after"]
    assert (spans[0].start, spans[0].end, spans[1].end) == (0, spans[1].start, 900)


# --- rollouts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [{}, {"extra_body": OFTEN_ENDS}], ids=["cut off", "ended"])
async def test_turns_continue_token_by_token(tokens, server, sampling):
    server.post("/update_weight_version", {"new_version": "v3"})
    record = await rolled_out(Again(), tokens, **sampling)
    assert (len(record.turns), record.errors, record.stop_condition) == (3, [], "max_turns_reached")
    for earlier, later, prompt in zip(record.turns, record.turns[1:], whole_prompts(record), strict=False):
        assert later.tokens.prefix_length == len(prompt) + len(earlier.tokens.completion_ids)
    for turn in record.turns:
        assert [(v.start, v.end, v.version) for v in turn.versions] == [(0, len(turn.tokens.completion_ids), "v3")]
    assert record.model.weight_version == "v3"
    assert record.usage.prompt == sum(map(len, whole_prompts(record)))
    conversation = decoded(server, whole_prompts(record)[-1])
    assert conversation.count("<|im_start|>") == conversation.count("<|im_end|>") + 1 == 6
    assert conversation.count("<|im_end|>\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n") == 2


async def test_turns_with_tools_continue_token_by_token(tokens, server):
    def add(a: int) -> int:
        """Adds one."""
        return a + 1

    env = vf.ToolEnv(dataset=[{"question": "Add.", "answer": ""}], tools=[add], max_turns=3)
    call = r'<tool_call>\{"name": "add", "arguments": \{"a": [1-8]\}\}</tool_call>'
    record = await rolled_out(env, tokens, max_tokens=80, extra_body={"structured_outputs": {"regex": call}})
    assert (len(record.turns), record.errors) == (3, [])
    for earlier, later, prompt in zip(record.turns, record.turns[1:], whole_prompts(record), strict=False):
        assert earlier.finish_reason == "tool_calls"
        assert later.tokens.prefix_length == len(prompt) + len(earlier.tokens.completion_ids)
        asked, answer = record.messages[earlier.start], record.messages[earlier.start + 1]
        (called,) = asked["tool_calls"]
        assert answer["content"] == str(json.loads(called["function"]["arguments"])["a"] + 1)
        added = decoded(server, later.tokens.prompt_ids)
        shown = f"\n<tool_response>\n{answer['content']}\n</tool_response>"
        assert added == f"\n<|im_start|>user{shown}<|im_end|>\n<|im_start|>assistant\n"


async def test_over_chat_the_server_s_own_tokens_are_told_even_where_they_part(server):
    """The server tokenises replies anew, so that a prefix may end inside one; what it really saw is still told."""
    async for client in opened(server, "chat"):
        record = await rolled_out(Again(), client, logprobs=True, extra_body={"return_token_ids": True})
        assert len(record.turns) == 3
        prompts = whole_prompts(record)
        for turn, prompt in zip(record.turns, prompts, strict=True):
            messages = [*record.prompt, *record.messages[: turn.start]]
            rendered = server.post("/v1/chat/completions/render", {"model": MODEL, "messages": messages})
            assert prompt == rendered["token_ids"]
        first = [*prompts[0], *record.turns[0].tokens.completion_ids]
        assert len(prompts[0]) <= record.turns[1].tokens.prefix_length <= len(first)


async def test_an_edit_of_earlier_messages_is_seen_by_the_model(tokens, server):
    class Forgets(Again):
        async def env_response(self, messages, state, **kwargs):
            messages[1]["content"] = "(left out)"
            return [UserMessage("And then?")]

    record = await rolled_out(Forgets(), tokens)
    assert "assistant\n(left out)<|im_end|>" in decoded(server, whole_prompts(record)[-1])


async def test_a_base_model_s_text_is_continued(completions, server):
    env = vf.SingleTurnEnv(
        dataset=[{"prompt": "Once upon a", "answer": ""}],
        message_type="completion",
        rubric=vf.Rubric(funcs=[lambda completion: float(isinstance(completion, str))]),
    )
    record = await rolled_out(env, completions, logprobs=1, extra_body={"return_token_ids": True}, temperature=0.5)
    (turn,) = record.turns
    assert (record.status, record.reward, turn.finish_reason) == ("scored", 1.0, "length")
    assert decoded(server, turn.tokens.prompt_ids) == "Once upon a"
    assert len(turn.tokens.completion_ids) == len(turn.tokens.logprobs) == 12
    assert record.messages[0]["content"] == decoded(server, turn.tokens.completion_ids)


async def test_a_conversation_that_outgrows_the_context_ends_there(chatting):
    class Talks(Again):
        async def env_response(self, messages, state, **kwargs):
            return [UserMessage("word " * 400)]

    env = Talks(rubric=vf.Rubric(funcs=[lambda completion: 1.0]))
    record = await rolled_out(env, chatting)
    assert (record.stop_condition, record.is_truncated) == ("prompt_too_long", True)
    assert (record.status, record.errors) == ("scored", [])
    assert all("maximum" not in message["content"] for message in record.messages)


# --- the command ----------------------------------------------------------------------------------------------------

ENVIRONMENT = """
import verifiers as vf

class Again(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "And then?"}]

def load_environment():
    rows = [{"question": f"Say {n}.", "answer": str(n)} for n in range(3)]
    return Again(eval_dataset=rows, max_turns=2, rubric=vf.Rubric(funcs=[lambda completion: float(len(completion))]))
"""


@pytest.fixture
def desk(tmp_path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("again", ENVIRONMENT)
    return desk


@pytest.mark.parametrize("dialect", ["openai_chat_completions", "openai_chat_completions_token"])
def test_the_command_saves_tokens_that_are_read_back(desk, server, dialect):
    sampling = json.dumps({"logprobs": True, "extra_body": {"return_token_ids": True}})
    done = desk.run(
        f"vf-eval again -m {MODEL} -b {server.url} --api-client-type {dialect} -n 3 -r 2 -t 8 --save-tokens "
        f"-S '{sampling}'",
        OPENAI_API_KEY="unused",
    )
    assert done.returncode == 0, done.stderr
    folder: Path = desk.saved_run()
    records = list(read_records(folder / "results.jsonl", folder / "results.tokens.jsonl"))
    assert sorted(record.key for record in records) == [(row, attempt) for row in range(3) for attempt in range(2)]
    for record in records:
        assert record.status == "scored"
        assert [len(turn.tokens.logprobs) for turn in record.turns] == [8, 8]
        assert record.usage.completion == 16
        assert record.usage.prompt == sum(map(len, whole_prompts(record)))
