"""Tools: whatever a model writes as a call ends in one tool message for that call, and the rollout goes on."""

import asyncio
import json
import threading
import time

import pytest
from waiting import steady

import verifiers as vf
from verifiers.types import AssistantMessage, ToolMessage

ROWS = [{"question": "q", "answer": "a"}]


def call(arguments, name="add", id="c1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls, **rest):
    return {"content": None, "tool_calls": list(calls), **rest}


def add(x: int = 0, y: int = 0) -> int:
    """Adds."""
    return x + y


def no_parameters() -> str:
    return "called"


async def async_add(x: int, y: int = 0) -> int:
    await asyncio.sleep(0)
    return x + y


def fails(x: int = 0) -> str:
    raise FileNotFoundError("no such page")


def env_of(*tools, **options) -> vf.ToolEnv:
    return vf.ToolEnv(dataset=ROWS, tools=list(tools or (add, no_parameters, async_add, fails)), **options)


async def roll(env, *replies):
    client = vf.ScriptedClient([*replies, "done"], cycle=False)
    state = await env.rollout(env.train_rows()[0], client, "m")
    return state, client


def tool_messages(state):
    return [m for m in state["completion"] if m["role"] == "tool"]


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (call('{"x": 1, "y":'), "no valid JSON"),
        (call("[1]"), "must be a JSON object, got a list"),
        (call([1]), "must be a JSON object, got a list"),
        (call('"text"'), "no valid JSON"),
        (call('{"z": 1}'), "unexpected keyword argument 'z'"),
        (call('{"x": "one", "y": 1}'), "can only concatenate str"),
        (call("{}", name="ad"), "there is no tool 'ad'; the tools are: add, no_parameters, async_add, fails"),
        (call("{}", name=""), "there is no tool ''"),
        ({"id": "c1", "type": "function", "function": {}}, "there is no tool ''"),
        (call("{}", name="async_add"), "missing 1 required positional argument: 'x'"),
        (call("{}", name="fails"), "no such page"),
        (call('{"x": 1, "y": 2}'), "3"),
        (call('"{\\"x\\": 1, \\"y\\": 2}"'), "3"),
        (call({"x": 1, "y": 2}), "3"),
        (call('{"x": 1}', name="async_add"), "1"),
        (call("null", name="no_parameters"), "called"),
        (call('{}""', name="no_parameters"), "called"),
        (call("", name="no_parameters"), "called"),
        (call(None, name="no_parameters"), "called"),
    ],
)
async def test_every_call_gets_one_reply_and_the_rollout_goes_on(one, says):
    state, client = await roll(env_of(), calling(one))
    assert state["error"] is None and state["stop_condition"] == "no_tools_called"
    (reply,) = tool_messages(state)
    assert reply["tool_call_id"] == "c1" and says in reply["content"]
    sent = client.requests[1].messages
    assert [m["role"] for m in sent] == ["user", "assistant", "tool"]
    kept = json.loads(sent[1].tool_calls[0]["function"]["arguments"])  # else the server refuses the next request
    assert isinstance(kept, dict)


async def test_a_good_call_beside_a_bad_one_still_runs_and_replies_keep_the_order():
    state, _ = await roll(env_of(), calling(call("[1", id="a"), call('{"x": 1}', id="b"), call("{}", "none", id="c")))
    assert [m["tool_call_id"] for m in tool_messages(state)] == ["a", "b", "c"]
    assert [m["content"] == "1" for m in tool_messages(state)] == [False, True, False]


@pytest.mark.parametrize(
    "ids", [("", ""), (None, None), ("same", "same"), ("same", "same", "same_1"), ("", "call_0", "call_0")]
)
async def test_missing_and_repeated_ids_are_made_unique(ids):
    state, client = await roll(env_of(), calling(*[call(json.dumps({"x": i}), id=id) for i, id in enumerate(ids)]))
    asked = [c["id"] for c in client.requests[1].messages[1].tool_calls]
    answered = [m["tool_call_id"] for m in tool_messages(state)]
    assert asked == answered and len(set(asked)) == len(ids) and all(asked)
    assert [m["content"] for m in tool_messages(state)] == [str(i) for i in range(len(ids))]


async def test_huge_arguments_reach_the_tool_whole_and_are_stored_cut():
    def length(text: str) -> int:
        return len(text)

    state, client = await roll(env_of(length), calling(call(json.dumps({"text": "y" * 300_000}), name="length")))
    assert tool_messages(state)[0]["content"] == "300000"
    assert len(json.dumps(client.requests[1].messages)) < 5_000
    assert len(json.dumps(state["completion"])) < 5_000


async def test_huge_and_unencodable_results_are_made_fit_to_send():
    def huge() -> str:
        return "z" * 3_000_000

    def torn() -> str:
        return "name\udcff"

    state, _ = await roll(env_of(huge, torn), calling(call("{}", "huge", "a"), call("{}", "torn", "b")))
    first, second = tool_messages(state)
    assert len(first["content"]) < 1_001_000 and "more characters" in first["content"]
    assert second["content"] == "name?"


async def test_thinking_between_tool_calls_is_kept_and_sent_back():
    thought = calling(call('{"x": 1}'), content="let me see", reasoning_content="I should add")
    state, client = await roll(env_of(), thought)
    sent = client.requests[1].messages[1]
    assert sent["reasoning_content"] == "I should add" and sent["content"] == "let me see" and len(sent.tool_calls) == 1
    assert state["completion"][0] == sent


