"""The use case: gives capacity back at the end of a run of provision_nodes.

It runs in the cluster's queue group, so no launch runs beside it, and it decides on what the run
has just read, and launched: no decision is older than a launch.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.admission.record import ADMISSION
from leeway.capacity_requests import CAPACITY_REQUEST, CapacityRequest, PriceLimit, ProvisionNodes
from leeway.catalog.unavailable import UnavailableOfferings
from leeway.clock import Clock
from leeway.disruption import reasons
from leeway.disruption.current_launches import CurrentLaunches
from leeway.disruption.decide import decide_without_declined, stays_until
from leeway.disruption.drift import CurrentLaunch
from leeway.disruption.protection import may_move
from leeway.disruption.rules import DELETED_POOLS_STAY_FOR, OUTDATED, Cause, ReturnRules
from leeway.disruption.snapshot import (
    NodeReturn,
    OwnNode,
    ReturnDecision,
    Snapshot,
    ended,
    is_marked,
    own_instances,
    snapshot_of,
)
from leeway.disruption.watched_nodes import (
    WatchedNodes,
    confirm,
    decode,
    encode,
    is_overdue,
    undecided,
    watch,
)
from leeway.execution.attempt import Phase
from leeway.execution.retrying import API_ERRORS, Conflicts
from leeway.instances.facts import InstanceFacts, facts_in
from leeway.launch.intent import all_intents
from leeway.launch.resolve_pools import NodeSources
from leeway.manifests.configuration import StoredManifests, deleted_pools
from leeway.manifests.node_pool import NodePool
from leeway.policy.rules import Action, ClusterPolicy, OnBlocked, Replacement, Ruling
from leeway.pool_pauses import POOL
from leeway.ports.functions import RetireNode
from leeway.provisioning.demand import ClusterRead
from leeway.provisioning.report import CapacityReturned
from leeway.reasons import Reason, ReasonCode, clause
from leeway.retirement.attempts import apply_return, undo_return
from leeway.retirement.disruption_budget import read_ledger
from leeway.retirement.pool_successors import OPEN_AT_MOST
from leeway.retirement.record import RETIREMENT, Retirement, ReturnTerms
from leeway.selection.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from leeway.selection.pods import ExistingNode
from leeway.selection.resources import Resources
from leeway.table import OPEN, Record, RecordChanged, Table


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The ports."""

    offerings: UnavailableOfferings
    table: Table
    retire_node: RetireNode
    provision_nodes: ProvisionNodes
    sources: NodeSources
    clock: Clock


WATCHED = Record(WatchedNodes, "PROVISIONING#{cluster}", "WATCHED", packed=(encode, decode))
"""The last writer wins: one queue group has all runs for a cluster. An unreadable record counts as
missing."""

START_AGAIN_AFTER = timedelta(minutes=1)
"""How long after its record is written a retirement that shows no progress is started again."""


WAKES_AHEAD = timedelta(seconds=75)
"""How far ahead a run requests a further one. The run of the next minute finds what is due later,
and a message that waits for two minutes raises an alarm."""


