"""EC2's launch templates, and its fleets of type instant, by boto3."""

import json
import secrets
from collections.abc import Callable, Collection, Mapping
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.ec2 import (
    FILTER_VALUES,
    STARTS_OR_RUNS,
    capacity_type_of,
    described_instances,
    reservation_of,
)
from leeway.aws.errors import aws_errors, code_of
from leeway.instances.facts import INTENT_TAG
from leeway.launch.fleets import FleetAnswer, FleetError, FleetInstance, FleetRequest, Override
from leeway.launch.node_settings import cluster_tags
from leeway.launch.templates import VERSION, LaunchTemplate, OwnedTemplate, tag_list
from leeway.parallel import in_parallel
from leeway.ports.aws import CloudRefused
from leeway.selection.labels import ON_DEMAND, RESERVED, SPOT
from leeway.selection.offers.reservations import BLOCK, INTERRUPTIBLE

_GONE = "InvalidLaunchTemplateId.NotFound"
"""Names that one filter takes. Source: EC2 API reference, DescribeLaunchTemplates."""
_AT_ONCE = 8


class Ec2LaunchTemplates:
    """The LaunchTemplates and OwnedLaunchTemplates Protocols; `client` makes boto3's EC2 client
    when it is first used.

    Only templates of an object's own are used, by the id that EC2 answered: with the name and the
    tags that Leeway would give it, anybody with the right to create launch templates can create one
    that runs another program on the node. EC2 changes no version of a template.
    """

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._doubted: set[str] = set()

    def ensure(self, templates: Collection[LaunchTemplate]) -> Mapping[str, str]:
        """Create those that this object has not created, or that were deleted; return the id of
        each by its name."""
        gone = self._doubted - self._existing(self._doubted)
        self._ids = {name: one for name, one in self._ids.items() if one not in gone}
        self._doubted.clear()
        wanted = {one.name: one for one in templates}
        missing = [one for name, one in wanted.items() if name not in self._ids]
        in_parallel(self._create, missing, _AT_ONCE)
        return {name: self._ids[name] for name in wanted}

    def doubt(self, ids: Collection[str]) -> None:
        """Look for these templates at the next `ensure`."""
        self._doubted.update({*ids} & {*self._ids.values()})

    def owned_by(self, cluster: str) -> list[OwnedTemplate]:
        """List the launch templates whose tags name Leeway as the owner, and this cluster."""
        filters = [
            {"Name": f"tag:{key}", "Values": [value]}
            for key, value in sorted(cluster_tags(cluster).items())
        ]
        with aws_errors():
            pages = self._client().get_paginator("describe_launch_templates")
            return [
                OwnedTemplate(one["LaunchTemplateId"], one["LaunchTemplateName"], one["CreateTime"])
                for page in pages.paginate(Filters=filters)
                for one in page["LaunchTemplates"]
            ]

    def delete_template(self, template: str) -> None:
        """Delete a launch template by its id; one that does not exist is not an error."""
        with aws_errors():
            try:
                self._client().delete_launch_template(LaunchTemplateId=template)
            except ClientError as error:
                if code_of(error) != _GONE:
                    raise

    def _existing(self, ids: Collection[str]) -> set[str]:
        """Return those of the ids that EC2 knows. It has no filter for ids, and answers a call that
        lists one unknown id with an error alone."""
        found: set[str] = set()
        for some in batched(sorted(self._names[one] for one in ids), FILTER_VALUES, strict=False):
            filters = [{"Name": "launch-template-name", "Values": list(some)}]
            with aws_errors():
                pages = self._client().get_paginator("describe_launch_templates")
                for page in pages.paginate(Filters=filters):
                    found |= {one["LaunchTemplateId"] for one in page["LaunchTemplates"]}
        return found

    def _create(self, template: LaunchTemplate) -> None:
        """Create a template under a new name, and keep its id at once: the creation of another one
        may fail. boto3 repeats a call that EC2 has not answered with the same token, which makes it
        one call."""
        name = f"{template.name}-{secrets.token_hex(3)}"
        with aws_errors():
            created = self._client().create_launch_template(
                LaunchTemplateName=name,
                LaunchTemplateData=json.loads(template.data),
                TagSpecifications=[
                    {"ResourceType": "launch-template", "Tags": tag_list(template.tags)}
                ],
            )
        made = str(created["LaunchTemplate"]["LaunchTemplateId"])
        self._names[made] = name
        self._ids[template.name] = made


_BY_PRICE = {SPOT: "price-capacity-optimized", ON_DEMAND: "lowest-price"}
_BY_PRIORITY = {SPOT: "capacity-optimized-prioritized", ON_DEMAND: "prioritized"}
"""Allocation strategies. Source: EC2 user guide, "Allocation strategies for EC2 Fleet"."""


