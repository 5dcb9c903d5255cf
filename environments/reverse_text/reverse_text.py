"""`reverse-text`: write a sentence backwards, letter by letter, between two tags."""

from __future__ import annotations

import hashlib
import random
from difflib import SequenceMatcher
from typing import Any

import verifiers as vf

SYSTEM_PROMPT = (
    "Reverse the user's text character by character, spaces and punctuation included. "
    "Write nothing but the result, in <reversed_text>...</reversed_text>."
)
SHORTEST, LONGEST = 4, 40  # words in a text
LONGEST_CLAUSE = 8  # so that what is left after a clause is never too short for one
MOST_TRAIN, MOST_EVAL = 20_000, 5_000  # there are 57,344 texts of the shortest length
EVAL_SHARE = 4  # one text in four is for evaluation

# fmt: off
NAMES = [
    "Ada", "Boris", "Carla", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Irma", "Jonas", "Kemal",
    "Lucia", "Miriam", "Nils", "Olga", "Pavel",
]
VERBS = [
    "borrowed", "carried", "dropped", "found", "hid", "lost", "mended", "opened", "painted", "sold",
    "stole", "wanted", "washed", "wrapped", "drew", "broke",
]
ADJECTIVES = [
    "ancient", "broken", "clever", "dusty", "empty", "foreign", "golden", "heavy", "lonely",
    "modern", "narrow", "quiet", "rusty", "shiny", "tiny", "odd",
]
OBJECTS = [
    "baskets", "bottles", "boxes", "cameras", "carpets", "drums", "hammers", "kites", "ladders",
    "lanterns", "letters", "maps", "pillows", "tickets",
]
TIMES = ["yesterday", "today", "again", "twice", "later", "once", "early", "quickly", "quietly", "soon"]
LINKS = ["while", "before", "after", "because"]
# fmt: on


def load_environment(
    num_train_examples: int = 1000,
    num_eval_examples: int = 100,
    min_words: int = SHORTEST,
    max_words: int = 12,
    seed: int = 0,
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One sentence, once backwards. See the README for the arguments."""
    _check_integer("num_train_examples", num_train_examples, least=1, most=MOST_TRAIN)
    _check_integer("num_eval_examples", num_eval_examples, least=1, most=MOST_EVAL)
    _check_integer("min_words", min_words, least=SHORTEST, most=LONGEST)
    _check_integer("max_words", max_words, least=min_words, most=LONGEST)
    _check_integer("seed", seed)
    parser = vf.XMLParser(["reversed_text"], answer_field="reversed_text")
    format_reward = parser.get_format_reward_func()
    return vf.SingleTurnEnv(
        dataset=lambda: rows("train", num_train_examples, seed, min_words, max_words),
        eval_dataset=lambda: rows("eval", num_eval_examples, seed, min_words, max_words),
        system_prompt=system_prompt,
        parser=parser,
        rubric=vf.Rubric(funcs=[exact, similarity, format_reward], weights=[0.5, 0.45, 0.05], parser=parser),
    )


def exact(parser: vf.XMLParser, completion: vf.Messages, answer: str) -> float:
    return float(only_answer(parser, completion) == answer)


def similarity(parser: vf.XMLParser, completion: vf.Messages, answer: str) -> float:
    return similarity_gained(only_answer(parser, completion), answer)


def only_answer(parser: vf.XMLParser, completion: vf.Messages) -> str:
    """What stands between the tags; nothing when two pairs of them disagree, for that is a hedge."""
    text = (parser.assistant_texts(completion) or [""])[-1]
    first, last = parser.parse(text).reversed_text, parser.parse(text, last=True).reversed_text
    return first if first is not None and first == last else ""


def similarity_gained(written: str, answer: str) -> float:
    """From 0, no more like the answer than the text itself was, to 1, equal to it.

    Every text is somewhat like its reverse. Without taking that off, copying the text would earn a fifth of it.
    """
    if len(written) > 2 * len(answer):  # no such text is near, and comparing takes time with the square of the length
        return 0.0
    of_text = _ratio(answer[::-1], answer)
    return max(0.0, (_ratio(written, answer) - of_text) / (1 - of_text))


def rows(split: str, count: int, seed: int, min_words: int, max_words: int) -> list[dict[str, Any]]:
    """Different texts. Each belongs to one split for good, whatever the seed."""
    rng = random.Random(f"{split}/{seed}")
    texts: dict[str, None] = {}  # a set that keeps its order
    while len(texts) < count:
        text = sentence(rng, rng.randint(min_words, max_words))
        if _is_for_eval(text) == (split == "eval"):
            texts[text] = None
    return [{"question": text, "answer": text[::-1]} for text in texts]


def sentence(rng: random.Random, length: int) -> str:
    """A sentence of `length` words: clauses of 4 to 8 with a word between them.

    >>> sentence(random.Random(1), 9)
    'Irma found clever kites, because Miriam mended odd bottles.'
    """
    parts: list[str] = []
    while length > LONGEST_CLAUSE:
        size = rng.randint(SHORTEST, min(LONGEST_CLAUSE, length - SHORTEST - 1))
        parts += [clause(rng, size) + ",", rng.choice(LINKS)]
        length -= size + 1
    return " ".join([*parts, clause(rng, length)]) + "."


def clause(rng: random.Random, length: int) -> str:
    """Who did something to what, with as many adjectives as it takes."""
    time = [rng.choice(TIMES)] if length > SHORTEST else []
    adjectives = rng.sample(ADJECTIVES, length - 3 - len(time))
    return " ".join([rng.choice(NAMES), rng.choice(VERBS), *adjectives, rng.choice(OBJECTS), *time])


def _is_for_eval(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] % EVAL_SHARE == 0


def _ratio(a: str, b: str) -> float:
    """2 * matching characters / all characters, in matching blocks."""
    return SequenceMatcher(None, a, b, autojunk=False).ratio()


def _check_integer(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> None:
    bounds = f", {least} or more" if least is not None else ""
    bounds = f" from {least} to {most}" if most is not None else bounds
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer or (least is not None and value < least) or (most is not None and value > most):
        raise ValueError(f"{name}={value!r}: give a whole number{bounds}")
