"""`Theorem`: a claim, a proof of it, and a proof that has a gap."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Flaw:
    """What is said to be wrong: truly (a planted gap), or not (an invented one)."""

    steps: tuple[int, ...]  # from 1; more than one where a reader may as well name another
    what: str


@dataclass(frozen=True)
class Theorem:
    name: str
    problem: str
    proof: tuple[str, ...]  # its steps
    flawed: tuple[str, ...]
    gap: Flaw  # of `flawed`
    score: float  # of `flawed`: 0.5 where the idea is right and a part is missing, 0 where it proves nothing
    invented: Flaw  # against `proof`: sounds like an objection and is none
    decoy: Flaw  # the same against a sound step of `flawed`
