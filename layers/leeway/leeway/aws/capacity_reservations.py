"""EC2's capacity reservations, by boto3."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.ec2 import UNKNOWN_RESERVATION, tag_filters
from leeway.aws.errors import aws_errors, code_of
from leeway.launch.reservations import CapacityReservation
from leeway.manifests.base import CapacityReservationTerm
from leeway.selection.offers.reservations import BLOCK, ReservedCapacity

_ACTIVE = {"Name": "state", "Values": ["active"]}


class Ec2CapacityReservations:
    """The CapacityReservations Protocol; `client` makes boto3's EC2 client when it is first
    used."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def matching(self, terms: Sequence[CapacityReservationTerm]) -> list[CapacityReservation]:
        """List the active ones that match at least one of the terms: one call for each id, and one
        for each other term. EC2 has no filter by id, and refuses a call with an unknown one."""
        found: dict[str, CapacityReservation] = {}
        for term in dict.fromkeys(map(_query, terms)):
            for described in self._described(dict(term)):
                one = _reservation(described)
                found[one.id] = one
        return [found[name] for name in sorted(found)]

    def _described(self, query: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        parameters: dict[str, Any] = {"Filters": [_ACTIVE]}
        if name := query.get("id"):
            parameters["CapacityReservationIds"] = [name]
        else:
            parameters["Filters"] += tag_filters(dict(query["tags"]))
            for key, value in query["filters"]:
                parameters["Filters"].append({"Name": key, "Values": [value]})
        with aws_errors():
            pages = self._client().get_paginator("describe_capacity_reservations")
            try:
                for page in pages.paginate(**parameters):
                    yield from page.get("CapacityReservations", ())
            except ClientError as error:
                if code_of(error) != UNKNOWN_RESERVATION:
                    raise


def _query(term: CapacityReservationTerm) -> tuple[tuple[str, Any], ...]:
    """What is asked for a term, once for equal ones."""
    if term.id is not None:
        return (("id", term.id),)
    filters = {"owner-id": term.owner_id, "instance-match-criteria": term.instance_match_criteria}
    given = tuple((name, value) for name, value in filters.items() if value is not None)
    return (("tags", tuple(sorted(term.tags.items()))), ("filters", given))


def _reservation(described: Mapping[str, Any]) -> CapacityReservation:
    return CapacityReservation(
        capacity=ReservedCapacity(
            described["CapacityReservationId"],
            described.get("ReservationType", "default") == BLOCK,
            bool(described.get("Interruptible")),
        ),
        owner=described.get("OwnerId", ""),
        instance_type=described.get("InstanceType", ""),
        zone=described.get("AvailabilityZone", ""),
        free=described.get("AvailableInstanceCount", 0),
        total=described.get("TotalInstanceCount", 0),
        ends=described.get("EndDate"),
        windows="Windows" in described.get("InstancePlatform", ""),
        fits=described.get("Tenancy", "default") == "default"
        and not described.get("PlacementGroupArn"),
        is_open=described.get("InstanceMatchCriteria") == "open",
        tags={one["Key"]: one.get("Value", "") for one in described.get("Tags") or ()},
    )
