"""Twenty short theorems of our own, each with a proof that holds and one with a planted gap."""

from proof.theorems.algebra import ALGEBRA
from proof.theorems.counting import COUNTING
from proof.theorems.numbers import NUMBERS
from proof.theorems.theorem import Flaw, Theorem

THEOREMS: tuple[Theorem, ...] = (*NUMBERS, *ALGEBRA, *COUNTING)

__all__ = ["THEOREMS", "Flaw", "Theorem"]
