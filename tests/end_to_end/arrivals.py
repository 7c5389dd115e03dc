"""A world where nodes come and go, and what can be done to it: launches, silence."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lightkube import Client, KubeConfig

from sandbox.provisioning import IMAGE, client
from sandbox.scenario import ZONES, Group, Manifest, Scenario
from tests.end_to_end.conftest import daemonset, deployment
from tests.end_to_end.rehearsal import Aftermath, Entry, Rehearsal, until

CLUSTER = "arrivals"
ADMIT = "leeway-admit"


def database(replicas: int) -> Manifest:
    """A StatefulSet whose every pod has a volume."""
    labels = {"app": "database"}
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    container = {
        "name": "c",
        "image": "pause",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "database", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "serviceName": "database",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
            },
            "volumeClaimTemplates": [claim],
        },
    }


WORLD = Scenario(
    cluster=CLUSTER,
    groups=(Group("hooked", 6, terminate_hook=True), Group("plain", 6)),
    workloads=(deployment("web", 24, 5), database(12), daemonset("cni")),
)


@contextmanager
def kubernetes(rehearsal: Rehearsal) -> Iterator[Client]:
    with Client(KubeConfig.from_file(rehearsal.sandbox.kubeconfig), trust_env=False) as kube:
        yield kube


@contextmanager
def silence(rehearsal: Rehearsal) -> Iterator[None]:
    """EventBridge delivers no notice."""
    assert rehearsal.sandbox.deployed is not None
    rules = [rule.name for rule in rehearsal.sandbox.deployed.rules if rule.pattern]
    events = client("events", rehearsal.sandbox.aws_url)
    for name in rules:
        events.disable_rule(Name=name)
    try:
        yield
    finally:
        for name in rules:
            events.enable_rule(Name=name)


def launch(
    rehearsal: Rehearsal,
    name: str,
    kind: str = "m5.large",
    size: int = 1,
    extra: Mapping[str, str] | None = None,
) -> Any:
    """Make a group with a launch hook, and have it launch so many; its Auto Scaling client."""
    ec2 = client("ec2", rehearsal.sandbox.aws_url)
    scaling = client("autoscaling", rehearsal.sandbox.aws_url)
    ec2.create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData={"ImageId": IMAGE, "InstanceType": kind}
    )
    tags = {
        f"kubernetes.io/cluster/{CLUSTER}": "owned",
        "eks:cluster-name": CLUSTER,
        **(extra or {}),
    }
    scaling.create_auto_scaling_group(
        AutoScalingGroupName=name,
        LaunchTemplate={"LaunchTemplateName": name, "Version": "$Latest"},
        MinSize=0,
        MaxSize=size,
        DesiredCapacity=size,
        AvailabilityZones=list(ZONES),
        LifecycleHookSpecificationList=[
            {
                "LifecycleHookName": ADMIT,
                "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
                "HeartbeatTimeout": 300,
                "DefaultResult": "ABANDON",
            }
        ],
        Tags=[
            {
                "ResourceId": name,
                "ResourceType": "auto-scaling-group",
                "Key": key,
                "Value": value,
                "PropagateAtLaunch": True,
            }
            for key, value in tags.items()
        ],
    )
    return scaling


def members(scaling: Any, group: str) -> dict[str, str]:
    """The group's instances, each with its lifecycle state."""

    def found() -> dict[str, str]:
        described = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        instances = described["AutoScalingGroups"][0]["Instances"]
        return {one["InstanceId"]: one["LifecycleState"] for one in instances}

    return until(found)


def member(scaling: Any, group: str) -> tuple[str, str]:
    """The group's one instance, and its lifecycle state."""
    (found,) = members(scaling, group).items()
    return found


def admission(seen: Aftermath, instance: str) -> Entry:
    """What came of the instance's one admission."""
    titles = {"Leeway Node Admitted", "Leeway Node Not Admitted"}
    said = [e for e in told_of(seen, instance) if e["detail_type"] in titles]
    (detail,) = [e["detail"] for e in said]
    found: Entry = detail
    return found


def told_of(seen: Aftermath, instance: str) -> list[Entry]:
    """Leeway's own events about an instance."""
    events = seen.of("put-events", source="leeway")
    return [e for e in events if e["detail"]["instance"] == instance]


def answers(rehearsal: Rehearsal, instance: str) -> list[str]:
    """What became of the instance's lifecycle actions."""
    entries = rehearsal.since(0).of("lifecycle-action", instance=instance)
    return [entry["outcome"] for entry in entries]
