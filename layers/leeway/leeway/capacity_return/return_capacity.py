"""The use case: gives capacity back at the end of a run of provision_nodes.

It runs in the cluster's queue group, so no launch runs beside it, and it decides on what the run
has just read: no decision is older than a launch.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from leeway.capacity_return import reasons
from leeway.capacity_return.begin_return import BeginReturn, PlannedReturn
from leeway.capacity_return.cluster_snapshot import is_marked, own_instances, snapshot_of
from leeway.capacity_return.current_launches import CurrentLaunches
from leeway.capacity_return.decide import decide_returns
from leeway.capacity_return.decision import NodeReturn
from leeway.capacity_return.held_returns import HeldReturns
from leeway.capacity_return.launch_drift import CurrentLaunch
from leeway.capacity_return.ports import Dependencies
from leeway.capacity_return.quiet_nodes import QuietNodes
from leeway.capacity_return.rules import Cause
from leeway.capacity_return.snapshot import Snapshot
from leeway.execution.retrying import API_ERRORS
from leeway.instances.facts import InstanceFacts
from leeway.manifests.node_pool import NodePool
from leeway.policy.rules import ClusterPolicy
from leeway.ports.table import RecordChanged
from leeway.provisioning.demand import ClusterRead
from leeway.provisioning.report import CapacityReturned
from leeway.reasons import Reason, ReasonCode, clause
from leeway.retirement.record import Retirement

WAKES_AHEAD = timedelta(seconds=75)
"""How far ahead a run requests a further one. The run of the next minute finds what is due later,
and a message that waits for two minutes raises an alarm."""
DELETED_POOLS_STAY_FOR = timedelta(minutes=15)
"""How long the nodes of a deleted pool stay, so that somebody who deleted it by mistake can apply
it again. Karpenter drains them at once."""


def due_deletions(deleted: Mapping[str, datetime], now: datetime) -> Mapping[str, datetime]:
    """Return which of these pools were deleted long enough ago that their nodes are given back."""
    return {name: at for name, at in deleted.items() if now - at >= DELETED_POOLS_STAY_FOR}


class ReturnCapacity:
    """The CapacityReturns Protocol of provisioning. What it forgets only delays."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._begin = BeginReturn(deps)
        self._quiet = QuietNodes(deps.quiet)
        self._held = HeldReturns()
        self._launches = CurrentLaunches(deps.sources)
        self._foreign: set[str] = set()
        self._rehearsed: dict[str, frozenset[NodeReturn]] = {}

    def after_run(
        self, read: ClusterRead, policy: ClusterPolicy, may_begin: bool
    ) -> CapacityReturned:
        """Give back what is not needed. Only watch the nodes if nothing `may_begin`, for example
        because the run has launched nodes. Raises nothing: a failure is in the result."""
        try:
            quiet = self._quiet.since(read.cluster, read.state.details, read.state.read_at)
            if policy.paused or not may_begin:
                return CapacityReturned()
            own = own_instances(self._deps.instances.of_cluster(read.cluster), self._foreign)
            if not own.keys() & read.state.joined.keys():
                return CapacityReturned()
            now = self._deps.clock.now()
            deleted, orphaned = self._deleted_pools(read, own, now)
            launches = self._launches.read(read.cluster, read.manifests, read.catalog, own, now)
            snapshot = self._snapshot(read, policy, own, quiet, launches.of_pool, deleted)
            decision = decide_returns(snapshot)
            confirmed, confirm_at = self._held.confirmed(read.cluster, decision, now)
            if policy.dry_run:
                returned = self._rehearse(read.cluster, confirmed)
            else:
                returned = self._begin_all(read.cluster, snapshot, confirmed, own, now)
                failures = self._wake(read.cluster, (decision.due_at, confirm_at), now)
                returned = replace(returned, failures=failures)
            problems = (*orphaned, *launches.problems, *returned.problems)
            return replace(returned, problems=problems)
        except Exception as error:  # noqa: BLE001 (the launches of the run are done)
            return CapacityReturned(failures=(_failed(read.cluster, error),))

    def _wake(
        self, cluster: str, due: Iterable[datetime | None], now: datetime
    ) -> tuple[Reason, ...]:
        """Request a run for the first of these times, if that is before the next minute's run; it
        requests the next one. Lambda may make it in another environment, since the message is
        received while this run goes on: that one has to know the times. Return what failed."""
        at = min((one for one in due if one is not None), default=None)
        if at is None or at - now > WAKES_AHEAD:
            return ()
        try:
            self._quiet.keep(cluster)
            self._deps.provision_nodes.wake(cluster, "nodes may be given back", max(at, now))
        except API_ERRORS as error:
            return (_failed(cluster, error),)
        return ()

    def has_nodes(self, cluster: str) -> bool:
        """Whether a cluster may have nodes that Leeway launched.

        Raises:
            CloudUnavailable, CloudRefused: the table failed.
        """
        return bool(own_instances(self._deps.instances.of_cluster(cluster), self._foreign))

    def without_node(self, cluster: str) -> frozenset[str]:
        """The instances whose Nodes were deleted, by the open records of their returns.

        Raises:
            CloudUnavailable, CloudRefused: the table failed.
        """
        found = self._deps.records.open_records(cluster).records
        retiring = [one for one in found if isinstance(one, Retirement)]
        return frozenset(
            one.instance for one in retiring if one.returns and one.returns.without_node
        )

    def _deleted_pools(
        self, read: ClusterRead, own: Mapping[str, InstanceFacts], now: datetime
    ) -> tuple[Mapping[str, datetime], tuple[Reason, ...]]:
        """Return when pools were deleted whose nodes are given back now, and what is to be said
        about pools with nodes and without a manifest."""
        exist = {one.metadata.name for one in read.manifests if isinstance(one, NodePool)}
        nodes = Counter(own[one].owner.name for one in own.keys() & read.state.joined.keys())
        orphans = sorted(nodes.keys() - exist)
        deleted = self._deps.pools.deleted_pools(read.cluster) if orphans else {}
        given = {name: deleted[name] for name in orphans if name in deleted}
        said = tuple(
            reasons.POOL_HAS_NODES(
                pool=name,
                at=deleted[name],
                count=nodes[name],
                due=deleted[name] + DELETED_POOLS_STAY_FOR,
            )
            if name in deleted
            else reasons.POOL_UNKNOWN(pool=name, count=nodes[name])
            for name in orphans
        )
        return due_deletions(given, now), said

    def _snapshot(
        self,
        read: ClusterRead,
        policy: ClusterPolicy,
        own: Mapping[str, InstanceFacts],
        quiet: Mapping[str, datetime],
        launches: Mapping[str, CurrentLaunch],
        deleted: Mapping[str, datetime],
    ) -> Snapshot:
        now, cluster = self._deps.clock.now(), read.cluster
        found = self._deps.records.open_records(cluster).records
        open_ones = [one for one in found if isinstance(one, Retirement)]
        for one in open_ones:
            self._begin.start_again(one, now)
        retiring = {one.instance for one in open_ones}
        ready = sum(one.ready for one in read.state.details.values())
        return snapshot_of(
            read,
            own,
            quiet,
            retiring=retiring,
            gone=set(self._gone(read, own, retiring)),
            unavailable=self._deps.offerings.now(read.catalog.region, now),
            most=self._deps.ledgers.ledger(cluster).left(ready, policy.churn, now),
            worth=policy.worth,
            launches=launches,
            deleted=deleted,
        )

    def _gone(
        self, read: ClusterRead, own: Mapping[str, InstanceFacts], retiring: set[str]
    ) -> Iterator[str]:
        """The instances that were given back empty and that EC2 ends: their Nodes may stay for a
        minute, and must not keep the next node from going."""
        marked = {one.name for one in read.state.nodes if is_marked(one)}
        for instance, name in read.state.joined.items():
            if name in marked and instance in own.keys() - retiring:
                record = self._deps.records.retirement(instance)
                terms = record.returns if record is not None else None
                if record and terms and terms.cause == Cause.EMPTY and record.is_terminated:
                    yield instance

    def _rehearse(self, cluster: str, confirmed: Iterable[NodeReturn]) -> CapacityReturned:
        """Report each decision once, as long as it stays the same."""
        now = frozenset(confirmed)
        new = now - self._rehearsed.get(cluster, frozenset())
        self._rehearsed[cluster] = now
        return CapacityReturned(
            rehearsed=tuple(_told(reasons.CAPACITY_RETURN_REHEARSED, cluster, one) for one in new)
        )

    def _begin_all(
        self,
        cluster: str,
        snapshot: Snapshot,
        confirmed: Iterable[NodeReturn],
        own: Mapping[str, InstanceFacts],
        now: datetime,
    ) -> CapacityReturned:
        nodes = {one.name: one for one in snapshot.own}
        begun: list[Reason] = []
        problems: list[Reason] = []
        for decision in confirmed:
            price = sum(nodes[name].price or 0.0 for name in decision.nodes)
            planned = [
                PlannedReturn(nodes[name], decision, snapshot.rules[nodes[name].pool], price)
                for name in decision.nodes
            ]
            # Several nodes go together or not at all: one new node replaces them.
            if kept := self._why_not(cluster, planned, now):
                problems += [one for one in kept if one.code == reasons.LAUNCH_NOT_RECORDED.name]
                continue
            started = [self._begun(one, own[one.node.instance], now) for one in planned]
            if any(started):
                begun.append(_told(reasons.CAPACITY_RETURNED, cluster, decision))
        return CapacityReturned(begun=tuple(begun), problems=tuple(problems))

    def _why_not(
        self, cluster: str, planned: Iterable[PlannedReturn], now: datetime
    ) -> list[Reason]:
        found = []
        for one in planned:
            instance = one.node.instance
            reason = self._begin.why_not(instance, cluster, now)
            if reason is None:
                continue
            found.append(reason)
            if reason.code == reasons.LAUNCH_NOT_RECORDED.name:
                self._foreign.add(instance)
        return found

    def _begun(self, planned: PlannedReturn, facts: InstanceFacts, now: datetime) -> bool:
        try:
            return self._begin.begin(planned, facts, now)
        except RecordChanged:  # something else happens to the node
            return False


def _failed(cluster: str, error: Exception) -> Reason:
    described = clause(str(error) or type(error).__name__)
    return reasons.CAPACITY_RETURN_FAILED(cluster=cluster, error=described)


def _told(code: ReasonCode, cluster: str, decision: NodeReturn) -> Reason:
    return code(
        cluster=cluster,
        nodes=", ".join(decision.nodes),
        cause=decision.cause,
        why=decision.reason.message,
    )
