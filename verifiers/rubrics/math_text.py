r"""The text of a mathematical answer, freed from typography and cut into tokens.

Unicode signs become their LaTeX commands, size and spacing commands go, `\text{…}` becomes words.
"""

# ruff: noqa: SIM905  (tables of names read best as text)

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from verifiers.parsers import extract_boxed_answer
from verifiers.rubrics.math_units import UNITS

MAX_CHARS = 10_000  # a longer answer is only compared as text


class Unreadable(Exception):
    """Not in the notation we read; another reader may still understand it."""


class NoAnswer(Exception):
    """Reads as something, but never as one answer: several numbers in a row, a chain of unequal numbers."""


class TooLarge(Exception):
    """Understood, but its value cannot be worked out within reason."""


class Token(NamedTuple):
    kind: str  # "number", "letter", "word" (inside \text, or a run of letters), "sign"
    text: str


_SUPERSCRIPTS = {ord(c): d for c, d in zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ⁽⁾", "0123456789+-ni()", strict=True)}
_SUBSCRIPTS = {ord(c): d for c, d in zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()", strict=True)}
_SIGNS = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "‐": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
        "∗": "*", "÷": "/", "⁄": "/", "∕": "/", "∶": ":", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ",
        "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ",
        "∈": r"\in ", "∅": r"\emptyset ", "°": r"^\circ ", "√": r"\rootsign ", "∛": r"\rootsign[3]", "π": r"\pi ",
        "∑": r"\sum ", "∫": r"\int ", "∏": r"\prod ", "′": "'", "’": "'", "‘": "'", "“": '"', "”": '"',
        "\u00a0": " ", "\u2009": "\u2009", "\u202f": "\u2009", "\u2007": " ", "\u2002": " ", "\u2003": " ",
        "\u200a": "\u2009", "\u2008": " ", "\u200b": "", "\u200c": "", "\u200d": "", "\u2060": "", "\ufeff": "",
        "€": r"\text{ euros }", "£": r"\text{ pounds }", "¥": r"\text{ yen }", "₹": r"\text{ rupees }",
        **{c: rf"\{name} " for c, name in zip(
            "αβγδεζηθκλμνξρστφχψωΓΔΘΛΞΠΣΦΨΩ",
            "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi psi omega "
            "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split(), strict=True)},
    }
)  # fmt: skip
_VULGAR = re.compile("[¼-¾⅐-⅞↉]")
_SUPER_RUN = re.compile("[⁰¹²³⁴-⁹⁺⁻ⁿⁱ⁽⁾]+")
_SUB_RUN = re.compile("[₀-₉₊₋₍₎]+")

_SIZES = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|middle|(?:display|text|script)style|limits|nolimits|mathstrut|strut)(?![A-Za-z])\.?"
)
_SPACES = re.compile(
    r"\\(?:quad|qquad|enspace|hfill|newline|nonumber|phantom\{[^{}]*\}|hspace\*?\{[^{}]*\})(?![A-Za-z])|\\[;: >]"
)
_DELIMITERS = re.compile(r"\\[()\[\]](?!\S*\d*pt\])")
_TEXT_MACROS = frozenset(
    r"\text \textbf \textit \textrm \textsf \texttt \textnormal \textup \emph \mbox \hbox \mathrm \mathbf \mathit "
    r"\mathsf \mathtt \mathcal \boldsymbol \bm \operatorname \operatorname* \rm \bf \it \underline \mathbb".split()
)
_ALIASES = {
    r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac", r"\leq": r"\le", r"\leqslant": r"\le",
    r"\geq": r"\ge", r"\geqslant": r"\ge", r"\neq": r"\ne",
    r"\lt": "<", r"\gt": ">", r"\times": "*", r"\cdot": "*", r"\ast": "*",
    r"\div": "/", r"\varnothing": r"\emptyset", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]",
    r"\lvert": "|", r"\rvert": "|", r"\vert": "|", r"\mid": "|", r"\degree": r"\circ", r"\colon": ":", r"\ratio": ":",
    r"\land": r"\and", r"\wedge": r"\and", r"\lor": r"\or", r"\vee": r"\or", r"\operatorname": r"\text",
    r"\approxeq": r"\approx",
    r"\simeq": r"\approx", r"\cong": r"\approx", r"\bar": r"\overline", r"\dot": r"\overline", r"\dbinom": r"\binom",
    r"\tbinom": r"\binom", r"\varepsilon": r"\epsilon", r"\varphi": r"\phi", r"\cap": r"\cap", r"\bigcup": r"\cup",
    r"\arctg": r"\arctan", r"\tg": r"\tan", r"\ctg": r"\cot", r"\&": r"\and", r"\imath": "i",
}  # fmt: skip
FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log lg exp gcd lcm max min sqrt".split()
)
_PLAIN_COMMANDS = {"pi": r"\pi", "infinity": r"\infty", "infty": r"\infty", "inf": r"\infty", "and": r"\and",
                   "or": r"\or", "cup": r"\cup", "theta": r"\theta", "alpha": r"\alpha", "beta": r"\beta"}  # fmt: skip
