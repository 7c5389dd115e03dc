"""The run of provision_nodes for one cluster: read → launch → give back.

It reads the cluster, launches nodes for pods that have no place, answers the capacity requests of
retirements, and then gives back the nodes that are not needed. It never waits until nodes join. SQS
delivers the messages of a cluster to one run at a time, so that two runs never launch for the same
pods. A run that dies leaves its launch intents, and the next run completes them (see
`leeway.launch`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from leeway.capacity_requests import CAPACITY_REQUEST, CapacityAnswer, CapacityRequest
from leeway.clock import Clock
from leeway.disruption.return_capacity import ReturnCapacity
from leeway.disruption.snapshot import is_marked
from leeway.execution.retrying import API_ERRORS
from leeway.hibernation import SLEEPING, Sleeping, SleepingPools
from leeway.instances.facts import ObservedInstance, stays_in_group
from leeway.launch.hibernating import end_wakes_of_deleted, read_sleeping
from leeway.launch.intent import (
    JOIN_WITHIN,
    LatePool,
    LaunchOutcome,
    all_intents,
    nodes_on_the_way,
    pods_of_late_nodes,
    promised_nodes,
)
from leeway.launch.launch_nodes import LaunchNodes
from leeway.launch.launch_run import LAUNCHES_CAPPED, LaunchOrder
from leeway.launch.node_settings import settings_of
from leeway.launch.prices import PRICE_CEILING_REACHED, Prices
from leeway.launch.static_pools import count_of, shortages
from leeway.manifests.base import Manifest
from leeway.manifests.configuration import POOL, Configuration
from leeway.manifests.in_cluster import KARPENTER_IS_RUNNING, MANIFESTS_HELD
from leeway.manifests.node_pool import NodePool, without_conflicts
from leeway.manifests.status import PoolUsage
from leeway.policy.rules import ClusterPolicy
from leeway.ports.kubernetes import Event
from leeway.provisioning.brakes import (
    LAUNCHES_IN_VAIN,
    price_ceiling,
    remaining_launches,
    spending,
    stopped_pods,
    vain_launches,
    with_stopped,
)
from leeway.provisioning.cluster_state import ClusterState, ClusterStates
from leeway.provisioning.demand import (
    ClusterRead,
    StartingNode,
    demand_of,
    nodes_in_service,
    starting_in_groups,
    starting_nodes,
    starting_of_karpenter,
    uninitialized,
)
from leeway.provisioning.receive_messages import FOR_THE_END
from leeway.provisioning.report import (
    STATUS,
    CapacityReturned,
    ProvisioningReport,
    StaticPoolStatus,
    status_of,
)
from leeway.provisioning.tell import (
    NOT_WRITTEN,
    EventsWritten,
    answer_of,
    answer_requests,
    count_waits,
    read_waits,
    write_events,
)
from leeway.provisioning.upcoming import Upcoming, UpcomingPods
from leeway.reasons import Reason, ReasonCode, clause
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import ExistingNode
from leeway.selection.pods import NodePool as Pool
from leeway.switched import SWITCHED_TO_KARPENTER
from leeway.table import Table, UnreadableRecord


class Catalogs(Protocol):
    """The catalog of the region."""

    def read(self) -> Catalog | None:
        """Return the catalog; None if there is none."""
        ...


class GroupInstances(Protocol):
    """Instances of Auto Scaling groups."""

    def launched_by_groups(self, cluster: str, since: datetime) -> Sequence[ObservedInstance]:
        """List the instances of a cluster that groups launched at or after `since` and that start
        or run. `since` may be an hour ago at most."""
        ...

    def members(self, group: str) -> frozenset[str]:
        """Return the instances of a group that run."""
        ...


PROVISIONED = ReasonCode(
    "Provisioned",
    "Leeway launched {launched:instance} for {pods:pod} without a place in cluster {cluster}: "
    "{without:pod gets|pods get} no node.",
)
PROVISIONING_REHEARSED = ReasonCode(
    "ProvisioningRehearsed",
    "Leeway launches nothing for {pods:pod} without a place in cluster {cluster}: the Cluster "
    "manifest has spec.dryRun.",
)
CLUSTER_WITHOUT_POOLS = ReasonCode(
    "ClusterWithoutPools",
    "Cluster {cluster} has no NodePool that Leeway can read, so Leeway launches no node.",
)
PROVISIONING_FAILED = ReasonCode(
    "ProvisioningFailed",
    "Leeway could not provision cluster {cluster}: {error}.",
    "clusterproblemsalarm",
)
CATALOG_MISSING = ReasonCode(
    "CatalogMissing",
    "The table has no catalog of instance types for cluster {cluster}: invoke refresh_catalog.",
    "clusterproblemsalarm",
)
KINDS = (
    "cluster.leeway.sh",
    "ec2nodeclass.karpenter.k8s.aws",
    "nodeoverlay.karpenter.sh",
    "nodepool.karpenter.sh",
)

BRAKES = frozenset({LAUNCHES_CAPPED.name, LAUNCHES_IN_VAIN.name, PRICE_CEILING_REACHED.name})
"""The reasons with which Leeway stops spending by itself, and an alarm rings."""

BLOCKS = frozenset({KARPENTER_IS_RUNNING.name, MANIFESTS_HELD.name, SWITCHED_TO_KARPENTER.name})
"""The reasons for which nothing is launched and nothing is given back."""

FOR_RETURNS = timedelta(seconds=20)
"""The time that a run must have left to give capacity back: the decision for 2,000 nodes takes some
seconds."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The ports of provisioning. `lifecycle_states` reads those of instances in their Auto Scaling
    groups; `events_in` returns what writes Events in a cluster, `launch_block` why nothing is
    launched in it now."""

    manifests: Configuration
    catalog: Catalogs
    states: ClusterStates
    launch_nodes: LaunchNodes
    table: Table
    groups: GroupInstances
    lifecycle_states: Callable[[Collection[str]], Mapping[str, str]]
    upcoming: UpcomingPods
    returns: ReturnCapacity
    events_in: Callable[[str], Callable[[Event], None]]
    launch_block: Callable[[str, datetime], Reason | None]
    clock: Clock


@dataclass(frozen=True, slots=True)
class StaticCapacity:
    """The nodes of the static pools of a cluster, and the instances that take no pods (`closed`).

    - `settled`: no pool lacks nodes, and no node waits until another one in its place is Ready.
    - `counts`: how many nodes each has.
    - `retiring`: by pool, the instances whose place may have to be filled, first those that wait
      for it; None without static pools.
    - `unseen`: instances that run and have no Node.
    """

    closed: frozenset[str] = frozenset()
    settled: bool = True
    retiring: Mapping[str, Sequence[str]] | None = None
    unseen: tuple[ExistingNode, ...] = ()
    pools: tuple[Pool, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    def reached(self, outcome: LaunchOutcome) -> tuple[StaticPoolStatus, ...]:
        """Return how many nodes the pools have after a launch."""
        launched = Counter(one.pool for one in outcome.launched)
        return tuple(
            StaticPoolStatus(
                pool=one.name,
                replicas=one.replicas or 0,
                nodes=self.counts[one.name] + launched[one.name],
            )
            for one in self.pools
        )


NOTHING_LAUNCHED = LaunchOutcome((), (), (), ())


@dataclass(frozen=True, slots=True)
class Bought:
    """What a run launched, and whom it told. `blocked` says why it launches nothing."""

    outcome: LaunchOutcome = NOTHING_LAUNCHED
    told: EventsWritten = field(default_factory=EventsWritten)
    late: tuple[LatePool, ...] = ()
    static: StaticCapacity = field(default_factory=StaticCapacity)
    blocked: Reason | None = None


class NodeProvisioning:
    """Runs of the buyer."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps

    def run(self, cluster: str, why: str, until: datetime) -> ProvisioningReport:
        """Run once for a cluster, at most until this time. Never raises: the report says what
        failed, and whether the run is to be repeated."""
        begun = self._deps.clock.now()
        try:
            if self._deps.manifests.has_deleted(cluster, (POOL,)):
                with suppress(*API_ERRORS):  # the next run repeats it
                    end_wakes_of_deleted(self._deps.table, cluster)
            report = self._run(cluster, why, until)
        except Exception as error:  # noqa: BLE001 (reported and repeated; other clusters go on)
            failure = PROVISIONING_FAILED(cluster=cluster, error=clause(_described(error)))
            report = self._failed(cluster, why, failure)
        return replace(report, seconds=(self._deps.clock.now() - begun).total_seconds())

    def _run(self, cluster: str, why: str, until: datetime) -> ProvisioningReport:
        now = self._deps.clock.now()
        written = self._deps.manifests.manifests(cluster, KINDS)
        policy = self._deps.manifests.policy_of(cluster)
        manifests: Sequence[Manifest] = [one.manifest for one in written]
        stored = self._deps.table.list(CAPACITY_REQUEST, cluster=cluster)
        requests = [one for one in stored if one.is_open(now)]
        unanswered: tuple[Reason, ...] = ()
        has_pools = any(isinstance(one, NodePool) for one in manifests)
        if not has_pools:
            reason = CLUSTER_WITHOUT_POOLS(cluster=cluster)
            answer = CapacityAnswer(answered_at=now, without_node=(reason,))
            unanswered = answer_requests(
                self._deps.table, ((one, answer) for one in requests), self._deps.clock
            )
            if not self._deps.returns.has_nodes(cluster):
                self._store_sleeping(cluster, {})
                return ProvisioningReport(cluster, why, reason, failures=unanswered)
        catalog = self._deps.catalog.read()
        if catalog is None:
            return self._failed(cluster, why, CATALOG_MISSING(cluster=cluster))
        manifests, conflicts = without_conflicts(manifests, catalog)
        pools = [one.template.pool for one in settings_of(manifests)]
        upcoming = Upcoming()
        if not policy.paused:
            upcoming = self._deps.upcoming.read(cluster, pools, catalog, now)
        sleeping, staying = self._asleep(cluster, manifests, now)
        requests = [one for one in requests if one.instance not in staying]
        waits = read_waits(self._deps.table, cluster)
        read = self._read(cluster, manifests, pools, requests, catalog, upcoming, sleeping, staying)
        bought = self._buy(read, pools, policy, until) if has_pools else Bought()
        outcome, blocked = bought.outcome, bought.blocked
        # What is blocked does not sleep: its pods wait for another reason, or Karpenter launches.
        sleeping = read.sleeping if blocked is None else {}
        self._store_sleeping(cluster, sleeping)
        returns = policy if blocked is None else replace(policy, dry_run=True)
        returned = self._return_capacity(read, returns, outcome, until)
        bound, unwritten = count_waits(self._deps.table, waits, read.state)
        coming = self._coming(read, pools)
        report = ProvisioningReport(
            cluster,
            why,
            _result(read, has_pools, policy, bought),
            pods=len(read.demand.pods),
            waiting=len(read.state.waiting),
            waiting_since=min((one.created_at for one in read.state.waiting), default=None),
            bound=bound,
            launched=outcome.launched,
            without_node=outcome.without_node,
            without_event=bought.told.waiting,
            ahead=upcoming.reasons,
            launch_problems=(
                *((blocked,) if blocked else ()),
                *conflicts.values(),
                *(one for one in outcome.reasons if one != blocked),
                *read.problems,
            ),
            unreadable=tuple(one.reason for one in read.state.unreadable),
            failures=(*unanswered, *bought.told.failures, *returned.failures, *unwritten),
            capped=any(one.code in BRAKES for one in outcome.reasons),
            spending=(
                spending(read, pools, coming, policy.usd_per_hour, outcome.launched)
                if has_pools
                else ()
            ),
            returned=returned,
            static_pools=bought.static.reached(outcome),
            late=bought.late,
            usage=usage_of(read, coming),
            conflicts=conflicts,
            sleeping=sleeping,
        )
        return self._with_status(report, policy.dry_run)

    def _buy(
        self, read: ClusterRead, pools: Sequence[Pool], policy: ClusterPolicy, until: datetime
    ) -> Bought:
        """Launch what pods and static pools need, and tell them. A rehearsal, and a cluster in
        which somebody else launches, only get the preview."""
        # Late, and again before each round of launches: Karpenter may have started since.
        blocked = self._deps.launch_block(read.cluster, self._deps.clock.now())
        rehearses = policy.dry_run or blocked is not None
        static = self._static_pools(read, pools)
        order, stopped = self._order(read, static, policy, until)
        outcome, launches = NOTHING_LAUNCHED, self._deps.launch_nodes
        if order is not None:
            outcome = launches.preview(order).outcome if rehearses else launches.launch(order)
        outcome = with_stopped(outcome, stopped)
        late = self._late(read)
        told = EventsWritten() if rehearses else self._tell(read, outcome, late, until)
        blocked = blocked or next((one for one in outcome.reasons if one.code in BLOCKS), None)
        return Bought(outcome, told, late, static, blocked)

    def _read(
        self,
        cluster: str,
        manifests: Sequence[Manifest],
        pools: Sequence[Pool],
        requests: Sequence[CapacityRequest],
        catalog: Catalog,
        upcoming: Upcoming,
        sleeping: Sleeping,
        staying: Collection[str],
    ) -> ClusterRead:
        """Read the cluster after the intents: an instance that joins in between has its Node. The
        nodes of the instances `staying` are about to be uncordoned."""
        intents = all_intents(self._deps.table, cluster, self._deps.clock.now())
        state = self._deps.states.read(cluster).uncordoned(staying)
        now = self._deps.clock.now()
        promised = promised_nodes(intents, pools, catalog)
        starting = dict(starting_nodes(state.nodes, state.joined, promised, intents, now))
        of_karpenter, coming = starting_of_karpenter(state.nodes, state.joined, state.claimed, now)
        starting |= of_karpenter
        if state.waiting or requests or upcoming.pods:
            in_groups, launched = self._in_groups(cluster, state, now)
            starting |= in_groups
            coming = (*coming, *launched)
        demand = demand_of(state, requests, starting, promised, coming, upcoming.pods)
        return ClusterRead(
            cluster,
            manifests,
            catalog,
            state,
            intents,
            requests,
            starting,
            demand,
            upcoming.problems,
            sleeping,
        )

    def _asleep(
        self, cluster: str, manifests: Sequence[Manifest], now: datetime
    ) -> tuple[Sleeping, frozenset[str]]:
        """Return the pools that hibernate, and the instances whose nodes stay because their pool
        does not hibernate any more."""
        sleeping = read_sleeping(self._deps.table, cluster, manifests, now)
        pools = {one.metadata.name for one in manifests if isinstance(one, NodePool)}
        return sleeping, self._deps.returns.staying(cluster, pools - sleeping.keys())

    def _store_sleeping(self, cluster: str, sleeping: Sleeping) -> None:
        """Store which pools hibernate, if that has changed: costs and the status read it."""
        found = SleepingPools.of(sleeping.values())
        table, unreadable = self._deps.table, list[UnreadableRecord]()
        stored = table.get(SLEEPING, cluster=cluster, unreadable=unreadable.append)
        if unreadable or found != (stored or SleepingPools()):
            table.put(SLEEPING, found, cluster=cluster)

    def _return_capacity(
        self, read: ClusterRead, policy: ClusterPolicy, outcome: LaunchOutcome, until: datetime
    ) -> CapacityReturned:
        """Give capacity back on what was just read. If the run has launched, or may have, the next
        run that launches nothing reads what became of it."""
        launched = bool(outcome.launched) or any(not one.is_answered for one in read.intents)
        in_time = self._deps.clock.now() + FOR_RETURNS < until
        return self._deps.returns.after_run(read, policy, launched, in_time)

    def _in_groups(
        self, cluster: str, state: ClusterState, now: datetime
    ) -> tuple[Mapping[str, StartingNode], tuple[ExistingNode, ...]]:
        """The nodes that Auto Scaling groups have launched, for example as successors of nodes
        that retire: their pods must not get a second node. An instance that its group puts into
        its warm pool, or ends, takes no pods."""
        launched = self._deps.groups.launched_by_groups(cluster, now - JOIN_WITHIN)
        absent = {one.group for one in launched if one.facts.instance not in state.joined}
        members = {group: sorted(self._deps.groups.members(group)) for group in sorted(absent)}
        starting, coming = starting_in_groups(state.nodes, state.joined, launched, members)
        found = [*(one.instance for one in starting.values()), *(one.name for one in coming)]
        states: Mapping[str, str] = {}
        with suppress(*API_ERRORS):  # then all count: few groups have a warm pool
            states = self._deps.lifecycle_states(found)
        # Auto Scaling lists an instance some seconds after it has launched it.
        out = {instance for instance, now_in in states.items() if not stays_in_group(now_in)}
        return (
            {name: one for name, one in starting.items() if one.instance not in out},
            tuple(one for one in coming if one.name not in out),
        )

    def _order(
        self, read: ClusterRead, static: StaticCapacity, policy: ClusterPolicy, until: datetime
    ) -> tuple[LaunchOrder | None, Mapping[str, Reason]]:
        """Return what is to be launched, and the pods for which nothing is, with the reasons. No
        order without pods, without launches to complete and with static pools that are settled:
        nothing is read from EC2 then."""
        now, demand, state = self._deps.clock.now(), read.demand, read.state
        intents, catalog = read.intents, read.catalog
        vain = vain_launches(intents, state.joined, state.nodes, now)
        stopped = stopped_pods(demand.pods, demand.nodes, catalog, vain)
        pods = tuple(one for one in demand.pods if one.name not in stopped)
        complete = all(one.is_answered and not one.to_admit for one in intents)
        if not pods and complete and static.settled:
            return None, stopped
        order = LaunchOrder(
            cluster=read.cluster,
            manifests=read.manifests,
            catalog=catalog,
            pods=pods,
            nodes=(*demand.nodes, *static.unseen),
            joined=state.joined,
            closed=static.closed or self._closed(read),
            daemons=state.daemons,
            unavailable=demand.unavailable,
            price_limits=demand.price_limits,
            most=remaining_launches(intents, policy.most_launches, now),
            ceiling=price_ceiling(
                policy.usd_per_hour,
                demand,
                read.requests,
                state,
                intents,
                Prices(catalog),
            ),
            until=until - FOR_THE_END,
            retiring=static.retiring,
            moving=frozenset(
                pod.name
                for one in read.requests
                if one.keeps_offering
                for pod in demand.moving[one.instance]
            ),
            # Not read again: this run has uncordoned the nodes of the pools that it found awake.
            sleeping=read.sleeping,
            launch_block=partial(self._deps.launch_block, read.cluster),
        )
        return order, stopped

    def _static_pools(self, read: ClusterRead, pools: Sequence[Pool]) -> StaticCapacity:
        """Look at the static pools. Only one that lacks nodes costs a read of the index: an
        instance that runs and has lost its Node is not launched again while it may be the API
        server that has lost it (see `reconcile`)."""
        pools = [one for one in pools if one.replicas is not None and one.name not in read.sleeping]
        if not pools:
            return StaticCapacity()
        state, now, closed = read.state, self._deps.clock.now(), self._closed(read)
        coming = nodes_on_the_way(read.intents, state.joined, pools, read.catalog, now)
        nodes = [*read.demand.nodes, *coming]
        pool_of = {one.name: one.pool for one in nodes}
        marked = {one.name for one in read.demand.nodes if is_marked(one)}
        closed |= {instance for instance, name in state.joined.items() if name in marked}
        retiring: dict[str, list[str]] = {one.name: [] for one in pools}
        for request in sorted(read.requests, key=lambda one: (not one.in_place, one.instance)):
            pool = pool_of.get(state.joined.get(request.instance, request.instance), "")
            if pool in retiring:
                retiring[pool].append(request.instance)
        leaving = {state.joined.get(one, one) for one in closed}
        unseen: list[ExistingNode] = []
        if shortages(pools, nodes, leaving):
            known = {one.name for one in coming}
            without = self._deps.returns.without_nodes(read.cluster, state.joined)
            unseen = [one for one in without if one.pool in retiring and one.name not in known]
        if unseen:
            closed |= self._without_node(read.cluster)
            leaving |= closed
        short = shortages(pools, [*nodes, *unseen], leaving)
        return StaticCapacity(
            closed,
            # An instance on its way may have ended: only EC2 says so. The answer to a request that
            # is in_place names the node in its place, which may have joined and is not Ready.
            settled=not short
            and not any(one.pool in retiring for one in coming)
            and not any(one.in_place for one in read.requests),
            retiring=retiring,
            unseen=tuple(unseen),
            pools=tuple(pools),
            counts={one.name: count_of(one, [*nodes, *unseen], leaving) for one in pools},
        )

    def _closed(self, read: ClusterRead) -> frozenset[str]:
        """The instances that take no pods."""
        return frozenset(read.demand.moving) | _unusable(read.state) | self._deleted(read)

    def _coming(self, read: ClusterRead, pools: Sequence[Pool]) -> Sequence[ExistingNode]:
        """The instances that will join. One whose Node has gone does not: the index is read only
        if there is an instance without a Node. While the table does not answer, all count."""
        state = read.state
        coming = nodes_on_the_way(read.intents, state.joined, pools, read.catalog, state.read_at)
        if not coming:
            return ()
        try:
            ended = self._deps.returns.ended(read)
        except API_ERRORS:
            return coming
        return [one for one in coming if one.name not in ended]

    def _deleted(self, read: ClusterRead) -> frozenset[str]:
        """The instances whose Nodes were deleted: they do not join again, so pods wait in vain for
        them. While the table does not answer, none."""
        launched = {one.instance for intent in read.intents for one in intent.instances}
        if launched <= read.state.joined.keys():
            return frozenset()
        return self._without_node(read.cluster)

    def _without_node(self, cluster: str) -> frozenset[str]:
        try:
            return self._deps.returns.without_node(cluster)
        except API_ERRORS:
            return frozenset()

    def _late(self, read: ClusterRead) -> tuple[LatePool, ...]:
        """The pools with instances that are late to join; those that retire are not awaited."""
        known = {*read.state.joined, *(one.instance for one in read.requests)}
        return self._deps.launch_nodes.late_pools(read.intents, known)

    def _tell(
        self,
        read: ClusterRead,
        outcome: LaunchOutcome,
        late: Sequence[LatePool],
        until: datetime,
    ) -> EventsWritten:
        """Answer the requests and write Events; `failures` is what could not be written. A request
        whose pods have all moved keeps its answer, which says where they went."""
        now = self._deps.clock.now()
        joined = {node.name for node in read.state.nodes}
        starts = read.starting.keys() | uninitialized(read.state.nodes)
        starting = {name: one for one, name in read.state.joined.items() if name in starts}
        pool_of = {node.name: node.pool for node in read.demand.nodes}
        answers = (
            (
                one,
                answer_of(
                    read.demand.moving[one.instance],
                    outcome,
                    joined,
                    starting,
                    nodes_in_service(read.state, one.answer.launched if one.answer else ()),
                    now,
                    in_place_of=one.instance if one.in_place else "",
                    pool=pool_of.get(one.node, ""),
                ),
            )
            for one in read.requests
            if read.demand.moving[one.instance] or one.in_place or one.answer is None
        )
        failures = answer_requests(self._deps.table, answers, self._deps.clock)
        events, table = self._deps.events_in, self._deps.table
        pods = (*outcome.without_node, *pods_of_late_nodes(late, outcome))
        told = write_events(read, pods, events, table, self._deps.clock, until)
        return replace(told, failures=(*failures, *told.failures))

    def _failed(self, cluster: str, why: str, failure: Reason) -> ProvisioningReport:
        report = ProvisioningReport(cluster, why, failure, failures=(failure,), retry=True)
        return self._with_status(report, dry_run=False)

    def _with_status(self, report: ProvisioningReport, dry_run: bool) -> ProvisioningReport:
        """Write the status of a run. A status that cannot be written is one more failure; an
        unreadable one is written anew."""
        table = self._deps.table
        try:
            before = table.get(STATUS, cluster=report.cluster, unreadable=lambda _: None)
            table.put(STATUS, status_of(report, before, dry_run, self._deps.clock.now()))
        except Exception as error:  # noqa: BLE001 (the run is done: only the status is missing)
            text = clause(error) or type(error).__name__
            problem = NOT_WRITTEN(what="the status", cluster=report.cluster, error=text)
            return replace(report, failures=(*report.failures, problem))
        return report


