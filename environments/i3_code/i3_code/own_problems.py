"""Problems with solutions, written for this project: for places without a network.

Each is put into the very schema of the set that it stands for, so that it takes the same way into an environment.
"""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class OwnProblem:
    statement: str
    solution: str
    cases: tuple[tuple[Any, Any], ...]  # input and output as texts, or the arguments and the value of `function`
    function: str | None = None
    starter: str = ""


RISES = OwnProblem(
    "The first line has a number n, the second n integers. Print how many of them are larger than the one before.",
    "n = int(input())\nnumbers = list(map(int, input().split()))\n"
    "print(sum(b > a for a, b in zip(numbers, numbers[1:])))",
    (("5\n1 3 2 2 9\n", "2\n"), ("1\n7\n", "0\n"), ("4\n4 3 2 1\n", "0\n"), ("3\n-5 0 5\n", "2\n")),
)
LONGEST_RUN = OwnProblem(
    "Given a text, return the length of the longest run of one repeated character in it; 0 for the empty text.",
    "from itertools import groupby\n\n\ndef longest_run(text):\n"
    "    return max((len(list(run)) for _, run in groupby(text)), default=0)",
    ((["aabbbc"], 3), ([""], 0), (["abc"], 1), (["zzzz"], 4), (["abbaab"], 2)),
    "longest_run",
)
BOARD = OwnProblem(
    "The only line has the width and the height of a board. Print it row by row, '#' and '.' taking turns along rows "
    "and along columns, with '#' in the upper left corner.",
    "width, height = map(int, input().split())\nfor row in range(height):\n"
    "    print(''.join('#.'[(row + column) % 2] for column in range(width)))",
    (("3 2\n", "#.#\n.#.\n"), ("1 1\n", "#\n"), ("2 3\n", "#.\n.#\n#.\n")),
)
MERGE_COUNTS = OwnProblem(
    "Two lists of pairs [name, count] are given. Return one list with each name once, its counts added up, sorted by "
    "name.",
    "def merge_counts(first, second):\n    total = {}\n    for name, count in first + second:\n"
    "        total[name] = total.get(name, 0) + count\n    return [list(pair) for pair in sorted(total.items())]",
    (
        ([[["b", 1]], [["a", 2], ["b", 3]]], [["a", 2], ["b", 4]]),
        ([[], []], []),
        ([[["x", 1], ["x", 1]], []], [["x", 2]]),
    ),
    "merge_counts",
)
MIRROR = OwnProblem(
    "The first line has a number t, and each of the next t lines a word. For each word print YES if it reads the same "
    "backwards, whatever the case of its letters, and NO otherwise.",
    "for _ in range(int(input())):\n    word = input().strip().lower()\n"
    "    print('YES' if word == word[::-1] else 'NO')",
    (("3\nLevel\nab\nx\n", "YES\nNO\nYES\n"), ("1\nAbcBa\n", "YES\n"), ("2\nno\nOn\n", "NO\nNO\n")),
)
SMALLEST_MISSING = OwnProblem(
    "Given an array nums of integers, return the smallest positive integer that is not in it.",
    "class Solution:\n    def smallestMissing(self, nums: List[int]) -> int:\n        there = set(nums)\n"
    "        return next(n for n in range(1, len(nums) + 2) if n not in there)",
    (([[1, 2, 4]], 3), ([[]], 1), ([[-1, 5, 1]], 2), ([[2, 1, 3]], 4)),
    "smallestMissing",
    "class Solution:\n    def smallestMissing(self, nums: List[int]) -> int:\n        ",
)
CLOCK = OwnProblem(
    "Read a number of seconds and print it as h:mm:ss, the hours without leading zeros.",
    "seconds = int(input())\nprint(f'{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}')",
    (("3661\n", "1:01:01\n"), ("59\n", "0:00:59\n"), ("90000\n", "25:00:00\n")),
)
DIGIT_STEPS = OwnProblem(
    "Write a function digit_steps(n). A step replaces a number by the sum of its digits. Return how many steps lead "
    "from n to a number of one digit.",
    "def digit_steps(n):\n    steps = 0\n    while n > 9:\n        n = sum(map(int, str(n)))\n        steps += 1\n"
    "    return steps",
    (([7], 0), ([19], 2), ([1234], 2), ([199], 3), ([10], 1)),
    "digit_steps",
)
COUNTERS = OwnProblem(
    "The first line has k and n: a bank has k counters, and n customers come at once. The second line has n numbers, "
    "the minutes that each of them needs, in the order of the queue. Whoever is first in the queue goes to the counter "
    "that is free first. Print after how many minutes the last customer is done.",
    "import heapq\n\nk, n = map(int, input().split())\nfree = [0] * k\nfor minutes in map(int, input().split()):\n"
    "    heapq.heappush(free, heapq.heappop(free) + minutes)\nprint(max(free))",
    (("2 4\n5 1 1 1\n", "5\n"), ("1 3\n2 2 2\n", "6\n"), ("3 4\n4 4 4 4\n", "8\n"), ("2 3\n1 2 9\n", "10\n")),
)
PAIRS_BELOW = OwnProblem(
    "Given an array nums of integers and a number target, return the number of pairs of different places in the array "
    "whose numbers add up to less than target.",
    "class Solution:\n    def pairsBelow(self, nums: List[int], target: int) -> int:\n"
    "        return sum(a + b < target for a, b in itertools.combinations(nums, 2))",
    (([[1, 2, 3], 5], 2), ([[], 1], 0), ([[-1, -1, 4], 4], 3), ([[5, 5], 10], 0)),
    "pairsBelow",
    "class Solution:\n    def pairsBelow(self, nums: List[int], target: int) -> int:\n        ",
)
TILES = OwnProblem(
    "A number n is given. Print the smallest number of square tiles with sides of 1, 2 or 3 whose areas add up to n.",
    "n = int(input())\nbest = [0] + [n] * n\nfor area in range(1, n + 1):\n"
    "    best[area] = 1 + min(best[area - side] for side in (1, 4, 9) if side <= area)\nprint(best[n])",
    (("1\n", "1\n"), ("12\n", "3\n"), ("13\n", "2\n"), ("20\n", "4\n")),
)


