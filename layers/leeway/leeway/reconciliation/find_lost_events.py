"""Use case: collect what no event told of one cluster, from what is there and what is on record."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from leeway.admission.record import Admission
from leeway.clock import Clock
from leeway.failures import describe_error
from leeway.instances.observed import (
    ObservedChange,
    ObservedHook,
    ObservedImpairment,
    ObservedInstance,
    ObservedInterruption,
)
from leeway.interruption.ports import InstanceState
from leeway.lifecycle_hooks.held_hooks import EKS_HOOKS
from leeway.notices import NoticeKind
from leeway.notices.synthetic import EventOrigin
from leeway.parallel import in_parallel
from leeway.policy.rules import ClusterPolicy
from leeway.ports.aws import Sweep, Waiting, WaitingActions
from leeway.reconciliation.lost_events import (
    STOPS_OR_ENDS,
    Lost,
    Omission,
    about_arrival,
    about_called_off,
    about_change,
    about_change_over,
    about_detached,
    about_eks_hook,
    about_hook,
    about_impairment,
    about_interruption,
    about_recovery,
    about_retirement,
    about_return,
    about_start,
    about_state,
    is_detached_too_long,
)
from leeway.reconciliation.ports import Unfinished
from leeway.retirement.record import Retirement

HANDS = 8
"""Instances of a cluster that are seen to at the same time: when a storm's notices got lost, each
of hundreds takes some calls, and has two minutes."""


@dataclass(frozen=True, slots=True)
class Search:
    """What was found, and what could not be looked at, in words."""

    found: tuple[Omission, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """What AWS shows of a region, all at once. `changes` and `impairments` are None where they
    could not be read."""

    instances: Sequence[ObservedInstance]
    interruptions: Sequence[ObservedInterruption] = ()
    changes: Sequence[ObservedChange] | None = None
    impairments: Sequence[ObservedImpairment] | None = None


@dataclass(frozen=True, slots=True)
class _Case:
    """One cluster: its policy, the instances whose owners it covers, and what is under way, by
    instance."""

    policy: ClusterPolicy
    cared: Mapping[str, ObservedInstance]
    known: Mapping[str, InstanceState]


type Look = Callable[[], Omission | None]


class Finding:
    """Searches clusters for what no event told."""

    def __init__(
        self,
        records: Unfinished,
        waiting: WaitingActions,
        sweep: Sweep,
        place: EventOrigin,
        clock: Clock,
    ) -> None:
        self._records = records
        self._waiting = waiting
        self._sweep = sweep
        self._place = place
        self._clock = clock

    def search(self, cluster: str, policy: ClusterPolicy, region: Region) -> Search:
        """Look at all instances of a cluster.

        Raises:
            CloudUnavailable, CloudRefused: its records could not be read, without which nothing
                can be said.
        """
        ours = {one.facts.instance: one for one in region.instances if one.facts.cluster == cluster}
        cared = {
            name: one for name, one in ours.items() if policy.retires_nodes_of(one.facts.owner)
        }
        under_way = self._records.unfinished(cluster)
        case = _Case(policy, cared, _by_instance(under_way.records))
        looks: list[Look] = []
        for record in under_way.records:
            there = ours.get(record.instance)
            looks.append(partial(about_start, record, self._clock.now()))
            state = there.state if there else None
            looks.append(partial(self._record, record, state, policy.dry_run))
            # A rehearsal would rehearse it once a minute. Whoever attaches it to a group keeps it.
            grouped = there is not None and bool(there.group)
            if isinstance(record, Retirement) and not policy.dry_run and not grouped:
                looks.append(partial(self._detached, record))
        problems = [f"records: {wrong}" for wrong in under_way.unread]
        try:
            hooks = self._waiting.of_groups({one.group for one in cared.values() if one.group})
        except Exception as error:  # noqa: BLE001 (it is said, and the rest is looked at)
            hooks = Waiting((), (describe_error(error),))
        problems += [f"lifecycle hooks: {wrong}" for wrong in hooks.unread]
        looks += [partial(self._hook, case, one) for one in hooks.seen if one.instance in cared]
        looks += self._at_interruptions(case, region.interruptions)
        looks += self._at_changes(case, region.changes)
        looks += self._at_impairments(case, region.impairments)
        looks += self._at_instances(case)
        return _collected(looks, problems)

    def returned(
        self,
        seen: Iterable[ObservedInstance],
        policy: ClusterPolicy,
        changes: Sequence[ObservedChange] | None,
    ) -> Search:
        """Look at instances whose nodes are marked as retiring, for some that are to stay.
        `changes` are None where they could not be read."""
        return _collected([partial(self._return, one, policy, changes) for one in seen], [])

    def _at_interruptions(
        self, case: _Case, seen: Iterable[ObservedInterruption]
    ) -> Iterator[Look]:
        if case.policy.acts_on(NoticeKind.SPOT_INTERRUPTION):
            for one in seen:
                there = case.cared.get(one.instance)
                if there is not None and there.state == "running":
                    yield partial(self._interruption, case, one, there.launched_at)

    def _at_changes(self, case: _Case, seen: Sequence[ObservedChange] | None) -> Iterator[Look]:
        if seen is None:
            return  # nobody knows, and nothing is called off
        if case.policy.acts_on(NoticeKind.SCHEDULED_CHANGE):
            yield from (
                partial(self._change, case, one)
                for one in seen
                if one.instance in case.cared and not one.over
            )
        for known in case.known.values():
            if known.retirement is not None:
                yield partial(self._called_off, case, known.retirement, seen)

    def _at_impairments(
        self, case: _Case, seen: Sequence[ObservedImpairment] | None
    ) -> Iterator[Look]:
        if seen is None:
            return  # nobody knows, and nothing is undone
        if case.policy.acts_on(NoticeKind.IMPAIRED_STATUS):
            for one in seen:
                there = case.cared.get(one.instance)
                if there is not None and there.state == "running":
                    yield partial(self._impairment, case, one)
        for known in case.known.values():
            if known.retirement is not None:
                yield partial(self._recovery, case, known.retirement, seen)

    def _at_instances(self, case: _Case) -> Iterator[Look]:
        heeds_states = case.policy.acts_on(NoticeKind.STATE_CHANGE)
        for one in case.cared.values():
            if heeds_states and one.state in STOPS_OR_ENDS:
                yield partial(self._state, case, one)

    def _record(
        self, record: Retirement | Admission, state: str | None, dry_run: bool
    ) -> Omission | None:
        if isinstance(record, Admission):
            return about_arrival(record, state, self._place, self._clock.now())
        return about_retirement(record, state, self._place, self._clock.now(), dry_run)

    def _hook(self, case: _Case, seen: ObservedHook) -> Omission | None:
        on_record = self._known(case, seen.instance)
        retirement, arrival = on_record.retirement, on_record.arrival
        now, dry_run = self._clock.now(), case.policy.dry_run
        if seen.hook.name in EKS_HOOKS:
            omission: Omission | None = about_eks_hook(seen, retirement, self._place, now, dry_run)
        else:
            omission = about_hook(seen, retirement, arrival, self._place, now, dry_run)
        kind = NoticeKind.LAUNCH_HOOK if seen.launching else NoticeKind.TERMINATE_HOOK
        # A rehearsal leaves launches to whoever admits them now, and is told of each only once.
        heeded = case.policy.acts_on(kind) and not (case.policy.dry_run and seen.launching)
        return omission if heeded or not isinstance(omission, Lost) else None

    def _interruption(
        self, case: _Case, seen: ObservedInterruption, launched_at: datetime
    ) -> Omission | None:
        retirement = self._known(case, seen.instance).retirement
        now, dry_run = self._clock.now(), case.policy.dry_run
        return about_interruption(seen, launched_at, retirement, self._place, now, dry_run)

    def _change(self, case: _Case, seen: ObservedChange) -> Omission | None:
        retirement = self._known(case, seen.instance).retirement
        policy = case.policy.notices[NoticeKind.SCHEDULED_CHANGE]
        now, dry_run = self._clock.now(), case.policy.dry_run
        return about_change(seen, retirement, policy, self._place, now, dry_run)

    def _called_off(
        self, case: _Case, retirement: Retirement, seen: Sequence[ObservedChange]
    ) -> Omission | None:
        policy = case.policy.notices[NoticeKind.SCHEDULED_CHANGE]
        return about_called_off(retirement, seen, policy, self._place, self._clock.now())

    def _impairment(self, case: _Case, seen: ObservedImpairment) -> Omission | None:
        policy = case.policy.notices[NoticeKind.IMPAIRED_STATUS]
        now, dry_run = self._clock.now(), case.policy.dry_run
        if about_impairment(seen, None, policy, self._place, now) is None:
            return None  # it is tolerated, and its record need not be read
        retirement = self._known(case, seen.instance).retirement
        return about_impairment(seen, retirement, policy, self._place, now, dry_run)

    def _recovery(
        self, case: _Case, retirement: Retirement, seen: Sequence[ObservedImpairment]
    ) -> Omission | None:
        policy = case.policy.notices[NoticeKind.IMPAIRED_STATUS]
        return about_recovery(retirement, seen, policy, self._place, self._clock.now())

    def _state(self, case: _Case, seen: ObservedInstance) -> Omission | None:
        retirement = self._known(case, seen.facts.instance).retirement
        now, dry_run = self._clock.now(), case.policy.dry_run
        return about_state(seen, retirement, self._place, now, dry_run)

    def _return(
        self,
        seen: ObservedInstance,
        policy: ClusterPolicy,
        changes: Sequence[ObservedChange] | None,
    ) -> Omission | None:
        retirement = self._records.known(seen.facts.instance).retirement
        now = self._clock.now()
        omission = about_return(seen, retirement, self._place, now)
        if omission is not None or changes is None:
            return omission
        here = policy.notices[NoticeKind.SCHEDULED_CHANGE]
        return about_change_over(seen, retirement, changes, here, self._place, now)

    def _detached(self, record: Retirement) -> Omission | None:
        """The list of instances is older than the record, and tags decide what is in it: EC2 is
        asked for the instance's state by its id."""
        now = self._clock.now()
        if not is_detached_too_long(record, now):
            return None
        state = self._sweep.states([record.instance]).get(record.instance)
        return about_detached(record, state, self._place, now)

    def _known(self, case: _Case, instance: str) -> InstanceState:
        """Return what is on record of an instance; what is not under way takes a read."""
        return case.known.get(instance) or self._records.known(instance)


def _collected(looks: Sequence[Look], problems: list[str]) -> Search:
    """Take all looks; one that fails is a problem, and the others go on."""

    def take(look: Look) -> Omission | str | None:
        try:
            return look()
        except Exception as error:  # noqa: BLE001 (it is said, and the rest is looked at)
            return f"records: {describe_error(error)}"

    seen = in_parallel(take, looks, HANDS)
    problems += [one for one in seen if isinstance(one, str)]
    found = [one for one in seen if one is not None and not isinstance(one, str)]
    return Search(tuple(found), tuple(problems))


def _by_instance(unfinished: Sequence[Retirement | Admission]) -> dict[str, InstanceState]:
    """Collect what is under way, by instance. One whose admission is under way may have a
    retirement that has ended: it is left out, and read when it matters."""
    retirements = {r.instance: r for r in unfinished if isinstance(r, Retirement)}
    arrivals = {a.instance: a for a in unfinished if isinstance(a, Admission)}
    both = retirements.keys() & arrivals.keys()
    return {name: InstanceState(retirements[name], None, arrivals[name]) for name in both} | {
        name: InstanceState(record) for name, record in retirements.items() if name not in both
    }
