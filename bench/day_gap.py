"""Shows what the price of a simulated day above its bound consists of: what keeps nodes and how
much of them is unused, what the day costs at least, and what it costs with one rule off."""

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from functools import cache

import numpy as np
from leeway.disruption.rules import Budget
from leeway.policy.rules import ChurnCap, Worth
from leeway.selection.labels import SPOT
from leeway.selection.packing.plan import PlannedNode
from leeway.selection.packing.planning import Effort, pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import PodSpec
from leeway_cli.simulated_day.cluster import Cluster, Machine, Options
from leeway_cli.simulated_day.day import BOOT, Leeway, minutes, simulate
from leeway_cli.simulated_day.record import Record
from leeway_cli.simulated_day.workload import DAY, supply
from rich.console import Console
from rich.table import Table

from bench.whole_nodes import whole_nodes, with_idle_time

FREE = Worth(per_pod=0.0, share=0.0, least_age=timedelta(seconds=1))

SWITCHED_OFF = (
    ("EC2 launches the cheapest type", {"choices": 1}),
    (
        "no disruption budget, no churn cap",
        {"budgets": (Budget("100%"),), "churn": ChurnCap(percent=100)},
    ),
    ("`consolidateAfter: 0s`", {"after": timedelta(0)}),
    ("a move costs nothing, `leastAge: 1s`", {"worth": FREE}),
)
"""What is changed, each alone."""

EVERY = 10
"""Minutes between two moments in which all pods are packed anew."""

BOUNDED_EVERY = 7
"""Minutes between two moments with tighter bounds. With jobs every 15 minutes, each minute of a
quarter of an hour has its turn."""

ANEW = Effort(improvements=5)


def main() -> None:
    """Print the tables of a day without interruptions."""
    console, options = Console(width=130), Options()
    day = Day(options)
    bound = day.record.bound
    console.print(day.kept())
    table = _table("What a day costs at least", "USD", "above the bound")
    for name, dollars in day.lower():
        table.add_row(name, *_money(dollars, bound))
    console.print(table)
    counts = ("launched", "given back", "pods moved")
    table = _table("What a day costs, rule by rule", "USD", "above the bound", *counts)
    table.add_row("Leeway", *_money(day.record.dollars, bound), *_counts(day.record))
    for name, change in SWITCHED_OFF:
        record = simulate(replace(options, bounds=False, **change))
        table.add_row(name, *_money(record.dollars, bound), *_counts(record))
    console.print(table)


class Day:
    """A simulated day of Leeway and what is computed about it, in USD.

    - `anew`: the nodes that Leeway would launch for all pods in an empty cluster every ten minutes;
      `anew_chosen`: the same if EC2 chooses their types; `anywhere`: without spreads over zones.
    - `whole`, `chosen`: lower bounds by whole nodes, without and with EC2's choice.
    - `price`, `unused`: of all nodes, by what keeps them. The unused part of a node is the share
      that is free of both its CPU and its memory.
    """

    def __init__(self, options: Options) -> None:
        self.anew = self.anew_chosen = self.anywhere = 0.0
        self.whole: list[float] = []
        self.chosen: list[float] = []
        self.price: dict[str, float] = defaultdict(float)
        self.unused: dict[str, float] = defaultdict(float)
        by = Leeway()
        for cluster in minutes(options, by):
            self._note(cluster, by)
        self.record = cluster.record
        self._options = options

    def _note(self, cluster: Cluster, by: Leeway) -> None:
        options = cluster.options
        pods = [one.pod for one in cluster.controllers.pods.values()]
        if cluster.minute % EVERY == 0:
            offered = supply(options.seed, cluster.hour)
            plan = pack(pods, offered, [], ANEW)
            self.anew += plan.price * EVERY / 60
            chosen = sum(_chosen(one, offered, options.choices) for one in plan.launches)
            self.anew_chosen += chosen * EVERY / 60
            free = [replace(one, spec=_anywhere(one.spec)) for one in pods]
            self.anywhere += pack(free, offered, [], ANEW).price * EVERY / 60
        if cluster.minute % BOUNDED_EVERY == 0:
            specs = [one.spec for one in pods]
            self.whole.append(whole_nodes(specs, options.seed, cluster.hour, 1))
            self.chosen.append(whole_nodes(specs, options.seed, cluster.hour, options.choices))
        for one in cluster.machines.values():
            why, dollars = _why(one, cluster, by), cluster.price(one) / 60
            self.price[why] += dollars
            self.unused[why] += dollars * _unused(one)

    def lower(self) -> list[tuple[str, float]]:
        """What the day costs in other ways, and at least, each with its name."""
        apart = DAY / 60 / len(self.whole)
        idle = sum(BOOT) / 2 / 60 + self._options.after / timedelta(hours=1)
        return [
            ("new nodes for all pods every ten minutes, EC2 chooses", self.anew_chosen),
            ("the same, and EC2 launches the cheapest type", self.anew),
            ("the same, and pods are not spread over zones", self.anywhere),
            (
                "bound: whole nodes, EC2 chooses, idle time",
                with_idle_time(self.chosen, apart, idle),
            ),
            ("bound: whole nodes, EC2 chooses", sum(self.chosen) * apart),
            ("bound: whole nodes", sum(self.whole) * apart),
            ("bound: parts of nodes", self.record.bound),
        ]

    def kept(self) -> Table:
        """Return the table of what keeps the unused part of nodes."""
        table = _table("What keeps nodes, and how much of them is unused", "USD unused", "USD")
        for why, dollars in sorted(self.unused.items(), key=lambda one: -one[1]):
            table.add_row(why, f"{dollars:.2f}", f"{self.price[why]:.2f}")
        total = sum(self.unused.values()), sum(self.price.values())
        table.add_row("all nodes", *(f"{dollars:.2f}" for dollars in total))
        return table


@cache
def _anywhere(spec: PodSpec) -> PodSpec:
    return replace(spec, spreads=())


def _why(one: Machine, cluster: Cluster, by: Leeway) -> str:
    if one.retirement is not None:
        return "it goes" if one.retirement.draining else "it waits for its successor"
    if not one.is_ready(cluster.minute):
        return "it starts"
    kept = by.decision.kept.get(one.name)
    return str(kept.code) if kept is not None else "it is to go, in the next minute"


def _unused(one: Machine) -> float:
    whole = one.offering.type.allocatable
    return max(min(one.free.of(name) / whole.of(name) for name in ("cpu", "memory")), 0.0)


def _chosen(planned: PlannedNode, offered: Supply, choices: int) -> float:
    """The mean price of what EC2 launches for a planned node: for Spot one of those that are the
    cheapest in the zone of the cheapest offering."""
    if planned.cheapest.offering.capacity_type != SPOT:
        return planned.cheapest.price
    types, zone = set(planned.choices[0].instance_types), planned.cheapest.offering.zone
    there = sorted(
        each.price
        for each in offered.candidates
        if each.pool.name == planned.pool and each.type.name in types
        if (each.offering.zone, each.offering.capacity_type) == (zone, SPOT)
    )
    return float(np.mean(there[:choices]))


def _table(title: str, *columns: str) -> Table:
    table = Table("", title=title)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _money(dollars: float, bound: float) -> tuple[str, str]:
    return f"{dollars:.2f}", f"{dollars / bound - 1:.0%}"


def _counts(record: Record) -> tuple[str, ...]:
    counts = (len(record.launched), len(record.given_back), record.moved)
    return tuple(f"{count:,}" for count in counts)


if __name__ == "__main__":
    main()
