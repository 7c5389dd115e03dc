"""Parses Kubernetes quantities ("250m", "1Gi") into integers."""

from __future__ import annotations

import functools
import math
from decimal import Decimal, InvalidOperation

_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_SUFFIXES = {one: Decimal(10) ** (3 * power) for power, one in enumerate(_DECIMAL, -3)} | {
    f"{one}i": Decimal(2) ** (10 * power) for power, one in enumerate("KMGTPE", 1)
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
