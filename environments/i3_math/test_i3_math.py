"""Are bad arguments refused, do the public schemas come through, does a seed give the same mix, does the reference
answer score full, and does a wrong, empty or hedged one not?"""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from i3_math import load_environment, own_problems
from i3_math.mixing import mixed, normalised, without_repeats

import verifiers as vf

# made up, with all columns of the public sets and their types
SKYWORK = {
    "data_source": "train-math-made-up",
    "prompt": [{"content": "Double 21. ", "role": "user"}],
    "ability": "math",
    "reward_model": {"ground_truth": '["42"]', "style": "rule"},
    "extra_info": {
        "index": 7,
        "model_difficulty": {
            "DeepSeek-R1-Distill-Qwen-1.5B": 14,
            "DeepSeek-R1-Distill-Qwen-32B": None,
            "DeepSeek-R1-Distill-Qwen-7B": 9,
        },
    },
}
ACEREASON = {"problem": "What is half of one?", "answer": "\\frac{1}{2}"}
DAPO = {
    "data_source": "math_dapo",
    "prompt": [
        {
            "content": "Solve the following math problem step by step. The last line of your response should be of the "
            "form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\nDouble 3."
            '\n\nThen add 1.\n\nRemember to put your answer on its own line after "Answer:".',
            "role": "user",
        }
    ],
    "ability": "MATH",
    "reward_model": {"ground_truth": "7", "style": "rule-lighteval/MATH_v2"},
    "extra_info": {"index": "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"},
}
ORZ = {
    "0": {"from": "human", "value": "Halve 10."},
    "1": {"from": "assistant", "ground_truth": {"value": "5"}},
}
AIME_2024 = {
    "id": 60,
    "problem": "Add 20 and 13.",
    "solution": "It is 33.",
    "answer": "033",
    "url": "https://example.org/1",
    "year": "2024",
}
AIME_2025 = {"problem": "Add 60 and 10.", "answer": "70", "id": "0"}
PUBLIC = {"skywork": SKYWORK, "acereason": ACEREASON, "dapo": DAPO, "orz": ORZ}


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def skywork_row(question: str, answers: Any, difficulty: int | None = 5) -> dict[str, Any]:
    return {
        **SKYWORK,
        "prompt": [{"role": "user", "content": question}],
        "reward_model": {"ground_truth": answers if isinstance(answers, str) else json.dumps(answers), "style": "rule"},
        "extra_info": {"index": 0, "model_difficulty": {"DeepSeek-R1-Distill-Qwen-7B": difficulty}},
    }


