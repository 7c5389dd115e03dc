"""Which capacity reservations the nodes of a pool are launched into, and how many each takes.

A reservation is used only if a term of the node class selects it and its tags do not say that it is
another cluster's. What EC2 calls free is read in each run, and what Leeway has just launched is
subtracted: EC2 counts an instance some seconds late. If somebody else takes the room in between,
EC2 refuses the launch, and the run plans again without the reservation. Sources: EC2 API reference,
DescribeCapacityReservations; Karpenter documentation, "Utilizing ODCRs and Capacity Blocks".
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from leeway.launch.belonging import why_not_reserved_for
from leeway.launch.intent import LaunchIntent
from leeway.launch.node_settings import NodeSettings, Setting
from leeway.manifests.base import CapacityReservationTerm
from leeway.notices import block_ends_instances_at
from leeway.reasons import Reason, ReasonCode
from leeway.selection.labels import CAPACITY_TYPE, RESERVED
from leeway.selection.offers.allocatable import AmiFamily
from leeway.selection.offers.reservations import Reservation, ReservedCapacity

RESERVATION_NOT_USED = ReasonCode(
    "ReservationNotUsed",
    "Capacity reservation {reservation}, which {place} selects, is not used for cluster {cluster}: "
    "{why}. To allow it, let somebody who may tag it add the tag leeway.sh/cluster/{cluster}; "
    "otherwise correct the terms.",
    "a-reservation-is-not-used",
)
RESERVATIONS_NOT_READ = ReasonCode(
    "ReservationsNotRead",
    "Leeway cannot read the capacity reservations of pool {pool} ({error}): it launches other "
    "capacity where the pool allows it.",
    "a-reservation-is-not-used",
)

SHOWN_AFTER = timedelta(seconds=30)
"""How long after a launch EC2 may still count its instance as free capacity."""

DRAINED_BEFORE = timedelta(minutes=10)
"""How long before EC2 ends the instances of a Capacity Block Leeway drains their nodes, which is
when EC2 warns; from then on nothing is launched into the block."""


LINUX, _WINDOWS = "Linux/UNIX", "Windows"
"""The platforms of AWS's AMIs for nodes."""


@dataclass(frozen=True, slots=True)
class CapacityReservation:
    """An active capacity reservation as EC2 describes it. `free` and `total` are instances; `ends`
    is its end date, None if it has none. `platform` is EC2's name of the operating system and its
    license, such as Red Hat Enterprise Linux. `fits` is False if nodes of Leeway cannot run in it:
    it is of dedicated tenancy, or in a placement group. `is_open`: it takes every matching
    launch."""

    capacity: ReservedCapacity
    owner: str
    instance_type: str
    zone: str
    free: int
    total: int
    ends: datetime | None = None
    platform: str = LINUX
    fits: bool = True
    is_open: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its id."""
        return self.capacity.id

    @property
    def drained_at(self) -> datetime | None:
        """When the nodes of a Capacity Block are drained; None for every other reservation, whose
        instances stay when it ends."""
        if self.ends is None or not self.capacity.block:
            return None
        return block_ends_instances_at(self.ends, self.instance_type) - DRAINED_BEFORE


class CapacityReservations(Protocol):
    """The capacity reservations that the account owns, or that are shared with it."""

    def matching(self, terms: Sequence[CapacityReservationTerm]) -> Sequence[CapacityReservation]:
        """List the active ones that match at least one of the terms. One that a term names by its
        id and that does not exist is left out."""
        ...


@dataclass(frozen=True, slots=True)
class SelectedReservations:
    """The active reservations that a pool selects and its cluster may use, and why others are not
    used."""

    of_cluster: tuple[CapacityReservation, ...] = ()
    not_used: tuple[Reason, ...] = ()

    @property
    def ids(self) -> frozenset[str]:
        """The ids of those that the cluster may use."""
        return frozenset(one.id for one in self.of_cluster)


def reservation_terms(
    settings: NodeSettings,
) -> Setting[tuple[CapacityReservationTerm, ...]] | None:
    """Return the terms of a pool that may launch reserved capacity; None if it may not."""
    capacity_type = settings.template.pool.requirements.of_key(CAPACITY_TYPE)
    return settings.reservations if capacity_type.has(RESERVED) else None


def select_reservations(
    cluster: str,
    terms: Setting[tuple[CapacityReservationTerm, ...]],
    found: Iterable[CapacityReservation],
) -> SelectedReservations:
    """Select those of the reservations that terms match which a cluster may use."""
    own, not_used = [], []
    for one in sorted(found, key=lambda each: each.id):
        named = any(_names(term, one) for term in terms.value)
        if why := why_not_reserved_for(cluster, one.tags, named=named):
            not_used.append(
                RESERVATION_NOT_USED(
                    reservation=one.id, place=terms.place, cluster=cluster, why=why
                )
            )
        else:
            own.append(one)
    return SelectedReservations(tuple(own), tuple(not_used))


def usable_reservations(
    selected: Iterable[CapacityReservation],
    taken: Mapping[str, int],
    now: datetime,
    family: AmiFamily,
) -> tuple[Reservation, ...]:
    """Return the reservations that nodes of an AMI family may be launched into now. `taken` counts
    the launches that EC2 may not have counted yet, by reservation."""
    return tuple(
        Reservation(
            one.capacity, one.instance_type, one.zone, max(0, one.free - taken.get(one.id, 0))
        )
        for one in selected
        if one.fits and _has_platform(one, family)
        if one.drained_at is None or now < one.drained_at
    )


def _has_platform(one: CapacityReservation, family: AmiFamily) -> bool:
    """Whether AMIs of a family have the platform of a reservation: EC2 refuses other launches. An
    AMI of the family Custom may have any platform but Windows. Source: EC2 user guide, "Launch
    instances into an existing Capacity Reservation"."""
    if family is AmiFamily.CUSTOM:
        return not one.platform.startswith(_WINDOWS)
    return one.platform == (_WINDOWS if family.windows else LINUX)


def _names(term: CapacityReservationTerm, one: CapacityReservation) -> bool:
    """Whether a term names a reservation by its id or by its tags."""
    if term.id is not None:
        return term.id == one.id
    return bool(term.tags) and all(
        key in one.tags and value in {"*", one.tags[key]} for key, value in term.tags.items()
    )


def launched_since(
    intents: Iterable[LaunchIntent], read_at: datetime, ended: Collection[str] = ()
) -> Counter[str]:
    """Count the launches into each reservation that EC2 may not have counted when it was read:
    those of the seconds before and of the time after, and requests without an answer."""
    found: Counter[str] = Counter()
    for intent in intents:
        if intent.request is not None:
            if intent.request.reservation is not None:
                found[intent.request.reservation.id] += intent.request.count
        elif intent.created_at >= read_at - SHOWN_AFTER:
            for one in intent.instances:
                if one.reservation is not None and one.instance not in ended:
                    found[one.reservation.id] += 1
    return found
