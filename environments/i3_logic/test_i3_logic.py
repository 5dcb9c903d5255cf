"""Are bad arguments refused, does a seed give the same puzzles, and does a row have the right shape? Whether solutions
are paid, and nothing else, is asked in test_i3_logic_answers.py."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from i3_logic import KINDS, load_environment, logic_rubric, make_row
from i3_logic.kinds import OWN
from i3_logic.rows import side_of

import verifiers as vf

OWN_NAMES = [task.name for task in OWN]
RUBRIC = logic_rubric()


row_of = cache(make_row)  # several tests look at the same puzzles; none changes them


def paid(reply: str, row: dict[str, Any]) -> float:
    return RUBRIC.is_solved(RUBRIC.parser, reply, row["info"])


def paid_answer(answer: str, kind: str, puzzle: Any) -> float:
    return paid(f"So:\n<answer>\n{answer}\n</answer>", {"info": {"logic_task": kind, "puzzle": puzzle}})


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"kinds": "chess"}, "kinds='chess': there is no kind 'chess'; there are arrow_maze"),
        ({"kinds": []}, r"kinds=\[\]"),
        ({"kinds": ["hitori", 1]}, "there is no kind 1"),
        ({"kinds": 5}, "kinds=5"),
        ({"difficulty": 0}, "difficulty=0: give a whole number from 1 to 5"),
        ({"difficulty": 6}, "difficulty=6"),
        ({"difficulty": True}, "difficulty=True"),
        ({"difficulty": 2.5}, r"difficulty=2\.5"),
        ({"difficulty": "hard"}, "difficulty='hard'"),
        ({"difficulty": [3, 1]}, r"difficulty=\[3, 1\]"),
        ({"difficulty": [1, 2, 3]}, "difficulty="),
        ({"difficulty": {"chess": 1}}, "'chess' is not one of the kinds"),
        ({"difficulty": {"hitori": 9}}, "difficulty=.*9"),
        ({"kinds": "survo", "difficulty": {"hitori": 1}}, "'hitori' is not one of the kinds, survo"),
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": 1.5}, r"num_eval_examples=1\.5"),
        ({"seed": None}, "seed=None"),
        ({"weights": [1, 2]}, "weights="),
        ({"weights": {"chess": 1}}, "'chess'"),
        ({"weights": {"hitori": -1}}, "'hitori' is no number"),
        ({"weights": {"hitori": float("nan")}}, "'hitori' is no number"),
        ({"kinds": ["hitori"], "weights": {"hitori": 0}}, "no kind has a weight above 0"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


def test_a_row_of_no_kind_or_difficulty_is_refused_by_name():
    with pytest.raises(ValueError, match="kind='chess': there are arrow_maze"):
        make_row("chess", 1, 0)
    with pytest.raises(ValueError, match="difficulty is 6"):
        make_row("hitori", 6, 0)


# 2. same seed, same puzzles

# What the puzzles of a kind are at difficulties 1 to 5. They belong to the published version: a release that changes
# them has another version number, since scores on other puzzles do not compare.
DIGESTS = {
    "arrow_maze": "6702e9cbcbee",
    "binario": "90b0af1ced4f",
    "boolean_expressions": "560f68722a96",
    "buggy_tables": "64e22c261701",
    "calcudoku": "c80a2c8f67a7",
    "campsite": "570918868e66",
    "cipher": "3d9a098952ea",
    "cryptarithm": "d886fbbeaacc",
    "dyck_language": "1acc735e6131",
    "dyck_language_errors": "78233167404e",
    "goods_exchange": "7b90847c988c",
    "hitori": "a7228f5e8f93",
    "kakuro": "7c2e7e8fa8ef",
    "kukurasu": "6e1f2a15c6a6",
    "math_path": "7184abac7557",
    "norinori": "0d4ad892e3e7",
    "number_wall": "60702da449ad",
    "numbrix": "fdb5bf126a8c",
    "object_properties": "c2469c2ab72c",
    "operation": "02126cca6775",
    "skyscrapers": "6fd190a660a7",
    "space_reasoning": "7d182bfd4177",
    "star_placement": "05aa503f0048",
    "survo": "5c6c3b8a3059",
    "thermometers": "d3abe01fa51e",
    "time_sequence": "2d7773103e77",
    "web_of_lies": "011dd6b0931b",
    "word_search": "796282bade27",
    "word_sorting": "5e81f0e85740",
}


def digest(kind: str) -> str:
    rows = [row_of(kind, difficulty, seed) for difficulty in range(1, 6) for seed in (0, 1)]
    return hashlib.sha256(json.dumps([[row["answer"], row["info"]] for row in rows]).encode()).hexdigest()[:12]


@pytest.mark.parametrize("kind", OWN_NAMES)
def test_a_puzzle_is_the_same_on_every_machine_and_in_every_release_of_python(kind):
    assert digest(kind) == DIGESTS[kind]


def test_another_process_draws_the_same_rows():
    code = (
        "import i3_logic, json; env = i3_logic.load_environment(difficulty=[1, 2], num_train_examples=60, seed=4);"
        "print(json.dumps(env.train_rows()))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=True
    )
    own = load_environment(difficulty=[1, 2], num_train_examples=60, seed=4).train_rows()
    assert json.loads(done.stdout) == json.loads(json.dumps(own))


def puzzles(rows: Iterable[dict[str, Any]]) -> list[str]:
    return [f"{row['info']['logic_task']}/{row['info']['puzzle']}" for row in rows]


def test_another_seed_draws_others_and_no_seed_trains_on_what_another_evaluates():
    one = load_environment(difficulty=1, num_train_examples=300, seed=1)
    other = load_environment(difficulty=1, num_eval_examples=100, seed=2, num_train_examples=300)
    trained, evaluated = puzzles(one.train_rows()), puzzles(other.eval_rows())
    assert trained != puzzles(other.train_rows())
    assert len(set(trained)) == 300 and len(set(evaluated)) == 100
    assert not set(trained) & set(evaluated)
    assert {side_of(puzzle) for puzzle in trained} == {"train"}


def test_a_kind_of_few_puzzles_gives_those_it_has_and_ends():
    rows = load_environment(kinds="n_queens", difficulty=1, num_train_examples=500).train_rows()
    assert 10 < len(rows) < 40


# 3. a row has the right shape


def test_there_are_43_kinds_of_which_the_library_has_14():
    assert len(KINDS) == 43 and set(OWN_NAMES) == set(KINDS) - set(vf.LOGIC_TASKS)


def test_loading_draws_nothing(monkeypatch):
    monkeypatch.setattr("i3_logic.draw_rows", lambda *_, **__: pytest.fail("rows were drawn"))
    load_environment()


def test_a_row_has_prompt_answer_and_puzzle():
    env = load_environment(num_train_examples=5, num_eval_examples=5)
    for row in [*env.train_rows(), *env.eval_rows()]:
        assert [message["role"] for message in row["prompt"]] == ["user"]
        assert set(row["info"]) == {"logic_task", "puzzle", "seed", "difficulty"}
        again = row_of(row["info"]["logic_task"], row["info"]["difficulty"], row["info"]["seed"])
        assert (again["question"], again["answer"]) == (row["prompt"][0]["content"], row["answer"])


def test_kinds_difficulty_and_weights_are_kept_to():
    env = load_environment(
        kinds=["survo", "cipher", "operation"],
        difficulty={"survo": 2, "cipher": [4, 5]},
        weights={"operation": 0, "cipher": 3},
        num_train_examples=200,
        system_prompt="Think.",
    )
    rows = env.train_rows()
    drawn = Counter((row["info"]["logic_task"], row["info"]["difficulty"]) for row in rows)
    assert set(drawn) == {("survo", 2), ("cipher", 4), ("cipher", 5)}
    assert 30 <= drawn["survo", 2] <= 70
    assert rows[0]["prompt"][0] == {"role": "system", "content": "Think."}


@pytest.mark.parametrize("kind", KINDS)
def test_the_prompt_has_rules_form_and_a_small_example_that_is_solved(kind):
    row, told = row_of(kind, 3, 5), KINDS[kind]
    assert paid_answer(told.example_answer, kind, told.example) == 1.0
    assert told.worked in row["question"] and told.task.answer_form in row["question"]
    assert told.task.describe(json.loads(row["info"]["puzzle"])) in row["question"]
    assert len(json.dumps(told.example)) <= len(row["info"]["puzzle"])


@pytest.mark.parametrize("kind", KINDS)
def test_puzzles_grow_with_difficulty(kind):
    def size(difficulty: int) -> float:
        rows = [row_of(kind, difficulty, seed) for seed in range(4)]
        missing = sum(row["info"]["puzzle"].count("?") for row in rows)
        return missing + sum(len(row["answer"]) + len(row["info"]["puzzle"]) for row in rows)

    assert size(1) < size(3) < size(5)


def test_the_readme_says_of_every_kind_what_grows_and_shows_a_prompt_as_it_is():
    readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    for name, kind in KINDS.items():
        assert f"| `{name}` | {kind.grows} | {'yes' if kind.is_unique else 'no'} | " in readme
    shown = row_of("skyscrapers", 1, 3)
    assert f"```text\n{shown['question']}\n```" in readme
    assert f"`{shown['answer'].replace(chr(10), ' / ')}`" in readme
