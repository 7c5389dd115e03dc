"""Use case: what an instance that is gone leaves in its cluster: attached volumes, a Node object.

Kubernetes waits six minutes before it takes a volume from a node that fell silent, since the node
might still write to it. Somebody who knows that the machine is gone can vouch for that, and volumes
are freed at once. Nobody but EC2 knows, and it is asked here, whoever says so before.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from leeway.clock import Clock
from leeway.instances.facts import InstanceFacts
from leeway.ports.aws import Sweep
from leeway.ports.kubernetes_objects import Attachment, Node
from leeway.reconciliation.lost_events import GONE
from leeway.reconciliation.ports import ClusterLeftovers

DETACHING = timedelta(seconds=25)
"""How long the volumes of one instance are waited for; where it takes longer, the next tick looks
again."""

LOOK_EVERY = 1.0
"""Seconds."""

TERMINATED = "terminated"

_CHANGED = "its node is gone, or was changed since it was read: the next minute's run looks again"


class CleanUpResult(StrEnum):
    """What came of cleaning up."""

    CLEANED = "cleaned"
    NOTHING = "nothing"
    WAITING = "waiting"
    LEFT = "left"
    LATER = "later"


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was done about the remains of one instance, and why. `freed` are the volumes that were
    still attached."""

    result: CleanUpResult
    instance: str
    cluster: str
    node: str
    reason: str
    freed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedLeftovers:
    """What was seen of one of many instances by calls for all of them, after its node was read.

    `state` is what EC2 says of the instance, empty where it says nothing; `attached` is False where
    no volume is attached to its node; `heir` is the instance that has the node's name now.
    """

    state: str
    attached: bool
    heir: str


@dataclass(frozen=True, slots=True)
class _Remains:
    """What is there of one instance."""

    facts: InstanceFacts
    node: Node

    def became(self, result: CleanUpResult, reason: str, volumes: list[Attachment]) -> Cleaned:
        """Render what was done."""
        freed = tuple(one.claim or one.volume for one in volumes)
        instance, cluster = self.facts.instance, self.facts.cluster
        return Cleaned(result, instance, cluster, self.node.name, reason, freed)

    def left_to(self, heir: str) -> Cleaned:
        """Render that another instance has the node."""
        return self.became(CleanUpResult.LEFT, f"instance {heir} has its name and its node now", [])


