"""Use case: search a cluster for lost events, by the state of AWS and the stored records."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from leeway.admission.record import ADMISSION, Admission
from leeway.clock import Clock
from leeway.instances.facts import (
    ObservedChange,
    ObservedHook,
    ObservedImpairment,
    ObservedInstance,
    ObservedInterruption,
)
from leeway.interruption.instance_state import InstanceState, read_instance
from leeway.notices import NoticeKind
from leeway.notices.parse import EventOrigin
from leeway.parallel import in_parallel
from leeway.policy.repair import Unhealthy
from leeway.policy.rules import ClusterPolicy
from leeway.ports.aws import Sweep, Waiting, WaitingActions
from leeway.reasons import Reason, counted
from leeway.reconciliation.lost_events import (
    STOPS_OR_ENDS,
    CheckContext,
    Finding,
    LostEvent,
    check_block_end,
    check_cancelled_change,
    check_completed_change,
    check_detached_instance,
    check_eks_hook,
    check_hook,
    check_impairment,
    check_interruption,
    check_overdue_admission,
    check_overdue_retirement,
    check_recovery,
    check_restart,
    check_scheduled_change,
    check_start,
    check_state,
    check_unhealthy_node,
    may_be_left_running,
)
from leeway.reconciliation.report import RECONCILE_INCOMPLETE
from leeway.reconciliation.unhealthy_nodes import DueRepairs
from leeway.retirement.hooks import EKS_HOOKS
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.table import OPEN, Table, UnreadableRecord
from leeway.telemetry import describe_error

MOST_NAMED = 10
"""Unreadable records that a run names. An index holds every item that has its attribute, and who
may write items of one kind may write many."""


INSTANCE_CONCURRENCY = 8
"""Instances of a cluster that are handled at the same time. If the notices of a storm are lost,
each of hundreds of instances takes some calls, and has two minutes."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The findings of a search, and the problems of its reads."""

    findings: tuple[Finding, ...] = ()
    problems: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedRegion:
    """The state of a region, read with one call of each kind. `changes` and `impairments` are None
    if they could not be read. `block_ends` is when EC2 begins to end the instances of each Capacity
    Block, by its id."""

    instances: Sequence[ObservedInstance]
    interruptions: Sequence[ObservedInterruption] = ()
    changes: Sequence[ObservedChange] | None = None
    impairments: Sequence[ObservedImpairment] | None = None
    block_ends: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """One cluster in a search: its policy, the observed instances whose owners the policy covers,
    and the open records, by instance."""

    name: str
    policy: ClusterPolicy
    covered: Mapping[str, ObservedInstance]
    open_states: Mapping[str, InstanceState]

    def retirements(self) -> Iterator[Retirement]:
        """Yield the open retirements."""
        for state in self.open_states.values():
            if state.retirement is not None:
                yield state.retirement

    def running(self, instance: str) -> ObservedInstance | None:
        """Return a covered instance that runs."""
        found = self.covered.get(instance)
        return found if found is not None and found.state == "running" else None


type Check = Callable[[], Finding | None]


