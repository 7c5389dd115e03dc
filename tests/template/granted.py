"""The permissions of the template's roles."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from tests.template.translation import translated


@cache
def resources() -> dict[str, Any]:
    """Return the template's resources as CloudFormation gets them."""
    found: dict[str, Any] = translated()["Resources"]
    return found


def role_of(function: str) -> str:
    """Return the logical ID of a function's role."""
    return "".join(word.title() for word in function.split("_")) + "Role"


def roles_of_functions() -> set[str]:
    """Return the logical IDs of the roles of all functions and schedules."""
    return {name for name, r in resources().items() if r["Type"] == "AWS::IAM::Role"}


def granted_to(role: str) -> set[str]:
    """Return the actions that a role grants."""
    return {action for statement in statements(role) for action in actions_of(statement)}


def statements(*roles: str) -> list[dict[str, Any]]:
    """Return the statements of the policies of these roles (default: all)."""
    found = {name: r for name, r in resources().items() if r["Type"] == "AWS::IAM::Role"}
    policies = [
        _unconditional(policy)
        for name, role in found.items()
        if not roles or name in roles
        for policy in role["Properties"]["Policies"]
    ]
    granted = [s for policy in policies for s in policy["PolicyDocument"]["Statement"]]
    assert granted, "what holds for every statement would hold for none"
    return granted


def _unconditional(policy: dict[str, Any]) -> dict[str, Any]:
    """Return a policy as a deployment that sets every parameter has it."""
    if "Fn::If" not in policy:
        return policy
    found: dict[str, Any] = policy["Fn::If"][1]
    return found


def actions_of(statement: dict[str, Any]) -> set[str]:
    action = statement["Action"]
    return {action} if isinstance(action, str) else set(action)


def keys_of(statement: dict[str, Any]) -> tuple[str, ...]:
    """Return the patterns of partition keys in a statement about the table."""
    leading = statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
    return (leading,) if isinstance(leading, str) else tuple(leading)


def grants_key(statements: Iterable[dict[str, Any]], action: str, key: str) -> bool:
    """Return whether a statement grants an action on a partition key of the table."""
    return any(
        action in actions_of(one)
        and one.get("Condition")
        and any(fnmatchcase(key, pattern) for pattern in keys_of(one))
        for one in statements
    )
