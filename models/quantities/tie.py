"""A quantity that follows others: one of them, or a sum of multiples such as "a.east + 3 mas".

    sum      = [sign] term { ("+" | "-") term }
    term     = factor { ("*" | "/") factor }
    factor   = [sign] ( number [unit] | name | "(" sum ")" )

Of two factors one is a plain number at least, and what divides is a plain number: the value is a sum of
multiples of quantities and a number, so that its derivatives are known without any calculus. Names may have
"+" and "-" in them, which is why these need a space in front where they add or subtract.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.strict import short_repr

_INDEX = r"(?:\[[^\[\]]{1,99}\]){0,3}"
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.+\-]{{0,199}}{_INDEX}")
_ALONE = re.compile(rf"[^\s.\[\]*/()+\-][^\s\[\]*/()]{{0,99}}{_INDEX}\Z")
_NUMBER = re.compile(r"(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?(?![\w.])")
_NUMBER_AND_UNIT = re.compile(
    r"(?P<number>(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?)\s*"
    r"(?P<unit>(?:1 ?/ ?)?[A-Za-zµμ°][A-Za-z0-9µμ°^]{0,15}(?:[*/][A-Za-zµμ°][A-Za-z0-9µμ°^]{0,15}){0,3})"
    r"(?=[\s*/()]|\Z)"
)
_HAS_NAME = re.compile(r"[A-Za-z0-9_\-+]\.[A-Za-z]")
_HAS_MORE = re.compile(r"[*/()\s]|\A[+-]")
MAX_LENGTH = 2000
_MAX_DEPTH = 30


@dataclass(frozen=True)
class Tie:
    """Always equal to another quantity, or to a sum of multiples of quantities and a number.

    Attributes
    ----------
    to : str
        "core.I", "core.spectral_index[1]", "core.I * 0.5", "a.east + 3 mas", "(a.I + b.I) / 2".
    """

    to: str


@dataclass(frozen=True)
class TieSum:
    """What a tie says: the sum of multiples of quantities, and a number.

    Attributes
    ----------
    terms : dict of str to float
        The factor of each name.
    constant : float
    unit : str or None
        Of the constant; None where the tie has no constant, "" where that is a plain number.
    """

    terms: Mapping[str, float]
    constant: float = 0.0
    unit: str | None = None


def is_name(text: str) -> bool:
    """Whether a text names a quantity: "core.I" does, "1.5Jy" and "12:29:06.7" do not."""
    if not _ALONE.match(text) or "." not in text or ":" in text.split("[")[0]:
        return False
    return not _is_number(text)


def is_sum(text: str) -> bool:
    """Whether a text is meant as a sum of multiples of quantities: it has a name, and more than that."""
    return bool(_HAS_NAME.search(text) and _HAS_MORE.search(text)) and not _is_number(text)


def _is_number(text: str) -> bool:
    parts = units.split(text)
    return parts is not None and units.is_unit(parts[1])


@lru_cache(maxsize=1024)
def read_sum(text: str) -> TieSum:
    """The sum that the text of a tie says.

    Raises
    ------
    ModelError
        Anything that is not a sum of multiples of quantities and a number.
    """
    if _ALONE.match(text) and not _is_number(text):
        return TieSum({text: 1.0})
    if len(text) > MAX_LENGTH:
        raise ModelError(f"a tie has {MAX_LENGTH} characters at most, found {len(text)}")
    reader = _Reader(text)
    found = reader.sum(0)
    if not reader.at_end():
        raise reader.error("expected +, -, * or /")
    if not found.terms:
        raise ModelError(f"{short_repr(text)} names no quantity; write the number itself")
    for number in (*found.terms.values(), found.constant):
        if not math.isfinite(number):
            raise ModelError(f"{short_repr(text)}: its numbers are too large")
    return found


class _Reader:
    """Reads the text of a sum from left to right; nothing is ever executed."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def at_end(self) -> bool:
        self._skip()
        return self._at == len(self._text)

    def sum(self, depth: int) -> TieSum:
        if depth > _MAX_DEPTH:
            raise ModelError(f"{short_repr(self._text)}: parentheses go deeper than {_MAX_DEPTH}")
        total = self._term(depth)
        while sign := self._take("+-"):
            total = _added(total, self._term(depth), -1.0 if sign == "-" else 1.0)
        return total

    def _term(self, depth: int) -> TieSum:
        found = self._factor(depth)
        while operator := self._take("*/"):
            found = self._product(found, self._factor(depth), operator)
        return found

    def _product(self, left: TieSum, right: TieSum, operator: str) -> TieSum:
        if operator == "/":
            if right.terms or right.unit:
                raise ModelError(f"{short_repr(self._text)}: a tie may be divided by a plain number only")
            if right.constant == 0.0:
                raise ModelError(f"{short_repr(self._text)}: division by 0")
            return _scaled(left, 1.0 / right.constant)
        for number, other in ((right, left), (left, right)):
            if not number.terms and not number.unit:
                return _scaled(other, number.constant)
        raise ModelError(
            f"{short_repr(self._text)}: of two factors one must be a plain number; a tie cannot be a product "
            "of quantities"
        )

    def _factor(self, depth: int) -> TieSum:
        sign = -1.0 if self._take("+-") == "-" else 1.0
        if self._take("("):
            found = self.sum(depth + 1)
            if not self._take(")"):
                raise self.error("expected )")
            return _scaled(found, sign)
        if (number := self._number()) is not None:
            return _scaled(number, sign)
        name = _NAME.match(self._text, self._at)
        if name is None:
            raise self.error("expected a number or a quantity")
        if "." not in name[0]:
            raise self.error(
                "expected a number or a quantity such as core.I (there are no functions: a tie is a sum of "
                "multiples of quantities and a number)"
            )
        self._at = name.end()
        return TieSum({name[0]: sign})

    def _number(self) -> TieSum | None:
        found = _NUMBER_AND_UNIT.match(self._text, self._at)
        if found is not None and units.is_unit(found["unit"]):
            self._at = found.end()
            return TieSum({}, float(found["number"]), found["unit"])
        plain = _NUMBER.match(self._text, self._at)
        if plain is None:
            return None
        self._at = plain.end()
        return TieSum({}, float(plain[0]), "")

    def _take(self, characters: str) -> str:
        """The next character if it is one of these, else ""."""
        self._skip()
        if self._at < len(self._text) and self._text[self._at] in characters:
            self._at += 1
            return self._text[self._at - 1]
        return ""

    def _skip(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def error(self, words: str) -> ModelError:
        """An error that shows where reading stopped."""
        left = self._text[self._at :].strip()
        where = f"before {short_repr(left)} " if left else "at the end "
        return ModelError(
            f"{short_repr(self._text)}: {words}, {where}(write for example 'core.I * 0.5' or "
            "'a.east + 3 mas', with spaces around + and -)"
        )


def _scaled(sum_: TieSum, factor: float) -> TieSum:
    terms = {name: value * factor for name, value in sum_.terms.items()}
    return TieSum(terms, sum_.constant * factor, sum_.unit)


def _added(left: TieSum, right: TieSum, sign: float) -> TieSum:
    terms = dict(left.terms)
    for name, value in right.terms.items():
        terms[name] = terms.get(name, 0.0) + sign * value
    if right.unit is None:
        return TieSum(terms, left.constant, left.unit)
    if left.unit is None:
        return TieSum(terms, sign * right.constant, right.unit)
    return TieSum(
        terms, left.constant + sign * units.convert(right.constant, right.unit, left.unit), left.unit
    )
