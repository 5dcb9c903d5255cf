"""Problems in the manner of the public sets, written for this project: for places without a network.

Each is put into the very schema of the set that it stands for, so that it takes the same way into an environment.
"""

from __future__ import annotations

import json
from typing import Any

Row = dict[str, Any]

SKYWORK = (
    ("How many positive integers below 1000 are divisible by 7 but not by 11?", "130"),
    ("Find the product of all real numbers $x$ for which $|x^2-10|=6$.", "64"),
    ("What is the coefficient of $x^3$ in the expansion of $(1+2x)^6$?", "160"),
    ("In how many ways can the letters of LEVEL be arranged so that the two L's are not next to each other?", "18"),
)
ACEREASON = (
    (
        "A fair die is thrown until a six appears. What is the probability that this takes exactly three throws?",
        r"\frac{25}{216}",
    ),
    (r"Simplify $\sqrt{50}+\sqrt{18}$ to a single term.", r"8\sqrt{2}"),
    ("For how many integers $n$ from 1 to 100 is $n^2+n+1$ divisible by 3?", "34"),
    ("The roots of $x^2-5x+3$ are $a$ and $b$. Find $a^3+b^3$.", "80"),
)
DAPO = (
    ("Find the remainder when $3^{2026}$ is divided by 41.", "9"),
    (r"How many pairs $(x, y)$ of integers satisfy $x^2+y^2\le 20$?", "69"),
    ("What is the least positive integer that has exactly 12 positive divisors?", "60"),
    (r"How many subsets of $\{1, 2, \dots, 9\}$ have an even sum? The empty set counts, with sum 0.", "256"),
)
ORZ = (
    ("A rectangle has perimeter 34 and a diagonal of length 13. What is its area?", "60"),
    (
        r"Find the value of $\frac{1}{1\cdot 2}+\frac{1}{2\cdot 3}+\dots+\frac{1}{49\cdot 50}$ as a fraction.",
        r"\frac{49}{50}",
    ),
    ("With how many zeros does the decimal form of 125! end?", "31"),
    (r"Let $f(x)=\frac{x}{x-1}$. What is $f(f(17))-f(f(3))$?", "14"),
)
AIME_2024 = (
    (
        r"Find the number of ordered pairs $(a, b)$ of positive integers whose least common multiple is 360.",
        "105",
    ),
    ("Find the sum of all two-digit integers $n$ such that the last two digits of $n^2$ are those of $n$.", "101"),
    (r"Find the remainder when $\sum_{k=1}^{100} k\cdot k!$ is divided by 1000.", "999"),
    (
        "A frog goes up a staircase of 12 steps in jumps of 1, 2 or 3 steps and never makes two jumps of 3 steps one "
        "after the other. In how many ways can it reach the top?",
        "821",
    ),
)
AIME_2025 = (
    ("How many integers from 1 to 2000 are the sum of the squares of two consecutive positive integers?", "31"),
    ("The real numbers $x$ and $y$ satisfy $x+y=12$ and $x^3+y^3=684$. Find $xy$.", "29"),
    (
        "How many sequences of six digits from {0, 1, 2} begin and end with the same digit and have no two equal "
        "neighbours?",
        "30",
    ),
    (
        "Three different integers are drawn at random from 1 to 9. The probability that their sum is divisible by 3 is "
        r"$\frac{m}{n}$ in lowest terms. Find $m+n$.",
        "19",
    ),
)

_PASSES = (0, 5, 11, 16)


def skywork_rows() -> list[Row]:
    return [
        {
            "data_source": "own",
            "prompt": [{"role": "user", "content": question}],
            "ability": "math",
            "reward_model": {"ground_truth": json.dumps([answer]), "style": "rule"},
            "extra_info": {
                "index": number,
                "model_difficulty": {
                    "DeepSeek-R1-Distill-Qwen-1.5B": min(16, _PASSES[number] + 3),
                    "DeepSeek-R1-Distill-Qwen-7B": _PASSES[number],
                    "DeepSeek-R1-Distill-Qwen-32B": max(0, _PASSES[number] - 4),
                },
            },
        }
        for number, (question, answer) in enumerate(SKYWORK)
    ]


def acereason_rows() -> list[Row]:
    return [{"problem": question, "answer": answer} for question, answer in ACEREASON]


def dapo_rows() -> list[Row]:
    """Each comes more than once, as in the public set."""
    rows = [
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": question}],
            "ability": "MATH",
            "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": f"own-{number}"},
        }
        for number, (question, answer) in enumerate(DAPO)
    ]
    return [*rows, *rows]


def orz_rows() -> list[Row]:
    return [
        {"0": {"from": "human", "value": question}, "1": {"from": "assistant", "ground_truth": {"value": answer}}}
        for question, answer in ORZ
    ]


def aime_2024_rows() -> list[Row]:
    return [
        {"id": number, "problem": question, "solution": "", "answer": answer, "url": "", "year": "2024"}
        for number, (question, answer) in enumerate(AIME_2024)
    ]


def aime_2025_rows() -> list[Row]:
    return [
        {"problem": question, "answer": answer, "id": str(number)}
        for number, (question, answer) in enumerate(AIME_2025)
    ]
