"""The roles grant what the code needs, on what it needs (`test_reached.py`: which calls)."""

import re
from typing import Any

import pytest

from tests.template.granted import (
    actions_of,
    granted_to,
    grants_key,
    keys_of,
    resources,
    role_of,
    roles_of_functions,
    statements,
)
from tests.template.reached import FUNCTIONS

ROLES = roles_of_functions()

DURABLE = {"lambda:CheckpointDurableExecution", "lambda:GetDurableExecutionState"}
FOR_LAUNCHES = {"ec2:CreateFleet", "ec2:DescribeLaunchTemplateVersions"}
LAUNCHES = {"ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:CreateTags", "ec2:RunInstances"}
BUYER = "ProvisionNodesRole"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_calls_that_lambda_makes_for_a_function_are_granted(
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
    buyer = {"Fn::GetAtt": ["ProvisionQueue", "Arn"]}
    on_failure_queues = [s for s in statements(role_of(function)) if s["Resource"] != buyer]
    sends = any("sqs:SendMessage" in actions_of(s) for s in on_failure_queues)
    assert sends == passes_failures_on


def function_id(properties: dict[str, Any]) -> str:
    """Return the logical ID of the function with these properties."""
    (found,) = [name for name, r in resources().items() if r.get("Properties") == properties]
    return found


def test_no_action_is_granted_by_wildcard() -> None:
    assert not [a for statement in statements() for a in actions_of(statement) if "*" in a]


def test_only_reading_actions_are_granted_on_all_resources() -> None:
    on_everything = [s for s in statements() if s["Resource"] == "*"]
    assert on_everything
    reads = set().union(*map(actions_of, on_everything)) - {"pricing:GetProducts"}
    assert not [action for action in reads if ":Describe" not in action]


@pytest.mark.parametrize(
    "action",
    sorted(
        action
        for statement in statements(*ROLES - {BUYER})
        for action in actions_of(statement)
        if re.match("(autoscaling|ec2):(?!Describe|CreateFleet)", action)
    ),
)
def test_a_change_of_instances_or_groups_requires_the_tag_of_a_managed_cluster(action: str) -> None:
    for statement in statements(*ROLES - {BUYER}):
        if action in actions_of(statement):
            tags = dict(statement["Condition"]["StringEquals"])
            owner = tags.pop("aws:ResourceTag/leeway.sh/owner", None)
            assert owner == ("leeway" if role_of_launches(action, statement) else None)
            assert list(tags.values()) == [{"Ref": "ClusterNames"}]


def role_of_launches(action: str, statement: dict[str, Any]) -> bool:
    """Whether the statement is about what Leeway launched: only `retire_node` ends instances that
    it did not launch."""
    return action == "ec2:DeleteLaunchTemplate" or (
        action == "ec2:TerminateInstances" and statement in statements("AdmitNodeRole")
    )


def kinds_of(statement: dict[str, Any]) -> set[str]:
    """Return the kinds of EC2 resources that a statement is about."""
    named = statement["Resource"]
    texts = [one["Fn::Sub"] for one in (named if isinstance(named, list) else [named])]
    return {text.rpartition(":")[2].partition("/")[0] for text in texts}


def test_without_node_roles_the_buyer_may_launch_nothing() -> None:
    always, launching = resources()[BUYER]["Properties"]["Policies"]
    assert launching["Fn::If"][0] == "HasNodeRoles"
    assert launching["Fn::If"][2] == {"Ref": "AWS::NoValue"}
    granted = {a for s in always["PolicyDocument"]["Statement"] for a in actions_of(s)}
    assert not granted & {*LAUNCHES, "iam:PassRole"}


OF_GROUPS = {
    "fleet",
    "image",
    "instance",
    "launch-template",
    "network-interface",
    "security-group",
    "subnet",
    "volume",
}
"""Kinds of resources for which AWS's own policy for callers of LaunchInstances has CreateFleet.
Source: AWS managed policy BedrockAgentCoreRuntimeInstancesOperatorRolePolicy."""


def by_groups(statement: dict[str, Any]) -> bool:
    return "ec2:CreateFleet" in actions_of(statement)


def test_a_role_that_scales_groups_out_can_launch_only_through_groups() -> None:
    for function in FUNCTIONS:
        granted = granted_to(role_of(function))
        if role_of(function) == BUYER:
            continue
        launches = "autoscaling:LaunchInstances" in granted
        for_launches = granted & FOR_LAUNCHES
        if function == "reconcile":  # it reads what groups launch
            for_launches.discard("ec2:DescribeLaunchTemplateVersions")
        assert for_launches == (FOR_LAUNCHES if launches else set())
        kinds = [kinds_of(s) for s in statements(role_of(function)) if by_groups(s)]
        assert kinds == ([OF_GROUPS] if launches else [])
        assert not granted & {"ec2:RunInstances", "ec2:RequestSpotInstances"}


def test_the_role_of_schedules_is_usable_only_in_this_account_and_group() -> None:
    """Without the conditions, schedules of any account could use a role that trusts the service."""
    trusts = [
        trust
        for r in resources().values()
        if r["Type"] == "AWS::IAM::Role"
        for trust in r["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        if trust["Principal"] != {"Service": "lambda.amazonaws.com"}
    ]
    assert [trust["Principal"] for trust in trusts] == [{"Service": "scheduler.amazonaws.com"}] * 2
    for trust in trusts:
        condition = trust["Condition"]["StringEquals"]
        assert condition["aws:SourceAccount"] == {"Ref": "AWS::AccountId"}
        assert condition["aws:SourceArn"]


def test_schedules_invoke_only_their_own_targets() -> None:
    targets = [
        r["Properties"]["Target"]
        for r in resources().values()
        if r["Type"] == "AWS::Scheduler::Schedule"
    ]
    assert {str(t["RoleArn"]) for t in targets} == {str({"Fn::GetAtt": ["SchedulesRole", "Arn"]})}
    granted = {action: s for s in statements("SchedulesRole") for action in actions_of(s)}
    assert granted.keys() == {"lambda:InvokeFunction", "sqs:SendMessage"}
    invoked = granted["lambda:InvokeFunction"]["Resource"]
    assert sorted(map(str, invoked)) == sorted(str(target["Arn"]) for target in targets)
    kept = [t["DeadLetterConfig"]["Arn"] for t in targets if "DeadLetterConfig" in t]
    assert [granted["sqs:SendMessage"]["Resource"]] == kept


def test_the_table_is_protected_from_deletion_and_outlives_the_stack() -> None:
    table = resources()["Table"]
    assert table["Properties"]["DeletionProtectionEnabled"] is True
    recovery = table["Properties"]["PointInTimeRecoverySpecification"]
    assert recovery == {"PointInTimeRecoveryEnabled": True}
    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_every_log_group_is_deleted_with_the_stack_and_has_a_retention_time() -> None:
    logs = [r for r in resources().values() if r["Type"] == "AWS::Logs::LogGroup"]
    functions = [r for r in resources().values() if r["Type"] == "AWS::Lambda::Function"]
    assert len(logs) == len(functions) > 0
    for log in logs:
        assert log["Properties"]["RetentionInDays"] == {"Ref": "LogRetentionDays"}
        assert log.get("DeletionPolicy", "Delete") == "Delete"  # CloudFormation's default


PARTS = {
    "${Table.Arn}/index/*",
    ":autoScalingGroup:*",
    ":capacity-reservation/*",
    ":cluster/*",
    ":function:${AWS::StackName}-admit-node:*",
    ":function:${AWS::StackName}-retire-node:*",
    ":fleet/*",
    ":image/*",
    ":instance/*",
    ":launch-template/*",
    ":network-interface/*",
    ":parameter/aws/service/*",
    ":security-group/*",
    ":snapshot/*",
    ":spot-instances-request/*",
    ":subnet/*",
    ":volume/*",
    ":access-entry/*",
    ":instance-profile/*",
    ":schedule/${NoticesToCome}/*",
}
"""Suffixes of resources with a wildcard: indexes of the table, groups and instances (by tag),
clusters and their access entries, launch templates (by tag), resources that groups launch with,
instance profiles (to read them), versions, and Leeway's own schedules."""


def test_permissions_are_granted_on_one_resource_or_on_a_known_pattern() -> None:
    on_one_thing, on_parts = [], set()
    for statement in statements():
        resource = statement["Resource"]
        for one in resource if isinstance(resource, list) else [resource]:
            text = one.get("Fn::Sub", "") if isinstance(one, dict) else one
            if "*" not in text:
                on_one_thing.append(one)
            elif text != "*":
                on_parts |= {part for part in PARTS if text.endswith(part)} or {text}
    assert on_parts == PARTS
    assert len(on_one_thing) > 20


def test_events_of_other_sources_cannot_be_put() -> None:
    granting = [s["Condition"] for s in statements() if "events:PutEvents" in actions_of(s)]
    assert granting
    assert all(one == {"StringEquals": {"events:source": "leeway"}} for one in granting)


CONNECTS = {
    "AdmitNodeRole",
    "KeepHeadroomRole",
    "ReconcileRole",
    "RetireNodeRole",
    "WatchPodsRole",
    BUYER,
}
"""Roles of functions with access to clusters."""


def test_every_permission_on_the_table_names_its_kinds_of_records() -> None:
    on_table = [s for s in statements() if s["Resource"] == {"Fn::GetAtt": ["Table", "Arn"]}]
    assert len(on_table) > 10
    for statement in on_table:
        patterns = keys_of(statement)
        assert patterns
        assert all(re.fullmatch(r"[A-Z]+#\*", pattern) for pattern in patterns)


def test_only_the_functions_that_copy_manifests_write_them() -> None:
    """They copy those that users keep in the API server of a cluster."""
    assert {s["Sid"] for s in writing("MANIFESTS#prod")} == {"CopyManifestsOfClusters"}
    found = {role for role in ROLES if writing("MANIFESTS#prod", role)}
    assert found == {"ProvisionNodesRole", "ReconcileRole"}


def test_only_functions_with_access_to_clusters_write_their_endpoints() -> None:
    roles = {name for name, r in resources().items() if r["Type"] == "AWS::IAM::Role"}
    assert {role for role in roles if writing("ENDPOINT#prod", role)} == CONNECTS


RECEIVES, RETIRES, ADMITS = "ReceiveNoticeRole", "RetireNodeRole", "AdmitNodeRole"


@pytest.mark.parametrize(
    ("kind", "writers"),
    [
        ("ADMISSION#prod#i-1", {RECEIVES, ADMITS, "ReconcileRole", BUYER}),
        ("CACHE#groups/web", {RETIRES}),
        ("CATALOG#us-east-1", {"RefreshCatalogRole"}),
        ("CHURN#prod", {RETIRES}),
        ("DETACHED#prod#i-1", {RETIRES}),
        ("GROUPS#prod", {"ReconcileRole"}),
        ("INSTANCE#i-1", {"ReconcileRole"}),
        ("LAUNCH#prod", {BUYER}),
        ("MANUALLAUNCH#prod", set()),
        ("POOLS#prod", {ADMITS, BUYER}),
        ("RETIREMENT#prod#i-1", {RECEIVES, RETIRES, "ReconcileRole", BUYER}),
        ("SURGES#prod", {RETIRES, "ReconcileRole"}),
    ],
)
def test_a_role_writes_only_the_kinds_of_records_that_it_makes(
    kind: str, writers: set[str]
) -> None:
    assert {role for role in ROLES if writing(kind, role)} == writers


def writing(key: str, *roles: str) -> list[dict[str, Any]]:
    """Return the statements of these roles (default: all) that allow writing an item with this
    key."""
    actions = {"dynamodb:PutItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem"}
    return [s for s in statements(*roles) if any(grants_key([s], a, key) for a in actions)]


@pytest.mark.parametrize(
    ("role", "keys"),
    [
        ("KeepHeadroomRole", {"ENDPOINT#*", "HEADROOM#*", "MANIFESTS#*"}),
        ("RefreshCatalogRole", {"CATALOG#*"}),
        ("WatchPodsRole", {"ENDPOINT#*", "LEASE#*", "MANIFESTS#*"}),
        (
            BUYER,
            {
                "ADMISSION#*",
                "CAPACITY#*",
                "CATALOG#*",
                "CHURN#*",
                "ENDPOINT#*",
                "LAUNCH#*",
                "MANIFESTS#*",
                "MANUALLAUNCH#*",
                "OFFERINGS#*",
                "POOLS#*",
                "PROVISIONING#*",
                "RETIREMENT#*",
            },
        ),
    ],
)
def test_a_function_has_access_only_to_its_kinds_of_records(role: str, keys: set[str]) -> None:
    on_table = [s for s in statements(role) if "dynamodb:" in str(s["Action"])]
    on_indexes = [s for s in on_table if "/index/" in str(s["Resource"])]
    assert all(s["Action"] == "dynamodb:Query" for s in on_indexes)
    on_table = [s for s in on_table if s not in on_indexes]
    assert {key for statement in on_table for key in keys_of(statement)} == keys


def test_only_the_rules_of_this_stack_may_send_notices_to_the_queue() -> None:
    (policy,) = [r for r in resources().values() if r["Type"] == "AWS::SQS::QueuePolicy"]
    (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Action"] == "sqs:SendMessage"
    rules = sorted(name for name, r in resources().items() if r["Type"] == "AWS::Events::Rule")
    assert statement["Condition"] == {
        "ArnEquals": {"aws:SourceArn": [{"Fn::GetAtt": [rule, "Arn"]} for rule in rules]},
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}},
    }


def test_every_function_has_its_own_role() -> None:
    functions = [r for r in resources().values() if r["Type"] == "AWS::Lambda::Function"]
    roles = {str(function["Properties"]["Role"]) for function in functions}
    assert len(roles) == len(functions)


def test_schedules_are_created_only_in_leeways_group_and_only_resend_notices() -> None:
    on_schedules = [s for s in statements() if any("scheduler:" in a for a in actions_of(s))]
    assert [str(s["Resource"]).count("schedule/${NoticesToCome}/*") for s in on_schedules] == [1]
    others = statements(*ROLES - {BUYER})
    (passing,) = [s for s in others if "iam:PassRole" in actions_of(s)]
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
