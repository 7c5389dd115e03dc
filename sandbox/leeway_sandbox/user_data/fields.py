"""Checks documents against the types that Go and Rust programs decode them into."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leeway_sandbox.user_data.configuration import BootError

_DURATION = re.compile(r"[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+)")
_LIMITS = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "u32": (0, 2**32 - 1),
    "u8": (0, 255),
}


@dataclass(frozen=True)
class ListOf:
    """A list of items of one type."""

    items: "Type"


@dataclass(frozen=True)
class MapOf:
    """A map from any key to values of one type."""

    values: "Type"


# A scalar by its name, or "any"; a structure by its fields; a list; a map.
type Type = str | Mapping[str, "Type"] | ListOf | MapOf


def named(kind: Type, names: str) -> dict[str, Type]:
    """Fields of one type; their names are separated by spaces."""
    return dict.fromkeys(names.split(), kind)


def check(value: Any, wanted: Type, at: str) -> list[str]:
    """Raise BootError if a value has another type; return the paths of unknown fields.

    `at` is the path of the value. None is allowed everywhere, as a field that is not set.
    """
    if value is None or wanted == "any":
        return []
    if isinstance(wanted, str):
        _check_scalar(value, wanted, at)
        return []
    if isinstance(wanted, ListOf):
        items = _expect(value, list, "a list", at)
        return [x for n, item in enumerate(items) for x in check(item, wanted.items, f"{at}[{n}]")]
    document = _expect(value, dict, "an object", at)
    unknown = []
    for key, inner in document.items():
        path = f"{at}.{key}" if at else str(key)
        if isinstance(wanted, MapOf):
            unknown += check(inner, wanted.values, path)
        elif key in wanted:
            unknown += check(inner, wanted[key], path)
        else:
            unknown.append(path)
    return unknown


def _expect(value: Any, kind: type, name: str, at: str) -> Any:
    if not isinstance(value, kind):
        raise BootError(f"{at}: expected {name}, got {_kind(value)}")
    return value


def _check_scalar(value: Any, wanted: str, at: str) -> None:
    if wanted == "bool":
        _expect(value, bool, "true or false", at)
    elif wanted == "float":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BootError(f"{at}: expected a number, got {_kind(value)}")
    elif wanted in _LIMITS:
        if isinstance(value, bool) or not isinstance(value, int):
            raise BootError(f"{at}: expected a whole number, got {_kind(value)}")
        least, most = _LIMITS[wanted]
        if not least <= value <= most:
            raise BootError(f"{at}: expected a number from {least} to {most}, got {value}")
    else:
        _expect(value, str, "a string", at)
        if wanted == "duration" and not _DURATION.fullmatch(value):
            raise BootError(f"{at}: expected a duration such as 30s or 2m, got {value!r}")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the string {value[:60]!r}"
    return "a list" if isinstance(value, list) else "an object"
