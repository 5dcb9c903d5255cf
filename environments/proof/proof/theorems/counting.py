"""Theorems of counting and of figures."""

from proof.theorems.theorem import Flaw, Theorem

COUNTING = (
    Theorem(
        name="two-coprime",
        problem="From the numbers 1, 2, ..., 2n any n + 1 are chosen. Prove that two of the chosen have no common "
        "divisor above 1.",
        proof=(
            "Put the numbers into the n pairs (1, 2), (3, 4), ..., (2n - 1, 2n).",
            "n + 1 numbers are chosen and there are n pairs, so both numbers of some pair are chosen.",
            "They are neighbours k and k + 1; a common divisor divides their difference 1.",
        ),
        flawed=(
            "Put the numbers into the n pairs (1, n + 1), (2, n + 2), ..., (n, 2n).",
            "n + 1 numbers are chosen and there are n pairs, so both numbers of some pair are chosen.",
            "They differ by n, and numbers that differ by n have no common divisor above 1.",
        ),
        gap=Flaw((3,), "numbers that differ by n may have a common divisor of n: for n = 2 the pair (2, 4)"),
        score=0.0,
        invented=Flaw((2,), "the n + 1 numbers might all lie in different pairs"),
        decoy=Flaw((2,), "there are n + 1 pairs, so no two of the chosen need to share one"),
    ),
    Theorem(
        name="odd-acquaintances",
        problem="At a party some pairs of guests know each other. Prove that the number of guests who know an odd "
        "number of guests is even.",
        proof=(
            "Add up, over all guests, how many each knows. Every pair that know each other is counted twice.",
            "So the sum is even.",
            "Guests with an even number add something even. So what the guests with an odd number add is even in sum, "
            "and a sum of odd numbers is even only when there is an even number of them.",
        ),
        flawed=(
            "Being acquainted is mutual: if A knows B, then B knows A.",
            "So guests can be put into pairs, such that the two of each pair know the same number of guests.",
            "Guests with an odd number therefore come in pairs, and their number is even.",
        ),
        gap=Flaw((2,), "that two guests know each other does not make their numbers equal, and no such pairing need "
                 "exist (three guests, one of whom knows both others)"),
        score=0.0,
        invented=Flaw((1,), "a pair is counted once, not twice"),
        decoy=Flaw((1,), "A may know B without being known by B"),
    ),
    Theorem(
        name="cut-chessboard",
        problem="Two opposite corner squares are cut off an 8 by 8 chessboard. Prove that the rest cannot be covered "
        "by 31 dominoes, each on two neighbouring squares.",
        proof=(
            "Colour the squares black and white as on a chessboard, 32 of each.",
            "Opposite corners have the same colour, say white. So 32 black and 30 white squares are left.",
            "Each domino covers one square of each colour, so 31 dominoes cover 31 black squares, and there are 32.",
        ),
        flawed=(
            "62 squares are left, so exactly 31 dominoes are needed.",
            "The top row has lost a corner and has 7 squares, an odd number.",
            "Dominoes cover two squares each, so a row with an odd number of squares cannot be covered. Hence the "
            "board cannot be either.",
        ),
        gap=Flaw((3,), "dominoes may also stand upright and reach into the next row, so a row of 7 is no obstacle by "
                 "itself"),
        score=0.0,
        invented=Flaw((2,), "opposite corners have different colours"),
        decoy=Flaw((2,), "the top row has 8 squares left, as both cut corners are in the bottom row"),
    ),
    Theorem(
        name="strong-player",
        problem="In a tournament every two players have played once, and no game was drawn. Prove that there is a "
        "player A such that everyone else lost to A or lost to someone who lost to A.",
        proof=(
            "Let A be a player with the most wins. Let B be anyone who beat A.",
            "If B had beaten everyone who lost to A, then B, who beat A too, would have more wins than A.",
            "So someone who lost to A was not beaten by B, and so beat B. This holds for every B who beat A.",
            "All others lost to A. So A is as asked.",
        ),
        flawed=(
            "Let A be any player with at least one win. Let B be anyone who beat A, and C someone who lost to A.",
            "If C beat B, then B lost to someone who lost to A, as asked.",
            "If B beat C, then B beat A and C and so has more wins than A; we go on with B in place of A.",
            "The number of wins cannot grow for ever, so at last we have a player as asked.",
        ),
        gap=Flaw((3,), "B beat one player who lost to A, not all of them, so B need not have more wins than A and the "
                 "replacing may run in circles"),
        score=0.5,
        invented=Flaw((1,), "there may be several players with the most wins, and then A is not defined"),
        decoy=Flaw((2,), "that C beat B says nothing of B"),
    ),
    Theorem(
        name="party-of-six",
        problem="Prove that among any six people there are three who all know each other, or three of whom no two know "
        "each other.",
        proof=(
            "Take one of them, P. Of the five others P knows at least three, or does not know at least three.",
            "Let P know A, B and C. If two of these know each other, they and P are three who all know each other.",
            "If no two of A, B, C know each other, these are three of whom no two know each other.",
            "The case that P does not know three of them is the same with knowing and not knowing exchanged.",
        ),
        flawed=(
            "Take one of them, P. Of the five others P knows at least three, or does not know at least three.",
            "Let P know A, B and C. Two of these know each other, and they and P are three who all know each other.",
            "The case that P does not know three of them is the same with knowing and not knowing exchanged.",
        ),
        gap=Flaw((2,), "A, B and C need not know each other at all; the case that no two of them do is missing"),
        score=0.5,
        invented=Flaw((1,), "P might know two and not know two of the others"),
        decoy=Flaw((3,), "knowing and not knowing cannot be exchanged in the claim"),
    ),
    Theorem(
        name="diagonals",
        problem="Prove that a convex polygon with n >= 3 corners has n(n - 3)/2 diagonals.",
        proof=(
            "From each corner a diagonal goes to every other corner but its two neighbours: n - 3 of them.",
            "Over all n corners that is n(n - 3), with each diagonal counted at both of its ends.",
            "So there are n(n - 3)/2.",
        ),
        flawed=(
            "By induction. A triangle has 0 = 3 * 0/2 diagonals.",
            "Let a polygon with n corners have n(n - 3)/2. A further corner, put between two neighbours, brings a "
            "diagonal to each of the n - 2 corners that are not its neighbours, and nothing else changes.",
            "So there are n(n - 3)/2 + (n - 2) = (n + 1)(n - 2)/2 diagonals, which is the claim for n + 1.",
        ),
        gap=Flaw((2, 3), "the side between the two neighbours becomes a diagonal too, so n - 1 are added; with n - 2 "
                 "the sum in step 3 is not what is claimed"),
        score=0.0,
        invented=Flaw((1,), "a diagonal may also go to a neighbour"),
        decoy=Flaw((1,), "a triangle has three diagonals"),
    ),
    Theorem(
        name="median-of-right-triangle",
        problem="Prove that in a right triangle the middle of the hypotenuse has the same distance from all three "
        "corners.",
        proof=(
            "Put the right angle at (0, 0) and the other corners at (a, 0) and (0, b). The middle is M = (a/2, b/2).",
            "The square of its distance from (0, 0) is (a^2 + b^2)/4.",
            "From (a, 0) and from (0, b) it is (a^2 + b^2)/4 as well, so the three distances are equal.",
        ),
        flawed=(
            "Stretching a figure evenly changes all its lengths by one factor, so equal distances stay equal.",
            "Any right triangle can be brought by such stretching to the corners (0, 0), (1, 0) and (0, 1).",
            "There the middle of the hypotenuse is (1/2, 1/2), at the distance sqrt(1/2) from all three corners.",
        ),
        gap=Flaw((2,), "even stretching keeps the ratio of the legs, so only triangles with equal legs can be brought "
                 "there"),
        score=0.0,
        invented=Flaw((1,), "a triangle cannot always be put that way, because a may differ from b"),
        decoy=Flaw((3,), "the point (1/2, 1/2) does not lie on the hypotenuse"),
    ),
)  # fmt: skip
