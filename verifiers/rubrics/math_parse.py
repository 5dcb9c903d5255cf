r"""From the text of an answer to a tree of it.

Expressions: `Num Sym Const Add Mul Pow Call`; around them `Quantity` (a unit), `Words`, `Relation`, `Group` (list, set,
tuple or interval, union, ratio), `Matrix`. The reader knows the notation of final answers and refuses the rest
(`Unreadable`): sums, integrals and quantifiers are for math-verify.
"""

# ruff: noqa: SIM905  (tables of names read best as text)

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

import msgspec

from verifiers.rubrics.math_text import FUNCTIONS, MAX_CHARS, NoAnswer, Token, TooLarge, Unreadable, plain, tokens
from verifiers.rubrics.math_units import unit_of

MAX_DEPTH = 40  # nested constructs; each takes about ten frames of the interpreter's stack
MAX_DIGITS = 4000  # Python itself refuses to read longer integers


class _Node(msgspec.Struct, frozen=True, gc=False):
    """Nodes of different kinds are never equal, whatever they hold."""


class Num(_Node, frozen=True):
    value: Fraction
    decimals: int | None = None  # digits after the point of a decimal literal


class Sym(_Node, frozen=True):
    name: str


class Const(_Node, frozen=True):
    name: str  # "pi", "e", "i", "inf"


class Based(_Node, frozen=True):
    digits: str
    base: int


class Add(_Node, frozen=True):
    terms: tuple[Node, ...]


class Mul(_Node, frozen=True):
    factors: tuple[Node, ...]


class Pow(_Node, frozen=True):
    base: Node
    exponent: Node


class PlusMinus(_Node, frozen=True):
    left: Node
    right: Node
    sign: int  # +1: \pm, -1: \mp


class Call(_Node, frozen=True):
    name: str
    args: tuple[Node, ...]


class Quantity(_Node, frozen=True):
    number: Node
    unit: str


class Words(_Node, frozen=True):
    text: str  # lower case, single spaces


class Relation(_Node, frozen=True):
    sides: tuple[Node, ...]
    signs: tuple[str, ...]  # "=", "<", ">", "\\le", "\\ge", "\\ne", "\\in"


class Group(_Node, frozen=True):
    kind: str  # "list", "set", "tuple", "union", "ratio"
    items: tuple[Node, ...]
    brackets: str = ""  # of a tuple: "()", "[]", "(]", "[)"; of a list: the word that joins it, "and" or "or"


class Matrix(_Node, frozen=True):
    kind: str
    rows: tuple[tuple[Node, ...], ...]


Node: TypeAlias = (
    "Num | Sym | Const | Based | Add | Mul | Pow | PlusMinus | Call | Quantity | Words | Relation | Group | Matrix"
)

MINUS_ONE = Num(Fraction(-1))
_RELATIONS = frozenset({"=", "<", ">", r"\le", r"\ge", r"\ne", r"\in", r"\approx", r"\equiv"})
_SEPARATORS = frozenset({",", ";", r"\and", r"\or", r"\\"})
_CLOSERS = frozenset({")", "]", "}", r"\}", "&", r"\rfloor", r"\rceil"})
_GREEK = frozenset(
    r"\alpha \beta \gamma \delta \epsilon \zeta \eta \theta \kappa \lambda \mu \nu \xi \rho \sigma \tau \phi \chi \psi "
    r"\omega \Gamma \Delta \Theta \Lambda \Xi \Pi \Sigma \Phi \Psi \Omega \ell".split()
)
_STARTERS = frozenset({r"\frac", r"\pi", r"\infty", r"\binom", r"\lfloor", r"\lceil", r"\rootsign", "{"})
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
          "eleven": 11, "twelve": 12, "sixteen": 16, "binary": 2, "octal": 8, "hex": 16}  # fmt: skip
_DIGITS = "0123456789abcdef"


def children(node: Node) -> tuple[Node, ...]:
    """The parts of an expression."""
    if isinstance(node, Add):
        return node.terms
    if isinstance(node, Mul):
        return node.factors
    if isinstance(node, Pow):
        return (node.base, node.exponent)
    if isinstance(node, Call):
        return node.args
    if isinstance(node, PlusMinus):
        return (node.left, node.right)
    return ()


