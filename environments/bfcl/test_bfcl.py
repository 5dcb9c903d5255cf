"""Are bad arguments refused, does a seed give the same examples, does an example have the right shape, do the right
calls score full, and do others not?"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from bfcl import load_environment, reference_reply
from bfcl.checker import Call, has_type, same, why_wrong
from bfcl.multi_turn import MORE_FUNCTIONS, read_call
from bfcl.own_rows import OWN_ROWS
from bfcl.pantry import OWN_MULTI_TURN
from bfcl.rows import CATEGORIES, as_row, as_tool
from bfcl.worlds import World, world_class
from bfcl.written import NoCalls, in_python, read_calls

import verifiers as vf

FUNCTION = {
    "name": "shop.order",
    "description": "Orders.",
    "parameters": {
        "type": "dict",
        "required": ["item", "count"],
        "properties": {
            "item": {"type": "string"},
            "count": {"type": "integer"},
            "price": {"type": "float"},
            "gift": {"type": "boolean"},
            "sizes": {"type": "array", "items": {"type": "integer"}},
            "address": {"type": "dict", "properties": {"street": {"type": "string"}}},
            "extra": {"type": "any"},
        },
    },
}
ANSWER = {
    "shop.order": {"item": ["green tea"], "count": [2], "price": [3.0, ""], "gift": [True, ""], "sizes": [[1, 2], ""]}
}
RIGHT = {"item": "green tea", "count": 2}


def wrong(*arguments: dict[str, Any], category: str = "simple", answers: Any = (ANSWER,)) -> str | None:
    calls = [Call("shop_order", given) for given in arguments]
    return why_wrong(calls, category, [FUNCTION], list(answers), said_something=True)


async def reward(env: vf.Environment, number: int, reply: Any) -> float | None:
    results = await env.generate([env.eval_rows()[number]], vf.ScriptedClient(reply), "scripted")
    return results["outputs"][0]["reward"]


@pytest.fixture(autouse=True)
def without_the_leaderboard_s_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "bfcl_eval", None)
    monkeypatch.setattr("bfcl.rows._packaged", lambda: None)


# 1. bad arguments and rows are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"categories": "java"}, "categories='java': give some of calls, all, live, non_live, multi_turn, simple"),
        ({"categories": []}, r"categories=\[\]"),
        ({"mode": "json"}, "mode='json'"),
        ({"categories": ["simple", "multi_turn"]}, "not both in one run"),
        ({"categories": "multi_turn", "mode": "text"}, "mode='text' is for single requests"),
        ({"num_eval_examples": 0}, "num_eval_examples=0"),
        ({"num_train_examples": True}, "num_train_examples=True"),
        ({"seed": 1.5}, r"seed=1\.5"),
        ({"data": "nowhere.jsonl"}, "data='nowhere.jsonl': there is no such file"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


def test_a_folder_without_the_leaderboard_s_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the folder has no files BFCL_v"):
        load_environment(data=str(tmp_path))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"question": [[], []]}, "'question' is a list of one turn"),
        ({"function": [{"name": "f"}]}, "'function' is a list of functions"),
        ({"ground_truth": None}, "there is no 'ground_truth'"),
    ],
)
def test_a_row_outside_the_schema_is_named(change, told):
    with pytest.raises(vf.DatasetError, match=f"here, simple_0: .*{told}"):
        as_row({**OWN_ROWS[0], "category": "simple", "source": "here", **change})


# 2. same seed, same examples


def ids(env: vf.Environment) -> list[str]:
    return [json.loads(row["info"])["id"] for row in env.eval_rows()]


def test_a_seed_shuffles_and_gives_the_same_examples():
    plain, one, same_again = (ids(load_environment("all", seed=seed)) for seed in (None, 1, 1))
    assert plain == [row["id"] for row in OWN_ROWS] != one == same_again
    assert ids(load_environment("all", seed=1, num_eval_examples=3)) == one[:3]


# 3. an example has the right shape


def public_folder(path: Path) -> Path:
    """The leaderboard's files: .json with one object a line, answers in a folder of their own."""
    (path / "possible_answer").mkdir()
    question = {"id": "simple_python_0", "question": [[{"role": "user", "content": "Tea!"}]], "function": [FUNCTION]}
    live = {**question, "id": "live_irrelevance_0-0-0"}
    (path / "BFCL_v4_simple_python.json").write_text(json.dumps(question) + "\n")
    (path / "possible_answer" / "BFCL_v4_simple_python.json").write_text(
        json.dumps({"id": "simple_python_0", "ground_truth": [ANSWER]}) + "\n"
    )
    (path / "BFCL_v4_live_irrelevance.json").write_text(json.dumps(live) + "\n")
    return path


