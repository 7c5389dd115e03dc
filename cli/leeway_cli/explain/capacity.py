"""Reads a cluster as `provision_nodes` does, and decides which nodes would be given back."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from threading import Lock
from time import monotonic

from leeway.clock import SystemClock
from leeway.disruption.current_launches import CurrentLaunches
from leeway.disruption.decide import decide_without_declined, stays_until
from leeway.disruption.drift import CurrentLaunch
from leeway.disruption.explain import ForeignNode, GroupSize
from leeway.disruption.snapshot import ReturnDecision, Snapshot, own_instances, snapshot_of
from leeway.durations import render_duration
from leeway.instances.facts import InstanceFacts, Owner, OwnerKind, owner_of
from leeway.kubernetes.cluster_states import KubernetesClusterStates
from leeway.kubernetes.connection import Connection
from leeway.manifests.base import Manifest
from leeway.manifests.cluster import Cluster, cluster_policy
from leeway.manifests.configuration import deleted_pools
from leeway.manifests.node_pool import pools_of
from leeway.policy.rules import ClusterPolicy
from leeway.pool_pauses import POOL, PoolRecord
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.provisioning.cluster_state import ClusterState, ClusterStates, NodeDetails
from leeway.provisioning.demand import ClusterRead
from leeway.provisioning.kept_objects import KINDS, KeptObjects
from leeway.reasons import Reason, counted
from leeway.retirement.disruption_budget import read_ledger
from leeway.retirement.record import RETIREMENT
from leeway.selection.labels import CAPACITY_TYPE, INSTANCE_TYPE, LAUNCHED, NODEPOOL, ZONE
from leeway.selection.offers.reservations import Reservation
from leeway.selection.offers.survey import Survey, compressed, opened
from leeway.selection.pods import ExistingNode
from leeway.selection.solver.problem import Proceed
from leeway.table import OPEN
from leeway.wiring.clients import groups, instances, table
from leeway.wiring.launch_nodes import node_sources

from leeway_cli.errors import CannotBeDoneError, aws_errors, kubernetes_errors
from leeway_cli.explain.asked import (
    block_of,
    cluster_read,
    find_manifests,
    sleeping_now,
    stored_launches,
    warn_of_block,
)
from leeway_cli.output import kept_warnings, write_stderr
from leeway_cli.selection.sources import KubernetesFiles, Offers, find_offers
from leeway_cli.stack import (
    cluster_name,
    find_stack,
    has_account,
    open_cluster,
    warn_of_unreadable,
)


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """The instances with an open retirement, how many more may begin now (None if it is not known),
    when pools were deleted, the records of pools whose instances did not join, and until when an
    instance stays because its retirement was declined."""

    retiring: frozenset[str] = frozenset()
    most: int | None = None
    deleted: Mapping[str, datetime] = field(default_factory=dict)
    pools: tuple[PoolRecord, ...] = ()
    declined_until: Callable[[str], datetime | None] = lambda _: None


def read_records(
    cluster: str, stack: str, policy: ClusterPolicy, state: ClusterState
) -> StoredRecords:
    """Read the records of a cluster. Without its name or without a deployment, none is known.

    Raises:
        CannotBeDoneError: the table cannot be read.
    """
    if not cluster:
        return StoredRecords()
    name = cluster_name(cluster)
    try:
        deployment = find_stack(stack)
    except CannotBeDoneError as error:
        write_stderr(f"warning: retirements and the disruption budget are not known: {error}")
        return StoredRecords()
    with aws_errors(deployment.where):
        stored = table(name=deployment.table)
        found = stored.find(OPEN, name, RETIREMENT, unreadable=warn_of_unreadable)
        ledger = read_ledger(stored, name)
        deleted = deleted_pools(deployment.manifests(), name)
        pools = stored.list(POOL, cluster=name, unreadable=warn_of_unreadable)
    ready = sum(one.ready for one in state.details.values())
    most = ledger.left(ready, policy.churn, state.read_at)
    retiring = frozenset(one.instance for one in found)

    def declined_until(instance: str) -> datetime | None:
        with aws_errors(deployment.where):
            last = stored.get(RETIREMENT, cluster=name, instance=instance)
        return stays_until(last, state.read_at)

    return StoredRecords(retiring, most, deleted, pools, declined_until)


_NODE_GROUP = "eks.amazonaws.com/nodegroup"
_EKS_CAPACITY_TYPE = "eks.amazonaws.com/capacityType"
"""Labels of the nodes of managed node groups; values of the second are SPOT and ON_DEMAND."""


def owners_by_ec2(state: ClusterState) -> dict[str, InstanceFacts]:
    """Return the facts of all instances that have a node, by id. Those that EC2 does not know, or
    whose tags do not name exactly one cluster, have the owner that their labels name, and never
    Leeway.

    Raises:
        CannotBeDoneError: AWS does not answer or refuses.
    """
    with aws_errors("the instances of the cluster"):
        found = instances().describe_all(state.joined.keys())
    if unknown := state.joined.keys() - found.keys():
        write_stderr(
            f"warning: {counted(len(unknown), 'node has an instance', 'nodes have instances')} "
            "that EC2 does not know in this region, or that do not name one cluster in "
            "their tags; their labels are used."
        )
    return {**owners_by_labels(state, ()), **found}


def owners_by_labels(state: ClusterState, pools: Collection[str]) -> dict[str, InstanceFacts]:
    """Return the facts of instances by the labels of their nodes. A node of one of these pools
    counts as Leeway's."""
    nodes = {node.name: node for node in state.nodes}
    return {
        instance: facts_by_labels(instance, nodes[name], pools)
        for instance, name in state.joined.items()
        if name in nodes
    }


