"""The use case: gives capacity back at the end of a run of provision_nodes.

It runs in the cluster's queue group, so no launch runs beside it, and it decides on what the run
has just read: no decision is older than a launch.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from leeway.admission.record import Admission
from leeway.capacity_requests.ports import CapacityRequests, ProvisionNodes
from leeway.capacity_requests.request import CapacityRequest, PriceLimit
from leeway.clock import Clock
from leeway.disruption import reasons
from leeway.disruption.current_launches import CurrentLaunches
from leeway.disruption.decide import decide_returns
from leeway.disruption.drift import CurrentLaunch
from leeway.disruption.rules import DELETED_POOLS_STAY_FOR, Cause, ReturnRules
from leeway.disruption.snapshot import (
    NodeReturn,
    OwnNode,
    Snapshot,
    is_marked,
    own_instances,
    snapshot_of,
)
from leeway.disruption.watched_nodes import WatchedNodes, WatchedNodesRecords, confirm, watch
from leeway.execution.attempt import Phase
from leeway.execution.retrying import API_ERRORS
from leeway.instances.facts import InstanceFacts
from leeway.launch.resolve_pools import NodeSources
from leeway.manifests.node_pool import NodePool
from leeway.notices import InstanceId, Notice, NoticeKind
from leeway.policy.rules import Action, ClusterPolicy, OnBlocked, Replacement, Ruling
from leeway.ports.functions import RetireNode
from leeway.ports.table import RecordChanged, UnavailableOfferings
from leeway.provisioning.cluster_read import ClusterRead
from leeway.provisioning.ports import CapacityReturned
from leeway.reasons import Reason, ReasonCode, clause
from leeway.reconciliation.find_lost_events import OpenRecords
from leeway.retirement.attempts import apply_notice
from leeway.retirement.disruption_budget import DisruptionLedgers
from leeway.retirement.pool_successors import OPEN_AT_MOST
from leeway.retirement.record import Records, Retirement, ReturnTerms


class ClusterInstances(Protocol):
    """The index of instances, which reconcile keeps."""

    def of_cluster(self, cluster: str) -> Mapping[str, InstanceFacts]:
        """Read the facts of a cluster's instances, by id. The result may be a minute old."""
        ...


class DeletedPools(Protocol):
    """The pools that users deleted."""

    def deleted_pools(self, cluster: str) -> Mapping[str, datetime]:
        """Return when pools were deleted that do not exist any more, by name: by a fresh read."""
        ...


