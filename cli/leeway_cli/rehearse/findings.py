"""What a rehearsal finds, and for each finding the line of a manifest that changes it. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from leeway.policy.rules import SAFETY_MARGIN, SPOT_WARNING
from leeway.reasons import Reason
from leeway.retirement.pods import DETACH_TIME
from leeway.retirement.progress import RemovalMethod
from leeway.selection.pods import PodSpec

from leeway_cli.rehearse.changes import (
    Change,
    add_replicas,
    allow,
    create_controller,
    delete_budget,
    edit,
    keep_zone_free,
    make_room,
    own_nodes,
    shorten_grace,
    spread_pods,
)
from leeway_cli.rehearse.cluster import Budget, Cluster, Workload
from leeway_cli.rehearse.pace import Pace
from leeway_cli.rehearse.rounds import below, budgets_of, ready_before
from leeway_cli.rehearse.series import moments_below
from leeway_cli.rehearse.storm import SETTLED_AFTER, Fate, Storm

_SHORTEST_OUTAGE = 1.0
"""Seconds. Shorter ones are within the accuracy of a rehearsal."""

type _Found = tuple[str, float, Finding]
"""The object that a finding is about, how bad it is, and the finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about one object in its worst round. `pods` are those that it concerns in that
    round. `rounds` is in how many rounds it occurs."""

    reason: Reason
    change: Change
    pods: tuple[str, ...] = ()
    rounds: int = 1


def find(cluster: Cluster, storms: Iterable[Storm], pace: Pace) -> tuple[Finding, ...]:
    """Return the findings of all rounds, the most frequent kinds of harm first."""
    worst: dict[tuple[str, str], tuple[float, Finding]] = {}
    rounds: dict[tuple[str, str], int] = defaultdict(int)
    for storm in storms:
        seen = set()
        for about, badness, finding in _in_round(cluster, storm, pace):
            key = finding.reason.code, about
            seen.add(key)
            if key not in worst or badness > worst[key][0]:
                worst[key] = badness, finding
        for key in seen:
            rounds[key] += 1
    found = [replace(finding, rounds=rounds[key]) for key, (_, finding) in worst.items()]
    order = {code: place for place, code in enumerate(_ORDER)}
    found.sort(key=lambda one: (order[one.reason.code], -one.rounds, one.change.object))
    return tuple(found)


_ORDER = (
    "NoController",
    "VolumeBoundToZone",
    "NoRoom",
    "NotReadyAgain",
    "PodRunsUntilTheEnd",
    "ReturnsToNode",
    "SingleReplica",
    "AllReplicasLost",
    "BudgetNeverAllows",
    "BudgetNotComputed",
    "PodHasSeveralBudgets",
    "BudgetAllowsTooLate",
    "BelowBudget",
    "GraceExceedsNotice",
    "FinalizersKeepObject",
    "OwnerDrainsNode",
)
"""The kinds of findings, the worst first."""


def _in_round(cluster: Cluster, storm: Storm, pace: Pace) -> Iterator[_Found]:
    fates: dict[str, list[Fate]] = defaultdict(list)
    for fate in storm.fates:
        if not fate.left:
            fates[fate.workload].append(fate)
    specs = {
        pod.name: pod.spec for name in storm.lost for pod in cluster.state.movable.get(name, ())
    }
    for key, of_workload in fates.items():
        workload = cluster.workloads[key]
        first = [fate for fate in of_workload if not fate.returned]
        yield from _without_place(workload, first, storm, specs)
        yield from _ends_late(cluster, workload, of_workload, pace)
        yield from _outages(cluster, workload, first, storm)
        yield from _budgets(cluster, workload, first, storm)
    yield from _owners(cluster, storm)


def _without_place(
    workload: Workload, fates: list[Fate], storm: Storm, specs: Mapping[str, PodSpec]
) -> Iterator[_Found]:
    gone = [fate for fate in fates if fate.ready_at is None]
    if not gone:
        return
    names = tuple(fate.pod for fate in gone)
    if not workload.template:
        reason = Reason(
            "NoController",
            f"Pod {workload.namespace}/{workload.name} has no controller: nothing creates it "
            "again.",
        )
        yield workload.key, 1, Finding(reason, create_controller(workload), names)
        return
    unplaced = [name for name in names if name in storm.placements.without]
    if unplaced:
        why = storm.placements.without[unplaced[0]].message
        spec = specs.get(unplaced[0])
        by_volume = spec is not None and spec.affinity is not None
        if by_volume:
            reason = Reason(
                "VolumeBoundToZone",
                f"Pods of {workload.key} have volumes that bind them to one zone, and get no node "
                f"there: {why}",
            )
            change = keep_zone_free(workload)
        else:
            reason = Reason("NoRoom", f"Pods of {workload.key} get no node: {why}")
            change = make_room(workload)
        yield workload.key, len(unplaced), Finding(reason, change, tuple(unplaced))
        return
    minutes = int(SETTLED_AFTER.total_seconds() // 60)
    reason = Reason(
        "NotReadyAgain",
        f"Pods of {workload.key} are not Ready again within {minutes} minutes of the warning.",
    )
    change = edit(workload, "containers[].startupProbe", "")
    yield workload.key, len(names), Finding(reason, change, names)


def _ends_late(
    cluster: Cluster, workload: Workload, fates: list[Fate], pace: Pace
) -> Iterator[_Found]:
    pods = {one.pod.key: one for one in cluster.pods if one.workload == workload.key}
    returned = tuple(dict.fromkeys(fate.pod for fate in fates if fate.returned))
    if returned:
        change = edit(workload, "tolerations", "without operator: Exists for every key")
        reason = Reason(
            "ReturnsToNode",
            f"Pods of {workload.key} tolerate every taint: the scheduler may bind their "
            "successors to a node that is about to end, where they run until it ends.",
        )
        yield workload.key, len(returned), Finding(reason, change, returned)
    died = [fate for fate in fates if fate.died and not fate.returned]
    if died and not returned:
        progress = died[0].progress
        why = progress.reason.message if progress else "it appeared after the drain."
        reason = Reason(
            "PodRunsUntilTheEnd",
            f"Pods of {workload.key} still run when EC2 ends the instance: {why}",
        )
        names = tuple(fate.pod for fate in died)
        yield workload.key, len(died), Finding(reason, shorten_grace(workload, 30), names)
    kept = tuple(fate.pod for fate in fates if pods[fate.pod].finalizers)
    if kept:
        names_of = ", ".join(pods[kept[0]].finalizers)
        reason = Reason(
            "FinalizersKeepObject",
            f"Pods of {workload.key} stay as objects after their end, kept by {names_of}.",
        )
        change = edit(workload, "metadata.finalizers", f"without {names_of}")
        yield workload.key, len(kept), Finding(reason, change, kept)
    room = SPOT_WARNING - SAFETY_MARGIN
    for fate in sorted(fates, key=lambda one: one.granted or 0.0):
        running = pods[fate.pod]
        most = room.total_seconds() - pace.late - pace.reaction
        most -= DETACH_TIME.total_seconds() if running.pod.claims else 0
        if fate.cut and fate.granted is not None and running.pod.grace > most:
            own = running.pod.grace if running.stops_in is None else round(running.stops_in)
            reason = Reason(
                "GraceExceedsNotice",
                f"Pods of {workload.key} may take {own} s to end and get {fate.granted:.0f} s "
                "before the deadline.",
            )
            names = tuple(one.pod for one in fates if one.cut)
            change = shorten_grace(workload, max(1, int(most // 5 * 5)))
            yield workload.key, -fate.granted, Finding(reason, change, names)
            return


def _outages(
    cluster: Cluster, workload: Workload, fates: list[Fate], storm: Storm
) -> Iterator[_Found]:
    before = ready_before(cluster, workload.key)
    if not workload.template or not before:
        return
    down, still = moments_below(storm.ready[workload.key], 1, storm.until)
    if down < _SHORTEST_OUTAGE:
        return
    shown = f"{down:.0f} s" + (" and longer" if still else "")
    names = tuple(fate.pod for fate in fates)
    if workload.replicas == 1:
        reason = Reason(
            "SingleReplica", f"{workload.key} has one replica and is not Ready for {shown}."
        )
        yield workload.key, down, Finding(reason, add_replicas(workload, 2), names)
    else:
        reason = Reason(
            "AllReplicasLost",
            f"All {before} Ready pods of {workload.key} are on lost nodes, and it has none "
            f"Ready for {shown}.",
        )
        yield workload.key, down, Finding(reason, spread_pods(workload), names)


def _budgets(
    cluster: Cluster, workload: Workload, fates: list[Fate], storm: Storm
) -> Iterator[_Found]:
    budgets = budgets_of(cluster, workload.key)
    forced = [
        fate
        for fate in fates
        if fate.progress is not None
        and fate.progress.budgets
        and (fate.progress.method is RemovalMethod.DELETE or fate.died)
    ]
    names = tuple(fate.pod for fate in forced)
    if forced and len(budgets) > 1:
        shown = ", ".join(budget.key for budget in budgets)
        reason = Reason(
            "PodHasSeveralBudgets",
            f"Pods of {workload.key} have several budgets ({shown}), and the API server evicts "
            "no such pod.",
        )
        yield workload.key, len(forced), Finding(reason, delete_budget(budgets[-1]), names)
    elif forced and budgets:
        yield (
            budgets[0].key,
            len(forced),
            Finding(
                _why_forced(budgets[0], forced),
                allow(budgets[0], workload, _evictions(budgets[0], len(forced))),
                names,
            ),
        )
    for budget in budgets:
        missed = below(storm, budget)
        never = budget.problem or budget.desired >= budget.expected
        if missed >= _SHORTEST_OUTAGE and not never and workload.replicas > 1:
            lowest = min(number for _, number in storm.healthy[budget.key].steps)
            reason = Reason(
                "BelowBudget",
                f"{workload.key} is below budget {budget.key} for {missed:.0f} s: {lowest} of "
                f"{budget.desired} pods are healthy.",
            )
            more = workload.replicas + max(1, budget.desired - lowest)
            change = add_replicas(workload, more)
            yield budget.key, missed, Finding(reason, change, tuple(f.pod for f in fates))


def _why_forced(budget: Budget, forced: list[Fate]) -> Reason:
    ends = [fate.ended_at - (fate.granted or 0) for fate in forced if fate.ended_at is not None]
    latest = max(ends, default=SPOT_WARNING.total_seconds())
    if budget.problem:
        return Reason(
            "BudgetNotComputed",
            f"Budget {budget.key} never allows an eviction, because the disruption controller "
            f"cannot compute it: {budget.problem}.",
        )
    if budget.desired >= budget.expected:
        return Reason(
            "BudgetNeverAllows",
            f"Budget {budget.key} never allows an eviction: {budget.desired} of "
            f"{budget.expected} pods must be healthy. The drain waits until {latest:.0f} s "
            "after the warning and then deletes the pods in spite of it.",
        )
    return Reason(
        "BudgetAllowsTooLate",
        f"Budget {budget.key} ({budget.written}) allows too few evictions in time: from "
        f"{latest:.0f} s after the warning on, pods are deleted in spite of it (pods: "
        f"{len(forced)}).",
    )


def _evictions(budget: Budget, forced: int) -> int:
    """Return how many evictions at a time would have been enough."""
    if budget.problem or budget.desired >= budget.expected:
        return 1
    return budget.expected - budget.desired + forced


def _owners(cluster: Cluster, storm: Storm) -> Iterator[_Found]:
    for node in sorted(storm.lost):
        if owner := cluster.nodes[node].retires_itself:
            reason = Reason(
                "OwnerDrainsNode",
                f"{owner} drains its nodes without Leeway. The rehearsal shows the drain that "
                "Leeway does if the Cluster manifest lists the owner.",
            )
            yield owner, 1, Finding(reason, own_nodes(owner))