def facts_by_labels(instance: str, node: ExistingNode, pools: Collection[str]) -> InstanceFacts:
    """Return the facts of an instance by the labels of its node. A node of one of these pools
    counts as Leeway's."""
    labels = node.labels
    managed = labels.get(_EKS_CAPACITY_TYPE, "").lower().replace("_", "-")
    return InstanceFacts(
        instance=instance,
        cluster="",
        private_dns_name=node.name,
        zone=labels.get(ZONE, ""),
        instance_type=labels.get(INSTANCE_TYPE, ""),
        capacity_type=labels.get(CAPACITY_TYPE) or managed,
        owner=_owner(labels, pools),
        joined=True,
        from_fleet=True,
    )


def _owner(labels: Mapping[str, str], pools: Collection[str]) -> Owner:
    pool = labels.get(NODEPOOL, "")
    if pool and (pool in pools or LAUNCHED in labels):
        return Owner(OwnerKind.LEEWAY, pool)
    if group := labels.get(_NODE_GROUP):
        return Owner(OwnerKind.MANAGED_NODE_GROUP, group)
    found = owner_of({}, labels)
    karpenter = pool and found.kind is OwnerKind.NONE
    return Owner(OwnerKind.KARPENTER, pool) if karpenter else found


def group_sizes(facts: Iterable[InstanceFacts]) -> dict[str, GroupSize]:
    """Read the sizes of the Auto Scaling groups that own these instances, by name.

    Raises:
        CannotBeDoneError: AWS does not answer or refuses.
    """
    kind = OwnerKind.AUTO_SCALING_GROUP
    members = {one.owner.name: one.instance for one in facts if one.owner.kind is kind}
    found = {}
    for name, instance in members.items():
        with aws_errors(f"Auto Scaling group {name}"):
            group = groups().facts(instance)
        if group is not None:
            found[name] = GroupSize(group.minimum, group.desired, group.units)
    return found


FOLLOWED_SECONDS = 10.0
"""How long later steps are simulated."""

OFFERS_FOR, SIZES_FOR, FAILED_FOR = 600.0, 60.0, 60.0
"""For how many seconds offers count, the sizes of groups and who launches, and that offers could
not be read."""