def _result(read: ClusterRead, has_pools: bool, policy: ClusterPolicy, bought: Bought) -> Reason:
    """Return what became of a run that read its cluster."""
    if not has_pools:
        return CLUSTER_WITHOUT_POOLS(cluster=read.cluster)
    if bought.blocked is not None:
        return bought.blocked
    pods = len(read.demand.pods)
    if policy.dry_run:
        return PROVISIONING_REHEARSED(cluster=read.cluster, pods=pods)
    return PROVISIONED(
        cluster=read.cluster,
        pods=pods,
        launched=len(bought.outcome.launched),
        without=len(bought.outcome.without_node),
    )


def usage_of(read: ClusterRead, coming: Iterable[ExistingNode]) -> Mapping[str, PoolUsage]:
    """Return the nodes of pools as the run found them, with the instances that will join."""
    found: dict[str, PoolUsage] = {}
    for joined, nodes in ((True, read.demand.nodes), (False, coming)):
        for one in nodes:
            before = found.get(one.pool, PoolUsage())
            used = before.resources + one.capacity
            found[one.pool] = PoolUsage(before.nodes + 1, used, before.joined or joined)
    return found


def _unusable(state: ClusterState) -> frozenset[str]:
    """The instances whose Nodes take no pods."""
    names = {node.name for node in state.unusable}
    return frozenset(instance for instance, name in state.joined.items() if name in names)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
