"""`reverse-letters`: write a few letters backwards, and nothing else."""

from __future__ import annotations

import hashlib
import random

import verifiers as vf

LETTERS = "abcdefghij"
EVAL_SHARE = 5  # one word in five is for evaluation
MOST_LETTERS, FEWEST_LETTERS = 12, 2


def load_environment(
    letters: int = 5, num_train_examples: int = 2000, num_eval_examples: int = 100, seed: int = 0
) -> vf.Environment:
    """Words of `letters` letters from a to j. See the README for the arguments."""
    _check("letters", letters, FEWEST_LETTERS, MOST_LETTERS)
    _check("seed", seed, None, None)
    most = len(LETTERS) ** letters // (2 * EVAL_SHARE)  # leaves enough of them that drawing finds new ones soon
    _check("num_train_examples", num_train_examples, 1, most)
    _check("num_eval_examples", num_eval_examples, 1, most)
    return vf.SingleTurnEnv(
        dataset=lambda: rows("train", num_train_examples, letters, seed),
        eval_dataset=lambda: rows("eval", num_eval_examples, letters, seed),
        rubric=vf.Rubric([exact]),
    )


def exact(completion: vf.Messages, answer: str) -> float:
    """1 for the letters backwards and nothing else but space around them."""
    return float((completion[-1]["content"] or "").strip() == answer)


def rows(split: str, count: int, letters: int, seed: int) -> list[dict[str, str]]:
    """`count` different words of a split."""
    generator = random.Random(f"{split}/{letters}/{seed}")
    words: dict[str, None] = {}
    while len(words) < count:
        word = "".join(generator.choice(LETTERS) for _ in range(letters))
        if split_of(word) == split and word != word[::-1]:  # to repeat such a word would be to reverse it
            words[word] = None
    return [{"question": word, "answer": word[::-1]} for word in words]


def split_of(word: str) -> str:
    """A word belongs to one split for good, whatever the seed."""
    return "eval" if hashlib.sha256(word.encode()).digest()[0] % EVAL_SHARE == 0 else "train"


def _check(name: str, value: int, least: int | None, most: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if least is not None and most is not None and not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, got {value}")
