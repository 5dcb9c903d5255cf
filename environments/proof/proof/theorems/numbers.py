"""Theorems on whole numbers."""

from proof.theorems.theorem import Flaw, Theorem

NUMBERS = (
    Theorem(
        name="odd-squares",
        problem="Prove that the square of every odd whole number leaves the remainder 1 when it is divided by 8.",
        proof=(
            "Let n = 2k + 1 be odd. Then n^2 = 4k^2 + 4k + 1 = 4k(k + 1) + 1.",
            "Of the two neighbours k and k + 1 one is even, so k(k + 1) = 2m for a whole number m.",
            "Hence n^2 = 8m + 1, which leaves the remainder 1.",
        ),
        flawed=(
            "Let n = 2k + 1 be odd. Then n^2 = 4k^2 + 4k + 1 = 4k(k + 1) + 1.",
            "The number 4k(k + 1) is divisible by 4, and it is even, that is divisible by 2. So it is divisible by "
            "4 * 2 = 8.",
            "Hence n^2 = 8m + 1 for a whole number m, which leaves the remainder 1.",
        ),
        gap=Flaw((2,), "divisible by 4 and by 2 does not give divisible by 8 (4 itself is both); that k or k + 1 is "
                 "even was needed and is not used"),
        score=0.0,
        invented=Flaw((2,), "it is not shown that k(k + 1) is even when k is negative"),
        decoy=Flaw((1,), "the expansion of (2k + 1)^2 lacks a term"),
    ),
    Theorem(
        name="root-of-six",
        problem="Prove that the square root of 6 is irrational.",
        proof=(
            "Suppose that the root is a/b with whole numbers a, b > 0 that have no common divisor above 1. Then "
            "a^2 = 6b^2.",
            "So a^2 is even, and since the square of an odd number is odd, a is even: a = 2c.",
            "Then 4c^2 = 6b^2, so 2c^2 = 3b^2, and 3b^2 is even. An odd b would make 3b^2 odd, so b is even.",
            "Now 2 divides a and b, which contradicts the choice of the fraction.",
        ),
        flawed=(
            "Suppose that the root is a/b with whole numbers a, b > 0 that have no common divisor above 1. Then "
            "a^2 = 6b^2.",
            "So 6 divides a^2. Whenever a number m divides a square a^2, it divides a. So a = 6c.",
            "Then 36c^2 = 6b^2, so b^2 = 6c^2 and in the same way 6 divides b.",
            "Now 6 divides a and b, which contradicts the choice of the fraction.",
        ),
        gap=Flaw((2,), "the rule is false: 4 divides 2^2 and not 2. For 6 it would have to be shown, by its different "
                 "primes 2 and 3"),
        score=0.5,
        invented=Flaw((3,), "b was chosen without a common divisor with a, so it may not be assumed to be odd"),
        decoy=Flaw((1,), "not every fraction can be written without common divisors"),
    ),
    Theorem(
        name="primes-without-end",
        problem="Prove that there are infinitely many primes.",
        proof=(
            "Let p_1, ..., p_n be any finite list of primes, and N = p_1 * ... * p_n + 1.",
            "N is greater than 1, so it has a prime divisor q.",
            "If q were one of the list, it would divide N and N - 1, and so their difference 1. So q is not in the "
            "list.",
            "Hence no finite list holds all primes.",
        ),
        flawed=(
            "Let p_1, ..., p_n be the first n primes, and N = p_1 * ... * p_n + 1.",
            "N leaves the remainder 1 on division by each of p_1, ..., p_n, so none of them divides it.",
            "A number that none of these primes divides is a prime. So N is a prime, and greater than p_n.",
            "So after any n primes there comes another, and there are infinitely many.",
        ),
        gap=Flaw((3,), "N need not be prime, it may have prime divisors beyond p_n: 2*3*5*7*11*13 + 1 = 59 * 509. Only "
                 "the existence of a new prime divisor follows"),
        score=0.5,
        invented=Flaw((2,), "that a number above 1 has a prime divisor is what is to be proved"),
        decoy=Flaw((2,), "the remainder of N on division by p_1 may be 0"),
    ),
    Theorem(
        name="cube-minus-number",
        problem="Prove that 6 divides n^3 - n for every natural number n.",
        proof=(
            "n^3 - n = (n - 1)n(n + 1), a product of three neighbours.",
            "Of two neighbours one is even, so 2 divides the product.",
            "Of three neighbours one is divisible by 3, so 3 divides the product.",
            "2 and 3 have no common divisor, so 2 * 3 = 6 divides it.",
        ),
        flawed=(
            "By induction. For n = 1 it is 0, which 6 divides.",
            "Let 6 divide n^3 - n. Then (n + 1)^3 - (n + 1) = (n^3 - n) + 3n^2 + 3n.",
            "Here 3n^2 + 3n = 3(n^2 + n) is divisible by 3. Since 6 divides n^3 - n, the sum of the two is divisible "
            "by 6.",
            "So the claim holds for n + 1, and by induction for all n.",
        ),
        gap=Flaw((3,), "from 3(n^2 + n) only divisibility by 3 is shown; that n^2 + n = n(n + 1) is even is missing, "
                 "and without it the sum need not be divisible by 6"),
        score=0.5,
        invented=Flaw((4,), "from divisibility by 2 and by 3 divisibility by 6 does not follow"),
        decoy=Flaw((2,), "(n + 1)^3 is expanded wrongly, it should have 3n^2 + 3n + 3"),
    ),
    Theorem(
        name="mersenne-exponent",
        problem="Let n be a natural number for which 2^n - 1 is a prime. Prove that n is a prime.",
        proof=(
            "n = 1 gives 1, which is no prime, so n > 1. Suppose n = ab with 1 < a < n and 1 < b < n.",
            "Then 2^n - 1 = (2^a)^b - 1 = (2^a - 1)(1 + 2^a + ... + 2^(a(b - 1))).",
            "As 1 < a < n, the first factor lies strictly between 1 and 2^n - 1. So 2^n - 1 is no prime, against what "
            "was given. Hence n is a prime.",
        ),
        flawed=(
            "For n = 2, 3, 5 and 7 the numbers 2^n - 1 are 3, 7, 31 and 127, which are primes.",
            "Let n be a prime. Then there is no a with 1 < a < n that divides n.",
            "A factor of 2^n - 1 is 2^a - 1 for a divisor a of n. So there is none between 1 and 2^n - 1.",
            "Hence 2^n - 1 is a prime exactly when n is, and the claim follows.",
        ),
        gap=Flaw((2, 3, 4), "it argues from n to 2^n - 1, the converse of what is asked, and even that is false "
                 "(2^11 - 1 = 23 * 89): factors need not have the form 2^a - 1"),
        score=0.0,
        invented=Flaw((2,), "the sum in the second factor has no end when b is large"),
        decoy=Flaw((1,), "127 is no prime, as 7 divides it"),
    ),
    Theorem(
        name="neighbouring-primes",
        problem="Let p < q be two odd primes with no prime between them. Prove that p + q is a product of at least "
        "three primes, which need not be different.",
        proof=(
            "p and q are odd, so p + q = 2m with the whole number m = (p + q)/2.",
            "m lies strictly between p and q, and there is no prime between them. So m, which is greater than 1, is "
            "no prime, and is a product of at least two primes.",
            "With the factor 2, p + q is a product of at least three primes.",
        ),
        flawed=(
            "p and q are odd, so p + q = 2m with the whole number m = (p + q)/2.",
            "m is the mean of two odd numbers, so it is even: m = 2r, and r > 1 as p + q is at least 8.",
            "So p + q = 2 * 2 * r is a product of at least three primes.",
        ),
        gap=Flaw((2,), "the mean of two odd numbers need not be even: 7 and 11 have the mean 9. That m lies between "
                 "neighbouring primes is not used"),
        score=0.0,
        invented=Flaw((2,), "m might be equal to p"),
        decoy=Flaw((1,), "p may be 2, and then p + q is odd"),
    ),
)  # fmt: skip
