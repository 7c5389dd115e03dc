"""Evaluates the statements of policies as IAM does.

Rules: "Policy evaluation logic" and "IAM JSON policy elements: Condition operators" in IAM's guide.
moto's engine ignores the operators that it does not know, so that a condition would allow
everything. What this module does not know is an error.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

type Values = str | Sequence[str]


class NotEvaluatedError(NotImplementedError):
    """A statement has an element that this module does not know."""


@dataclass(frozen=True)
class Request:
    """One check of IAM. `context` has the condition keys that the service sends."""

    action: str
    resource: str
    context: Mapping[str, Values] = field(default_factory=dict)


def refused(
    statements: Iterable[Mapping[str, Any]], requests: Iterable[Request]
) -> Iterable[Request]:
    """Yield the requests that the statements do not allow: a call needs all checks of its
    service."""
    given = list(statements)
    return (one for one in requests if not _allows(given, one))


def listed(value: Any) -> list[Any]:
    """Return an element of a policy as a list: it may be one value."""
    return [value] if isinstance(value, str | bool | Mapping) else list(value)


def _allows(statements: list[Mapping[str, Any]], request: Request) -> bool:
    return {one["Effect"] for one in statements if _applies(one, request)} == {"Allow"}


def _applies(statement: Mapping[str, Any], request: Request) -> bool:
    if unknown := statement.keys() - {"Sid", "Effect", "Action", "Resource", "Condition"}:
        raise NotEvaluatedError(f"{unknown} is not evaluated")
    actions = [action.lower() for action in listed(statement["Action"])]
    return (
        any(_matches(request.action.lower(), action) for action in actions)
        and any(_matches(request.resource, one) for one in listed(statement["Resource"]))
        and all(
            _holds(operator, key, listed(values), request.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _holds(operator: str, key: str, wanted: Sequence[str], context: Mapping[str, Values]) -> bool:
    """Whether one condition is true; all of a statement's conditions must be."""
    if any("${" in str(value) for value in wanted):
        raise NotEvaluatedError("policy variables are not evaluated")
    lowered = {name.lower(): value for name, value in context.items()}
    found = lowered.get(key.lower())
    if operator == "Null":
        (absent,) = wanted
        return (found is None) == (str(absent).lower() == "true")
    quantifier, _, plain = operator.rpartition(":")
    if plain.endswith("IfExists"):
        plain = plain.removesuffix("IfExists")
        if found is None:
            return True
    matches = _OPERATORS.get(plain)
    if matches is None or quantifier not in ("", "ForAllValues", "ForAnyValue"):
        raise NotEvaluatedError(f"{operator} is not evaluated")
    if quantifier == "ForAllValues":
        return all(matches(value, wanted) for value in listed(found or []))
    if found is None:
        # "A missing key": a negated operator is then true, the others are false.
        return plain in _NEGATED
    if quantifier == "ForAnyValue":
        return any(matches(value, wanted) for value in listed(found))
    (value,) = listed(found)
    return matches(value, wanted)


def _like(value: str, wanted: Sequence[str]) -> bool:
    return any(_matches(value, pattern) for pattern in wanted)


_OPERATORS: dict[str, Callable[[str, Sequence[str]], bool]] = {
    "StringEquals": lambda value, wanted: value in wanted,
    "StringNotEquals": lambda value, wanted: value not in wanted,
    "StringLike": _like,
    "StringNotLike": lambda value, wanted: not _like(value, wanted),
    "ArnEquals": _like,
    "ArnLike": _like,
    "Bool": lambda value, wanted: value.lower() in [one.lower() for one in wanted],
}
_NEGATED = {name for name in _OPERATORS if "Not" in name}


def _matches(value: str, pattern: str) -> bool:
    """Match IAM's wildcards `*` and `?`; a bracket is not special."""
    return fnmatchcase(value, pattern.replace("[", "[[]"))
