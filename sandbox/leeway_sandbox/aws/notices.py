"""The events of EC2 and Auto Scaling, in their documented shapes.

Sources: "Automate EC2 with EventBridge" in the EC2 user guide and "Amazon EC2 Auto Scaling event
reference" in the Auto Scaling user guide.
"""

import time
import uuid
from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.instances import Instance

from leeway_sandbox.aws.cloud import ACCOUNT

Event = dict[str, Any]

LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"


def timestamp(seconds: float) -> str:
    """Return epoch seconds in the format of EventBridge: UTC, whole seconds, `Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def event(
    source: str,
    detail_type: str,
    region: str,
    resources: list[str],
    detail: dict[str, Any],
    at: float | None = None,
) -> Event:
    """Return an event with a new id and the time `at` (epoch seconds; now if None)."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": detail_type,
        "source": source,
        "account": ACCOUNT,
        "time": timestamp(time.time() if at is None else at),
        "region": region,
        "resources": resources,
        "detail": detail,
    }


def instance_arn(instance: Instance) -> str:
    """Return the ARN of an instance as most events have it."""
    return f"arn:aws:ec2:{instance.region_name}:{ACCOUNT}:instance/{instance.id}"


def _spot_arn(instance: Instance) -> str:
    # Spot events have the zone in place of the region, and no account.
    return f"arn:aws:ec2:{instance.placement.zone}:instance/{instance.id}"


def state_change(instance: Instance, state: str) -> Event:
    """Return the event of a state change."""
    return event(
        "aws.ec2",
        "EC2 Instance State-change Notification",
        instance.region_name,
        [instance_arn(instance)],
        {"instance-id": instance.id, "state": state},
    )


def interruption_warning(instance: Instance, action: str, at: float) -> Event:
    """Return the warning of a Spot interruption; `action` is terminate, stop or hibernate."""
    return event(
        "aws.ec2",
        "EC2 Spot Instance Interruption Warning",
        instance.region_name,
        [_spot_arn(instance)],
        {"instance-id": instance.id, "instance-action": action},
        at,
    )


def reservation_warning(instance: Instance, ends: float, at: float) -> Event:
    """Return the warning of a capacity reservation that ends at `ends` (epoch seconds)."""
    zone = instance.placement.zone
    known = RegionsAndZonesBackend.zones.get(instance.region_name, [])
    detail = {
        "instance-id": instance.id,
        "instance-action": "terminate",
        "instance-termination-time": timestamp(ends),
        "azId": next((one.zone_id for one in known if one.name == zone), zone),
    }
    warning = event(
        "aws.ec2",
        "EC2 Capacity Reservation Instance Interruption Warning",
        instance.region_name,
        [],
        detail,
        at,
    )
    return {**warning, "resources": instance_arn(instance)}  # text, as documented


def rebalance_recommendation(instance: Instance, at: float) -> Event:
    """Return a rebalance recommendation of a Spot instance."""
    return event(
        "aws.ec2",
        "EC2 Instance Rebalance Recommendation",
        instance.region_name,
        [_spot_arn(instance)],
        {"instance-id": instance.id},
        at,
    )


def lifecycle_action(
    group: FakeAutoScalingGroup,
    instance: Instance,
    transition: str,
    hook: str,
    token: str,
    metadata: str | None,
) -> Event:
    """Return the event of a lifecycle action with this token."""
    launching = transition == LAUNCHING
    detail = {
        "LifecycleActionToken": token,
        "AutoScalingGroupName": group.name,
        "LifecycleHookName": hook,
        "EC2InstanceId": instance.id,
        "LifecycleTransition": transition,
        "NotificationMetadata": metadata or "",
        "Origin": "EC2" if launching else "AutoScalingGroup",
        "Destination": "AutoScalingGroup" if launching else "EC2",
    }
    verb = "launch" if launching else "terminate"
    return event(
        "aws.autoscaling",
        f"EC2 Instance-{verb} Lifecycle Action",
        group.region,
        [group.arn],
        detail,
    )


def scaling_outcome(
    group: FakeAutoScalingGroup,
    instance: Instance | None,
    verb: str,
    *,
    successful: bool,
    cause: str,
    message: str = "",
) -> Event:
    """Return the event of a launch or a termination; `verb` is Launch or Terminate."""
    launching = verb == "Launch"
    instance_id = instance.id if instance else ""
    now = timestamp(time.time())
    details = {}
    if instance:
        details["Availability Zone"] = instance.placement.zone
        if instance.subnet_id:
            details["Subnet ID"] = instance.subnet_id
    doing = "Launching a new" if launching else "Terminating"
    detail = {
        "StatusCode": "InProgress" if successful else "Failed",
        "Description": f"{doing} EC2 instance: {instance_id}",
        "AutoScalingGroupName": group.name,
        "ActivityId": str(uuid.uuid4()),
        "Details": details,
        "RequestId": str(uuid.uuid4()),
        "StatusMessage": message,
        "EndTime": now,
        "EC2InstanceId": instance_id,
        "StartTime": now,
        "Cause": cause,
        "Origin": "EC2" if launching else "AutoScalingGroup",
        "Destination": "AutoScalingGroup" if launching else "EC2",
    }
    outcome = "Successful" if successful else "Unsuccessful"
    resources = [group.arn] + ([instance_arn(instance)] if instance else [])
    return event(
        "aws.autoscaling", f"EC2 Instance {verb} {outcome}", group.region, resources, detail
    )