class ReturnRecords(Records, Protocol):
    """The records of instances."""

    def admission(self, instance: str) -> Admission | None:
        """Read the record of an instance's admission consistently; None if there is none."""
        ...

    def open_records(self, cluster: str) -> OpenRecords:
        """Read the records of a cluster that are open. The result may be a second old."""
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The ports."""

    instances: ClusterInstances
    records: ReturnRecords
    ledgers: DisruptionLedgers
    offerings: UnavailableOfferings
    requests: CapacityRequests
    watched: WatchedNodesRecords
    pools: DeletedPools
    retire_node: RetireNode
    provision_nodes: ProvisionNodes
    sources: NodeSources
    clock: Clock


TRIED_AGAIN_AFTER = timedelta(minutes=10)
"""How long after a retirement that was declined its node is not given back again: what kept it is
likely to keep it still."""

START_AGAIN_AFTER = timedelta(minutes=1)
"""How long after its record is written a retirement that shows no progress is started again."""


@dataclass(frozen=True, slots=True)
class PlannedReturn:
    """A node that is given back, with the decision and the rules of its pool. `price` is that of
    all nodes of the decision in USD per hour."""

    node: OwnNode
    decision: NodeReturn
    rules: ReturnRules
    price: float

    @property
    def terms(self) -> ReturnTerms:
        """What has to be true at the cordon."""
        cause = self.decision.cause
        outdated = cause in {Cause.EXPIRED, Cause.DRIFTED, Cause.POOL_DELETED}
        forced = outdated and self.rules.drain_within is not None
        return ReturnTerms(
            cause=cause,
            pods=None if outdated else len(self.node.pods),
            forced=forced,
            saving=self.decision.saving / len(self.decision.nodes),
            optional=cause not in {Cause.EXPIRED, Cause.POOL_DELETED},
            price_limit=self._price_limit if cause is Cause.UNDERUTILIZED else None,
        )

    @property
    def _price_limit(self) -> PriceLimit:
        return PriceLimit(decision=min(self.decision.nodes), below=self.price)


class BeginReturn:
    """Begins retirements."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps

    def why_not(self, instance: str, cluster: str, now: datetime) -> Reason | None:
        """Return why an instance is not given back by its records; None if it may be. A tag makes
        no instance Leeway's: only the record of its launch does."""
        admission = self._deps.records.admission(instance)
        if admission is None or admission.launch is None or admission.facts.cluster != cluster:
            return reasons.LAUNCH_NOT_RECORDED(instance=instance)
        stored = self._deps.records.retirement(instance)
        ended = stored.ended_at if stored is not None and stored.had_no_effect else None
        if ended is not None and stored is not None and now - ended < TRIED_AGAIN_AFTER:
            return reasons.RETURN_DECLINED_BEFORE(instance=instance)
        return None

    def begin(self, planned: PlannedReturn, facts: InstanceFacts, now: datetime) -> bool:
        """Write the record of a retirement and its capacity request, and start it; False if the
        instance retires already.

        The requests of nodes that one new node replaces are all written before the next run of
        provision_nodes, which plans for their pods together.

        Raises:
            RecordChanged: another writer changed the record: something else happens to the node.
            CloudUnavailable, CloudRefused: the table or Lambda failed; `start_again` goes on.
        """
        record = self._record(planned, facts, now)
        if record is None:
            return False
        self._deps.records.write(record)
        if planned.node.pods:
            self._request(record, planned.node.name, now)
        self._deps.retire_node.start(record.instance, record.facts.cluster, record.attempt)
        return True

    def start_again(self, record: Retirement, now: datetime) -> None:
        """Start a retirement whose start may be lost. A repeated start does nothing."""
        waits = record.phase is Phase.NOTICED and now - record.noticed_at > START_AGAIN_AFTER
        if record.returns is not None and waits:
            self._deps.retire_node.start(record.instance, record.facts.cluster, record.attempt)

    def _record(
        self, planned: PlannedReturn, facts: InstanceFacts, now: datetime
    ) -> Retirement | None:
        within = planned.rules.drain_within
        ruling = Ruling(
            action=Action.RETIRE,
            deadline=None if within is None else now + within,
            replacement=Replacement.BEFORE if planned.node.pods else Replacement.NONE,
            on_blocked=OnBlocked.WAIT if within is None else OnBlocked.DELETE,
            reason=planned.decision.reason,
        )
        notice = Notice(
            id=f"return-{facts.instance}-{now.isoformat()}",
            kind=NoticeKind.CAPACITY_RETURN,
            account="",
            region="",
            time=now,
            instances=(InstanceId(facts.instance),),
        )
        stored = self._deps.records.retirement(facts.instance)
        change = apply_notice(stored, notice, ruling, facts)
        if not (change.write and change.start):
            return None
        return change.record.model_copy(update={"terms": planned.terms})

    def _request(self, record: Retirement, node: str, now: datetime) -> None:
        requests, facts = self._deps.requests, record.facts
        stored = requests.of_instance(facts.cluster, facts.instance)
        requests.write(
            CapacityRequest(
                cluster=facts.cluster,
                instance=facts.instance,
                node=node,
                instance_type=facts.instance_type,
                zone=facts.zone,
                capacity_type=facts.capacity_type,
                attempt=record.attempt,
                requested_at=now,
                ends_at=now + OPEN_AT_MOST,
                version=stored.version + 1 if stored else 1,
                keeps_offering=True,
                price_limit=record.terms.price_limit if record.terms else None,
            )
        )


