"""How a retirement looks for its successor: whether its node is Ready, and whether it failed."""

from dataclasses import dataclass
from datetime import timedelta

from leeway.cluster.ports import Cluster, Node
from leeway.policies import SUCCESSOR_WITHIN
from leeway.records.retirement import ReplacementIntent, Retirement, Successor
from leeway.retirement.surroundings import Surroundings

JOINS_WITHIN = SUCCESSOR_WITHIN / 2
"""How long a successor may take until it has a node: after that its group replaces it."""

SHOWS_WITHIN = timedelta(seconds=30)
"""After which Auto Scaling shows an instance that it has launched."""

LONGEST_LOOK = timedelta(hours=1)
"""How long ago an instance may have been launched that is looked for by its group."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What is seen of a successor: `ready` where pods can go there, `failed` says why it never will
    be. Neither: it is to be waited for."""

    ready: tuple[Successor, ...] = ()
    failed: str = ""


class Awaiting:
    """Looks for successors. An instance's name does not change: EC2 is asked once."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._names: dict[str, str] = {}

    def look(self, record: Retirement) -> Looked:
        """Look for the successor that was launched by name, else for what its group launched."""
        intent = record.replaced
        if intent is None:
            return Looked()
        cluster = self._world.cluster_named(record.facts.cluster)
        if intent.successors:
            return self._named(intent, cluster)
        return self._launched_since(intent, cluster)

    def _named(self, intent: ReplacementIntent, cluster: Cluster) -> Looked:
        for successor in intent.successors:
            node = self._node_of(successor.instance, cluster)
            if node is not None and node.ready and not node.unschedulable:
                continue
            return Looked(failed=self._failure(intent, successor, node, cluster))
        return Looked(ready=intent.successors)

    def _failure(
        self, intent: ReplacementIntent, successor: Successor, node: Node | None, cluster: Cluster
    ) -> str:
        """Say why a successor that is not Ready will not be; empty where it still may. What does
        not join, under whatever name, is ended, so that its group launches another one."""
        groups, waited = self._world.groups, self._world.clock.now() - intent.asked_at
        if waited < SHOWS_WITHIN:
            return ""
        group = groups.facts(successor.instance)
        if group is None or not group.serves:
            return f"successor {successor.instance} left group {intent.group} before it was Ready"
        if node is not None or waited < JOINS_WITHIN:
            return ""
        if cluster.node_of(successor.instance, ()) is not None:
            return ""
        groups.terminate_in_group(successor.instance)
        minutes = JOINS_WITHIN.total_seconds() / 60
        return f"successor {successor.instance} had no node in {minutes:g} minutes and was ended"

    def _launched_since(self, intent: ReplacementIntent, cluster: Cluster) -> Looked:
        """Look whether the group has launched all that it wants, and all of that is Ready: it does
        not tell for whom it launches, so whoever waits does so for what others wait for, too."""
        since = max(intent.asked_at, self._world.clock.now() - LONGEST_LOOK)
        if self._world.groups.missing(intent.group):
            return Looked()
        ready: list[Successor] = []
        for came in self._world.instances.launched_in(intent.group, since):
            self._names[came.instance] = came.private_dns_name
            node = self._node_of(came.instance, cluster)
            if node is None or not node.ready:
                return Looked()
            if not node.unschedulable:  # else it is on its way out itself
                why = "the group launched it since"
                ready.append(Successor(came.instance, came.instance_type, came.zone, why))
        return Looked(tuple(ready[:1]))

    def _node_of(self, instance: str, cluster: Cluster) -> Node | None:
        if not self._names.get(instance):
            facts = self._world.instances.describe(instance)
            self._names[instance] = facts.private_dns_name if facts else ""
        found = (cluster.node(name) for name in (self._names[instance], instance) if name)
        return next((node for node in found if node and node.runs_on(instance)), None)
