"""Theorems on real numbers, polynomials, functions and limits."""

from proof.theorems.theorem import Flaw, Theorem

ALGEBRA = (
    Theorem(
        name="three-squares",
        problem="Prove that a^2 + b^2 + c^2 >= ab + bc + ca for all real numbers a, b, c.",
        proof=(
            "Twice the difference of the sides is 2a^2 + 2b^2 + 2c^2 - 2ab - 2bc - 2ca.",
            "This is (a - b)^2 + (b - c)^2 + (c - a)^2.",
            "A sum of squares is not negative, so the left side is at least the right side.",
        ),
        flawed=(
            "Both sides stay the same when a, b, c change places, so let a >= b >= c.",
            "Then a^2 >= ab, b^2 >= bc and c^2 >= ca.",
            "Adding the three gives the claim.",
        ),
        gap=Flaw((2,), "c is the least, so c^2 >= ca is false for positive numbers (c = 1, a = 2); the other two need "
                 "signs as well"),
        score=0.0,
        invented=Flaw((2,), "the squares are right only for different a, b, c"),
        decoy=Flaw((1,), "the sides do change when a and b change places, so no order may be assumed"),
    ),
    Theorem(
        name="powers-with-inverse",
        problem="Let x be a real number other than 0 such that x + 1/x is a whole number. Prove that x^n + 1/x^n is a "
        "whole number for every natural number n.",
        proof=(
            "Write t_n = x^n + 1/x^n. Then t_0 = 2 is whole, and t_1 is by assumption.",
            "Multiplying out gives t_1 * t_n = t_(n+1) + t_(n-1) for n >= 1.",
            "If t_(n-1) and t_n are whole, so is t_(n+1) = t_1 * t_n - t_(n-1).",
            "By induction, beginning with t_0 and t_1, all t_n are whole.",
        ),
        flawed=(
            "Write t_n = x^n + 1/x^n. For n = 1 the claim is the assumption.",
            "Suppose that t_n is whole for some n.",
            "Multiplying out gives t_1 * t_n = t_(n+1) + t_(n-1). The left side is whole, so t_(n+1) is whole.",
            "By induction all t_n are whole.",
        ),
        gap=Flaw((2, 3), "that t_(n-1) is whole is used and neither supposed nor shown: from a whole sum no whole term "
                 "follows. The induction needs two cases before and two at the beginning"),
        score=0.5,
        invented=Flaw((1,), "t_0 is not defined, as 0 is no natural number"),
        decoy=Flaw((1,), "for n = 1 it is not known that x + 1/x is whole"),
    ),
    Theorem(
        name="bernoulli",
        problem="Prove that (1 + x)^n >= 1 + nx for every natural number n and every real x >= -1.",
        proof=(
            "By induction on n. For n = 1 both sides are equal.",
            "Let (1 + x)^n >= 1 + nx. As 1 + x >= 0, multiplying by it keeps the order: "
            "(1 + x)^(n+1) >= (1 + nx)(1 + x).",
            "The right side is 1 + (n + 1)x + nx^2, which is at least 1 + (n + 1)x since nx^2 >= 0.",
            "So the claim holds for n + 1.",
        ),
        flawed=(
            "By the binomial theorem (1 + x)^n = 1 + nx + C(n,2)x^2 + ... + C(n,n)x^n.",
            "The coefficients C(n,k) are positive, so all terms after nx are at least 0.",
            "Leaving them out makes the right side smaller or keeps it, so (1 + x)^n >= 1 + nx.",
        ),
        gap=Flaw((2,), "for -1 <= x < 0 the terms with odd powers of x are negative; only the case x >= 0 is proved"),
        score=0.5,
        invented=Flaw((3,), "nx^2 may be negative when x is"),
        decoy=Flaw((1,), "the binomial theorem does not hold for negative x"),
    ),
    Theorem(
        name="odd-at-zero-and-one",
        problem="Let p be a polynomial with whole coefficients such that p(0) and p(1) are odd. Prove that p has no "
        "whole number as a root.",
        proof=(
            "Let p(x) = a_0 + a_1 x + ... + a_d x^d, and let n be a whole number.",
            "If n is even, n^k is even for k >= 1, so p(n) has the parity of a_0 = p(0) and is odd.",
            "If n is odd, n^k is odd for all k, so p(n) has the parity of a_0 + ... + a_d = p(1) and is odd.",
            "An odd number is not 0, so n is no root.",
        ),
        flawed=(
            "Let p(x) = a_0 + a_1 x + ... + a_d x^d, and let n be a whole number.",
            "If n is even, n^k is even for k >= 1, so p(n) has the parity of a_0 = p(0) and is odd.",
            "If n is odd, all n^k are odd, so every term a_k n^k is odd, and a sum of odd terms is odd.",
            "In both cases p(n) is odd and not 0.",
        ),
        gap=Flaw((3,), "a_k n^k is even where a_k is, and a sum of odd terms is even when their number is; p(1) is not "
                 "used at all"),
        score=0.5,
        invented=Flaw((3,), "for odd n the power n^k is even when k is even"),
        decoy=Flaw((2,), "for even n the term a_0 is even as well"),
    ),
    Theorem(
        name="sum-zero-cubes",
        problem="Let a + b + c = 0 for real numbers a, b, c. Prove that a^3 + b^3 + c^3 = 3abc.",
        proof=(
            "From a + b = -c it follows that (a + b)^3 = -c^3.",
            "So a^3 + b^3 + 3ab(a + b) = -c^3, that is a^3 + b^3 + c^3 = -3ab(a + b).",
            "With a + b = -c the right side is 3abc.",
        ),
        flawed=(
            "Both sides are polynomials of degree 3 in a, b and c.",
            "For (1, 1, -2) both are -6, for (1, 2, -3) both are -18, for (1, -1, 0) both are 0, for (2, 3, -5) both "
            "are -90.",
            "Two polynomials of degree 3 that agree in four places are equal, so the sides are equal whenever "
            "a + b + c = 0.",
        ),
        gap=Flaw((3,), "four places settle a polynomial of degree 3 in one variable; with c = -a - b there are two "
                 "variables left, and four places do not settle it"),
        score=0.0,
        invented=Flaw((2,), "the cube of a + b has the mixed term ab(a + b), without the 3"),
        decoy=Flaw((2,), "for (1, 2, -3) the cubes add up to -12"),
    ),
    Theorem(
        name="additive-function",
        problem="Let f be a function on the rational numbers with f(x + y) = f(x) + f(y) for all x, y. Prove that "
        "f(x) = x f(1) for every rational x.",
        proof=(
            "f(0) = f(0) + f(0), so f(0) = 0. And f(x) + f(-x) = f(0) = 0, so f(-x) = -f(x).",
            "Adding x to itself n times gives f(nx) = n f(x) for natural n; by step 1 this holds for all whole n.",
            "For x = m/n with whole m and natural n: n f(m/n) = f(m) = m f(1).",
            "Dividing by n gives f(m/n) = (m/n) f(1).",
        ),
        flawed=(
            "Adding x to itself n times gives f(nx) = n f(x) for natural n.",
            "With x = 1 this is f(n) = n f(1).",
            "For natural m, n: n f(m/n) = f(m) = m f(1), so f(m/n) = (m/n) f(1).",
            "Every rational number is such a fraction m/n, so f(x) = x f(1) for every rational x.",
        ),
        gap=Flaw((4,), "fractions of natural numbers are the positive rationals only; x = 0 and negative x are "
                 "missing, for which f(0) = 0 and f(-x) = -f(x) are to be shown"),
        score=0.5,
        invented=Flaw((4,), "division by n is not allowed, since n may be 0"),
        decoy=Flaw((3,), "f(m) = m f(1) was shown for m = 1 only"),
    ),
    Theorem(
        name="bounded-times-null",
        problem="Let a_n be real numbers that tend to 0, and b_n real numbers with |b_n| <= M for all n. Prove that "
        "a_n b_n tends to 0.",
        proof=(
            "Let e > 0, and M > 0 without loss, as a larger bound is a bound too.",
            "As a_n tends to 0, there is an N with |a_n| < e/M for all n >= N.",
            "For these n: |a_n b_n| <= |a_n| M < e. So a_n b_n tends to 0.",
        ),
        flawed=(
            "That |b_n| <= M means that every b_n lies between -M and M.",
            "The limit of a product is the product of the limits.",
            "So lim a_n b_n = lim a_n * lim b_n = 0 * lim b_n.",
            "As b_n is bounded, lim b_n is a number and no infinity, so the product is 0.",
        ),
        gap=Flaw((2, 3, 4), "b_n need not have a limit (b_n = (-1)^n is bounded), and the rule on products asks for "
                 "both limits"),
        score=0.0,
        invented=Flaw((2,), "N depends on e, so it may not be chosen"),
        decoy=Flaw((1,), "a number may have an absolute value of at most M and lie below -M"),
    ),
)  # fmt: skip
