"""The launch intent: one fleet request, written before the call and completed after the answer.

A run that ends in between leaves the request with its client token: the next run repeats it, and
EC2 launches nothing again.

Instances that were launched and have no Node yet are late after five minutes. Most nodes join
within two, and `admit_node` gives up after fifteen. People hear of it after five, while the
instance still runs and can be looked at.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.admission.readiness import CLOCKS_DIFFER_BY
from leeway.bootstrap.node import labels_of_admission
from leeway.launch.fleets import FleetInstance, FleetRequest
from leeway.pool_pauses import PoolRecord
from leeway.ports.kubernetes_objects import Taint
from leeway.reasons import Reason, ReasonCode
from leeway.selection.labels import CAPACITY_TYPE, JOINED, NODEPOOL, ZONE, ZONE_ID
from leeway.selection.offers.catalog import Catalog, InstanceType
from leeway.selection.offers.machines import EFA
from leeway.selection.packing.plan import Placement
from leeway.selection.pods import ExistingNode, NodePool
from leeway.selection.resources import Resources
from leeway.table import Record, Table

POD_WITHOUT_NODE = ReasonCode(
    "PodWithoutNode",
    "Leeway can launch no node for pod {pod}: {why}",
    "a-pod-gets-no-node",
)


@dataclass(frozen=True, slots=True)
class LaunchedNode:
    """An instance that was launched for a pool."""

    instance: FleetInstance
    pool: str
    intent: str


@dataclass(frozen=True, slots=True)
class PodWithoutNode:
    """A pod that gets no node, and the reason. `cause` is the reason without the name of the pod,
    the same for every pod with this cause."""

    pod: str
    reason: Reason
    cause: Reason


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """The outcome of one run.

    `launched` are the instances of this run, and those of a request that an earlier run left
    without an answer. `placed` are pods that have a place on nodes that exist or were launched.
    `reasons` are errors that were worked around, and warnings. `short` are the static pools that
    still lack nodes, with the reason, and `replacements` the instances that were launched in the
    place of retiring instances of static pools. `complete`: every pod gets a node.
    """

    launched: tuple[LaunchedNode, ...]
    placed: tuple[Placement, ...]
    without_node: tuple[PodWithoutNode, ...]
    reasons: tuple[Reason, ...]
    short: Mapping[str, Reason] = field(default_factory=dict)
    replacements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every pod gets a node."""
        return not self.without_node


