"""Use case: clean up after a terminated instance: detach its volumes and delete its Node object.

Kubernetes waits six minutes before it detaches the volumes of a node that does not respond, since
the node may still write to them. The out-of-service taint, which says that the machine is off, ends
the wait. Only EC2 knows that a machine is off, so its state is always read before.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from leeway.clock import Clock
from leeway.instances.facts import InstanceFacts
from leeway.ports.aws import Sweep
from leeway.ports.kubernetes_objects import Attachment, Node
from leeway.reasons import counted
from leeway.reconciliation.lost_events import GONE


class ClusterNodes(Protocol):
    """The Nodes of a cluster. Every method raises the errors of an API server."""

    def names(self) -> frozenset[str]:
        """List the names of all Nodes, without a cache. Much cheaper than `nodes`."""
        ...

    def nodes(self) -> list[Node]:
        """List all Nodes, without a cache."""
        ...

    def uninitialized(self) -> list[Node]:
        """List the Nodes that Leeway launched and that are not initialized, without a cache."""
        ...


class ClusterLeftovers(ClusterNodes, Protocol):
    """The Nodes of a cluster, and the objects that terminated instances leave in a cluster."""

    def nodes_with_volumes(self) -> frozenset[str]:
        """List the names of all nodes with an attached volume."""
        ...

    def unready(self) -> list[Node]:
        """List all nodes that are not Ready, without a cache.

        Much cheaper than the list of all nodes, since most are Ready.
        """
        ...

    def retiring(self) -> list[str]:
        """List the names of the nodes that Leeway has marked as retiring."""
        ...

    def node(self, name: str) -> Node | None:
        """Read a node by name."""
        ...

    def attachments_on(self, node: str) -> list[Attachment]:
        """List the volumes that are attached to a node."""
        ...

    def mark_out_of_service(self, node: Node) -> bool:
        """Add the out-of-service taint, after which Kubernetes detaches the volumes at once.

        Call it only if EC2 reports the instance as terminated: a pod that still runs would lose its
        disks. False if the Node object was deleted or changed since it was read.
        """
        ...

    def label_on_demand(self, node: Node) -> bool:
        """Replace the labels of reserved capacity on a node whose reservation has ended; False if
        the Node object was deleted."""
        ...

    def delete_node(self, node: Node) -> bool:
        """Delete a Node object; False if it was deleted or changed since it was read."""
        ...


VOLUME_TIMEOUT = timedelta(seconds=25)
"""How long a clean-up waits for the volumes of one instance; the next run checks them again."""

POLL_VOLUMES_EVERY = 1.0
"""Seconds."""

TERMINATED = "terminated"


class CleanUpResult(StrEnum):
    """How a clean-up ended."""

    CLEANED = "cleaned"
    NOTHING_TO_DO = "nothing-to-do"
    VOLUMES_ATTACHED = "volumes-attached"
    KEPT = "kept"
    DEFERRED = "deferred"


@dataclass(frozen=True, slots=True)
class CleanUpOutcome:
    """The clean-up after one instance. `detached` are the volumes that were still attached."""

    result: CleanUpResult
    instance: str
    cluster: str
    node: str
    reason: str
    detached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedLeftovers:
    """The state of one terminated instance and of its node, read after the Node object.

    - `state`: EC2's state of the instance, empty if EC2 returned none.
    - `has_volumes`: False if no volume is attached to the node.
    - `reused_by`: another instance that has the name of the node now, empty if there is none.
    """

    state: str
    has_volumes: bool
    reused_by: str


@dataclass(frozen=True, slots=True)
class _Leftovers:
    facts: InstanceFacts
    node: Node

    def outcome(
        self, result: CleanUpResult, reason: str, volumes: Collection[Attachment] = ()
    ) -> CleanUpOutcome:
        detached = tuple(one.claim or one.volume for one in volumes)
        instance, cluster = self.facts.instance, self.facts.cluster
        return CleanUpOutcome(result, instance, cluster, self.node.name, reason, detached)

    def changed(self, volumes: Collection[Attachment] = ()) -> CleanUpOutcome:
        reason = f"Node {self.node.name} was deleted or changed after Leeway read it."
        return self.outcome(CleanUpResult.NOTHING_TO_DO, reason, volumes)

    def reused(self, by: str) -> CleanUpOutcome:
        reason = (
            f"Instance {by} has the name of node {self.node.name} now and uses its Node object."
        )
        return self.outcome(CleanUpResult.KEPT, reason)


class NodeCleanUp:
    """Cleans up. `open_cluster` returns a client for the API server of a cluster."""

    def __init__(
        self, sweep: Sweep, open_cluster: Callable[[str], ClusterLeftovers], clock: Clock
    ) -> None:
        self._sweep = sweep
        self._open_cluster = open_cluster
        self._clock = clock

    def clean_up(
        self,
        facts: InstanceFacts,
        node: Node | None = None,
        volume_timeout: timedelta = VOLUME_TIMEOUT,
        observed: ObservedLeftovers | None = None,
    ) -> CleanUpOutcome:
        """Clean up after an instance if EC2 reports it as terminated, or does not know its id any
        more, and no other instance has its name. A repeated call changes nothing.

        - `node`: the node of the instance; None reads it by the names of the instance only, since a
          list of all nodes for each instance of a storm is too much.
        - `volume_timeout`: how long to wait for its volumes before the node is deleted.
        - `observed`: the state of the leftovers, if it was read for many instances together.

        Raises:
            ClusterUnavailable, ClusterRefused, CloudUnavailable, CloudRefused: a read failed, or
                the clean-up is incomplete; another call continues it.
        """
        cluster = self._open_cluster(facts.cluster)
        node = node or _named(cluster, facts)
        if node is None:
            reason = f"The cluster has no Node object with the name of instance {facts.instance}."
            return _without_node(CleanUpResult.NOTHING_TO_DO, facts, reason)
        if observed is None:
            observed = self._observe_one(facts, node)
        if not observed.state:
            reason = f"EC2 returned no state of instance {facts.instance}: its node is kept."
            return _without_node(CleanUpResult.KEPT, facts, reason)
        if observed.state != TERMINATED:
            # A stopped instance may start again, with its volumes.
            state = observed.state
            reason = f"EC2 reports instance {facts.instance} as {state}: its node is kept."
            return _without_node(CleanUpResult.KEPT, facts, reason)
        until = self._clock.now() + volume_timeout
        return self._delete(cluster, _Leftovers(facts, node), until, observed)

    def observe(
        self, leftovers: Mapping[str, tuple[InstanceFacts, Node]], cluster: ClusterLeftovers
    ) -> dict[str, ObservedLeftovers]:
        """Read the state of many instances and their nodes, with one call for all of each kind.

        Raises:
            ClusterUnavailable, ClusterRefused, CloudUnavailable, CloudRefused: a read failed.
        """
        states, reused_by = self._sweep.states(leftovers), self._reused_by(leftovers.values())
        with_volumes = cluster.nodes_with_volumes()
        return {
            instance: ObservedLeftovers(
                states.get(instance, ""), node.name in with_volumes, reused_by[instance]
            )
            for instance, (_, node) in leftovers.items()
        }

    def _observe_one(self, facts: InstanceFacts, node: Node) -> ObservedLeftovers:
        state = self._sweep.states([facts.instance]).get(facts.instance, "")
        reused_by = self._reused_by([(facts, node)])[facts.instance] if state == TERMINATED else ""
        return ObservedLeftovers(state, has_volumes=True, reused_by=reused_by)

    def _delete(
        self,
        cluster: ClusterLeftovers,
        leftovers: _Leftovers,
        until: datetime,
        observed: ObservedLeftovers,
    ) -> CleanUpOutcome:
        facts, node = leftovers.facts, leftovers.node
        if observed.reused_by:
            return leftovers.reused(observed.reused_by)
        volumes = cluster.attachments_on(node.name) if observed.has_volumes else []
        if volumes:
            if not cluster.mark_out_of_service(node):
                return leftovers.changed()
            if attached := self._wait_for_volumes(cluster, node.name, until):
                volumes_left = counted(len(attached), "volume is", "volumes are")
                reason = f"{volumes_left} still attached to node {node.name}."
                detached = [one for one in volumes if one not in attached]
                return leftovers.outcome(CleanUpResult.VOLUMES_ATTACHED, reason, detached)
            # The taint and the volumes have changed the Node, and another instance may have reused
            # it: read the Node first, then look for the instance.
            current = cluster.node(node.name)
            if current is None or current.uid != node.uid:
                return leftovers.changed(volumes)
            node = current
            if reused_by := self._reused_by([(facts, node)])[facts.instance]:
                return leftovers.reused(reused_by)
        # The Node is deleted last: it holds the taint by which its volumes are detached.
        if not cluster.delete_node(node):
            return leftovers.changed(volumes)
        reason = (
            f"EC2 reports instance {facts.instance} as terminated: Leeway detached the volumes of "
            "its node and deleted the Node object."
        )
        return leftovers.outcome(CleanUpResult.CLEANED, reason, volumes)

    def _reused_by(self, leftovers: Collection[tuple[InstanceFacts, Node]]) -> dict[str, str]:
        """Return, by terminated instance, the instance that has the name of its node now; empty if
        there is none.

        An instance that gets the address of a terminated one finds the Node object and uses it,
        with the old provider id and UID. Its kubelet may not respond for a while, so neither the
        object nor its Ready condition shows that the old instance is gone. Without the object the
        kubelet would not register again. An instance that reuses the Node later changes the version
        of the Node that was read before.
        """
        running: dict[tuple[str, str], list[str]] = defaultdict(list)
        for one in self._sweep.named({node.name for _, node in leftovers}):
            if one.state not in GONE:
                key = (one.facts.private_dns_name, one.facts.cluster)
                running[key].append(one.facts.instance)
        return {
            facts.instance: next(
                (one for one in running[node.name, facts.cluster] if one != facts.instance), ""
            )
            for facts, node in leftovers
        }

    def _wait_for_volumes(
        self, cluster: ClusterLeftovers, node: str, until: datetime
    ) -> list[Attachment]:
        while (attached := cluster.attachments_on(node)) and self._clock.now() < until:
            self._clock.sleep(POLL_VOLUMES_EVERY)
        return attached


def _without_node(result: CleanUpResult, facts: InstanceFacts, reason: str) -> CleanUpOutcome:
    return CleanUpOutcome(result, facts.instance, facts.cluster, "", reason)


def _named(cluster: ClusterLeftovers, facts: InstanceFacts) -> Node | None:
    """Read the node of an instance by the names that it may have."""
    for name in (facts.private_dns_name, facts.instance):
        node = cluster.node(name) if name else None
        if node is not None and node.runs_on(facts.instance):
            return node
    return None
