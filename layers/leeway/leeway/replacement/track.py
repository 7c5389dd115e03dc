"""How a retirement looks for its successor: whether its node is Ready, and whether it failed."""

from dataclasses import dataclass
from datetime import timedelta

from leeway.policy.rules import SUCCESSOR_TIMEOUT
from leeway.ports.aws import GroupInstances, Groups
from leeway.ports.kubernetes import Cluster
from leeway.ports.kubernetes_objects import Node
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import ReplacementIntent, Successor
from leeway.retirement.step_context import StepContext

JOINS_WITHIN = SUCCESSOR_TIMEOUT / 2
"""How long a successor may take until it has a node: after that its group replaces it."""

SHOWS_WITHIN = timedelta(seconds=30)
"""After which Auto Scaling shows an instance that it has launched."""

LONGEST_LOOK = timedelta(hours=1)
"""How long ago an instance may have been launched that is looked for by its group."""


@dataclass(frozen=True, slots=True)
class SuccessorStatus:
    """What is seen of a successor: `ready` where pods can go there, `failed` says why it never will
    be. Neither: it is to be waited for."""

    ready: tuple[Successor, ...] = ()
    failed: str = ""


class SuccessorTracker:
    """Looks for successors. An instance's name does not change: EC2 is asked once."""

    def __init__(self, context: StepContext, groups: Groups, instances: GroupInstances) -> None:
        self._context = context
        self._groups = groups
        self._instances = instances
        self._names: dict[str, str] = {}

    def look(self, record: Retirement) -> SuccessorStatus:
        """Look for the successor that was launched by name, else for what its group launched."""
        intent = record.replacement_intent
        if intent is None:
            return SuccessorStatus()
        cluster = self._context.open_cluster(record.facts.cluster)
        if intent.successors:
            return self._named(intent, cluster)
        return self._launched_since(intent, cluster)

    def _named(self, intent: ReplacementIntent, cluster: Cluster) -> SuccessorStatus:
        for successor in intent.successors:
            node = self._node_of(successor.instance, cluster)
            if node is not None and node.ready and not node.unschedulable:
                continue
            return SuccessorStatus(failed=self._failure(intent, successor, node, cluster))
        return SuccessorStatus(ready=intent.successors)

    def _failure(
        self, intent: ReplacementIntent, successor: Successor, node: Node | None, cluster: Cluster
    ) -> str:
        """Say why a successor that is not Ready will not be; empty where it still may. What does
        not join, under whatever name, is ended, so that its group launches another one."""
        groups, waited = self._groups, self._context.clock.now() - intent.asked_at
        if waited < SHOWS_WITHIN:
            return ""
        group = groups.facts(successor.instance)
        if group is None or not group.stays_in_group:
            return f"successor {successor.instance} left group {intent.group} before it was Ready"
        if node is not None or waited < JOINS_WITHIN:
            return ""
        if cluster.node_of(successor.instance, ()) is not None:
            return ""
        groups.terminate_in_group(successor.instance)
        minutes = JOINS_WITHIN.total_seconds() / 60
        return f"successor {successor.instance} had no node in {minutes:g} minutes and was ended"

    def _launched_since(self, intent: ReplacementIntent, cluster: Cluster) -> SuccessorStatus:
        """Look whether the group has launched all that it wants, and all of that is Ready: it does
        not tell for whom it launches, so whoever waits does so for what others wait for, too."""
        since = max(intent.asked_at, self._context.clock.now() - LONGEST_LOOK)
        if self._groups.missing(intent.group):
            return SuccessorStatus()
        ready: list[Successor] = []
        for came in self._instances.launched_in(intent.group, since):
            self._names[came.instance] = came.private_dns_name
            node = self._node_of(came.instance, cluster)
            if node is None or not node.ready:
                return SuccessorStatus()
            if not node.unschedulable:  # else it is on its way out itself
                why = "the group launched it since"
                ready.append(Successor(came.instance, came.instance_type, came.zone, why))
        return SuccessorStatus(tuple(ready[:1]))

    def _node_of(self, instance: str, cluster: Cluster) -> Node | None:
        if not self._names.get(instance):
            facts = self._instances.describe(instance)
            self._names[instance] = facts.private_dns_name if facts else ""
        found = (cluster.node(name) for name in (self._names[instance], instance) if name)
        return next((node for node in found if node and node.runs_on(instance)), None)
