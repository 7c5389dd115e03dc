"""The Auto Scaling group of an acceptance: its launch hook waits for Leeway, and after a rebalance
recommendation Leeway replaces its Spot instance with LaunchInstances.

The group's launch template is the one with which Leeway would launch a Spot node of a pool.
"""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from leeway.manifests.base import Manifest
from leeway.manifests.reading import interpret
from leeway.notices import NoticeKind
from leeway.ports.aws import HookResult

from leeway_cli.acceptance.world import NAME, NODE_CLASS, POOL, Stored, World, pool_spec
from leeway_cli.errors import CannotBeDoneError, aws_errors

if TYPE_CHECKING:
    from leeway.aws.table import DynamoTable
    from leeway.launch.fleets import Override

GROUP = f"{NAME}-group"
"""The label of the group's nodes and of its pod. Its own name has the cluster's too."""

_MOST_TYPES = 10
"""Instance types of the group: one of them has Spot capacity."""

_HOOK_TIMEOUT = 900
_MINUTES = 15
"""The longest time that the experiment allows between recommendation and interruption."""


def create(world: World) -> None:
    """Create the group with a launch hook and one Spot instance, and a pod for its node.

    If Leeway does not answer the hook, the group abandons the instance.
    """
    name = _name(world)
    data, overrides = _launch_of_leeway(world)
    types = [*dict.fromkeys(one.instance_type for one in overrides)][:_MOST_TYPES]
    subnets = dict.fromkeys(one.subnet for one in overrides)
    with aws_errors(f"group {name}"):
        template = world.ec2.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData=data,
            TagSpecifications=[
                {
                    "ResourceType": "launch-template",
                    "Tags": [{"Key": k, "Value": v} for k, v in world.of_group.items()],
                }
            ],
        )["LaunchTemplate"]["LaunchTemplateId"]
        _scaling().create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=0,
            MaxSize=2,
            DesiredCapacity=1,
            VPCZoneIdentifier=",".join(subnets),
            MixedInstancesPolicy={
                "LaunchTemplate": {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "1"},
                    "Overrides": [{"InstanceType": one} for one in types],
                },
                "InstancesDistribution": {
                    "OnDemandBaseCapacity": 0,
                    "OnDemandPercentageAboveBaseCapacity": 0,
                    "SpotAllocationStrategy": "price-capacity-optimized",
                },
            },
            LifecycleHookSpecificationList=[
                {
                    "LifecycleHookName": NAME,
                    "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
                    "HeartbeatTimeout": _HOOK_TIMEOUT,
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
                for key, value in {
                    **world.of_group,
                    "eks:cluster-name": world.cluster,
                    f"kubernetes.io/cluster/{world.cluster}": "owned",
                }.items()
            ],
        )
    world.deploy(GROUP)


def is_in_service(world: World) -> bool:
    """Whether the pod runs on the group's node, and Leeway has answered its launch hook."""
    members = _members(world)
    if not members or {*members.values()} != {"InService"} or not world.runs(GROUP):
        return False
    return all(_waited(world, one) is not None for one in members)


def how_long_it_waited(world: World) -> str:
    """Say how long the instances waited for the launch hook."""
    waited = [_waited(world, one) or 0.0 for one in _members(world)]
    return f"The launch hook waited {max(waited, default=0):.1f} s for Leeway's answer."


def recommend(world: World) -> None:
    """Let EC2 recommend a rebalance of the group's instance."""
    world.expired[GROUP] = {*_members(world)}
    world.interrupt(_name(world), world.of_group, _MINUTES)


def is_rebalanced(world: World) -> bool:
    """Whether the instance has ended, after LaunchInstances, and the pod runs on another one.

    Raises:
        CannotBeDoneError: Leeway replaced the instance in another way, or EC2 recommended nothing.
    """
    from leeway.retirement.record import RETIREMENT, Method

    (first,) = world.expired[GROUP]
    record = _table(world).get(RETIREMENT, cluster=world.cluster, instance=first)
    intent = record.replacement_intent if record else None
    if record is None or intent is None:
        world.check_experiment()
        return False
    if (record.kind, intent.method) != (NoticeKind.REBALANCE, Method.LAUNCH):
        raise CannotBeDoneError(
            f"LaunchInstances did not replace the node (notice: {record.kind}). {intent.reason}"
        )
    alive = {one["InstanceId"] for one in world.instances(world.of_group)}
    if first in alive or not alive or not is_in_service(world):
        return False
    world.stop_experiment()
    return True


