"""What the nodes of a cluster cost, by owner, namespace and label of pods: an item an hour.

`reconcile` looks at the instances of a cluster each minute. At the first run of each five minutes
it adds what they have cost since the last time to the item of the hour:

- **Time**: a look stands for the time since the look before it. If that is more than 15 minutes,
  the time between them is not counted: `covered` has no interval of it, and the report names the
  gap. A second run in the same five minutes finds that the time is covered, and adds nothing; of
  two runs at once, the table refuses the second.
- **Price**: that of AWS for the type, zone and capacity type, from the catalog. Reserved capacity
  counts as on-demand. The hours of a type without a price are counted apart.
- **Hibernation**: a node that was given back because its pool hibernates saves its price until the
  pool is awake. What is seen each five minutes counts, so the last minutes of a night do not.
- **Pods**: a pod has the largest of its shares of a node's CPU, memory and GPUs, by its requests.
  If these are more than the node together, they are scaled down to it. The rest is idle. What an
  instance cost that is not in the cluster any more, or not known by its Node, is not split.
- **Interruptions**: those of Spot requests, once each, by the type and zone of the instance.

The item is bounded: in each kind of key the dearest ones are kept, the others are OTHER.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import isfinite, nan

from leeway.clock import Clock
from leeway.hibernation import HIBERNATION, SLEEPING, SleepingPools
from leeway.instances.facts import (
    InstanceFacts,
    ObservedInstance,
    ObservedInterruption,
    Owner,
    OwnerKind,
)
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.retirement.record import RETIREMENT
from leeway.selection.labels import ON_DEMAND, RESERVED, SPOT
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.catalog import Catalog
from leeway.selection.offers.machines import ACCELERATORS
from leeway.selection.resources import Resources
from leeway.table import Record, RecordChanged, Table
from leeway.typed_json import dumps, loads

SAMPLE_SECONDS = 300
TOLD_EVERY = 3
"""Samples for each of which the log has the nodes of now."""

LONGEST_LOOK = timedelta(minutes=15)
"""How long a look at the instances stands for at most. Longer times are gaps."""

SETTLED = timedelta(minutes=2)
"""How old the end of a retirement is when it is counted. Its record is written after this time: a
write that conflicts is tried six times, each with the time limits of a call, and one that comes
later than this is never counted."""

INTERRUPTED_FOR = timedelta(minutes=5)
"""How old an interruption is when it is counted. EC2 terminates the instance two minutes after it
marks it, and lists it for about an hour more; its Spot request does not change any more then."""

KEPT_FOR = timedelta(days=35)

OTHER = "*"
"""The key of those that are not kept apart. No namespace and no value of a label has this name."""

MOST_OWNERS, MOST_NAMESPACES, MOST_VALUES, MOST_LABELS = 300, 1000, 400, 5
"""Keys of an item. With the longest names it has 300 KB before it is compressed; DynamoDB takes
400 KB."""

MOST_SHOWN = 100
"""Owners whose nodes of now an item has."""

type Split = Mapping[str, float]
"""USD by key."""


@dataclass(frozen=True, slots=True)
class OwnerCost:
    """What the nodes of a pool or a group cost in an hour, and what they would cost on demand, in
    USD; their instance hours, and those without a known price, which cost nothing here."""

    usd: float = 0.0
    on_demand_usd: float = 0.0
    hours: float = 0.0
    unpriced_hours: float = 0.0

    def __add__(self, other: "OwnerCost") -> "OwnerCost":
        return OwnerCost(
            self.usd + other.usd,
            self.on_demand_usd + other.on_demand_usd,
            self.hours + other.hours,
            self.unpriced_hours + other.unpriced_hours,
        )


@dataclass(frozen=True, slots=True)
class SpotPool:
    """The hours of the Spot instances of a type in a zone, and how many of them EC2 interrupted."""

    hours: float = 0.0
    interruptions: int = 0

    def __add__(self, other: "SpotPool") -> "SpotPool":
        return SpotPool(self.hours + other.hours, self.interruptions + other.interruptions)


@dataclass(frozen=True, slots=True)
class Returned:
    """Nodes that Leeway gave back for a cause, and what they cost together in USD per hour, without
    what was launched in their place."""

    nodes: int = 0
    usd_per_hour: float = 0.0

    def __add__(self, other: "Returned") -> "Returned":
        return Returned(self.nodes + other.nodes, self.usd_per_hour + other.usd_per_hour)


@dataclass(frozen=True, slots=True)
class NodeCount:
    """The running nodes of an owner at one time. `types` are by instance type and capacity type, as
    `m5.large spot`."""

    owner: str
    nodes: int
    usd_per_hour: float
    on_demand_usd_per_hour: float
    types: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CostHour:
    """What the nodes of a cluster cost in one hour; `day` and `hour` are of UTC.

    - `through`: until when everything is counted. `covered`: the counted intervals. They may begin
      a few minutes before the hour: time counts in the hour in which it is looked at.
    - `owners` are by `kind/name`, as `leeway/web`. `labels` are by key and value, without the label
      by an empty value.
    - `idle`: USD of what no pod requests. `unsplit`: USD of which the pods are not known.
    - `returned`: by cause. `asleep`: what the nodes cost per hour that pools which hibernate gave
      back, by pool; `hibernated`: USD that this has saved in the hour.
    - `nodes`: those of the last look; of many owners, the dearest ones.
    - `spot`: Spot instances, by type and zone, as `m5.large us-east-1a`.
    """

    cluster: str
    day: str
    hour: str
    through: datetime
    version: int = 1
    covered: tuple[tuple[datetime, datetime], ...] = ()
    owners: Mapping[str, OwnerCost] = field(default_factory=dict)
    namespaces: Split = field(default_factory=dict)
    labels: Mapping[str, Split] = field(default_factory=dict)
    idle: float = 0.0
    unsplit: float = 0.0
    returned: Mapping[str, Returned] = field(default_factory=dict)
    asleep: Mapping[str, float] = field(default_factory=dict)
    hibernated: float = 0.0
    nodes: tuple[NodeCount, ...] = ()
    spot: Mapping[str, SpotPool] = field(default_factory=dict)


def _packed(hour: CostHour) -> bytes:
    return zlib.compress(dumps(hour))


def _unpacked(packed: bytes) -> CostHour:
    try:
        content = zlib.decompress(packed)
    except zlib.error:
        content = b""  # an invalid record, as any other that is no JSON
    return loads(CostHour, content)


COST = Record(
    CostHour,
    "COST#{cluster}",
    "HOUR#{day}#{hour}",
    versioned=True,
    kept_for=KEPT_FOR,
    packed=(_packed, _unpacked),
)


@dataclass(frozen=True, slots=True)
class PodUse:
    """What a pod requests of its node; of its labels, those whose keys are split by."""

    namespace: str
    requests: Resources
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeUse:
    """What a Node has for pods, and the pods that are bound to it and have not ended."""

    allocatable: Resources
    pods: Sequence[PodUse] = ()


type ClusterUse = Callable[[str, Collection[str]], Mapping[str, NodeUse]]
"""Reads what the pods of a cluster request, with these labels of theirs, by the ids of the
instances of their nodes. An instance that several Nodes name is missing. Raises ClusterUnavailable
or ClusterRefused if the API server did not answer, or refused."""


@dataclass(frozen=True, slots=True)
class Look:
    """The running instances of a cluster at a time."""

    at: datetime
    running: Sequence[InstanceFacts]


type Price = Callable[[InstanceFacts], tuple[float, float] | None]
"""Returns what an instance costs, and what it would cost on demand, in USD per hour; None if that
is not known."""


def prices_of(catalog: Catalog | None) -> Price:
    """Return the prices of AWS. A Spot price without one on demand is its own."""
    if catalog is None:
        return lambda _: None
    markets = catalog.for_node_class(NodeClass(), ()).markets
    known = {(one.zone, one.capacity_type): one.prices for one, _ in markets}

    def of(one: InstanceFacts, capacity_type: str) -> float | None:
        prices, index = known.get((one.zone, capacity_type)), catalog.index.get(one.instance_type)
        price = float(prices[index]) if prices is not None and index is not None else nan
        return price if isfinite(price) else None

    def price(one: InstanceFacts) -> tuple[float, float] | None:
        paid = of(one, ON_DEMAND if one.capacity_type == RESERVED else one.capacity_type)
        if paid is None:
            return None
        listed = of(one, ON_DEMAND)
        return paid, paid if listed is None else listed

    return price


def shares(use: NodeUse) -> list[float]:
    """Return the share of the node that each pod has, together at most 1."""
    allocatable = [
        (name, amount)
        for name, amount in use.allocatable.items()
        if amount > 0 and (name in {"cpu", "memory"} or name in ACCELERATORS)
    ]
    found = [
        max((pod.requests.of(name) / amount for name, amount in allocatable), default=0.0)
        for pod in use.pods
    ]
    scale = max(1.0, sum(found))
    return [one / scale for one in found]


def counted(
    before: CostHour,
    looks: Iterable[Look],
    uses: Mapping[str, NodeUse] | None,
    price: Price,
    labels: Sequence[str] = (),
    returned: Mapping[str, Returned] | None = None,
    interrupted: Mapping[str, int] | None = None,
) -> CostHour:
    """Add what some looks stand for, in the order of their times, to an hour. `uses` are the nodes
    at the last look, None if they could not be read. `interrupted` are interruptions by type and
    zone."""
    covered, through = list(before.covered), before.through
    seconds: dict[str, float] = {}
    facts: dict[str, InstanceFacts] = {}
    for look in looks:
        stands_for = look.at - through
        if stands_for <= timedelta(0):
            continue
        if stands_for <= LONGEST_LOOK:
            for one in look.running:
                facts[one.instance] = one
                seconds[one.instance] = seconds.get(one.instance, 0.0) + stands_for.total_seconds()
            if covered and covered[-1][1] == through:
                covered[-1] = (covered[-1][0], look.at)
            else:
                covered.append((through, look.at))
        through = look.at
    added = _Added(before, labels)
    for instance, time in seconds.items():
        paid = price(facts[instance])
        hours = time / 3600
        cost = (
            OwnerCost(hours=hours, unpriced_hours=hours)
            if paid is None
            else OwnerCost(paid[0] * hours, paid[1] * hours, hours)
        )
        added.add(facts[instance], cost, (uses or {}).get(instance))
    for pool, times in (interrupted or {}).items():
        added.spot[pool] = added.spot.get(pool, SpotPool()) + SpotPool(interruptions=times)
    return replace(
        before,
        through=through,
        covered=tuple(covered),
        owners=_dearest(added.owners, MOST_OWNERS, lambda one: one.usd),
        namespaces=_dearest(added.namespaces, MOST_NAMESPACES, float),
        labels={key: _dearest(added.labels[key], MOST_VALUES, float) for key in added.labels},
        idle=added.idle,
        unsplit=added.unsplit,
        returned=_sums(before.returned, returned or {}),
        spot=_dearest(added.spot, MOST_OWNERS, lambda one: one.hours),
    )


def with_sleep(
    hour: CostHour, before: CostHour, given_back: Mapping[str, float], sleeping: Collection[str]
) -> CostHour:
    """Add to an hour what pools that hibernate have saved since it was as `before`. `given_back` is
    what the nodes cost that they gave back since then, `sleeping` are those that still sleep."""
    hours = (_seconds(hour) - _seconds(before)) / 3600
    saved = sum(usd for pool, usd in before.asleep.items() if pool in sleeping)
    pools = sorted({*before.asleep, *given_back} & {*sleeping})[:MOST_OWNERS]
    asleep = {pool: before.asleep.get(pool, 0.0) + given_back.get(pool, 0.0) for pool in pools}
    return replace(hour, asleep=asleep, hibernated=before.hibernated + saved * hours)


def _seconds(hour: CostHour) -> float:
    return sum((end - begin).total_seconds() for begin, end in hour.covered)


def owner_key(owner: Owner) -> str:
    """Return the key of an owner, as `leeway/web`."""
    return f"{owner.kind.value}/{owner.name}" if owner.name else owner.kind.value


def interruptions_of(
    instances: Iterable[ObservedInstance],
    interruptions: Iterable[ObservedInterruption],
    since: datetime,
    until: datetime,
) -> Counter[str]:
    """Count the instances that EC2 interrupted and that are gone, by type and zone. Each counts in
    one of the intervals of consecutive runs: that with INTERRUPTED_FOR after it."""
    gone = {one.facts.instance: one.facts for one in instances if one.state != "running"}
    counts = {
        one.instance
        for one in interruptions
        if one.instance in gone and since < one.marked_at + INTERRUPTED_FOR <= until
    }
    return Counter(_pool_of(gone[one]) for one in counts)


def _pool_of(one: InstanceFacts) -> str:
    return f"{one.instance_type} {one.zone}"


class _Added:
    """The sums of an hour while costs are added."""

    def __init__(self, before: CostHour, labels: Sequence[str]) -> None:
        self.owners = dict(before.owners)
        self.namespaces = dict(before.namespaces)
        self.labels = {key: dict(split) for key, split in before.labels.items()}
        self.idle, self.unsplit = before.idle, before.unsplit
        self.spot = dict(before.spot)
        for key in labels:
            if len(self.labels) < MOST_LABELS:
                self.labels.setdefault(key, {})

    def add(self, one: InstanceFacts, cost: OwnerCost, use: NodeUse | None) -> None:
        if one.capacity_type == SPOT:
            pool = _pool_of(one)
            self.spot[pool] = self.spot.get(pool, SpotPool()) + SpotPool(cost.hours)
        owner = owner_key(one.owner)
        self.owners[owner] = self.owners.get(owner, OwnerCost()) + cost
        if use is None:
            self.unsplit += cost.usd
            return
        left = cost.usd
        for pod, share in zip(use.pods, shares(use), strict=True):
            usd = cost.usd * share
            left -= usd
            self.namespaces[pod.namespace] = self.namespaces.get(pod.namespace, 0.0) + usd
            for key, split in self.labels.items():
                value = pod.labels.get(key, "")
                split[value] = split.get(value, 0.0) + usd
        self.idle += max(0.0, left)


def _dearest[T: (float, OwnerCost, SpotPool)](
    found: Mapping[str, T], most: int, usd: Callable[[T], float]
) -> dict[str, T]:
    """Keep the dearest keys; the sum of the others is that of OTHER."""
    if len(found) <= most:
        return dict(found)
    named: list[str] = sorted(found.keys() - {OTHER}, key=lambda key: (-usd(found[key]), key))
    kept = {key: found[key] for key in named[: most - 1]}
    others = [found[key] for key in (*named[most - 1 :], *({OTHER} & found.keys()))]
    total = others[0]
    for one in others[1:]:
        total = total + one
    return {**kept, OTHER: total}


def _sums(first: Mapping[str, Returned], second: Mapping[str, Returned]) -> dict[str, Returned]:
    causes = sorted(first.keys() | second.keys())
    return {one: first.get(one, Returned()) + second.get(one, Returned()) for one in causes}


def node_counts(running: Iterable[InstanceFacts], price: Price) -> tuple[NodeCount, ...]:
    """Count the running nodes of each owner by their types."""
    by_owner: dict[str, list[InstanceFacts]] = {}
    for one in running:
        by_owner.setdefault(owner_key(one.owner), []).append(one)
    found = []
    for owner, instances in sorted(by_owner.items()):
        types = Counter(f"{one.instance_type} {one.capacity_type}" for one in instances)
        paid = [each for one in instances if (each := price(one)) is not None]
        usd, on_demand = sum(one for one, _ in paid), sum(one for _, one in paid)
        found.append(NodeCount(owner, len(instances), usd, on_demand, dict(types.most_common())))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a run has recorded: the nodes of now, once in a quarter of an hour, beside the owners
    that have none since the last record, and what was given back. `error` is why the costs are not
    split by pods."""

    nodes: tuple[NodeCount, ...] = ()
    returned: Mapping[str, Returned] = field(default_factory=dict)
    error: ClusterUnavailable | ClusterRefused | None = None


