"""Builds the report of a storm from the sandbox's journals."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from leeway_cli.report.evaluation import (
    evaluate_node,
    evaluate_pod,
    evaluate_storm,
    evaluate_unmanaged,
)
from leeway_cli.report.model import (
    Attempt,
    Launch,
    LeewayEvent,
    NodeReport,
    NodeTrace,
    Notice,
    PodReport,
    PodTrace,
    Replacement,
    Shortage,
    StormPlan,
    StormReport,
    Successor,
    Target,
    UnmanagedReport,
    Workload,
)

Entry = Mapping[str, Any]

_ADMISSIONS = frozenset({"Leeway Node Admitted", "Leeway Node Not Admitted"})
_LAUNCHING = frozenset({"pending", "running"})
_ENDING = frozenset({"shutting-down", "terminated"})


@dataclass
class _Pod:
    """The journal entries of one pod."""

    pod: str = ""
    owner: str | None = None
    created_at: float | None = None
    node: str | None = None
    running_at: float | None = None
    attempts: list[Attempt] = field(default_factory=list)
    deletions: list[Entry] = field(default_factory=list)
    ended_at: float | None = None
    how: str | None = None
    successor: str | None = None

    @property
    def left_at(self) -> float | None:
        """When its owner could replace it: at its first deletion request, or at its end."""
        return self.deletions[0]["at"] if self.deletions else self.ended_at


@dataclass
class _Index:
    """The journal entries by instance, node and pod."""

    notices: dict[str, list[Notice]] = field(default_factory=dict)
    states: dict[str, list[Entry]] = field(default_factory=dict)
    reclaimed: dict[str, float] = field(default_factory=dict)
    joined: dict[str, str] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    cordons: dict[str, list[float]] = field(default_factory=dict)
    pods: dict[str, _Pod] = field(default_factory=dict)
    leeway_events: dict[str, list[LeewayEvent]] = field(default_factory=dict)
    fleets: list[Entry] = field(default_factory=list)
    last: float = 0.0


def report_from_journal(entries: Iterable[Entry], plan: StormPlan) -> StormReport:
    """Build the report of a storm from journal entries (shape: `{"at", "kind", …}`).

    Entries of unknown kinds are ignored. The report begins with the first notice and ends with the
    last entry.
    """
    index = _index(sorted(entries, key=lambda entry: entry["at"]))
    _match_successors(index.pods)
    wanted = [target.instance for target in plan.targets] + list(plan.unmanaged)
    delivered = [notice.at for instance in wanted for notice in index.notices.get(instance, ())]
    began_at = min(delivered, default=index.last)
    fleets = [fleet for fleet in index.fleets if fleet["at"] >= began_at]
    launched = launches(fleets, index.joined, index.ready)
    replacements = _match_replacements(index, plan.targets, began_at, launched)
    nodes = tuple(
        _node_report(index, plan, target, replacements.get(target.instance))
        for target in plan.targets
    )
    return StormReport(
        plan=plan,
        began_at=began_at,
        ended_at=index.last,
        nodes=nodes,
        unmanaged=tuple(_unmanaged_report(index, instance) for instance in plan.unmanaged),
        faults=evaluate_storm(
            plan.targets,
            cordoned={node for node, moments in index.cordons.items() if moments},
            evicted_on={pod.node for pod in index.pods.values() if pod.attempts and pod.node},
            launched=_launched_by_group(index, began_at),
            of_pools=launched,
            used=_used_nodes(index, plan),
        ),
        launches=launched,
        shortages=shortages(fleets),
    )


def _index(entries: Sequence[Entry]) -> _Index:
    index = _Index()
    for entry in entries:
        index.last = entry["at"]
        _index_aws(index, entry)
        _index_node(index, entry)
        _index_pod(index, entry)
    return index


def _index_aws(index: _Index, entry: Entry) -> None:
    match entry["kind"]:
        case "notice" if "Interruption Warning" in entry["detail_type"]:
            sent_at = datetime.fromisoformat(entry["time"]).timestamp()
            notice = Notice(entry["id"], entry["at"], sent_at)
            index.notices.setdefault(entry["instance"], []).append(notice)
        case "instance-state":
            index.states.setdefault(entry["instance"], []).append(entry)
        case "fleet":
            index.fleets.append(entry)
        case "reclaimed":
            index.reclaimed[entry["instance"]] = entry["at"]
        case "put-events" if _is_about_retirement(entry):
            event = _leeway_event(entry)
            index.leeway_events.setdefault(str(entry["detail"].get("instance", "")), []).append(
                event
            )


def _is_about_retirement(entry: Entry) -> bool:
    """Return whether it is an event of Leeway that is not about the admission of a new node."""
    of_leeway = str(entry["source"]).startswith("leeway")
    return of_leeway and entry["detail_type"] not in _ADMISSIONS


def _leeway_event(entry: Entry) -> LeewayEvent:
    """Read an event of Leeway; a missing field counts as empty."""
    detail = entry["detail"]
    requested = [pod for pod in detail.get("pods", ()) if pod.get("requested_at")]
    return LeewayEvent(
        at=entry["at"],
        kind=str(detail.get("kind", "")),
        result=str(detail.get("result") or entry["detail_type"]),
        evicted=sum(1 for pod in requested if pod.get("method") == "evict"),
        deleted=sum(1 for pod in requested if pod.get("method") == "delete"),
        failed=sum(1 for pod in detail.get("pods", ()) if pod.get("stage") == "failed"),
    )


def _index_node(index: _Index, entry: Entry) -> None:
    match entry["kind"]:
        case "node-joined":
            index.joined[entry["instance"]] = entry["node"]
        case "node-ready":
            index.ready.setdefault(entry["node"], entry["at"])
        case "node-cordoned":
            index.cordons.setdefault(entry["node"], []).append(entry["at"])


def _index_pod(index: _Index, entry: Entry) -> None:
    if "uid" not in entry:
        return
    pod, at = index.pods.setdefault(entry["uid"], _Pod()), entry["at"]
    pod.pod = entry["pod"]
    pod.owner = entry.get("owner") or pod.owner
    match entry["kind"]:
        case "pod-created":
            pod.created_at = at
        case "pod-bound":
            pod.node = entry["node"]
        case "pod-running":
            pod.running_at = at
        case "eviction":
            pod.attempts.append(Attempt(at, entry["status"]))
        case "pod-deletion":
            pod.deletions.append(entry)
        case "pod-ended":
            pod.ended_at, pod.how = at, entry["how"]


def _match_successors(pods: Mapping[str, _Pod]) -> None:
    """Match each pod that left with the first unmatched pod that its owner created afterwards."""
    by_owner: dict[str, list[str]] = defaultdict(list)
    for uid, pod in pods.items():
        if pod.owner is not None:
            by_owner[pod.owner].append(uid)
    for uids in by_owner.values():
        created = sorted((pods[uid].created_at or 0.0, uid) for uid in uids)
        left = sorted(
            (pods[uid].left_at or 0.0, uid) for uid in uids if pods[uid].left_at is not None
        )
        for moment, uid in left:
            successor = next(((at, new) for at, new in created if at >= moment), None)
            if successor is not None:
                created.remove(successor)
                pods[uid].successor = successor[1]


def _successor(index: _Index, pod: _Pod) -> Successor | None:
    """Return the pod that replaced it. If that pod left before it ran, return the next one."""
    uid = pod.successor
    while uid is not None:
        found = index.pods[uid]
        if found.running_at is not None or found.successor is None:
            return Successor(found.pod, uid, found.created_at or 0.0, found.node, found.running_at)
        uid = found.successor
    return None


def _match_replacements(
    index: _Index, targets: Iterable[Target], began_at: float, launched: Sequence[Launch]
) -> dict[str, Replacement]:
    """Match each target, in the order of notices, with the next instance of its group or pool.

    One larger node of a pool may replace several: targets beyond the launches get the last one.
    """
    fresh: dict[tuple[str, str], list[Replacement]] = defaultdict(list)
    for group, instances in _launched_by_group(index, began_at).items():
        for instance in sorted(instances, key=lambda one: index.states[one][0]["at"]):
            node, at = index.joined.get(instance), index.states[instance][0]["at"]
            ready_at = index.ready.get(node) if node else None
            fresh[group, ""].append(Replacement(instance, at, node, ready_at))
    for one in launched:
        fresh["", one.pool].append(Replacement(one.instance, one.at, one.node, one.ready_at))
    matched: dict[str, Replacement] = {}
    first = {one: min(notice.at for notice in found) for one, found in index.notices.items()}
    for target in sorted(targets, key=lambda one: first.get(one.instance, float("inf"))):
        if waiting := fresh[target.group, target.pool]:
            last_of_pool = target.pool and len(waiting) == 1
            matched[target.instance] = waiting[0] if last_of_pool else waiting.pop(0)
    return matched


def _used_nodes(index: _Index, plan: StormPlan) -> set[str]:
    """Return the nodes that ran other pods than those of DaemonSets."""
    return {
        pod.node
        for pod in index.pods.values()
        if pod.node and not plan.workloads.get(pod.owner or "", Workload("")).daemon
    }


def _launched_by_group(index: _Index, began_at: float) -> dict[str, list[str]]:
    launched: dict[str, list[str]] = defaultdict(list)
    for instance, states in index.states.items():
        first = states[0]
        if first["at"] >= began_at and first["state"] in _LAUNCHING and first.get("group"):
            launched[first["group"]].append(instance)
    return dict(launched)


def _instance_end(index: _Index, instance: str) -> tuple[float | None, bool]:
    """Return when the instance ended, and whether EC2 reclaimed it."""
    ends = [entry["at"] for entry in index.states.get(instance, ()) if entry["state"] in _ENDING]
    reclaimed_at = index.reclaimed.get(instance)
    if reclaimed_at is None:
        return min(ends, default=None), False
    by_ec2 = not ends or reclaimed_at <= min(ends) + 1.0
    return min([*ends, reclaimed_at]), by_ec2


def _node_report(
    index: _Index, plan: StormPlan, target: Target, replacement: Replacement | None
) -> NodeReport:
    notices = tuple(index.notices.get(target.instance, ()))
    instance_gone_at, by_ec2 = _instance_end(index, target.instance)
    sent_at = notices[0].sent_at if notices else index.last
    trace = NodeTrace(
        target=target,
        notices=notices,
        reclaim_at=sent_at + plan.warning,
        cordoned_at=tuple(index.cordons.get(target.node, ())),
        instance_gone_at=instance_gone_at,
        reclaimed_by_ec2=by_ec2,
        replacement=replacement,
        leeway_events=tuple(index.leeway_events.get(target.instance, ())),
    )
    since = trace.noticed_at or 0.0
    pods = tuple(
        PodReport(pod, evaluate_pod(pod, trace))
        for pod in _pods_of(index, plan, target.node, since)
    )
    return NodeReport(trace, pods, evaluate_node(trace, pods))


def _pods_of(index: _Index, plan: StormPlan, node: str, since: float) -> list[PodTrace]:
    """Return the pods that were on the node at the notice or started there later."""
    found = []
    for uid, pod in index.pods.items():
        if pod.node != node or (pod.ended_at is not None and pod.ended_at < since):
            continue
        owner = pod.owner or f"Pod/{pod.pod}"
        workload = plan.workloads.get(owner, Workload(owner))
        requested_at = pod.deletions[0]["at"] if pod.deletions else None
        found.append(
            PodTrace(
                pod=pod.pod,
                uid=uid,
                node=node,
                workload=workload,
                owned=pod.owner is not None,
                attempts=tuple(pod.attempts),
                requested_at=requested_at,
                requested_by=pod.deletions[-1]["via"] if pod.deletions else None,
                grace_given=_grace_given(pod.deletions),
                ended_at=pod.ended_at,
                how=pod.how,
                successor=None if workload.daemon else _successor(index, pod),
            )
        )
    return sorted(found, key=lambda trace: (trace.requested_at or float("inf"), trace.pod))


def _grace_given(deletions: Sequence[Entry]) -> float | None:
    """Return the seconds from the first deletion request until the kubelet kills the pod."""
    if not deletions:
        return None
    return float(min(entry["at"] + entry["grace"] for entry in deletions) - deletions[0]["at"])


def _unmanaged_report(index: _Index, instance: str) -> UnmanagedReport:
    ends = [entry["at"] for entry in index.states.get(instance, ()) if entry["state"] in _ENDING]
    reclaimed_at = index.reclaimed.get(instance)
    return UnmanagedReport(
        instance=instance,
        notices=tuple(index.notices.get(instance, ())),
        reclaimed_at=reclaimed_at,
        faults=evaluate_unmanaged(
            ended_at=min(ends, default=None),
            reclaimed_at=reclaimed_at,
            leeway_events=tuple(index.leeway_events.get(instance, ())),
        ),
    )


POOL_TAG = "leeway.sh/nodepool"
SPOT, ON_DEMAND = "spot", "on-demand"


def pools_of(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the pool of each instance that Leeway launched."""
    return {
        launched["instance"]: _pool(entry)
        for entry in entries
        if entry["kind"] == "fleet"
        for launched in entry["launched"]
        if _pool(entry)
    }