class LostEventSearch:
    """Searches clusters for lost events."""

    def __init__(
        self,
        table: Table,
        waiting: WaitingActions,
        sweep: Sweep,
        origin: EventOrigin,
        clock: Clock,
    ) -> None:
        self._table = table
        self._waiting = waiting
        self._sweep = sweep
        self._origin = origin
        self._clock = clock

    def search(self, cluster: str, policy: ClusterPolicy, region: ObservedRegion) -> SearchResult:
        """Check all instances and open records of a cluster.

        Raises:
            CloudUnavailable, CloudRefused: the open records could not be read, which every check
                needs.
        """
        here = {one.facts.instance: one for one in region.instances if one.facts.cluster == cluster}
        covered = {
            name: one for name, one in here.items() if policy.retires_nodes_of(one.facts.owner)
        }
        # Before the records: otherwise an event that comes in between would count as lost.
        hooks, problems = self._hooks(covered.values())
        unreadable: list[str] = []

        def report(error: UnreadableRecord) -> None:
            unreadable.append(str(error))

        stored = self._table.find(OPEN, cluster, RETIREMENT, ADMISSION, unreadable=report)
        view = _Cluster(cluster, policy, covered, _by_instance(stored))
        problems += [_unread("a record", one) for one in unreadable[:MOST_NAMED]]
        if more := len(unreadable[MOST_NAMED:]):
            problems.append(_unread(counted(more, "more record"), "they are unreadable too"))
        checks: list[Check] = [
            *self._record_checks(stored, here, policy),
            *(partial(self._hook, view, one) for one in hooks if one.instance in covered),
            *self._interruption_checks(view, region.interruptions),
            *self._change_checks(view, region.changes),
            *self._impairment_checks(view, region.impairments),
            *self._state_checks(view),
            *self._block_checks(view, region.block_ends),
        ]
        return _run(checks, problems)

    def search_marked(
        self,
        instances: Iterable[ObservedInstance],
        policy: ClusterPolicy,
        changes: Sequence[ObservedChange] | None,
    ) -> SearchResult:
        """Check instances whose nodes are marked as retiring: some may stay. `changes` are None if
        they could not be read."""
        return _run([partial(self._marked, one, policy, changes) for one in instances], [])

    def search_unhealthy(
        self, cluster: str, repairs: DueRepairs, policy: ClusterPolicy
    ) -> SearchResult:
        """Check the instances whose nodes are due for repair."""

        def check(instance: str, why: Unhealthy) -> Finding | None:
            retirement = read_instance(self._table, instance, [cluster]).retirement
            context = self._context(policy.dry_run)
            return check_unhealthy_node(instance, why, retirement, context)

        return _run([partial(check, *one) for one in repairs.due.items()], repairs.held)

    def _hooks(
        self, covered: Iterable[ObservedInstance]
    ) -> tuple[tuple[ObservedHook, ...], list[Reason]]:
        try:
            waiting = self._waiting.of_groups({one.group for one in covered if one.group})
        except Exception as error:  # noqa: BLE001 (reported; the other checks go on)
            waiting = Waiting((), (describe_error(error),))
        problems = [_unread("lifecycle hooks", error) for error in waiting.unread]
        return waiting.seen, problems

    def _record_checks(
        self,
        records: Iterable[Retirement | Admission],
        here: Mapping[str, ObservedInstance],
        policy: ClusterPolicy,
    ) -> Iterator[Check]:
        for record in records:
            found = here.get(record.instance)
            yield partial(check_start, record, self._clock.now())
            yield partial(self._overdue, record, found.state if found else None, policy.dry_run)
            # Not under a dry run, which would repeat it every minute, and not for an instance that
            # was attached to a group again.
            attached = found is not None and bool(found.group)
            if isinstance(record, Retirement) and not policy.dry_run and not attached:
                yield partial(self._detached, record)

    def _interruption_checks(
        self, view: _Cluster, interruptions: Iterable[ObservedInterruption]
    ) -> Iterator[Check]:
        if view.policy.acts_on(NoticeKind.SPOT_INTERRUPTION):
            for one in interruptions:
                if (instance := view.running(one.instance)) is not None:
                    yield partial(self._interruption, view, one, instance.launched_at)

    def _change_checks(
        self, view: _Cluster, changes: Sequence[ObservedChange] | None
    ) -> Iterator[Check]:
        if changes is None:
            return  # without the list of changes, nothing is cancelled
        if view.policy.acts_on(NoticeKind.SCHEDULED_CHANGE):
            for one in changes:
                if one.instance in view.covered and not one.over:
                    yield partial(self._change, view, one)
        for retirement in view.retirements():
            yield partial(self._cancelled_change, view, retirement, changes)

    def _impairment_checks(
        self, view: _Cluster, impairments: Sequence[ObservedImpairment] | None
    ) -> Iterator[Check]:
        if impairments is None:
            return  # without the list of failed checks, nothing is undone
        if view.policy.acts_on(NoticeKind.IMPAIRED_STATUS):
            for one in impairments:
                if view.running(one.instance) is not None:
                    yield partial(self._impairment, view, one)
        for retirement in view.retirements():
            yield partial(self._recovery, view, retirement, impairments)

    def _state_checks(self, view: _Cluster) -> Iterator[Check]:
        if view.policy.acts_on(NoticeKind.STATE_CHANGE):
            for one in view.covered.values():
                if one.state in STOPS_OR_ENDS:
                    yield partial(self._state, view, one)

    def _block_checks(self, view: _Cluster, block_ends: Mapping[str, datetime]) -> Iterator[Check]:
        if block_ends and view.policy.acts_on(NoticeKind.CAPACITY_RESERVATION):
            for one in view.covered.values():
                reservation = one.facts.reservation
                if reservation and reservation.id in block_ends and one.state == "running":
                    yield partial(self._block_end, view, one, block_ends[reservation.id])

    def _block_end(
        self, view: _Cluster, instance: ObservedInstance, ends_at: datetime
    ) -> Finding | None:
        context = self._context(view.policy.dry_run)
        if check_block_end(instance, ends_at, None, context) is None:
            return None  # it ends much later: its record need not be read
        retirement = self._state_of(view, instance.facts.instance).retirement
        return check_block_end(instance, ends_at, retirement, context)

    def _context(self, dry_run: bool) -> CheckContext:
        return CheckContext(self._origin, self._clock.now(), dry_run)

    def _overdue(
        self, record: Retirement | Admission, state: str | None, dry_run: bool
    ) -> Finding | None:
        context = self._context(dry_run)
        if isinstance(record, Admission):
            return check_overdue_admission(record, state, context)
        return check_overdue_retirement(record, state, context)

    def _hook(self, view: _Cluster, hook: ObservedHook) -> Finding | None:
        state, context = self._state_of(view, hook.instance), self._context(view.policy.dry_run)
        if hook.hook.name in EKS_HOOKS:
            finding: Finding | None = check_eks_hook(hook, state.retirement, context)
        else:
            finding = check_hook(hook, state.retirement, state.admission, context)
        kind = NoticeKind.LAUNCH_HOOK if hook.launching else NoticeKind.TERMINATE_HOOK
        # Under a dry run another component answers launch hooks, and each is reported only once.
        acts = view.policy.acts_on(kind) and not (view.policy.dry_run and hook.launching)
        return finding if acts or not isinstance(finding, LostEvent) else None

    def _interruption(
        self, view: _Cluster, interruption: ObservedInterruption, launched_at: datetime
    ) -> Finding | None:
        retirement = self._state_of(view, interruption.instance).retirement
        context = self._context(view.policy.dry_run)
        return check_interruption(interruption, launched_at, retirement, context)

    def _change(self, view: _Cluster, change: ObservedChange) -> Finding | None:
        retirement = self._state_of(view, change.instance).retirement
        policy = view.policy.notices[NoticeKind.SCHEDULED_CHANGE]
        return check_scheduled_change(
            change, retirement, policy, self._context(view.policy.dry_run)
        )

    def _cancelled_change(
        self, view: _Cluster, retirement: Retirement, changes: Sequence[ObservedChange]
    ) -> Finding | None:
        policy = view.policy.notices[NoticeKind.SCHEDULED_CHANGE]
        return check_cancelled_change(
            retirement, changes, policy, self._context(view.policy.dry_run)
        )

    def _impairment(self, view: _Cluster, impairment: ObservedImpairment) -> Finding | None:
        policy = view.policy.notices[NoticeKind.IMPAIRED_STATUS]
        context = self._context(view.policy.dry_run)
        if check_impairment(impairment, None, policy, context) is None:
            return None  # tolerated: its record need not be read
        retirement = self._state_of(view, impairment.instance).retirement
        return check_impairment(impairment, retirement, policy, context)

    def _recovery(
        self, view: _Cluster, retirement: Retirement, impairments: Sequence[ObservedImpairment]
    ) -> Finding | None:
        policy = view.policy.notices[NoticeKind.IMPAIRED_STATUS]
        return check_recovery(retirement, impairments, policy, self._context(view.policy.dry_run))

    def _state(self, view: _Cluster, instance: ObservedInstance) -> Finding | None:
        retirement = self._state_of(view, instance.facts.instance).retirement
        return check_state(instance, retirement, self._context(view.policy.dry_run))

    def _marked(
        self,
        instance: ObservedInstance,
        policy: ClusterPolicy,
        changes: Sequence[ObservedChange] | None,
    ) -> Finding | None:
        facts = instance.facts
        retirement = read_instance(self._table, facts.instance, [facts.cluster]).retirement
        context = self._context(policy.dry_run)
        finding = check_restart(instance, retirement, context)
        if finding is not None or changes is None:
            return finding
        change_policy = policy.notices[NoticeKind.SCHEDULED_CHANGE]
        return check_completed_change(instance, retirement, changes, change_policy, context)

    def _detached(self, record: Retirement) -> Finding | None:
        """Read the state of the instance by its id: the list of instances depends on tags, and is
        older than the record."""
        context = self._context(dry_run=False)
        if not may_be_left_running(record, context.now):
            return None
        state = self._sweep.states([record.instance]).get(record.instance)
        return check_detached_instance(record, state, context)

    def _state_of(self, view: _Cluster, instance: str) -> InstanceState:
        """Return the records of an instance; closed ones are read from the table."""
        found = view.open_states.get(instance)
        return found or read_instance(self._table, instance, [view.name])


def _unread(what: str, error: str) -> Reason:
    return RECONCILE_INCOMPLETE(what=f"read {what}", error=error)


def _run(checks: Sequence[Check], problems: Sequence[Reason]) -> SearchResult:
    """Run all checks; a check that fails is a problem, and the others go on."""

    def run(check: Check) -> Finding | Reason | None:
        try:
            return check()
        except Exception as error:  # noqa: BLE001 (reported; the other checks go on)
            return _unread("records", describe_error(error))

    results = in_parallel(run, checks, INSTANCE_CONCURRENCY)
    failed = [one for one in results if isinstance(one, Reason)]
    findings = [one for one in results if one is not None and not isinstance(one, Reason)]
    return SearchResult(tuple(findings), (*problems, *failed))


def _by_instance(records: Sequence[Retirement | Admission]) -> dict[str, InstanceState]:
    """Group open records by instance. An instance with an open admission only is left out: it may
    have a closed retirement, which is read when a check needs it."""
    retirements = {r.instance: r for r in records if isinstance(r, Retirement)}
    admissions = {a.instance: a for a in records if isinstance(a, Admission)}
    return {
        name: InstanceState(record, None, admissions.get(name))
        for name, record in retirements.items()
    }
