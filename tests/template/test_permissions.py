"""The roles grant what the code calls, and no more."""

from typing import Any

import pytest

from tests.template.granted import actions_of, granted_to, resources, role_of, statements
from tests.template.reached import ROOT, actions_reached_by

FUNCTIONS = sorted(path.parent.name for path in (ROOT / "functions").glob("*/handler.py"))

DURABLE = {"lambda:CheckpointDurableExecution", "lambda:GetDurableExecutionState"}
BY_THE_SERVICE = {
    "iam:PassRole",
    *DURABLE,
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "sqs:SendMessage",
}
"""What Lambda and the durable SDK call in a function's name, and what services check when they are
handed a role, which stands in no adapter."""


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_role_grants_what_its_functions_code_comes_to_and_no_more(function: str) -> None:
    granted = granted_to(role_of(function))
    assert granted - BY_THE_SERVICE == actions_reached_by(function) - BY_THE_SERVICE


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_lambda_does_in_a_functions_name_is_granted_as_far_as_it_does_it(
    function: str,
) -> None:
    (properties,) = [
        r["Properties"]
        for r in resources().values()
        if r["Type"] == "AWS::Lambda::Function"
        and role_of(function) in str(r["Properties"]["Role"])
    ]
    granted = granted_to(role_of(function))
    assert granted >= {"logs:CreateLogStream", "logs:PutLogEvents"}
    assert granted & DURABLE == (DURABLE if "DurableConfig" in properties else set())
    passes_failures_on = "DeadLetterConfig" in properties or any(
        "OnFailure" in r["Properties"].get("DestinationConfig", {})
        for r in resources().values()
        if r["Type"] == "AWS::Lambda::EventInvokeConfig"
        and r["Properties"]["FunctionName"] == {"Ref": function_id(properties)}
    )
    assert ("sqs:SendMessage" in granted) == passes_failures_on


def function_id(properties: dict[str, Any]) -> str:
    """The logical id of the function that has these properties."""
    (found,) = [name for name, r in resources().items() if r.get("Properties") == properties]
    return found


def test_no_action_is_granted_by_wildcard() -> None:
    assert not [a for statement in statements() for a in actions_of(statement) if "*" in a]


def test_what_is_granted_on_everything_only_reads() -> None:
    for statement in statements():
        if statement["Resource"] == "*":
            reads = actions_of(statement) - {"pricing:GetProducts"}
            assert all(":Describe" in action for action in reads)


@pytest.mark.parametrize(
    "action",
    [
        "autoscaling:CompleteLifecycleAction",
        "autoscaling:DetachInstances",
        "autoscaling:RecordLifecycleActionHeartbeat",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
        "ec2:CreateTags",
        "ec2:TerminateInstances",
    ],
)
def test_a_change_to_instances_or_groups_takes_the_tag_of_a_cluster_under_care(action: str) -> None:
    for statement in statements():
        if action in actions_of(statement):
            tags = statement["Condition"]["StringEquals"]
            assert list(tags.values()) == [{"Ref": "ClusterNames"}]


def test_every_function_has_a_role_of_its_own() -> None:
    functions = [r for r in resources().values() if r["Type"] == "AWS::Lambda::Function"]
    roles = {str(function["Properties"]["Role"]) for function in functions}
    assert len(roles) == len(functions)


def test_schedules_may_be_made_in_leeways_own_group_and_only_send_notices_again() -> None:
    on_schedules = [s for s in statements() if any("scheduler:" in a for a in actions_of(s))]
    assert [str(s["Resource"]).count("schedule/${NoticesToCome}/*") for s in on_schedules] == [1]
    (passing,) = [s for s in statements() if "iam:PassRole" in actions_of(s)]
    assert passing["Resource"] == {"Fn::GetAtt": ["NoticesToComeRole", "Arn"]}
    assert passing["Condition"] == {
        "StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}
    }
    role = resources()["NoticesToComeRole"]["Properties"]
    granted = {
        a for p in role["Policies"] for s in p["PolicyDocument"]["Statement"] for a in actions_of(s)
    }
    assert granted == {"lambda:InvokeFunction", "sqs:SendMessage"}
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert set(trust["Condition"]["StringEquals"]) == {"aws:SourceAccount", "aws:SourceArn"}
