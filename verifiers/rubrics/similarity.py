"""Reward functions that compare the answer with the reference as text or as numbers: the same, or how close.

Each takes what the parser finds as the answer, and is used by name: `vf.Rubric(funcs=[vf.token_f1])`. An empty answer
is worth 0.0; a reference that is empty or `None` is a fault of the data and matches nothing.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from verifiers.errors import RewardFault
from verifiers.parsers import Parser
from verifiers.rubrics.graded import Graded

MAX_CHARS = 10_000  # what is compared letter by letter takes 30 ms at most for two texts of this length
MAX_TOKENS = 10_000
MAX_READ_CHARS = 200_000  # of an answer that is split into words
MAX_NUMBER_CHARS = 400


def exact_match(parser: Parser, completion: Any, answer: Any) -> float:
    """1.0 where answer and reference are the same text, up to Unicode's compatible forms, case and runs of spaces.

    Punctuation, articles and signs count: "-5" is not "5".

    >>> exact_match(Parser(), "  new\\nYork ", "New York"), exact_match(Parser(), "-5", "5")
    (1.0, 0.0)
    """
    gold, found = _gold(answer), _found(parser, completion)
    return float(_folded(found) == _folded(gold))


def token_f1(parser: Parser, completion: Any, answer: Any) -> float:
    """The F1 of shared words, as SQuAD counts it: lower case, without punctuation and English articles.

    >>> token_f1(Parser(), "in the city of Paris", "Paris city")
    0.6666666666666666
    """
    wanted, text = _words(_gold(answer)), _found(parser, completion)
    if not wanted:
        raise RewardFault(f"the reference answer {answer!r:.60} holds no word to compare by")
    if len(text) > MAX_READ_CHARS:
        return Graded(0.0, f"the answer has {len(text)} characters")
    found = _words(text)
    return _f1(sum((Counter(wanted) & Counter(found)).values()), len(wanted), len(found))


def rouge_l(parser: Parser, completion: Any, answer: Any) -> float:
    """ROUGE-L: the F1 of the longest common subsequence of words (runs of letters and digits, lower case).

    >>> rouge_l(Parser(), "the cat sat on a mat", "the cat is on the mat")
    0.6666666666666666
    """
    wanted = _TOKEN.findall(_gold(answer).casefold())
    found = _TOKEN.findall(_found(parser, completion).casefold())
    if not wanted or len(wanted) > MAX_TOKENS:
        raise RewardFault(f"the reference answer has {len(wanted)} words; rouge_l compares 1 to {MAX_TOKENS}")
    if len(found) > MAX_TOKENS:
        return Graded(0.0, f"the answer has {len(found)} words")
    return _f1(common_subsequence(wanted, found), len(wanted), len(found))


def edit_similarity(parser: Parser, completion: Any, answer: Any) -> float:
    """1 - distance / length of the longer text; the distance counts inserted, deleted and replaced characters.

    >>> edit_similarity(Parser(), "kitten", "sitting")
    0.5714285714285714
    """
    gold, found = _gold(answer).strip(), _found(parser, completion).strip()
    if len(gold) > MAX_CHARS:
        raise RewardFault(f"the reference answer has {len(gold)} characters; edit_similarity compares {MAX_CHARS}")
    if len(found) > MAX_CHARS:
        return Graded(0.0, f"the answer has {len(found)} characters")
    return 1.0 - edit_distance(gold, found) / max(len(gold), len(found))


def numeric_match(parser: Parser, completion: Any, answer: Any) -> float:
    """1.0 where the answer is a number within one part in a million of the reference, however small both are.

    >>> numeric_match(Parser(), "1/3", "0.33333333"), numeric_match(Parser(), "2e-20", "1e-20")
    (1.0, 0.0)
    """
    return float(_relative_error(parser, completion, answer) <= Fraction(1, 1_000_000))


def numeric_closeness(parser: Parser, completion: Any, answer: Any) -> float:
    """From 1.0 for the reference itself down to 0.0 for a relative error of 1 or more.

    >>> numeric_closeness(Parser(), "$90", "100"), numeric_closeness(Parser(), "about 100", "100")
    (0.9, 0.0)
    """
    return float(max(Fraction(0), 1 - _relative_error(parser, completion, answer)))


def _relative_error(parser: Parser, completion: Any, answer: Any) -> Fraction:
    wanted = read_number(_gold(answer))
    if wanted is None:
        raise RewardFault(f"the reference answer {answer!r:.60} is no number")
    found = read_number(_found(parser, completion))
    if found is None:
        return Fraction(2)
    return abs(found - wanted) / abs(wanted) if wanted else Fraction(0 if found == 0 else 2)


def read_number(text: str) -> Fraction | None:
    """A text that is one number and nothing else: "-1,234.5", "3/4", "6e-3", "12%", "$5". Exact, never rounded."""
    text = unicodedata.normalize("NFKC", text).strip().replace("−", "-")
    match = _NUMBER.fullmatch(text) if len(text) <= MAX_NUMBER_CHARS else None
    if match is None:
        return None
    whole = match["whole"].replace(",", "")
    value = Fraction(whole)
    if match["exponent"]:
        exponent = int(match["exponent"])
        if abs(exponent) > MAX_NUMBER_CHARS:
            return None
        value *= Fraction(10) ** exponent
    if match["below"]:
        below = int(match["below"])
        if below == 0:
            return None
        value /= below
    value = -value if match["sign"] == "-" else value
    return value / 100 if match["percent"] else value


_NUMBER = re.compile(
    r"(?P<sign>[-+]?)[$€£]?(?P<whole>(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE](?P<exponent>[-+]?[0-9]{1,4})|\s?[/⁄]\s?(?P<below>[0-9]+))?\s?(?P<percent>%?)\.?"
)
_TOKEN = re.compile(r"[^\W_]+")


def _gold(answer: Any) -> str:
    text = answer if isinstance(answer, str) else "" if answer is None or isinstance(answer, bool) else str(answer)
    if isinstance(answer, float) and not math.isfinite(answer):
        text = ""
    if not text.strip() or isinstance(answer, (list, tuple, dict, set)):
        raise RewardFault(f"the reference answer is {answer!r:.60}, not a text or a number")
    return text


def _found(parser: Parser, completion: Any) -> str:
    found = parser.parse_answer(completion)
    return "" if found is None else str(found)


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _words(text: str) -> list[str]:
    text = "".join(c for c in unicodedata.normalize("NFKC", text).lower() if unicodedata.category(c)[0] not in "PS")
    return [word for word in text.split() if word not in ("a", "an", "the")]


def _f1(shared: int, wanted: int, found: int) -> float:
    return 2 * shared / (wanted + found) if shared else 0.0


# Both below treat a row of the table of dynamic programming as the bits of one integer, so that a row is a handful of
# operations on it (Myers 1999, Hyyrö 2004).


def edit_distance(left: str, right: str) -> int:
    """Levenshtein's distance."""
    short, long = sorted((left, right), key=len)
    if not short:
        return len(long)
    places = _places(short)
    mask, last = (1 << len(short)) - 1, 1 << (len(short) - 1)
    up, down, distance = mask, 0, len(short)
    for char in long:
        here = places.get(char, 0)
        vertical = here | down
        diagonal = (((here & up) + up) ^ up) | here
        rises = down | ~(diagonal | up)
        falls = diagonal & up
        distance += bool(rises & last) - bool(falls & last)
        rises = (rises << 1) | 1
        up = ((falls << 1) | ~(vertical | rises)) & mask
        down = rises & vertical & mask
    return distance


def common_subsequence(left: Sequence[str], right: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    short, long = sorted((left, right), key=len)
    places = _places(short)
    mask = (1 << len(short)) - 1
    row = mask
    for token in long:
        here = row & places.get(token, 0)
        row = ((row + here) | (row - here)) & mask
    return len(short) - row.bit_count()


def _places(tokens: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for place, token in enumerate(tokens):
        found[token] = found.get(token, 0) | 1 << place
    return found
