"""What a rehearsal finds, and for each finding the line of a manifest that changes it. Pure."""

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leeway.kubernetes.translate import is_subdomain
from leeway.policy.rules import SAFETY_MARGIN, SPOT_WARNING
from leeway.printable import printable
from leeway.reasons import counted
from leeway.retirement.pods import DETACH_TIME
from leeway.retirement.progress import RemovalMethod
from leeway.selection.pods import PodSpec

from leeway_cli.rehearse.cluster import Budget, Cluster, Pace, Workload
from leeway_cli.rehearse.rounds import below, budgets_of, ready_before
from leeway_cli.rehearse.storm import SETTLED_AFTER, Fate, Storm
from leeway_cli.rehearse.world import moments_below

_PATCHED = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})
"""Workloads whose spec `kubectl patch` changes."""

_EDITED = _PATCHED | {"DaemonSet", "CronJob"}
"""Workloads whose pod template may change. That of a Job may not. Source: Kubernetes API reference,
batch/v1 Job."""

_TASKS = frozenset({"Job", "CronJob"})
"""Workloads whose pods do a task and end. They have no replicas: a lost pod begins again."""

_WITHOUT_SCALE = _TASKS | {"Pod"}
"""Workloads whose budgets can have an integer minAvailable alone. Source: Kubernetes documentation,
"Specifying a Disruption Budget for your Application", "Arbitrary workloads and arbitrary
selectors"."""


@dataclass(frozen=True, slots=True)
class Change:
    """A line of a manifest. `object` is `Kind namespace/name`, `field` a path in it, `value` what
    it should be (empty: see the field). `manager` writes the object today; `command` is empty if
    the line can't be written by a command."""

    object: str
    field: str
    value: str
    manager: str = ""
    command: str = ""

    @property
    def line(self) -> str:
        """The line, such as `spec.replicas: 2`."""
        return f"{self.field}: {self.value}" if self.value else self.field


def shorten_grace(workload: Workload, seconds: int) -> Change:
    """End within the time of a notice."""
    path = (*workload.template.rstrip(".").split("."), "spec", "terminationGracePeriodSeconds")
    return _patched(workload, tuple(part for part in path if part), seconds)


def add_replicas(workload: Workload, replicas: int) -> Change:
    """Run more pods. Which field says how many is known of kinds of Kubernetes alone."""
    if workload.kind not in _PATCHED:
        number = counted(replicas, "pod")
        value = f"{number}, in the field that {workload.kind} has for their number"
        return Change(workload.key, "spec", value, workload.manager)
    return _patched(workload, ("spec", "replicas"), replicas)


def edit(workload: Workload, path: str, value: str) -> Change:
    """Change a field of the pods that no patch can change without its other entries."""
    inside = path if path.startswith("metadata.") else f"spec.{path}"
    return _edited(workload, f"{workload.template}{inside}", value)


def allow(budget: Budget, workload: Workload, evictions: int) -> Change:
    """Allow more evictions at a time; of a single pod, besides, run another one."""
    field, other, number = "maxUnavailable", "minAvailable", evictions
    if workload.kind in _WITHOUT_SCALE:
        field, other, number = other, field, max(0, budget.expected - evictions)
    command = ""
    if _named(budget.namespace, budget.name):
        patch = json.dumps({"spec": {other: None, field: number}})
        command = _kubectl(budget.namespace, "patch", "pdb", budget.name, patch)
    more = workload.replicas == 1 and workload.kind in _PATCHED
    value = str(number) + (f", and spec.replicas: 2 of {workload.key}" if more else "")
    return Change(
        f"PodDisruptionBudget {budget.key}", f"spec.{field}", value, budget.manager, command
    )


def delete_budget(budget: Budget) -> Change:
    """Keep one budget for a pod."""
    command = ""
    if _named(budget.namespace, budget.name):
        command = _kubectl(budget.namespace, "delete", "pdb", budget.name)
    title, value = f"PodDisruptionBudget {budget.key}", "of other pods, or delete the budget"
    return Change(title, "spec.selector", value, budget.manager, command)


