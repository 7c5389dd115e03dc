"""Reads the sandbox's journals into a story: who was on which node, when it left and what came."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cli.report.story import (
    Attempt,
    Claim,
    NodeStory,
    NodeTrace,
    Notice,
    Plan,
    PodStory,
    PodTrace,
    Replacement,
    Story,
    StrangerStory,
    Successor,
    Target,
    Workload,
)
from cli.report.verdicts import judge_node, judge_pod, judge_storm, judge_stranger

Entry = Mapping[str, Any]

_LAUNCHING = frozenset({"pending", "running"})
_ENDING = frozenset({"shutting-down", "terminated"})


@dataclass
class _Pod:
    """One pod's entries, gathered."""

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
        """When its place became free to refill: it was told to go, or was gone."""
        return self.deletions[0]["at"] if self.deletions else self.ended_at


@dataclass
class _Index:
    """The journals by what they are about."""

    notices: dict[str, list[Notice]] = field(default_factory=dict)
    states: dict[str, list[Entry]] = field(default_factory=dict)
    reclaimed: dict[str, float] = field(default_factory=dict)
    joined: dict[str, tuple[str, float]] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)
    cordons: dict[str, list[float]] = field(default_factory=dict)
    pods: dict[str, _Pod] = field(default_factory=dict)
    claims: dict[str, list[Claim]] = field(default_factory=dict)
    last: float = 0.0


