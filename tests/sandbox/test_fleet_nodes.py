"""An instance of a fleet becomes a Ready node of a running cluster, and leaves it."""

import time
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Scenario
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Node

PARAMETER = (
    "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id"
)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    scenario = Scenario(cluster="fleets", groups=())
    with Sandbox.start(scenario, state_dir=tmp_path_factory.mktemp("sandbox")) as running:
        yield running


def _user_data(sandbox: Sandbox) -> str:
    cluster = client("eks", sandbox.aws_url).describe_cluster(name="fleets")["cluster"]
    document = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": "fleets",
                "apiServerEndpoint": cluster["endpoint"],
                "certificateAuthority": cluster["certificateAuthority"]["data"],
                "cidr": "10.100.0.0/16",
            },
            "kubelet": {
                "config": {
                    "maxPods": 20,
                    "registerWithTaints": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
                },
                "flags": ["--node-labels=team=search"],
            },
        },
    }
    return b64encode(yaml.safe_dump(document).encode()).decode()


def _launch(sandbox: Sandbox) -> str:
    ec2, ssm = client("ec2", sandbox.aws_url), client("ssm", sandbox.aws_url)
    iam = client("iam", sandbox.aws_url)
    iam.create_role(RoleName="fleet-nodes", AssumeRolePolicyDocument="{}")
    iam.create_instance_profile(InstanceProfileName="fleet-nodes")
    iam.add_role_to_instance_profile(InstanceProfileName="fleet-nodes", RoleName="fleet-nodes")
    data = {
        "ImageId": ssm.get_parameter(Name=PARAMETER)["Parameter"]["Value"],
        "IamInstanceProfile": {"Name": "fleet-nodes"},
        "UserData": _user_data(sandbox),
    }
    ec2.create_launch_template(LaunchTemplateName="fleet-nodes", LaunchTemplateData=data)
    answer = ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateName": "fleet-nodes",
                    "Version": "$Latest",
                },
                "Overrides": [{"InstanceType": "m5.large"}],
            }
        ],
        TargetCapacitySpecification={
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": "spot",
        },
    )
    return str(answer["Instances"][0]["InstanceIds"][0])


def _wait(condition: Any, within: float = 90) -> Any:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError("the condition did not become true in time")


def test_an_instance_of_a_fleet_is_a_ready_node_until_it_ends(sandbox: Sandbox) -> None:
    instance = _launch(sandbox)
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:

        def ready() -> Node | None:
            for node in kube.list(Node):
                conditions = (node.status and node.status.conditions) or []
                if any(one.type == "Ready" and one.status == "True" for one in conditions):
                    return node
            return None

        node = _wait(ready)
        assert node.spec.providerID.endswith(f"/{instance}")
        assert node.metadata.labels["team"] == "search"
        assert [(one.key, one.value, one.effect) for one in node.spec.taints] == [
            ("team", "a", "NoSchedule")
        ]
        assert node.status.allocatable == {
            "cpu": "1930m",
            "memory": "6903Mi",
            "pods": "20",
            "ephemeral-storage": "17408Mi",
        }
        assert node.status.nodeInfo.osImage == "Amazon Linux 2023"
        client("ec2", sandbox.aws_url).terminate_instances(InstanceIds=[instance])
        _wait(lambda: not list(kube.list(Node)))