def own_nodes(owner: str) -> Change:
    """Let Leeway drain the nodes of another controller."""
    kind = "managed-node-group" if owner.startswith("managed") else "karpenter"
    kind = "auto-mode" if owner.startswith("EKS") else kind
    return Change("Cluster (leeway.sh)", "spec.takes", f"[{kind}]", "leeway apply")


def _patched(workload: Workload, path: tuple[str, ...], value: int) -> Change:
    command = ""
    if workload.kind in _PATCHED and _named(workload.namespace, workload.name):
        patch: Any = value
        for part in reversed(path):
            patch = {part: patch}
        kind = workload.kind.lower()
        command = _kubectl(workload.namespace, "patch", kind, workload.name, json.dumps(patch))
    return Change(workload.key, ".".join(path), str(value), workload.manager, command)


def _edited(workload: Workload, path: str, value: str) -> Change:
    command = ""
    if workload.kind in _EDITED and _named(workload.namespace, workload.name):
        command = _kubectl(workload.namespace, "edit", workload.kind.lower(), workload.name)
    return Change(workload.key, path, value, workload.manager, command)


def _named(namespace: str, name: str) -> bool:
    """Whether both are names that Kubernetes accepts: no others get into a command."""
    return is_subdomain(namespace) and is_subdomain(name)


def _kubectl(namespace: str, verb: str, kind: str, name: str, patch: str = "") -> str:
    words = ["kubectl", "--namespace", printable(namespace), verb, kind, name]
    return shlex.join([*words, "--type", "merge", "--patch", patch] if patch else words)


_SHORTEST_OUTAGE = 1.0
"""Seconds. Shorter ones are within the accuracy of a rehearsal."""

type _Found = tuple[str, float, Finding]
"""The object that a finding is about, how bad it is, and the finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about one object in its worst round. `pods` are those that it concerns in that
    round. `rounds` is in how many rounds it occurs."""

    code: str
    message: str
    change: Change
    pods: tuple[str, ...] = ()
    rounds: int = 1


