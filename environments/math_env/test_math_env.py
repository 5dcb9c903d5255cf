"""Five questions: are bad arguments refused, does a seed give the same examples, do examples have the right shape,
does the reference answer score full, and does a wrong, empty or hedged one not?"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from fractions import Fraction

import pytest
from math_env import PROBLEMS, load_environment, only_boxed
from math_env.procedural import LEVELS, Problem, make_problem, side_of, worked_problems

import verifiers as vf

DIFFICULTIES = range(len(LEVELS))


def questions(rows) -> list[str]:
    return [row["prompt"][-1]["content"] for row in rows]


async def reward(env: vf.Environment, answer: str, reply: str) -> float | None:
    """What the environment gives for `reply` where `answer` is the reference."""
    client = vf.ScriptedClient([reply])
    row = {"prompt": [{"role": "user", "content": "?"}], "answer": answer, "example_id": 0, "info": {}}
    results = await env.generate([row], client, "scripted")
    return results["outputs"][0]["reward"]


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"difficulty": 6}, "difficulty=6"),
        ({"difficulty": -1}, "difficulty=-1"),
        ({"difficulty": "hard"}, "difficulty='hard'"),
        ({"difficulty": True}, "difficulty=True"),
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": 1.5}, r"num_eval_examples=1\.5"),
        ({"seed": None}, "seed=None"),
        ({"few_shot": 17}, "few_shot=17"),
        ({"problems": "olympiad"}, "'procedural' and 'competition'"),
        ({"problems": "competition", "few_shot": 2}, "few_shot=2"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


# 2. same seed, same examples


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_a_seed_gives_the_same_examples_and_another_seed_others(difficulty):
    def asked(seed: int) -> list[str]:
        env = load_environment(difficulty=difficulty, seed=seed, num_train_examples=20, num_eval_examples=20)
        return questions(env.get_dataset()) + questions(env.get_eval_dataset())

    assert asked(1) == asked(1)
    assert asked(1) != asked(2)


def test_a_problem_depends_on_its_index_alone():
    forwards = [make_problem(3, 2, index) for index in range(10)]
    backwards = [make_problem(3, 2, index) for index in reversed(range(10))]
    assert forwards == backwards[::-1]


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_no_seed_trains_on_what_another_evaluates(difficulty):
    train = load_environment(difficulty=difficulty, seed=1, num_train_examples=300).get_dataset()
    evaluation = load_environment(difficulty=difficulty, seed=2, num_eval_examples=300).get_eval_dataset()
    assert not set(questions(train)) & set(questions(evaluation))
    assert len(set(questions(train))) == len(train), "a question comes twice"


def test_competition_problems_are_split_once():
    env = load_environment(problems="competition")
    train, evaluation = questions(env.get_dataset()), questions(env.get_eval_dataset())
    assert sorted(train + evaluation) == sorted(problem.question for problem in PROBLEMS)


# 3. an example has the right shape


@pytest.mark.parametrize("arguments", [*({"difficulty": d} for d in DIFFICULTIES), {"problems": "competition"}])
def test_an_example_is_a_prompt_with_an_exact_answer(arguments):
    env = load_environment(num_eval_examples=10, **arguments)
    for row in env.get_eval_dataset():
        roles = [message["role"] for message in row["prompt"]]
        assert roles[0] == "system" and roles[-1] == "user"
        assert "\\boxed{}" in row["prompt"][0]["content"]
        assert str(Fraction(row["answer"])) == row["answer"]


def test_small_models_are_shown_worked_examples_that_are_not_asked():
    env = load_environment(difficulty=0, num_train_examples=1000, num_eval_examples=1000)
    rows = [*env.get_dataset(), *env.get_eval_dataset()]
    shown = [message["content"] for message in rows[0]["prompt"][1:-1] if message["role"] == "user"]
    assert len(shown) == 3
    assert not set(shown) & set(questions(rows))
    assert all(message["content"].count("\\boxed{") == 1 for message in rows[0]["prompt"][2:-1:2])


def test_few_shot_sets_the_number_of_worked_examples():
    env = load_environment(difficulty=3, few_shot=5, num_eval_examples=1)
    assert len(env.get_eval_dataset()[0]["prompt"]) == 1 + 2 * 5 + 1


# The answers themselves, found a second time by another way than the generator's.


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", text)]


def calculate(expression: str) -> Fraction:
    return eval(re.sub(r"\d+", r"Fraction(\g<0>)", expression), {"Fraction": Fraction})


def at(expression: str, **values: Fraction | int) -> Fraction:
    """The value of `3x - y + 2` and the like."""
    python = re.sub(r"(\d)([xy])", r"\1*\2", expression).replace("^", "**")
    return eval(python, {name: Fraction(value) for name, value in values.items()})


def expression_holds(problem: Problem) -> bool:
    return calculate(problem.question.removeprefix("What is ").removesuffix("?")) == problem.answer


def equation_holds(problem: Problem) -> bool:
    left, right = problem.question.removeprefix("Solve for x: ").split("=")
    return at(left, x=problem.answer) == at(right, x=problem.answer)


def system_holds(problem: Problem) -> bool:
    sides = [side.split(" = ") for side in re.findall(r"[^ ].*? = -?\d+", problem.question.removeprefix("Given "))]
    (first, p), (second, q) = [(left.removeprefix("and "), int(right)) for left, right in sides]
    grid = itertools.product(range(-12, 13), repeat=2)
    found = [x * y for x, y in grid if at(first, x=x, y=y) == p and at(second, x=x, y=y) == q]
    return found == [problem.answer]


def larger_root_holds(problem: Problem) -> bool:
    polynomial = problem.question.removeprefix("What is the larger root of ").removesuffix(" = 0?")
    return max(x for x in range(-20, 21) if at(polynomial, x=x) == 0) == problem.answer


def roots_hold(problem: Problem) -> bool:
    polynomial = re.search(r"roots of (.*) = 0", problem.question)[1].replace("x^2", "").replace(" ", "")
    a, b, c = numbers(re.sub(r"([+-])x", r"\g<1>1x", polynomial))
    spread = math.sqrt(b * b - 4 * a * c)
    roots = (-b + spread) / (2 * a), (-b - spread) / (2 * a)
    value = sum(root**2 if "squares" in problem.question else 1 / root for root in roots)
    return math.isclose(value, problem.answer, rel_tol=1e-9, abs_tol=1e-9)


def percent_change_holds(problem: Problem) -> bool:
    start, up, down = numbers(problem.question)
    risen = start + Fraction(start * up, 100)
    return risen - risen * down / 100 == problem.answer


def arithmetic_sequence_holds(problem: Problem) -> bool:
    *terms, n = numbers(problem.question)
    while len(terms) < n:
        terms.append(2 * terms[-1] - terms[-2])
    return terms[-1] == problem.answer


def quadratic_sequence_holds(problem: Problem) -> bool:
    terms = numbers(problem.question)
    return terms[-3] - 3 * terms[-2] + 3 * terms[-1] == problem.answer  # third differences are 0


def power_remainder_holds(problem: Problem) -> bool:
    base, exponent, modulus = numbers(problem.question)
    return base**exponent % modulus == problem.answer


def two_remainders_holds(problem: Problem) -> bool:
    r, m, s, n = numbers(problem.question)
    return [x for x in range(1, m * n + 1) if (x - r) % m == 0 and (x - s) % n == 0] == [problem.answer]


def divisible_holds(problem: Problem) -> bool:
    _, limit, a, b = numbers(problem.question)
    return sum(x % a == 0 or x % b == 0 for x in range(1, limit + 1)) == problem.answer


CHECKS: dict[str, Callable[[Problem], bool]] = {
    **dict.fromkeys([kind.__name__ for kind in (*LEVELS[0], *LEVELS[1])], expression_holds),
    "chain": expression_holds,
    "fraction_arithmetic": expression_holds,
    "percentage": lambda p: p.answer * 100 == math.prod(numbers(p.question)),
    "missing_number": lambda p: p.answer * numbers(p.question)[0] + numbers(p.question)[1] == numbers(p.question)[2],
    "greatest_common_divisor": lambda p: (
        max(d for d in range(1, 400) if all(n % d == 0 for n in numbers(p.question))) == p.answer
    ),
    "linear_equation": equation_holds,
    "percent_change": percent_change_holds,
    "arithmetic_sequence": arithmetic_sequence_holds,
    "linear_system": system_holds,
    "remainder": lambda p: (
        (numbers(p.question)[0] * numbers(p.question)[1] + numbers(p.question)[2]) % numbers(p.question)[3] == p.answer
    ),
    "larger_root": larger_root_holds,
    "quadratic_sequence": quadratic_sequence_holds,
    "power_remainder": power_remainder_holds,
    "two_remainders": two_remainders_holds,
    "roots_without_solving": roots_hold,
    "divisible_by_either": divisible_holds,
}


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_every_kind_of_problem_has_the_right_answer(difficulty):
    made = [make_problem("answers", difficulty, index) for index in range(120)]
    assert {problem.kind for problem in made} == {kind.__name__ for kind in LEVELS[difficulty]}
    wrong = [problem for problem in made if not CHECKS[problem.kind](problem)]
    assert not wrong


def count(things) -> int:
    return sum(1 for _ in things)


def polynomial_remainder_at_2() -> int:
    coefficients = [1, *[0] * 10]  # x^10
    while len(coefficients) > 2:
        head = coefficients.pop(0)
        coefficients[0] += head  # x^2 = x + 1
        coefficients[1] += head
    return 2 * coefficients[0] + coefficients[1]


def best_product(total: int) -> int:
    return max([total, *(part * best_product(total - part) for part in range(2, total // 2 + 1))])


def applied(function, times: int, value: Fraction) -> Fraction:
    for _ in range(times):
        value = function(value)
    return value


def trace_of_square(matrix: list[list[int]]) -> int:
    return sum(matrix[i][j] * matrix[j][i] for i in range(3) for j in range(3))


def largest_prime_factor(n: int) -> int:
    return max(d for d in range(2, 1000) if n % d == 0 and all(d % e for e in range(2, d)))


COUNTED: dict[str, Callable[[], int | Fraction]] = {
    "digit-sum": lambda: count(n for n in range(100, 1000) if sum(map(int, str(n))) == 7),
    "two-powers": lambda: (7**100 + 3**100) % 25,
    "three-coins": lambda: count(
        c for c in itertools.product(range(11), range(6), range(3)) if 5 * c[0] + 10 * c[1] + 20 * c[2] == 50
    ),
    "shared-factor": lambda: count(a for a in range(1, 60) if math.gcd(a, 60 - a) == 6),
    "highest-die": lambda: Fraction(count(d for d in itertools.product(range(1, 7), repeat=3) if max(d) == 4), 216),
    "inside-circle": lambda: count(p for p in itertools.product(range(-8, 9), repeat=2) if p[0] ** 2 + p[1] ** 2 < 50),
    "gapped-telescope": lambda: sum(Fraction(1, k * (k + 2)) for k in range(1, 21)),
    "closed-crossing": lambda: count(
        rights for rights in itertools.combinations(range(10), 5) if sum(step < 5 for step in rights) != 2
    ),
    "fifteen-divisors": lambda: next(
        n for n in itertools.count(1) if count(d for d in range(1, n + 1) if n % d == 0) == 15
    ),
    "fifth-powers": lambda: round(((3 + math.sqrt(5)) / 2) ** 5 + ((3 - math.sqrt(5)) / 2) ** 5),
    "palindromes": lambda: count(n for n in range(10_008, 100_000, 9) if str(n) == str(n)[::-1]),
    "integer-triangles": lambda: count(
        (a, b) for a in range(1, 24) for b in range(a, 24) if b <= 24 - a - b and a + b > 24 - a - b
    ),
    "three-corners": lambda: Fraction(abs((7 - 1) * (11 - 2) - (3 - 1) * (5 - 2)), 2),
    "banana": lambda: count(w for w in set(itertools.permutations("BANANA")) if "AA" not in "".join(w)),
    "committee": lambda: count(c for c in itertools.combinations("bbbbbgggg", 4) if c.count("g") >= 2),
    "square-sum": lambda: count(
        p for p in itertools.product(range(-40, 41), repeat=2) if p[0] ** 2 + p[1] ** 2 == 1105
    ),
    "trailing-zeros": lambda: next(n for n in itertools.count(1) if math.factorial(n) % 10**20 == 0),
    "unit-fractions": lambda: count(a for a in range(13, 157) if 12 * a % (a - 12) == 0),
    "recurrence": lambda: applied(lambda term: 3 * term - 2, 7, Fraction(2)),
    "larger-card": lambda: Fraction(sum(max(p) for p in itertools.combinations(range(1, 11), 2)), 45),
    "no-neighbours": lambda: count(n for n in range(1024) if not n & n >> 1),
    "golden-remainder": polynomial_remainder_at_2,
    "cubic-roots": lambda: trace_of_square([[6, -5, 7], [1, 0, 0], [0, 1, 0]]),
    "no-double-heads": lambda: Fraction(count(t for t in range(64) if not t & t >> 1), 64),
    "altitude": lambda: Fraction(2) * Fraction(20 * 21, 2) / math.isqrt(20**2 + 21**2),
    "incircle": lambda: Fraction(math.isqrt(21 * (21 - 13) * (21 - 14) * (21 - 15)), 21),
    "three-pipes": lambda: 1 / (Fraction(1, 6) + Fraction(1, 9) - Fraction(1, 12)),
    "always-one": lambda: next(n for n in itertools.count(2) if all(n % d == 1 for d in range(2, 11))),
    "how-many-digits": lambda: len(str(2**40 * 5**37)),
    "nines": lambda: sum(map(int, str(10**20 - 2026))),
    "ten-times": lambda: applied(lambda x: 2 * x / (x + 1), 9, Fraction(1, 2)),
    "full-boxes": lambda: count(b for b in itertools.product(range(3), repeat=5) if len(set(b)) == 3),
    "largest-prime": lambda: largest_prime_factor(3**12 - 1),
    "three-factors": lambda: count(p for p in itertools.product(range(1, 73), repeat=3) if math.prod(p) == 72),
    "best-split": lambda: best_product(20),
    "two-distances": lambda: count(x for x in range(-30, 30) if abs(x - 3) + abs(x + 5) <= 14),
}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_a_competition_answer_is_found_again_by_counting(problem):
    assert Fraction(COUNTED[problem.name]()) == Fraction(problem.answer)


# 4. the reference answer scores full


@pytest.mark.parametrize("arguments", [*({"difficulty": d} for d in DIFFICULTIES), {"problems": "competition"}])
async def test_the_reference_answer_scores_full(arguments):
    env = load_environment(num_eval_examples=4, **arguments)
    for row in env.get_eval_dataset():
        assert await reward(env, row["answer"], f"Let me see. \\boxed{{{row['answer']}}}") == 1.0


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
async def test_the_worked_examples_score_full(difficulty):
    env = load_environment(difficulty=difficulty, num_eval_examples=1)
    for problem in worked_problems(difficulty, 4):
        assert await reward(env, problem.answer_text, problem.worked_reply) == 1.0


@pytest.mark.parametrize(
    "reply",
    [
        r"\boxed{\frac{3}{4}}",
        r"\boxed{0.75}",
        r"<think>\boxed{1}?</think>\boxed{3/4}",
        r"\boxed{3/4}, so \boxed{3/4}",
    ],
)
async def test_another_way_to_write_it_scores_full(reply):
    assert await reward(load_environment(), "3/4", reply) == 1.0


# 5. a wrong, empty or hedged one does not


@pytest.mark.parametrize(
    "reply",
    [
        r"\boxed{8}",
        r"\boxed{-7}",
        r"\boxed{}",
        "",
        "7",
        "The answer is 7.",
        r"\boxed{7",
        r"\boxed{7} or \boxed{8}",
        r"\boxed{8} or \boxed{7}",
        r"\boxed{7 or 8}",
        r"\boxed{7, 8}",
    ],
)
async def test_a_wrong_empty_or_hedged_answer_scores_nothing(reply):
    assert await reward(load_environment(), "7", reply) == 0.0


def test_boxes_that_disagree_are_no_answer():
    assert only_boxed(r"\boxed{7}, and again \boxed{7}") == "7"
    assert only_boxed(r"\boxed{7}, or \boxed{8}") == ""
    assert only_boxed(r"\boxed{\frac{1}{2}}") == r"\frac{1}{2}"


def test_a_question_has_one_side_for_good():
    sides = {side_of(make_problem(0, 5, index).question) for index in range(100)}
    assert sides == {"train", "eval"}