def is_removed(world: World) -> bool:
    """Remove the group, its instances and its launch template; return whether nothing is left.

    A launch template that is deleted before its group leaves a group that cannot be repaired.
    """
    world.stop_experiment()
    name, scaling = _name(world), _scaling()
    with aws_errors(f"group {name}"):
        groups = _described(world)
        for found in groups:
            if not found.get("Status"):
                scaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)
        if groups or any(True for _ in world.instances(world.of_group)):
            return False
        filters = [{"Name": "launch-template-name", "Values": [name]}]
        templates = world.ec2.describe_launch_templates(Filters=filters)["LaunchTemplates"]
        for template in templates:
            world.ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    return not templates


def _name(world: World) -> str:
    return f"{NAME}-{world.cluster}"


def _scaling() -> Any:
    from leeway.wiring.clients import client

    return client("autoscaling")


def _described(world: World) -> list[dict[str, Any]]:
    found = _scaling().describe_auto_scaling_groups(AutoScalingGroupNames=[_name(world)])
    return list(found["AutoScalingGroups"])


def _members(world: World) -> dict[str, str]:
    """The lifecycle states of the group's instances."""
    with aws_errors(f"group {_name(world)}"):
        groups = _described(world)
    return {
        one["InstanceId"]: one["LifecycleState"] for each in groups for one in each["Instances"]
    }


def _table(world: World) -> "DynamoTable":
    from leeway.wiring.clients import table

    return table(name=world.stack.table)


def _waited(world: World, instance: str) -> float | None:
    """Seconds from the lifecycle action until Leeway's answer CONTINUE; None until then."""
    from leeway.admission.record import ADMISSION

    record = _table(world).get(ADMISSION, cluster=world.cluster, instance=instance)
    if record is None or record.ended_at is None or record.answer is not HookResult.CONTINUE:
        return None
    return (record.ended_at - record.noticed_at).total_seconds()


def _launch_of_leeway(world: World) -> "tuple[dict[str, Any], Sequence[Override]]":
    """Return the launch template, and the types and subnets, with which Leeway would launch a Spot
    node of a pool. Nothing is launched.

    Raises:
        CannotBeDoneError: Leeway would launch no node.
    """
    from leeway.launch.launch_run import LaunchOrder
    from leeway.selection.reading.cluster_objects import pending_pods
    from leeway.wiring.launch_nodes import launch_nodes

    if world.catalog is None:
        raise CannotBeDoneError("refresh_catalog has not stored what the region offers.")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": GROUP, "namespace": NAME},
        "spec": world.pod_spec(GROUP),
    }
    order = LaunchOrder(
        cluster=world.cluster,
        manifests=[*_manifests(world)],
        catalog=world.catalog,
        pods=pending_pods([pod], {}),
    )
    with aws_errors(world.stack.where):
        preview = launch_nodes(world.stack.table).preview(order)
    for prepared in preview.prepared:
        for chosen in prepared.intent.request.templates if prepared.intent.request else ():
            (template,) = (one for one in prepared.templates if one.name == chosen.template)
            return json.loads(template.data), chosen.overrides
    why = "; ".join(str(one.reason) for one in preview.outcome.without_node)
    raise CannotBeDoneError(f"Leeway would launch no Spot node: {why}")


def _manifests(world: World) -> Iterator[Manifest]:
    """A pool and its node class, which are not stored."""
    specs: dict[Stored, Any] = {
        NODE_CLASS: world.node_class_spec("al2023@latest"),
        POOL: pool_spec(GROUP, capacity_type="spot"),
    }
    for kind, spec in specs.items():
        reading = interpret(kind.document(GROUP, spec), "the acceptance")
        yield from (one.manifest for one in reading.written)
