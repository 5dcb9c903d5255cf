"""Reading replies: the usual shape fast, any other that can be understood, and nothing else."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifiers.clients.completions import read_text
from verifiers.clients.odd_reply import read_plain
from verifiers.clients.reply import read_reply
from verifiers.clients.retry import Fault
from verifiers.types import AssistantMessage


def reply(message, choice=None, **more) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop", **(choice or {})}], **more}).encode()


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def test_the_usual_reply_is_read_whole():
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    message = {"role": "assistant", "content": "x", "tool_calls": [CALL], "reasoning_content": "y", "refusal": None}
    response = read_reply(reply(message, id="r", model="m", created=12, usage=usage))
    assert response.message == AssistantMessage("x", [CALL], reasoning_content="y")
    assert response.message.tool_calls[0].name == "f"
    assert (response.id, response.model, response.created, response.tokens) == ("r", "m", 12, None)
    assert response.usage.prompt_tokens == 3
    assert response.usage.reasoning_tokens == 1


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": None}, AssistantMessage("")),
        ({}, AssistantMessage("")),
        ({"content": ""}, AssistantMessage("")),
        ({"content": "a", "tool_calls": None}, AssistantMessage("a")),
        ({"content": "a", "tool_calls": []}, AssistantMessage("a")),
        ({"content": None, "tool_calls": [CALL]}, AssistantMessage(None, [CALL])),
        ({"content": "a", "reasoning": "b"}, AssistantMessage("a", reasoning_content="b")),
        ({"content": None, "reasoning_content": "b"}, AssistantMessage("", reasoning_content="b")),
        ({"content": "a", "reasoning_details": [{"x": 1}]}, AssistantMessage("a", reasoning_details=[{"x": 1}])),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, AssistantMessage("ab")),
        (
            {"content": [{"type": "thinking", "thinking": [{"text": "hm"}]}, {"type": "text", "text": "a"}]},
            AssistantMessage("a", reasoning_content="hm"),
        ),
        (
            {"content": "", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {"a": 1}}}]},
            AssistantMessage(None, [CALL]),
        ),
        (
            {"tool_calls": [{**CALL, "function": {"name": "f", "arguments": None}}]},
            AssistantMessage(None, [{**CALL, "function": {"name": "f", "arguments": "{}"}}]),
        ),
        ({"content": 5}, AssistantMessage("")),
    ],
)
def test_odd_messages_are_understood(message, expected):
    assert read_reply(reply(message)).message == expected
    assert read_plain(json.loads(reply(message))).message == expected


def test_calls_without_ids_get_ids_of_their_own():
    call = {"id": None, "function": {"name": "f", "arguments": "{}"}}
    calls = read_reply(reply({"tool_calls": [call, call]})).message.tool_calls
    assert len({c["id"] for c in calls}) == 2
    assert read_reply(reply({"function_call": {"name": "g", "arguments": "{}"}})).message.tool_calls[0].name == "g"


def test_odd_values_around_the_message_do_no_harm():
    nothing = {"id": None, "model": None, "usage": {"prompt_tokens": None}}
    response = read_reply(reply({"content": "a"}, {"finish_reason": None}, created=1.5, **nothing))
    assert (response.text, response.finish_reason, response.created, response.id) == ("a", None, 1, "")
    response = read_reply(reply({"content": "a"}, {"finish_reason": 3}, id=4, created="x", usage=[1], model={}))
    assert (response.text, response.finish_reason, response.usage) == ("a", None, None)


def test_ids_and_log_probabilities_become_a_trace():
    scored = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}]}
    choice = {"token_ids": [5, 6], "logprobs": scored}
    trace = read_reply(reply({"content": "ab"}, choice, prompt_token_ids=[1, 2])).tokens
    assert list(trace.prompt_ids) == [1, 2]
    assert list(trace.completion_ids) == [5, 6]
    assert list(trace.logprobs) == [-0.5, -1.0]


@pytest.mark.parametrize("named", [{"token": "token_id:374"}, {"token": "x", "id": 374}])
def test_ids_inside_the_log_probabilities_are_found(named):
    trace = read_reply(reply({"content": "ab"}, {"logprobs": {"content": [{**named, "logprob": -0.5}]}})).tokens
    assert list(trace.completion_ids) == [374]
    assert list(trace.logprobs) == [-0.5]


def test_log_probabilities_without_ids_stand_alone():
    trace = read_reply(reply({"content": "ab"}, {"logprobs": {"content": [{"token": "a", "logprob": -0.5}]}})).tokens
    assert len(trace.completion_ids) == 0
    assert list(trace.logprobs) == [-0.5]


def test_infinite_log_probabilities_as_python_servers_write_them():
    data = reply({"content": "a"}, {"token_ids": [1], "logprobs": {"content": [{"token": "a", "logprob": -math.inf}]}})
    assert b"-Infinity" in data
    assert list(read_reply(data).tokens.logprobs) == [-math.inf]


def test_lengths_that_differ_are_a_malformed_reply():
    data = reply({"content": "ab"}, {"token_ids": [5, 6], "logprobs": {"content": [{"logprob": -0.5}]}})
    with pytest.raises(Fault, match="2 token ids but 1 log-probabilities"):
        read_reply(data)


def test_ids_that_do_not_fit_are_a_malformed_reply():
    with pytest.raises(Fault, match="32-bit"):
        read_reply(reply({"content": "ab"}, {"token_ids": [2**40]}))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "malformed"),
        (b"<html>", "malformed"),
        (b'{"choices": [{"message": {"content": "tor', "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "malformed"),
        (b"{}", "malformed"),
        (b'{"choices": []}', "empty"),
        (b'{"choices": null}', "empty"),
        (b'{"choices": [null]}', "malformed"),
        (b'{"choices": [{}]}', "malformed"),
        (b'{"error": {"message": "no", "code": 429}}', "slow down"),
        (b'{"choices": [{"error": {"message": "no"}}]}', "malformed"),
        (b'{"choices": [{"message": {"content": "a"}, "finish_reason": "error"}]}', "malformed"),
    ],
)
def test_what_is_no_reply_is_a_fault(data, kind):
    with pytest.raises(Fault) as caught:
        read_reply(data)
    assert caught.value.kind == kind


NAMES = ["choices", "message", "content", "tool_calls", "function", "name", "arguments", "logprobs", "token_ids"]
NAMES += ["text", "error", "usage", "logprob", "token", "finish_reason", "id"]
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(message=ANY, choice=st.dictionaries(st.sampled_from(["logprobs", "token_ids", "finish_reason"]), ANY), top=ANY)
def test_any_json_is_read_or_is_a_fault(message, choice, top):
    for data in (json.dumps(top).encode(), reply(message, choice, usage=top, id=top)):
        try:
            response = read_reply(data)
        except Fault:
            continue
        assert response.message["role"] == "assistant"


@settings(max_examples=100, deadline=None)
@given(
    content=st.none() | st.text(),
    ids=st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=5),
    reason=st.sampled_from([None, "stop", "length", "tool_calls"]),
)
def test_the_fast_and_the_tolerant_reader_agree(content, ids, reason):
    scored = None if ids is None else {"content": [{"token": "x", "logprob": -float(i % 7)} for i in ids]}
    choice = {"finish_reason": reason, "token_ids": ids, "logprobs": scored}
    data = reply({"content": content}, choice, id="r", model="m", usage={"prompt_tokens": 1})
    fast, tolerant = read_reply(data), read_plain(json.loads(data))
    assert fast.message == tolerant.message
    assert fast.finish_reason == tolerant.finish_reason
    assert fast.usage == tolerant.usage
    if ids:
        assert fast.tokens == tolerant.tokens


def test_completions_read_log_probabilities_of_either_shape():
    def read(logprobs) -> list[list[float]]:
        data = json.dumps({"choices": [{"text": "ab", "finish_reason": "stop", "logprobs": logprobs}]}).encode()
        trace = read_text(data).tokens
        return [list(trace.completion_ids), list(trace.logprobs)]

    assert read({"tokens": ["token_id:5", "token_id:6"], "token_logprobs": [-0.5, -1]}) == [[5, 6], [-0.5, -1.0]]
    assert read({"content": [{"id": 5, "token": "a", "logprob": -0.5}]}) == [[5], [-0.5]]
