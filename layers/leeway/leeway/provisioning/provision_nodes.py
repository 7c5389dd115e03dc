"""The use case: one run of the one buyer of a cluster.

A run reads the cluster, launches nodes for pods that have no place, and answers the capacity
requests of retirements. It never waits until nodes join. SQS delivers the messages of a cluster to
one run at a time, so that two runs never launch for the same pods. A run that dies leaves its
launch intents, and the next run completes them (see `leeway.launch`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.capacity_requests.ports import CapacityRequests
from leeway.capacity_requests.request import CapacityAnswer, CapacityRequest
from leeway.clock import Clock
from leeway.execution.retrying import API_ERRORS, retry_conflicts
from leeway.launch.intent import JOIN_WITHIN
from leeway.launch.launch_nodes import LaunchNodes, LaunchOrder
from leeway.launch.node_settings import settings_of
from leeway.launch.nodes_on_the_way import promised_nodes
from leeway.launch.outcome import LaunchOutcome, PodWithoutNode
from leeway.launch.ports import LaunchIntents
from leeway.launch.price_ceiling import Prices
from leeway.launch.reasons import LAUNCHES_CAPPED, POD_WITHOUT_NODE, PRICE_CEILING_REACHED
from leeway.manifests.base import Manifest
from leeway.manifests.node_pool import NodePool
from leeway.parallel import in_parallel
from leeway.policy.rules import ClusterPolicy
from leeway.provisioning.answers import answer_of, says_the_same
from leeway.provisioning.cluster_read import ClusterRead
from leeway.provisioning.cluster_state import ClusterState, ClusterStates
from leeway.provisioning.demand import demand_of
from leeway.provisioning.launch_cap import price_ceiling, remaining_launches
from leeway.provisioning.ports import (
    CapacityReturned,
    CapacityReturns,
    Catalogs,
    ClusterManifests,
    GroupInstances,
    PodEvents,
    ProvisioningRecords,
)
from leeway.provisioning.reasons import (
    CATALOG_MISSING,
    CLUSTER_WITHOUT_POOLS,
    LAUNCHES_IN_VAIN,
    POD_EVENTS_NOT_WRITTEN,
    PROVISIONED,
    PROVISIONING_FAILED,
    PROVISIONING_REHEARSED,
    REQUEST_NOT_ANSWERED,
    STATUS_NOT_WRITTEN,
)
from leeway.provisioning.report import ProvisioningReport
from leeway.provisioning.starting_nodes import (
    StartingNode,
    starting_in_groups,
    starting_nodes,
    starting_of_karpenter,
)
from leeway.provisioning.status import (
    MOST_PROBLEMS,
    MOST_RETURNED,
    ProvisioningStatus,
    grouped,
    launched_instances,
    shortened,
)
from leeway.provisioning.told_pods import DueEvent, due_events, remembered
from leeway.provisioning.upcoming import Upcoming, UpcomingPods
from leeway.provisioning.vain_launches import vain_launches, without_place, workload_of
from leeway.reasons import Reason, clause
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import ExistingNode
from leeway.selection.pools import NodePool as Pool

KINDS = (
    "cluster.leeway.sh",
    "ec2nodeclass.karpenter.k8s.aws",
    "nodepool.karpenter.sh",
)

BRAKES = frozenset({LAUNCHES_CAPPED.name, LAUNCHES_IN_VAIN.name, PRICE_CEILING_REACHED.name})
"""The reasons with which Leeway stops spending by itself, and an alarm rings."""

EVENTS_AT_ONCE = 16
FOR_RETURNS = timedelta(seconds=20)
"""The time that a run must have left to give capacity back: the decision for 2,000 nodes takes some
seconds."""

FOR_THE_END = timedelta(seconds=15)
"""The time that a run keeps after its last launch, for answers, Events and the status."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The ports of provisioning. `events_in` returns the Events of a cluster."""

    manifests: ClusterManifests
    catalog: Catalogs
    states: ClusterStates
    requests: CapacityRequests
    launch_nodes: LaunchNodes
    intents: LaunchIntents
    groups: GroupInstances
    upcoming: UpcomingPods
    records: ProvisioningRecords
    returns: CapacityReturns
    events_in: Callable[[str], PodEvents]
    clock: Clock


