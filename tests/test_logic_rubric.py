"""LogicRubric: rules decide, not a stored solution; and no answer stalls a check, breaks it or is evaluated."""

import asyncio
import json
import random
import re
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import verifiers as vf
from verifiers.rubrics.arithmetic import BadSum, work_out
from verifiers.rubrics.logic_grids import queens
from verifiers.rubrics.logic_task import answer_block, read_number
from verifiers.types import State

NAMES = sorted(vf.LOGIC_TASKS)


def score(reply, task, puzzle, rubric=None):
    state = State(
        input={"prompt": "?", "answer": "", "info": {"logic_task": task, "puzzle": puzzle}},
        completion=[{"role": "assistant", "content": reply}],
        trajectory=[],
    )
    asyncio.run((rubric or vf.LogicRubric()).score_rollout(state))
    return state["scores"][0]


def value(answer, task, puzzle):
    return score(f"So it is.\n<answer>\n{answer}\n</answer>", task, puzzle).value


# Every task


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("difficulty", [1, 2, 3, 4, 5])
def test_the_reference_solution_of_a_generated_row_scores_full(name, difficulty):
    for seed in range(4):
        row = vf.LOGIC_TASKS[name].generate(seed=seed, difficulty=difficulty)
        assert value(row["answer"], name, row["info"]["puzzle"]) == 1.0
        assert row["info"]["logic_task"] == name


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_row_and_other_seeds_other_rows(name):
    task = vf.LOGIC_TASKS[name]
    assert task.generate(seed=3, difficulty=2) == task.generate(seed=3, difficulty=2)
    assert len({task.generate(seed=seed, difficulty=2)["question"] for seed in range(20)}) > 10
    for difficulty in (0, 6):
        with pytest.raises(ValueError, match="difficulty"):
            task.generate(seed=3, difficulty=difficulty)


@pytest.mark.parametrize("name", NAMES)
def test_pattern_29_the_prompt_and_pattern_01_the_gold_in_it_are_worth_nothing(name):
    for seed in range(10):
        row = vf.LOGIC_TASKS[name].generate(seed=seed, difficulty=1 + seed % 5)
        puzzle = row["info"]["puzzle"]
        assert score(row["question"], name, puzzle).value == 0.0
        assert value(row["question"], name, puzzle) == 0.0
        assert row["answer"] not in row["question"]


@pytest.mark.parametrize("name", NAMES)
def test_do_nothing_replies_are_worth_nothing_and_say_why(name):
    row = vf.LOGIC_TASKS[name].generate(seed=1, difficulty=2)
    other = vf.LOGIC_TASKS[name].generate(seed=2, difficulty=2)["answer"]
    puzzle, right = row["info"]["puzzle"], row["answer"]
    replies = [
        "",
        " ",
        None,
        "I do not know",
        right,
        "<answer></answer>",
        f"<answer>{right}",
        f"<think><answer>{right}</answer>",
    ]
    replies += [
        f"<answer>{wrong}</answer>" for wrong in ("?", "0", "[]", "{}", "None", "1 " * 3000, other, f"{right}\n{right}")
    ]
    for reply in replies:
        found = score(reply, name, puzzle)
        assert (found.value, found.status) == (0.0, "scored"), reply
        assert found.reason


@pytest.mark.parametrize("name", NAMES)
def test_pattern_07_and_28_the_last_answer_alone_counts(name):
    row = vf.LOGIC_TASKS[name].generate(seed=1, difficulty=2)
    puzzle, right = row["info"]["puzzle"], f"<answer>{row['answer']}</answer>"
    assert score(f"<think>{right}</think><answer>1</answer>", name, puzzle).value == 0.0
    assert score(f"{right} or <answer>1</answer>", name, puzzle).value == 0.0
    assert score(f"{right} or <answer>{row['answer']}", name, puzzle).value == 0.0
    assert score(f"<think>1</think>No: <answer>1</answer> but {right}", name, puzzle).value == 1.0
    assert score(right * 50, name, puzzle).value == 1.0
    fenced = f"<answer>\n```\n{row['answer']}\n```\n</answer>"
    assert score(fenced, name, puzzle).value == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_puzzle_is_a_fault_whatever_the_answer(name):
    row = vf.LOGIC_TASKS[name].generate(seed=1, difficulty=1)
    puzzle = json.loads(row["info"]["puzzle"])
    assert value(row["answer"], name, puzzle) == 1.0
    for key in puzzle:
        broken = {other: part for other, part in puzzle.items() if other != key}
        for answer in (row["answer"], "1", ""):
            found = score(f"<answer>{answer}</answer>", name, broken)
            assert (found.value, found.status, found.side) == (None, "fault", "reward"), key
            assert name in found.reason and key in found.reason
    for broken in (None, "", "no JSON", "[1]", [], 7):
        assert score(f"<answer>{row['answer']}</answer>", name, broken).status == "fault"


