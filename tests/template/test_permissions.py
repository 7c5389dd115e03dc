"""The roles grant what the code calls, and no more."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.template.translation import translate

LAYER = Path(__file__).parents[2] / "layers" / "leeway" / "leeway"
WIRED = re.compile(r'(\w+)\(\s*partial\(client, "(\w+)"')

BY_THE_SERVICE = {
    "iam:PassRole",
    "lambda:CheckpointDurableExecution",
    "lambda:GetDurableExecutionState",
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "sqs:SendMessage",
}
"""What Lambda and the durable SDK call in a function's name, and what Scheduler checks, which
stands in no adapter."""

IAM_NAMES = {"lambda:Invoke": "lambda:InvokeFunction"}
"""Operations whose permission has another name."""


def services() -> dict[str, str]:
    """Adapter class → the service whose client `wiring` hands it."""
    modules = (LAYER / "wiring").glob("*.py")
    return dict(found for path in modules for found in WIRED.findall(path.read_text()))


def calls_of(adapter: str) -> Iterator[str]:
    """The boto3 methods and paginators that an adapter's class calls on its client."""
    for path in (LAYER / "cloud").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name == adapter:
                yield from _client_calls(node)


def _client_calls(node: ast.ClassDef) -> Iterator[str]:
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        if ast.unparse(call.func.value) != "self._client()":
            continue
        if call.func.attr == "get_paginator":
            yield str(ast.literal_eval(call.args[0]))
        else:
            yield call.func.attr


def called() -> set[str]:
    """Every call of every adapter as an IAM action."""
    actions = set()
    for adapter, service in services().items():
        operations = boto3.client(service, region_name="us-east-1").meta.method_to_api_mapping
        for method in calls_of(adapter):
            action = f"{service}:{operations[method]}"
            actions.add(IAM_NAMES.get(action, action))
    return actions


def statements() -> list[dict[str, Any]]:
    roles = [r for r in translate({}, {})["Resources"].values() if r["Type"] == "AWS::IAM::Role"]
    policies = [policy for role in roles for policy in role["Properties"]["Policies"]]
    return [s for policy in policies for s in policy["PolicyDocument"]["Statement"]]


def actions_of(statement: dict[str, Any]) -> set[str]:
    action = statement["Action"]
    return {action} if isinstance(action, str) else set(action)


def test_the_roles_grant_what_the_adapters_call_and_no_more() -> None:
    granted = {action for statement in statements() for action in actions_of(statement)}
    assert granted == called() | BY_THE_SERVICE


def test_no_action_is_granted_by_wildcard() -> None:
    assert not [a for statement in statements() for a in actions_of(statement) if "*" in a]


def test_what_is_granted_on_everything_only_reads() -> None:
    for statement in statements():
        if statement["Resource"] == "*":
            assert all(":Describe" in action for action in actions_of(statement))


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
    resources = translate({}, {})["Resources"].values()
    functions = [r for r in resources if r["Type"] == "AWS::Lambda::Function"]
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
    role = translate({}, {})["Resources"]["NoticesToComeRole"]["Properties"]
    granted = {
        a for p in role["Policies"] for s in p["PolicyDocument"]["Statement"] for a in actions_of(s)
    }
    assert granted == {"lambda:InvokeFunction", "sqs:SendMessage"}
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert set(trust["Condition"]["StringEquals"]) == {"aws:SourceAccount", "aws:SourceArn"}
