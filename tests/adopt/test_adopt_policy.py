"""The conditions of docs/adopt-policy.json: who adopts one cluster takes nothing from another."""

import json
from collections.abc import Mapping

import pytest
from leeway_sandbox.aws.policies import Request, Values, refused

from tests.adopt.world import ROOT

POLICY = (ROOT / "docs" / "adopt-policy.json").read_text()
STATEMENTS = json.loads(POLICY.replace("CLUSTER", "prod").replace("REGION", "us-east-1"))[
    "Statement"
]
GROUP = "arn:aws:autoscaling:us-east-1:ACCOUNT:autoScalingGroup:1:autoScalingGroupName/web"
STACK = "arn:aws:cloudformation:us-east-1:ACCOUNT:stack/leeway/1"
TAG, OF_GROUP = "aws:RequestTag/eks:cluster-name", "aws:ResourceTag/eks:cluster-name"
HOOKS = ("PutLifecycleHook", "DeleteLifecycleHook")


def allows(action: str, resource: str, context: Mapping[str, Values]) -> bool:
    return not [*refused(STATEMENTS, [Request(action, resource, context)])]


@pytest.mark.parametrize("existing", [{}, {OF_GROUP: "prod"}])
def test_a_group_of_no_other_cluster_is_tagged_for_the_cluster(existing: dict[str, str]) -> None:
    tagging = {TAG: "prod", "aws:TagKeys": ["eks:cluster-name"], **existing}
    assert allows("autoscaling:CreateOrUpdateTags", GROUP, tagging)


@pytest.mark.parametrize(
    "context",
    [
        {TAG: "prod", "aws:TagKeys": ["eks:cluster-name"], OF_GROUP: "payments"},
        {TAG: "payments", "aws:TagKeys": ["eks:cluster-name"]},
        {TAG: "prod", "aws:TagKeys": ["eks:cluster-name", "team"]},
        {"aws:RequestTag/team": "web", "aws:TagKeys": ["team"], OF_GROUP: "prod"},
    ],
)
def test_no_other_tag_is_written_and_no_group_of_another_cluster(
    context: dict[str, Values],
) -> None:
    assert not allows("autoscaling:CreateOrUpdateTags", GROUP, context)


def test_only_the_tag_and_the_hooks_of_groups_of_the_cluster_are_removed() -> None:
    keys: dict[str, Values] = {"aws:TagKeys": ["eks:cluster-name"]}
    assert allows("autoscaling:DeleteTags", GROUP, {**keys, OF_GROUP: "prod"})
    assert not allows("autoscaling:DeleteTags", GROUP, {**keys, OF_GROUP: "payments"})
    assert not allows("autoscaling:DeleteTags", GROUP, {"aws:TagKeys": ["x"], OF_GROUP: "prod"})
    for action in HOOKS:
        assert allows(f"autoscaling:{action}", GROUP, {OF_GROUP: "prod"})
        assert not allows(f"autoscaling:{action}", GROUP, {OF_GROUP: "payments"})
        assert not allows(f"autoscaling:{action}", GROUP, {})


def test_the_stack_is_updated_without_another_role_or_a_template_of_a_url() -> None:
    assert allows("cloudformation:UpdateStack", STACK, {})
    for key in ("cloudformation:RoleArn", "cloudformation:TemplateUrl"):
        assert not allows("cloudformation:UpdateStack", STACK, {key: "x"})