def find(
    cluster: Cluster, storms: Iterable[Storm], pace: Pace, planned: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Return the findings of all rounds, the most frequent kinds of harm first. `planned` has
    sentences for workloads that budgets keep: what a planned retirement does."""
    worst: dict[tuple[str, str], tuple[float, Finding]] = {}
    rounds: dict[tuple[str, str], int] = defaultdict(int)
    for storm in storms:
        seen = set()
        for about, badness, finding in _in_round(cluster, storm, pace, planned):
            key = finding.code, about
            seen.add(key)
            if key not in worst or badness > worst[key][0]:
                worst[key] = badness, finding
        for key in seen:
            rounds[key] += 1
    found = [
        replace(finding, rounds=rounds[key], change=_placed(finding.change, cluster.kubectl))
        for key, (_, finding) in worst.items()
    ]
    order = {code: place for place, code in enumerate(_ORDER)}
    found.sort(key=lambda one: (order[one.code], -one.rounds, one.change.object))
    return tuple(found)


def _placed(change: Change, kubectl: Sequence[str]) -> Change:
    """Return a change whose command acts on the cluster that these options of kubectl select."""
    if not (change.command and kubectl):
        return change
    return replace(change, command=f"{change.command} {shlex.join(map(printable, kubectl))}")


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


def _in_round(
    cluster: Cluster, storm: Storm, pace: Pace, planned: Mapping[str, str]
) -> Iterator[_Found]:
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
        yield from _budgets(cluster, workload, first, storm, planned.get(key, ""))
    yield from _owners(cluster, storm)


def _without_place(
    workload: Workload, fates: list[Fate], storm: Storm, specs: Mapping[str, PodSpec]
) -> Iterator[_Found]:
    names = tuple(fate.pod for fate in fates if fate.ready_at is None)
    if not names:
        return
    key = workload.key
    if not workload.template:
        pod = f"{workload.namespace}/{workload.name}"
        message = f"Pod {pod} has no controller: nothing creates it again."
        change = Change(key, "kind", "Deployment", workload.manager)
        yield key, 1, Finding("NoController", message, change, names)
        return
    unplaced = tuple(name for name in names if name in storm.placements.without)
    if not unplaced:
        minutes = int(SETTLED_AFTER.total_seconds() // 60)
        message = f"Pods of {key} are not Ready again within {counted(minutes, 'minute')} of the "
        message += "warning."
        change = edit(workload, "containers[].startupProbe", "")
        yield key, len(names), Finding("NotReadyAgain", message, change, names)
        return
    why = storm.placements.without[unplaced[0]].message
    spec = specs.get(unplaced[0])
    if spec is not None and spec.affinity is not None:
        code = "VolumeBoundToZone"
        message = (
            f"Pods of {key} have volumes that bind them to one zone, and get no node there: {why}"
        )
        claims = "spec.volumeClaimTemplates[].spec.storageClassName"
        path = claims if workload.keeps_names else f"{workload.template}spec.volumes"
        value = "a class of every zone, such as EFS, or keep room in each zone by headroom"
        change = _edited(workload, path, value)
    else:
        code, message = "NoRoom", f"Pods of {key} get no node: {why}"
        value = "what a node of the cluster has, or apply a NodePool or a headroom manifest"
        change = edit(workload, "containers[].resources.requests", value)
    yield key, len(unplaced), Finding(code, message, change, unplaced)


def _ends_late(
    cluster: Cluster, workload: Workload, fates: list[Fate], pace: Pace
) -> Iterator[_Found]:
    key = workload.key
    pods = {one.pod.key: one for one in cluster.pods if one.workload == key}
    returned = tuple(dict.fromkeys(fate.pod for fate in fates if fate.returned))
    died = [fate for fate in fates if fate.died and not fate.returned]
    if returned:
        change = edit(workload, "tolerations", "without operator: Exists for every key")
        message = (
            f"Pods of {key} tolerate every taint: the scheduler may bind their successors to a "
            "node that is about to end, where they run until it ends."
        )
        yield key, len(returned), Finding("ReturnsToNode", message, change, returned)
    elif died:
        progress = died[0].progress
        why = progress.reason.message if progress else "it appeared after the drain."
        message = f"Pods of {key} still run when EC2 ends the instance: {why}"
        names = tuple(fate.pod for fate in died)
        change = shorten_grace(workload, 30)
        yield key, len(died), Finding("PodRunsUntilTheEnd", message, change, names)
    if kept := tuple(fate.pod for fate in fates if pods[fate.pod].finalizers):
        names_of = ", ".join(pods[kept[0]].finalizers)
        message = f"Pods of {key} stay as objects after their end, kept by {names_of}."
        change = edit(workload, "metadata.finalizers", f"without {names_of}")
        yield key, len(kept), Finding("FinalizersKeepObject", message, change, kept)
    room = (SPOT_WARNING - SAFETY_MARGIN).total_seconds() - pace.late - pace.reaction
    for fate in sorted(fates, key=lambda one: one.granted or 0.0):
        running = pods[fate.pod]
        most = room - (DETACH_TIME.total_seconds() if running.pod.claims else 0)
        if fate.cut and fate.granted is not None and running.pod.grace > most:
            own = running.pod.grace if running.stops_in is None else round(running.stops_in)
            message = (
                f"Pods of {key} may take {own} s to end and get {fate.granted:.0f} s before the "
                "deadline."
            )
            names = tuple(one.pod for one in fates if one.cut)
            change = shorten_grace(workload, max(1, int(most // 5 * 5)))
            yield key, -fate.granted, Finding("GraceExceedsNotice", message, change, names)
            return


def _outages(
    cluster: Cluster, workload: Workload, fates: list[Fate], storm: Storm
) -> Iterator[_Found]:
    key, before = workload.key, ready_before(cluster, workload.key)
    if not workload.template or workload.kind in _TASKS or not before:
        return
    down, still = moments_below(storm.ready[key], 1, storm.until)
    if down < _SHORTEST_OUTAGE:
        return
    shown = f"{down:.0f} s" + (" and longer" if still else "")
    names = tuple(fate.pod for fate in fates)
    if workload.replicas == 1:
        message = f"{key} has one replica and is not Ready for {shown}."
        change = add_replicas(workload, 2)
        yield key, down, Finding("SingleReplica", message, change, names)
    else:
        message = (
            f"{key} has {counted(before, 'Ready pod')}, all on lost nodes, and none Ready for "
            f"{shown}."
        )
        spread = "maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule"
        change = edit(workload, "topologySpreadConstraints", spread)
        yield key, down, Finding("AllReplicasLost", message, change, names)


def kept_by_budget(fate: Fate) -> bool:
    """Whether a pod went, or died with its node, because its budget allowed no eviction in time."""
    forced = fate.progress is not None and fate.progress.method is RemovalMethod.DELETE
    budgets = fate.progress is not None and bool(fate.progress.budgets)
    return budgets and not fate.returned and (forced or fate.died)


def _budgets(
    cluster: Cluster, workload: Workload, fates: list[Fate], storm: Storm, planned: str
) -> Iterator[_Found]:
    key, budgets = workload.key, budgets_of(cluster, workload.key)
    forced = [fate for fate in fates if kept_by_budget(fate)]
    names = tuple(fate.pod for fate in forced)
    if forced and len(budgets) > 1:
        shown = ", ".join(budget.key for budget in budgets)
        message = (
            f"Pods of {key} have several budgets ({shown}), and the API server evicts no such pod."
        )
        change = delete_budget(budgets[-1])
        yield key, len(forced), Finding("PodHasSeveralBudgets", message, change, names)
    elif forced and budgets:
        change = allow(budgets[0], workload, _evictions(budgets[0], len(forced)))
        code, message = _why_forced(budgets[0], forced)
        message = f"{message} {planned}".rstrip()
        yield budgets[0].key, len(forced), Finding(code, message, change, names)
    for budget in budgets:
        missed = below(storm, budget)
        never = budget.problem or budget.desired >= budget.expected
        if missed >= _SHORTEST_OUTAGE and not never and workload.replicas > 1:
            lowest = min(number for _, number in storm.healthy[budget.key].steps)
            message = (
                f"{key} is below budget {budget.key} for {missed:.0f} s: {lowest} of "
                f"{budget.desired} pods are healthy."
            )
            missing = max(1, budget.desired - lowest)
            names = tuple(fate.pod for fate in fates)
            change = add_replicas(workload, workload.replicas + missing)
            if workload.kind in _TASKS:
                change = allow(budget, workload, budget.expected - budget.desired + missing)
            yield budget.key, missed, Finding("BelowBudget", message, change, names)


def _why_forced(budget: Budget, forced: list[Fate]) -> tuple[str, str]:
    """Return the code and the sentence about a budget that let no eviction happen in time."""
    ends = [fate.ended_at - (fate.granted or 0) for fate in forced if fate.ended_at is not None]
    latest = max(ends, default=SPOT_WARNING.total_seconds())
    if budget.problem:
        return "BudgetNotComputed", (
            f"Budget {budget.key} never allows an eviction, because the disruption controller "
            f"cannot compute it: {budget.problem}."
        )
    if budget.desired >= budget.expected:
        return "BudgetNeverAllows", (
            f"Budget {budget.key} never allows an eviction: {budget.desired} of "
            f"{budget.expected} pods must be healthy. The drain waits until {latest:.0f} s "
            "after the warning and then deletes the pods in spite of it."
        )
    return "BudgetAllowsTooLate", (
        f"Budget {budget.key} ({budget.written}) allows too few evictions in time: from "
        f"{latest:.0f} s after the warning on, pods are deleted in spite of it (pods: "
        f"{len(forced)})."
    )


def _evictions(budget: Budget, forced: int) -> int:
    """Return how many evictions at a time would have been enough."""
    if budget.problem or budget.desired >= budget.expected:
        return 1
    return budget.expected - budget.desired + forced


def _owners(cluster: Cluster, storm: Storm) -> Iterator[_Found]:
    for node in sorted(storm.lost):
        if owner := cluster.nodes[node].retires_itself:
            message = (
                f"{owner} drains its nodes without Leeway. The rehearsal shows the drain that "
                "Leeway does if the Cluster manifest lists the owner."
            )
            yield owner, 1, Finding("OwnerDrainsNode", message, own_nodes(owner))