def test_a_row_of_an_unknown_task_is_a_fault_that_names_it():
    for name in ("chess", None, ["sudoku"]):
        found = score("<answer>e4</answer>", name, {})
        assert found.status == "fault" and repr(name) in found.reason


@given(data=st.data(), answer=st.text(alphabet="0123456789 ,.:;=-+*/()[]{}<>\"'\n#abxtrueknightADBE½²٣", max_size=80))
def test_no_answer_makes_a_fault_out_of_a_good_puzzle(data, answer):
    name = data.draw(st.sampled_from(NAMES))
    row = vf.LOGIC_TASKS[name].generate(seed=data.draw(st.integers(0, 3)), difficulty=1)
    right = row["answer"]
    cut = data.draw(st.integers(0, len(right)))
    for text in (answer, right[:cut] + answer + right[cut:], right[:cut] + answer):
        assert score(f"<answer>{text}</answer>", name, row["info"]["puzzle"]).status == "scored"


STALLING = [
    "9**9**9**9",
    "9^9^9^9",
    "(" * 9_000 + "1" + ")" * 9_000,
    "[" * 19_000,
    "[[" * 9_000,
    '{"a":' * 3_000,
    "9" * 19_000,
    "[[" + "9" * 19_000 + "]]",
    "a" + " " * 19_000 + "b",
    "*" * 19_000,
    "1 " * 9_500,
    "x1 = true, " * 1_700,
    "999999999*" * 1_900 + "1",
    "__import__('os').system('true')",
    "1" * 1_000_000,
]


@pytest.mark.parametrize("answer", STALLING, ids=lambda answer: answer[:8])
def test_answers_made_to_stall_or_to_be_evaluated_are_wrong_at_once(answer):
    for name in NAMES:
        puzzle = vf.LOGIC_TASKS[name].generate(seed=1, difficulty=1)["info"]["puzzle"]
        began = time.process_time()
        assert value(answer, name, puzzle) == 0.0
        assert time.process_time() - began < 0.5, name


# One by one: other solutions count, near misses do not


EMPTY4 = [[0] * 4 for _ in range(4)]
SUDOKU = {"grid": EMPTY4, "box_rows": 2, "box_columns": 2}
NINE = {"grid": [[0] * 9 for _ in range(9)], "box_rows": 3, "box_columns": 3}
HOUSES = {
    "houses": 2,
    "categories": {"colour": ["red", "blue"], "pet": ["dog", "cat"]},
    "rules": [["same", "red", "dog"]],
}
MINES = {"rows": ["##", "11"], "mines": 1}
COLOURS = {"nodes": 3, "colours": 3, "edges": [[1, 2], [2, 3]]}
LIARS = {"said": {"Ada": ["same", ["knight", "Ada"], ["knight", "Ben"]], "Ben": ["not", ["knight", "Ada"]]}}
EITHER = {"said": {"Ada": ["knight", "Ben"], "Ben": ["knight", "Ada"]}}