class ReturnCapacity:
    """Gives capacity back. What a warm function remembers only saves calls and log lines."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._launches = CurrentLaunches(deps.sources)
        self._foreign: dict[str, str] = {}
        self._declined: dict[str, datetime] = {}
        self._orphaned: dict[str, frozenset[Reason]] = {}
        self._rehearsed: dict[str, frozenset[NodeReturn]] = {}

    def after_run(
        self, read: ClusterRead, policy: ClusterPolicy, launched: bool, in_time: bool = True
    ) -> CapacityReturned:
        """Give back what is not needed. Only watch the nodes if the run has no time left, or has
        `launched` nodes, or may have, unless all runs of some minutes have. Raises nothing: a
        failure is in the result."""
        try:
            return self._run(read, policy, launched, in_time)
        except Exception as error:  # noqa: BLE001 (the launches of the run are done)
            return CapacityReturned(failures=(_failed(read.cluster, error),))

    def _run(
        self, read: ClusterRead, policy: ClusterPolicy, launched: bool, in_time: bool
    ) -> CapacityReturned:
        cluster, state = read.cluster, read.state
        before = self._deps.table.get(WATCHED, cluster=cluster, unreadable=lambda _: None)
        watched, quiet = watch(before, state.details, state.read_at)
        now = self._deps.clock.now()
        if policy.paused:
            self._store(cluster, before, watched)
            return CapacityReturned()
        if not in_time or (launched and not is_overdue(before, now)):
            self._store(cluster, before, undecided(before, watched))
            return CapacityReturned()
        index = facts_in(self._deps.table, cluster)
        own = self._own(index)
        if not own.keys() & state.joined.keys():
            self._store(cluster, before, watched)
            return CapacityReturned()
        if launched:
            read = replace(read, intents=all_intents(self._deps.table, cluster, now))
        deleted, orphaned = self._deleted_pools(read, own)
        launches = self._launches.read(cluster, read.manifests, read.catalog, own, now)
        snapshot = self._snapshot(read, policy, index, own, quiet, launches.of_pool, deleted)
        snapshot, decision = self._decide(snapshot, own, now)
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
            lasting=(*sorted(orphaned & before_this, key=str), *_unhealthy(snapshot)),
        )

    def _decide(
        self, snapshot: Snapshot, own: Mapping[str, InstanceFacts], now: datetime
    ) -> tuple[Snapshot, ReturnDecision]:
        self._declined = {instance: at for instance, at in self._declined.items() if at > now}
        known = {
            one.name: self._declined[one.instance]
            for one in snapshot.own
            if one.instance in self._declined
        }
        snapshot, decision = decide_without_declined(
            replace(snapshot, declined=known),
            lambda instance: stays_until(self._retirement(own[instance]), now),
        )
        instances = {one.name: one.instance for one in snapshot.own}
        self._declined |= {instances[name]: until for name, until in snapshot.declined.items()}
        return snapshot, decision

    def _store(self, cluster: str, before: WatchedNodes | None, watched: WatchedNodes) -> None:
        if not watched.is_stored_by(before):
            self._deps.table.put(WATCHED, watched, cluster=cluster)

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
        return bool(self._own(facts_in(self._deps.table, cluster)))

    def without_node(self, cluster: str) -> frozenset[str]:
        """The instances whose Nodes were deleted, by the open records of their returns.

        Raises:
            CloudUnavailable, CloudRefused: the table failed.
        """
        retiring = self._open(cluster)
        return frozenset(
            one.instance for one in retiring if one.returns and one.returns.without_node
        )

    def without_nodes(self, cluster: str, joined: Collection[str]) -> tuple[ExistingNode, ...]:
        """The instances that Leeway may have launched, that have joined before and have no Node
        now, by their ids.

        Raises:
            CloudUnavailable, CloudRefused: the table failed.
        """
        own = self._own(facts_in(self._deps.table, cluster))
        return tuple(
            ExistingNode(
                name=instance,
                labels={
                    INSTANCE_TYPE: facts.instance_type,
                    ZONE: facts.zone,
                    CAPACITY_TYPE: facts.capacity_type,
                },
                allocatable=Resources(),
                pool=facts.owner.name,
            )
            for instance, facts in sorted(own.items())
            if instance not in joined
        )

    def ended(self, read: ClusterRead) -> frozenset[str]:
        """The launched instances that have no Node any more, and do not join again.

        Raises:
            CloudUnavailable, CloudRefused: the table failed.
        """
        index = facts_in(self._deps.table, read.cluster)
        return frozenset(ended(read.intents, index, read.state.read_at)) - read.state.joined.keys()

    def _own(self, index: Mapping[str, InstanceFacts]) -> Mapping[str, InstanceFacts]:
        """The instances that Leeway may have launched for the pools that their tags name: without
        those of which a run has found that no launch is recorded for that pool."""
        foreign = {
            one
            for one, pool in self._foreign.items()
            if one in index and index[one].owner.name == pool
        }
        return own_instances(index, foreign)

    def _open(self, cluster: str) -> tuple[Retirement, ...]:
        """Read the open retirements; reconcile reports those that are unreadable."""
        return self._deps.table.find(OPEN, cluster, RETIREMENT, unreadable=lambda _: None)

    def _deleted_pools(
        self, read: ClusterRead, own: Mapping[str, InstanceFacts]
    ) -> tuple[Mapping[str, datetime], frozenset[Reason]]:
        """Return when pools with nodes were deleted, and what is to be said about pools with nodes
        and without a manifest."""
        exist = {one.metadata.name for one in read.manifests if isinstance(one, NodePool)}
        nodes = Counter(own[one].owner.name for one in own.keys() & read.state.joined.keys())
        orphans = sorted(nodes.keys() - exist)
        deleted = deleted_pools(StoredManifests(self._deps.table), read.cluster) if orphans else {}
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
        index: Mapping[str, InstanceFacts],
        own: Mapping[str, InstanceFacts],
        quiet: Mapping[str, datetime],
        launches: Mapping[str, CurrentLaunch],
        deleted: Mapping[str, datetime],
    ) -> Snapshot:
        now, cluster = self._deps.clock.now(), read.cluster
        open_ones = self._open(cluster)
        for one in open_ones:
            self._start_again(one, now)
        retiring = {one.instance for one in open_ones}
        ready = sum(one.ready for one in read.state.details.values())
        return snapshot_of(
            read,
            own,
            quiet,
            retiring=retiring,
            gone=set(self._gone(read, own, retiring)),
            unavailable=self._deps.offerings.now(read.catalog.region, now),
            most=read_ledger(self._deps.table, cluster).left(ready, policy.churn, now),
            worth=policy.worth,
            launches=launches,
            deleted=deleted,
            index=index,
            reservations=self._launches.reservations(cluster, read.manifests, read.intents, now),
            records=self._deps.table.list(POOL, cluster=cluster),
            surges=policy.surges,
            asleep={
                one.instance
                for one in open_ones
                if _hibernates(one) and one.phase in {Phase.NOTICED, Phase.RUNNING}
            },
        )

    def _gone(
        self, read: ClusterRead, own: Mapping[str, InstanceFacts], retiring: set[str]
    ) -> Iterator[str]:
        """The instances that were given back empty and that EC2 ends: their Nodes may stay for a
        minute, and must not keep the next node from going."""
        marked = {one.name for one in read.state.nodes if is_marked(one)}
        for instance, name in read.state.joined.items():
            if name in marked and instance in own.keys() - retiring:
                record = self._retirement(own[instance])
                terms = record.returns if record is not None else None
                if record and terms and terms.pods == 0 and record.is_terminated:
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
        by_name = {one.name: one for one in snapshot.own}
        begun: list[Reason] = []
        problems: list[Reason] = []
        for decision in confirmed:
            nodes = [by_name[name] for name in decision.nodes]
            unrecorded = [one for one in nodes if not self._is_recorded(one, cluster)]
            self._foreign |= {one.instance: one.pool for one in unrecorded}
            problems += [
                reasons.LAUNCH_NOT_RECORDED(instance=one.instance, pool=one.pool)
                for one in unrecorded
            ]
            if unrecorded:  # several nodes go together or not at all: one new node replaces them
                continue
            started = []
            for one in nodes:
                rules = snapshot.rules[one.pool]
                ruling = _ruling(one, decision, rules, now)
                terms = _terms(one, decision, rules, nodes)
                started.append(self._begin(one, own[one.instance], ruling, terms, now))
            if any(started):
                begun.append(_told(reasons.CAPACITY_RETURNED, cluster, decision))
        return CapacityReturned(begun=tuple(begun), problems=tuple(problems))

    def _is_recorded(self, one: OwnNode, cluster: str) -> bool:
        """Whether Leeway launched an instance for the pool by whose rules it goes. No tag says so:
        only the record of the launch."""
        admission = self._deps.table.get(ADMISSION, cluster=cluster, instance=one.instance)
        launch = admission.launch if admission is not None else None
        return launch is not None and launch.pool == one.pool

    def _retirement(self, facts: InstanceFacts) -> Retirement | None:
        return self._deps.table.get(RETIREMENT, cluster=facts.cluster, instance=facts.instance)

    def _begin(
        self, one: OwnNode, facts: InstanceFacts, ruling: Ruling, terms: ReturnTerms, now: datetime
    ) -> bool:
        """Write the record of a retirement and its capacity request, and start it; False if
        something else happens to the instance. If the table or Lambda fails, `_start_again` goes
        on.

        The requests of nodes that one new node replaces are all written before the next run of
        provision_nodes, which plans for their pods together.
        """
        stored = self._retirement(facts)
        change = apply_return(stored, facts, ruling, terms, now)
        if not (change.write and change.start):
            return False
        try:
            self._deps.table.put(RETIREMENT, change.record)
        except RecordChanged:
            return False
        if ruling.replacement is not Replacement.NONE:
            self._request(change.record, one.name, now)
        self._start(change.record)
        return True

    def staying(self, cluster: str, awake: Collection[str]) -> frozenset[str]:
        """Undo the returns of nodes whose pool hibernated and is `awake` now, and return their
        instances: a drain that waited all night must not hold a node of the day.

        Raises:
            CloudUnavailable, CloudRefused: the table failed, or Lambda. The next run, or reconcile,
                repeats what is missing.
        """
        return frozenset(
            one.instance
            for one in self._open(cluster)
            if _hibernates(one) and one.facts.owner.name in awake and self._stays(one)
        )

    def _stays(self, record: Retirement) -> bool:
        """Undo a return, whatever its drain or another run writes meanwhile; False if its instance
        is about to end."""
        reason = reasons.POOL_IS_AWAKE(pool=record.facts.owner.name, instance=record.instance)
        stored: Retirement | None = record
        conflicts = Conflicts(f"the retirement record of {record.instance}")
        while stored is not None and stored.attempt == record.attempt:
            undoing = undo_return(stored, reason, self._deps.clock.now())
            if undoing is None:
                break
            with conflicts:
                self._deps.table.put(RETIREMENT, undoing)
                self._start(undoing)
                return True
            stored = self._retirement(record.facts)
        return stored is not None and stored.phase is Phase.UNDOING

    def _start_again(self, record: Retirement, now: datetime) -> None:
        """Start a retirement whose start may be lost. A repeated start does nothing."""
        waits = record.phase is Phase.NOTICED and now - record.noticed_at > START_AGAIN_AFTER
        if waits and record.returns is not None and not record.returns.without_node:
            self._start(record)

    def _start(self, record: Retirement) -> None:
        self._deps.retire_node.start(record.instance, record.facts.cluster, record.attempt)

    def _request(self, record: Retirement, node: str, now: datetime) -> None:
        table, facts = self._deps.table, record.facts
        stored = table.get(CAPACITY_REQUEST, cluster=facts.cluster, instance=facts.instance)
        table.put(
            CAPACITY_REQUEST,
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
                in_place=record.terms is not None and record.terms.in_place,
            ),
        )


def _hibernates(record: Retirement) -> bool:
    """Whether a node is being given back because its pool hibernates."""
    return record.returns is not None and record.returns.cause == Cause.HIBERNATION


def _ruling(one: OwnNode, decision: NodeReturn, rules: ReturnRules, now: datetime) -> Ruling:
    within = None if decision.cause is Cause.HIBERNATION else rules.drain_within
    awaits = _awaits_nodes(one, decision, rules)
    return Ruling(
        action=Action.RETIRE,
        deadline=None if within is None else now + within,
        replacement=Replacement.BEFORE if awaits else Replacement.NONE,
        on_blocked=OnBlocked.WAIT if within is None else OnBlocked.DELETE,
        reason=decision.reason,
    )


def _awaits_nodes(one: OwnNode, decision: NodeReturn, rules: ReturnRules) -> bool:
    """Whether a node goes only after others are ready for its pods. Pods that only pools which
    hibernate have nodes for would wait in vain."""
    if rules.hibernates:
        return decision.replaced
    return bool(one.pods) or decision.in_place


def _terms(
    one: OwnNode, decision: NodeReturn, rules: ReturnRules, together: Iterable[OwnNode]
) -> ReturnTerms:
    """Return what has to be true at the cordon of a node that goes with others."""
    cause = decision.cause
    decided = {Cause.EXPIRED, Cause.POOL_DELETED, Cause.SCALED_DOWN, Cause.HIBERNATION}
    price = sum(each.price or 0.0 for each in together)
    limit = PriceLimit(decision=min(decision.nodes), below=price, own=one.price)
    return ReturnTerms(
        cause=cause,
        pods=None if cause in OUTDATED and may_move(one, cause) else len(one.pods),
        forced=rules.is_forced(cause),
        saving=decision.saving / len(decision.nodes),
        optional=cause not in decided,
        price_limit=limit if cause is Cause.UNDERUTILIZED else None,
        in_place=decision.in_place,
    )


def _unhealthy(snapshot: Snapshot) -> Iterator[Reason]:
    """What the status says about nodes until they are repaired; reconcile logs it when it acts."""
    for one in snapshot.own:
        if one.unhealthy is not None and not one.going:
            yield reasons.NODE_UNHEALTHY(node=one.name, why=one.unhealthy)


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