WAKES_AHEAD = timedelta(seconds=75)
"""How far ahead a run requests a further one. The run of the next minute finds what is due later,
and a message that waits for two minutes raises an alarm."""


class ReturnCapacity:
    """The CapacityReturns Protocol of provisioning. What a warm function remembers only saves calls
    and log lines."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._begin = BeginReturn(deps)
        self._launches = CurrentLaunches(deps.sources)
        self._foreign: set[str] = set()
        self._orphaned: dict[str, frozenset[Reason]] = {}
        self._rehearsed: dict[str, frozenset[NodeReturn]] = {}

    def after_run(
        self, read: ClusterRead, policy: ClusterPolicy, may_begin: bool
    ) -> CapacityReturned:
        """Give back what is not needed. Only watch the nodes if nothing `may_begin`, for example
        because the run has launched nodes. Raises nothing: a failure is in the result."""
        try:
            return self._run(read, policy, may_begin)
        except Exception as error:  # noqa: BLE001 (the launches of the run are done)
            return CapacityReturned(failures=(_failed(read.cluster, error),))

    def _run(self, read: ClusterRead, policy: ClusterPolicy, may_begin: bool) -> CapacityReturned:
        cluster, state = read.cluster, read.state
        before = self._deps.watched.watched(cluster)
        watched, quiet = watch(before, state.details, state.read_at)
        own: Mapping[str, InstanceFacts] = {}
        if may_begin and not policy.paused:
            own = own_instances(self._deps.instances.of_cluster(cluster), self._foreign)
        if not own.keys() & state.joined.keys():
            self._store(cluster, before, watched)
            return CapacityReturned()
        now = self._deps.clock.now()
        deleted, orphaned = self._deleted_pools(read, own)
        launches = self._launches.read(cluster, read.manifests, read.catalog, own, now)
        snapshot = self._snapshot(read, policy, own, quiet, launches.of_pool, deleted)
        decision = decide_returns(snapshot)
        watched, confirmed, confirm_at = confirm(before, watched, decision, now)
        self._store(cluster, before, watched)
        if policy.dry_run:
            returned = self._rehearse(cluster, confirmed)
        else:
            returned = self._begin_all(cluster, snapshot, confirmed, own, now)
            failures = self._wake(cluster, (decision.due_at, confirm_at), now)
            returned = replace(returned, failures=failures)
        before_this = self._orphaned.get(cluster, frozenset())
        self._orphaned[cluster] = orphaned
        new = sorted(orphaned - before_this, key=str)
        return replace(
            returned,
            problems=(*new, *launches.problems, *returned.problems),
            lasting=tuple(sorted(orphaned & before_this, key=str)),
        )

    def _store(self, cluster: str, before: WatchedNodes | None, watched: WatchedNodes) -> None:
        if not watched.is_stored_by(before):
            self._deps.watched.write_watched(cluster, watched)

    def _wake(
        self, cluster: str, due: Iterable[datetime | None], now: datetime
    ) -> tuple[Reason, ...]:
        """Request a run for the first of these times, if that is before the next minute's run; it
        requests the next one. Return what failed."""
        at = min((one for one in due if one is not None), default=None)
        if at is None or at - now > WAKES_AHEAD:
            return ()
        try:
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
        self, read: ClusterRead, own: Mapping[str, InstanceFacts]
    ) -> tuple[Mapping[str, datetime], frozenset[Reason]]:
        """Return when pools with nodes were deleted, and what is to be said about pools with nodes
        and without a manifest."""
        exist = {one.metadata.name for one in read.manifests if isinstance(one, NodePool)}
        nodes = Counter(own[one].owner.name for one in own.keys() & read.state.joined.keys())
        orphans = sorted(nodes.keys() - exist)
        deleted = self._deps.pools.deleted_pools(read.cluster) if orphans else {}
        given = {name: deleted[name] for name in orphans if name in deleted}
        said = frozenset(
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
        return given, said

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
