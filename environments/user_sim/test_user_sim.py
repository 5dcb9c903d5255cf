"""Are bad arguments refused, does a seed give the same examples, does an example have the right shape, does the right
service score full, and does a wrong one not?"""

from __future__ import annotations

import copy
import json
from collections import Counter
from datetime import date
from typing import Any

import pytest
from user_sim import DOMAINS, load_environment, make_row, reference_reply
from user_sim.task import Refused, Task, is_told, same_database
from user_sim.user import STOP, scripted_reply

import verifiers as vf


def info_of(row: Any) -> dict[str, Any]:
    return json.loads(row["info"])


def call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": f"{name}-1", "type": "function", "function": function}]}


async def played(env: vf.Environment, row: Any, replies: Any, **options: Any) -> Any:
    client = vf.ScriptedClient(replies)
    return (await env.generate([row], client, "scripted", **options))["outputs"][0]


def row_of(env: vf.Environment, kind: str) -> Any:
    return next(row for row in env.eval_rows() if info_of(row)["kind"] == kind)


@pytest.fixture(scope="module")
def shop() -> vf.Environment:
    return load_environment("shop", num_eval_examples=40)


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"domain": "bank"}, "domain='bank': give 'all' or one of shop, flights"),
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": 1}, "domain='all' needs at least 2 examples"),
        ({"max_turns": -1}, "max_turns=-1"),
        ({"seed": None}, "seed=None"),
        ({"user_client": vf.ScriptedClient("Hi")}, "user_client is given without user_model"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


def test_a_task_that_is_done_by_doing_nothing_is_refused():
    with pytest.raises(ValueError, match="would be done by doing nothing"):
        Task("idle", "Hello", {}, actions=[], outputs=[])


# 2. same seed, same examples


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_seed_gives_the_same_examples_and_another_seed_others(domain):
    def rows(seed: int) -> list[Any]:
        env = load_environment(domain, seed=seed, num_train_examples=5, num_eval_examples=5)
        return [row["info"] for row in (*env.train_rows(), *env.eval_rows())]

    assert rows(1) == rows(1)
    assert not set(rows(1)) & set(rows(2))
    assert len(set(rows(1))) == 10


# 3. an example has the right shape


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=lambda domain: domain.name)
def test_every_kind_of_task_can_be_done_and_changes_the_database_or_asks_for_something(domain):
    kinds = Counter()
    for index in range(120):
        info = info_of(make_row(domain, "train", 3, index))
        kinds[info["kind"]] += 1
        after = domain.after(copy.deepcopy(info["database"]), info["actions"])
        assert same_database(json.loads(json.dumps(after)), info["database_after"])
        assert bool(info["actions"]) == (info["database"] != info["database_after"])
        assert info["actions"] or info["outputs"]
    assert len(kinds) >= 5 and min(kinds.values()) >= 8


def test_what_has_to_be_told_is_not_said_in_the_prompt():
    for row in load_environment(num_eval_examples=60).eval_rows():
        prompt = " ".join(message["content"] for message in row["prompt"])
        assert not any(is_told(output, prompt) for output in info_of(row)["outputs"])


def test_the_model_sees_no_database_and_each_domain_its_own_tools():
    shop, flights = (load_environment(name) for name in ("shop", "flights"))
    names = [[tool["name"] for tool in env.tool_defs or ()] for env in (shop, flights)]
    assert "cancel_order" in names[0] and "book_flight" in names[1]
    assert not set(names[0]) & set(names[1])
    assert all("db" not in tool["parameters"]["properties"] for tool in shop.tool_defs or ())


# 4. the right service scores full


@pytest.mark.parametrize("domain", DOMAINS)
async def test_the_reference_scores_full_in_every_kind(domain):
    env = load_environment(domain, num_eval_examples=30)
    for row in env.eval_rows():
        output = await played(env, row, lambda request, row=row: reference_reply(request.messages, row))
        assert output["reward"] == 1.0, info_of(row)["kind"]
        assert output["stop_condition"] == "has_final_env_response"


