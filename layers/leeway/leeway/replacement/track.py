"""Tracks a successor: whether its node is Ready, and whether it failed."""

from dataclasses import dataclass
from datetime import timedelta

from leeway.policy.rules import SUCCESSOR_TIMEOUT
from leeway.ports.aws import GroupInstances, Groups
from leeway.ports.kubernetes import Cluster
from leeway.ports.kubernetes_objects import Node
from leeway.reasons import Reason
from leeway.replacement.reasons import (
    LAUNCHED_BY_GROUP,
    SUCCESSOR_LEFT_GROUP,
    SUCCESSOR_NOT_JOINED,
)
from leeway.replacement.request_capacity import RequestCapacity
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Method, ReplacementIntent, Successor
from leeway.retirement.step_context import StepContext

JOIN_TIMEOUT = SUCCESSOR_TIMEOUT / 2
"""How long a successor may take until it has a node; after that its group replaces it."""

VISIBLE_AFTER = timedelta(seconds=30)
"""How long Auto Scaling may take to list an instance that it launched."""

LOOK_BACK = timedelta(hours=1)
"""How long ago an instance that counts as a group's own replacement may have been launched."""


@dataclass(frozen=True, slots=True)
class SuccessorStatus:
    """The status of a successor: `ready` if pods can run on it, `failed` is why it never will be
    Ready, `without_successor` are the places of the pods if they need no successor. If all are
    empty, the retirement waits."""

    ready: tuple[Successor, ...] = ()
    failed: Reason | None = None
    without_successor: tuple[Reason, ...] = ()


class SuccessorTracker:
    """Tracks successors. EC2 is called once for each instance: its DNS name does not change."""

    def __init__(
        self,
        context: StepContext,
        groups: Groups,
        instances: GroupInstances,
        capacity: RequestCapacity,
    ) -> None:
        self._context = context
        self._capacity = capacity
        self._groups = groups
        self._instances = instances
        self._names: dict[str, str] = {}

    def track(self, record: Retirement) -> SuccessorStatus:
        """Return the status of the successor that was launched with LaunchInstances, of the nodes
        of Leeway's pools, or of the instances that the group launched itself."""
        intent = record.replacement_intent
        if intent is None:
            return SuccessorStatus()
        cluster = self._context.open_cluster(record.facts.cluster)
        if intent.method is Method.REQUEST_CAPACITY:
            return self._launched_by_pools(record, cluster)
        if intent.successors:
            return self._launched_with_api(intent, cluster)
        return self._launched_by_group(intent, cluster)

    def _launched_by_pools(self, record: Retirement, cluster: Cluster) -> SuccessorStatus:
        """Check the answer of provision_nodes: every pod has a place, and the nodes that were
        launched for them are Ready. A later answer replaces one that gives some pods no place."""
        result = self._capacity.result(record)
        if not (result.answered and result.complete):
            return SuccessorStatus()
        for successor in result.successors:
            node = self._node_of(successor.instance, cluster)
            if node is None or not node.ready or node.unschedulable:
                return SuccessorStatus()
        if not result.successors:
            return SuccessorStatus(without_successor=result.reasons)
        return SuccessorStatus(ready=result.successors)

    def _launched_with_api(self, intent: ReplacementIntent, cluster: Cluster) -> SuccessorStatus:
        for successor in intent.successors:
            node = self._node_of(successor.instance, cluster)
            if node is not None and node.ready and not node.unschedulable:
                continue
            return SuccessorStatus(failed=self._failure(intent, successor, node, cluster))
        return SuccessorStatus(ready=intent.successors)

    def _failure(
        self, intent: ReplacementIntent, successor: Successor, node: Node | None, cluster: Cluster
    ) -> Reason | None:
        """Return why a successor will not be Ready; None if it still may be. A successor that has
        no node after JOIN_TIMEOUT is terminated, so that its group launches another one."""
        groups, waited = self._groups, self._context.clock.now() - intent.requested_at
        if waited < VISIBLE_AFTER:
            return None
        group = groups.facts(successor.instance)
        if group is None or not group.stays_in_group:
            return SUCCESSOR_LEFT_GROUP(instance=successor.instance, group=intent.group)
        if node is not None or waited < JOIN_TIMEOUT:
            return None
        if cluster.node_of(successor.instance, ()) is not None:
            return None
        groups.terminate_in_group(successor.instance)
        minutes = JOIN_TIMEOUT.total_seconds() / 60
        return SUCCESSOR_NOT_JOINED(instance=successor.instance, minutes=minutes)

    def _launched_by_group(self, intent: ReplacementIntent, cluster: Cluster) -> SuccessorStatus:
        """Check whether the group has launched its desired capacity and all new nodes are Ready.
        A group does not say which instance replaces which, so concurrent retirements wait for each
        other's successors."""
        since = max(intent.requested_at, self._context.clock.now() - LOOK_BACK)
        if self._groups.missing(intent.group):
            return SuccessorStatus()
        ready: list[Successor] = []
        for found in self._instances.launched_in(intent.group, since):
            self._names[found.instance] = found.private_dns_name
            node = self._node_of(found.instance, cluster)
            if node is None or not node.ready:
                return SuccessorStatus()
            if not node.unschedulable:  # a cordoned node is itself being retired
                why = LAUNCHED_BY_GROUP()
                ready.append(Successor(found.instance, found.instance_type, found.zone, why))
        return SuccessorStatus(tuple(ready[:1]))

    def _node_of(self, instance: str, cluster: Cluster) -> Node | None:
        if not self._names.get(instance):
            facts = self._instances.describe(instance)
            self._names[instance] = facts.private_dns_name if facts else ""
        found = (cluster.node(name) for name in (self._names[instance], instance) if name)
        return next((node for node in found if node and node.runs_on(instance)), None)
