"""Which of its group's newcomers succeeds an instance that retires, and when it may be relied on.

A group does not tell for whom it starts an instance, and it starts them for many: for those who
wait here, for interrupted ones, which wait for nobody, for what somebody ended by hand, and to
grow. So nobody has to say that it takes one. Whoever waits counts what the group has still to
start: while that is more than the others need who wait, its own may be among it.
"""

from collections.abc import Sequence
from itertools import islice

from leeway.cloud.ports import CloudUnavailable, Instances
from leeway.cluster.ports import Cluster
from leeway.records.retirement import Retirement
from leeway.retirement.surging import TRIES, is_written
from leeway.retirement.surroundings import Surroundings


class Succession:
    """Finds successors."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._nodes = _Nodes(world.instances)

    def wait_from(self, instance: str, group: str) -> tuple[str, ...]:
        """Note that an instance's successor is going to be waited for. Returns the members that
        the group had before: what comes since may be it."""
        for _ in range(TRIES):
            ledger = self._world.ledgers.surge(group)
            members = self._world.groups.capacity(group).members
            noted = ledger.counting_from(instance, members, self._world.clock.now())
            if is_written(self._world.ledgers, noted):
                return noted.counted
        raise CloudUnavailable(f"group {group}: many of its instances are replaced just now")

    def successor_of(self, record: Retirement) -> str:
        """Return an instance that came since, is Ready, and may be relied on; empty where there is
        none yet.

        The ledger is read first, and who else still waits last: what is counted as theirs was asked
        for before the group was read, and is waited for still.
        """
        asked = record.replaced
        if asked is None:
            return ""
        cluster = self._world.cluster_named(record.facts.cluster)
        for _ in range(TRIES):
            ledger = self._world.ledgers.surge(asked.group)
            known = asked.successor or ledger.successor_of(record.instance)
            if known and self._nodes.is_ready(known, cluster):
                return known
            group = self._world.groups.capacity(asked.group)
            now = self._world.clock.now()
            others = ledger.others_waiting(record.instance, group.members, now)
            came = ledger.newcomers(record.instance, asked.members, group.members)
            found, to_come = self._nodes.first_ready(came, cluster, group.missing, len(others))
            if not found or not self._still_wait(others, to_come):
                return ""
            over = ledger.succeeded(record.instance, found, now)
            if is_written(self._world.ledgers, over):
                return found
        return ""

    def _still_wait(self, others: Sequence[str], at_least: int) -> bool:
        """Whether so many of these wait for their successors, by their own records."""
        records = map(self._world.records.retirement, others)
        waiting = (record for record in records if record and record.waits_for_successor)
        return len(list(islice(waiting, at_least))) == at_least


class _Nodes:
    """Looks at the nodes of instances. An instance's name does not change: EC2 is asked once."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._names: dict[str, str] = {}

    def first_ready(
        self, instances: Sequence[str], cluster: Cluster, missing: int, at_most: int
    ) -> tuple[str, int]:
        """Return the first of the instances that is Ready, and how many more are still to come: not
        Ready, or `missing`. Nothing is looked at, or returned, once they are more than `at_most`.
        """
        found, to_come = "", missing
        for instance in instances:
            if to_come > at_most:
                break
            if not self.is_ready(instance, cluster):
                to_come += 1
            elif not found:
                found = instance
        return ("" if to_come > at_most else found), to_come

    def is_ready(self, instance: str, cluster: Cluster) -> bool:
        """Whether pods can go to an instance's node."""
        names = (self._name_of(instance), instance)
        found = (cluster.node(name) for name in names if name)
        node = next((node for node in found if node and node.runs_on(instance)), None)
        return node is not None and node.ready and not node.unschedulable

    def _name_of(self, instance: str) -> str:
        if not self._names.get(instance):
            facts = self._instances.describe(instance)
            self._names[instance] = facts.private_dns_name if facts else ""
        return self._names[instance]
