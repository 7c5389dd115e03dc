"""Use case: what an instance that is gone leaves in its cluster: attached volumes, a Node object.

Kubernetes waits six minutes before it takes a volume from a node that fell silent, since the node
might still write to it. Somebody who knows that the machine is gone can vouch for that, and volumes
are freed at once. Nobody but EC2 knows, and it is asked here, whoever says so before.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from leeway.clock import Clock
from leeway.cloud.ports import Sweep
from leeway.cluster.ports import Attachment, Node, Remains
from leeway.reconciliation.omissions import GONE
from leeway.records.retirement import InstanceFacts

DETACHING = timedelta(seconds=25)
"""How long the volumes of one instance are waited for; where it takes longer, the next tick looks
again."""

LOOK_EVERY = 1.0
"""Seconds."""

TERMINATED = "terminated"

_ANOTHER = "its node is gone, or another one has its name by now"


class Result(StrEnum):
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

    result: Result
    instance: str
    cluster: str
    node: str
    reason: str
    freed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Remains:
    """What is there of one instance."""

    facts: InstanceFacts
    node: Node

    def became(self, result: Result, reason: str, volumes: list[Attachment]) -> Cleaned:
        """Render what was done."""
        freed = tuple(one.claim or one.volume for one in volumes)
        instance, cluster = self.facts.instance, self.facts.cluster
        return Cleaned(result, instance, cluster, self.node.name, reason, freed)


class Cleaning:
    """Cleans up. `cluster_named` opens a cluster's API."""

    def __init__(self, sweep: Sweep, cluster_named: Callable[[str], Remains], clock: Clock) -> None:
        self._sweep = sweep
        self._cluster_named = cluster_named
        self._clock = clock

    def clean(
        self,
        facts: InstanceFacts,
        node: Node | None = None,
        patience: timedelta = DETACHING,
        state: str | None = None,
        attached: bool = True,
    ) -> Cleaned:
        """Clean up after an instance that Leeway knows, if EC2 says now that it is terminated, or
        knows it no more. Cleaning up again changes nothing.

        `node` is its node where that is known; else it is looked for by the instance's names only,
        since all nodes of a large cluster are too many to list for each of a storm's instances.
        `patience` is how long its volumes are waited for, before its node is removed. `state` is
        what EC2 has just said, where it was asked about many at once; `attached` is False where
        the cluster was, and has just said that no volume is attached to the node.

        Raises:
            ClusterUnavailable, ClusterRefused, CloudUnavailable, CloudRefused: nothing is known, or
                not all could be done; what is left can be cleaned up by another call.
        """
        cluster = self._cluster_named(facts.cluster)
        node = node or _named(cluster, facts)
        if node is None:
            why = "it has no node of its name"
            return Cleaned(Result.NOTHING, facts.instance, facts.cluster, "", why)
        if state is None:
            state = self.states([facts.instance])[facts.instance]
        if state != TERMINATED:
            # One that is stopped comes back, and its volumes with it.
            why = f"EC2 says that the instance is {state}"
            return Cleaned(Result.LEFT, facts.instance, facts.cluster, "", why)
        until = self._clock.now() + patience
        return self._clean(cluster, _Remains(facts, node), until, attached)

    def states(self, instances: Collection[str]) -> dict[str, str]:
        """Ask EC2 about these instances now; what it knows no more is terminated.

        Raises:
            CloudUnavailable, CloudRefused: nothing is known.
        """
        found = self._sweep.states(instances)
        return {instance: found.get(instance, TERMINATED) for instance in instances}

    def _clean(
        self, cluster: Remains, remains: _Remains, until: datetime, attached: bool
    ) -> Cleaned:
        node = remains.node
        if (node.ready or node.heard) and (heir := self._heir_of(remains)):
            return remains.became(Result.LEFT, f"instance {heir} has its name and its node now", [])
        volumes = cluster.attachments_on(node.name) if attached else []
        if volumes:
            if not cluster.mark_out_of_service(node.name, node.uid):
                return remains.became(Result.NOTHING, _ANOTHER, [])
            if left := self._wait_for_volumes(cluster, node.name, until):
                why = f"{len(left)} volumes are still attached to the node"
                return remains.became(Result.WAITING, why, [v for v in volumes if v not in left])
        # The Node goes last: without it, nobody knows that its volumes may be taken by force.
        if not cluster.delete_node(node.name, node.uid):
            return remains.became(Result.NOTHING, _ANOTHER, volumes)
        return remains.became(Result.CLEANED, "EC2 says that the instance is terminated", volumes)

    def _heir_of(self, remains: _Remains) -> str:
        """Return the instance that lives under the node's name by now, empty where none does.

        An instance that gets the address of one that is gone finds its Node object, and goes on
        with it, provider id and UID included: nothing but its kubelet's reports tells. Without the
        object a kubelet that has registered does not do so again, and its machine has no node.
        """
        for one in self._sweep.named(remains.node.name):
            ours = one.facts.cluster == remains.facts.cluster
            if ours and one.facts.instance != remains.facts.instance and one.state not in GONE:
                return one.facts.instance
        return ""

    def _wait_for_volumes(self, cluster: Remains, node: str, until: datetime) -> list[Attachment]:
        while (left := cluster.attachments_on(node)) and self._clock.now() < until:
            self._clock.sleep(LOOK_EVERY)
        return left


def _named(cluster: Remains, facts: InstanceFacts) -> Node | None:
    """Find an instance's node by the names that it may have."""
    for name in (facts.private_dns_name, facts.instance):
        node = cluster.node(name) if name else None
        if node is not None and node.runs_on(facts.instance):
            return node
    return None