def shortages(fleets: Sequence[Entry]) -> tuple[Shortage, ...]:
    """Return the refused offerings of pools, by fleet, error code and capacity type."""
    found = []
    for entry in fleets:
        kinds = dict.fromkeys((one["code"], one["capacity_type"]) for one in entry["refused"])
        for code, capacity_type in kinds if _pool(entry) else ():
            refused = [
                one
                for one in entry["refused"]
                if (one["code"], one["capacity_type"]) == (code, capacity_type)
            ]
            found.append(
                Shortage(
                    at=entry["at"],
                    pool=_pool(entry),
                    code=code,
                    capacity_type=capacity_type,
                    instance_types=tuple(sorted({one["instance_type"] for one in refused})),
                    zones=tuple(sorted({one["zone"] for one in refused})),
                )
            )
    return tuple(found)


def launches(
    fleets: Sequence[Entry],
    joined: Mapping[str, str],
    ready: Mapping[str, float],
) -> tuple[Launch, ...]:
    """Return the instances of pools. `joined` has the node of each, `ready` the time of each node.

    An on-demand instance is a fallback if the pool was refused Spot capacity before, or in the same
    second.
    """
    short = {one.pool: one.at for one in reversed(shortages(fleets)) if one.capacity_type == SPOT}
    found = []
    for entry in fleets:
        pool, at = _pool(entry), entry["at"]
        for one in entry["launched"] if pool else ():
            node = joined.get(one["instance"])
            on_demand = one["capacity_type"] == ON_DEMAND
            found.append(
                Launch(
                    at=at,
                    instance=one["instance"],
                    pool=pool,
                    instance_type=one["instance_type"],
                    zone=one["zone"],
                    capacity_type=one["capacity_type"],
                    fallback=on_demand and pool in short and at >= short[pool],
                    node=node,
                    ready_at=ready.get(node) if node else None,
                )
            )
    return tuple(found)


def _pool(entry: Entry) -> str:
    return str(entry["tags"].get(POOL_TAG, ""))
