"""Parses Kubernetes quantities ("250m", "1Gi") into integers."""

from __future__ import annotations

import functools
import math
from decimal import Decimal, InvalidOperation

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}


@functools.lru_cache(maxsize=4096)
def milli(quantity: str | float) -> int:
    """Return a quantity in thousandths, rounded up; ValueError if it is not valid."""
    text = str(quantity)
    digits = text.rstrip("".join(set("".join(_SUFFIXES))) if "e" not in text else "")
    suffix = text[len(digits) :]
    if suffix not in _SUFFIXES:
        raise ValueError(f"unable to parse quantity's suffix: {text!r}")
    try:
        return math.ceil(Decimal(digits) * _SUFFIXES[suffix] * 1000)
    except InvalidOperation as error:
        raise ValueError(f"quantities must match the regular expression: {text!r}") from error
