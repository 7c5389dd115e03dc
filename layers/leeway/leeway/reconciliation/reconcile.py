"""Use case: once a minute, find lost events, do what they would have led to, and update the index.

Everything follows from the current state, so a run that is missed, late or repeated does no harm.
An error in one cluster, or in one part of the work on it, does not stop the others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from leeway.clock import Clock
from leeway.costs import Recorded
from leeway.instances.facts import (
    FACTS,
    InstanceFacts,
    ObservedChange,
    ObservedImpairment,
    ObservedInstance,
    ObservedInterruption,
    OwnerKind,
    facts_in,
)
from leeway.interruption.instance_state import read_instance
from leeway.interruption.receive_notice import NoticeResult, ReceiveNotice
from leeway.notices import INSTANCE_ID
from leeway.notices.parse import EventOrigin
from leeway.parallel import in_parallel
from leeway.policy.rules import ClusterPolicies, ClusterPolicy
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    Groups,
    LifecycleActionOver,
    Sweep,
    WaitingActions,
)
from leeway.ports.functions import AdmitNode, RetireNode
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Node
from leeway.ports.workloads import Workloads
from leeway.reasons import Reason, clause
from leeway.reconciliation.clean_up import (
    CleanUpOutcome,
    CleanUpResult,
    ClusterLeftovers,
    NodeCleanUp,
)
from leeway.reconciliation.find_lost_events import (
    INSTANCE_CONCURRENCY,
    LostEventSearch,
    ObservedRegion,
    SearchResult,
)
from leeway.reconciliation.group_rolls import GroupRolls
from leeway.reconciliation.left_launches import LeftLaunches
from leeway.reconciliation.lost_events import (
    GONE,
    Finding,
    LostAnswer,
    LostEvent,
    LostReturn,
    LostStart,
)
from leeway.reconciliation.report import (
    RECONCILE_INCOMPLETE,
    ClusterReport,
    HandledFinding,
)
from leeway.reconciliation.unhealthy_nodes import due_repairs, repairs
from leeway.retirement.attempts import return_again
from leeway.retirement.decide_surge import SURGE, SURGE_TIMEOUT, Surge
from leeway.retirement.record import RETIREMENT, Retirement, ReturnTerms
from leeway.retirement.surge import SCALES, SurgePorts, continue_surge
from leeway.table import RecordChanged, Table
from leeway.telemetry import describe_error
from leeway.typed_json import from_plain

CLUSTER_CONCURRENCY = 32
"""Clusters that are reconciled at the same time. An API server that does not answer holds one
thread and does not delay the other clusters."""

CLEAN_UP_FOR = timedelta(seconds=40)
"""How long a run starts clean-ups; the next run continues them."""

_API_ERRORS = (CloudUnavailable, CloudRefused, ClusterUnavailable, ClusterRefused)


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """The input of the function: empty for all clusters, or one instance to clean up after."""

    instance: Annotated[str, Meta(pattern=f"^({INSTANCE_ID})?\\Z")] = ""
    cluster: str = ""


def parse_request(event: Any) -> ReconcileRequest:
    """Parse the input of the function.

    Raises:
        ValueError: it is not a request; the message names the field and what was expected.
    """
    return from_plain(ReconcileRequest, event)


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The dependencies of reconcile. `clusters` are the names of Leeway's clusters. `hasty_sweep`
    gives up soon if EC2 throttles. `copy_manifests` copies those that users keep in the API server
    of a cluster, and returns which are invalid, and why nothing is removed. `record_costs` records
    what the instances of a cluster cost, split by these labels of pods, and which were
    interrupted."""

    clusters: frozenset[str]
    origin: EventOrigin
    sweep: Sweep
    hasty_sweep: Sweep
    waiting: WaitingActions
    groups: Groups
    table: Table
    policies: ClusterPolicies
    receive_notice: ReceiveNotice
    retire_node: RetireNode
    admit_node: AdmitNode
    launches: LeftLaunches
    group_rolls: GroupRolls
    copy_manifests: Callable[[str], tuple[Sequence[Reason], Reason | None]]
    record_costs: Callable[
        [str, Sequence[ObservedInstance], Sequence[str], Sequence[ObservedInterruption]], Recorded
    ]
    open_cluster: Callable[[str], ClusterLeftovers]
    open_workloads: Callable[[str], Workloads]
    clock: Clock