class NodeProvisioning:
    """Runs of the buyer."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps

    def run(self, cluster: str, why: str, until: datetime) -> ProvisioningReport:
        """Run once for a cluster, at most until this time. Never raises: the report says what
        failed, and whether the run is to be repeated."""
        begun = self._deps.clock.now()
        try:
            report = self._run(cluster, why, until)
        except Exception as error:  # noqa: BLE001 (reported and repeated; other clusters go on)
            failure = PROVISIONING_FAILED(cluster=cluster, error=clause(_described(error)))
            report = self._failed(cluster, why, failure)
        return replace(report, seconds=(self._deps.clock.now() - begun).total_seconds())

    def _run(self, cluster: str, why: str, until: datetime) -> ProvisioningReport:
        now = self._deps.clock.now()
        written = self._deps.manifests.manifests(cluster, KINDS)
        policy = self._deps.manifests.policy_of(cluster)
        manifests = [one.manifest for one in written]
        requests = [one for one in self._deps.requests.of_cluster(cluster) if one.is_open(now)]
        unanswered: tuple[Reason, ...] = ()
        has_pools = any(isinstance(one, NodePool) for one in manifests)
        if not has_pools:
            reason = CLUSTER_WITHOUT_POOLS(cluster=cluster)
            answer = CapacityAnswer(answered_at=now, without_node=(reason,))
            unanswered = self._answer((one, answer) for one in requests)
            if not self._deps.returns.has_nodes(cluster):
                return ProvisioningReport(cluster, why, reason, failures=unanswered)
        catalog = self._deps.catalog.read()
        if catalog is None:
            return self._failed(cluster, why, CATALOG_MISSING(cluster=cluster))
        pools = [one.template.pool for one in settings_of(manifests)]
        upcoming = Upcoming()
        if not policy.paused:
            upcoming = self._deps.upcoming.read(cluster, pools, catalog, now)
        read = self._read(cluster, manifests, pools, requests, catalog, upcoming)
        outcome, failures = LaunchOutcome((), (), (), ()), unanswered
        if has_pools:
            outcome = self._launch(read, policy, until)
            failures = () if policy.dry_run else self._tell(read, outcome, until)
        returned = self._return_capacity(read, policy, outcome, until)
        demanded = len(read.demand.pods)
        result = PROVISIONED(
            cluster=cluster,
            pods=demanded,
            launched=len(outcome.launched),
            without=len(outcome.without_node),
        )
        if not has_pools:
            result = CLUSTER_WITHOUT_POOLS(cluster=cluster)
        elif policy.dry_run:
            result = PROVISIONING_REHEARSED(cluster=cluster, pods=demanded)
        report = ProvisioningReport(
            cluster,
            why,
            result,
            pods=demanded,
            launched=outcome.launched,
            without_node=outcome.without_node,
            ahead=upcoming.reasons,
            launch_problems=(*outcome.reasons, *read.problems),
            unreadable=tuple(one.reason for one in read.state.unreadable),
            failures=(*failures, *returned.failures),
            capped=any(one.code in BRAKES for one in outcome.reasons),
            returned=returned,
        )
        return self._with_status(report, policy.dry_run)

    def _read(
        self,
        cluster: str,
        manifests: Sequence[Manifest],
        pools: Sequence[Pool],
        requests: Sequence[CapacityRequest],
        catalog: Catalog,
        upcoming: Upcoming,
    ) -> ClusterRead:
        """Read the cluster after the intents: an instance that joins in between has its Node."""
        intents = self._deps.intents.of_cluster(cluster)
        state = self._deps.states.read(cluster)
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
        )

    def _return_capacity(
        self, read: ClusterRead, policy: ClusterPolicy, outcome: LaunchOutcome, until: datetime
    ) -> CapacityReturned:
        """Give capacity back on what was just read. If the run has launched, or may have, the next
        run reads what became of it."""
        launched = outcome.launched or any(not one.is_answered for one in read.intents)
        in_time = self._deps.clock.now() + FOR_RETURNS < until
        return self._deps.returns.after_run(read, policy, in_time and not launched)

    def _in_groups(
        self, cluster: str, state: ClusterState, now: datetime
    ) -> tuple[Mapping[str, StartingNode], tuple[ExistingNode, ...]]:
        """The nodes that Auto Scaling groups have launched, for example as successors of nodes
        that retire: their pods must not get a second node."""
        launched = self._deps.groups.launched_by_groups(cluster, now - JOIN_WITHIN)
        absent = {one.owner.name for one in launched if one.instance not in state.joined}
        members = {group: sorted(self._deps.groups.members(group)) for group in sorted(absent)}
        return starting_in_groups(state.nodes, state.joined, launched, members)

    def _launch(self, read: ClusterRead, policy: ClusterPolicy, until: datetime) -> LaunchOutcome:
        """Launch nodes, or only plan with spec.dryRun. Without pods and without launches to
        complete, nothing is read from EC2."""
        now, demand, state = self._deps.clock.now(), read.demand, read.state
        intents, catalog = read.intents, read.catalog
        vain = vain_launches(intents, state.joined, state.nodes, now)
        stopped = without_place(demand.pods, demand.nodes, catalog, vain)
        pods = tuple(one for one in demand.pods if one.name not in stopped)
        complete = all(one.is_answered and not one.to_admit for one in intents)
        if not pods and complete:
            return _with_stopped(LaunchOutcome((), (), (), ()), stopped, vain)
        order = LaunchOrder(
            cluster=read.cluster,
            manifests=read.manifests,
            catalog=catalog,
            pods=pods,
            nodes=demand.nodes,
            joined=state.joined,
            closed=frozenset(demand.moving) | _unusable(state) | self._deleted(read),
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
        )
        if policy.dry_run:
            outcome = self._deps.launch_nodes.preview(order).outcome
        else:
            outcome = self._deps.launch_nodes.launch(order)
        return _with_stopped(outcome, stopped, vain)

    def _deleted(self, read: ClusterRead) -> frozenset[str]:
        """The instances whose Nodes were deleted: they do not join again, so pods wait in vain for
        them. While the table does not answer, none."""
        launched = {one.instance for intent in read.intents for one in intent.instances}
        if launched <= read.state.joined.keys():
            return frozenset()
        try:
            return self._deps.returns.without_node(read.cluster)
        except API_ERRORS:
            return frozenset()

    def _tell(
        self, read: ClusterRead, outcome: LaunchOutcome, until: datetime
    ) -> tuple[Reason, ...]:
        """Answer the requests and write Events; return what could not be written. A request whose
        pods have all moved keeps its answer, which says where they went."""
        now = self._deps.clock.now()
        starting = {name: one.instance for name, one in read.starting.items()}
        joined = {node.name for node in read.state.nodes}
        answers = (
            (
                one,
                answer_of(read.demand.moving[one.instance], outcome, joined, starting, now),
            )
            for one in read.requests
            if read.demand.moving[one.instance] or one.answer is None
        )
        failures = self._answer(answers)
        return (*failures, *self._write_events(read.cluster, read.state, outcome, until))

    def _answer(
        self, answers: Iterable[tuple[CapacityRequest, CapacityAnswer]]
    ) -> tuple[Reason, ...]:
        failures = []
        for request, answer in answers:
            try:
                self._answer_one(request, answer)
            except API_ERRORS as error:
                failures.append(
                    REQUEST_NOT_ANSWERED(instance=request.instance, error=clause(error))
                )
        return tuple(failures)

    def _answer_one(self, request: CapacityRequest, answer: CapacityAnswer) -> None:
        """Write an answer, unless the retirement has ended its request or requests anew."""
        requests = self._deps.requests
        current: CapacityRequest | None = request

        def write() -> None:
            nonlocal current
            one, current = current, None
            one = one or requests.of_instance(request.cluster, request.instance)
            if one is None or one.attempt != request.attempt:
                return
            if one.is_open(self._deps.clock.now()) and not says_the_same(one, answer):
                requests.write(one.answered(answer))

        retry_conflicts(f"the capacity request of {request.instance}", write)

    def _write_events(
        self, cluster: str, state: ClusterState, outcome: LaunchOutcome, until: datetime
    ) -> tuple[Reason, ...]:
        """Write an Event about each pod without a node that has none, as long as there is time."""
        if not outcome.without_node:
            return ()
        now = self._deps.clock.now()
        try:
            told = self._deps.records.told(cluster)
            due = due_events(outcome.without_node, state.waiting, told, now)
            if not due:
                return ()
            errors = in_parallel(
                self._event_writer(self._deps.events_in(cluster), until), due, EVENTS_AT_ONCE
            )
            written = [one.key for one, error in zip(due, errors, strict=True) if error is None]
            self._deps.records.write_told(cluster, remembered(told, written, now))
        except API_ERRORS as error:
            count = len(outcome.without_node)
            return (POD_EVENTS_NOT_WRITTEN(count=count, cluster=cluster, error=clause(error)),)
        failed = [error for error in errors if error]
        if not failed:
            return ()
        first = clause(failed[0])
        return (POD_EVENTS_NOT_WRITTEN(count=len(failed), cluster=cluster, error=first),)

    def _event_writer(self, events: PodEvents, until: datetime) -> Callable[[DueEvent], str | None]:
        """Return a function that writes an Event, and returns why it did not."""

        def write(due: DueEvent) -> str | None:
            if self._deps.clock.now() >= until:
                return "the run has no time left"
            try:
                events.write(due.event)
            except API_ERRORS as error:
                return str(error) or type(error).__name__
            return None

        return write

    def _failed(self, cluster: str, why: str, failure: Reason) -> ProvisioningReport:
        report = ProvisioningReport(cluster, why, failure, failures=(failure,), retry=True)
        return self._with_status(report, dry_run=False)

    def _with_status(self, report: ProvisioningReport, dry_run: bool) -> ProvisioningReport:
        """Write the status of a run; a status that cannot be written is one more failure."""
        records = self._deps.records
        try:
            before = records.status(report.cluster)
            records.write_status(_status(report, before, dry_run, self._deps.clock.now()))
        except API_ERRORS as error:
            problem = STATUS_NOT_WRITTEN(cluster=report.cluster, error=clause(error))
            return replace(report, failures=(*report.failures, problem))
        return report


def _unusable(state: ClusterState) -> frozenset[str]:
    """The instances whose Nodes take no pods."""
    names = {node.name for node in state.unusable}
    return frozenset(instance for instance, name in state.joined.items() if name in names)


def _with_stopped(
    outcome: LaunchOutcome, pods: Iterable[str], vain: Mapping[str, Sequence[str]]
) -> LaunchOutcome:
    """Add the pods for which launches are in vain, and the reason of each workload."""
    causes = {
        workload: LAUNCHES_IN_VAIN(workload=workload, count=len(nodes), nodes=", ".join(nodes))
        for workload, nodes in vain.items()
    }
    stopped = {pod: causes[workload_of(pod)] for pod in pods}
    without = tuple(
        PodWithoutNode(pod, POD_WITHOUT_NODE(pod=pod, why=cause.message), cause)
        for pod, cause in stopped.items()
    )
    return replace(
        outcome,
        without_node=(*outcome.without_node, *without),
        reasons=(*outcome.reasons, *dict.fromkeys(stopped.values())),
    )


def _status(
    report: ProvisioningReport, before: ProvisioningStatus | None, dry_run: bool, now: datetime
) -> ProvisioningStatus:
    failure = report.failures[0] if report.retry else None
    if failure is not None and before is not None:
        update = {"failure": shortened(failure), "run_at": now, "why": report.why}
        return before.model_copy(update=update)
    groups, others = grouped(report.without_node)
    launched = launched_instances(report.launched)
    count, at = len(report.launched), now
    if before is not None and not launched:
        launched, count = before.launched, before.launched_count
    launched_at = now if report.launched else before.launched_at if before else None
    returned, returned_at = report.returned.begun, now
    if before is not None and not returned:
        returned, returned_at = before.returned, before.returned_at or now
    back = report.returned
    found = (*report.launch_problems, *report.failures, *back.problems, *back.lasting)
    problems = [*found, *report.unreadable][:MOST_PROBLEMS]
    return ProvisioningStatus(
        cluster=report.cluster,
        run_at=at,
        why=report.why,
        dry_run=dry_run,
        pods=report.pods,
        launched=launched,
        launched_at=launched_at,
        launched_count=count,
        ahead=tuple(map(shortened, report.ahead[:MOST_PROBLEMS])),
        without_node=groups,
        others=others,
        problems=tuple(map(shortened, problems)),
        returned=tuple(map(shortened, returned[:MOST_RETURNED])),
        returned_at=returned_at if returned else None,
        failure=None if failure is None else shortened(failure),
    )


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
