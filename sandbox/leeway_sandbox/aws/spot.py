"""Selects the types and markets that a group launches; creates the request of a Spot instance.

moto has neither allocation strategies nor the Spot requests of a group.
"""

import time
from collections.abc import Collection
from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.core.responses import ActionResult
from moto.ec2.models.instances import Instance
from moto.ec2.models.spot_requests import SpotInstanceRequest
from moto.ec2.responses.spot_instances import SpotInstances
from moto.ec2.utils import random_spot_request_id

from leeway_sandbox.aws import prices
from leeway_sandbox.aws.ec2_requests import page
from leeway_sandbox.aws.notices import timestamp

Plan = list[tuple[str, str | None, int]]  # instance type, market ("spot" or None), how many


def plan(group: FakeAutoScalingGroup, zone: str, count: int, without: Collection[str] = ()) -> Plan:
    """Return the launches in a zone, without the types `without`; empty if no type is left.

    On demand uses the first type, as "prioritized" does; Spot uses the cheapest type of the zone.
    The share of Spot applies to the whole group. Weights are ignored.
    """
    policy = group.mixed_instances_policy
    if not policy:
        whole = [(group.instance_type, _market_of_template(group), count)]
        return [] if group.instance_type in without else whole
    overrides = policy.get("LaunchTemplate", {}).get("Overrides") or []
    types = [override["InstanceType"] for override in overrides if "InstanceType" in override]
    types = [one for one in types or [group.instance_type] if one not in without]
    if not types:
        return []
    distribution = policy.get("InstancesDistribution", {})
    base = int(distribution.get("OnDemandBaseCapacity") or 0)
    share = distribution.get("OnDemandPercentageAboveBaseCapacity")
    share = 100 if share is None else int(share)
    members = [state.instance for state in group.instance_states]
    size = len(members) + count
    wanted = min(size, base + -(-max(size - base, 0) * share // 100))
    standing = sum(instance.lifecycle != "spot" for instance in members)
    on_demand = min(max(wanted - standing, 0), count)
    cheapest = min(types, key=lambda kind: prices.spot_price(kind, zone))
    planned: Plan = [(types[0], None, on_demand), (cheapest, "spot", count - on_demand)]
    return [part for part in planned if part[2]]


def _market_of_template(group: FakeAutoScalingGroup) -> str | None:
    if group.ec2_launch_template is None:
        return "spot" if group.launch_config.spot_price else None
    version = group.ec2_launch_template.get_version(group.launch_template_version)
    options: dict[str, Any] = version.data.get("InstanceMarketOptions") or {}
    return "spot" if options.get("MarketType") == "spot" else None


class FulfilledRequest(SpotInstanceRequest):
    """A Spot request whose instance exists already."""

    def __init__(self, instance: Instance):
        self._instance = instance
        self.updated_at = time.time()
        self.status_code = "fulfilled"
        super().__init__(
            ec2_backend=instance.ec2_backend,
            spot_request_id=random_spot_request_id(),
            price=f"{prices.on_demand_price(instance.instance_type):.6f}",
            image_id=instance.image_id,
            spot_instance_type="one-time",
            valid_from=None,
            valid_until=None,
            launch_group=None,
            availability_zone_group=None,
            key_name="",
            security_groups=[],
            user_data=None,
            instance_type=instance.instance_type,
            placement=instance.placement.zone,
            kernel_id=None,
            ramdisk_id=None,
            monitoring_enabled=False,
            subnet_id=instance.subnet_id or "",
            tags={},
            spot_fleet_id=None,
            instance_interruption_behaviour="terminate",
        )

    def get_filter_value(self, filter_name: str, method_name: str | None = None) -> Any:
        """Return the value for a filter of DescribeSpotInstanceRequests."""
        match filter_name:
            case "status-code":
                return self.status_code
            case "instance-id":
                return self._instance.id
            case "launched-availability-zone":
                return self._instance.placement.zone
        return super().get_filter_value(filter_name, method_name)

    @property
    def status(self) -> dict[str, Any]:
        """The status with the time of its last change, which moto does not keep."""
        return {
            "Code": self.status_code,
            "Message": self.status_message,
            "UpdateTime": timestamp(self.updated_at),
        }

    def launch_instance(self) -> Instance:
        """Return the instance that the group launched."""
        return self._instance


def request_for(instance: Instance) -> None:
    """Create the Spot request of an instance."""
    request = FulfilledRequest(instance)
    instance.ec2_backend.spot_instance_requests[request.id] = request
    instance.spot_instance_request_id = request.id  # type: ignore[attr-defined]


def mark(instance: Instance, state: str, status: str, at: float | None = None) -> None:
    """Set state and status of the request of an instance, at a time (epoch seconds; None: now)."""
    request_id = getattr(instance, "spot_instance_request_id", None)
    request = instance.ec2_backend.spot_instance_requests.get(request_id)
    if request:
        request.state, request.status_code = state, status
        request.updated_at = time.time() if at is None else at


def announce(instance: Instance, action: str, at: float) -> None:
    """Set the request of an instance to its interruption, at `at` (epoch seconds).

    The request is closed at once, although the instance runs for two more minutes. Source: EC2 user
    guide, "State changes for a Spot request".
    """
    if action == "terminate":
        mark(instance, "closed", "instance-terminated-no-capacity", at)
    else:
        mark(instance, "active", "marked-for-stop", at)


def forget(instance: Instance) -> None:
    """Delete the request of an instance."""
    request_id = getattr(instance, "spot_instance_request_id", None)
    instance.ec2_backend.spot_instance_requests.pop(request_id, None)


class SpotRequests(SpotInstances):
    """Answers DescribeSpotInstanceRequests in pages, which moto does not."""

    def describe_spot_instance_requests(self) -> ActionResult:
        """Return one page of the requests that the filters select."""
        requests = self.ec2_backend.describe_spot_instance_requests(
            filters=self._filters_from_querystring(),
            spot_instance_ids=self._get_param("SpotInstanceRequestIds", []),
        )
        shown, token = page(requests, self._get_param("MaxResults"), self._get_param("NextToken"))
        return ActionResult({"SpotInstanceRequests": shown, "NextToken": token})