@dataclass(frozen=True)
class OwnFunction:
    """In HumanEval's form: the beginning of a function, what completes it, and asserts."""

    name: str
    prompt: str
    rest: str
    asserts: str

    @property
    def solution(self) -> str:
        return self.prompt + self.rest


FUNCTIONS = (
    OwnFunction(
        "swap_ends",
        'def swap_ends(words: list) -> list:\n    """Returns the words with the first and the last letter of each '
        'changed round.\n    >>> swap_ends(["stop", "a"])\n    [\'ptos\', \'a\']\n    """\n',
        "    return [w if len(w) < 2 else w[-1] + w[1:-1] + w[0] for w in words]\n",
        "    assert candidate(['stop', 'a']) == ['ptos', 'a']\n    assert candidate([]) == []\n"
        "    assert candidate(['ab', '']) == ['ba', '']\n",
    ),
    OwnFunction(
        "mean_and_spread",
        "import math\nfrom typing import List, Tuple\n\n\n"
        "def mean_and_spread(numbers: List[float]) -> Tuple[float, float]:\n"
        '    """The mean of the numbers, and the distance from the smallest to the largest, as a tuple.\n    """\n',
        "    return math.fsum(numbers) / len(numbers), max(numbers) - min(numbers)\n",
        "    for numbers, mean in (([1.0, 2.0, 4.5], 2.5), ([3.0], 3.0), ([0.1] * 10, 0.1)):\n"
        "        found = candidate(numbers)\n        assert isinstance(found, tuple)\n"
        "        assert abs(found[0] - mean) < 1e-9\n    assert candidate([1.0, 4.0])[1] == 3.0\n",
    ),
    OwnFunction(
        "unshift",
        'def shift(text: str) -> str:\n    """Moves each small letter three places on in the alphabet."""\n'
        '    return "".join(chr((ord(c) - 94) % 26 + 97) for c in text)\n\n\ndef unshift(text: str) -> str:\n'
        '    """Takes a text that was made by shift, and returns what it was made of."""\n',
        '    return "".join(chr((ord(c) - 100) % 26 + 97) for c in text)\n',
        "    from random import choice\n    import string\n    for length in range(20):\n"
        "        text = ''.join(choice(string.ascii_lowercase) for _ in range(length))\n"
        "        assert candidate(shift(text)) == text\n",
    ),
)


