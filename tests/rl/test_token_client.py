"""`TokenClient`: ids in and out, turns that add to what was sampled, and the limits of a context."""

import json
from array import array

import pytest
from letter_chat import Engine, Letters

import verifiers as vf
from verifiers.clients.client import ModelRequest, Seen
from verifiers.errors import ModelUnavailableError, OverlongPromptError
from verifiers.rl.chat_tokenizer import HuggingFaceChat
from verifiers.rl.token_client import Sampled, TokenClient, engine_sampling, read_reply
from verifiers.types import Tool, as_messages

TOOLS = [Tool("add", "", {})]


def asked(*said, **given):
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(said)]
    return ModelRequest(model="m", messages=as_messages(messages), **given)


def client(reply="b", *, finish="stop", **given):
    engine = Engine(lambda question, number: reply)

    async def sample(prompt_ids, sampling, affinity):
        ids, logprobs = await engine.answer(prompt_ids, sampling=sampling, affinity=affinity)
        return Sampled(ids, logprobs, finish)

    return TokenClient(sample, HuggingFaceChat(engine.tokenizer), **given), engine


async def test_a_reply_is_text_without_its_end_and_a_trace_with_it():
    made, engine = client("ab")
    response = await made.complete(asked("c", affinity="r"))
    assert response.message["content"] == "ab"
    assert engine.tokenizer.decode(response.tokens.prompt_ids) == "<user>c<assistant>"
    assert engine.tokenizer.decode(response.tokens.completion_ids) == "ab<end>"
    assert response.usage.total_tokens == 6
    assert engine.asked[0]["affinity"] == "r"


async def test_a_later_turn_adds_to_the_ids_that_were_sampled():
    made, _ = client()
    spelled = Letters().encode("<user>c<assistant>ab<end>")
    spelled[3:5] = [9, 9]  # what was sampled is not what the text would be tokenised as
    seen = Seen(2, array("i", spelled).tobytes())
    ids = made.prompt_ids(asked("c", "ab", "d", seen=seen))
    assert ids == [*spelled, *Letters().encode("<user>d<assistant>")]
    cut_off = Seen(2, seen.ids, is_whole=False)
    assert made.prompt_ids(asked("c", "ab", "d", seen=cut_off)) == Letters().encode(
        "<user>c<assistant>ab<end><user>d<assistant>"
    )


async def test_given_ids_are_asked_with_as_they_are():
    made, engine = client()
    await made.complete(asked("c", prompt_ids=[7, 8]))
    assert engine.asked[0]["prompt_ids"] == [7, 8]


async def test_a_reply_never_asks_for_more_than_the_context_has_left():
    made, engine = client(context=8)
    await made.complete(asked("c"))
    await made.complete(asked("c", sampling={"max_completion_tokens": 2}))
    assert [one["sampling"]["max_tokens"] for one in engine.asked] == [5, 2]
    with pytest.raises(OverlongPromptError, match="a prompt of 8 tokens fills the context of 8"):
        await made.complete(asked("abcdef"))


async def test_a_rollout_that_fills_the_context_ends_truncated_and_is_scored():
    class Again(vf.MultiTurnEnv):
        async def env_response(self, messages, state, **kwargs):
            return as_messages("aa")

    env = Again(dataset=[{"question": "c", "answer": ""}], rubric=vf.Rubric([lambda: 1.0]), max_turns=9)
    made, _ = client(context=14)
    state = await env.rollout(env.train_rows()[0], made, "m")
    assert state["is_truncated"]
    assert len(state["trajectory"]) == 2


async def test_a_reply_that_the_engine_broke_off_is_an_error():
    made, _ = client(finish="abort")
    with pytest.raises(ModelUnavailableError, match="broke off a reply after 2 tokens"):
        await made.complete(asked("c"))


def test_sampling_is_told_by_the_names_of_engines():
    given = {"temperature": 0.5, "max_completion_tokens": 9, "logprobs": True, "stop": None}
    request = asked("c", sampling={**given, "extra_body": {"top_k": 3, "cache_salt": "1"}})
    assert engine_sampling(request) == {"temperature": 0.5, "top_k": 3, "max_tokens": 9}


def test_calls_of_tools_are_read_out_of_their_tags():
    text = 'so <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    message = read_reply(text, TOOLS)
    (call,) = message["tool_calls"]
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1})
    assert message["content"] == "so"
    assert read_reply(text, [])["content"] == text


@pytest.mark.parametrize("call", ["{broken", "[1]", '{"arguments": {}}', '"add"'])
def test_a_call_that_cannot_be_read_stays_text(call):
    text = f"<tool_call>{call}</tool_call>"
    message = read_reply(text, TOOLS)
    assert message["content"] == text
    assert not message.get("tool_calls")
