"""The tables of examples in docs/ready-rubrics.md say what the rubrics do."""

import asyncio
import doctest
import importlib
import json
import re
from pathlib import Path

import pytest

import verifiers as vf
from verifiers.rubrics.instruction_checks import INSTRUCTIONS
from verifiers.types import State

PAGE = (Path(__file__).parents[1] / "docs" / "ready-rubrics.md").read_text("utf-8")


def table(heading):
    """The cells of the rows of the section's table, without the backticks."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip().strip("`") for cell in re.split(r" \| ", row.strip("| "))] for row in rows]


def score(rubric, reply, answer="", info=None):
    state = State(
        input={"prompt": "?", "answer": answer, "info": info or {}},
        completion=[{"role": "assistant", "content": reply}],
        trajectory=[],
    )
    asyncio.run(rubric.score_rollout(state))
    return state["scores"][0].value


@pytest.mark.parametrize(("reply", "choice"), table("Multiple choice"))
def test_replies_in_the_table_choose_what_it_says(reply, choice):
    info = {"options": ["Rome", "Paris", "London", "Both A and B"]}
    right = [letter for letter in "ABCD" if score(vf.ChoiceRubric(), reply, letter, info) == 1.0]
    assert right == ([] if choice == "none" else [choice])


@pytest.mark.parametrize(("name", "arguments", "followed", "broken"), table("Instructions"))
def test_instructions_in_the_table_are_followed_where_it_says(name, arguments, followed, broken):
    if name.startswith("language:") or "english" in name:
        pytest.importorskip("py3langid")
    info = {"instruction_id_list": [name], "kwargs": [json.loads(arguments)]}
    assert score(vf.InstructionRubric(), followed.replace("⏎", "\n"), info=info) == 1.0
    assert score(vf.InstructionRubric(), broken.replace("⏎", "\n"), info=info) == 0.0


def test_every_instruction_and_every_task_is_in_its_table():
    assert {row[0] for row in table("Instructions")} == set(INSTRUCTIONS)
    assert {row[0] for row in table("Logic puzzles")} == set(vf.LOGIC_TASKS)


@pytest.mark.parametrize(("name", "puzzle", "answer"), table("Logic puzzles"))
def test_answers_in_the_table_solve_their_puzzle(name, puzzle, answer):
    info = {"logic_task": name, "puzzle": json.loads(puzzle)}
    assert set(info["puzzle"]) == set(vf.LOGIC_TASKS[name].parts)
    assert score(vf.LogicRubric(), f"<answer>{answer}</answer>", info=info) == 1.0
    assert score(vf.LogicRubric(), f"<answer>{answer} 1</answer>", info=info) == 0.0


@pytest.mark.parametrize(("function", "answer", "reference", "value"), table("Texts and numbers"))
def test_texts_and_numbers_in_the_table_have_its_value(function, answer, reference, value):
    rubric = vf.Rubric(funcs=[getattr(vf, function)])
    assert score(rubric, answer, reference) == pytest.approx(float(value), abs=0.0005)


MODULES = "arithmetic choice_answers choice_options choice_rubric instruction_rubric logic_rubric logic_task similarity"


@pytest.mark.parametrize("module", MODULES.split())
def test_examples_in_the_code_run(module):
    result = doctest.testmod(importlib.import_module(f"verifiers.rubrics.{module}"))
    assert result.attempted and not result.failed
