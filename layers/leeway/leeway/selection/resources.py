"""Kubernetes quantities ("250m", "1Gi", "1e3"), exact and in canonical form; and amounts of
resources by name, as integers: cpu in millicores, all else in its base unit.

Source of the grammar, the limits and the canonical form: apimachinery's `pkg/api/resource`.
"""

import math
import re
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Self

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<exponent>[eE][+-]?[0-9]{1,3})|(?P<decimal>[numkMGTPE]?))"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()}

_NANO = Fraction(1, 10**9)
_LARGEST_BINARY = 2**63 - 1
_LONGEST = 64  # characters: longer numbers take too long to parse

# Resources in bytes, which are formatted with binary suffixes.
_IN_BYTES = ("memory", "ephemeral-storage", "hugepages-")


class BadQuantity(ValueError):
    """A text that is not a Kubernetes quantity."""


class Form(StrEnum):
    """The suffix family of a quantity."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount with its suffix family."""

    value: Fraction
    form: Form = Form.DECIMAL

    def __str__(self) -> str:
        """Format canonically: the largest suffix with an integer before it."""
        if self.value == 0:
            return "0"
        # Binary suffixes need integers of at least 1024.
        if self.form is Form.BINARY and abs(self.value) >= 1024 and self.value.denominator == 1:
            return _with_binary_suffix(self.value.numerator)
        return _with_decimal_suffix(self.value, self.form)


@lru_cache(maxsize=4096)
def quantity(text: str) -> Quantity:
    """Parse a quantity.

    Digits below a billionth are rounded away from zero, as in Kubernetes.

    Raises:
        BadQuantity: the text is not a quantity.
    """
    matched = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if matched is None:
        raise BadQuantity(f'expected a quantity like 500m, 2 or 1Gi, got "{text[:_LONGEST]}"')
    number = Fraction(matched["number"])
    if matched["binary"]:
        value, form = number * 2 ** _BINARY[matched["binary"]], Form.BINARY
    elif matched["exponent"]:
        value, form = number * Fraction(10) ** int(matched["exponent"][1:]), Form.EXPONENT
    else:
        value, form = number * Fraction(10) ** _DECIMAL[matched["decimal"]], Form.DECIMAL
    value = _away_from_zero(value / _NANO) * _NANO
    if form is Form.BINARY:
        value = max(min(value, Fraction(_LARGEST_BINARY)), Fraction(-_LARGEST_BINARY))
        form = Form.DECIMAL if 0 < abs(value) < 1 else form
    return Quantity(value, form)


def requested_quantity(text: str) -> Quantity:
    """Parse a quantity of a request or a capacity: not negative, within 64 bits.

    Raises:
        BadQuantity: the text is not such a quantity.
    """
    read = quantity(text)
    if read.value < 0:
        raise BadQuantity(f'expected an amount that is not negative, got "{text}"')
    if read.value > _LARGEST_BINARY:
        raise BadQuantity(f'expected an amount of at most {_LARGEST_BINARY}, got "{text}"')
    return read


def parse(text: str | int) -> Fraction:
    """Parse a quantity to its exact value.

    Raises:
        BadQuantity: the text is not a quantity.
    """
    return quantity(str(text)).value


def milli(text: str | int) -> int:
    """Parse a quantity in thousandths, rounded up."""
    return math.ceil(parse(text) * 1000)


def whole(text: str | int) -> int:
    """Parse a quantity in whole units, rounded up."""
    return math.ceil(parse(text))


def amount(resource: str, text: str | int) -> int:
    """Parse an amount of a resource: cpu in millicores, others in their base unit (bytes, counts),
    rounded up."""
    return milli(text) if resource == "cpu" else whole(text)


def printed(resource: str, amount: int) -> str:
    """Format an amount of a resource in the unit that `amount` returns."""
    if resource == "cpu":
        return str(Quantity(Fraction(amount, 1000)))
    form = Form.BINARY if resource.startswith(_IN_BYTES) else Form.DECIMAL
    return str(Quantity(Fraction(amount), form))


def _away_from_zero(value: Fraction) -> int:
    return math.ceil(value) if value > 0 else math.floor(value)


def _with_binary_suffix(value: int) -> str:
    exponent = 0
    while value % 1024 == 0 and exponent < max(_BINARY_SUFFIX):
        value //= 1024
        exponent += 10
    return f"{value}{_BINARY_SUFFIX.get(exponent, '')}"


def _with_decimal_suffix(value: Fraction, form: Form) -> str:
    digits, exponent = int(value / _NANO), -9
    while digits % 1000 == 0 and (form is Form.EXPONENT or exponent < max(_DECIMAL_SUFFIX)):
        digits //= 1000
        exponent += 3
    if form is Form.EXPONENT:
        return f"{digits}e{exponent}" if exponent else str(digits)
    return f"{digits}{_DECIMAL_SUFFIX[exponent]}"


EBS_VOLUMES = "attachable-volumes-csi-ebs.csi.aws.com"
"""The volumes of the EBS CSI driver on one node, by the name of the Kubernetes limit."""


class Resources(Mapping[str, int]):
    """An immutable, hashable mapping. A resource that is not named has the amount 0.

    Zero amounts are not stored, so that equal amounts are equal values.
    """

    __slots__ = ("_amounts", "_hash")

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts = {name: n for name, n in (amounts or {}).items() if n}
        self._hash: int | None = None

    @classmethod
    def parsed(cls, quantities: Mapping[str, str | int]) -> Self:
        """Parse Kubernetes quantities.

        Raises:
            BadQuantity: a quantity is invalid.
        """
        return cls({name: amount(name, text) for name, text in quantities.items()})

    def printed(self) -> dict[str, str]:
        """Return Kubernetes quantities in canonical form, without EBS volumes, which Kubernetes
        counts separately."""
        return {name: printed(name, n) for name, n in self._amounts.items() if name != EBS_VOLUMES}

    def of(self, name: str) -> int:
        """Return the amount of a resource, 0 if it is not named."""
        return self._amounts.get(name, 0)

    def __getitem__(self, name: str) -> int:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def items(self) -> ItemsView[str, int]:
        """Return the amounts by name. That of `Mapping` takes several times as long."""
        return self._amounts.items()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._amounts.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and self._amounts == other._amounts

    def __repr__(self) -> str:
        return f"Resources({self.printed()})"

    def __add__(self, other: "Resources") -> "Resources":
        total = dict(self._amounts)
        for name, n in other._amounts.items():
            total[name] = total.get(name, 0) + n
        return Resources(total)

    def __sub__(self, other: "Resources") -> "Resources":
        rest = dict(self._amounts)
        for name, n in other._amounts.items():
            rest[name] = rest.get(name, 0) - n
        return Resources(rest)

    def times(self, count: int) -> "Resources":
        """Return a multiple of these amounts."""
        return Resources({name: n * count for name, n in self._amounts.items()})

    def most(self, other: "Resources") -> "Resources":
        """Return the larger amount of each resource."""
        larger = dict(self._amounts)
        for name, n in other._amounts.items():
            larger[name] = max(n, larger.get(name, 0))
        return Resources(larger)

    def fits(self, into: "Resources") -> bool:
        """Whether these amounts fit into the other amounts. An amount of 0 always fits."""
        room = into._amounts
        return all(n <= room.get(name, 0) for name, n in self._amounts.items() if n > 0)