STALE_AFTER = timedelta(hours=24)
"""The age of a catalog that is reported: refresh_catalog renews it every six hours."""

_NO_INSTANCE = "node/"
"""The prefix of the key of a node that names no instance."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a command reads: its options. `optional`: manifests, AWS and the table are read if they
    are configured, and what cannot be read is left out."""

    files: Sequence[Path]
    nodes: Sequence[Path]
    cluster: str
    kubeconfig: Path | None
    context: str | None
    sandbox: bool
    region: str | None
    stack: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Capacity:
    """The snapshot of a cluster, the nodes of other owners, and the sizes of their groups.
    `declined_until` says of an instance until when it stays because its retirement was declined.
    """

    snapshot: Snapshot
    foreign: tuple[ForeignNode, ...]
    sizes: Mapping[str, GroupSize]
    declined_until: Callable[[str], datetime | None]

    def decide(self) -> tuple[Snapshot, ReturnDecision]:
        """Decide what is given back now, as Leeway does.

        Raises:
            CannotBeDoneError: the table cannot be read.
        """
        return decide_without_declined(self.snapshot, self.declined_until)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all nodes."""
        return (*(one.name for one in self.snapshot.own), *(one.name for one in self.foreign))


def time_limit(seconds: float = FOLLOWED_SECONDS) -> Proceed:
    """Return a function that is true for this many seconds from now on."""
    until = monotonic() + seconds
    return lambda: monotonic() < until


class KeptOffers:
    """The offers of a region of an account, which are read again after some minutes. Commands that
    read several clusters there, some at the same time, share one: each gets what was read, or what
    is used because it could not be read, and is warned of the same."""

    def __init__(
        self,
        source: Source,
        find: Callable[..., Offers] = find_offers,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._source, self._find, self._clock = source, find, clock
        self._lock = Lock()
        self._offers: Offers | None = None
        self._warnings: list[str] = []
        self._until = float("-inf")

    def read(self) -> Offers:
        """Return the offers. What was warned of when they were read is warned of each time."""
        with self._lock:
            if self._offers is not None and self._clock() < self._until:
                for warning in self._warnings:
                    write_stderr(warning)
                return self._offers
            with kept_warnings(written=True) as said:
                self._offers, lasts = self._read()
            self._warnings = [one for one in said if one.startswith("warning:")]
            self._until = self._clock() + lasts
            return self._offers

    def _read(self) -> tuple[Offers, float]:
        """Find the prices, and for how many seconds they count. If they are optional and cannot be
        read, those before are used, or no price is known."""
        source, nothing = self._source, Offers(opened(compressed(Survey(""))))
        if source.optional and not (source.sandbox or has_account()):
            return nothing, FAILED_FOR
        try:
            return self._find(source.region, source.stack, sandbox=source.sandbox), OFFERS_FOR
        except CannotBeDoneError as error:
            if not source.optional:
                raise
            if self._offers is not None and self._offers.catalog.names:
                write_stderr(f"warning: the prices of before are shown: {error}")
                return self._offers, FAILED_FOR
            write_stderr(f"warning: no price is known: {error}")
            return nothing, FAILED_FOR


class AccountReading:
    """Reads of AWS what changes seldom, and keeps it for a command that reads a cluster again and
    again: the offers, what pools would launch, the sizes of Auto Scaling groups, and who
    launches."""

    def __init__(self, offers: KeptOffers) -> None:
        self.offers = offers
        self._sizes_until = self._block_until = float("-inf")
        self._block: Reason | None = None
        self._groups: frozenset[str] = frozenset()
        self._sizes: Mapping[str, GroupSize] = {}

    @cached_property
    def launches(self) -> CurrentLaunches:
        """Reads what pools would launch now. It keeps that itself."""
        return CurrentLaunches(node_sources())

    def block(self, source: Source) -> Reason | None:
        """Return why Leeway launches nothing in the cluster and gives nothing back, although its
        manifests say so."""
        if monotonic() >= self._block_until:
            with ExitStack() as opened:
                self._block = block_of(
                    source.cluster,
                    source.stack,
                    lambda: opened.enter_context(closing(_connection(source))),
                )
            self._block_until = monotonic() + SIZES_FOR
        return self._block

    def sizes(self, facts: Collection[InstanceFacts]) -> Mapping[str, GroupSize]:
        """Return the sizes of the Auto Scaling groups that own these instances, by name."""
        kind = OwnerKind.AUTO_SCALING_GROUP
        names = frozenset(one.owner.name for one in facts if one.owner.kind is kind)
        if names != self._groups or monotonic() >= self._sizes_until:
            self._sizes, self._groups = group_sizes(facts), names
            self._sizes_until = monotonic() + SIZES_FOR
        return self._sizes


def read_capacity(
    source: Source, states: ClusterStates | None = None, account: AccountReading | None = None
) -> Capacity:
    """Read the manifests, the cluster, its instances and the prices. Warnings go to stderr.
    `states` reads the cluster, by default as the options of the source say. `account` keeps what
    it has read for the next call.

    Raises:
        BadInputError: an option or a file is invalid.
        CannotBeDoneError: the API server or AWS did not answer, or refused: the missing right is
            named.
    """
    account = account or AccountReading(KeptOffers(source))
    alone = source.optional and not (source.files or source.cluster)
    manifests: list[Manifest] = []
    if not alone:
        manifests = find_manifests(tuple(source.files), source.cluster, source.stack)
    pools = [pool.name for pool in pools_of(manifests)]
    if not (pools or alone):
        write_stderr("warning: there is no NodePool: Leeway launches nothing and keeps all nodes.")
    policy = _policy(manifests)
    offers = account.offers.read()
    stored = stored_launches(source.cluster, source.stack)
    state = _state(source, states)
    for unreadable in state.unreadable:
        write_stderr(f"warning: {unreadable.reason.code}: {unreadable.reason}")
    warn_of_catalog(offers, state.read_at)
    warn_of_block(account.block(source))
    sleeping = sleeping_now(source.cluster, source.stack, manifests, state.read_at)
    read = cluster_read(source.cluster, manifests, offers.catalog, state, stored, sleeping)
    records = read_records(source.cluster, source.stack, policy, state)
    if source.nodes or not has_account():
        if not alone:
            write_stderr(
                "warning: EC2 is not read: nodes with the label of a pool count as Leeway's."
            )
        return _capacity(read, owners_by_labels(state, pools), {}, offers, records, policy)
    facts = owners_by_ec2(state)
    launches = _launches(account.launches, read, facts)
    sizes = account.sizes(facts.values())
    reservations = account.launches.reservations(
        read.cluster, read.manifests, read.intents, read.state.read_at
    )
    return _capacity(read, facts, sizes, offers, records, policy, launches, reservations)


def _state(source: Source, states: ClusterStates | None) -> ClusterState:
    if source.nodes:
        return _state_of_files(source.nodes)
    if states is None:
        return _live_state(source)
    with kubernetes_errors():
        return states.read(source.cluster)


def _launches(
    launches: CurrentLaunches, read: ClusterRead, facts: Mapping[str, InstanceFacts]
) -> Mapping[str, CurrentLaunch]:
    """Read from AWS what the pools would launch now; warn of what cannot be read."""
    now, own = read.state.read_at, own_instances(facts)
    found = launches.read(read.cluster, read.manifests, read.catalog, own, now)
    for problem in found.lasting:
        write_stderr(f"warning: {problem.code}: {problem}")
    return found.of_pool


def _connection(source: Source) -> Connection:
    if source.nodes:
        raise ClusterUnavailable("--nodes is read instead")
    return open_cluster(source.cluster, source.kubeconfig, source.context)


def _live_state(source: Source) -> ClusterState:
    with kubernetes_errors(), closing(_connection(source)) as connection:
        return KubernetesClusterStates(lambda _: connection, SystemClock()).read(source.cluster)


def _state_of_files(paths: Sequence[Path]) -> ClusterState:
    """Read the state of a cluster from the output of kubectl."""
    objects = KeptObjects(complete=False)
    for document in KubernetesFiles(paths).documents:
        kind = str(document.get("kind"))
        if kind in KINDS:
            objects.put(kind, document)
    return objects.state(SystemClock().now())


def _capacity(
    read: ClusterRead,
    facts: Mapping[str, InstanceFacts],
    sizes: Mapping[str, GroupSize],
    offers: Offers,
    stored: StoredRecords,
    policy: ClusterPolicy,
    launches: Mapping[str, CurrentLaunch] | None = None,
    reservations: Mapping[str, tuple[Reservation, ...]] | None = None,
) -> Capacity:
    details, now = read.state.details, read.state.read_at
    quiet = {name: _quiet_since(one, now) for name, one in details.items()}

    def snapshot(read: ClusterRead, instances: Mapping[str, InstanceFacts]) -> Snapshot:
        return snapshot_of(
            read,
            instances,
            quiet,
            stored.retiring,
            offers.unavailable,
            stored.most,
            policy.worth,
            launches,
            deleted=stored.deleted,
            reservations=reservations,
            records=stored.pools,
            surges=policy.surges,
        )

    made = snapshot(read, own_instances(facts))
    own = {one.name for one in made.own}
    joined, known = _with_all_nodes(read.state, facts)
    everything = replace(read, state=replace(read.state, joined=joined))
    owners = {joined[key]: one.owner for key, one in known.items() if key in joined}
    # Only Leeway labels its nodes as initialized: others are in use as soon as they are Ready.
    foreign = tuple(
        ForeignNode(replace(one, ready=details[one.name].ready), owners[one.name])
        for one in snapshot(everything, known).own
        if one.name not in own
    )
    return Capacity(made, foreign, sizes, stored.declined_until)


def _with_all_nodes(
    state: ClusterState, facts: Mapping[str, InstanceFacts]
) -> tuple[Mapping[str, str], Mapping[str, InstanceFacts]]:
    """Return the joined instances and their facts, with those of nodes that name no instance."""
    named = set(state.joined.values())
    without = {f"{_NO_INSTANCE}{one.name}": one for one in state.nodes if one.name not in named}
    unknown = {key: facts_by_labels("", node, ()) for key, node in without.items()}
    joined = {**state.joined, **{key: node.name for key, node in without.items()}}
    return joined, {**facts, **unknown}


def _quiet_since(node: NodeDetails, now: datetime) -> datetime:
    """Return since when no pod came to a node. A command does not know which pods have left."""
    times = [node.ready_since or node.created_at, *(one.created_at for one in node.pods)]
    return min(max(times), now)


def _policy(manifests: Sequence[Manifest]) -> ClusterPolicy:
    """Return the policy of the Cluster manifest, and warn if Leeway does nothing by it."""
    written = (one for one in manifests if isinstance(one, Cluster))
    policy = next((cluster_policy(one) for one in written), ClusterPolicy())
    if policy.paused:
        write_stderr("warning: the cluster is paused: nothing is given back until leeway resume.")
    if policy.dry_run:
        write_stderr("warning: the cluster has dryRun: nothing is given back.")
    return policy


def warn_of_catalog(offers: Offers, now: datetime) -> None:
    """Warn if a catalog is empty or old."""
    if not offers.catalog.names and offers.catalog.region:
        write_stderr("warning: the catalog has no instance type, so no price is known.")
    if offers.read_at is not None and now - offers.read_at > STALE_AFTER:
        age = render_duration(timedelta(hours=(now - offers.read_at) // timedelta(hours=1)))
        write_stderr(
            f"warning: the catalog is {age} old, and prices may differ: see refresh_catalog."
        )