def test_the_leaderboard_s_own_files_are_read_with_their_answers(tmp_path):
    env = load_environment(["simple", "live_irrelevance"], data=str(public_folder(tmp_path)))
    first, second = (json.loads(row["info"]) for row in env.eval_rows())
    assert (first["category"], first["ground_truth"]) == ("simple", [ANSWER])
    assert first["source"] == f"{tmp_path.name} BFCL_v4_simple_python.json"
    assert (second["category"], second["ground_truth"]) == ("live_irrelevance", [])


def test_a_category_that_the_folder_lacks_is_named(tmp_path):
    with pytest.raises(vf.DatasetError, match=r"no file BFCL_v4_parallel\.json for the category 'parallel'"):
        load_environment("parallel", data=str(public_folder(tmp_path))).eval_rows()


def test_a_single_file_holds_questions_and_answers_together(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in OWN_ROWS))
    assert ids(load_environment("live", data=str(path))) == [r["id"] for r in OWN_ROWS if r["id"].startswith("live")]


def test_types_become_those_of_json_schema_and_names_those_of_servers():
    tool = as_tool(FUNCTION)["function"]
    assert tool["name"] == "shop_order"
    assert tool["parameters"]["type"] == "object"
    types = {name: schema.get("type") for name, schema in tool["parameters"]["properties"].items()}
    assert types == {
        "item": "string",
        "count": "integer",
        "price": "number",
        "gift": "boolean",
        "sizes": "array",
        "address": "object",
        "extra": None,
    }


async def test_each_request_offers_the_tools_of_its_own_row():
    client = vf.ScriptedClient("No.")
    await load_environment().evaluate(client, "scripted", num_examples=5)
    offered = {tuple(tool["name"] for tool in request.tools or ()) for request in client.requests}
    one_each = {("ferry_book",), ("tide_height",), ("paint_litres",), ("garden_order_seeds",)}
    assert offered == one_each | {("ferry_book", "clock_set_alarm", "tide_height")}


def test_in_text_mode_the_functions_stand_in_the_prompt():
    (row, *_) = load_environment(mode="text").eval_rows()
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert '"name": "ferry_book"' in row["prompt"][0]["content"]
    assert "tool_defs" not in json.loads(row["info"])


# 4. the right calls score full


@pytest.mark.parametrize("mode", ["tools", "text"])
async def test_the_reference_calls_score_full(mode):
    env = load_environment("all", mode=mode)
    for number, row in enumerate(env.eval_rows()):
        assert await reward(env, number, reference_reply([], row)) == 1.0, json.loads(row["info"])["id"]


@pytest.mark.parametrize(
    "given",
    [
        RIGHT,
        {"item": "Green-Tea", "count": 2},
        RIGHT | {"price": 3},
        RIGHT | {"gift": True, "sizes": [1, 2]},
    ],
)
def test_another_way_to_write_the_same_call_is_right(given):
    assert wrong(given) is None