class Cleaning:
    """Cleans up. `open_cluster` opens a cluster's API."""

    def __init__(
        self, sweep: Sweep, open_cluster: Callable[[str], ClusterLeftovers], clock: Clock
    ) -> None:
        self._sweep = sweep
        self._open_cluster = open_cluster
        self._clock = clock

    def clean(
        self,
        facts: InstanceFacts,
        node: Node | None = None,
        patience: timedelta = DETACHING,
        seen: ObservedLeftovers | None = None,
    ) -> Cleaned:
        """Clean up after an instance that Leeway knows, if EC2 says now that it is terminated, or
        does not know its id any more, and no other instance has its name. Cleaning up again changes
        nothing.

        `node` is its node where that is known; else it is looked for by the instance's names only,
        since all nodes of a large cluster are too many to list for each of a storm's instances.
        `patience` is how long its volumes are waited for, before its node is removed. `seen` is
        what EC2 and the cluster have just said, where they were asked about many at once.

        Raises:
            ClusterUnavailable, ClusterRefused, CloudUnavailable, CloudRefused: nothing is known, or
                not all could be done; what is left can be cleaned up by another call.
        """
        cluster = self._open_cluster(facts.cluster)
        node = node or _named(cluster, facts)
        if node is None:
            why = "it has no node of its name"
            return Cleaned(CleanUpResult.NOTHING, facts.instance, facts.cluster, "", why)
        if seen is None:
            seen = self._look_at(facts, node)
        if seen.state != TERMINATED:
            # One that is stopped comes back, and its volumes with it.
            said = f"that the instance is {seen.state}" if seen.state else "nothing of the instance"
            return Cleaned(
                CleanUpResult.LEFT, facts.instance, facts.cluster, "", f"EC2 says {said}"
            )
        until = self._clock.now() + patience
        return self._clean(cluster, _Remains(facts, node), until, seen)

    def look(
        self, left: Mapping[str, tuple[InstanceFacts, Node]], cluster: ClusterLeftovers
    ) -> dict[str, ObservedLeftovers]:
        """Ask EC2 and a cluster about instances and their nodes, by calls for all of them.

        Raises:
            ClusterUnavailable, ClusterRefused, CloudUnavailable, CloudRefused: nothing is known.
        """
        states, heirs = self._sweep.states(left), self._heirs(left.values())
        attached = cluster.nodes_with_volumes()
        return {
            instance: ObservedLeftovers(
                states.get(instance, ""), node.name in attached, heirs[instance]
            )
            for instance, (_, node) in left.items()
        }

    def _look_at(self, facts: InstanceFacts, node: Node) -> ObservedLeftovers:
        state = self._sweep.states([facts.instance]).get(facts.instance, "")
        heir = self._heirs([(facts, node)])[facts.instance] if state == TERMINATED else ""
        return ObservedLeftovers(state, attached=True, heir=heir)

    def _clean(
        self, cluster: ClusterLeftovers, remains: _Remains, until: datetime, seen: ObservedLeftovers
    ) -> Cleaned:
        node = remains.node
        if seen.heir:
            return remains.left_to(seen.heir)
        volumes = cluster.attachments_on(node.name) if seen.attached else []
        if volumes:
            if not cluster.mark_out_of_service(node):
                return remains.became(CleanUpResult.NOTHING, _CHANGED, [])
            if left := self._wait_for_volumes(cluster, node.name, until):
                why = f"{len(left)} volumes are still attached to the node"
                return remains.became(
                    CleanUpResult.WAITING, why, [v for v in volumes if v not in left]
                )
            # The taint and the volumes have changed the Node, and an heir may have come meanwhile:
            # first the object is read, then the heir is looked for.
            now = cluster.node(node.name)
            if now is None or now.uid != node.uid:
                return remains.became(CleanUpResult.NOTHING, _CHANGED, volumes)
            node = now
            if heir := self._heirs([(remains.facts, node)])[remains.facts.instance]:
                return remains.left_to(heir)
        # The Node goes last: without it, nobody knows that its volumes may be taken by force.
        if not cluster.delete_node(node):
            return remains.became(CleanUpResult.NOTHING, _CHANGED, volumes)
        return remains.became(
            CleanUpResult.CLEANED, "EC2 says that the instance is terminated", volumes
        )

    def _heirs(self, left: Collection[tuple[InstanceFacts, Node]]) -> dict[str, str]:
        """Return the instance that has the node's name now, by the one that is gone; empty where
        there is none.

        An instance that gets the address of one that is gone finds its Node object, and goes on
        with it, provider id and UID included. Its kubelet may be silent for a while: neither that
        nor the object tells that it is gone. Without the object a kubelet that has registered does
        not do so again, and its machine has no node. Whatever an heir that comes later writes
        changes the version of the Node that was read before.
        """
        living: dict[tuple[str, str], list[str]] = defaultdict(list)
        for one in self._sweep.named({node.name for _, node in left}):
            if one.state not in GONE:
                key = (one.facts.private_dns_name, one.facts.cluster)
                living[key].append(one.facts.instance)
        return {
            facts.instance: next(
                (one for one in living[node.name, facts.cluster] if one != facts.instance), ""
            )
            for facts, node in left
        }

    def _wait_for_volumes(
        self, cluster: ClusterLeftovers, node: str, until: datetime
    ) -> list[Attachment]:
        while (left := cluster.attachments_on(node)) and self._clock.now() < until:
            self._clock.sleep(LOOK_EVERY)
        return left


def _named(cluster: ClusterLeftovers, facts: InstanceFacts) -> Node | None:
    """Find an instance's node by the names that it may have."""
    for name in (facts.private_dns_name, facts.instance):
        node = cluster.node(name) if name else None
        if node is not None and node.runs_on(facts.instance):
            return node
    return None
