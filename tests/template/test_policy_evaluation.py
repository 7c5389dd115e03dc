"""The evaluation of policies agrees with IAM."""

from typing import Any

import pytest

from tests.template.policies import Request, Values, allows

ARN = "arn:aws:ec2:us-east-1:123456789012:instance/i-1"


def statement(effect: str = "Allow", **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": "ec2:TerminateInstances", "Resource": "*", **more}


def request(**context: Values) -> Request:
    """A request whose context has one tag, or none."""
    tags = {f"aws:ResourceTag/{key}": value for key, value in context.items()}
    return Request("ec2:TerminateInstances", ARN, tags)


def when(operator: str, value: Any, key: str = "aws:ResourceTag/team") -> list[dict[str, Any]]:
    return [statement(Condition={operator: {key: value}})]


@pytest.mark.parametrize(
    ("statements", "allowed"),
    [
        ([], False),
        ([statement()], True),
        ([statement(), statement("Deny")], False),
        ([statement(Action="ec2:RunInstances")], False),
        ([statement(Action=["ec2:RunInstances", "ec2:terminateinstances"])], True),
        ([statement(Action="ec2:Terminate*")], True),
        ([statement(Resource="arn:aws:ec2:*:*:instance/*")], True),
        ([statement(Resource="arn:aws:ec2:*:*:volume/*")], False),
        ([statement(Resource=["arn:aws:ec2:*:*:volume/*", ARN])], True),
        ([statement(Resource="arn:aws:ec2:*:*:instance/[i]-1")], False),
    ],
)
def test_effect_action_and_resource_decide(statements: list[Any], allowed: bool) -> None:
    assert allows(statements, request()) is allowed


@pytest.mark.parametrize(
    ("statements", "team", "allowed"),
    [
        (when("StringEquals", "a"), "a", True),
        (when("StringEquals", "a"), "b", False),
        (when("StringEquals", "a"), None, False),
        (when("StringEquals", ["a", "b"]), "b", True),
        (when("StringEquals", "A", "aws:resourcetag/TEAM"), "A", True),
        (when("StringEqualsIfExists", "a"), None, True),
        (when("StringEqualsIfExists", "a"), "b", False),
        (when("StringNotEquals", "a"), "b", True),
        (when("StringNotEquals", "a"), "a", False),
        (when("StringNotEquals", "a"), None, True),
        (when("StringLike", "prod-*"), "prod-1", True),
        (when("StringLike", "prod-?"), "prod-12", False),
        (when("Null", "true"), None, True),
        (when("Null", "true"), "", False),
        (when("Null", "false"), "a", True),
        (when("Null", "false"), None, False),
    ],
)
def test_conditions_decide(statements: list[Any], team: str | None, allowed: bool) -> None:
    context = {} if team is None else {"team": team}
    assert allows(statements, request(**context)) is allowed


@pytest.mark.parametrize(
    ("operator", "keys", "allowed"),
    [
        ("ForAllValues:StringLike", ["A#1", "A#2"], True),
        ("ForAllValues:StringLike", ["A#1", "B#2"], False),
        ("ForAllValues:StringLike", [], True),
        ("ForAnyValue:StringLike", ["A#1", "B#2"], True),
        ("ForAnyValue:StringLike", ["B#2"], False),
    ],
)
def test_a_quantifier_decides_about_several_values(
    operator: str, keys: list[str], allowed: bool
) -> None:
    statements = when(operator, "A#*", "dynamodb:LeadingKeys")
    asked = Request("ec2:TerminateInstances", ARN, {"dynamodb:LeadingKeys": keys})
    assert allows(statements, asked) is allowed


def test_every_condition_of_a_statement_must_hold() -> None:
    both = {"StringEquals": {"aws:ResourceTag/team": "a", "aws:ResourceTag/stage": "b"}}
    statements = [statement(Condition=both)]
    assert allows(statements, request(team="a", stage="b"))
    assert not allows(statements, request(team="a"))


def test_every_check_of_a_call_must_be_allowed() -> None:
    statements = when("StringEquals", "a")
    assert not allows(statements, request(team="a"), request(team="b"))


@pytest.mark.parametrize(
    "unknown",
    [
        {"Condition": {"DateLessThan": {"aws:CurrentTime": "2026-01-01"}}},
        {"Condition": {"StringEquals": {"aws:ResourceTag/team": "${aws:username}"}}},
        {"NotAction": "ec2:*"},
    ],
)
def test_an_element_that_is_not_known_is_an_error(unknown: dict[str, Any]) -> None:
    context = {"aws:CurrentTime": "2025-01-01", "aws:ResourceTag/team": "a"}
    asked = Request("ec2:TerminateInstances", ARN, context)
    with pytest.raises(NotImplementedError):
        allows([statement(**unknown)], asked)