class Ec2Fleets:
    """The Fleets Protocol; `client` makes boto3's EC2 client when it is first used."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def create(self, request: FleetRequest, token: str) -> FleetAnswer:
        """Launch instances; the same request with the same token launches nothing again.

        Raises:
            CloudUnavailable: the instances may have been launched: repeat the call.
        """
        try:
            with aws_errors():
                answer = self._client().create_fleet(ClientToken=token, **_parameters(request))
        except CloudRefused as refusal:
            return FleetAnswer((), (_refusal(refusal, request),))
        return FleetAnswer(
            tuple(
                FleetInstance(
                    instance,
                    entry["InstanceType"],
                    _override(entry).zone,
                    # The answer names the market, which is on-demand for most reservations.
                    RESERVED
                    if request.reservation
                    else entry.get("Lifecycle", request.capacity_type),
                    request.reservation,
                )
                for entry in answer.get("Instances", [])
                for instance in entry["InstanceIds"]
            ),
            tuple(_error(entry, request) for entry in answer.get("Errors", [])),
        )

    def launched_by(self, intent: str) -> list[FleetInstance]:
        """List the instances with the tag of an intent that start or run."""
        filters = {f"tag:{INTENT_TAG}": [intent], **STARTS_OR_RUNS}
        return [
            FleetInstance(
                found["InstanceId"],
                found["InstanceType"],
                found["Placement"]["AvailabilityZone"],
                capacity_type_of(found),
                reservation_of(found),
            )
            for found in described_instances(self._client, filters)
        ]

    def alive(self, instances: Collection[str]) -> frozenset[str]:
        """Return those of some instances that start or run. A filter, unlike InstanceIds, accepts
        instances that EC2 has forgotten."""
        found: set[str] = set()
        for some in batched(sorted(instances), FILTER_VALUES, strict=False):
            filters = {"instance-id": some, **STARTS_OR_RUNS}
            found |= {one["InstanceId"] for one in described_instances(self._client, filters)}
        return frozenset(found)


def _parameters(request: FleetRequest) -> dict[str, Any]:
    target, strategy = _market(request)
    tags = tag_list(request.tags)
    return {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": one.template,
                    "Version": VERSION,
                },
                "Overrides": [
                    {
                        "InstanceType": override.instance_type,
                        "SubnetId": override.subnet,
                        "AvailabilityZone": override.zone,
                        **({} if override.priority is None else {"Priority": override.priority}),
                    }
                    for override in one.overrides
                ],
            }
            for one in request.templates
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": request.count,
            "DefaultTargetCapacityType": target,
        },
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags} for kind in ("fleet", "instance", "volume")
        ],
        **strategy,
    }


def _market(request: FleetRequest) -> tuple[str, dict[str, Any]]:
    """The capacity type of the fleet as EC2 names it, and its options. Source: EC2 API reference,
    TargetCapacitySpecificationRequest: a fleet for a reservation is on-demand, unless it is a
    Capacity Block or interruptible."""
    allocation = _BY_PRIORITY if request.prioritized else _BY_PRICE
    if request.capacity_type == SPOT:
        return SPOT, {"SpotOptions": {"AllocationStrategy": allocation[SPOT]}}
    if request.reservation is not None and request.reservation.block:
        return BLOCK, {}
    if request.reservation is not None and request.reservation.interruptible:
        return "reserved-capacity", {
            "ReservedCapacityOptions": {"ReservationTypes": [INTERRUPTIBLE]}
        }
    return ON_DEMAND, {"OnDemandOptions": {"AllocationStrategy": allocation[ON_DEMAND]}}


def _override(entry: Mapping[str, Any]) -> Override:
    found = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    return Override(
        found.get("InstanceType", ""), found.get("AvailabilityZone", ""), found.get("SubnetId", "")
    )


def _error(entry: Mapping[str, Any], request: FleetRequest) -> FleetError:
    override = _override(entry)
    return FleetError(
        entry.get("ErrorCode", ""),
        entry.get("ErrorMessage", ""),
        RESERVED if request.reservation else entry.get("Lifecycle", request.capacity_type),
        override if override.instance_type else None,
        request.reservation.id if request.reservation else "",
    )


def _refusal(refusal: CloudRefused, request: FleetRequest) -> FleetError:
    cause = refusal.__cause__
    if isinstance(cause, ClientError):
        message = str(cause.response.get("Error", {}).get("Message", ""))
        return FleetError(code_of(cause), message, request.capacity_type)
    raise refusal
