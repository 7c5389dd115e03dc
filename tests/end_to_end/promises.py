"""What must hold after any trouble: four promises, checked from outside Leeway.

They are read from the sandbox's journals and from the live state of cluster and AWS, never from
what Leeway says of itself:

1. No pod was lost that a correct drain would have saved, and none was asked to go twice.
2. No lifecycle hook is left open, and none was left to time out.
3. No instance was replaced twice, none that was to be replaced was not, and none left that nobody
   told of.
4. No node that stays is cordoned, tainted or labelled.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Node

from sandbox.provisioning import client
from sandbox.sandbox import PARTS, Sandbox
from tests.end_to_end.rehearsal import Aftermath, Entry, Rehearsal

MARK = "leeway.sh/"
LEFT_OUT = "node.kubernetes.io/exclude-from-external-load-balancers"

MARGIN = 5.0
"""Seconds that a drain keeps back of an interruption's two minutes."""
GRACE_CAP, REQUEST_TIME, DETACHING = 45.0, 2.0, 20.0
"""Seconds before the deadline: what a blocked pod's grace takes at most, and at least, and what a
pod with volumes takes besides."""
TOLERANCE = 1.5
"""Seconds. Notices tell their time in whole ones."""

OURS_NOT = ("DaemonSet/", "Node/")
"""Owners whose pods live and die with the node."""


@dataclass(frozen=True)
class Group:
    """An Auto Scaling group: what it wants, and its instances with their lifecycle states."""

    desired: int
    members: Mapping[str, str]


@dataclass(frozen=True)
class RetirementProgress:
    """A Node of the cluster, its instance, and what on it keeps pods or load balancers away."""

    name: str
    instance: str
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expected:
    """What was done to the instances, and so what is to become of them.

    `retired` are all that were told to go, by a notice or without one. Of these, `unreplaced` want
    no successor, `leaving` are still being retired, and `doomed` went before anybody could do
    anything for their pods. `deadlines` (epoch seconds) are those of drains that are not by an
    interruption's two minutes.
    """

    retired: Collection[str]
    unreplaced: Collection[str] = ()
    leaving: Collection[str] = ()
    doomed: Collection[str] = ()
    deadlines: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """What was seen: all entries of the journals since the trouble began, the nodes that ever were
    by name with their instances, and the state of things before and after."""

    entries: Collection[Entry]
    instance_of: Mapping[str, str]
    before: Mapping[str, Group]
    after: Mapping[str, Group]
    nodes: Collection[RetirementProgress]
    running: Collection[str]

    def of(self, kind: str) -> list[Entry]:
        """The entries of one kind."""
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
        """When EC2 has taken all that it interrupted; 0 where that is nothing."""
        return max(self._reclaims.values(), default=0)

    @cached_property
    def _shutdowns(self) -> dict[str, float]:
        leaving = {"shutting-down", "stopping"}
        return {e["instance"]: e["at"] for e in self.of("instance-state") if e["state"] in leaving}

    def left(self, instance: str, at: float, expected: Expected) -> float:
        """Seconds from a moment to when a drain of this instance had to be over; none where the
        machine was going down already."""
        if at >= self._shutdowns.get(instance, inf):
            return 0
        return expected.deadlines.get(instance, self._reclaims.get(instance, inf) - MARGIN) - at