class Reconciliation:
    """Reconciles clusters."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._clean_up = NodeCleanUp(deps.sweep, deps.open_cluster, deps.clock)
        self._hasty_clean_up = NodeCleanUp(deps.hasty_sweep, deps.open_cluster, deps.clock)
        self._search = LostEventSearch(
            deps.table, deps.waiting, deps.sweep, deps.origin, deps.clock
        )

    def run(self, request: ReconcileRequest) -> tuple[ClusterReport, ...]:
        """Reconcile all clusters, or clean up after one instance.

        Raises:
            CloudUnavailable, CloudRefused: EC2's instances could not be listed.
        """
        if request.instance:
            return (self._clean_up_one(request),)
        names = sorted(self._deps.clusters)
        if not names:
            return ()
        region, problems = self._observe_region(names)
        reports = in_parallel(partial(self._run_one, region), names, CLUSTER_CONCURRENCY)
        for report in reports:
            report.problems.extend(problems)
        return tuple(reports)

    def _observe_region(self, names: Sequence[str]) -> tuple[ObservedRegion, list[Reason]]:
        """Read the state of the region, and the problems of these reads."""
        sweep, report = self._deps.sweep, ClusterReport("")
        instances = sweep.instances(names)
        interruptions: Sequence[ObservedInterruption] = ()
        changes: Sequence[ObservedChange] | None = None
        impairments: Sequence[ObservedImpairment] | None = None
        block_ends: Mapping[str, datetime] = {}
        with report.guard("read Spot requests from AWS"):
            interruptions = list(sweep.interruptions())
        with report.guard("read scheduled events from AWS"):
            changes = list(sweep.changes())
        with report.guard("read status checks from AWS"):
            impairments = list(sweep.impairments())
        blocks = {
            one.facts.reservation.id
            for one in instances
            if one.facts.reservation is not None and one.facts.reservation.block
        }
        with report.guard("read Capacity Blocks from AWS"):
            block_ends = sweep.block_ends(blocks) if blocks else {}
        region = ObservedRegion(instances, interruptions, changes, impairments, block_ends)
        return region, report.problems

    def _clean_up_one(self, request: ReconcileRequest) -> ClusterReport:
        """Clean up after an instance that has a record in one of Leeway's clusters.

        In a storm this runs once for each of hundreds of instances, and the next run for all
        clusters reads all of them with one call. An expected error (throttling, a refusal) is
        therefore left to that run, which also reports what it cannot do.
        """
        report = ClusterReport(request.cluster)
        try:
            known = read_instance(self._deps.table, request.instance, self._deps.clusters)
            facts = known.facts or (known.retirement.facts if known.retirement else None)
            report.cluster = facts.cluster if facts else request.cluster
            if facts is not None and facts.cluster in self._deps.clusters:
                report.clean_ups.append(self._hasty_clean_up.clean_up(facts))
        except _API_ERRORS as error:
            reason = f"The next run for all clusters cleans up: {describe_error(error)}."
            deferred = CleanUpOutcome(
                CleanUpResult.DEFERRED, request.instance, report.cluster, "", reason
            )
            report.clean_ups.append(deferred)
        return report

    def _run_one(self, region: ObservedRegion, cluster: str) -> ClusterReport:
        report = ClusterReport(cluster)
        with report.guard("start on the cluster"):
            self._reconcile(report, region)
        # After it: an API server that is slow must not delay the search for lost events.
        with report.guard("copy the manifests of the API server"):
            invalid, held = self._deps.copy_manifests(cluster)
            report.invalid_manifests.extend(invalid)
            report.problems.extend([held] if held else [])
        # Last: of all parts, this one reads the most, and nothing is decided by it.
        with report.guard("record the costs"):
            self._record_costs(report, region)
        return report

    def _record_costs(self, report: ClusterReport, region: ObservedRegion) -> None:
        labels = self._deps.policies.policy_of(report.cluster).cost_labels
        here = [one for one in region.instances if one.facts.cluster == report.cluster]
        recorded = self._deps.record_costs(report.cluster, here, labels, region.interruptions)
        report.counts, report.returned = recorded.nodes, recorded.returned
        if recorded.error is not None:
            error = describe_error(recorded.error)
            what = "read the pods by which costs are split"
            report.problems.append(RECONCILE_INCOMPLETE(what=what, error=error))

    def _reconcile(self, report: ClusterReport, region: ObservedRegion) -> None:
        cluster = report.cluster
        policy = self._deps.policies.policy_of(cluster)
        here = {one.facts.instance: one for one in region.instances if one.facts.cluster == cluster}
        report.instances = len(here)
        found = SearchResult()
        with report.guard("read records from the table"):
            found = self._search.search(cluster, policy, region)
        self._handle(report, found, policy.dry_run)
        with report.guard("read the health of the nodes"):
            self._repair_nodes(report, policy, here)
        with report.guard("read the launch templates of groups"):
            self._roll_groups(report, policy, here)
        if not policy.dry_run:
            with report.guard("read the surges"):
                self._restore_sizes(report)
        self._check_launches(report, policy, list(here.values()))
        index, with_node = None, None
        with report.guard("read the index"):
            index = facts_in(self._deps.table, cluster)
        if index is None:
            return
        if not policy.dry_run:
            with report.guard("read the nodes of the cluster"):
                with_node = self._clean_up_all(report, policy, here, index)
        if with_node is not None:
            with report.guard("read the retiring nodes"):
                self._release_marked(report, policy, here, region.changes)
        unlabelled = self._label_on_demand(report, here, index, dry_run=policy.dry_run)
        with report.guard("write the index"):
            self._update_index(report, here, index, with_node, unlabelled)

    def _repair_nodes(
        self,
        report: ClusterReport,
        policy: ClusterPolicy,
        here: Mapping[str, ObservedInstance],
    ) -> None:
        """Submit notices of unhealthy nodes. A cluster without nodes to repair is not read."""
        if not any(repairs(policy, one.facts) for one in here.values()):
            return
        cluster = report.cluster
        nodes = self._deps.open_cluster(cluster).nodes()
        due = due_repairs(cluster, nodes, here, policy, self._deps.clock.now())
        found = self._search.search_unhealthy(cluster, due, policy)
        self._handle(report, found, policy.dry_run)

    def _roll_groups(
        self, report: ClusterReport, policy: ClusterPolicy, here: Mapping[str, ObservedInstance]
    ) -> None:
        """Replace nodes that drifted from the launch templates of their groups."""
        cluster = report.cluster
        done = self._deps.group_rolls.run(
            cluster, policy, here, lambda: self._deps.open_cluster(cluster).nodes()
        )
        report.begun.extend(done.begun)
        report.problems.extend(done.problems)
        report.paused_pools.extend(done.halted)

    def _restore_sizes(self, report: ClusterReport) -> None:
        """Continue the surges of workloads whose retirement does not continue them."""
        deps, cluster = self._deps, report.cluster

        def ports() -> SurgePorts:
            nodes, workloads = deps.open_cluster(cluster), deps.open_workloads(cluster)
            return SurgePorts(deps.table, nodes, workloads, deps.clock)

        for surge, go_on in left_surges(deps.table, cluster, deps.clock.now(), ports):
            with report.guard(f"restore the size of {surge.workload}"):
                report.surges.extend(one for one in [go_on()] if one is not None)

    def _check_launches(
        self, report: ClusterReport, policy: ClusterPolicy, here: Sequence[ObservedInstance]
    ) -> None:
        """Continue launches that were left undone, and remove their unused launch templates."""
        launches, cluster = self._deps.launches, report.cluster
        with report.guard("read the paused pools"):
            report.paused_pools.extend(launches.paused_pools(cluster))
        if policy.dry_run:
            return
        with report.guard("check launched instances"):
            report.add(launches.check_instances(cluster, here))
        with report.guard("read the names of the nodes"):
            nodes = self._deps.open_cluster(cluster)
            report.add(launches.check_nodes(cluster, here, nodes))
            with report.guard("read the nodes that are not initialized"):
                report.add(launches.check_late_nodes(cluster, here, nodes))
        with report.guard("delete launch templates"):
            report.deleted_templates.extend(launches.delete_unused_templates(cluster))

    def _handle(self, report: ClusterReport, search: SearchResult, dry_run: bool) -> None:
        report.problems.extend(search.problems)
        findings = [f for f in search.findings if not (dry_run and isinstance(f, LostAnswer))]
        handle = partial(self._handle_one, report)
        done = in_parallel(handle, findings, INSTANCE_CONCURRENCY)
        for finding, work in zip(findings, done, strict=True):
            if work is not None:
                report.findings.append(HandledFinding(finding.instance, finding.reason, work))

    def _handle_one(self, report: ClusterReport, finding: Finding) -> str | None:
        """Do the work that the event would have led to. None if the event was not lost, or if that
        failed."""
        deps = self._deps
        with report.guard(f"act on a finding ({clause(finding.reason)})"):
            match finding:
                case LostEvent():
                    outcome = deps.receive_notice.receive(finding.event, finding.begun)
                    if all(one.result is NoticeResult.KNOWN for one in outcome.instances):
                        return None  # the event arrived in the meantime
                    results = "; ".join(f"{one.result}: {one.reason}" for one in outcome.instances)
                    return f"Leeway handled the notice ({results})."
                case LostStart():
                    function = deps.admit_node if finding.is_admission else deps.retire_node
                    function.start(finding.instance, finding.cluster, finding.attempt)
                    return f"Leeway started attempt {finding.attempt} again."
                case LostReturn():
                    return self._return_again(finding.record, finding.terms)
                case LostAnswer():
                    hook = finding.hook.name
                    try:
                        deps.groups.complete(finding.instance, finding.hook, finding.result)
                    except LifecycleActionOver:
                        return f"Lifecycle hook {hook} does not wait for an answer any more."
                    return f"Leeway answered lifecycle hook {hook} with {finding.result}."
        return None

    def _return_again(self, record: Retirement, terms: ReturnTerms) -> str | None:
        """Begin a return of capacity again; None if its record has changed meanwhile."""
        deps, change = self._deps, return_again(record, terms, self._deps.clock.now())
        try:
            deps.table.put(RETIREMENT, change.record)
        except RecordChanged:
            return None
        attempt = change.record.attempt
        deps.retire_node.start(record.instance, record.facts.cluster, attempt)
        return f"Leeway started attempt {attempt} on the terms of the return."

    def _clean_up_all(
        self,
        report: ClusterReport,
        policy: ClusterPolicy,
        here: Mapping[str, ObservedInstance],
        index: Mapping[str, InstanceFacts],
    ) -> frozenset[str]:
        """Clean up after terminated instances; returns the instances whose Node still exists.

        Only instances that were observed in this cluster count: a node of another account or
        provider is not in EC2's list either, and it is not gone.
        """
        until = self._deps.clock.now() + CLEAN_UP_FOR
        leftovers: dict[str, tuple[InstanceFacts, Node]] = {}
        with_node: set[str] = set()
        duplicated: set[str] = set()  # several Nodes name them: the next run handles the others
        cluster = self._deps.open_cluster(report.cluster)
        for node in cluster.unready():
            instance = node.provider_id.rsplit("/", 1)[-1]
            observed = here.get(instance)
            facts = observed.facts if observed else index.get(instance)
            if facts is None or (observed is not None and observed.state not in GONE):
                continue
            if instance in with_node:
                duplicated.add(instance)
            with_node.add(instance)
            if policy.retires_nodes_of(facts.owner):
                leftovers[instance] = facts, node
        if not leftovers:
            return frozenset(with_node)
        # Read together: single calls for the instances of a storm would use up EC2's request
        # limit, and lists of all attachments would overload the API server.
        states = self._clean_up.observe(leftovers, cluster)

        def clean_up(instance: str) -> CleanUpOutcome | None:
            if self._deps.clock.now() >= until:
                return None
            facts, node = leftovers[instance]
            # Without a wait for volumes, which would take too long for many nodes: the next run
            # checks them.
            with report.guard(f"clean up after instance {instance}"):
                return self._clean_up.clean_up(facts, node, timedelta(0), states[instance])
            return None

        outcomes = in_parallel(clean_up, list(leftovers), INSTANCE_CONCURRENCY)
        report.clean_ups.extend(outcome for outcome in outcomes if outcome is not None)
        cleaned = {one.instance for one in report.clean_ups if one.result is CleanUpResult.CLEANED}
        return frozenset(with_node) - (cleaned - duplicated)

    def _release_marked(
        self,
        report: ClusterReport,
        policy: ClusterPolicy,
        here: Mapping[str, ObservedInstance],
        changes: Sequence[ObservedChange] | None,
    ) -> None:
        """Release the nodes that are marked as retiring and whose instances stay."""
        marked = set(self._deps.open_cluster(report.cluster).retiring())
        instances = [
            one
            for name, one in here.items()
            if one.state == "running" and {one.facts.private_dns_name, name} & marked
        ]
        found = self._search.search_marked(instances, policy, changes)
        self._handle(report, found, dry_run=False)

    def _label_on_demand(
        self,
        report: ClusterReport,
        here: Mapping[str, ObservedInstance],
        index: Mapping[str, InstanceFacts],
        *,
        dry_run: bool,
    ) -> frozenset[str]:
        """Label the nodes whose capacity reservation has ended as on-demand. Return the instances
        whose Nodes could not be labelled: the index keeps their facts, and the next run goes on."""
        ended = {
            name: one.facts
            for name, one in here.items()
            if one.state == "running"
            and one.facts.reservation is None
            and one.facts.owner.kind is OwnerKind.LEEWAY
            and (known := index.get(name)) is not None
            and known.reservation is not None
        }
        if not ended or dry_run:
            return frozenset(ended)

        labelled = set()
        for name, facts in ended.items():
            with report.guard(f"label the node of {name} as on-demand"):
                cluster = self._deps.open_cluster(report.cluster)
                node = cluster.node(facts.private_dns_name)
                if node is not None and node.runs_on(facts.instance):
                    cluster.label_on_demand(node)
                labelled.add(name)
        return frozenset(ended) - labelled

    def _update_index(
        self,
        report: ClusterReport,
        here: Mapping[str, ObservedInstance],
        index: Mapping[str, InstanceFacts],
        with_node: frozenset[str] | None,
        unlabelled: frozenset[str],
    ) -> None:
        """Write the facts that differ, but those of `unlabelled` instances. An instance that EC2
        does not list is removed when its Node is gone, too; not if the nodes could not be read
        (`with_node` is None). The facts of a terminated instance are kept: EC2 no longer returns
        its names, by which its Node is found.
        """
        written = [
            one.facts
            for name, one in here.items()
            if index.get(name) != one.facts and not (name in index and one.state in GONE)
            if name not in unlabelled
        ]
        removed = []
        if with_node is not None:
            removed = [name for name in index if name not in here and name not in with_node]
        self._deps.table.change(FACTS, put=written, delete=({"instance": one} for one in removed))
        report.index_written, report.index_removed = len(written), len(removed)


ABANDONED_AFTER = SURGE_TIMEOUT + timedelta(minutes=30)
"""The age of a surge that its retirement does not continue any more. A drain that has run for long
pauses for some twenty minutes."""


def left_surges(
    table: Table, cluster: str, now: datetime, ports: Callable[[], SurgePorts]
) -> Iterator[tuple[Surge, Callable[[], Reason | None]]]:
    """Yield the surges that nobody continues, each with what continues it: that returns the reason
    of a change, and raises what the API server and the table raise."""
    for surge in table.list(SURGE, cluster=cluster, unreadable=lambda _: None):
        if surge.is_open and _is_left(table, surge, now):
            yield surge, partial(_continue_surge, surge, ports)


def _is_left(table: Table, surge: Surge, now: datetime) -> bool:
    if now >= surge.began_at + ABANDONED_AFTER:
        return True
    retirement = read_instance(table, surge.instance, [surge.cluster]).retirement
    return retirement is None or not retirement.is_open


def _continue_surge(surge: Surge, ports: Callable[[], SurgePorts]) -> Reason | None:
    decision = continue_surge(ports(), surge.cluster, surge.workload, left=False, ending=True)
    return decision.reason if decision is not None and decision.action in SCALES else None
