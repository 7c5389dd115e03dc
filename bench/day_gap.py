"""Shows what the price of a simulated day above its bound consists of: each row of the table
switches one rule off."""

from dataclasses import replace
from datetime import timedelta

from leeway.disruption.rules import Budget
from leeway.policy.rules import ChurnCap
from leeway.policy.worth import Worth
from leeway.selection.packing.planning import Effort, pack
from leeway_cli.simulated_day.cluster import Cluster, Options
from leeway_cli.simulated_day.day import minutes, simulate
from leeway_cli.simulated_day.record import Record
from leeway_cli.simulated_day.workload import supply
from rich.console import Console
from rich.table import Table

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


def main() -> None:
    """Print the table of a day without interruptions."""
    table = Table(title="What a day costs, rule by rule")
    for name in ("", "USD", "above the bound", "launched", "given back", "pods moved"):
        table.add_column(name, justify="right" if name else "left")
    options = Options()
    record, anew = simulated(options)
    bound = record.bound
    table.add_row("Leeway", *_money(record.dollars, bound), *_counts(record))
    for name, change in SWITCHED_OFF:
        record = simulate(replace(options, bounds=False, **change))
        table.add_row(name, *_money(record.dollars, bound), *_counts(record))
    table.add_row("new nodes for all pods every ten minutes", *_money(anew, bound))
    table.add_row("parts of nodes: the bound", *_money(bound, bound))
    Console(width=120).print(table)


def simulated(options: Options) -> tuple[Record, float]:
    """Simulate a day; return also what it costs in USD with the nodes that Leeway would launch for
    all pods in an empty cluster."""
    record, anew = Record(), 0.0
    for cluster in minutes(options):
        record = cluster.record
        if cluster.minute % EVERY == 0:
            anew += _anew(cluster) * EVERY / 60
    return record, anew


def _anew(cluster: Cluster) -> float:
    pods = [one.pod for one in cluster.controllers.pods.values()]
    offered = supply(cluster.options.seed, cluster.hour)
    return pack(pods, offered, [], Effort(improvements=5)).price


def _money(dollars: float, bound: float) -> tuple[str, str]:
    return f"{dollars:.2f}", f"{dollars / bound - 1:.0%}"


def _counts(record: Record) -> tuple[str, ...]:
    counts = (len(record.launched), len(record.given_back), record.moved)
    return tuple(f"{count:,}" for count in counts)


if __name__ == "__main__":
    main()
