"""Leeway's stack and access entries in a sandbox, which deploys the template without them."""

import json
from pathlib import Path
from typing import Any

from leeway import __version__
from samtranslator.yaml_helper import yaml_parse

from sandbox.provisioning import ACCOUNT, NODE_ROLE_ARN, client
from sandbox.sandbox import Sandbox

TEMPLATE = yaml_parse((Path(__file__).parents[2] / "template.yaml").read_text())
ENTRIES: dict[str, str] = TEMPLATE["Metadata"]["AccessEntries"]
ALARM = "leeway-NoticesLateAlarm-1A2B3C"


def take_into_care(sandbox: Sandbox) -> None:
    """Create the stack, the access entries of its roles and of the nodes, and an alarm."""
    _create_stack(sandbox)
    _create_entries(sandbox)
    client("cloudwatch", sandbox.aws_url).put_metric_alarm(
        AlarmName=ALARM,
        MetricName="NoticesLate",
        Namespace="Leeway",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
        AlarmActions=[f"arn:aws:sns:us-east-1:{ACCOUNT}:page"],
    )


def _create_entries(sandbox: Sandbox) -> None:
    eks, name = client("eks", sandbox.aws_url), sandbox.endpoints.cluster
    for role, group in ENTRIES.items():
        eks.create_access_entry(
            clusterName=name, principalArn=role_arn(role), kubernetesGroups=[group]
        )
    eks.create_access_entry(clusterName=name, principalArn=NODE_ROLE_ARN, type="EC2_LINUX")


def _create_stack(sandbox: Sandbox) -> None:
    """Create a stack with the parameters, metadata and outputs of template.yaml."""
    assert sandbox.deployed
    (table,) = sandbox.deployed.tables
    outputs = {"TableName": table.name, "Version": __version__}
    outputs |= {f"{role}Arn": role_arn(role) for role in ENTRIES}
    given = {"ClusterNames": sandbox.endpoints.cluster, "NodeRoleArns": NODE_ROLE_ARN}
    template: dict[str, Any] = {
        "Metadata": {"AccessEntries": ENTRIES},
        "Parameters": {name: {"Type": "String"} for name in given},
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    client("cloudformation", sandbox.aws_url).create_stack(
        StackName="leeway",
        TemplateBody=json.dumps(template),
        Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in given.items()],
    )


def role_arn(role: str) -> str:
    return f"arn:aws:iam::{ACCOUNT}:role/{role}"
