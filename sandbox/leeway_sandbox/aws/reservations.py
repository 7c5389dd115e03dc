"""Capacity reservations and Capacity Blocks: who launches into them, what is free, and their end.

moto has none. A launch template that targets a reservation runs in it or fails; an on-demand launch
that says nothing runs in an open reservation with room, as in EC2. An instance stays when its
reservation ends, and is then on-demand; EC2 ends the instances of a Capacity Block before its end.

Sources: EC2 API reference, CreateCapacityReservation, DescribeCapacityReservations and
LaunchTemplateCapacityReservationSpecificationRequest; EC2 user guide, "Capacity Blocks for ML".
"""

import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import Instance
from moto.ec2.responses._base_response import EC2BaseResponse
from moto.ec2.utils import filter_dict_attribute_mapping
from pydantic import BaseModel, ConfigDict, Field

from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.ec2_requests import page
from leeway_sandbox.aws.eventbridge import EventBus
from leeway_sandbox.aws.notices import event, timestamp

BLOCK: Final = "capacity-block"
INTERRUPTIBLE: Final = "interruptible-capacity-reservation"
BLOCK_WARNED_BEFORE, BLOCK_ENDED_BEFORE = 40 * 60, 30 * 60  # seconds before the end of a block

_ID = "capacity_reservation_id"
setattr(Instance, _ID, "")
filter_dict_attribute_mapping["capacity-reservation-id"] = _ID
_USING = {"pending", "running"}
_FILTERS: Mapping[str, Callable[["CapacityReservation"], str]] = {
    "availability-zone": lambda one: one.zone,
    "instance-match-criteria": lambda one: one.match,
    "instance-type": lambda one: one.instance_type,
    "owner-id": lambda one: one.owner,
    "state": lambda one: one.state,
    "tenancy": lambda one: one.tenancy,
}


class NewReservation(BaseModel):
    """A command: a reservation, also of another account or bought as a Capacity Block. It ends in
    `ends_in` seconds, or has no end."""

    model_config = ConfigDict(extra="forbid")

    instance_type: str
    zone: str
    count: int = Field(default=1, ge=1)
    match: Literal["open", "targeted"] = "targeted"
    kind: Literal["default", "capacity-block"] = "default"
    interruptible: bool = False
    owner: str = ACCOUNT
    platform: str = "Linux/UNIX"
    tenancy: Literal["default", "dedicated"] = "default"
    ends_in: float | None = None
    tags: dict[str, str] = Field(default_factory=dict)


class ReservationEnd(BaseModel):
    """A command: a reservation ends in `ends_in` seconds. A Capacity Block then `warns`."""

    model_config = ConfigDict(extra="forbid")

    reservation: str
    ends_in: float
    warns: bool = True


@dataclass
class CapacityReservation:
    """A reservation, and the instances that were launched into it."""

    id: str
    instance_type: str
    zone: str
    total: int
    match: str
    kind: str
    interruptible: bool
    owner: str
    platform: str
    tenancy: str
    ends: float | None
    tags: dict[str, str]
    state: str = "active"
    created: float = field(default_factory=time.time)
    instances: list[Instance] = field(default_factory=list)

    @property
    def free(self) -> int:
        """The instances that can still be launched into it."""
        using = [one for one in self.instances if one.state in _USING]
        self.instances = [one for one in using if getattr(one, _ID) == self.id]
        return max(0, self.total - len(self.instances)) if self.state == "active" else 0

    @property
    def market(self) -> str | None:
        """The market that a launch into it has to name."""
        if self.kind == BLOCK:
            return BLOCK
        return INTERRUPTIBLE if self.interruptible else None

    def shown(self) -> dict[str, Any]:
        """The reservation as EC2 describes it. A consumer of a shared one does not see its tags."""
        ends = {"EndDate": timestamp(self.ends)} if self.ends is not None else {}
        return {
            "CapacityReservationId": self.id,
            "OwnerId": self.owner,
            "InstanceType": self.instance_type,
            "InstancePlatform": self.platform,
            "AvailabilityZone": self.zone,
            "Tenancy": self.tenancy,
            "TotalInstanceCount": self.total,
            "AvailableInstanceCount": self.free,
            "State": self.state,
            "StartDate": timestamp(self.created),
            "EndDateType": "limited" if ends else "unlimited",
            "InstanceMatchCriteria": self.match,
            "CreateDate": timestamp(self.created),
            "ReservationType": self.kind,
            "Interruptible": self.interruptible,
            "Tags": [
                {"Key": key, "Value": value}
                for key, value in self.tags.items()
                if self.owner == ACCOUNT
            ],
            **ends,
        }