_SHORT_WORDS = frozenset(
    "yes no odd even true false none all mon tue wed thu fri sat sun one two six ten day men boy".split()
)

_NUMBER = re.compile(
    r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?(?![\d,]*,?\d)"  # 1,234,567.8
    "|[1-9]\\d{0,2}(?:[\u2009 ]\\d{3})+(?:\\.\\d+)?(?![\\d/ ]*\\d)"  # the same with spaces, thin or not
    r"|(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)(?![A-Za-z\d])"
    r"|\d+(?:\.\d+)?|\.\d+"
)
_GROUPED_LIST = re.compile(r"\d+(?:\.\d+)?|\.\d+")  # inside brackets a comma separates
_LETTERS = re.compile(r"[A-Za-z]+")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+\*?|.)", re.DOTALL)


def plain(text: str) -> str:
    """The text without typography: one sign for one meaning, no delimiters, no emphasis."""
    if not text.isascii():
        text = _SUPER_RUN.sub(lambda m: "^{" + m[0].translate(_SUPERSCRIPTS) + "}", text)
        text = _SUB_RUN.sub(lambda m: "_{" + m[0].translate(_SUBSCRIPTS) + "}", text)
        text = _VULGAR.sub(_vulgar, text)
        text = text.translate(_SIGNS)
        text = unicodedata.normalize("NFKC", text.replace("\u2009", "\\,")).translate(_SIGNS)
    text = text.strip()
    if text.startswith(("\\boxed", "\\fbox")):  # golds come with their box now and then
        text = extract_boxed_answer(text)
    text = text.replace("**", "").replace("__", "").replace("`", "").replace("{,}", ",").replace("\\!", "")
    text = _SIZES.sub("", text)
    text = re.sub(r"\\,|~", "\u2009", text)
    text = _SPACES.sub(" ", text)
    text = text.replace(r"\$", "\\text{ dollars }").replace(r"\%", "%").replace("\\#", "#")
    # a lone sign is money, a pair is a delimiter
    text = re.sub(r"^\$(\d[\d.,]*)$", r"\\text{ dollars }\1", text.strip())
    text = _DELIMITERS.sub(" ", text.replace("$", "")).strip()
    if text.startswith(("\\boxed", "\\fbox")):
        text = extract_boxed_answer(text)
    return text.rstrip(" .;,\n\t").strip() if not text.endswith("\\.") else text


def _vulgar(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match[0]).partition("\u2044")
    return rf"\frac{{{top}}}{{{bottom}}}"


def tokens(text: str, bare_units: bool = False) -> list[Token]:
    """Tokens of a plain text. With `bare_units`, a lone letter after a number may be a unit (`12 m`)."""
    found: list[Token] = []
    _scan(text, found, in_text=False, bare_units=bare_units)
    return _without_double_brackets(found)