def test_the_order_of_parallel_calls_does_not_matter():
    # the first call fits both answers, the second only the first answer: a greedy pairing would fail
    answers = [{"shop.order": {"item": ["a", "b"], "count": [1]}}, {"shop.order": {"item": ["a"], "count": [1]}}]
    a, b = {"item": "a", "count": 1}, {"item": "b", "count": 1}
    for calls in ((a, b), (b, a)):
        assert wrong(*calls, category="parallel", answers=answers) is None
    assert wrong(b, b, category="parallel", answers=answers)
    assert wrong(a, category="parallel", answers=answers) == "1 calls, 2 are asked for"


# 5. others do not


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"item": "green tea"}, "shop_order lacks count"),
        ({"item": "black tea", "count": 2}, "item: 'black tea' is none of"),
        ({"item": "green tea", "count": "2"}, "count: '2' is not of type integer"),
        ({"item": "green tea", "count": 2.0}, "count: 2.0 is not of type integer"),
        ({"item": "green tea", "count": True}, "count: True is not of type integer"),
        (RIGHT | {"gift": 1}, "gift: 1 is not of type boolean"),
        (RIGHT | {"sizes": [2, 1]}, r"sizes: \[2, 1\] is none of"),
        (RIGHT | {"sizes": ["1", 2]}, r"sizes: .* is none of"),
        (RIGHT | {"colour": "red"}, "no parameter colour"),
        (RIGHT | {"item": ""}, "item: '' is none of"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(given, told):
    assert re.search(told, wrong(given) or "")


def test_one_call_too_many_is_wrong():
    assert wrong(RIGHT, RIGHT) == "2 calls, 1 are asked for"


async def test_where_no_function_fits_only_words_are_right():
    env = load_environment("irrelevance")
    call = {"content": None, "tool_calls": [{"id": "1", "function": {"name": "paint_litres", "arguments": "{}"}}]}
    assert await reward(env, 0, "I cannot look that up.") == 1.0
    assert await reward(env, 0, call) == 0.0
    assert await reward(env, 0, " ") == 0.0


@pytest.mark.parametrize(
    "written",
    ['{"route": "Oban', "[1]", '"x"', '{"route": "Oban to Craignure", "passengers": "5"}', ""],
)
async def test_arguments_that_cannot_be_read_are_wrong_not_a_fault(written):
    env = load_environment("simple")
    call = {"content": None, "tool_calls": [{"id": "1", "function": {"name": "ferry_book", "arguments": written}}]}
    assert await reward(env, 0, call) == 0.0


def test_an_optional_value_stays_out_and_a_variable_may_stand_for_a_value():
    assert not same("", "x")
    variable = {"shop.order": {"item": ["tea"], "count": ["order_count"]}}
    assert wrong({"item": "tea", "count": "order_count"}, answers=[variable]) is None
    assert wrong({"item": "tea", "count": 3}, answers=[variable])
    assert has_type({"a": 1}, {"type": "any"})


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("[f(a=1, b='x')]", [Call("f", {"a": 1, "b": "x"})]),
        ("```python\n[a.f(x=(1, 2)), g()]\n```", [Call("a.f", {"x": [1, 2]}), Call("g", {})]),
        ("f(a=-1.5)", [Call("f", {"a": -1.5})]),
        ("None of them fits.", []),
    ],
)
def test_calls_are_read_from_text(text, calls):
    assert read_calls(text) == calls
    assert not calls or read_calls(in_python(calls)) == calls


@pytest.mark.parametrize(
    "text", ["[f(a=1", "[f(1)]", "[f(**x)]", "[f(a=open('x'))]", "[f(a=1) for _ in x]", "[1]", "f(a={1})", "[" * 9999]
)
def test_nothing_in_a_reply_is_evaluated(text):
    with pytest.raises(NoCalls):
        read_calls(text)


def test_every_category_has_a_row_of_our_own_or_shares_its_rules():
    assert {CATEGORIES[row["id"].rpartition("_")[0]].wants for row in OWN_ROWS} == {"answers", "any", "none"}


# Several requests over simulated services