def read_story(entries: Iterable[Entry], plan: Plan) -> Story:
    """Tell the storm from the journals' entries (shape: `{"at", "kind", …}`) and judge it.

    Entries of kinds that tell nothing about the storm are passed over. The story begins with the
    first notice and ends with the last entry.
    """
    index = _index(sorted(entries, key=lambda entry: entry["at"]))
    _match_successors(index.pods)
    wanted = [target.instance for target in plan.targets] + list(plan.strangers)
    delivered = [notice.at for instance in wanted for notice in index.notices.get(instance, ())]
    began_at = min(delivered, default=index.last)
    replacements = _match_replacements(index, plan.targets, began_at)
    nodes = tuple(
        _tell_node(index, plan, target, replacements.get(target.instance))
        for target in plan.targets
    )
    return Story(
        plan=plan,
        began_at=began_at,
        ended_at=index.last,
        nodes=nodes,
        strangers=tuple(_tell_stranger(index, instance) for instance in plan.strangers),
        faults=judge_storm(
            plan.targets,
            cordoned={node for node, moments in index.cordons.items() if moments},
            evicted_on={pod.node for pod in index.pods.values() if pod.attempts and pod.node},
            launched=_launched_by_group(index, began_at),
        ),
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
            said_at = datetime.fromisoformat(entry["time"]).timestamp()
            notice = Notice(entry["id"], entry["at"], said_at)
            index.notices.setdefault(entry["instance"], []).append(notice)
        case "instance-state":
            index.states.setdefault(entry["instance"], []).append(entry)
        case "reclaimed":
            index.reclaimed[entry["instance"]] = entry["at"]
        case "put-events" if str(entry["source"]).startswith("leeway"):
            claim = _claim(entry)
            index.claims.setdefault(str(entry["detail"].get("instance", "")), []).append(claim)


def _claim(entry: Entry) -> Claim:
    """What a Leeway event says; a field it lacks counts as nothing said."""
    detail = entry["detail"]
    asked = [pod for pod in detail.get("pods", ()) if pod.get("requested_at")]
    return Claim(
        at=entry["at"],
        kind=str(detail.get("kind", "")),
        result=str(detail.get("result") or entry["detail_type"]),
        evicted=sum(1 for pod in asked if pod.get("method") == "evict"),
        deleted=sum(1 for pod in asked if pod.get("method") == "delete"),
        failed=sum(1 for pod in detail.get("pods", ()) if pod.get("stage") == "failed"),
    )


def _index_node(index: _Index, entry: Entry) -> None:
    match entry["kind"]:
        case "node-joined":
            index.joined[entry["instance"]] = (entry["node"], entry["at"])
        case "node-ready":
            index.ready.setdefault(entry["node"], entry["at"])
        case "node-deleted":
            index.gone[entry["node"]] = entry["at"]
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
    """Give each pod that left the first pod its owner made afterwards and gave to no other."""
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
    """The pod in its place; where that one had to leave before it ran, the one after it."""
    uid = pod.successor
    while uid is not None:
        found = index.pods[uid]
        if found.running_at is not None or found.successor is None:
            return Successor(found.pod, uid, found.created_at or 0.0, found.node, found.running_at)
        uid = found.successor
    return None


def _match_replacements(
    index: _Index, targets: Iterable[Target], began_at: float
) -> dict[str, Replacement]:
    """Give each target, in the order of its notice, the next instance its group launched."""
    fresh: dict[str, list[str]] = defaultdict(list)
    for group, instances in _launched_by_group(index, began_at).items():
        fresh[group] = sorted(instances, key=lambda instance: index.states[instance][0]["at"])
    matched: dict[str, Replacement] = {}
    for target in sorted(targets, key=lambda target: _first_notice(index, target.instance)):
        if not fresh[target.group]:
            continue
        instance = fresh[target.group].pop(0)
        node, joined_at = index.joined.get(instance, (None, None))
        matched[target.instance] = Replacement(
            instance=instance,
            launched_at=index.states[instance][0]["at"],
            node=node,
            joined_at=joined_at,
            ready_at=index.ready.get(node) if node else None,
        )
    return matched


def _first_notice(index: _Index, instance: str) -> float:
    return min((notice.at for notice in index.notices.get(instance, ())), default=float("inf"))


def _launched_by_group(index: _Index, began_at: float) -> dict[str, list[str]]:
    launched: dict[str, list[str]] = defaultdict(list)
    for instance, states in index.states.items():
        first = states[0]
        if first["at"] >= began_at and first["state"] in _LAUNCHING and first.get("group"):
            launched[first["group"]].append(instance)
    return dict(launched)


def _death(index: _Index, instance: str) -> tuple[float | None, bool]:
    """When the instance stopped being of use, and whether EC2 took it."""
    ends = [entry["at"] for entry in index.states.get(instance, ()) if entry["state"] in _ENDING]
    taken_at = index.reclaimed.get(instance)
    if taken_at is None:
        return min(ends, default=None), False
    by_ec2 = not ends or taken_at <= min(ends) + 1.0
    return min([*ends, taken_at]), by_ec2


def _tell_node(
    index: _Index, plan: Plan, target: Target, replacement: Replacement | None
) -> NodeStory:
    notices = tuple(index.notices.get(target.instance, ()))
    dead_at, by_ec2 = _death(index, target.instance)
    said_at = notices[0].said_at if notices else index.last
    trace = NodeTrace(
        target=target,
        notices=notices,
        takes_at=said_at + plan.warning,
        cordons=tuple(index.cordons.get(target.node, ())),
        dead_at=dead_at,
        taken_by_ec2=by_ec2,
        gone_at=index.gone.get(target.node),
        replacement=replacement,
        claims=tuple(index.claims.get(target.instance, ())),
    )
    since = trace.noticed_at or 0.0
    pods = tuple(
        PodStory(pod, judge_pod(pod, trace)) for pod in _pods_of(index, plan, target.node, since)
    )
    return NodeStory(trace, pods, judge_node(trace, pods))


def _pods_of(index: _Index, plan: Plan, node: str, since: float) -> list[PodTrace]:
    """The pods that were on the node when the notice came, or got there later."""
    found = []
    for uid, pod in index.pods.items():
        if pod.node != node or (pod.ended_at is not None and pod.ended_at < since):
            continue
        owner = pod.owner or f"Pod/{pod.pod}"
        workload = plan.workloads.get(owner, Workload(owner))
        asked_at = pod.deletions[0]["at"] if pod.deletions else None
        found.append(
            PodTrace(
                pod=pod.pod,
                uid=uid,
                node=node,
                workload=workload,
                owned=pod.owner is not None,
                attempts=tuple(pod.attempts),
                asked_at=asked_at,
                asked_by=pod.deletions[-1]["via"] if pod.deletions else None,
                grace_given=_grace_given(pod.deletions),
                ended_at=pod.ended_at,
                how=pod.how,
                successor=None if workload.daemon else _successor(index, pod),
            )
        )
    return sorted(found, key=lambda trace: (trace.asked_at or float("inf"), trace.pod))


def _grace_given(deletions: Sequence[Entry]) -> float | None:
    """Seconds from the first request to go until the kubelet would kill it."""
    if not deletions:
        return None
    return float(min(entry["at"] + entry["grace"] for entry in deletions) - deletions[0]["at"])


def _tell_stranger(index: _Index, instance: str) -> StrangerStory:
    ends = [entry["at"] for entry in index.states.get(instance, ()) if entry["state"] in _ENDING]
    taken_at = index.reclaimed.get(instance)
    return StrangerStory(
        instance=instance,
        notices=tuple(index.notices.get(instance, ())),
        taken_at=taken_at,
        faults=judge_stranger(
            ended_at=min(ends, default=None),
            taken_at=taken_at,
            claims=tuple(index.claims.get(instance, ())),
        ),
    )