def _scan(text: str, found: list[Token], in_text: bool, bare_units: bool) -> None:
    position, depth = 0, 0  # depth of brackets in which a comma separates
    while position < len(text):
        char = text[position]
        if char.isspace():
            position += 1
        elif char.isdigit() or (char == "." and text[position + 1 : position + 2].isdigit()):
            match = (_GROUPED_LIST if depth else _NUMBER).match(text, position)
            if match is None:
                raise Unreadable(f"character {char!r}")
            found.append(Token("number", re.sub("[,\u2009 ]", "", match[0])))
            position = match.end()
        elif char == "\\":
            position = _scan_command(text, position, found, in_text, bare_units)
            depth += {r"\{": 1, r"\}": -1}.get(found[-1].text, 0) if found and found[-1].kind == "sign" else 0
        elif char.isascii() and char.isalpha():
            match = _LETTERS.match(text, position)
            assert match is not None
            follows_number = bool(found) and found[-1].kind == "number"
            found += [Token("word", match[0])] if in_text else _letters(match[0], bare_units and follows_number)
            position = match.end()
        else:
            depth += (char in "([") - (char in ")]")
            found.append(Token("sign", char))
            position += 1


def _scan_command(text: str, position: int, found: list[Token], in_text: bool, bare_units: bool) -> int:
    match = _COMMAND.match(text, position)
    if match is None:
        raise Unreadable("a lone backslash at the end")
    name, position = _ALIASES.get(match[0], match[0]), match.end()
    if name in _TEXT_MACROS:
        while text[position : position + 1] == " ":
            position += 1
        if text[position : position + 1] == "{":
            end = closing_brace(text, position)
            inner = text[position + 1 : end]
            if name == r"\mathbb":
                found.append(Token("sign", rf"\mathbb{inner.strip()}"))
                return end + 1
            word = inner.strip()
            takes_argument = text[end + 1 :].lstrip()[:1] not in ("", ",", ";", ".", ")", "]")
            is_unit = word in UNITS and bool(found) and not takes_argument  # 10 min is no minimum
            if word in FUNCTIONS and not is_unit:
                found.append(Token("sign", "\\" + word))
            else:
                _scan(inner, found, in_text=True, bare_units=bare_units)
            return end + 1
        return position
    if name in (r"\begin", r"\end"):
        end = closing_brace(text, position)
        found.append(Token("sign", name + text[position : end + 1]))
        return end + 1
    found.append(Token("letter" if len(name) == 1 and name.isalpha() else "sign", name))
    return position


def closing_brace(text: str, start: int) -> int:
    """Where the brace at `start` closes."""
    if text[start : start + 1] != "{":
        raise Unreadable("a command without its braces")
    depth, position = 0, start
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 1
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    raise Unreadable("braces do not pair up")


def _letters(run: str, may_be_unit: bool) -> list[Token]:
    """A run of letters outside of \\text: a function, a word, a unit, or a product of variables."""
    lower = run.lower()
    if run in FUNCTIONS:
        return [Token("sign", "\\" + run)]
    if lower in _PLAIN_COMMANDS:
        return [Token("sign", _PLAIN_COMMANDS[lower])]
    if len(run) == 1:
        return [Token("word" if may_be_unit and run in UNITS else "letter", run)]
    if len(run) > 3 or lower in _SHORT_WORDS or run in UNITS:
        return [Token("word", run)]
    return [Token("letter", letter) for letter in run]


_OPENING = {"(": ")", "{": "}"}


def _without_double_brackets(given: list[Token]) -> list[Token]:
    """Drops every bracket that directly encloses another of its kind: `((x))` is `(x)`, however deep."""
    partner: dict[int, int] = {}
    stack: list[int] = []
    for index, token in enumerate(given):
        if token.kind != "sign":
            continue
        if token.text in _OPENING:
            stack.append(index)
        elif token.text in (")", "}"):
            if not stack or _OPENING[given[stack[-1]].text] != token.text:
                if token.text == "}":
                    raise Unreadable("braces do not pair up")
                continue  # half-open intervals: (1, 4]
            partner[stack.pop()] = index
    dropped: set[int] = set()
    for start, end in partner.items():
        if partner.get(start + 1) == end - 1 and given[start].text == given[start + 1].text:
            dropped |= {start, end}
    return [token for index, token in enumerate(given) if index not in dropped] if dropped else given
