"""Messages, steps and State: dicts first, attributes second, and the same under every spelling that authors use."""

import copy
import json
import pickle
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel

from verifiers.attempt import Attempt, Plan
from verifiers.records import TokenTrace
from verifiers.types import (
    AssistantMessage,
    Message,
    Response,
    State,
    SystemMessage,
    Tool,
    ToolCall,
    ToolMessage,
    TrajectoryStep,
    UserMessage,
    as_message,
    as_messages,
)

NESTED = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
FLAT = {"id": "c1", "name": "add", "arguments": '{"a": 1}'}


# --- messages


def test_a_message_reads_as_dict_and_as_object():
    message = UserMessage("hi", name="ann")
    assert message["content"] == message.content == message.get("content") == "hi"
    assert message == {"role": "user", "content": "hi", "name": "ann"}
    assert json.loads(json.dumps(message)) == message
    message.content = "bye"
    assert message["content"] == "bye"
    del message.name
    assert "name" not in message


def test_a_known_field_that_is_absent_reads_as_none_and_an_unknown_one_is_refused():
    message = AssistantMessage("hi")
    assert message.tool_calls is None and message.reasoning_content is None
    assert message.get("tool_calls") is None
    with pytest.raises(AttributeError, match="no field 'contents'"):
        _ = message.contents
    assert not hasattr(message, "contents")
    with pytest.raises(KeyError):
        _ = message["tool_calls"]


@pytest.mark.parametrize("written", [NESTED, FLAT, json.dumps(NESTED), SimpleNamespace(**NESTED), ToolCall(**FLAT)])
def test_every_spelling_of_a_tool_call_reads_nested_and_flat(written):
    (call,) = AssistantMessage(tool_calls=[written]).tool_calls
    assert call["function"]["name"] == call.function.name == call.name == call["name"] == call.get("name") == "add"
    assert call["function"]["arguments"] == call.arguments == call.get("arguments") == '{"a": 1}'
    assert call == NESTED


@pytest.mark.parametrize("broken", [{}, {"id": None, "function": None}, {"function": {}}, {"function": {"name": None}}])
def test_a_tool_call_with_parts_missing_still_reads(broken):
    call = as_message({"role": "assistant", "content": None, "tool_calls": [broken]}).tool_calls[0]
    assert call.name == "" and call.arguments in (None, "{}")


class PydanticMessage(BaseModel):
    role: str
    content: str | None = None
    tool_calls: list[dict] | None = None
    tool_call_id: str | None = None


@pytest.mark.parametrize(
    "given_as",
    [
        {"role": "assistant", "content": "x", "tool_calls": [NESTED]},
        PydanticMessage(role="assistant", content="x", tool_calls=[NESTED]),
        ChatCompletionMessage(role="assistant", content="x", tool_calls=[NESTED]),
        SimpleNamespace(role="assistant", content="x", tool_calls=[SimpleNamespace(**NESTED)], name=None),
        {"role": "assistant", "content": "x", "tool_calls": [{**NESTED, "index": 0}], "name": None, "audio": None},
    ],
    ids=["dict", "pydantic", "openai", "object", "arrow"],
)
def test_messages_of_every_library_become_the_same(given_as):
    message = as_message(given_as)
    assert type(message) is AssistantMessage
    assert set(message) == {"role", "content", "tool_calls"}
    assert message.tool_calls[0].name == "add"


def test_gaps_that_arrow_filled_with_none_are_not_sent_to_a_model():
    parts = [
        {"type": "text", "text": "see", "image_url": None},
        {"type": "image_url", "text": None, "image_url": {"url": "u"}},
    ]
    row = {"role": "user", "content": parts, "tool_calls": None, "tool_call_id": None, "name": None}
    assert as_message(row) == {
        "role": "user",
        "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "u"}}],
    }
    assert as_message({"role": "assistant", "content": None, "tool_calls": []}) == {
        "role": "assistant",
        "content": None,
    }


def test_what_is_no_message_is_refused_saying_what_it_is():
    with pytest.raises(TypeError, match="needs a 'role'"):
        as_message({"content": "x"})
    with pytest.raises(TypeError, match="got int: 3"):
        as_message(3)
    assert as_messages("hi") == [{"role": "user", "content": "hi"}]
    assert as_messages({"role": "user", "content": "hi"}) == [UserMessage("hi")]


