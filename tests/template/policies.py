"""The policies of the template's roles, evaluated as the sandbox does."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from leeway_sandbox.aws.policies import Request, Values, listed, refused
from leeway_sandbox.intrinsics import Resolver

from tests.template.translation import translate

__all__ = ["ACCOUNT", "REGION", "Request", "Values", "allows", "role_names", "statements_of"]

REGION, ACCOUNT = "us-east-1", "123456789012"


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
        for statement in listed(policy["PolicyDocument"]["Statement"])
    ]


def allows(statements: Iterable[Mapping[str, Any]], *requests: Request) -> bool:
    """Whether the statements allow every request: a call needs all checks of its service."""
    assert requests, "an empty call would be allowed"
    return not [*refused(statements, requests)]


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
