"""A cluster whose groups launch instances, and operations on it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from leeway_sandbox.provisioning import IMAGE, client
from leeway_sandbox.scenario import ZONES, Group, Manifest, Scenario

from tests.end_to_end.conftest import daemonset, deployment
from tests.end_to_end.environment import Entry, Environment, Journal, until

CLUSTER = "launches"
ADMIT = "leeway-admit"


def database(replicas: int) -> Manifest:
    """Return a StatefulSet with a volume for every pod."""
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
def without_notices(env: Environment) -> Iterator[None]:
    """Disable the rules of EventBridge, so that no notice is delivered."""
    assert env.sandbox.deployed is not None
    rules = [rule.name for rule in env.sandbox.deployed.rules if rule.pattern]
    events = client("events", env.sandbox.aws_url)
    for name in rules:
        events.disable_rule(Name=name)
    try:
        yield
    finally:
        for name in rules:
            events.enable_rule(Name=name)


def launch(
    env: Environment,
    name: str,
    kind: str = "m5.large",
    size: int = 1,
    extra: Mapping[str, str] | None = None,
) -> Any:
    """Create a group with a launch hook that launches instances. Returns the Auto Scaling
    client."""
    ec2 = client("ec2", env.sandbox.aws_url)
    scaling = client("autoscaling", env.sandbox.aws_url)
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
    """Return the instances of a group with their lifecycle states."""

    def found() -> dict[str, str]:
        described = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        instances = described["AutoScalingGroups"][0]["Instances"]
        return {one["InstanceId"]: one["LifecycleState"] for one in instances}

    return until(found)


def member(scaling: Any, group: str) -> tuple[str, str]:
    """Return the only instance of a group and its lifecycle state."""
    (found,) = members(scaling, group).items()
    return found


def admission(seen: Journal, instance: str) -> Entry:
    """Return the outcome of the only admission of an instance."""
    titles = {"Leeway Node Admitted", "Leeway Node Not Admitted"}
    events = [e for e in seen.admissions(instance) if e["detail_type"] in titles]
    (detail,) = [e["detail"] for e in events]
    found: Entry = detail
    return found


def answers(env: Environment, instance: str) -> list[str]:
    """Return the outcomes of the lifecycle actions of an instance."""
    entries = env.since(0).of("lifecycle-action", instance=instance)
    return [entry["outcome"] for entry in entries]
