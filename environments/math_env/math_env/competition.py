"""Problems in the manner of competitions, written for this project.

`test_math_env.py` works out each answer a second time, by counting or by exact arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompetitionProblem:
    name: str
    topic: str
    question: str
    answer: str  # an integer or a fraction in lowest terms


def _problem(name: str, topic: str, answer: str, question: str) -> CompetitionProblem:
    return CompetitionProblem(name, topic, question, answer)


PROBLEMS: tuple[CompetitionProblem, ...] = (
    _problem("digit-sum", "counting", "28", "How many three-digit positive integers have digits that add up to 7?"),
    _problem("two-powers", "number theory", "2", "What is the remainder when 7^100 + 3^100 is divided by 25?"),
    _problem(
        "three-coins",
        "counting",
        "12",
        "In how many ways can 50 cents be paid with coins of 5, 10 and 20 cents, if the order of the coins does not "
        "matter and not every kind has to be used?",
    ),
    _problem(
        "shared-factor",
        "number theory",
        "4",
        "How many ordered pairs (a, b) of positive integers satisfy a + b = 60 and gcd(a, b) = 6?",
    ),
    _problem(
        "highest-die",
        "probability",
        "37/216",
        "Three fair six-sided dice are rolled. What is the probability that the highest number shown is exactly 4?",
    ),
    _problem(
        "inside-circle",
        "counting",
        "149",
        "How many points with integer coordinates lie strictly inside the circle x^2 + y^2 = 50?",
    ),
    _problem(
        "gapped-telescope",
        "algebra",
        "325/462",
        "Find the value of 1/(1*3) + 1/(2*4) + 1/(3*5) + ... + 1/(20*22) as a fraction in lowest terms.",
    ),
    _problem(
        "closed-crossing",
        "counting",
        "152",
        "A walker goes from (0, 0) to (5, 5) in steps of one unit to the right or one unit up. The crossing (2, 3) is "
        "closed. How many routes are left?",
    ),
    _problem(
        "fifteen-divisors", "number theory", "144", "What is the smallest positive integer with exactly 15 divisors?"
    ),
    _problem("fifth-powers", "algebra", "123", "If x + 1/x = 3, what is x^5 + 1/x^5?"),
    _problem(
        "palindromes",
        "counting",
        "100",
        "How many five-digit palindromes are divisible by 9?",
    ),
    _problem(
        "integer-triangles",
        "geometry",
        "12",
        "How many triangles with integer side lengths have perimeter 24, if congruent triangles count once?",
    ),
    _problem(
        "three-corners", "geometry", "24", "What is the area of the triangle with corners (1, 2), (7, 5) and (3, 11)?"
    ),
    _problem(
        "banana",
        "counting",
        "12",
        "How many arrangements of the letters of BANANA have no two neighbouring A's?",
    ),
    _problem(
        "committee",
        "counting",
        "81",
        "A committee of four is chosen from five boys and four girls. In how many ways can it have at least two girls?",
    ),
    _problem("square-sum", "number theory", "32", "How many pairs (x, y) of integers satisfy x^2 + y^2 = 1105?"),
    _problem(
        "trailing-zeros",
        "number theory",
        "85",
        "What is the smallest positive integer n for which n! ends in at least 20 zeros?",
    ),
    _problem(
        "unit-fractions",
        "number theory",
        "15",
        "How many ordered pairs (a, b) of positive integers satisfy 1/a + 1/b = 1/12?",
    ),
    _problem(
        "recurrence",
        "algebra",
        "2188",
        "A sequence starts with 2, and each further term is three times the last one, less 2. What is its eighth term?",
    ),
    _problem(
        "larger-card",
        "probability",
        "22/3",
        "Two different cards are drawn at random from ten cards numbered 1 to 10. What is the expected value of the "
        "larger number?",
    ),
    _problem(
        "no-neighbours",
        "counting",
        "144",
        "How many subsets of {1, 2, ..., 10}, the empty one included, contain no two consecutive numbers?",
    ),
    _problem(
        "golden-remainder",
        "algebra",
        "144",
        "The polynomial x^10 is divided by x^2 - x - 1, which leaves the remainder r(x). What is r(2)?",
    ),
    _problem("cubic-roots", "algebra", "26", "What is the sum of the squares of the roots of x^3 - 6x^2 + 5x - 7 = 0?"),
    _problem(
        "no-double-heads",
        "probability",
        "21/64",
        "A fair coin is tossed six times. What is the probability that heads never comes twice in a row?",
    ),
    _problem(
        "altitude",
        "geometry",
        "420/29",
        "The legs of a right triangle are 20 and 21 long. How long is the altitude to the hypotenuse?",
    ),
    _problem(
        "incircle", "geometry", "4", "What is the radius of the circle inscribed in the triangle with sides 13, 14, 15?"
    ),
    _problem(
        "three-pipes",
        "algebra",
        "36/7",
        "One pipe fills a tank in 6 hours, another fills it in 9 hours, and a drain empties it in 12 hours. The tank "
        "is empty and all three are opened. After how many hours is it full?",
    ),
    _problem(
        "always-one",
        "number theory",
        "2521",
        "What is the smallest integer above 1 that leaves remainder 1 when it is divided by each of 2, 3, ..., 10?",
    ),
    _problem("how-many-digits", "number theory", "38", "How many digits does 2^40 * 5^37 have in decimal notation?"),
    _problem("nines", "number theory", "171", "What is the sum of the digits of 10^20 - 2026?"),
    _problem(
        "ten-times",
        "algebra",
        "512/513",
        "Let f(x) = 2x / (x + 1). Starting from 1/2, f is applied nine times, each time to the last result. What is "
        "the final value?",
    ),
    _problem(
        "full-boxes",
        "counting",
        "150",
        "In how many ways can five different balls be put into three different boxes so that no box stays empty?",
    ),
    _problem("largest-prime", "number theory", "73", "What is the largest prime factor of 3^12 - 1?"),
    _problem(
        "three-factors",
        "number theory",
        "60",
        "How many ordered triples (a, b, c) of positive integers have the product 72?",
    ),
    _problem(
        "best-split",
        "algebra",
        "1458",
        "Several positive integers add up to 20. What is the largest value that their product can have?",
    ),
    _problem("two-distances", "algebra", "15", "How many integers x satisfy |x - 3| + |x + 5| <= 14?"),
)