@pytest.mark.parametrize(
    "value",
    [
        SystemMessage("s"), AssistantMessage("x", tool_calls=[FLAT]), ToolMessage("r", tool_call_id="c1"),
        Message({"role": "developer", "content": "d"}), ToolCall(**FLAT), Tool("add", "Adds.", {"type": "object"}),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_copies_and_pickles_are_equal_typed_and_apart(value):
    for made in (
        copy.copy(value),
        copy.deepcopy(value),
        pickle.loads(pickle.dumps(value)),
        value.copy(),
        value.model_copy(),
    ):
        assert made == value and type(made) is type(value) and made is not value
    deep = copy.deepcopy(value)
    deep["extra"] = 1
    assert "extra" not in value
    assert type(value.model_dump()) is dict


def test_a_deep_copied_tool_call_does_not_share_its_function():
    message = AssistantMessage(tool_calls=[FLAT])
    made = copy.deepcopy(message)
    made.tool_calls[0]["function"]["name"] = "other"
    assert message.tool_calls[0].name == "add"


# --- State


def state_of(**row):
    return State(input={"prompt": [UserMessage("q")], "example_id": 3, **row}, trajectory=[], reward=None)


def test_input_fields_read_and_write_through_to_the_row():
    state = state_of(answer="4", info={"a": 1})
    assert state["answer"] == state.get("answer") == "4"
    state["answer"] = "5"
    state.update(info={"b": 2})
    assert state["input"]["answer"] == "5" and state["input"]["info"] == state["info"] == {"b": 2}
    assert "answer" in state and "answer" not in dict(state)


def test_setdefault_does_not_hide_what_the_row_has():
    state = state_of(info={"a": 1})
    state.setdefault("info", {})["b"] = 2
    assert state["info"] == {"a": 1, "b": 2}
    assert state.setdefault("mine", 1) == 1 and state["mine"] == 1


def test_a_field_that_the_row_lacks_is_the_authors_own():
    state = state_of()
    assert "answer" not in state and state.get("answer", "none") == "none"
    with pytest.raises(KeyError):
        _ = state["answer"]
    state["answer"] = "4"
    state["anything"] = object
    assert state["answer"] == "4" and "answer" not in state["input"] and "anything" in state


def test_turn_and_responses_of_old_are_views_on_the_trajectory():
    state = state_of()
    assert state["turn"] == 0 and state["responses"] == []
    state["trajectory"] += [TrajectoryStep(response="r1"), TrajectoryStep(response="r2")]
    assert state["turn"] == state.get("turn") == 2
    assert state["responses"] == ["r1", "r2"]
    state["turn"] = 7  # an author's own counter wins
    assert state["turn"] == 7


def test_rng_is_the_same_for_the_same_seed_and_travels_with_copies():
    one, two, other = state_of(), state_of(), state_of()
    one.seed, two.seed, other.seed = 11, 11, 12
    assert one.rng.random() == two.rng.random() != other.rng.random()
    assert one.rng is one.rng
    for made in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert type(made) is State and made.seed == 11 and made["example_id"] == 3
        assert type(made["prompt"][0]) is UserMessage


# --- steps


def test_the_prompt_of_a_step_is_a_view_that_stays_as_it_was():
    history = [UserMessage("1")]
    step = TrajectoryStep.over(history, completion=[AssistantMessage("a")], response=None)
    assert "prompt" not in dict(step) and "prompt" in step
    history += [AssistantMessage("a"), UserMessage("2")]
    assert step["prompt"] == step.get("prompt") == [UserMessage("1")]
    step["prompt"] = []
    assert step["prompt"] == [] and step.materialised()["prompt"] == []


def test_a_step_without_token_ids_has_no_tokens():
    step = TrajectoryStep(response=Response(AssistantMessage("x")))
    assert step["tokens"] is None and step.get("tokens") is None and step.materialised()["tokens"] is None
    assert TrajectoryStep(response=None)["tokens"] is None


ids = st.lists(st.integers(0, 3), max_size=6)  # few values, so that prefixes are often shared by accident


@given(
    st.lists(st.tuples(ids, ids.filter(bool), st.sampled_from(["grows", "rewritten", "cut"])), min_size=1, max_size=6)
)
def test_tokens_of_a_step_are_the_full_ids_that_the_server_sent(turns):
    attempt = Attempt(Plan(), [])
    steps, sent, seen = [], [], []
    for new, said, kind in turns:
        prompt = {"grows": seen + new, "rewritten": new, "cut": seen[: len(seen) // 2] + new}[kind]
        step = TrajectoryStep(
            response=Response(tokens=TokenTrace.of(prompt, said, [-0.5] * len(said)).after(attempt.seen))
        )
        step.previous, attempt.last_step = attempt.last_step, step
        seen = prompt + said
        attempt.seen = TokenTrace.of(prompt, said).prompt_buffer + TokenTrace.of(prompt, said).completion_buffer
        steps.append(step)
        sent.append((prompt, said))
    for step, (prompt, said) in zip(steps, sent, strict=True):
        tokens = step["tokens"]
        assert (tokens["prompt_ids"], tokens["completion_ids"]) == (prompt, said)
        assert tokens["prompt_mask"] == [0] * len(prompt) and tokens["completion_mask"] == [1] * len(said)
        assert tokens["completion_logprobs"] == [-0.5] * len(said)
    restored = pickle.loads(pickle.dumps(steps))
    assert [step["tokens"] for step in restored] == [step["tokens"] for step in steps]
