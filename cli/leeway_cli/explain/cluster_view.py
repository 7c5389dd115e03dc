"""Renders the explanation of a cluster as JSON or for a terminal."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leeway.instances.owners import OwnerKind
from leeway.printable import printable

from leeway_cli.explain.money import cost_as_data, cost_text, money, price_as_data, saves
from leeway_cli.explain.step_view import iso, some, step_as_data, utc
from leeway_cli.output import stdout_console

if TYPE_CHECKING:
    from leeway.disruption.explain import ClusterExplanation, Protected, SpareInGroup
    from leeway.disruption.follow import Step
    from rich.table import Table


_OWNERS = {
    OwnerKind.AUTO_SCALING_GROUP: "Auto Scaling groups",
    OwnerKind.MANAGED_NODE_GROUP: "managed node groups",
    OwnerKind.AUTO_MODE: "EKS Auto Mode",
    OwnerKind.KARPENTER: "Karpenter",
    OwnerKind.LEEWAY: "not confirmed",
    OwnerKind.FARGATE: "Fargate",
    OwnerKind.NONE: "other nodes",
}


def cluster_as_data(found: "ClusterExplanation", cluster: str, at: datetime) -> dict[str, Any]:
    """Render an explanation as JSON."""
    return {
        "cluster": cluster or None,
        "at": iso(at),
        "cost": {
            "leeway": cost_as_data(found.own),
            "otherOwners": {kind.value: cost_as_data(c) for kind, c in found.foreign.items()},
        },
        "next": step_as_data(found.next) if found.next else None,
        "steps": [step_as_data(step) for step in found.course.steps],
        "complete": found.course.complete,
        "afterAllSteps": cost_as_data(found.end),
        "lowerBoundPerHour": None if found.bound is None else round(found.bound, 6),
        "kept": [
            {"reason": asdict(one.example), "names": list(one.nodes), **cost_as_data(one.cost)}
            for one in found.protected
        ],
        "groups": [_group_as_data(one) for one in found.groups],
    }


def _group_as_data(group: "SpareInGroup") -> dict[str, Any]:
    size = group.size
    return {
        "group": group.group,
        "spareNodes": list(group.nodes),
        **price_as_data(group.saving, "saving"),
        "nodesWithoutPrice": group.without_price,
        "minimum": size.minimum if size else None,
        "desired": size.desired if size else None,
        "minimumNeeded": group.lower_minimum,
        "commands": commands(group),
    }


def commands(group: "SpareInGroup") -> list[str]:
    """Return the commands that make a group smaller. There are none for names that a terminal
    cannot show as they are."""
    if any(printable(name) != name for name in (group.group, *group.nodes)):
        return []
    found = []
    if group.lower_minimum is not None:
        name = shlex.quote(group.group)
        found.append(
            "aws autoscaling update-auto-scaling-group "
            f"--auto-scaling-group-name={name} --min-size {group.lower_minimum}"
        )
    nodes = " ".join(map(shlex.quote, group.nodes))
    return [*found, f"leeway terminate {nodes} --ignore-daemonsets --decrement"]


def show_cluster(found: "ClusterExplanation", cluster: str, at: datetime) -> None:
    """Print an explanation."""
    console = stdout_console()
    for part in _parts(found, cluster, at):
        console.print(part, soft_wrap=isinstance(part, str), markup=False)


def _parts(found: "ClusterExplanation", cluster: str, at: datetime) -> "Iterator[str | Table]":
    yield f"{f'cluster {cluster}' if cluster else 'the cluster'} at {utc(at)}"
    yield _line("Leeway", cost_text(found.own))
    for kind, cost in found.foreign.items():
        yield _line(_OWNERS[kind], cost_text(cost))
    bound = "unknown, there are no pools" if found.bound is None else money(found.bound)
    yield _line("lower bound", f"{bound}, for the pods on Leeway's nodes")
    yield _line("next step", _next(found))
    if found.course.steps:
        yield _line("after all", cost_text(found.end))
        yield ""
        yield _steps(found.course.steps, at)
        if not found.course.complete:
            yield "More steps may follow."
    if found.protected:
        yield ""
        yield _kept(found.protected)
    for group in found.groups:
        yield ""
        yield from group_lines(group)


def _next(found: "ClusterExplanation") -> str:
    step = found.next
    if step is None:
        return "none: nothing can be given back"
    reason = f"{step.returned.reason.code}: {step.returned.reason.message}"
    when = "" if step.allowed else f"Not allowed now; from {utc(step.at)} on: "
    return f"{when}{reason} It {saves(step.saving)}."


def _steps(steps: "Sequence[Step]", now: datetime) -> "Table":
    table = _table("STEP", "WHEN", "CAUSE", "NODES", "PODS", "USD/H", "USD/MONTH", "NEW NODES")
    for number, step in enumerate(steps, 1):
        one = step.returned
        saving = price_as_data(step.saving)
        new = [new.cheapest.type.name for new in step.launches]
        row = (
            str(number),
            "now" if step.allowed else "then" if step.at == now else f"{step.at:%H:%M} UTC",
            one.cause.value,
            some(one.nodes),
            str(one.moves),
            f"{saving['pricePerHour']:.4f}",
            f"{saving['pricePerMonth']:.2f}",
            some(new) or "-",
        )
        _add(table, row)
    return table


def _kept(protected: "Sequence[Protected]") -> "Table":
    table = _table("KEPT", "NODES", "USD/H", "BECAUSE")
    for one in protected:
        price = f"{one.cost.per_hour:.4f}"
        _add(table, (one.example.code, str(len(one.nodes)), price, one.example.message))
    return table


def group_lines(group: "SpareInGroup") -> Iterator[str]:
    """Yield what could be saved in a group, and the commands that do it."""
    count = len(group.nodes)
    size = group.size
    limits = (
        f"its minimum is {size.minimum}, its desired capacity {size.desired}"
        if size
        else "its size is not known"
    )
    unknown = f", without {group.without_price} of unknown price" if group.without_price else ""
    yield (
        f"Auto Scaling group {printable(group.group)} could be smaller by {count} "
        f"({some(group.nodes)}): {saves(group.saving)}{unknown}; {limits}. "
        "Leeway changes nothing there. To do it:"
    )
    for command in commands(group) or ["by hand: a name has characters that a shell does not take"]:
        yield f"    {command}"


def _table(*titles: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    right = {"STEP", "PODS", "USD/H", "USD/MONTH"}
    for title in titles:
        table.add_column(title, overflow="fold", justify="right" if title in right else "left")
    return table


def _add(table: "Table", row: Sequence[str]) -> None:
    from rich.text import Text

    table.add_row(*map(Text, row))  # as Text: a reason may have brackets, as markup has


def _line(title: str, text: str) -> str:
    return f"  {title:<20}{text}"
