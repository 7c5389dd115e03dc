"""The invariants after any failure, checked from outside of Leeway.

The checks read the sandbox's journals and the live state of the cluster and AWS, and not the events
of Leeway:

1. No pod was lost that a correct drain would have saved, and none was evicted twice.
2. No lifecycle hook is open, and none timed out.
3. Each retired instance was replaced exactly once, if it was to be replaced, and no other instance
   is missing.
4. No remaining node is cordoned, tainted or labelled.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import PARTS, Sandbox
from lightkube.resources.core_v1 import Node

from tests.end_to_end.environment import PATIENCE, Entry, Environment, Journal, kube_client

MARK = "leeway.sh/"
LEFT_OUT = "node.kubernetes.io/exclude-from-external-load-balancers"

MARGIN = 5.0
"""Seconds between the end of a drain and the reclaim."""
GRACE_CAP, REQUEST_TIME, DETACHING = 45.0, 2.0, 20.0
"""Seconds before the deadline: the maximum and the minimum for the grace period of a blocked pod,
and the addition for a pod with volumes."""
TOLERANCE = 1.5
"""Seconds. The times of notices are whole seconds."""

NODE_OWNERS = ("DaemonSet/", "Node/")
"""Owners whose pods stay on the node."""


@dataclass(frozen=True)
class Group:
    """An Auto Scaling group: its desired capacity, and its instances with their lifecycle
    states."""

    desired: int
    members: Mapping[str, str]


@dataclass(frozen=True)
class NodeStatus:
    """A node, its instance, and its marks that keep pods or load balancers away."""

    name: str
    instance: str
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expected:
    """The instances of a test, and their expected results.

    `retired` are all instances that must be retired. Of these, `unreplaced` get no replacement,
    `leaving` are still being retired, and `doomed` ended before Leeway could act for their pods.
    `deadlines` (epoch seconds) are those of drains without the two minutes of an interruption.
    """

    retired: Collection[str]
    unreplaced: Collection[str] = ()
    leaving: Collection[str] = ()
    doomed: Collection[str] = ()
    deadlines: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Observations:
    """The observations: the journal entries since the start, the instances of all nodes by name,
    and the state before and after."""

    entries: Collection[Entry]
    instance_of: Mapping[str, str]
    before: Mapping[str, Group]
    after: Mapping[str, Group]
    nodes: Collection[NodeStatus]
    running: Collection[str]

    def of(self, kind: str) -> list[Entry]:
        """Return the entries of one kind."""
        return self._by_kind.get(kind, [])

    @cached_property
    def _by_kind(self) -> dict[str, list[Entry]]:
        found = defaultdict(list)
        for entry in self.entries:
            found[entry["kind"]].append(entry)
        return found

    @cached_property
    def _reclaims(self) -> dict[str, float]:
        return {e["instance"]: float(e["reclaim_at"]) for e in self.of("interrupted")}

    @property
    def reclaimed_at(self) -> float:
        """The time of the last reclaim, 0 without one."""
        return max(self._reclaims.values(), default=0)

    @cached_property
    def _shutdowns(self) -> dict[str, float]:
        leaving = {"shutting-down", "stopping"}
        return {e["instance"]: e["at"] for e in self.of("instance-state") if e["state"] in leaving}

    def left(self, instance: str, at: float, expected: Expected) -> float:
        """Return the seconds between a time and the end of this instance's drain; 0 if the machine
        was already shutting down."""
        if at >= self._shutdowns.get(instance, inf):
            return 0
        return expected.deadlines.get(instance, self._reclaims.get(instance, inf) - MARGIN) - at


class InvariantChecks:
    """Stores the state before a test, and checks the invariants after it."""

    def __init__(self, env: Environment) -> None:
        self._rehearsal = env
        self._since = time.time()
        self._before = _groups(env.sandbox)

    def check(
        self,
        retired: Collection[str],
        *,
        unreplaced: Collection[str] = (),
        leaving: Collection[str] = (),
        doomed: Collection[str] = (),
        deadlines: Mapping[str, float] | None = None,
        timeout: float = PATIENCE,
    ) -> Journal:
        """Remove all faults, wait until nothing is in progress, and check the invariants.

        The arguments are those of `Expected`. `timeout` is in seconds; it is extended until EC2 has
        reclaimed the interrupted instances, because Leeway may leave a drained instance to EC2.
        Returns all journal entries.
        """
        sandbox = self._rehearsal.sandbox
        for part in PARTS:
            sandbox.faults(part, [])
        sandbox.throttle(enabled=False)
        expected = Expected(retired, unreplaced, leaving, doomed, deadlines or {})
        began, seen = time.time(), self._observe()
        until = max(began + timeout, seen.reclaimed_at + timeout / 2)
        while (not_finished := list(unfinished(seen, expected))) and time.time() < until:
            time.sleep(1)
            seen = self._observe()
        took = time.time() - began
        found = violations(seen, expected) + [f"after {took:.0f} s: {one}" for one in not_finished]
        assert not found, f"{len(found)} violations:\n" + "\n".join(found)
        return Journal(tuple(seen.entries))

    def _observe(self) -> Observations:
        sandbox = self._rehearsal.sandbox
        entries = sandbox.journal()
        return Observations(
            tuple(entry for entry in entries if entry["at"] >= self._since),
            # If another machine gets a name later, the name stays with the first machine.
            {e["node"]: e["instance"] for e in reversed(entries) if e["kind"] == "node-joined"},
            self._before,
            _groups(sandbox),
            _nodes(sandbox),
            _running(sandbox),
        )


def violations(seen: Observations, expected: Expected) -> list[str]:
    """Return every violation of an invariant, one line each."""
    return [
        f"{invariant}: {what}"
        for invariant, find in INVARIANTS.items()
        for what in sorted(find(seen, expected))
    ]


def unfinished(seen: Observations, expected: Expected) -> Iterator[str]:
    """Yield everything that is still in progress."""
    ended = {entry["execution_arn"] for entry in seen.of("execution-ended")}
    for entry in seen.of("execution-started"):
        name = str(entry["execution"])
        if entry["execution_arn"] not in ended and not any(one in name for one in expected.leaving):
            yield f"execution {name} has not ended"
    for instance in set(expected.retired) & set(seen.running) - set(expected.leaving):
        yield f"{instance} must be retired and still runs"
    for name, group in seen.after.items():
        serving = {i for i, state in group.members.items() if state == "InService"}
        others = {*group.members} - serving - {*expected.leaving}
        if others or len(serving) != group.desired:
            states = Counter(group.members.values())
            yield (
                f"group {name} has the desired capacity {group.desired}"
                f" and the instances {dict(states)}"
            )
        for instance in serving - {*seen.running}:
            yield f"group {name} still has {instance}, which is gone"


def lost_pods(seen: Observations, expected: Expected) -> Iterator[str]:
    """Yield the pods that a correct drain would have saved, and the wrong evictions and
    deletions."""
    shortened = {}
    for entry in seen.of("pod-deletion"):
        instance = seen.instance_of.get(entry["node"] or "", "")
        left = seen.left(instance, entry["at"], expected)
        if entry["via"] == "delete" and left - _latest_deletion(entry) > TOLERANCE:
            yield (
                f"{_pod(entry)} was deleted with {left:.1f} s to the deadline,"
                " before its latest time"
            )
        spare = left - (DETACHING if entry["volumes"] else 0) - entry["grace"]
        if entry["grace"] < entry["own_grace"] and spare > TOLERANCE:
            shortened[entry["uid"]] = (
                f"whose grace period was reduced to {entry['grace']} s of {left:.1f} s"
            )
    for entry in seen.of("pod-ended"):
        instance = seen.instance_of.get(entry["node"] or "", "")
        if (entry["owner"] or "").startswith(NODE_OWNERS) or instance in expected.doomed:
            continue
        if entry["how"] == "died-with-node":
            yield f"{_pod(entry)} died with its node"
        elif entry["how"] == "forced":
            yield f"{_pod(entry)} was ended without a grace period"
        elif entry["how"] == "grace-period-expired" and entry["uid"] in shortened:
            yield f"{_pod(entry)}, {shortened[entry['uid']]}, was killed"
    yield from _wrong_evictions(seen, expected)


def _wrong_evictions(seen: Observations, expected: Expected) -> Iterator[str]:
    evictions = [entry for entry in seen.of("eviction") if entry["user"] != "admin"]
    for entry in evictions:
        if entry["node"] and seen.instance_of.get(entry["node"]) not in expected.retired:
            yield f"{_pod(entry)} was evicted, but its node stays"
    for entry in seen.of("eviction-repeated"):
        if entry["user"] != "admin":
            yield f"{_pod(entry)} was evicted again while its first eviction was under way"
    accepted = Counter(e["uid"] for e in evictions if e["status"] == 201 and e["answered"])
    for entry in {e["uid"]: e for e in evictions if accepted[e["uid"]] > 1}.values():
        yield f"{_pod(entry)} was evicted {accepted[entry['uid']]} times"


def _latest_deletion(deletion: Entry) -> float:
    """Return how many seconds before the deadline a pod may be deleted past its budget."""
    grace = min(float(deletion["own_grace"]), GRACE_CAP)
    return max(grace, REQUEST_TIME) + (DETACHING if deletion["volumes"] else 0)


def _pod(entry: Entry) -> str:
    return f"pod {entry['pod']} on {entry['node']}"


def open_hooks(seen: Observations, expected: Expected) -> Iterator[str]:
    """Yield the lifecycle actions without an answer."""
    waiting = {
        instance
        for group in seen.after.values()
        for instance, state in group.members.items()
        if state.endswith(":Wait")
    }
    last = {entry["token"]: entry for entry in seen.of("lifecycle-action")}
    for entry in last.values():
        what = f"hook {entry['hook']} of {entry['instance']}"
        if entry["outcome"] == "timed-out":
            yield f"{what} timed out"
        answered = entry["outcome"] not in {"begun", "heartbeat"}
        if not answered and entry["instance"] in waiting - {*expected.leaving}:
            yield f"{what} is open"


def wrong_replacements(seen: Observations, expected: Expected) -> Iterator[str]:
    """Yield the groups with too many or too few launches, and missing instances."""
    launched: dict[str, set[str]] = defaultdict(set)
    for entry in seen.of("instance-state"):
        if entry["state"] == "pending":
            launched[entry["group"] or ""].add(entry["instance"])
    for name, before in seen.before.items():
        after = seen.after.get(name, Group(0, {}))
        gone = [
            instance
            for instance in before.members
            if instance in expected.retired and after.members.get(instance) != "InService"
        ]
        wanted = [instance for instance in gone if instance not in expected.unreplaced]
        if len(launched[name]) != len(wanted):
            count = len(launched[name])
            yield f"group {name} launched {count} instances for {len(wanted)} to replace"
        if after.desired != before.desired - (len(gone) - len(wanted)):
            yield (
                f"group {name} had the desired capacity {before.desired}"
                f" and has {after.desired} now"
            )
        for instance in {*before.members, *launched[name]} - {*expected.retired, *after.members}:
            yield f"group {name} lost {instance} without a retirement"
    for instance in launched[""]:
        yield f"{instance} was launched outside any group"


def cordoned_remaining_nodes(seen: Observations, expected: Expected) -> Iterator[str]:
    """Yield the remaining nodes with marks."""
    for node in seen.nodes:
        if node.marks and node.instance in seen.running and node.instance not in expected.leaving:
            marks = ", ".join(node.marks)
            yield f"node {node.name} of {node.instance}, which still runs, has {marks}"


INVARIANTS: dict[str, Callable[[Observations, Expected], Iterator[str]]] = {
    "pod lost": lost_pods,
    "hook left open": open_hooks,
    "not replaced exactly once": wrong_replacements,
    "remaining node cordoned": cordoned_remaining_nodes,
}


def _groups(sandbox: Sandbox) -> dict[str, Group]:
    pages = client("autoscaling", sandbox.aws_url).get_paginator("describe_auto_scaling_groups")
    return {
        group["AutoScalingGroupName"]: Group(
            group["DesiredCapacity"],
            {one["InstanceId"]: one["LifecycleState"] for one in group["Instances"]},
        )
        for page in pages.paginate()
        for group in page["AutoScalingGroups"]
    }


def _running(sandbox: Sandbox) -> set[str]:
    pages = client("ec2", sandbox.aws_url).get_paginator("describe_instances")
    alive: list[Any] = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    return {
        instance["InstanceId"]
        for page in pages.paginate(Filters=alive)
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    }


def _nodes(sandbox: Sandbox) -> list[NodeStatus]:
    with kube_client(sandbox) as kube:
        return [_node_status(node) for node in kube.list(Node)]


def _node_status(node: Node) -> NodeStatus:
    metadata, spec = node.metadata, node.spec
    assert metadata is not None
    assert spec is not None
    marks = ["a cordon"] if spec.unschedulable else []
    marks += [f"the taint {t.key}" for t in spec.taints or [] if t.key.startswith(MARK)]
    written = [*(metadata.labels or {}), *(metadata.annotations or {})]
    marks += [f"the key {key}" for key in written if key.startswith(MARK) or key == LEFT_OUT]
    instance = (spec.providerID or "").rpartition("/")[2]
    return NodeStatus(str(metadata.name), instance, tuple(marks))