class LaunchIntent(BaseModel):
    """One fleet request, and the instances that it launched.

    `labels` are those of every node of the pool; `labels_for_admission`, `annotations` and
    `taints_for_admission` are those of the pool that admission puts on, and `startup_taints` the
    keys of taints that admission waits for. `templates` are the ids of its launch templates. `pods`
    are those that the nodes are planned for, none for nodes of a static pool. `replaces` are the
    instances that retire and that some of these pods leave, or in whose place the nodes of a static
    pool are launched. `promised` are the resources that only an overlay promises, and that these
    pods request. `efa`: the nodes have EFA interfaces. `request` is dropped when it has been
    answered.
    `admitted` are the instances whose admission was started. `version` counts writes (the
    optimistic lock).
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    cluster: str
    pool: str
    labels: Mapping[str, str] = Field(default_factory=dict)
    labels_for_admission: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)
    taints_for_admission: tuple[Taint, ...] = ()
    startup_taints: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    promised: tuple[str, ...] = ()
    efa: bool = False
    token: str
    created_at: AwareDatetime
    version: Annotated[int, Field(ge=1)] = 1
    request: FleetRequest | None
    instances: tuple[FleetInstance, ...] = ()
    admitted: frozenset[str] = frozenset()

    @property
    def is_answered(self) -> bool:
        """Whether the instances are known."""
        return self.request is None

    @property
    def to_admit(self) -> tuple[FleetInstance, ...]:
        """The instances whose admission has not been started."""
        return tuple(one for one in self.instances if one.instance not in self.admitted)

    def answered(self, instances: Iterable[FleetInstance]) -> "LaunchIntent":
        """Return the intent with the answer of its request."""
        return self._changed(request=None, instances=tuple(instances))

    def with_admissions(self, instances: Iterable[str]) -> "LaunchIntent":
        """Return the intent after the admission of these instances was started."""
        return self._changed(admitted=self.admitted | frozenset(instances))

    def may_repeat(self, now: datetime) -> bool:
        """Whether its request is repeated if there is no answer to it."""
        return now - self.created_at < REPEAT_WITHIN

    def may_join(self, now: datetime) -> bool:
        """Whether its instances may still join."""
        return now - self.created_at < JOIN_WITHIN

    def joining(self, now: datetime) -> tuple[FleetInstance, ...]:
        """Return its instances, as long as they may still join."""
        return self.instances if self.may_join(now) else ()

    def _changed(self, **fields: object) -> "LaunchIntent":
        return self.model_copy(update={**fields, "version": self.version + 1})


KEPT_FOR = timedelta(hours=1)
"""How long the table keeps an intent: four times as long as a node may take to join."""

INTENT = Record(
    LaunchIntent,
    "LAUNCH#{cluster}",
    "INTENT#{created_at}#{id}",
    versioned=True,
    kept_for=lambda intent: intent.created_at + KEPT_FOR,
)
"""An intent of provision_nodes. A list has the oldest first."""

INTENT_BY_HAND = replace(INTENT, pk="MANUALLAUNCH#{cluster}")
"""An intent of `leeway launch`. Nothing repeats its request but the command that wrote it: another
person may have written it with everything that an item holds."""


def intents_by_hand(table: Table, cluster: str, now: datetime) -> list[LaunchIntent]:
    """Read the intents of the last hour that people wrote. A forged item may be unreadable, have
    any time, or say that the table keeps it for years.

    Raises:
        CloudUnavailable, CloudRefused: the table cannot be read.
    """
    found = table.list(INTENT_BY_HAND, cluster=cluster, unreadable=lambda _: None)
    return [one for one in found if -CLOCKS_DIFFER_BY <= now - one.created_at < KEPT_FOR]


def all_intents(table: Table, cluster: str, now: datetime) -> list[LaunchIntent]:
    """Read the intents of a cluster that count at the time `now`. Of those that people wrote, these
    are the answered ones: no function waits for an answer to a request of a person.

    Raises:
        CloudUnavailable, CloudRefused: the table cannot be read.
    """
    answered = (one for one in intents_by_hand(table, cluster, now) if one.is_answered)
    return [*table.list(INTENT, cluster=cluster), *answered]


def labels_for_admission(
    intent: LaunchIntent, instance: FleetInstance, pool: NodePool, catalog: Catalog
) -> Mapping[str, str]:
    """Return the labels that admission puts on the node of an instance, so that it has all that
    selection counted on. The labels of its state (`JOINED`) are not among them."""
    kind = _type_of(instance, pool, catalog)
    promised = labels_of_admission(_labels(intent, instance, kind, catalog)) if kind else {}
    found = {**intent.labels_for_admission, **promised}
    return {key: value for key, value in sorted(found.items()) if key not in JOINED}


JOIN_WITHIN = timedelta(minutes=15)
"""How long a launched instance may take to join its cluster."""


REPEAT_WITHIN = timedelta(minutes=5)
"""How long after it was written a request without an answer is repeated. After that its instances
are found by their tag: the pods that needed them may have gone."""


def nodes_on_the_way(
    intents: Iterable[LaunchIntent],
    joined: Collection[str],
    pools: Iterable[NodePool],
    catalog: Catalog,
    now: datetime,
) -> tuple[ExistingNode, ...]:
    """Return the instances of intents that have no Node yet, each by its id. `joined` are the
    instances that have a Node. They count for pods, and against the limits of their pools."""
    promised = _promised(intents, pools, catalog)
    return tuple(
        node for intent, node in promised if node.name not in joined and intent.may_join(now)
    )


def overdue_nodes(
    intents: Iterable[LaunchIntent],
    joined: Collection[str],
    pools: Iterable[NodePool],
    catalog: Catalog,
    now: datetime,
) -> tuple[ExistingNode, ...]:
    """Return the instances of pools with limits that have no Node, and are too old to join. They
    take no pods, and count against the limits until they have ended."""
    limited = [pool for pool in pools if pool.is_limited]
    return tuple(
        node.closed()
        for intent, node in _promised(intents, limited, catalog)
        if node.name not in joined and not intent.may_join(now)
    )


def promised_nodes(
    intents: Iterable[LaunchIntent], pools: Iterable[NodePool], catalog: Catalog
) -> Mapping[str, ExistingNode]:
    """Return what was promised of each launched instance, joined or not, by its id."""
    return {node.name: node for _, node in _promised(intents, pools, catalog)}


def _promised(
    intents: Iterable[LaunchIntent], pools: Iterable[NodePool], catalog: Catalog
) -> Iterator[tuple[LaunchIntent, ExistingNode]]:
    by_name = {pool.name: pool for pool in pools}
    for intent in intents:
        if intent.pool in by_name:
            for instance in intent.instances:
                for node in _node(intent, instance, by_name[intent.pool], catalog):
                    yield intent, node


def _node(
    intent: LaunchIntent, instance: FleetInstance, pool: NodePool, catalog: Catalog
) -> Iterator[ExistingNode]:
    kind = _type_of(instance, pool, catalog)
    if kind is not None:
        yield ExistingNode(
            name=instance.instance,
            labels={**_labels(intent, instance, kind, catalog), **JOINED},
            allocatable=_present(kind.allocatable, intent),
            capacity=_present(kind.capacity, intent),
            taints=pool.taints,
            pool=pool.name,
        )


def _present(resources: Resources, intent: LaunchIntent) -> Resources:
    """A node has EFAs only if it was launched for pods that request them."""
    if intent.efa:
        return resources
    return Resources({name: amount for name, amount in resources.items() if name != EFA})


def _type_of(instance: FleetInstance, pool: NodePool, catalog: Catalog) -> InstanceType | None:
    index = catalog.index.get(instance.instance_type)
    return None if index is None else catalog.for_node_class(pool.node_class).type(index)


def _labels(
    intent: LaunchIntent, instance: FleetInstance, kind: InstanceType, catalog: Catalog
) -> dict[str, str]:
    zone_id = catalog.zone_ids.get(instance.zone, "")
    return {
        **kind.labels,
        **intent.labels,
        ZONE: instance.zone,
        **({ZONE_ID: zone_id} if zone_id else {}),
        CAPACITY_TYPE: instance.capacity_type,
        **(instance.reservation.labels if instance.reservation else {}),
        NODEPOOL: intent.pool,
    }


LATE_AFTER = timedelta(minutes=5)
"""How long after its launch an instance without a Node is late."""

NODES_JOIN_LATE = ReasonCode(
    "NodesJoinLate",
    "No Node has joined the cluster for {instances} of pool {pool}, launched at {time:%H:%M} UTC. "
    "The usual causes are the user data, a security group or a subnet without a way to the API "
    "server, and a missing access entry of the node role. `leeway explain instance {first} "
    "--console` shows what the instance has printed.",
    "nodes-are-not-ready",
)

_MOST_SHOWN = 3


class LatePool(BaseModel):
    """A pool with instances that are late: the ids of some, how many there are, and when the first
    of them was launched."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    pool: str
    instances: Annotated[tuple[str, ...], Field(min_length=1)]
    count: int
    since: AwareDatetime

    @property
    def reason(self) -> Reason:
        """What is usually wrong, and how to look at it."""
        named = self.instances[:_MOST_SHOWN]
        more = self.count - len(named)
        shown = ", ".join(named) + (f" and {more} more" if more > 0 else "")
        return NODES_JOIN_LATE(pool=self.pool, instances=shown, first=named[0], time=self.since)

    def shown(self, most: int) -> "LatePool":
        """Return the pool with the ids of so many instances."""
        return self.model_copy(update={"instances": self.instances[:most]})


