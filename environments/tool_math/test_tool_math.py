"""Are bad arguments refused, does a seed give the same problems, does an example have the right shape, does the exact
result score full, and does everything else not?"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import tool_math
from tool_math import KINDS, SYSTEM_PROMPT, add, divide, load_environment, multiply, number, power, remainder, subtract

import verifiers as vf


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return raw_call(name, json.dumps(arguments))


def raw_call(name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"content": "", "tool_calls": [{"id": "1", "type": "function", "function": function}]}


async def run(*replies: Any, answer: str = "7/3", **arguments: Any) -> dict[str, Any]:
    env = load_environment(**arguments)
    row = {**env.eval_rows(1)[0], "answer": answer}
    results = await env.generate([row], vf.ScriptedClient(list(replies)), "scripted")
    return results["outputs"][0]


def tool_answers(output: dict[str, Any]) -> list[str]:
    return [message["content"] for message in output["completion"] if message["role"] == "tool"]


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": None}, "num_eval_examples=None"),
        ({"max_turns": -1}, "max_turns=-1"),
        ({"seed": 1.0}, r"seed=1\.0"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


# 2. same seed, same examples


def questions(rows) -> list[str]:
    return [row["question"] for row in rows]


def test_a_seed_gives_the_same_problems_and_another_seed_others():
    one, same, other = (load_environment(seed=seed) for seed in (1, 1, 2))
    assert questions(one.train_rows()) == questions(same.train_rows())
    assert questions(one.eval_rows()) == questions(same.eval_rows())
    assert not set(questions(one.eval_rows())) & set(questions(other.eval_rows()))


def test_no_seed_trains_on_a_problem_that_another_evaluates():
    train = load_environment(seed=1, num_train_examples=3000).train_rows()
    evaluation = load_environment(seed=2, num_eval_examples=1000).eval_rows()
    assert len(set(questions(train))) == 3000
    assert not set(questions(train)) & set(questions(evaluation))


# 3. an example has the right shape


def test_an_example_is_a_question_with_an_exact_answer_that_is_not_in_it():
    rows = load_environment(num_eval_examples=6000).eval_rows()  # an answer in its question is one in thousands
    assert {row["info"]["kind"] for row in rows} == {kind.__name__ for kind in KINDS}
    for row in rows:
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        assert str(Fraction(row["answer"])) == row["answer"]
        shown = " ".join(message["content"] for message in row["prompt"])
        assert row["answer"] not in re.findall(r"[\d/]+", shown)


def test_the_model_is_offered_every_tool_with_its_arguments():
    tools = {tool["name"]: tool for tool in load_environment().tool_defs}
    assert list(tools) == ["add", "subtract", "multiply", "divide", "power", "remainder"]
    for tool in tools.values():
        assert tool["description"]
        assert all(argument["description"] for argument in tool["parameters"]["properties"].values())


# The answers, found a second time through the tools.


def numbers(question: str) -> list[str]:
    return re.findall(r"\d+", question)


def solved_expression(a, b, c, d):
    return subtract(multiply(add(a, b), c), d)


def solved_books(a, b, c, d, damaged, shops):
    return divide(subtract(add(multiply(a, b), multiply(c, d)), damaged), shops)


def solved_interest(amount, percent, years):
    for _ in range(int(years)):
        amount = add(amount, multiply(amount, divide(percent, "100")))
    return amount


def solved_shares(p, q, a, r, s, b):
    return add(divide(multiply(p, a), q), divide(multiply(r, b), s))


def solved_power_remainder(base, exponent, added, modulus):
    return remainder(add(power(base, exponent), added), modulus)


def solved_average_speed(first, hours, second, speed):
    return divide(add(first, second), add(hours, divide(second, speed)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_problem_is_solved_with_the_tools(kind):
    solve: Callable[..., str] = globals()[f"solved_{kind.__name__}"]
    rng = random.Random(kind.__name__)
    for _ in range(100):
        question, answer = kind(rng)
        assert solve(*numbers(question)) == str(answer)


def test_books_are_shared_without_a_rest():
    rng = random.Random(0)
    assert all(tool_math.books(rng)[1].denominator == 1 for _ in range(300))


# The tools.


def test_the_tools_are_exact():
    assert add("0.1", "0.2") == "3/10"
    assert subtract("1/3", "1/3") == "0"
    assert multiply(123456789012345678901234567890, "10") == "1234567890123456789012345678900"
    assert divide("-7", "21") == "-1/3"
    assert power("2/3", "-3") == "27/8"
    assert power("-1", "1" + "0" * 30) == "1"
    assert remainder("-7", "3") == "2"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), (12, 12), (0.5, Fraction(1, 2)), ("-0.50", Fraction(-1, 2)), ("1,234,567", 1234567),
        ("3e8", 3 * 10**8), ("12{,}345", 12345), ("$5$", 5),
        (" 7 / 3 ", Fraction(7, 3)), (r"\frac{7}{3}", Fraction(7, 3)), (r"-\dfrac{7}{3}", Fraction(-7, 3)),
    ],
)  # fmt: skip
def test_a_number_is_read_in_the_ways_models_write_it(text, value):
    assert number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "7 or 8",
        "1+2",
        "1/2/3",
        "1,23",
        "12 km",
        "nan",
        "inf",
        "1e9999",
        "1/0",
        None,
        True,
        [1],
        "9" * 10**5,
        "٣",
    ],
)
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match=r"not a number|division by zero"):
        number(text)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (call("divide", a="5", b="0"), "division by zero"),
        (call("power", base="0", exponent="-1"), "division by zero"),
        (call("power", base="9", exponent="387420489"), "too large"),
        (call("power", base="9", exponent="1e999"), "too large"),
        (call("multiply", a="1e600", b="1e600"), "too large"),
        (call("power", base="2", exponent="1/2"), "must be an integer"),
        (call("remainder", a="1/2", b="3"), "takes integers"),
        (call("add", a="seven", b="1"), "not a number: 'seven'"),
        (call("add", a="1"), "missing .* 'b'"),
        (call("sqrt", a="2"), "no tool 'sqrt'"),
        (raw_call("add", "{a: 1"), "no valid JSON"),
    ],
)
async def test_a_bad_call_is_told_to_the_model_and_the_rollout_goes_on(made, told):
    output = await run(made, r"\boxed{7/3}")
    assert re.search(told, tool_answers(output)[0])
    assert output["metrics"]["failed_tool_calls"] == 1.0
    assert output["reward"] == 1.0


# 4. the reference answer scores full


async def test_a_problem_worked_with_the_tools_scores_full_and_its_calls_are_counted():
    output = await run(
        call("add", a=1, b="4/3"), call("multiply", a="7/3", b="1"), "<think>Done.</think> So \\boxed{7/3}"
    )
    assert tool_answers(output) == ["7/3", "7/3"]
    assert output["reward"] == 1.0
    metrics = output["metrics"]
    assert (metrics["total_tool_calls"], metrics["add_calls"], metrics["failed_tool_calls"]) == (2.0, 1.0, 0.0)


@pytest.mark.parametrize("reply", [r"\boxed{7/3}", r"First \boxed{2}, no: \boxed{\frac{14}{6}}"])
async def test_an_answer_without_tools_is_judged_by_itself(reply):
    output = await run(reply)
    assert output["reward"] == 1.0
    assert output["metrics"]["total_tool_calls"] == 0.0


async def test_every_reference_answer_scores_full():
    env = load_environment(num_eval_examples=30)
    for row in env.eval_rows():
        client = vf.ScriptedClient([f"\\boxed{{{row['answer']}}}"])
        results = await env.generate([row], client, "scripted")
        assert results["outputs"][0]["reward"] == 1.0


# 5. a wrong, empty, hedged or echoed one does not


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "7/3",
        r"\boxed{}",
        r"\boxed{7/3",
        r"\boxed{3/7}",
        r"\boxed{-7/3}",
        r"\boxed{2.3333333333}",
        r"\boxed{7/3 or 3/7}",
        r"\boxed{7/3, 3/7}",
        r"\boxed{7/3} or \boxed{3/7}",
        r"\boxed{7/3 = 3/7}",
        r"\boxed{1 + 4/3}",
        r"<think>\boxed{7/3}</think> I don't know.",
        r"<think>\boxed{7/3}</think> \boxed{5}",
        SYSTEM_PROMPT,
    ],
)
async def test_a_wrong_empty_or_hedged_answer_scores_nothing(reply):
    assert (await run(reply))["reward"] == 0.0


async def test_tool_calls_alone_earn_nothing():
    output = await run(call("add", a="1", b="4/3"), max_turns=3)
    assert output["reward"] == 0.0
    assert output["metrics"]["total_tool_calls"] == 3.0


async def test_the_question_in_a_box_scores_nothing():
    env = load_environment(num_eval_examples=30)
    client = vf.ScriptedClient(
        lambda request: f"\\boxed{{{request.messages[-1]['content'].removeprefix('What is ').removesuffix('?')}}}"
    )
    results = await env.evaluate(client=client, model="scripted")
    assert [output["reward"] for output in results["outputs"]] == [0.0] * 30