def read_answer(text: str, bare_units: bool = False) -> Node:
    r"""The tree of an answer's text.

    Raises Unreadable (another notation), NoAnswer (never one answer) or TooLarge.

    >>> read_answer(r"\frac12") == read_answer("½")
    True
    """
    if len(text) > MAX_CHARS:
        raise TooLarge(f"the answer has {len(text)} characters")
    found = tokens(plain(text), bare_units)
    if not found:
        raise NoAnswer("the answer is empty")
    reader = _Reader(found)
    node = reader.answer()
    if reader.here.text:
        raise Unreadable(f"{reader.here.text!r}")
    return node


_END = Token("sign", "")


class _Reader:
    """Recursive descent over the tokens; one method a level of binding, loosest first."""

    def __init__(self, found: list[Token]) -> None:
        self.found = found
        self.at = 0
        self.depth = 0
        self.in_bars = 0

    @property
    def here(self) -> Token:
        return self.found[self.at] if self.at < len(self.found) else _END

    def peek(self, ahead: int = 1) -> Token:
        return self.found[self.at + ahead] if self.at + ahead < len(self.found) else _END

    def is_sign(self, *texts: str) -> bool:
        return self.here.kind == "sign" and self.here.text in texts and self.here is not _END

    def take(self, *texts: str) -> bool:
        if self.is_sign(*texts):
            self.at += 1
            return True
        return False

    def need(self, text: str) -> None:
        if not self.take(text):
            raise Unreadable(f"{text!r} expected before {self.here.text!r}")

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge(f"nested more than {MAX_DEPTH} deep")

    # answer: items separated by commas or "and"
    def answer(self) -> Node:
        first = self.at
        items = self.items()
        if len(items) == 1:
            return items[0]
        words = {token.text.lstrip("\\") for token in self.found[first : self.at]} & {"and", "or"}
        return Group("list", tuple(items), min(words, default=""))

    def items(self) -> list[Node]:
        items = [self.relation()]
        while self.is_separator():
            while self.is_separator():
                self.at += 1
            if self.here is _END or self.is_sign(*_CLOSERS):
                break
            items.append(self.relation())
        return items

    def is_separator(self) -> bool:
        here = self.here
        return here.text in (_SEPARATORS if here.kind == "sign" else ("and", "or")) and here.kind in ("sign", "word")

    def relation(self) -> Node:
        self.enter()
        self.take(r"\approx", "=")  # "≈ 3": what stands before it was left out
        sides, signs = [self.union()], []
        while self.is_sign(*_RELATIONS):
            sign = self.here.text
            self.at += 1
            if self.take("="):  # "<="
                sign = {"<": r"\le", ">": r"\ge"}.get(sign, sign)
            signs.append("=" if sign in (r"\approx", r"\equiv") else sign)
            sides.append(self.union())
        self.depth -= 1
        return Relation(tuple(sides), tuple(signs)) if signs else sides[0]

    def union(self) -> Node:
        items = [self.ratio()]
        while self.take(r"\cup"):
            items.append(self.ratio())
        return items[0] if len(items) == 1 else Group("union", tuple(items))

    def ratio(self) -> Node:
        items = [self.quantity()]
        while self.take(":"):
            items.append(self.quantity())
        return items[0] if len(items) == 1 else Group("ratio", tuple(items))

    def quantity(self) -> Node:
        if self.here.kind == "word" and self.here.text.lower() in ("dollars", "euros", "pounds", "yen", "rupees"):
            unit = self.here.text.lower()
            following = self.peek()
            if following.kind == "number" or following.text in ("-", ".", r"\frac"):
                self.at += 1
                return Quantity(self.sum(), unit_of([unit]) or unit)
        if self.here.kind == "word":
            return self.words()
        number = self.sum()
        if self.here.kind == "word" and self.here.text in ("base", "Base"):
            return self.based(number)
        if self.here.kind == "word" and self.here.text not in ("and", "or"):
            return self.with_unit(number)
        if self.take("%"):
            return Quantity(number, "percent")
        return number

    def words(self) -> Node:
        """Words where an expression could stand: the whole item must be words, digits and punctuation."""
        found: list[str] = []
        while self.here is not _END and not self.is_separator() and not self.is_sign(*_RELATIONS, *_CLOSERS):
            found.append(self.here.text)
            self.at += 1
        if len(found) == 1 and len(found[0]) == 1:
            return Sym(found[0])
        return Words(" ".join(found).lower())

    def with_unit(self, number: Node) -> Node:
        found: list[str] = []
        while self.here.kind == "word" or self.is_sign(*"^/*{}.") or (found and self.here.kind == "number"):
            if self.is_separator():
                break
            if self.is_sign("}") and "{" not in found:
                break
            found.append(self.here.text)
            self.at += 1
        unit = unit_of([part for part in found if part not in "{}."])
        if unit is None:
            raise NoAnswer(f"the words {' '.join(found)!r} after a number are no unit")
        return Quantity(number, unit) if unit not in ("unit", "units") else number

    def based(self, number: Node) -> Node:
        self.at += 1
        base = self.atom() if self.here.kind != "word" else Words(self.here.text.lower())
        if isinstance(base, Words):
            self.at += 1
        return _based(number, base, self.found)

    # expressions
    def sum(self) -> Node:
        self.enter()
        node: Node
        if self.is_sign(r"\pm", r"\mp"):
            sign = 1 if self.here.text == r"\pm" else -1
            self.at += 1
            node = PlusMinus(Num(Fraction(0)), self.product(), sign)
        else:
            node = self.signed()
        terms: list[Node] = [node]
        while self.is_sign("+", "-", r"\pm", r"\mp"):
            sign = self.here.text
            self.at += 1
            if sign in (r"\pm", r"\mp"):
                left = terms[0] if len(terms) == 1 else Add(tuple(terms))
                terms = [PlusMinus(left, self.product(), 1 if sign == r"\pm" else -1)]
                continue
            term = self.signed()
            terms.append(_negative(term) if sign == "-" else term)
        self.depth -= 1
        return terms[0] if len(terms) == 1 else Add(tuple(terms))

    def signed(self) -> Node:
        negative = False
        while self.is_sign("+", "-"):
            negative ^= self.here.text == "-"
            self.at += 1
        node = self.product()
        return _negative(node) if negative else node

    def product(self) -> Node:
        factors = [self.power()]
        while True:
            if self.take("*"):
                negative = self.take("-")
                factor = self.power()
                factors.append(_negative(factor) if negative else factor)
            elif self.take("/"):
                factors.append(Pow(self.power(), MINUS_ONE))
            elif self.starts_factor():
                if self.here.kind == "number" and self.found[self.at - 1].kind == "number":
                    factors[-1] = self.mixed(factors[-1])
                    continue
                if self.here.text == r"\frac" and isinstance(factors[-1], Num) and factors[-1].decimals is None:
                    factors[-1] = self.beside_fraction(factors[-1])
                    continue
                if self.here.kind == "number":
                    raise Unreadable("a number directly after a factor")
                factors.append(self.power())
            else:
                return factors[0] if len(factors) == 1 else Mul(tuple(factors))

    def starts_factor(self) -> bool:
        here = self.here
        if here is _END:
            return False
        if here.kind in ("number", "letter"):
            return True
        if here.kind == "word":
            return False
        if here.text == "|":
            return not self.in_bars
        if here.text in ("(", "["):
            return True
        return here.text in _STARTERS or here.text in _GREEK or here.text[1:] in FUNCTIONS

    def mixed(self, whole: Node) -> Node:
        """`3 1/5`. Any other two numbers in a row are several answers, or none."""
        is_whole = isinstance(whole, Num) and whole.decimals is None
        if is_whole and self.peek().text == "/" and self.peek(2).kind == "number":
            top = self.power()
            self.need("/")
            bottom = self.power()
            return Add((whole, Mul((top, Pow(bottom, MINUS_ONE)))))
        raise NoAnswer("several numbers in a row")

    def beside_fraction(self, whole: Num) -> Node:
        fraction = self.power()
        if isinstance(fraction, Mul) and all(
            isinstance(part, Num) or (isinstance(part, Pow) and isinstance(part.base, Num)) for part in fraction.factors
        ):
            return Add((whole, fraction))  # 3\frac{1}{5} is 3 + 1/5
        return Mul((whole, fraction))

    def power(self) -> Node:
        node = self.atom()
        while True:
            if self.take("!"):
                node = Call("factorial", (node,))
            elif self.is_sign("^"):
                self.at += 1
                if self.take(r"\circ"):
                    return self.degrees(node)
                if self.is_sign("{") and self.peek().text == r"\circ":
                    self.at += 2
                    self.need("}")
                    return self.degrees(node)
                exponent = self.negative_atom()
                if self.take("^"):
                    raise Unreadable("two exponents")
                node = Pow(node, exponent)
            elif self.is_sign("_"):
                node = self.subscript(node)
            else:
                return node

    def degrees(self, node: Node) -> Node:
        if self.here.text in ("C", "F") and self.peek() is _END:
            self.at += 1
            return Quantity(node, "celsius" if self.found[self.at - 1].text == "C" else "fahrenheit")
        return Quantity(node, "circ")

    def negative_atom(self) -> Node:
        negative = False
        while self.is_sign("-", "+"):
            negative ^= self.here.text == "-"
            self.at += 1
        # one digit without braces: 2^10 in LaTeX is 2^{1}0, but nobody who writes it means that
        node = self.atom()
        return _negative(node) if negative else node

    def subscript(self, node: Node) -> Node:
        self.at += 1
        if isinstance(node, Num):
            if self.here.kind == "word":
                base: Node = Words(self.here.text.lower())
                self.at += 1
            else:
                base = self.atom()
            return _based(node, base, self.found)
        index = self.index_text()
        if isinstance(node, Sym):
            return Sym(f"{node.name}_{index}")
        raise Unreadable("a subscript")

    def index_text(self) -> str:
        if not self.take("{"):
            text = self.here.text
            self.at += 1
            return text
        text = ""
        while not self.take("}"):
            if self.here is _END or len(text) > 40:
                raise Unreadable("a subscript without end")
            text += self.here.text
            self.at += 1
        return text

    def atom(self) -> Node:
        here = self.here
        self.at += 1
        if here.kind == "number":
            return self.number(here.text)
        if here.kind == "letter":
            return Const(here.text) if here.text in ("e", "i") else Sym(here.text)
        if here.kind == "word":
            if len(here.text) == 1:
                return Const(here.text) if here.text in ("e", "i") else Sym(here.text)
            if here.text.lower() in _BASES:
                return Words(here.text.lower())
            raise Unreadable(f"the word {here.text!r} inside an expression")
        return self.sign_atom(here.text)

    def sign_atom(self, text: str) -> Node:
        if text in ("(", "["):
            return self.bracketed(text)
        if text == "{":
            self.enter()
            items = self.items()
            self.need("}")
            self.depth -= 1
            return items[0] if len(items) == 1 else Group("set", tuple(items))
        if text == r"\{":
            return self.set()
        if text == "|":
            self.in_bars += 1
            inner = self.sum()
            self.in_bars -= 1
            self.need("|")
            return Call("abs", (inner,))
        if text == r"\pi":
            return Const("pi")
        if text == r"\infty":
            return Const("inf")
        if text == r"\emptyset":
            return Group("set", ())
        if text == r"\mathbbR":
            return Group("tuple", (_negative(Const("inf")), Const("inf")), "()")
        if text in _GREEK:
            return Sym(text)
        if text in (r"\frac", r"\binom"):
            top, bottom = self.argument(), self.argument()
            return Mul((top, Pow(bottom, MINUS_ONE))) if text == r"\frac" else Call("binom", (top, bottom))
        if text in (r"\sqrt", r"\rootsign"):
            return self.root()
        if text in (r"\lfloor", r"\lceil"):
            inner = self.sum()
            self.need(r"\rfloor" if text == r"\lfloor" else r"\rceil")
            return Call("floor" if text == r"\lfloor" else "ceil", (inner,))
        if text[1:] in FUNCTIONS:
            return self.call(text[1:])
        if text.startswith(r"\begin{"):
            return self.matrix(text[7:-1])
        if text == ".":
            raise NoAnswer("a stray full stop")
        raise Unreadable(f"{text!r}")

    def argument(self) -> Node:
        """What \\frac and \\sqrt take: a group, or one token; of a number one digit (`\\frac12`)."""
        here = self.here
        if here.kind == "number" and len(here.text) > 1 and here.text.isdigit():
            self.found[self.at] = Token("number", here.text[1:])
            return Num(Fraction(int(here.text[0])))
        self.enter()
        node = self.atom()
        self.depth -= 1
        return node

    def root(self) -> Node:
        index: Node = Num(Fraction(2))
        if self.take("["):
            index = self.sum()
            self.need("]")
        self.enter()
        # the unicode sign covers the whole number after it, \sqrt only one digit
        is_sign = self.found[self.at - 1].text == r"\rootsign" or self.here.text in ("(", "{")
        inner = self.atom() if is_sign else self.argument()
        self.depth -= 1
        return Pow(inner, Mul((Num(Fraction(1)), Pow(index, MINUS_ONE))))

    def call(self, name: str) -> Node:
        args: list[Node] = []
        power: Node | None = None
        if name == "log" and self.take("_"):
            args.append(self.atom())
        if name == "sqrt":
            return self.root()
        if self.take("^"):
            power = self.negative_atom()
        self.enter()
        if name in ("gcd", "lcm", "max", "min"):
            self.need("(")
            args += self.items()
            self.need(")")
        elif self.is_sign("(", "{"):
            args.append(self.atom())
        else:
            args.append(self.unbracketed())
        self.depth -= 1
        if power == MINUS_ONE:
            name, power = "arc" + name, None
        node = Call(name, tuple(args))
        return Pow(node, power) if power is not None else node

    def unbracketed(self) -> Node:
        """The argument of `\\sin 2x`: the product that follows, up to the next function."""
        factors = [self.power()]
        while self.starts_factor() and self.here.text[1:] not in FUNCTIONS and self.here.text not in ("(", "["):
            factors.append(self.power())
        return factors[0] if len(factors) == 1 else Mul(tuple(factors))

    def bracketed(self, opening: str) -> Node:
        self.enter()
        items = self.items()
        self.depth -= 1
        closing = self.here.text
        if not self.take(")", "]"):
            raise Unreadable(f"{opening!r} is not closed")
        if len(items) == 1 and {"(": ")", "[": "]"}[opening] == closing:
            return items[0]
        return Group("tuple", tuple(items), opening + closing)

    def set(self) -> Node:
        self.enter()
        items = () if self.is_sign(r"\}") else tuple(self.items())
        self.need(r"\}")
        self.depth -= 1
        return Group("set", items)

    def matrix(self, kind: str) -> Node:
        if kind in ("array", "tabular"):
            self.index_text()
        elif kind not in ("matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "vmatrix"):
            raise Unreadable(kind)
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        end = rf"\end{{{kind}}}"
        self.enter()
        while True:
            row.append(self.sum())
            if self.take("&"):
                continue
            rows.append(tuple(row))
            row = []
            if self.take(end):
                break
            self.need(r"\\")
            if self.take(end):
                break
        self.depth -= 1
        return Matrix("determinant" if kind == "vmatrix" else "matrix", tuple(rows))

    def number(self, text: str) -> Node:
        if len(text) > MAX_DIGITS:
            raise TooLarge(f"a number of {len(text)} digits")
        if "e" in text.lower() and abs(int(text.lower().partition("e")[2])) > MAX_DIGITS:
            raise TooLarge("a power of ten beyond reason")
        if self.is_sign(r"\overline"):
            return self.repeating(text)
        if self.here.text in ("...", r"\ldots", r"\dots"):
            raise Unreadable("digits left out")
        whole, _, decimals = text.partition(".")
        if "." in text and "e" not in text.lower():
            if not self.is_sign("."):
                return Num(Fraction(text if whole else "0" + text), len(decimals))
            raise Unreadable("digits left out")
        if self.is_sign(".") and self.peek().text == r"\overline":
            self.at += 1
            return self.repeating(text + ".")
        return Num(Fraction(text))

    def repeating(self, start: str) -> Node:
        r"""`0.1\overline{6}` is the fraction it stands for."""
        if "." not in start:
            raise Unreadable("a bar over digits before the point")
        self.at += 1
        self.take("{")
        period = self.here
        self.at += 1
        self.take("}")
        if period.kind != "number" or not period.text.isdigit():
            raise Unreadable("a bar over no digits")
        decimals = len(start.partition(".")[2])
        fraction = Fraction(int(period.text), 10**decimals * (10 ** len(period.text) - 1))
        return Num(Fraction(start + "0" if start.endswith(".") else start) + fraction)


def _negative(node: Node) -> Node:
    if isinstance(node, Num):
        return Num(-node.value, node.decimals)
    if isinstance(node, Quantity):
        return Quantity(_negative(node.number), node.unit)
    if isinstance(node, Add) and isinstance(node.terms[0], Num) and len(node.terms) == 2:  # -3\frac{1}{5}
        return Add(tuple(_negative(term) for term in node.terms))
    return Mul((MINUS_ONE, node))


def _based(number: Node, base: Node, found: list[Token]) -> Node:
    value = _BASES.get(base.text) if isinstance(base, Words) else int(base.value) if isinstance(base, Num) else None
    if value is None or not 2 <= value <= 36 or not isinstance(number, Num) or number.decimals is not None:
        raise Unreadable("a base")
    digits = str(number.value)
    if not digits.lstrip("-").isdigit() or any(int(d) >= value for d in digits.lstrip("-")):
        raise NoAnswer(f"{digits} has digits that base {value} does not")
    return Based(digits, value)