def late_pools(
    intents: Iterable[LaunchIntent], known: Collection[str], now: datetime
) -> tuple[LatePool, ...]:
    """Return the pools with instances that are late, in the order of their names. `known` are
    instances that have a Node, have ended or retire."""
    late: dict[str, list[LaunchIntent]] = {}
    for one in sorted(intents, key=lambda each: each.created_at):
        if one.may_join(now) and now - one.created_at >= LATE_AFTER:
            late.setdefault(one.pool, []).append(one)
    found = []
    for pool, some in sorted(late.items()):
        missing = [
            (one.created_at, each.instance)
            for one in some
            for each in one.instances
            if each.instance not in known
        ]
        if missing:
            names = tuple(instance for _, instance in missing)
            first = missing[0][0]
            found.append(LatePool(pool=pool, instances=names, count=len(names), since=first))
    return tuple(found)


def pods_of_late_nodes(
    pools: Iterable[LatePool], outcome: LaunchOutcome
) -> tuple[PodWithoutNode, ...]:
    """Return the pods that have their place on an instance that is late, each with the reason of
    its pool."""
    reasons = {instance: one.reason for one in pools for instance in one.instances}
    return tuple(
        PodWithoutNode(pod, cause, cause=cause)
        for placement in outcome.placed
        if (cause := reasons.get(placement.node)) is not None
        for pod in placement.pods
    )


DOUBTED_FOR = timedelta(hours=1)
"""How long after a failed launch of a pool no node is emptied for a new one of this pool."""


def doubted_pools(
    records: Iterable[PoolRecord],
    intents: Iterable[LaunchIntent],
    known: Collection[str],
    now: datetime,
) -> frozenset[str]:
    """Return the pools that are no destination for pods of a node that works: they are paused, an
    instance of the last hour has failed to join or to become ready without a success since, or one
    is late."""
    failed = {
        one.pool
        for one in records
        if one.paused is not None
        or any(now - each.launched_at < DOUBTED_FOR for each in (*one.failures, *one.unready))
    }
    return frozenset(failed | {one.pool for one in late_pools(intents, known, now)})