async def test_a_whole_conversation_with_questions_is_right_and_has_two_actors(shop):
    row = row_of(shop, "cancel")
    info = info_of(row)
    (action,), (output,) = info["actions"], info["outputs"]
    replies = [
        "Gladly. What is your e-mail address?",
        call("find_customer", email=info["facts"]["email"]),
        "Which order is it, and what is the reason?",
        call("get_order", order=info["facts"]["order"]),
        "Shall I cancel it?",
        call("cancel_order", **action["arguments"]),
        f"It is cancelled; you get ${output['value']} back.",
    ]
    result = await played(shop, row, replies)
    record = result.record
    assert result["reward"] == 1.0
    assert record.actors == ["assistant", "user"]
    assert [turn.actor for turn in record.turns].count("user") == 4
    said = [message["content"] for message in record.messages if message["role"] == "user"]
    assert info["facts"]["email"] in said[0]
    assert info["facts"]["order"] in said[1] and info["facts"]["reason"] in said[1]
    assert said[2:] == ["Yes, please go on.", STOP]
    assert result["metrics"]["user_turns"] == 4.0


async def test_a_model_plays_the_customer_through_a_client_of_its_own(shop):
    row = row_of(shop, "spent")
    customer = vf.ScriptedClient(["<think>hm</think>I am Ada.", STOP])
    env = load_environment("shop", num_eval_examples=40, user_model="customer", user_client=customer)
    told = f"You paid {info_of(row)['outputs'][0]['value']} in all."
    result = await played(env, row, ["Who are you?", told])
    assert result["reward"] == 1.0
    first, second = customer.requests
    assert first.model == "customer" and first.tools is None
    assert [message["role"] for message in first.messages] == ["system", "assistant", "user"]
    assert info_of(row)["facts"]["email"] in first.messages[0]["content"]
    assert [m["content"] for m in second.messages[-2:]] == ["I am Ada.", told]
    assert [turn.actor for turn in result.record.turns] == ["assistant", "user", "assistant", "user"]
    assert not any("hm" in m["content"] for m in result.record.messages)


async def test_a_customer_that_cannot_be_reached_leaves_the_rollout_unscored(shop):
    env = load_environment(
        "shop", user_model="customer", user_client=vf.ScriptedClient(vf.ModelUnavailableError("down"))
    )
    result = await played(env, env.eval_rows()[0], "What is your e-mail address?")
    assert result["reward"] is None
    assert result.record.status == "failed"


# 5. a wrong one does not


async def test_a_wrong_change_or_one_too_many_pays_nothing(shop):
    row = row_of(shop, "cancel")
    info = info_of(row)
    (action,), (output,) = info["actions"], info["outputs"]
    right = call("cancel_order", **action["arguments"])
    other = call("cancel_order", **action["arguments"] | {"reason": "stolen"})
    others = [order for order, one in info["database"]["orders"].items() if one["status"] == "pending"]
    extra = call("change_address", order=next(o for o in others if o != info["facts"]["order"]), address="X 1")
    told = f"You get {output['value']}."
    assert (await played(shop, row, [right, told]))["reward"] == 1.0
    assert (await played(shop, row, [told]))["reward"] == 0.0
    assert (await played(shop, row, [right, "Done, goodbye."]))["reward"] == 0.0
    assert (await played(shop, row, [other, told]))["reward"] == 0.0
    assert (await played(shop, row, [right, extra, told]))["reward"] == 0.0


async def test_telling_every_number_there_is_tells_nothing(shop):
    row = row_of(shop, "spent")
    value = info_of(row)["outputs"][0]["value"]
    assert (await played(shop, row, [f"You paid {value} in all, I think."]))["reward"] == 1.0
    listed = ", ".join(f"{n}.50" for n in range(20)) + f", {value}"
    assert (await played(shop, row, [listed]))["reward"] == 0.0


async def test_tries_of_one_example_do_not_share_a_database(shop):
    row = row_of(shop, "move")
    right = call("change_address", **info_of(row)["actions"][0]["arguments"])
    assert (await played(shop, row, [right, "It is done as you wished."]))["reward"] == 1.0
    assert (await played(shop, row, ["It is done as you wished."]))["reward"] == 0.0