@pytest.fixture
def own_files(tmp_path: Path) -> dict[str, str]:
    """Our own problems as files in the public schemas."""
    rows = {
        "skywork": own_problems.skywork_rows(),
        "acereason": own_problems.acereason_rows(),
        "dapo": own_problems.dapo_rows(),
        "orz": own_problems.orz_rows(),
        "aime2024": own_problems.aime_2024_rows(),
        "aime2025": own_problems.aime_2025_rows(),
    }
    return {name: write(tmp_path / f"{name}.jsonl", made) for name, made in rows.items()}


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"dataset": "skyworks"}, "dataset='skyworks': there are 'skywork', 'acereason'"),
        ({"dataset": []}, r"dataset=\[\]: give one name"),
        ({"dataset": ["orz", "orz"]}, "a list of different names"),
        ({"dataset": 3}, "dataset=3: there are"),
        ({"dataset": {"orz": 0}}, "the share of orz is to be a number above 0"),
        ({"eval": "aime2026"}, "eval='aime2026': there are 'aime2024', 'aime2025'"),
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": True}, "num_eval_examples=True"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"min_difficulty": 17}, "min_difficulty=17: give a whole number from 0 to 16"),
        ({"min_difficulty": 5, "max_difficulty": 4}, "min_difficulty=5 is above max_difficulty=4"),
        ({"dataset": "orz", "max_difficulty": 4}, "only 'skywork' has difficulties"),
        ({"data": "nowhere.jsonl"}, "data='nowhere.jsonl': there is no such file"),
        ({"train_data": "rows.csv"}, "train_data='rows.csv'"),
        ({"dataset": ["orz", "dapo"], "train_data": "a.jsonl"}, "give a table of name and path"),
        ({"train_data": {"orz": "a.jsonl"}}, "'orz' is not among dataset"),
        ({"judge_base_url": "http://127.0.0.1:1/v1"}, "address is given without judge_model"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


def test_a_model_without_difficulties_is_refused_by_name(tmp_path):
    path = write(tmp_path / "rows.jsonl", [SKYWORK])
    env = load_environment(train_data=path, difficulty_model="gpt", max_difficulty=3)
    with pytest.raises(ValueError, match="difficulty_model='gpt': the rows have figures for DeepSeek-R1"):
        env.train_rows()


@pytest.mark.parametrize(
    ("dataset", "row", "told"),
    [
        ("skywork", {**SKYWORK, "reward_model": {"ground_truth": "[42", "style": "rule"}}, "row 2: not in the schema"),
        ("skywork", {"prompt": []}, "no column 'reward_model', 'extra_info'"),
        ("acereason", {"problem": "", "answer": "1"}, "row 2: .* the question is ''"),
        ("acereason", {"problem": "What?", "answer": 1}, "row 2: .* the answer is 1, not a text"),
        ("dapo", {**DAPO, "prompt": []}, "row 2: not in the schema of BytedTsinghua-SIA/DAPO-Math-17k"),
        ("orz", {"0": {"value": "What?"}, "1": {"value": "1"}}, "row 2: .*ground_truth"),
        ("acereason", [1], "a row is an object"),
    ],
)
def test_a_row_outside_the_schema_is_named(tmp_path, dataset, row, told):
    path = write(tmp_path / "rows.jsonl", [PUBLIC[dataset], row])
    with pytest.raises(vf.DatasetError, match=told):
        load_environment(dataset, train_data=path).train_rows()


def test_an_aime_answer_is_a_number_of_three_digits(tmp_path):
    path = write(tmp_path / "rows.jsonl", [{**AIME_2025, "answer": "1000"}])
    with pytest.raises(vf.DatasetError, match="the answer 1000 is not one of 0 to 999"):
        load_environment(eval="aime2025", data=path).eval_rows()


# 2. the public schemas, and what becomes of them


@pytest.mark.parametrize(
    ("dataset", "question", "answer"),
    [
        ("skywork", "Double 21.", "42"),
        ("acereason", "What is half of one?", "\\frac{1}{2}"),
        ("dapo", "Double 3.\n\nThen add 1.", "7"),
        ("orz", "Halve 10.", "5"),
    ],
)
def test_a_training_row_of_the_public_schema_is_a_prompt_with_its_answer(tmp_path, dataset, question, answer):
    path = write(tmp_path / "rows.jsonl", [PUBLIC[dataset]])
    (row,) = load_environment(dataset, train_data=path).train_rows()
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert "\\boxed{}" in row["prompt"][0]["content"]
    assert (row["prompt"][1]["content"], row["answer"]) == (question, answer)
    assert row["info"]["source"] == "rows.jsonl"


@pytest.mark.parametrize(("name", "row", "answer"), [("aime2024", AIME_2024, "33"), ("aime2025", AIME_2025, "70")])
def test_an_evaluation_row_of_the_public_schema_is_a_prompt_with_its_number(tmp_path, name, row, answer):
    (made,) = load_environment(eval=name, data=write(tmp_path / "rows.jsonl", [row])).eval_rows()
    assert (made["prompt"][1]["content"], made["answer"]) == (row["problem"], answer)


def test_the_list_of_lists_that_orz_publishes_is_read(tmp_path):
    path = tmp_path / "orz.json"
    path.write_text(json.dumps([[ORZ["0"], ORZ["1"]]]))
    (row,) = load_environment("orz", train_data=str(path)).train_rows()
    assert (row["question"], row["answer"], row["info"]) == ("Halve 10.", "5", {"source": "orz.json"})


def test_parquet_is_read_like_jsonl(tmp_path):
    from pyarrow import Table, parquet

    parquet.write_table(Table.from_pylist([SKYWORK]), tmp_path / "rows.parquet")
    (row,) = load_environment(train_data=str(tmp_path / "rows.parquet")).train_rows()
    assert (row["question"], row["answer"]) == ("Double 21.", "42")


def test_rows_that_cannot_be_scored_are_left_out_and_counted(tmp_path, caplog):
    rows = [SKYWORK, skywork_row("A?", []), skywork_row("B?", [""]), skywork_row("C?", ["1", "2"])]
    with caplog.at_level(logging.WARNING, "verifiers"):
        made = load_environment(train_data=write(tmp_path / "rows.jsonl", rows)).train_rows()
    assert [row["answer"] for row in made] == ["42"]
    assert "2 of 4 rows are left out: they have no answer" in caplog.text
    assert "1 of 4 rows are left out: they have several answers" in caplog.text


def test_a_difficulty_keeps_the_rows_between(tmp_path):
    rows = [skywork_row(f"Question {figure}?", ["1"], figure) for figure in (0, 1, 8, 15, 16, None)]
    path = write(tmp_path / "rows.jsonl", rows)
    env = load_environment(train_data=path, min_difficulty=1, max_difficulty=15)
    figures = [row["info"]["model_difficulty"]["DeepSeek-R1-Distill-Qwen-7B"] for row in env.train_rows()]
    assert figures == [1, 8, 15]


# 3. no question twice, each set in its share, the same by seed


def test_dapo_s_copies_are_one_row(own_files):
    rows = load_environment("dapo", train_data=own_files["dapo"]).train_rows()
    assert len(rows) == len(own_problems.DAPO)


def test_a_question_of_two_sets_is_asked_once_whatever_its_setting(tmp_path):
    ace = write(
        tmp_path / "ace.jsonl", [{"problem": r"If \(x^2 = \dfrac{1}{4}\), find  $x$.", "answer": "1"}, ACEREASON]
    )
    orz_row = {"0": {"from": "human", "value": r"If $x^2=\frac14$, find x."}, "1": ORZ["1"]}
    same = {"0": {"from": "human", "value": "if $x^2 = \\frac{1}{4}$, find $x$"}, "1": ORZ["1"]}
    orz = write(tmp_path / "orz.jsonl", [same, orz_row])
    env = load_environment(["acereason", "orz"], train_data={"acereason": ace, "orz": orz})
    assert [row["info"]["source"] for row in env.train_rows()] == ["ace.jsonl", "ace.jsonl", "orz.jsonl"]


@pytest.mark.parametrize(
    ("one", "other"), [("Find -3.", "Find 3."), ("Find x_1.", "Find x1."), ("Is 1.5 > 2?", "Is 15 > 2?"), ("a^b", "ab")]
)
def test_questions_that_differ_in_more_than_their_setting_stay_apart(one, other):
    assert normalised(one) != normalised(other)


def pool(name: str, count: int) -> list[dict[str, Any]]:
    return [{"question": f"{name} {number}", "info": {"source": name}} for number in range(count)]


def test_shares_hold_in_the_whole_and_in_each_stretch():
    pools = {"a": pool("a", 900), "b": pool("b", 100)}
    rows = mixed(pools, {"a": 3, "b": 1}, -1, seed=None)
    assert Counter(row["info"]["source"] for row in rows) == {"a": 300, "b": 100}
    for start in range(0, 400, 40):
        assert Counter(row["info"]["source"] for row in rows[start : start + 40]) == {"a": 30, "b": 10}


@pytest.mark.parametrize("num", [1, 2, 7, 10, 99])
def test_shares_give_as_many_rows_as_asked_for(num):
    rows = mixed({"a": pool("a", 70), "b": pool("b", 70), "c": pool("c", 70)}, {"a": 1, "b": 1, "c": 1}, num, seed=3)
    assert len(rows) == num
    counts = Counter(row["info"]["source"] for row in rows)
    assert max(counts.values()) - min(counts.get(name, 0) for name in "abc") <= 1


def test_a_set_without_rows_leaves_no_mix():
    assert mixed({"a": pool("a", 5), "b": []}, {"a": 1, "b": 1}, -1, None) == []


def test_the_first_of_equal_questions_is_kept():
    kept = without_repeats({"a": pool("x", 2), "b": [*pool("X", 3)]})
    assert {name: len(rows) for name, rows in kept.items()} == {"a": 2, "b": 1}


@pytest.mark.parametrize("dataset", [["skywork", "orz"], {"skywork": 1, "orz": 1}])
def test_a_seed_gives_the_same_examples_and_another_seed_others(own_files, dataset):
    def asked(seed: int | None) -> list[str]:
        files = {name: own_files[name] for name in ("skywork", "orz")}
        return [row["question"] for row in load_environment(dataset, train_data=files, seed=seed).train_rows()]

    assert asked(1) == asked(1) != asked(2)
    assert sorted(asked(1)) == sorted(asked(2)) == sorted(asked(None))


# Loading and the public names: in a fresh process with a cache of its own, one for all, since `datasets` is heavy.

NAMES = ["skywork", "acereason", "dapo", "orz"]
COPIED = [f"Question {number}?" for number in range(37)]
ORDERS = {"beside": [question for question in COPIED for _ in range(10)], "behind": COPIED * 10}
CODE = """
import json, sys
from dataclasses import replace
import i3_math, verifiers as vf
from i3_math.sources import TRAIN
env = i3_math.load_environment(NAMES)
told = {"imported": "datasets" in sys.modules, "train": env.train_rows(), "eval": env.eval_rows()}
for name, folder in FOLDERS.items():
    told[name] = replace(TRAIN["dapo"], data=vf.DataSource(folder)).rows()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is read without a network; and DAPO's copies, beside and behind each other, from folders like the hub's."""
    place = tmp_path_factory.mktemp("public")
    for name, asked in ORDERS.items():
        (place / name).mkdir()
        rows = [{**DAPO, "prompt": [{"role": "user", "content": text}]} for text in asked]
        write(place / name / "train.jsonl", rows)
        card = "---\nconfigs: [{config_name: default, data_files: train.jsonl}]\n---\n"
        (place / name / "README.md").write_text(card)
    folders = {name: str(place / name) for name in ORDERS}
    own = {"HF_HOME": str(place / "hf"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    code = CODE.replace("NAMES", repr(NAMES)).replace("FOLDERS", repr(folders))
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **own}, capture_output=True, text=True, timeout=120, check=True
    )
    return {**json.loads(done.stdout), "stderr": done.stderr}


def test_loading_touches_neither_network_nor_datasets(told):
    assert told["imported"] is False


def test_without_network_our_own_problems_serve_and_it_is_said(told):
    assert [len(told["train"]), len(told["eval"])] == [16, 4]
    assert {row["info"]["source"].partition(",")[0] for row in told["train"] + told["eval"]} == {"own rows"}
    assert "THEIR SCORES ARE NOT HuggingFaceH4/aime_2024 SCORES" in told["stderr"]


@pytest.mark.parametrize("order", ORDERS)
def test_dapo_s_copies_are_read_in_parts_and_each_question_kept_once(told, order):
    assert [row["question"] for row in told[order]] == COPIED
    assert told[order][-1]["info"]["source"].endswith(f"{order} train")


# Our own answers, found a second time by counting.


def stairs(steps: int, last: int = 0) -> int:
    if steps == 0:
        return 1
    return sum(stairs(steps - jump, jump) for jump in (1, 2, 3) if jump <= steps and not jump == last == 3)


def divisors(number: int) -> int:
    return sum(number % divisor == 0 for divisor in range(1, number + 1))


COUNTED = {
    "130": lambda: sum(n % 7 == 0 and n % 11 > 0 for n in range(1, 1000)),
    "64": lambda: math.prod(x for x in range(-10, 11) if abs(x * x - 10) == 6),
    "160": lambda: math.comb(6, 3) * 2**3,
    "18": lambda: sum("LL" not in "".join(word) for word in set(itertools.permutations("LEVEL"))),
    r"\frac{25}{216}": lambda: Fraction(5, 6) ** 2 * Fraction(1, 6),
    r"8\sqrt{2}": lambda: math.sqrt(50) + math.sqrt(18),
    "34": lambda: sum((n * n + n + 1) % 3 == 0 for n in range(1, 101)),
    "80": lambda: round(sum(((5 + sign * math.sqrt(13)) / 2) ** 3 for sign in (1, -1))),
    "9": lambda: 3**2026 % 41,
    "69": lambda: sum(x * x + y * y <= 20 for x in range(-5, 6) for y in range(-5, 6)),
    "60": lambda: next(n for n in range(1, 999) if divisors(n) == 12),
    "256": lambda: sum(
        sum(chosen) % 2 == 0 for size in range(10) for chosen in itertools.combinations(range(1, 10), size)
    ),
    r"\frac{49}{50}": lambda: sum(Fraction(1, k * (k + 1)) for k in range(1, 50)),
    "31": lambda: len(text := str(math.factorial(125))) - len(text.rstrip("0")),
    "14": lambda: twice(Fraction(17)) - twice(Fraction(3)),
    "105": lambda: sum(math.lcm(a, b) == 360 for a in range(1, 361) for b in range(1, 361)),
    "101": lambda: sum(n for n in range(10, 100) if n * n % 100 == n),
    "999": lambda: sum(k * math.factorial(k) for k in range(1, 101)) % 1000,
    "821": lambda: stairs(12),
    "29": lambda: next(p for p in range(37) if 12**3 - 36 * p == 684),
    "30": lambda: sum(
        s[0] == s[-1] and all(a != b for a, b in itertools.pairwise(s)) for s in itertools.product("012", repeat=6)
    ),
    "19": lambda: sum(
        Fraction(sum(sum(c) % 3 == 0 for c in itertools.combinations(range(1, 10), 3)), 84).as_integer_ratio()
    ),
}
COUNTED_AGAIN = {  # another question with the same answer
    "How many integers": lambda: sum(k * k + (k + 1) ** 2 <= 2000 for k in range(1, 99)),
    "A rectangle": lambda: ((34 // 2) ** 2 - 13**2) // 2,
}


def twice(x: Fraction) -> Fraction:
    for _ in range(2):
        x = x / (x - 1)
    return x


OWN = [
    problem
    for name in ("SKYWORK", "ACEREASON", "DAPO", "ORZ", "AIME_2024", "AIME_2025")
    for problem in getattr(own_problems, name)
]


@pytest.mark.parametrize(("question", "answer"), OWN, ids=range(len(OWN)))
def test_every_answer_of_our_own_is_found_again_by_counting(question, answer):
    again = [count for start, count in COUNTED_AGAIN.items() if question.startswith(start)]
    value = (again or [COUNTED[answer]])[0]()
    if answer.startswith("\\frac"):
        assert value == Fraction(*map(int, answer.removeprefix("\\frac").strip("{}").split("}{")))
    elif "sqrt" in answer:
        assert math.isclose(value, 8 * math.sqrt(2))
    else:
        assert str(value) == answer


# 4. the reference answer scores full


async def scored(reply: str, answer: str, tmp_path: Path, **arguments: Any) -> vf.RolloutRecord:
    path = write(tmp_path / "train.jsonl", [{"problem": "What is it?", "answer": answer}])
    env = load_environment("acereason", train_data=path, **arguments)
    results = await env.generate(env.train_rows(), vf.ScriptedClient([reply]), "scripted")
    return results.records[0]


async def test_every_reference_answer_scores_full(own_files):
    names = ["skywork", "acereason", "dapo", "orz"]
    env = load_environment(names, train_data={name: own_files[name] for name in names}, data=own_files["aime2024"])
    rows = [*env.train_rows(), *env.eval_rows()]
    answers = {row["prompt"][-1]["content"]: row["answer"] for row in rows}
    client = vf.ScriptedClient(lambda request: f"So \\boxed{{{answers[request.messages[-1].content]}}}.")
    rows = [{**row, "example_id": number} for number, row in enumerate(rows)]
    results = await env.generate(rows, client, "scripted")
    assert results["reward"] == [1.0] * 20


@pytest.mark.parametrize("boxed", ["0.5", "1/2", r"\dfrac{1}{2}", r"\tfrac12", "x = 0.5", r"50\%"])
async def test_another_way_to_write_the_answer_scores_full(boxed, tmp_path):
    assert (await scored(f"\\boxed{{{boxed}}}", r"\frac{1}{2}", tmp_path)).reward == 1.0


# 5. a wrong, empty, hedged or echoed one does not


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "42",
        "Answer: 42",
        r"\boxed{}",
        r"\boxed{42",
        r"\boxed{41}",
        r"\boxed{42 \text{ or } 43}",
        r"\boxed{41, 42}",
        r"\boxed{6 \cdot 7 = 43}",
        r"<think>\boxed{42}</think> \boxed{41}",
        r"<think>\boxed{42}",
        "What is it?",
        "Put the final answer in \\boxed{}.",
    ],
)
async def test_a_wrong_empty_or_hedged_answer_scores_nothing(reply, tmp_path):
    assert (await scored(reply, "42", tmp_path)).reward == 0.0


# 6. a judge is asked only where the rules refused, and its failure is no 0.0


def judging(request: vf.ModelRequest) -> str:
    """Accepts two responses in other words than the reference's, one of them a canary's."""
    response = request.messages[0].content.partition("<response>")[2].partition("</response>")[0].strip()
    return f"Final judgment: \\boxed{{{'A' if response in ('There are 42 balls.', 'two pairs') else 'B'}}}"


@pytest.mark.parametrize(("boxed", "reward"), [("two pairs", 1.0), ("three", 0.0)])
async def test_a_judge_decides_about_what_the_rules_cannot_read(boxed, reward, tmp_path):
    judge = vf.ScriptedClient(judging)
    record = await scored(f"\\boxed{{{boxed}}}", "4", tmp_path, judge_model="judge", judge_client=judge)
    assert record.reward == reward


async def test_a_judge_is_not_asked_about_what_the_rules_accept(tmp_path):
    judge = vf.ScriptedClient(judging)
    assert (await scored(r"\boxed{4}", "4", tmp_path, judge_model="judge", judge_client=judge)).reward == 1.0
    assert not judge.requests


async def test_a_judge_that_is_down_is_a_fault_and_no_zero(tmp_path):
    judge = vf.ScriptedClient(vf.ModelUnavailableError("down"))
    record = await scored(r"\boxed{5}", "4", tmp_path, judge_model="judge", judge_client=judge)
    assert (record.reward, record.status) == (None, "fault")
