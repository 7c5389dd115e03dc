"""Builds journals for the tests of reports."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

from leeway_cli.report.model import StormPlan, Target, Workload

ZERO = datetime(2026, 11, 20, 9, 0, tzinfo=UTC).timestamp()
LATE = 80.0
NODE, INSTANCE, GROUP = "ip-10-0-0-1.ec2.internal", "i-00000000000000001", "spot-plain"
OTHER_NODE = "ip-10-0-0-2.ec2.internal"
NEW_NODE, NEW_INSTANCE = "ip-10-0-0-9.ec2.internal", "i-00000000000000009"
OTHER_INSTANCE = "i-0000000000000ffff"

WEB = Workload("Deployment/shop/web", grace=10)
SLOW = Workload("Deployment/media/transcode", grace=300)
DNS = Workload("Deployment/kube-system/coredns", grace=30, critical=True)
AGENT = Workload("DaemonSet/kube-system/node-agent", daemon=True)
BY_HAND = Workload("Pod/staging/by-hand", grace=20)

PLAN = StormPlan(
    cluster="demo",
    targets=(Target(INSTANCE, NODE, GROUP),),
    unmanaged=(OTHER_INSTANCE,),
    workloads={w.owner: w for w in (WEB, SLOW, DNS, AGENT, BY_HAND)},
    late=LATE,
)


class Journal:
    """Collects entries. Times are seconds after the first notice."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def add(self, at: float, kind: str, **fields: Any) -> Self:
        self.entries.append({"at": ZERO + at, "kind": kind, **fields})
        return self

    def node(self, node: str, instance: str, joined: float, ready: float) -> Self:
        self.add(joined, "node-joined", node=node, instance=instance)
        return self.add(ready, "node-ready", node=node)

    def notice(self, at: float = 0.0, instance: str = INSTANCE, **fields: Any) -> Self:
        sent_at = datetime.fromtimestamp(ZERO - LATE, UTC).isoformat().replace("+00:00", "Z")
        return self.add(
            at,
            "notice",
            id=f"notice-{at}",
            source="aws.ec2",
            detail_type="EC2 Spot Instance Interruption Warning",
            instance=instance,
            time=sent_at,
            **fields,
        )

    def runs(
        self, pod: str, owner: Workload, at: float = -20.0, node: str = NODE, start: float = 1.0
    ) -> Self:
        name = {"pod": pod, "uid": f"uid-{pod}", "owner": _owner(owner)}
        self.add(at, "pod-created", **name)
        self.add(at, "pod-bound", node=node, **name)
        return self.add(at + start, "pod-running", node=node, **name)

    def evicted(self, at: float, pod: str, status: int = 201) -> Self:
        return self.add(
            at, "eviction", pod=pod, uid=f"uid-{pod}", node=NODE, status=status, user="leeway"
        )

    def terminated(self, at: float, pod: str, grace: float, via: str = "eviction") -> Self:
        return self.add(
            at, "pod-deletion", pod=pod, uid=f"uid-{pod}", node=NODE, grace=grace, via=via
        )

    def ended(self, at: float, pod: str, owner: Workload, how: str = "graceful") -> Self:
        return self.add(
            at, "pod-ended", pod=pod, uid=f"uid-{pod}", node=NODE, owner=_owner(owner), how=how
        )

    def moved(
        self, pod: str, owner: Workload, at: float, took: float = 0.5, grace: float | None = None
    ) -> Self:
        """Add a pod that is evicted correctly and runs again on the other node."""
        self.runs(pod, owner).evicted(at, pod)
        self.terminated(at, pod, owner.grace if grace is None else grace)
        self.runs(f"{pod}-again", owner, at, OTHER_NODE).ended(at + took, pod, owner)
        return self


def _owner(owner: Workload) -> str | None:
    return None if owner.owner.startswith("Pod/") else owner.owner


def good_storm(cordoned: float | None = 0.3) -> Journal:
    """Return the journal of one node that is interrupted, cordoned, replaced and reclaimed."""
    journal = Journal().node(NODE, INSTANCE, -40, -39).node(OTHER_NODE, "i-2", -40, -39)
    journal.notice().notice(0.1, OTHER_INSTANCE)
    if cordoned is not None:
        journal.add(cordoned, "node-cordoned", node=NODE)
    journal.add(0.8, "instance-state", instance=NEW_INSTANCE, state="pending", group=GROUP)
    journal.node(NEW_NODE, NEW_INSTANCE, 5.0, 6.0)
    for instance in (INSTANCE, OTHER_INSTANCE):
        journal.add(40.0, "reclaimed", instance=instance)
        journal.add(40.1, "instance-state", instance=instance, state="shutting-down", group=GROUP)
    return journal.add(43.0, "node-deleted", node=NODE, instance=INSTANCE)


def without(journal: Journal, kind: str, **fields: Any) -> list[Mapping[str, Any]]:
    """Return the entries without those of this kind with these fields."""
    return [
        entry
        for entry in journal.entries
        if not (entry["kind"] == kind and fields.items() <= entry.items())
    ]
