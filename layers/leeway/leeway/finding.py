"""Use case: collect what no event told of one cluster, from what is there and what is on record."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from leeway.arrivals import Arrival
from leeway.clock import Clock
from leeway.cloud.ports import Known, Sweep, Unfinished, WaitingActions
from leeway.hooks import EKS_HOOKS
from leeway.notices import NoticeKind
from leeway.notices.synthetic import Place
from leeway.omissions import (
    Lost,
    Omission,
    SeenHook,
    SeenInstance,
    SeenInterruption,
    about_arrival,
    about_detached,
    about_eks_hook,
    about_hook,
    about_interruption,
    about_retirement,
    about_start,
)
from leeway.owners import OwnerKind
from leeway.policies import ClusterPolicy
from leeway.records import Retirement
from leeway.troubles import told


@dataclass(frozen=True, slots=True)
class Search:
    """What was found, and what could not be looked at, in words."""

    found: tuple[Omission, ...]
    problems: tuple[str, ...]


class Finding:
    """Searches clusters for what no event told."""

    def __init__(
        self,
        records: Unfinished,
        waiting: WaitingActions,
        sweep: Sweep,
        place: Place,
        clock: Clock,
    ) -> None:
        self._records = records
        self._waiting = waiting
        self._sweep = sweep
        self._place = place
        self._clock = clock

    def search(
        self,
        cluster: str,
        policy: ClusterPolicy,
        seen: Collection[SeenInstance],
        interruptions: Sequence[SeenInterruption],
    ) -> Search:
        """Look at all instances of a cluster. `seen` are all that it has.

        Raises:
            CloudUnavailable, CloudRefused: its records could not be read, without which nothing
                can be said.
        """
        unfinished = self._records.unfinished(cluster)
        states = {one.facts.instance: one.state for one in seen}
        cared = {one.facts.instance: one for one in seen if policy.covers(one.facts.owner)}
        looks: list[Callable[[], Omission | None]] = []
        for record in unfinished:
            looks.append(partial(about_start, record, self._clock.now()))
            looks.append(partial(self._record, record, states.get(record.instance)))
        known = _by_instance(unfinished)
        problems: list[str] = []
        try:
            hooks = self._waiting.of_groups({one.group for one in cared.values() if one.group})
        except Exception as error:  # noqa: BLE001 (it is said, and the rest is looked at)
            hooks = ()
            problems.append(f"lifecycle hooks: {told(error)}")
        looks += [partial(self._hook, one, known, policy) for one in hooks if one.instance in cared]
        if policy.heeds(NoticeKind.SPOT_INTERRUPTION):
            runs = {name for name, one in cared.items() if one.state == "running"}
            marked = (one for one in interruptions if one.instance in runs)
            looks += [partial(self._interruption, one, known, policy) for one in marked]
        if not policy.dry_run:  # which would rehearse it once a minute
            detached = (o for o in cared.values() if o.facts.owner.kind is OwnerKind.DETACHED)
            looks += [partial(self._detached, one, known) for one in detached]
        found: list[Omission] = []
        for look in looks:
            try:
                omission = look()
            except Exception as error:  # noqa: BLE001 (it is said, and the rest is looked at)
                problems.append(f"records: {told(error)}")
            else:
                found += [omission] if omission is not None else []
        return Search(tuple(found), tuple(problems))

    def _record(self, record: Retirement | Arrival, state: str | None) -> Omission | None:
        if isinstance(record, Arrival):
            return about_arrival(record, state, self._place, self._clock.now())
        return about_retirement(record, state, self._place, self._clock.now())

    def _hook(
        self, seen: SeenHook, known: Mapping[str, Known], policy: ClusterPolicy
    ) -> Omission | None:
        on_record = self._known(seen.instance, known)
        retirement, arrival = on_record.retirement, on_record.arrival
        now, dry_run = self._clock.now(), policy.dry_run
        if seen.hook.name in EKS_HOOKS:
            omission: Omission | None = about_eks_hook(seen, retirement, self._place, now, dry_run)
        else:
            omission = about_hook(seen, retirement, arrival, self._place, now, dry_run)
        kind = NoticeKind.LAUNCH_HOOK if seen.launching else NoticeKind.TERMINATE_HOOK
        # A rehearsal leaves launches to whoever admits them now, and is told of each only once.
        heeded = policy.heeds(kind) and not (policy.dry_run and seen.launching)
        return omission if heeded or not isinstance(omission, Lost) else None

    def _interruption(
        self, seen: SeenInterruption, known: Mapping[str, Known], policy: ClusterPolicy
    ) -> Omission | None:
        retirement = self._known(seen.instance, known).retirement
        now = self._clock.now()
        return about_interruption(seen, retirement, self._place, now, policy.dry_run)

    def _detached(self, seen: SeenInstance, known: Mapping[str, Known]) -> Omission | None:
        """What runs in a list of before, and has been retired by now, may have ended in between:
        EC2 is asked again."""
        instance = seen.facts.instance
        retirement = self._known(instance, known).retirement
        omission = about_detached(seen, retirement, self._place, self._clock.now())
        if omission is None or self._sweep.states([instance]).get(instance) != seen.state:
            return None
        return omission

    def _known(self, instance: str, known: Mapping[str, Known]) -> Known:
        """Return what is on record of an instance; what is not under way takes a read."""
        return known.get(instance) or self._records.known(instance)


def _by_instance(unfinished: Sequence[Retirement | Arrival]) -> dict[str, Known]:
    """Collect what is under way, by instance. One whose admission is under way may have a
    retirement that has ended: it is left out, and read when it matters."""
    retirements = {r.instance: r for r in unfinished if isinstance(r, Retirement)}
    arrivals = {a.instance: a for a in unfinished if isinstance(a, Arrival)}
    both = retirements.keys() & arrivals.keys()
    return {name: Known(retirements[name], None, arrivals[name]) for name in both} | {
        name: Known(record) for name, record in retirements.items() if name not in both
    }
