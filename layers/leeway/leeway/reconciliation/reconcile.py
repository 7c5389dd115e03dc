"""Use case: once a minute, what events did not tell is found and made good, and the index kept.

Everything is derived from what is, so that a run that is missed, late or doubled does no harm. Each
cluster, and each part of the work on it, fails for itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from leeway.clock import Clock
from leeway.failures import describe_error
from leeway.instances.facts import InstanceFacts
from leeway.instances.observed import ObservedChange, ObservedInstance
from leeway.interruption.receive_notice import NoticeResult as Became
from leeway.interruption.receive_notice import ReceiveNotice
from leeway.notices import INSTANCE_ID
from leeway.notices.synthetic import EventOrigin
from leeway.parallel import in_parallel
from leeway.policy.ports import ClusterPolicies
from leeway.policy.rules import ClusterPolicy
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
from leeway.reconciliation.clean_up import Cleaned, Cleaning, CleanUpResult
from leeway.reconciliation.find_lost_events import HANDS, Finding, Region, Search
from leeway.reconciliation.lost_events import GONE, Lost, LostAnswer, LostStart, Omission
from leeway.reconciliation.ports import ClusterLeftovers, Index, Unfinished
from leeway.typed_json import adapter_of

AT_ONCE = 32
"""Clusters that are looked at at the same time: an API server that does not answer has a thread for
itself, and keeps no other cluster waiting."""

ENOUGH = timedelta(seconds=40)
"""How long a run goes on cleaning up after instances: the next minute's run does the rest."""

_TROUBLE = (CloudUnavailable, CloudRefused, ClusterUnavailable, ClusterRefused)


@dataclass(frozen=True, slots=True)
class Round:
    """What one run is for: all clusters or, where an instance is named, what that one leaves."""

    instance: Annotated[str, Field(pattern=f"^({INSTANCE_ID})?$")] = ""
    cluster: str = ""


def parse_round(event: Any) -> Round:
    """Read what the function was started with.

    Raises:
        ValueError: it is no round; the message names the field and what was expected.
    """
    return adapter_of(Round).validate_python(event)


@dataclass(frozen=True, slots=True)
class Found:
    """Something that no event told: why that is so, and what was done about it."""

    instance: str
    reason: str
    done: str