class Promises:
    """Remembers how things stood before some trouble, and holds what came of it to the promises."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal
        self._since = time.time()
        self._before = _groups(rehearsal.sandbox)

    def hold(
        self,
        retired: Collection[str],
        *,
        unreplaced: Collection[str] = (),
        leaving: Collection[str] = (),
        doomed: Collection[str] = (),
        deadlines: Mapping[str, float] | None = None,
        patience: float = 60,
    ) -> Aftermath:
        """Heal all faults, let things come to rest, and check the four promises.

        The arguments are those of `Expected`; `patience` is in seconds, and lasts until EC2 has
        taken what it interrupted: Leeway may leave a drained instance to it. Returns all that
        happened.
        """
        sandbox = self._rehearsal.sandbox
        for part in PARTS:
            sandbox.faults(part, [])
        sandbox.throttle(enabled=False)
        expected = Expected(retired, unreplaced, leaving, doomed, deadlines or {})
        began, seen = time.time(), self._see()
        until = max(began + patience, seen.reclaimed_at + patience / 2)
        while (restless := list(unfinished(seen, expected))) and time.time() < until:
            time.sleep(1)
            seen = self._see()
        took = time.time() - began
        found = broken(seen, expected) + [f"after {took:.0f} s: {one}" for one in restless]
        assert not found, f"{len(found)} promises broken:\n" + "\n".join(found)
        return Aftermath(tuple(seen.entries))

    def _see(self) -> Evidence:
        sandbox = self._rehearsal.sandbox
        entries = sandbox.journal()
        return Evidence(
            tuple(entry for entry in entries if entry["at"] >= self._since),
            # A name that another machine gets later is still the first one's.
            {e["node"]: e["instance"] for e in reversed(entries) if e["kind"] == "node-joined"},
            self._before,
            _groups(sandbox),
            _nodes(sandbox),
            _running(sandbox),
        )


def broken(seen: Evidence, expected: Expected) -> list[str]:
    """Every promise that was broken, in words."""
    return [
        f"{promise}: {what}"
        for promise, find in PROMISES.items()
        for what in sorted(find(seen, expected))
    ]


def unfinished(seen: Evidence, expected: Expected) -> Iterator[str]:
    """What is still under way."""
    ended = {entry["execution_arn"] for entry in seen.of("execution-ended")}
    for entry in seen.of("execution-started"):
        name = str(entry["execution"])
        if entry["execution_arn"] not in ended and not any(one in name for one in expected.leaving):
            yield f"execution {name} has not ended"
    for instance in set(expected.retired) & set(seen.running) - set(expected.leaving):
        yield f"{instance} was to be retired and runs"
    for name, group in seen.after.items():
        serving = {i for i, state in group.members.items() if state == "InService"}
        others = {*group.members} - serving - {*expected.leaving}
        if others or len(serving) != group.desired:
            states = Counter(group.members.values())
            yield f"group {name} wants {group.desired} and has {dict(states)}"
        for instance in serving - {*seen.running}:
            yield f"group {name} has not noticed that {instance} is gone"


def lost_pods(seen: Evidence, expected: Expected) -> Iterator[str]:
    """Pods that a correct drain would have saved, and those that were asked to go wrongly."""
    cut = {}
    for entry in seen.of("pod-deletion"):
        instance = seen.instance_of.get(entry["node"] or "", "")
        left = seen.left(instance, entry["at"], expected)
        if entry["via"] == "delete" and left - _kept_free(entry) > TOLERANCE:
            yield f"{_pod(entry)} was deleted with {left:.1f} s to the deadline, before its moment"
        spare = left - (DETACHING if entry["volumes"] else 0) - entry["grace"]
        if entry["grace"] < entry["own_grace"] and spare > TOLERANCE:
            cut[entry["uid"]] = f"whose grace was cut to {entry['grace']} s of {left:.1f} s left"
    for entry in seen.of("pod-ended"):
        instance = seen.instance_of.get(entry["node"] or "", "")
        if (entry["owner"] or "").startswith(OURS_NOT) or instance in expected.doomed:
            continue
        if entry["how"] == "died-with-node":
            yield f"{_pod(entry)} died with its node"
        elif entry["how"] == "forced":
            yield f"{_pod(entry)} was ended by force"
        elif entry["how"] == "grace-period-expired" and entry["uid"] in cut:
            yield f"{_pod(entry)}, {cut[entry['uid']]}, was killed"
    ours = [entry for entry in seen.of("eviction") if entry["user"] != "admin"]
    for entry in ours:
        if entry["node"] and seen.instance_of.get(entry["node"]) not in expected.retired:
            yield f"{_pod(entry)} was asked to go, though its node stays"
    accepted = Counter(e["uid"] for e in ours if e["status"] == 201 and e["answered"])
    for entry in {e["uid"]: e for e in ours if accepted[e["uid"]] > 1}.values():
        yield f"{_pod(entry)} was evicted {accepted[entry['uid']]} times"


def _kept_free(deletion: Entry) -> float:
    """Seconds before the deadline from which a pod may be deleted past its budget."""
    grace = min(float(deletion["own_grace"]), GRACE_CAP)
    return max(grace, REQUEST_TIME) + (DETACHING if deletion["volumes"] else 0)


def _pod(entry: Entry) -> str:
    return f"pod {entry['pod']} on {entry['node']}"


def open_hooks(seen: Evidence, expected: Expected) -> Iterator[str]:
    """Lifecycle actions that nobody has answered."""
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
            yield f"{what} was left to time out"
        answered = entry["outcome"] not in {"begun", "heartbeat"}
        if not answered and entry["instance"] in waiting - {*expected.leaving}:
            yield f"{what} waits"


def wrong_successors(seen: Evidence, expected: Expected) -> Iterator[str]:
    """Instances too many, too few, or gone without a reason."""
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
            yield f"group {name} launched {len(launched[name])} for {len(wanted)} to be replaced"
        if after.desired != before.desired - (len(gone) - len(wanted)):
            yield f"group {name} wanted {before.desired} and wants {after.desired} now"
        for instance in {*before.members, *launched[name]} - {*expected.retired, *after.members}:
            yield f"group {name} lost {instance}, of which nobody told"
    for instance in launched[""]:
        yield f"{instance} was launched outside any group"


def cordoned_survivors(seen: Evidence, expected: Expected) -> Iterator[str]:
    """Nodes that stay and that pods or load balancers are kept away from."""
    for node in seen.nodes:
        if node.marks and node.instance in seen.running and node.instance not in expected.leaving:
            yield f"node {node.name} of {node.instance}, which runs, has {', '.join(node.marks)}"


PROMISES: dict[str, Callable[[Evidence, Expected], Iterator[str]]] = {
    "pod lost": lost_pods,
    "hook left open": open_hooks,
    "not replaced once": wrong_successors,
    "survivor cordoned": cordoned_survivors,
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


def _nodes(sandbox: Sandbox) -> list[RetirementProgress]:
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:
        return [_standing(node) for node in kube.list(Node)]


def _standing(node: Node) -> RetirementProgress:
    metadata, spec = node.metadata, node.spec
    assert metadata is not None
    assert spec is not None
    marks = ["a cordon"] if spec.unschedulable else []
    marks += [f"the taint {t.key}" for t in spec.taints or [] if t.key.startswith(MARK)]
    written = [*(metadata.labels or {}), *(metadata.annotations or {})]
    marks += [f"the mark {key}" for key in written if key.startswith(MARK) or key == LEFT_OUT]
    instance = (spec.providerID or "").rpartition("/")[2]
    return RetirementProgress(str(metadata.name), instance, tuple(marks))
