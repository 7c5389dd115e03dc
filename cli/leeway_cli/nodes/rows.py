"""The line of each node, and the totals. Pure: it takes what was read and decided."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from leeway.admission.record import Admission
from leeway.disruption.explain import Course, ForeignNode, Step, title_of
from leeway.disruption.rules import Cause
from leeway.disruption.snapshot import OwnNode
from leeway.instances.facts import Owner, OwnerKind
from leeway.reasons import Reason
from leeway.retirement.record import Retirement
from leeway.selection.labels import OS
from leeway.selection.offers.machines import GPU_RESOURCES, NEURON

_STARTS_WITHIN = timedelta(minutes=15)
"""A younger node that is not Ready is starting: admission waits as long for it."""

_GPUS = (*GPU_RESOURCES.values(), NEURON)


@dataclass(frozen=True, slots=True)
class Share:
    """What pods request of a resource, and what the node has for pods. CPU is in millicores, memory
    in bytes."""

    requested: int = 0
    allocatable: int = 0

    @property
    def share(self) -> float:
        """The requested part, 0 without anything to request."""
        return self.requested / self.allocatable if self.allocatable else 0.0

    def __add__(self, other: "Share") -> "Share":
        return Share(self.requested + other.requested, self.allocatable + other.allocatable)


class Fate(StrEnum):
    """What is about to happen to a node."""

    RETIRES = "retires"
    STARTING = "starting"
    NOT_READY = "notReady"
    GOES = "goes"
    KEPT = "kept"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node. `price` is in USD per hour, None if it is not known. `next` says in words what is
    about to happen to it, empty for nothing. If it ends with a clock, `clock_at` is the time that
    the clock counts to, or from."""

    name: str
    instance: str
    instance_type: str
    capacity_type: str
    zone: str
    owner: str
    created_at: datetime
    ready: bool
    cpu: Share = field(default_factory=Share)
    memory: Share = field(default_factory=Share)
    gpus: Share = field(default_factory=Share)
    pods: Share = field(default_factory=Share)
    price: float | None = None
    fate: Fate = Fate.NONE
    next: str = ""
    clock_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Records:
    """What the table knows, by instance: open retirements and admissions."""

    retirements: Mapping[str, Retirement] = field(default_factory=dict)
    admissions: Mapping[str, Admission] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums of some nodes. `saving` is in USD per hour, None if no plan was made; if it is not
    `complete`, more may be saved. `windows` are nodes whose price lacks the licence: the catalog
    has the prices of Linux."""

    nodes: int
    cpu: Share
    memory: Share
    gpus: Share
    pods: Share
    price: float
    without_price: int
    saving: float | None
    windows: int = 0
    complete: bool = True

    @property
    def price_known(self) -> bool:
        """Whether the price of a node is known, or there is no node."""
        return self.without_price < self.nodes or not self.nodes


def rows_of(
    own: Sequence[OwnNode],
    foreign: Sequence[ForeignNode],
    course: Course | None,
    records: Records,
    now: datetime,
    asleep: Mapping[str, str] | None = None,
) -> tuple[NodeRow, ...]:
    """Return a row for each node, and for each instance whose node has not joined yet. `own` are
    Leeway's nodes, `foreign` those of others. `course` is what would be given back, None if nobody
    has planned that. `asleep` is until when pools hibernate, in words."""
    planned = course.steps if course else ()
    steps = {name: step for step in planned for name in step.returned.nodes}
    kept = course.kept if course else {}
    owners = {one.name: _owner(one, records) for one in foreign}
    rows = []
    for one in (*own, *(other.one for other in foreign)):
        owner = owners.get(one.name)
        reason = kept.get(one.name) if owner is None else None
        fate, words, clock_at = _next(one, records, steps.get(one.name), reason, now)
        if asleep and owner is None and one.pool in asleep and clock_at is None:
            words = ", ".join([*filter(None, [words]), f"hibernates until {asleep[one.pool]}"])
        rows.append(_row(one, owner or Owner(OwnerKind.LEEWAY, one.pool), fate, words, clock_at))
    joined = {row.instance for row in rows if row.instance}
    for instance, admission in records.admissions.items():
        if instance not in joined:
            rows.append(_coming(admission, now))
    return tuple(rows)


def _owner(other: ForeignNode, records: Records) -> Owner:
    """Return the owner of a node. A detached instance has lost the tag of its group."""
    if other.owner.kind is OwnerKind.NONE and (
        retirement := records.retirements.get(other.one.instance)
    ):
        return retirement.facts.owner
    return other.owner


def _row(one: OwnNode, owner: Owner, fate: Fate, words: str, clock_at: datetime | None) -> NodeRow:
    requested: dict[str, int] = {}
    for spec in one.node.pods:
        for name, amount in spec.requests.items():
            requested[name] = requested.get(name, 0) + amount

    def share(*names: str) -> Share:
        terminating = sum(one.node.terminating.of(name) for name in names)
        used = sum(requested.get(name, 0) for name in names)
        return Share(used + terminating, sum(one.node.allocatable.of(name) for name in names))

    return NodeRow(
        name=one.name,
        instance=one.instance if one.instance.startswith("i-") else "",
        instance_type=one.instance_type,
        capacity_type=one.capacity_type,
        zone=one.zone,
        owner=title_of(owner),
        created_at=one.created_at,
        ready=one.ready,
        cpu=share("cpu"),
        memory=share("memory"),
        gpus=share(*_GPUS),
        pods=share("pods"),
        price=one.price,
        fate=fate,
        next=words,
        clock_at=clock_at,
        labels=one.node.labels,
    )


def _next(
    one: OwnNode, records: Records, step: Step | None, kept: Reason | None, now: datetime
) -> tuple[Fate, str, datetime | None]:
    """Return what is about to happen to a node, also in words, and the time of a clock in them."""
    retirement = records.retirements.get(one.instance)
    if retirement is not None and retirement.deadline is not None and retirement.deadline > now:
        deadline = retirement.deadline
        return Fate.RETIRES, f"retires in {clock(deadline - now)}", deadline
    if retirement is not None or one.going:
        return Fate.RETIRES, "retires", None
    if not one.ready:
        age = now - one.created_at
        if age < _STARTS_WITHIN:
            return Fate.STARTING, f"starting {clock(age)}", one.created_at
        return Fate.NOT_READY, "not Ready", None
    if step is not None:
        when = "now" if step.allowed else f"at {step.at:%H:%M}"
        if step.returned.cause is Cause.EMPTY:
            return Fate.GOES, f"empty, goes {when}", None
        return Fate.GOES, f"goes {when}: {step.returned.cause.value}", None
    return (Fate.KEPT, f"kept: {kept.code}", None) if kept else (Fate.NONE, "", None)


def _coming(admission: Admission, now: datetime) -> NodeRow:
    facts = admission.facts
    since = admission.noticed_at
    return NodeRow(
        name=facts.private_dns_name or facts.instance,
        instance=facts.instance,
        instance_type=facts.instance_type,
        capacity_type=facts.capacity_type,
        zone=facts.zone,
        owner=title_of(facts.owner),
        created_at=since,
        ready=False,
        fate=Fate.STARTING,
        next=f"starting {clock(now - since)}",
        clock_at=since,
    )


def clock(time: timedelta) -> str:
    """Render a duration as a clock does: `1:12`, `1:02:03`."""
    seconds = max(0, int(time.total_seconds()))
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours}:{minutes:02}:{seconds % 60:02}"
    return f"{minutes}:{seconds % 60:02}"


def totals_of(rows: Iterable[NodeRow], saving: float | None, *, complete: bool = True) -> Totals:
    """Sum up rows."""
    listed = [*rows]
    return Totals(
        nodes=len(listed),
        cpu=sum((one.cpu for one in listed), Share()),
        memory=sum((one.memory for one in listed), Share()),
        gpus=sum((one.gpus for one in listed), Share()),
        pods=sum((one.pods for one in listed), Share()),
        price=sum(one.price or 0.0 for one in listed),
        without_price=sum(one.price is None for one in listed),
        saving=saving,
        windows=sum(one.labels.get(OS) == "windows" for one in listed),
        complete=complete,
    )


class Sort(StrEnum):
    """The orders of nodes: shares, prices and ages the largest first, names by the alphabet."""

    OWNER = "owner"
    NAME = "name"
    TYPE = "type"
    CAPACITY = "capacity"
    ZONE = "zone"
    AGE = "age"
    CPU = "cpu"
    MEMORY = "memory"
    GPUS = "gpus"
    PODS = "pods"
    PRICE = "price"
    NEXT = "next"


_FATES = {fate: number for number, fate in enumerate(Fate)}

_KEYS: Mapping[Sort, Callable[[NodeRow], Any]] = {
    Sort.OWNER: lambda row: row.owner,
    Sort.NAME: lambda row: row.name,
    Sort.TYPE: lambda row: row.instance_type,
    Sort.CAPACITY: lambda row: row.capacity_type,
    Sort.ZONE: lambda row: row.zone,
    Sort.AGE: lambda row: row.created_at,
    Sort.CPU: lambda row: -row.cpu.share,
    Sort.MEMORY: lambda row: -row.memory.share,
    Sort.GPUS: lambda row: -row.gpus.share,
    Sort.PODS: lambda row: -row.pods.requested,
    Sort.PRICE: lambda row: -(row.price or 0.0),
    # What happens soon comes first, then nodes that are kept, then those about which nothing is
    # known.
    Sort.NEXT: lambda row: (_FATES[row.fate], row.next),
}


def ordered(rows: Iterable[NodeRow], by: Sort) -> list[NodeRow]:
    """Sort rows, equal ones by their names."""
    return sorted(rows, key=lambda row: (_KEYS[by](row), row.name))