async def test_a_list_of_parts_passes_through_and_other_results_become_text():
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:,"}}]

    def picture() -> list:
        return parts

    def table() -> list:
        return [1, {"a": 2}]

    state, _ = await roll(env_of(picture, table), calling(call("{}", "picture", "a"), call("{}", "table", "b")))
    assert [m["content"] for m in tool_messages(state)] == [parts, "[1, {'a': 2}]"]


async def test_an_error_formatter_tells_the_model_in_the_authors_words():
    env = env_of(error_formatter=lambda error: f"<{type(error).__name__}>")
    state, _ = await roll(env, calling(call("{}", "fails", "a"), call("[", "add", "b")))
    assert [m["content"] for m in tool_messages(state)] == ["<FileNotFoundError>", "<ToolParseError>"]


@pytest.mark.parametrize(
    ("stop_errors", "one", "kind"),
    [
        ([FileNotFoundError], call("{}", "fails"), vf.ToolCallError),
        ([Exception], call("[", "add"), vf.ToolParseError),
        ([KeyError], call("{}", "nothing"), vf.ToolCallError),
    ],
)
async def test_errors_that_the_author_will_not_have_end_the_rollout(stop_errors, one, kind):
    env = env_of(stop_errors=stop_errors)
    state, client = await roll(env, calling(one))
    assert type(state["error"]) is kind and state["stop_condition"] == "has_error" and len(client.requests) == 1
    state, _ = await roll(env_of(stop_errors=[PermissionError]), calling(one))
    assert state["error"] is None


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_tool_that_takes_too_long_is_told_to_the_model(blocking):
    def sleepy() -> str:
        release.wait(250)
        return "late"

    async def async_sleepy() -> str:
        await asyncio.sleep(250)
        return "late"

    began, release = time.monotonic(), threading.Event()
    tool = sleepy if blocking else async_sleepy
    state, _ = await roll(env_of(tool, tool_timeout_s=0.05), calling(call("{}", tool.__name__)))
    assert tool_messages(state)[0]["content"] == f"{tool.__name__} took longer than 0.05 s" and state["error"] is None
    assert time.monotonic() - began < 100
    release.set()


@steady(0.3)
async def test_a_tool_that_blocks_moves_to_a_thread_and_holds_up_the_loop_no_more():
    threads, gaps = [], []

    def blocks() -> str:
        threads.append(threading.current_thread() is threading.main_thread())
        time.sleep(1)
        return "ok"

    async def watch():
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - before)

    env = env_of(blocks)
    await roll(env, calling(call("{}", "blocks")))
    watcher = asyncio.create_task(watch())
    await roll(env, calling(call("{}", "blocks")))
    watcher.cancel()
    assert threads == [True, False] and max(gaps) < 0.7


async def test_calls_are_counted_by_tool():
    env = env_of(rubric=vf.Rubric())
    client = vf.ScriptedClient([calling(call("{}", id="a"), call("[", id="b")), calling(call("{}", "fails")), "done"])
    (output,) = (await env.evaluate(client, "m"))["outputs"]
    counted = {name: value for name, value in output["metrics"].items() if "call" in name}
    assert counted == {
        "total_tool_calls": 3.0, "add_calls": 2.0, "fails_calls": 1.0, "no_parameters_calls": 0.0,
        "async_add_calls": 0.0,
    }  # fmt: skip


async def test_tools_can_be_added_and_removed():
    env = env_of(add)
    env.add_tool(no_parameters)
    with pytest.raises(ValueError, match="a tool 'add' already"):
        env.add_tool(add)
    env.remove_tool(add)
    with pytest.raises(ValueError, match="no such tool: nothing"):
        env.remove_tool("nothing")
    _, client = await roll(env)
    assert [t["name"] for t in client.requests[0].tools] == ["no_parameters"]
    assert env.rubric._get_reward_func_names().count("add_calls") == 0


@pytest.mark.parametrize("key", ["tool_defs", "oai_tools"])
async def test_a_row_may_bring_tools_of_its_own(key):
    own = {"type": "function", "function": {"name": "own", "parameters": {"type": "object", "properties": {}}}}
    rows = [{"question": "q", "info": json.dumps({key: [own]})}]
    client = vf.ScriptedClient("done")
    await vf.ToolEnv(dataset=rows, tools=[add]).evaluate(client, "m")
    assert [t["name"] for t in client.requests[0].tools] == ["own"]


async def test_an_overridden_call_tool_may_return_text_or_a_message():
    class Env(vf.ToolEnv):
        async def call_tool(self, tool_name, tool_args, tool_call_id, **kwargs):
            return "text" if tool_args else {"role": "tool", "content": "dict", "tool_call_id": tool_call_id}

    env = Env(dataset=ROWS, tools=[add])
    state, _ = await roll(env, calling(call("{}", id="a"), call('{"x": 1}', id="b")))
    assert tool_messages(state) == [ToolMessage("dict", tool_call_id="a"), ToolMessage("text", tool_call_id="b")]


async def test_calls_that_an_author_rewrote_are_answered_as_rewritten():
    class Env(vf.ToolEnv):
        async def env_response(self, messages, state, **kwargs):
            asked = AssistantMessage(tool_calls=[call('{"x": 40, "y": 2}', id="mine")])
            return await super().env_response([asked], state)

    state, _ = await roll(Env(dataset=ROWS, tools=[add, no_parameters]), calling(call("{}", "no_parameters")))
    assert tool_messages(state) == [ToolMessage("42", tool_call_id="mine")]
