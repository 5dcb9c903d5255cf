"""Units of measurement that answers carry, by their dimension and size."""

# ruff: noqa: SIM905  (tables of names read best as text)

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple


class Unit(NamedTuple):
    dimension: str
    size: Fraction  # in the dimension's base unit


def _table(rows: str) -> dict[str, Unit]:
    table: dict[str, Unit] = {}
    for row in rows.strip().splitlines():
        dimension, size, *names = row.split()
        for name in names:
            table[name] = Unit(dimension, Fraction(size))
    return table


UNITS = _table("""
length 1/1000 mm millimeter millimeters millimetre millimetres
length 1/100 cm centimeter centimeters centimetre centimetres
length 1/10 dm decimeter decimeters
length 1 m meter meters metre metres
length 1000 km kilometer kilometers kilometre kilometres
length 254/10000 in inch inches
length 3048/10000 ft foot feet
length 9144/10000 yd yard yards
length 1609344/1000 mi mile miles
time 1/1000 ms millisecond milliseconds
time 1 s sec secs second seconds
time 60 min mins minute minutes
time 3600 h hr hrs hour hours
time 86400 day days
time 604800 week weeks
year 1/12 month months
year 1 year years yr yrs
mass 1/1000000 mg milligram milligrams
mass 1/1000 g gram grams
mass 1 kg kilogram kilograms
mass 1000 tonne tonnes
mass 45359237/100000000 lb lbs
volume 1/1000 ml mL milliliter milliliters millilitre millilitres
volume 1 l L liter liters litre litres
angle 1 circ degree degrees deg
radian 1 radian radians rad
temperature-c 1 celsius
temperature-f 1 fahrenheit
percent 1 percent %
dollar 1/100 cent cents
dollar 1 dollar dollars usd USD
euro 1 euro euros eur EUR
pound 1 pound pounds gbp GBP
yen 1 yen
rupee 1 rupee rupees
force 1 N newton newtons
energy 1 J joule joules
power 1 W watt watts
voltage 1 V volt volts
current 1 A amp amps ampere amperes
temperature-k 1 K kelvin kelvins
frequency 1 Hz hertz
pressure 1 Pa pascal pascals
amount 1 mol mole moles
""")

# Words that may follow a number without changing it; anything else after a number is read as part of the claim.
_NEVER_UNITS = frozenset(
    "or and not if unless either neither nor about approximately around between to from than more less at least most "
    "is are was wrong incorrect maybe possibly perhaps but except plus minus times over".split()
)
_POWERS = {"square": "2", "sq": "2", "cubic": "3", "squared": "2", "cubed": "3"}
MAX_UNIT_WORDS = 4


def unit_of(words: list[str]) -> str | None:
    """One spelling of a unit such as `square meters` or `m ^ 2`; `None` where the words cannot be one.

    >>> unit_of(["square", "meters"]), unit_of(["m", "^", "2"])
    ('m^2', 'm^2')
    """
    if any(word.lower() in _NEVER_UNITS for word in words) or len(words) > 2 * MAX_UNIT_WORDS:
        return None
    parts: list[str] = []
    pending = ""
    for word in words:
        lower = word.lower()
        if lower in _POWERS and lower.endswith("ed"):
            parts.append("^" + _POWERS[lower])
        elif lower in _POWERS:
            pending = "^" + _POWERS[lower]
        elif lower == "per":
            parts.append("/")
        else:
            parts.append(_SYMBOLS.get(_known(word), lower))
            if word not in ("^", "/", "*") and not word.isdigit():
                parts[-1] += pending
                pending = ""
    return _joined(parts)


def _known(word: str) -> Unit | None:
    return UNITS.get(word) or UNITS.get(word.lower())


_SYMBOLS: dict[Unit | None, str] = {}
for _name, _unit in UNITS.items():
    _SYMBOLS.setdefault(_unit, _name)


def _joined(parts: list[str]) -> str:
    text = ""
    for part in parts:
        glued = not text or part[0] in "^/*" or text[-1] in "^/*"
        text += part if glued else " " + part
    return text


def conversion(left: str, right: str) -> Fraction | None:
    """What a number in `left` is multiplied by to be in `right`; `None` where the two contradict each other.

    Names that are no units of measurement (`apples`, `ways`) contradict nothing.
    """
    if left == right:
        return Fraction(1)
    (left_base, left_power), (right_base, right_power) = _powered(left), _powered(right)
    a, b = _known(left_base), _known(right_base)
    if a is None or b is None:
        is_compound = {"/", "*"} & {*left, *right}
        return None if is_compound or (a is None) != (b is None) else Fraction(1)
    if a.dimension != b.dimension or left_power != right_power:
        return None
    return (a.size / b.size) ** left_power


def _powered(unit: str) -> tuple[str, int]:
    base, _, power = unit.partition("^")
    return base, int(power) if power.isdigit() and len(power) < 3 else 1