SOLVED = [
    ("sudoku", SUDOKU, "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1"),
    ("sudoku", SUDOKU, "4321\n2143\n3412\n1234"),
    ("sudoku", SUDOKU, "1 2 | 3 4\n3 4 | 1 2\n----+----\n2 1 | 4 3\n4 3 | 2 1"),
    ("sudoku", SUDOKU, "[[1,2,3,4],[3,4,1,2],[2,1,4,3],[4,3,2,1]]"),
    ("sudoku", NINE, "\n".join(" ".join(str((3 * (r % 3) + r // 3 + c) % 9 + 1) for c in range(9)) for r in range(9))),
    ("latin_square", {"grid": EMPTY4}, "1 2 3 4\n2 3 4 1\n3 4 1 2\n4 1 2 3"),
    ("latin_square", {"grid": EMPTY4}, "4,3,2,1\n3,2,1,4\n2,1,4,3\n1,4,3,2"),
    ("futoshiki", {"grid": [[0, 0], [0, 0]], "less": [[0, 0, 0, 1]]}, "1 2\n2 1"),
    ("n_queens", {"size": 4, "given": []}, "2 4 1 3"),
    ("n_queens", {"size": 4, "given": []}, "[3, 1, 4, 2]"),
    ("minesweeper", MINES, "(1, 1)"),
    ("minesweeper", MINES, "[[1, 2]]"),
    ("countdown", {"numbers": [1, 2, 3, 4], "target": 24, "use_all": False}, "4 * 3 * 2"),
    ("countdown", {"numbers": [1, 2, 3, 4], "target": 24, "use_all": False}, "(1 + 2 + 3) × 4 = 24"),
    ("game_of_24", {"numbers": [3, 3, 8, 8], "target": 24, "use_all": True}, "8 / (3 - 8 / 3)"),
    ("game_of_24", {"numbers": [1, 2, 3, 4], "target": 24, "use_all": True}, r"4 \times 3 \times 2 \div 1"),
    ("subset_sum", {"numbers": [1, 2, 3, 4], "target": 5}, "1 4"),
    ("subset_sum", {"numbers": [1, 2, 3, 4], "target": 5}, "[3, 2]"),
    ("satisfiability", {"variables": 2, "clauses": [[1, 2], [-1, -2]]}, "x1 = true, x2 = false"),
    ("satisfiability", {"variables": 2, "clauses": [[1, 2], [-1, -2]]}, "x1: F\nx2: T"),
    ("satisfiability", {"variables": 2, "clauses": [[1, 2], [-1, -2]]}, '{"x1": false, "x2": true}'),
    ("knights_and_knaves", LIARS, "Ada: knave, Ben: knight"),
    ("knights_and_knaves", EITHER, "Ada: knight, Ben: knight"),
    ("knights_and_knaves", EITHER, "Ada is a knave\nBen is a knave"),
    ("ordering", {"names": ["A", "B", "C"], "rules": [["before", "A", "B"]]}, "A, B, C"),
    ("ordering", {"names": ["A", "B", "C"], "rules": [["before", "A", "B"]]}, "c > a > b"),
    ("ordering", {"names": ["A", "B", "C"], "rules": [["next", "A", "B"], ["at", "A", 3]]}, "C -> B -> A"),
    ("zebra", HOUSES, "1: red, dog\n2: blue, cat"),
    ("zebra", HOUSES, "House 1: Blue, Cat\nHouse 2: Red, Dog"),
    ("graph_colouring", COLOURS, "1: 1, 2: 2, 3: 1"),
    ("graph_colouring", COLOURS, '{"1": 3, "2": 1, "3": 2}'),
    ("hamiltonian_path", {"nodes": 3, "edges": [[1, 2], [2, 3]]}, "1 2 3"),
    ("hamiltonian_path", {"nodes": 3, "edges": [[1, 2], [2, 3]]}, "3, 2, 1"),
]
UNSOLVED = [
    ("sudoku", SUDOKU, "1 2 3 4\n2 3 4 1\n3 4 1 2\n4 1 2 3", "box"),
    ("sudoku", SUDOKU, "1 2 3 4\n3 4 1 2\n2 1 4 3", "3 rows"),
    ("sudoku", SUDOKU, "1 2 3 4 4\n3 4 1 2 2\n2 1 4 3 3\n4 3 2 1 1", "5 numbers"),
    ("sudoku", {**SUDOKU, "grid": [[2, 0, 0, 0], *EMPTY4[1:]]}, "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1", "in the puzzle"),
    ("sudoku", SUDOKU, "1 2 3 .\n3 4 1 2\n2 1 4 3\n4 3 2 1", "no row of numbers"),
    ("sudoku", SUDOKU, "0 0 0 0\n0 0 0 0\n0 0 0 0\n0 0 0 0", "row 1"),
    ("sudoku", SUDOKU, '[["1","2","3","4"],[3,4,1,2],[2,1,4,3],[4,3,2,1]]', "grid of numbers"),
    ("latin_square", {"grid": EMPTY4}, "1 2 3 4\n1 2 3 4\n1 2 3 4\n1 2 3 4", "column 1"),
    ("futoshiki", {"grid": [[0, 0], [0, 0]], "less": [[0, 0, 0, 1]]}, "2 1\n1 2", "not less"),
    ("n_queens", {"size": 4, "given": []}, "1 2 3 4", "diagonal"),
    ("n_queens", {"size": 4, "given": []}, "2 4 1", "3 columns"),
    ("n_queens", {"size": 4, "given": []}, "2 2 1 3", "once"),
    ("n_queens", {"size": 4, "given": [[0, 2]]}, "2 4 1 3", "moved"),
    ("minesweeper", MINES, "(1, 1) (1, 2)", "4 numbers"),
    ("minesweeper", MINES, "(2, 1)", "no hidden cell"),
    ("minesweeper", {"rows": ["##", "22"], "mines": 2}, "(1, 1) (1, 1)", "twice"),
    ("minesweeper", {"rows": ["#1#", "#10"], "mines": 1}, "(1, 1) (1, 3)", "numbers"),
    ("minesweeper", {"rows": ["#1#", "#10"], "mines": 1}, "(1, 3)", "not 0 mines"),
    ("countdown", {"numbers": [1, 2, 3, 4], "target": 24, "use_all": False}, "4 * 4 + 4 * 2", "more often"),
    ("countdown", {"numbers": [1, 2, 3, 4], "target": 24, "use_all": False}, "24", "more often"),
    ("countdown", {"numbers": [1, 2, 3, 4], "target": 24, "use_all": False}, "4 * 3 + 2 = 24", "makes 14"),
    ("countdown", {"numbers": [1, 2, 3, 4], "target": 24, "use_all": False}, "4 * 3 * 2 = 25", "end with"),
    ("countdown", {"numbers": [2, 4], "target": 16, "use_all": False}, "4 ** 2", "no number"),
    ("countdown", {"numbers": [2, 4], "target": 42, "use_all": False}, "4 2", "not expected"),
    ("game_of_24", {"numbers": [1, 2, 3, 4], "target": 24, "use_all": True}, "4 * 3 * 2", "1 is not used"),
    ("game_of_24", {"numbers": [3, 3, 8, 8], "target": 24, "use_all": True}, "8 / (3 - 3) + 8", "divides by 0"),
    ("game_of_24", {"numbers": [3, 3, 8, 8], "target": 24, "use_all": True}, "23.99999", "not expected"),
    ("subset_sum", {"numbers": [1, 2, 3, 4], "target": 6}, "3 3", "more often"),
    ("subset_sum", {"numbers": [1, 2, 3, 4], "target": 0}, "", "no answer"),
    ("satisfiability", {"variables": 2, "clauses": [[1, 2]]}, "x1 = false, x2 = false", "clause"),
    ("satisfiability", {"variables": 2, "clauses": [[1, 2]]}, "x1 = true", "1 of 2"),
    ("satisfiability", {"variables": 2, "clauses": [[1, 2]]}, "x1 = true, x2 = true, x1 = false", "two values"),
    ("satisfiability", {"variables": 2, "clauses": [[1, 2]]}, '{"x1": true, "x1": false, "x2": true}', "two values"),
    ("satisfiability", {"variables": 2, "clauses": [[1, 2]]}, "x1 = true, x3 = true", "none of"),
    ("satisfiability", {"variables": 2, "clauses": [[1, 2]]}, "x1 = maybe, x2 = true", "none of"),
    ("knights_and_knaves", LIARS, "Ada: knight, Ben: knight", "would not say"),
    ("knights_and_knaves", LIARS, "Ada: knave, Ben: knave", "would not say"),
    ("ordering", {"names": ["A", "B", "C"], "rules": [["before", "A", "B"]]}, "B, A, C", "broken"),
    ("ordering", {"names": ["A", "B", "C"], "rules": []}, "A, B", "2 of 3"),
    ("ordering", {"names": ["A", "B", "C"], "rules": []}, "A, B, B", "twice"),
    ("ordering", {"names": ["A", "B", "C"], "rules": []}, "A, B, D", "none of"),
    ("zebra", HOUSES, "1: red, cat\n2: blue, dog", "broken"),
    ("zebra", HOUSES, "1: red, dog\n2: red, dog", "two houses"),
    ("zebra", HOUSES, "1: red, dog", "1 lines"),
    ("zebra", HOUSES, "2: red, dog\n1: blue, cat", "line 1"),
    ("graph_colouring", COLOURS, "1: 1, 2: 1, 3: 2", "same colour"),
    ("graph_colouring", COLOURS, "1: 1, 2: 4, 3: 1", "colour 4"),
    ("graph_colouring", COLOURS, "1: 1, 2: 2", "2 of 3"),
    ("hamiltonian_path", {"nodes": 3, "edges": [[1, 2], [2, 3]]}, "1 3 2", "no edge"),
    ("hamiltonian_path", {"nodes": 3, "edges": [[1, 2], [2, 3]]}, "1 2", "each of the 3"),
    ("hamiltonian_path", {"nodes": 3, "edges": [[1, 2], [2, 3]]}, "1 2 1 2 3", "each of the 3"),
]


@pytest.mark.parametrize(("name", "puzzle", "answer"), SOLVED)
def test_any_solution_in_any_usual_notation_counts(name, puzzle, answer):
    assert value(answer, name, puzzle) == 1.0


@pytest.mark.parametrize(("name", "puzzle", "answer", "reason"), UNSOLVED)
def test_a_broken_rule_a_wrong_size_or_a_duplicate_is_wrong_and_named(name, puzzle, answer, reason):
    found = score(f"<answer>{answer}</answer>", name, puzzle)
    assert found.value == 0.0
    assert reason in found.reason


def test_every_task_is_among_the_cases():
    assert {case[0] for case in SOLVED} == {case[0] for case in UNSOLVED} == set(NAMES)


def test_knights_and_knaves_have_one_solution_which_is_not_all_the_same():
    for seed in range(10):
        row = vf.LOGIC_TASKS["knights_and_knaves"].generate(seed=seed, difficulty=1 + seed % 5)
        for kind in ("knight", "knave"):
            all_same = re.sub("knight|knave", kind, row["answer"])
            assert value(all_same, "knights_and_knaves", row["info"]["puzzle"]) == 0.0


@pytest.mark.parametrize("size", [4, 8, 12])
def test_queens_drawn_at_random_do_not_attack(size):
    columns = queens(random.Random(1), size)
    assert value(" ".join(str(c + 1) for c in columns), "n_queens", {"size": size, "given": []}) == 1.0


# Sums


SUMS = st.recursive(
    st.integers(0, 99).map(str),
    lambda part: st.tuples(part, st.sampled_from("+-*/"), part).map(lambda parts: f"({' '.join(parts)})"),
    max_leaves=8,
)


@given(SUMS)
def test_a_sum_is_worked_out_as_exact_fractions_are(text):
    exact = re.sub(r"\d+", lambda number: f"Fraction({number[0]})", text)
    try:
        wanted = eval(exact, {"Fraction": Fraction})  # of a text that the test made
    except ZeroDivisionError:
        with pytest.raises(BadSum):
            work_out(text)
    else:
        assert work_out(text)[0] == wanted


NO_SUMS = ["", "1 +", "(1", "1)", "1 2", "-1", "2 ** 3", "2 ^ 3", "a", "1e5", "1.5", "1_0", "١", "0x1", "1,2", "1 if 1"]


@pytest.mark.parametrize("text", [*NO_SUMS, "9" * 10])
def test_what_is_no_plain_sum_is_refused(text):
    with pytest.raises(BadSum):
        work_out(text)


def test_products_come_before_sums_and_equal_signs_from_the_left():
    assert work_out("2 + 3 * 4 - 8 / 2 / 2")[0] == 12


# Where the answer stands


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>1 2</answer>", "1 2"),
        ("<answer>1</answer> <answer>2</answer>", "2"),
        (r"\boxed{1} <answer>2</answer>", "2"),
        (r"<answer>1</answer> \boxed{2}", "2"),
        (r"<answer>1</answer> \boxed{2", ""),
        ("<answer>1</answer> <answer>2", ""),
        ("<think><answer>1</answer>", ""),
        ("<answer>1</answer></think>2", ""),
        ("1 2", ""),
        ("", ""),
    ],
)
def test_the_answer_is_the_last_block_that_closes(text, answer):
    assert answer_block(text) == answer


# Tasks of one's own, and whole environments


class Parity(vf.LogicTask):
    name, answer_form = "parity", "Answer with a number."

    def make(self, rng, difficulty):
        return {"below": 10 * difficulty}, "2"

    def describe(self, puzzle):
        return f"Name an even number below {puzzle['below']}."

    def check(self, puzzle, answer):
        number = read_number(answer)
        if number % 2 or number >= puzzle["below"]:
            raise vf.WrongAnswer(f"{number} is odd or too large")


def test_a_task_of_ones_own_is_added_by_its_name():
    rubric = vf.LogicRubric()
    rubric.add_task(Parity())
    row = Parity().generate(seed=1)
    assert score("<answer>4</answer>", "parity", row["info"]["puzzle"], rubric).value == 1.0
    assert score("<answer>5</answer>", "parity", row["info"]["puzzle"], rubric).value == 0.0
    assert score("<answer>4</answer>", "parity", row["info"]["puzzle"]).status == "fault"
    with pytest.raises(ValueError, match="name of its own"):
        rubric.add_task(Parity())


def test_rows_of_all_tasks_make_one_environment_that_pays_their_answers():
    datasets = pytest.importorskip("datasets")
    rows = [vf.LOGIC_TASKS[name].generate(seed=1) for name in NAMES]
    for dataset in (rows, datasets.Dataset.from_list(rows)):
        env = vf.SingleTurnEnv(dataset=dataset, rubric=vf.LogicRubric())
        client = vf.ScriptedClient([f"<answer>{row['answer']}</answer>" for row in rows])
        assert env.evaluate_sync(client, model="scripted", max_concurrent=1)["reward"] == [1.0] * len(rows)
