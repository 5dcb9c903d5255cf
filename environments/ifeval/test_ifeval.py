"""Are bad arguments refused, does a seed give the same examples, does an example have the right shape, does a reply
that follows its instructions score full, and does any other not?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ifeval import formatted, load_environment, reference_reply
from ifeval.generated import generated_rows
from ifeval.own_rows import OWN_ROWS
from ifeval.rubric import IFEvalRubric, variants
from ifeval.writer import write

import verifiers as vf


def public_row(*asked: tuple[str, dict[str, Any]], prompt: str = "Write.") -> dict[str, Any]:
    """All columns of the public data set; there every `kwargs` has all arguments, `None` where they do not belong."""
    every = dict.fromkeys(OWN_ROWS[0]["kwargs"][0])
    return {
        "key": 1000,
        "prompt": prompt,
        "instruction_id_list": [name for name, _ in asked],
        "kwargs": [every | given for _, given in asked],
    }


NO_COMMA_QUOTED = public_row(("punctuation:no_comma", {}), ("startend:quotation", {}))


def file_of(rows: list[Any], path: Path) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


async def scored(row: dict[str, Any], reply: str, path: Path) -> dict[str, Any]:
    env = load_environment(data=file_of([row], path / "rows.jsonl"))
    results = await env.evaluate(vf.ScriptedClient(reply), "scripted")
    assert results["outputs"][0]["error"] is None
    return {"reward": results["outputs"][0]["reward"], **results["outputs"][0]["metrics"]}


# 1. bad arguments and rows are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_train_examples": -1}, "num_train_examples=-1"),
        ({"num_eval_examples": 0}, "num_eval_examples=0"),
        ({"seed": "1"}, "seed='1'"),
        ({"max_instructions": 5}, "max_instructions=5: give a whole number from 1 to 4"),
        ({"max_instructions": True}, "max_instructions=True"),
        ({"data": "nowhere.jsonl"}, "data='nowhere.jsonl': there is no such file"),
        ({"data": "rows.csv"}, r"data='rows\.csv'"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kwargs": [{}]}, "key 1000: .* a list of as many dicts"),
        ({"instruction_id_list": [], "kwargs": []}, "key 1000: 'prompt' is a text"),
        ({"instruction_id_list": ["a:b", "startend:quotation"]}, "there is no instruction 'a:b'"),
        ({"instruction_id_list": ["startend:end_checker", "startend:quotation"]}, "lacks its argument 'end_phrase'"),
    ],
)
def test_a_row_that_no_reply_could_follow_is_named(tmp_path, change, told):
    path = file_of([NO_COMMA_QUOTED | change], tmp_path / "rows.jsonl")
    with pytest.raises(vf.DatasetError, match=told):
        load_environment(data=path).eval_rows()


# 2. same seed, same examples


def prompts(rows: list[Any]) -> list[str]:
    return [row["prompt"][-1]["content"] for row in rows]


def test_a_seed_gives_the_same_training_prompts_and_another_seed_others():
    one, same, other = (prompts(load_environment(seed=seed, num_train_examples=30).train_rows()) for seed in (1, 1, 2))
    assert one == same != other


def test_fewer_training_prompts_are_the_first_of_more():
    assert generated_rows(40, 0, 3)[:10] == generated_rows(10, 0, 3)


def test_a_seed_shuffles_the_evaluation(tmp_path):
    path = file_of([NO_COMMA_QUOTED | {"prompt": str(n)} for n in range(9)], tmp_path / "rows.jsonl")
    plain, one, same = (prompts(load_environment(data=path, seed=seed).eval_rows()) for seed in (None, 1, 1))
    assert plain == [str(n) for n in range(9)] != one == same


# 3. an example has the right shape


def test_an_example_holds_the_prompt_and_its_instructions_without_absent_arguments(tmp_path):
    row = public_row(("length_constraints:number_words", {"num_words": 300.0, "relation": "at least"}))
    path = file_of([row], tmp_path / "rows.jsonl")
    (example,) = load_environment(data=path).eval_rows()
    assert [message["role"] for message in example["prompt"]] == ["user"]
    assert json.loads(example["info"]) == {
        "key": 1000,
        "instruction_id_list": ["length_constraints:number_words"],
        "kwargs": [{"num_words": 300.0, "relation": "at least"}],
        "source": "rows.jsonl",
    }


def test_our_own_rows_have_every_instruction_of_the_public_data():
    asked = {name for row in OWN_ROWS for name in row["instruction_id_list"]}
    assert asked == set(vf.InstructionRubric().instructions)


@pytest.mark.parametrize(("max_instructions", "kinds"), [(1, 15), (4, 22)])  # some are fair only among others
def test_generated_prompts_are_of_many_kinds_and_hardly_one_is_asked_twice(max_instructions, kinds):
    rows = generated_rows(300, 7, max_instructions)
    assert len({name for row in rows for name in row["instruction_id_list"]}) >= kinds
    assert len({row["prompt"] for row in rows}) >= 290
    assert {len(row["kwargs"]) for row in rows} == set(range(1, max_instructions + 1))


# 4. the reference reply scores full


@pytest.mark.parametrize("row", OWN_ROWS, ids=lambda row: str(row["key"]))
async def test_a_reply_that_follows_everything_scores_full(row, tmp_path):
    reply = reference_reply([], {"info": formatted({**row, "source": "own"}, IFEvalRubric())["info"]})
    found = await scored(row, reply, tmp_path)
    asked = len(row["kwargs"])
    assert found["reward"] == found["follows_all_loosely"] == 1.0
    assert found["instructions_asked"] == found["followed"] == found["followed_loosely"] == asked


# 5. another one does not


@pytest.mark.parametrize("row", OWN_ROWS, ids=lambda row: str(row["key"]))
def test_nothing_is_paid_for_saying_nothing_or_the_prompt(row):
    rubric = vf.InstructionRubric()
    for reply in ("", " ", "I don't know.", row["prompt"], "the " * 500, f"<think>{write({})}"):
        assert rubric.follows_all(rubric.parser, reply, {}, row) == 0.0


@pytest.mark.parametrize(
    ("reply", "reward", "followed", "loose"),
    [
        ('"no comma here"', 1.0, 2, 2),
        ('"one, comma"', 0.0, 1, 1),
        ("no quotes", 0.0, 1, 1),
        ('Sure, here it is:\n"no comma here"', 0.0, 0, 2),
        ('**"no comma here"**', 0.0, 1, 2),
        ('"no comma here"\nI hope this helps, friend!', 0.0, 0, 2),
        ('<think>"no comma"</think>"one, comma"', 0.0, 1, 1),
        ('<think>"no comma"', 0.0, 0, 0),
    ],
)
async def test_strict_is_the_reward_and_loose_forgives_an_opener_and_bold_marks(
    reply, reward, followed, loose, tmp_path
):
    found = await scored(NO_COMMA_QUOTED, reply, tmp_path)
    assert (found["reward"], found["followed"], found["followed_loosely"]) == (reward, followed, loose)
    assert found["share_followed"] == followed / 2
    assert found["follows_all_loosely"] == (loose == 2)


def test_variants_are_the_eight_of_the_paper_without_the_equal_and_the_empty():
    assert variants("a\n*b*\nc") == ["a\n*b*\nc", "*b*\nc", "a\n*b*", "*b*", "a\nb\nc", "b\nc", "a\nb", "b"]
    assert variants("one line") == ["one line"]
    assert variants("  ") == []


def test_without_network_and_cache_our_own_rows_serve(monkeypatch):
    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    rows = load_environment().eval_rows()
    assert len(rows) == len(OWN_ROWS)
    assert {json.loads(row["info"])["source"] for row in rows} == {"own rows, not google/IFEval"}