@dataclass(slots=True)
class ClusterReport:
    """One cluster after a run. `instances` is how many it has, None where they were not looked at;
    `written` and `removed` count items of the index."""

    cluster: str
    instances: int | None = None
    written: int = 0
    removed: int = 0
    found: list[Found] = field(default_factory=list)
    cleaned: list[Cleaned] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def guard[T](self, what: str, work: Callable[[], T]) -> T | None:
        """Do a part of the work; None where it could not be done, which is noted.

        Whatever fails: what nobody foresaw in one part must not take the others with it, nor the
        other clusters.
        """
        try:
            return work()
        except Exception as error:  # noqa: BLE001 (it is said, counted, and makes an alarm)
            self.problems.append(f"{what}: {describe_error(error)}")
            return None


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What reconciling takes. `clusters` are those under Leeway's care. `hasty_sweep` gives up soon
    where EC2 throttles."""

    clusters: frozenset[str]
    place: EventOrigin
    sweep: Sweep
    hasty_sweep: Sweep
    waiting: WaitingActions
    groups: Groups
    index: Index
    records: Unfinished
    policies: ClusterPolicies
    reception: ReceiveNotice
    retire_node: RetireNode
    admit_node: AdmitNode
    open_cluster: Callable[[str], ClusterLeftovers]
    clock: Clock


class Reconciliation:
    """Reconciles clusters with what events told of them."""

    def __init__(self, world: Dependencies) -> None:
        self._world = world
        self._cleaning = Cleaning(world.sweep, world.open_cluster, world.clock)
        self._cleaning_at_once = Cleaning(world.hasty_sweep, world.open_cluster, world.clock)
        self._finding = Finding(world.records, world.waiting, world.sweep, world.place, world.clock)

    def run(self, wanted: Round) -> tuple[ClusterReport, ...]:
        """Look at everything once, or clean up after one instance.

        Raises:
            CloudUnavailable, CloudRefused: nothing could be looked at.
        """
        if wanted.instance:
            return (self._clean_up_after(wanted),)
        names = sorted(self._world.clusters)
        if not names:
            return ()
        region, unseen = self._see(names)
        reports = in_parallel(partial(self._reconcile, region), names, AT_ONCE)
        for report in reports:
            report.problems.extend(unseen)
        return tuple(reports)

    def _see(self, names: Sequence[str]) -> tuple[Region, list[str]]:
        """Look at what AWS shows all at once, and say what could not be looked at."""
        sweep, report = self._world.sweep, ClusterReport("")
        instances = sweep.instances(names)
        interruptions = report.guard("Spot requests", lambda: list(sweep.interruptions()))
        changes = report.guard("scheduled events", lambda: list(sweep.changes()))
        impairments = report.guard("status checks", lambda: list(sweep.impairments()))
        return Region(instances, interruptions or (), changes, impairments), report.problems

    def _clean_up_after(self, wanted: Round) -> ClusterReport:
        """Clean up after an instance that is on record as one of a cluster under Leeway's care.

        In a storm there is one of these for each of hundreds, and the next minute's run asks EC2
        about all of them at once: what is throttled here, or fails in any other known way, is left
        to that, which tells of what it cannot do either.
        """
        report = ClusterReport(wanted.cluster)
        try:
            known = self._world.records.known(wanted.instance)
            facts = known.facts or (known.retirement.facts if known.retirement else None)
            report.cluster = facts.cluster if facts else wanted.cluster
            if facts is not None and facts.cluster in self._world.clusters:
                report.cleaned.append(self._cleaning_at_once.clean(facts))
        except _TROUBLE as error:
            why = f"the next minute's run cleans up: {describe_error(error)}"
            later = Cleaned(CleanUpResult.LATER, wanted.instance, report.cluster, "", why)
            report.cleaned.append(later)
        return report

    def _reconcile(self, region: Region, cluster: str) -> ClusterReport:
        report = ClusterReport(cluster)
        report.guard("the cluster", partial(self._look_after, report, region))
        return report

    def _look_after(self, report: ClusterReport, region: Region) -> None:
        cluster = report.cluster
        policy = self._world.policies.policy_of(cluster)
        ours = {one.facts.instance: one for one in region.instances if one.facts.cluster == cluster}
        report.instances = len(ours)
        search = report.guard("records", lambda: self._finding.search(cluster, policy, region))
        self._make_good(report, search or Search((), ()), policy.dry_run)
        index = report.guard("index", lambda: self._world.index.of_cluster(cluster))
        if index is None:
            return
        remains = None
        if not policy.dry_run:
            remains = report.guard("nodes", lambda: self._clean_up(report, policy, ours, index))
        if remains is not None:
            free = partial(self._free_who_stays, report, policy, ours, region.changes)
            report.guard("marked nodes", free)
        report.guard("index", lambda: self._keep_index(report, ours, index, remains))

    def _make_good(self, report: ClusterReport, search: Search, dry_run: bool) -> None:
        report.problems.extend(search.problems)
        found = [o for o in search.found if not (dry_run and isinstance(o, LostAnswer))]
        done = in_parallel(partial(self._act_guarded, report), found, HANDS)
        for omission, what in zip(found, done, strict=True):
            if what is not None:
                report.found.append(Found(omission.instance, omission.reason, what))

    def _act_guarded(self, report: ClusterReport, omission: Omission) -> str | None:
        what = f"{omission.instance}: {omission.reason}"
        return report.guard(what, partial(self._act, omission))

    def _act(self, omission: Omission) -> str | None:
        """Do what the event would have led to; what that was, in words. None where it had led to it
        already."""
        world = self._world
        match omission:
            case Lost():
                receipt = world.reception.receive(omission.event, omission.begun)
                if all(one.result is Became.KNOWN for one in receipt.instances):
                    return None  # somebody said so after all
                return "; ".join(f"{one.result}: {one.reason}" for one in receipt.instances)
            case LostStart():
                start = world.admit_node.start if omission.admission else world.retire_node.start
                start(omission.instance, omission.cluster, omission.attempt)
                return f"started attempt {omission.attempt} again"
            case LostAnswer():
                try:
                    world.groups.complete(omission.instance, omission.hook, omission.result)
                except LifecycleActionOver:
                    return f"{omission.hook.name} waits no more"
                return f"answered {omission.hook.name} with {omission.result}"

    def _clean_up(
        self,
        report: ClusterReport,
        policy: ClusterPolicy,
        ours: Mapping[str, ObservedInstance],
        index: Mapping[str, InstanceFacts],
    ) -> frozenset[str]:
        """Clean up what instances left that are gone; the instances whose Node is still there.

        Only instances that were once seen as this cluster's count: a node of another account, or
        none of EC2's, is not in the list either, and it is not gone.
        """
        until = self._world.clock.now() + ENOUGH
        left: dict[str, tuple[InstanceFacts, Node]] = {}
        remaining: set[str] = set()
        several: set[str] = set()  # more Nodes than one name them: the next tick sees to the rest
        cluster = self._world.open_cluster(report.cluster)
        for node in cluster.unready():
            instance = node.provider_id.rsplit("/", 1)[-1]
            there = ours.get(instance)
            facts = there.facts if there else index.get(instance)
            if facts is None or (there is not None and there.state not in GONE):
                continue
            if instance in remaining:
                several.add(instance)
            remaining.add(instance)
            if policy.retires_nodes_of(facts.owner):
                left[instance] = facts, node
        if not left:
            return frozenset(remaining)
        # All at once: a call for each of a storm's instances would empty EC2's bucket, and a list
        # of all attachments for each would have the API server do little else.
        seen = self._cleaning.look(left, cluster)

        def clean(instance: str) -> Cleaned | None:
            if self._world.clock.now() >= until:
                return None
            facts, node = left[instance]
            # Volumes of many nodes would take longer than a tick: the next one sees whether they
            # went.
            work = partial(self._cleaning.clean, facts, node, timedelta(0), seen[instance])
            return report.guard(f"{instance}: what it leaves", work)

        done = in_parallel(clean, list(left), HANDS)
        report.cleaned.extend(cleaned for cleaned in done if cleaned is not None)
        done_with = {one.instance for one in report.cleaned if one.result is CleanUpResult.CLEANED}
        return frozenset(remaining) - (done_with - several)

    def _free_who_stays(
        self,
        report: ClusterReport,
        policy: ClusterPolicy,
        ours: Mapping[str, ObservedInstance],
        changes: Sequence[ObservedChange] | None,
    ) -> None:
        """Look among the nodes that are marked as retiring for some whose instance is to stay."""
        marked = set(self._world.open_cluster(report.cluster).retiring())
        seen = [
            one
            for name, one in ours.items()
            if one.state == "running" and {one.facts.private_dns_name, name} & marked
        ]
        self._make_good(report, self._finding.returned(seen, policy, changes), dry_run=False)

    def _keep_index(
        self,
        report: ClusterReport,
        ours: Mapping[str, ObservedInstance],
        index: Mapping[str, InstanceFacts],
        remaining: frozenset[str] | None,
    ) -> None:
        """Write what differs. What EC2 lists no more is forgotten when its Node is gone too, and
        not while nobody knows whether it is. Of what is gone EC2 tells no names any more, by which
        its Node is found."""
        written = [
            one.facts
            for name, one in ours.items()
            if index.get(name) != one.facts and not (name in index and one.state in GONE)
        ]
        gone = []
        if remaining is not None:
            gone = [name for name in index if name not in ours and name not in remaining]
        self._world.index.update(written, gone)
        report.written, report.removed = len(written), len(gone)
