"""Simulates a day of a changing workload: what Leeway costs and moves beside Karpenter's rules."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from leeway_cli.simulated_day.cluster import Options
from leeway_cli.simulated_day.day import Decisions, Leeway, simulate
from leeway_cli.simulated_day.record import Record, bought_again, replaced_twice, undone
from rich.console import Console
from rich.table import Table

from bench.karpenter_rules import Karpenter

COLUMNS = (
    *("USD", "above the bound", "node-hours", "launched", "empty", "not needed", "replaced"),
    *("pods moved", "undone", "replaced twice", "bought again", "minutes that pods waited"),
    "interrupted",
)


@dataclass(frozen=True)
class Rule:
    """A rule of the comparison, as the options of a day."""

    name: str
    gives_back: bool = True
    only_empty: bool = False
    decisions: Callable[[], Decisions] = Leeway


RULES = (
    Rule("no node is given back", gives_back=False),
    Rule("only empty nodes", only_empty=True),
    Rule("Leeway"),
    Rule("Karpenter, no node is given back", gives_back=False, decisions=Karpenter),
    Rule("Karpenter", decisions=Karpenter),
    Rule("Karpenter, spot to spot", decisions=partial(Karpenter, spot_to_spot=True)),
    Rule(
        "Karpenter, spot to spot, Balanced",
        decisions=partial(Karpenter, spot_to_spot=True, balanced=True),
    ),
)


def main(seeds: int = 1) -> None:
    """Print for each of so many seeds a table without and one with Spot interruptions.

    Raises:
        AssertionError: a day broke a rule, or a plan undid another one.
    """
    for seed in range(seeds):
        for interruptions in (False, True):
            _compare(seed, interruptions)


def _compare(seed: int, interruptions: bool) -> None:
    title = f"Seed {seed}: a day with{'' if interruptions else 'out'} Spot interruptions"
    table = Table(title=title)
    table.add_column("rule")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for rule in RULES:
        options = Options(
            seed,
            gives_back=rule.gives_back,
            only_empty=rule.only_empty,
            interruptions=interruptions,
        )
        record = simulate(options, decisions=rule.decisions())
        table.add_row(rule.name, *_cells(record, options))
        if rule.decisions is Leeway:
            check(record, options)
        else:
            assert not record.faults, record.faults[0]
    Console(width=190).print(table)


def check(record: Record, options: Options) -> None:
    """Raise AssertionError if the day broke a rule, or if a plan undid another one."""
    assert not record.faults, record.faults[0]
    again = undone(record, options.worth)
    assert not again, f"the successor of {again[0].node} was given back before the move had paid"
    twice = replaced_twice(record, options.after)
    assert not twice, f"{twice[0].node}, a successor, was given back within consolidateAfter"


def _cells(record: Record, options: Options) -> Iterator[str]:
    yield f"{record.dollars:.2f}"
    yield f"{record.dollars / record.bound - 1:.0%}"
    yield f"{record.node_hours:,.0f}"
    yield f"{len(record.launched)}"
    for cause in ("Empty", "Underutilized", "Underutilized, replaced"):
        yield f"{record.causes[cause]}"
    yield f"{record.moved}"
    yield f"{len(undone(record, options.worth))}"
    yield f"{len(replaced_twice(record, options.after))}"
    yield f"{len(bought_again(record, options.worth))}"
    yield f"{record.pending_minutes:,}"
    yield f"{record.interrupted}"


if __name__ == "__main__":
    main()
