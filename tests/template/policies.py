"""Evaluates the policies of the template's roles as IAM does.

Rules: "Policy evaluation logic" and "IAM JSON policy elements: Condition operators" in IAM's guide.
The sandbox does not enforce policies, and moto's engine ignores the operators that it does not
know, so that a condition would allow everything. What this module does not know is an error.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from sandbox.intrinsics import Resolver
from tests.template.translation import translate

REGION, ACCOUNT = "us-east-1", "123456789012"

type Values = str | Sequence[str]


@dataclass(frozen=True)
class Request:
    """One check of IAM. `context` has the condition keys that the service sends."""

    action: str
    resource: str
    context: Mapping[str, Values] = field(default_factory=dict)


@cache
def role_names() -> tuple[str, ...]:
    """Return the logical ids of all roles."""
    found = _resolver(()).template_resources
    return tuple(name for name, one in found.items() if one["Type"] == "AWS::IAM::Role")


def statements_of(role: str, **parameters: str) -> list[dict[str, Any]]:
    """Return the statements of a role's policies in a stack with these parameters."""
    properties = _resolver(tuple(sorted(parameters.items()))).resolver.properties(role)
    return [
        statement
        for policy in properties.get("Policies", [])
        for statement in _listed(policy["PolicyDocument"]["Statement"])
    ]


def allows(statements: Iterable[Mapping[str, Any]], *requests: Request) -> bool:
    """Whether the statements allow every request: a call needs all checks of its service."""
    given = list(statements)
    assert requests, "an empty call would be allowed"
    return all(_allows(given, request) for request in requests)


def _allows(statements: list[Mapping[str, Any]], request: Request) -> bool:
    effects = {one["Effect"] for one in statements if _applies(one, request)}
    assert effects <= {"Allow", "Deny"}
    return effects == {"Allow"}


def _applies(statement: Mapping[str, Any], request: Request) -> bool:
    unknown = statement.keys() - {"Sid", "Effect", "Action", "Resource", "Condition"}
    assert not unknown, f"this module does not evaluate {unknown}"
    actions = [action.lower() for action in _listed(statement["Action"])]
    return (
        any(_matches(request.action.lower(), action) for action in actions)
        and any(_matches(request.resource, one) for one in _listed(statement["Resource"]))
        and all(
            _holds(operator, key, _listed(values), request.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _holds(operator: str, key: str, wanted: Sequence[str], context: Mapping[str, Values]) -> bool:
    """Whether one condition is true; all of a statement's conditions must be."""
    assert not any("${" in str(value) for value in wanted), "policy variables are not evaluated"
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
    matches = _OPERATORS[plain]
    if quantifier == "ForAllValues":
        return all(matches(value, wanted) for value in _listed(found or []))
    if found is None:
        # "A missing key": a negated operator is then true, the others are false.
        return plain in _NEGATED
    if quantifier == "ForAnyValue":
        return any(matches(value, wanted) for value in _listed(found))
    assert not quantifier, f"this module does not evaluate {operator}"
    (value,) = _listed(found)
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


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, str | bool | Mapping) else list(value)


@dataclass(frozen=True)
class _Stack:
    resolver: Resolver
    template_resources: Mapping[str, Any]


@cache
def _resolver(parameters: tuple[tuple[str, str], ...]) -> _Stack:
    given = dict(parameters)
    translated = translate({}, given)
    resolver = Resolver(translated, given, stack="leeway", region=REGION, account=ACCOUNT)
    return _Stack(resolver, translated["Resources"])