class CostRecorder:
    """Records costs. Between two writes it remembers what each run has seen, so that a node that
    lives for three minutes counts. A function that starts anew sees less, and counts as well."""

    def __init__(
        self, table: Table, price: Callable[[], Price], use: ClusterUse, clock: Clock
    ) -> None:
        self._table = table
        self._price = price
        self._use = use
        self._clock = clock
        self._looks: dict[str, list[Look]] = {}
        self._through: dict[str, datetime] = {}

    def record(
        self,
        cluster: str,
        instances: Sequence[ObservedInstance],
        labels: Sequence[str],
        interruptions: Sequence[ObservedInterruption] = (),
    ) -> Recorded:
        """Look at the instances of a cluster, and write the costs of the last five minutes.
        `interruptions` are those of the region.

        Raises:
            CloudUnavailable, CloudRefused: the table failed; the next run goes on.
        """
        now = self._clock.now()
        running = [one.facts for one in instances if one.state == "running"]
        looks = self._looks.setdefault(cluster, [])
        looks.append(Look(now, running))
        del looks[: -int(LONGEST_LOOK.total_seconds() // 60)]
        known = self._through.get(cluster)
        if known is not None and _slot(known) >= _slot(now):
            return Recorded()
        before = self._stored(cluster, now)
        known = None if before is None else before.through
        if known is not None and _slot(known) >= _slot(now):
            self._through[cluster] = known
            looks.clear()
            return Recorded()
        had = () if before is None else before.nodes
        fresh = _hour_of(cluster, now, now)
        if before is None:
            before = fresh  # the first look: nothing is known of the time before
        elif (before.day, before.hour) != (fresh.day, fresh.hour):
            before = replace(fresh, through=before.through, asleep=before.asleep)
        else:
            before = replace(before, version=before.version + 1)
        counts_time = any(look.running and look.at > before.through for look in looks)
        uses, error = self._uses(cluster, labels) if counts_time else ({}, None)
        price = self._price()
        returned, given_back = self._returned(cluster, instances, known, now)
        nodes = node_counts(running, price)
        dearest = sorted(nodes, key=lambda one: -one.usd_per_hour)[:MOST_SHOWN]
        interrupted = interruptions_of(instances, interruptions, before.through, now)
        hour = counted(before, looks, uses, price, labels, returned, interrupted)
        if before.asleep or given_back:
            stored = self._table.get(SLEEPING, cluster=cluster) or SleepingPools()
            hour = with_sleep(hour, before, given_back, [one.pool for one in stored.at(now)])
        hour = replace(hour, nodes=tuple(dearest))
        try:
            self._table.put(COST, hour)
        except RecordChanged:
            looks.clear()  # another run has counted the time
            return Recorded()
        self._through[cluster] = now
        looks.clear()
        told = known is not None and _slot(known) // TOLD_EVERY == _slot(now) // TOLD_EVERY
        gone = {one.owner for one in had} - {one.owner for one in nodes}
        none_left = (NodeCount(owner, 0, 0.0, 0.0, {}) for owner in sorted(gone))
        return Recorded((*(() if told else nodes), *none_left), returned, error)

    def _stored(self, cluster: str, now: datetime) -> CostHour | None:
        """Read the item of this hour, or the last one before it."""
        for at in (now, now - timedelta(hours=1)):
            key = _hour_of(cluster, at, at)
            found = self._table.get(COST, cluster=cluster, day=key.day, hour=key.hour)
            if found is not None:
                return found
        return None

    def _uses(
        self, cluster: str, labels: Sequence[str]
    ) -> tuple[Mapping[str, NodeUse] | None, ClusterUnavailable | ClusterRefused | None]:
        try:
            return self._use(cluster, labels), None
        except (ClusterUnavailable, ClusterRefused) as error:
            return None, error

    def _returned(
        self,
        cluster: str,
        instances: Iterable[ObservedInstance],
        through: datetime | None,
        now: datetime,
    ) -> tuple[dict[str, Returned], dict[str, float]]:
        """Return what was given back since the last write, by cause; and of that what pools that
        hibernate gave back, in USD per hour by pool. EC2 lists an instance for about an hour
        after its end, so that the end of its retirement is known."""
        if through is None:
            return {}, {}
        gone = [
            {"cluster": cluster, "instance": one.facts.instance}
            for one in instances
            if one.facts.owner.kind is OwnerKind.LEEWAY and one.state != "running"
        ]
        found: dict[str, Returned] = {}
        asleep: dict[str, float] = {}
        since, until = through - SETTLED, now - SETTLED
        stored = self._table.get_many(RETIREMENT, gone, unreadable=lambda _: None) if gone else ()
        for one in stored:
            ended = one.ended_at
            if one.returns is None or not one.is_terminated or ended is None:
                continue
            if since < ended <= until:
                cause = one.returns.cause
                found[cause] = found.get(cause, Returned()) + Returned(1, one.returns.saving)
                if cause == HIBERNATION:
                    pool = one.facts.owner.name
                    asleep[pool] = asleep.get(pool, 0.0) + one.returns.saving
        return found, asleep


def _slot(at: datetime) -> int:
    return int(at.timestamp()) // SAMPLE_SECONDS


def _hour_of(cluster: str, at: datetime, through: datetime) -> CostHour:
    """Return the empty hour of a time."""
    at = at.astimezone(UTC)
    return CostHour(cluster, f"{at:%Y-%m-%d}", f"{at:%H}", through)