class Reservations:
    """The reservations of one region."""

    def __init__(self, cloud: Cloud, bus: EventBus) -> None:
        self._cloud, self._bus = cloud, bus
        self._by_id: dict[str, CapacityReservation] = {}

    def all(self) -> list[CapacityReservation]:
        """Return them, the oldest first."""
        return list(self._by_id.values())

    def add(self, command: NewReservation) -> CapacityReservation:
        """Create a reservation, and its end."""
        one = CapacityReservation(
            id=f"cr-{secrets.token_hex(9)[:17]}",
            instance_type=command.instance_type,
            zone=command.zone,
            total=command.count,
            match=command.match,
            kind=command.kind,
            interruptible=command.interruptible,
            owner=command.owner,
            platform=command.platform,
            tenancy=command.tenancy,
            ends=None,
            tags=dict(command.tags),
        )
        self._by_id[one.id] = one
        if command.ends_in is not None:
            self.plan_end(ReservationEnd(reservation=one.id, ends_in=command.ends_in))
        return one

    def plan_end(self, command: ReservationEnd) -> None:
        """Let a reservation end at a time, in place of an earlier plan."""
        one = self.find(command.reservation)
        one.ends = ends = time.time() + command.ends_in

        def act(seconds: float, work: Callable[[], None]) -> None:
            self._cloud.timers.after(seconds, lambda: work() if one.ends == ends else None)

        if one.kind == BLOCK:
            if command.warns:
                act(command.ends_in - BLOCK_WARNED_BEFORE, partial(self._warn, one))
            act(command.ends_in - BLOCK_ENDED_BEFORE, partial(self._end_instances, one))
        act(command.ends_in, partial(self.end, one, "expired"))

    def _warn(self, one: CapacityReservation) -> None:
        detail = {
            "capacity-reservation-id": one.id,
            "end-date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(one.ends)),
        }
        what = "Capacity Block Reservation Expiration Warning"
        self._bus.emit(event("aws.ec2", what, self._cloud.region, [], detail, time.time()))

    def _end_instances(self, one: CapacityReservation) -> None:
        for instance in list(one.instances):
            if instance.state in _USING:
                instance.ec2_backend.terminate_instances([instance.id])

    def end(self, one: CapacityReservation, state: str) -> None:
        """Expire or cancel a reservation: its instances become on-demand."""
        one.state = state
        for instance in one.instances:
            setattr(instance, _ID, "")
        one.instances = []

    def find(self, name: str) -> CapacityReservation:
        """Return a reservation by its id; raises EC2's error."""
        if name not in self._by_id:
            raise EC2ClientError(
                "InvalidCapacityReservationId.NotFound",
                f"The capacity reservation '{name}' does not exist",
            )
        return self._by_id[name]

    def target(
        self, data: Mapping[str, Any], instance_type: str, zone: str
    ) -> CapacityReservation | None:
        """Return the reservation that a launch of this template data runs in; None if it runs in
        none. Raises EC2's error if the launch names one that it does not fit."""
        specification = data.get("CapacityReservationSpecification") or {}
        preference = specification.get("CapacityReservationPreference", "open")
        named = (specification.get("CapacityReservationTarget") or {}).get("CapacityReservationId")
        market = (data.get("InstanceMarketOptions") or {}).get("MarketType")
        if (
            named
            and preference in {"open", "none"}
            and "CapacityReservationPreference" in (specification)
        ):
            raise EC2ClientError(
                "InvalidParameterCombination",
                "CapacityReservationPreference and CapacityReservationTarget can't be combined.",
            )
        if named:
            one = self.find(named)
            if (
                one.state != "active"
                or (one.instance_type, one.zone) != (instance_type, zone)
                or one.tenancy != "default"
                or one.market != market
            ):
                raise EC2ClientError(
                    "InvalidParameterValue",
                    f"The launch is not eligible for capacity reservation '{named}'.",
                )
            return one
        if preference != "open" or market is not None:
            return None
        return next(
            (
                one
                for one in self._by_id.values()
                if one.match == "open"
                and (one.instance_type, one.zone) == (instance_type, zone)
                and one.free
                and one.market is None
            ),
            None,
        )


class ReservationCalls(EC2BaseResponse):
    """Answers the actions of capacity reservations."""

    reservations: Reservations

    def cancel_capacity_reservation(self) -> ActionResult:
        """Cancel a reservation; its instances stay."""
        self.error_on_dryrun()
        self.reservations.end(
            self.reservations.find(self._get_param("CapacityReservationId")), "cancelled"
        )
        return ActionResult({"Return": True})

    def describe_capacity_reservations(self) -> ActionResult:
        """Return one page of the reservations that ids and filters select."""
        self.error_on_dryrun()
        ids, limit = self._get_param("CapacityReservationIds", []), self._get_param("MaxResults")
        if ids and limit:
            raise EC2ClientError(
                "InvalidParameterCombination",
                "The parameter CapacityReservationIds cannot be used with MaxResults",
            )
        found = [self.reservations.find(name) for name in ids] or self.reservations.all()
        for name, values in self._filters_from_querystring().items():
            found = [one for one in found if _meets(one, name, values)]
        shown, token = page(found, limit, self._get_param("NextToken"))
        described = [one.shown() for one in shown]
        return ActionResult({"CapacityReservations": described, "NextToken": token})


def _meets(one: CapacityReservation, name: str, values: Collection[str]) -> bool:
    tags = one.tags if one.owner == ACCOUNT else {}
    if name == "tag-key":
        return any(value in tags for value in values)
    if name.startswith("tag:"):
        return tags.get(name.removeprefix("tag:")) in values
    if name not in _FILTERS:
        raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return _FILTERS[name](one) in values


def put_into(one: CapacityReservation, instance: Instance) -> None:
    """Let a launched instance run in a reservation."""
    one.instances.append(instance)
    setattr(instance, _ID, one.id)
    if one.market:
        instance.lifecycle = one.market


def specify(instance: Instance, data: Mapping[str, Any]) -> None:
    """Keep what the launch said about reservations: EC2 describes it, also when they have ended."""
    given = data.get("CapacityReservationSpecification") or {}
    target = given.get("CapacityReservationTarget")
    vars(instance)["capacity_reservation_specification"] = {
        "CapacityReservationPreference": given.get("CapacityReservationPreference", "open"),
        **({"CapacityReservationTarget": target} if target else {}),
    }
