"""The state of a simulated cluster, and the options of its day."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from leeway.disruption.rules import Budget, ReturnRules
from leeway.policy.rules import ChurnCap
from leeway.policy.worth import USUAL, Worth
from leeway.selection.offers.catalog import Unavailable
from leeway.selection.pods import ExistingNode
from leeway.selection.pools import NodePool

from leeway_cli.simulated_day.controllers import Controllers
from leeway_cli.simulated_day.machines import Machine
from leeway_cli.simulated_day.offers import pools, prices
from leeway_cli.simulated_day.record import Record
from leeway_cli.simulated_day.workload import DAY, Workload

MIDNIGHT = datetime(2026, 11, 23, tzinfo=UTC)


@dataclass(frozen=True)
class Options:
    """A simulated day: `minutes` from the minute `start`. `scale` multiplies the pods.

    `gives_back` False: no node is given back. `bounds` False: the bound is not computed. EC2
    launches one of the `choices` cheapest Spot types of a request (price-capacity-optimized).
    """

    seed: int = 0
    minutes: int = DAY
    start: int = 0
    scale: float = 1.0
    gives_back: bool = True
    only_empty: bool = False
    interruptions: bool = False
    after: timedelta = timedelta(minutes=5)
    budgets: tuple[Budget, ...] = (Budget("10%"),)
    churn: ChurnCap = field(default_factory=ChurnCap)
    worth: Worth = USUAL
    choices: int = 5
    bounds: bool = True

    @property
    def rules(self) -> ReturnRules:
        """The rules of both pools."""
        return ReturnRules(self.after, self.only_empty, budgets=self.budgets)


class Cluster:
    """A cluster in a minute of its day.

    `unavailable` maps offerings to the minute until which they are not launched.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.minute = options.start
        self.dice = random.Random(options.seed)  # noqa: S311
        self.pools: tuple[NodePool, ...] = pools()
        self.machines: dict[str, Machine] = {}
        self.controllers = Controllers(Workload(options.seed, options.scale))
        self.unavailable: dict[Unavailable, int] = {}
        self.record = Record()

    @property
    def hour(self) -> int:
        """The hour whose prices apply."""
        return self.minute // 60

    @property
    def closed(self) -> frozenset[Unavailable]:
        """The offerings that are not launched now."""
        return frozenset(key for key, until in self.unavailable.items() if until > self.minute)

    @property
    def nodes(self) -> Iterator[ExistingNode]:
        """All nodes as provisioning sees them: those that go take no pods."""
        for one in self.machines.values():
            yield one.node().closed() if one.going else one.node()

    def requested(self, pool: NodePool) -> tuple[int, int]:
        """Return the requests of the pods that use a pool, in millicores and bytes."""
        pods = (one.pod.spec for one in self.controllers.pods.values())
        specs = [one.requests for one in pods if bool(one.tolerations) is bool(pool.taints)]
        return sum(one.of("cpu") for one in specs), sum(one.of("memory") for one in specs)

    def price(self, machine: Machine) -> float:
        """Return what a node costs now, in USD per hour: Spot prices change."""
        offering = machine.offering.offering
        key = (machine.kind[0], offering.zone, offering.capacity_type)
        return prices(self.options.seed, self.hour)[key]