async def conversation(number: int, replies: Any) -> Any:
    env = load_environment("multi_turn")
    client = vf.ScriptedClient(replies)
    output = (await env.generate([env.eval_rows()[number]], client, "scripted"))["outputs"][0]
    return output, client.requests


def tool_call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": f"{name}-1", "type": "function", "function": function}]}


@pytest.mark.parametrize("number", range(len(OWN_MULTI_TURN)))
async def test_the_reference_does_every_request_right(number):
    row = load_environment("multi_turn").eval_rows()[number]
    output, _ = await conversation(number, lambda request: reference_reply(request.messages, row))
    assert (output["reward"], output["metrics"]["share_right"]) == (1.0, 1.0)


async def test_another_way_to_the_same_state_and_results_is_right():
    replies = [
        tool_call("take", what="plums"),
        tool_call("take", what="plums", jars=2),
        "Done.",
        tool_call("count", what="plums"),
        tool_call("put_on_list", what="plums"),
        "There are two.",
    ]
    output, _ = await conversation(0, replies)
    assert output["reward"] == 1.0


@pytest.mark.parametrize(
    ("replies", "told", "share"),
    [
        (["Done."], "request 1: nothing was called", 0.0),
        ([tool_call("take", what="plums", jars=2), "Done."], "request 1: the state differs in PantryAPI.jars", 0.0),
        ([tool_call("take", what="plums", jars=3), "Done.", "Two."], "request 2: nothing was called", 0.5),
        (
            [tool_call("take", what="plums", jars=3), "Done.", tool_call("put_on_list", what="plums"), "Two."],
            "request 2: a result was not seen",
            0.5,
        ),
        ([tool_call("count", what="plums")], "request 1: more than 20 steps", 0.0),
    ],
)
async def test_a_request_done_wrongly_ends_it_and_says_why(replies, told, share):
    output, _ = await conversation(0, replies)
    assert output["reward"] == 0.0
    assert output["metrics"]["share_right"] == share
    assert told in output.record.scores[0].reason


async def test_a_function_that_comes_later_is_offered_and_can_be_called_only_then():
    replies = [
        tool_call("count", what="plums"),
        "Five.",
        tool_call("put_on_list", what="sugar"),
        "I cannot.",
        tool_call("put_on_list", what="sugar"),
        "Now I could.",
        tool_call("take", what="plums"),
        "Here.",
    ]
    output, requests = await conversation(2, replies)
    assert output["reward"] == 1.0
    offered = ["put_on_list" in {tool["name"] for tool in request.tools or ()} for request in requests]
    assert offered == [False] * 4 + [True] * 4
    said = [message["content"] for message in output["completion"]]
    assert "Error during execution: there is no function put_on_list" in said
    assert MORE_FUNCTIONS in said


def test_services_are_called_by_name_and_their_errors_are_told():
    world = World(["PantryAPI"], {"PantryAPI": {"jars": {"plums": 1}}}, "multi_turn_base")
    assert world.call("count", (), {"what": "plums"}) == '{"what": "plums", "jars": 1}'
    assert "there is no function _load_scenario" in world.call("_load_scenario", ({},), {})
    assert "unexpected keyword" in world.call("count", (), {"jar": 1})
    world.call("put_on_list", ("tea",), {})
    assert world.call("put_on_list", ("tea",), {}) == "Error during execution: tea is on the list"


@pytest.mark.parametrize("text", ["sort", "sort(open('x'))", "sort(*x)", "a = sort()", "sort(x) + 1"])
def test_reference_calls_hold_literals_alone(text):
    with pytest.raises(vf.DatasetError, match="cannot be read"):
        read_call(text)


def test_a_service_that_is_not_there_is_named(monkeypatch):
    with pytest.raises(vf.DatasetError, match="there is no simulated class 'BankAPI'"):
        world_class("BankAPI")
    monkeypatch.setitem(sys.modules, "bfcl_eval", None)
    with pytest.raises(vf.SetupError, match="pip install --no-deps bfcl-eval"):
        world_class("TradingBot")