def primeintellect_rows() -> list[Row]:
    def tests(problem: OwnProblem) -> str:
        kind = "function_call" if problem.function else "stdin_stdout"
        outputs = [[out] if problem.function else out for _, out in problem.cases]
        given = {"type": kind, "fn_name": problem.function}
        inputs = [one for one, _ in problem.cases]
        return json.dumps([{**given, "input": one, "output": out} for one, out in zip(inputs, outputs, strict=True)])

    return [{"problem": p.statement, "solutions": [p.solution], "tests": tests(p)} for p in (RISES, LONGEST_RUN)]


def taco_rows() -> list[Row]:
    return [
        {"problem": p.statement, "tests": json.dumps(_inputs_outputs(p)), "solutions": [p.solution]}
        for p in (BOARD, MERGE_COUNTS)
    ]


def lcbv5_rows() -> list[Row]:
    return [
        {
            "problem": p.statement,
            "starter_code": p.starter,
            "tests": json.dumps(_livecodebench_cases(p)),
            "metadata": {"func_name": p.function},
        }
        for p in (MIRROR, SMALLEST_MISSING)
    ]


def codeforces_rows() -> list[Row]:
    return [
        {"problem": p.statement, "tests": json.dumps([{"input": given, "output": out} for given, out in p.cases])}
        for p in (TILES,)
    ]


def synthetic2_rows() -> list[Row]:
    return [
        {
            "problem_id": f"prime_rl_code_own_{number}",
            "task_type": "prime_rl_code",
            "prompt": f"{p.statement}\n\nWrite Python code to solve the problem.",
            "verification_info": json.dumps(
                {"style": "rule", "test_cases": json.dumps(_inputs_outputs(p, wraps=True))}
            ),
        }
        for number, p in enumerate((CLOCK, DIGIT_STEPS))
    ]


def livecodebench_rows() -> list[Row]:
    rows: list[Row] = []
    for number, problem in enumerate((COUNTERS, PAIRS_BELOW)):
        cases = _livecodebench_cases(problem)
        rows.append(
            {
                "question_title": f"own {number}",
                "question_content": problem.statement,
                "platform": "leetcode" if problem.function else "atcoder",
                "question_id": f"own{number}",
                "contest_id": "own",
                "contest_date": "2025-01-04T00:00:00",
                "starter_code": problem.starter,
                "difficulty": "easy",
                "public_test_cases": json.dumps(cases[:1]),
                "private_test_cases": packed(json.dumps(cases[1:])),
                "metadata": json.dumps({"func_name": problem.function} if problem.function else {}),
            }
        )
    return rows


def packed(text: str) -> str:
    """As LiveCodeBench packs its private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(text))).decode()


def human_eval_rows() -> list[Row]:
    return [
        {
            "task_id": f"own/{number}",
            "prompt": function.prompt,
            "canonical_solution": function.rest,
            "test": f"\n\nMETADATA = {{}}\n\n\ndef check(candidate):\n{function.asserts}",
            "entry_point": function.name,
        }
        for number, function in enumerate(FUNCTIONS)
    ]


def _inputs_outputs(problem: OwnProblem, wraps: bool = False) -> dict[str, Any]:
    """`wraps`: each value of a function in a list of its own, as some of the public rows have it."""
    tests: dict[str, Any] = {
        "inputs": [given for given, _ in problem.cases],
        "outputs": [[out] if wraps and problem.function else out for _, out in problem.cases],
    }
    return tests | ({"fn_name": problem.function} if problem.function else {})


def _livecodebench_cases(problem: OwnProblem) -> list[dict[str, Any]]:
    if problem.function is None:
        return [{"input": given, "output": out, "testtype": "stdin"} for given, out in problem.cases]
    return [
        {"input": "\n".join(map(json.dumps, args)), "output": json.dumps(value), "testtype": "functional"}
        for args, value in problem.cases
    ]


PROBLEMS = (
    RISES, LONGEST_RUN, BOARD, MERGE_COUNTS, MIRROR, SMALLEST_MISSING, CLOCK, DIGIT_STEPS, COUNTERS, PAIRS_BELOW, TILES,
)  # fmt: skip


def solution_of(question: str) -> str:
    """Raises LookupError when the question is none of ours."""
    for problem in PROBLEMS:
        if problem.statement in question:
            return problem.solution
    for function in FUNCTIONS:
        if function.prompt in question:
            return function.solution
    raise LookupError("no solution is known: it is no problem of our own")
