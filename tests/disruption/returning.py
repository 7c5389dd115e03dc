"""The use case on ports in memory."""

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from leeway.admission.record import ADMISSION, Admission, Launch
from leeway.capacity_requests import CAPACITY_REQUEST, CapacityRequest
from leeway.disruption.return_capacity import Dependencies, ReturnCapacity
from leeway.execution.attempt import Phase
from leeway.instances.facts import FACTS, InstanceFacts
from leeway.manifests.configuration import MANIFEST, POOL
from leeway.policy.rules import ClusterPolicy
from leeway.ports.aws import CloudUnavailable
from leeway.provisioning.report import CapacityReturned
from leeway.reasons import Reason
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.table import Key

from tests.aws.stored import manifest
from tests.disruption.clusters import Cluster
from tests.fakes.functions import Starts
from tests.fakes.offerings import OfferingsInMemory
from tests.fakes.provision_queue import ProvisionQueueInMemory
from tests.fakes.table import Stored, TableInMemory
from tests.launch.launching import NOW, World

RUN_EVERY = timedelta(minutes=1)


def launched(facts: InstanceFacts) -> Admission:
    """The record of an instance's launch."""
    return Admission(
        facts=facts,
        attempt=1,
        phase=Phase.FINISHED,
        noticed_at=NOW,
        deadline=NOW,
        reason=Reason("NodeLaunched", "launched"),
        launch=Launch(intent="one", pool=facts.owner.name, at=NOW),
    )


class Returning:
    """A cluster, and the use case that runs on it each minute."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.table = TableInMemory()
        self.table.before = self._store
        self.starts = Starts()
        self.queue = ProvisionQueueInMemory()
        self.aws = World()
        self.policy = ClusterPolicy()
        self.time = NOW
        self.deleted: dict[str, datetime] = {}
        self.unread = False
        self.restart()

    @property
    def retirements(self) -> Stored[Retirement]:
        """The retirements, by instance."""
        return self.table.records(RETIREMENT)

    @property
    def admissions(self) -> Stored[Admission]:
        """The admissions, by instance."""
        return self.table.records(ADMISSION)

    @property
    def requests(self) -> Stored[CapacityRequest]:
        """The capacity requests, by instance."""
        return self.table.records(CAPACITY_REQUEST)

    def restart(self) -> None:
        """Have another environment of the function make the next run."""
        clock: Any = SimpleNamespace(now=lambda: self.time)
        deps = Dependencies(
            OfferingsInMemory(),
            self.table,
            self.starts,
            self.queue,
            self.aws.deps.sources,
            clock,
        )
        self.returns = ReturnCapacity(deps)

    def _store(self, operation: str, key: Key) -> None:
        """Store what the table is about to be asked for: the index, and the deleted pools."""
        if operation == "find":
            index = self.table.records(FACTS)
            index.clear()
            index.update(self.cluster.own)
        if operation == "list" and key[0].startswith("MANIFESTS#"):
            if self.unread:
                raise CloudUnavailable("throttled")
            for old in [one for one in self.table.items if one[0].startswith("MANIFESTS#")]:
                del self.table.items[old]
            for name, at in self.deleted.items():
                pool = manifest(name, resource=POOL, deleted_at=at)
                item = MANIFEST.write(pool, {"cluster": "prod"}, self.time)
                self.table.items[item.key] = item

    def record_launches(self) -> None:
        """Every instance that the index calls Leeway's was launched by it."""
        self.admissions.update({name: launched(one) for name, one in self.cluster.own.items()})

    def run(
        self,
        launched: bool = False,
        in_time: bool = True,
        after: timedelta = RUN_EVERY,
        **policy: Any,
    ) -> CapacityReturned:
        """The run of the next minute, or `after` another time."""
        self.time += after
        read = self.cluster.read(self.time)
        return self.returns.after_run(read, replace(self.policy, **policy), launched, in_time)

    def runs(self, count: int) -> list[CapacityReturned]:
        """Several runs; those that did or said something."""
        found = [self.run() for _ in range(count)]
        return [one for one in found if one != CapacityReturned()]

    def started(self) -> list[str]:
        """The instances whose retirement was started, each once."""
        return list(dict.fromkeys(instance for instance, _, _ in self.starts.started))
