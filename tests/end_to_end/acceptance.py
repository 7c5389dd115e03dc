"""A sandbox in which `leeway acceptance` runs, as a user runs it on an account."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leeway.aws.table import DynamoTable
from leeway.manifests.configuration import StoredManifests
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Scenario
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace, Node

from tests.end_to_end.environment import kube_client
from tests.end_to_end.provisioning import CLUSTER, PARAMETERS, instances, prepare, store, table_of
from tests.launch.pools import NODE_CLASS, document, node_class
from tests.template.granted import actions_of
from tests.template.reached import IAM_NAMES

ROOT = Path(__file__).parents[2]
POLICY = ROOT / "docs" / "acceptance-policy.json"
KEY = "AKIAACCEPTANCE000000"
SECONDS = 1200
"""The longest that a command may take, on a busy machine."""


@contextmanager
def accepting(state: Path) -> Iterator[Sandbox]:
    """Run a cluster without nodes, in which schedules run eight times a minute."""
    options = {"aws": ["--schedule-speed", "8"], "kubernetes": ["--node-join", "1"]}
    scenario = Scenario(cluster=CLUSTER, groups=())
    with Sandbox.start(
        scenario, state_dir=state, parameters=PARAMETERS, options=options
    ) as running:
        prepare(running)
        # By default one node may go in ten minutes.
        budget = {"churn": {"atLeast": 10}}
        terms = [{"alias": "windows2022@latest"}]
        windows = document("EC2NodeClass", "windows", {**NODE_CLASS, "amiSelectorTerms": terms})
        store(running, node_class(), windows, document("Cluster", CLUSTER, budget))
        addresses = ConfigMap(
            metadata=ObjectMeta(name="amazon-vpc-cni", namespace="kube-system"),
            data={"enable-windows-ipam": "true"},
        )
        with kube_client(running) as kube:
            kube.create(addresses)
        yield running


def command(sandbox: Sandbox, *arguments: str, stdin: int | None = None) -> "subprocess.Popen[str]":
    """Start the command in a process of its own, as another identity than the tests."""
    environment = os.environ | sandbox.environment()
    environment |= {"AWS_ACCESS_KEY_ID": KEY, "KUBECONFIG": str(sandbox.kubeconfig)}
    return subprocess.Popen(
        [sys.executable, "-m", "leeway_cli", "acceptance", CLUSTER, *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(sandbox: Sandbox, *arguments: str, within: float = SECONDS) -> tuple[int, str, str]:
    process = command(sandbox, *arguments)
    try:
        out, err = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(err) from None
    return process.returncode, out, err


def left(sandbox: Sandbox) -> dict[str, Any]:
    """What a cluster has of an acceptance."""
    dynamodb = client("dynamodb", sandbox.aws_url)
    # The table keeps a record of each deleted pool, which is no manifest any more.
    manifests = StoredManifests(DynamoTable(lambda: dynamodb, table_of(sandbox))).of(CLUSTER)
    with kube_client(sandbox) as kube:
        namespaces = [one.metadata.name for one in kube.list(Namespace) if one.metadata]
        nodes = [one.metadata.name for one in kube.list(Node) if one.metadata]
    scaling, ec2 = client("autoscaling", sandbox.aws_url), client("ec2", sandbox.aws_url)
    described = ec2.describe_launch_templates()["LaunchTemplates"]
    templates = [str(one["LaunchTemplateName"]) for one in described]
    return {
        "manifests": [one.title for one in manifests if one.name.startswith("leeway-acceptance")],
        "namespaces": [one for one in namespaces if one == "leeway-acceptance"],
        "nodes": nodes,
        "instances": instances(sandbox),
        "groups": scaling.describe_auto_scaling_groups()["AutoScalingGroups"],
        "templates": [one for one in templates if one.startswith("leeway-acceptance")],
    }


NOTHING: dict[str, Any] = {
    name: [] for name in ("manifests", "namespaces", "nodes", "instances", "groups", "templates")
}


def called(sandbox: Sandbox) -> set[str]:
    """The actions that the commands have called, as IAM names them."""
    calls = sandbox.status()["aws"]["calls_by_access_key"][KEY]
    return {IAM_NAMES.get(one, one) for one in calls}


def granted() -> set[str]:
    """The actions that docs/acceptance-policy.json grants, without those that no call shows."""
    statements = json.loads(POLICY.read_text())["Statement"]
    found = {action for one in statements for action in actions_of(one)}
    # The endpoint of the sandbox names the table. AWS checks the others in calls of FIS, and in
    # those that create the group and its launch template.
    return found - {
        "autoscaling:CreateOrUpdateTags",
        "cloudformation:DescribeStacks",
        "ec2:CreateTags",
        "ec2:RunInstances",
        "iam:PassRole",
        "iam:CreateServiceLinkedRole",
    }