async def test_a_refused_call_is_told_to_the_model_and_the_conversation_goes_on(shop):
    row = row_of(shop, "too late")
    info = info_of(row)
    item = info["database"]["orders"][info["facts"]["order"]]["items"][0]["item"]
    replies = [
        call("return_items", order=info["facts"]["order"], items=[item]),
        f"I am sorry, it was possible until {info['outputs'][0]['value']}.",
    ]
    result = await played(shop, row, replies)
    assert "returns were possible until" in result["completion"][1]["content"]
    assert result["reward"] == 1.0


async def test_replies_without_sense_end_the_conversation(shop):
    result = await played(shop, shop.eval_rows()[0], "Hm?")
    assert result["reward"] == 0.0
    assert result["metrics"]["user_turns"] <= 4
    assert (await played(shop, shop.eval_rows()[0], ""))["reward"] == 0.0


async def test_max_turns_counts_the_assistant_alone(shop):
    env = load_environment("shop", max_turns=3)
    questions = iter(f"What is your e-mail address, attempt {n}?" for n in range(9))
    result = await played(env, env.eval_rows()[0], lambda request: next(questions))
    assert result["stop_condition"] == "max_turns_reached"
    assert [turn.actor for turn in result.record.turns].count("assistant") == 3


# the parts


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        (["What is your e-mail address?"], "My e-mail address is ada@post.example."),
        (["Please tell me the order number."], "It is order R1."),
        (["Your e-mail and order?"], "My e-mail address is ada@post.example. It is order R1."),
        (["Shall I go ahead?"], "Yes, please go on."),
        (["The refund is"], "I don't understand. Can you help me?"),
        (["I have cancelled it, the refund is 12.50."], STOP),
        (["Eh?", "Eh?", "Eh?"], STOP),
    ],
)
def test_a_scripted_customer_answers_confirms_and_leaves(heard, said):
    assert scripted_reply({"email": "ada@post.example", "order": "R1"}, heard) == said


QUESTIONS = {
    "email": "What is your e-mail address?",
    "order": "Which order is it about?",
    "code": "May I have the code of your booking?",
    "item": "Which item do you want to send back?",
    "wanted": "Which variant would you like instead?",
    "reason": "What is the reason?",
    "address": "What is the new address?",
    "day": "On which day do you want to travel?",
    "bags": "How many bags are there?",
    "name": "Who is travelling?",
}


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=lambda domain: domain.name)
def test_a_scripted_customer_tells_everything_it_knows_when_asked_for_it(domain):
    for index in range(60):
        facts = info_of(make_row(domain, "train", 1, index))["facts"]
        for name, value in facts.items():
            assert value in scripted_reply(facts, [QUESTIONS[name]])


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("You get $1,047.35 back.", True),
        ("1047.350", True),
        ("Your order R1047.35", False),
        ("1047.3", False),
        ("11047.35", False),
        ("", False),
    ],
)
def test_a_number_is_told_however_it_is_written(text, is_right):
    assert is_told({"kind": "number", "value": "1047.35"}, text) is is_right


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("until 2030-06-05", True),
        ("until June 5th, 2030", True),
        ("on the 5th of June", True),
        ("05.06.2030", True),
        ("June 15", False),
        ("2030-06-06", False),
    ],
)
def test_a_date_is_told_in_the_usual_forms(text, is_right):
    assert is_told({"kind": "date", "value": date(2030, 6, 5).isoformat()}, text) is is_right


def test_tools_refuse_what_is_not_there():
    shop = DOMAINS["shop"]
    row = info_of(make_row(shop, "eval", 0, 0))
    for tool, arguments in (
        ("find_customer", {"email": "nobody@post.example"}),
        ("get_order", {"order": "R0"}),
        ("get_product", {"product": "boat"}),
    ):
        with pytest.raises(Refused, match="there is no"):
            shop.after(row["database"], [{"name": tool, "arguments": arguments}])
