"""Renders what keeps the nodes of a cluster, or gives them back."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leeway.disruption.explain import (
    MONTH_HOURS,
    ClusterExplanation,
    Cost,
    Instead,
    NodeExplanation,
    Protected,
    Shortfall,
    SpareInGroup,
    Step,
    title_of,
)
from leeway.disruption.snapshot import MovablePod
from leeway.instances.facts import OwnerKind
from leeway.ports.kubernetes_objects import FOREVER
from leeway.printable import printable
from leeway.reasons import counted, some
from leeway.selection.packing.plan import PlannedNode

from leeway_cli.output import as_json, picked, stdout_console, table
from leeway_cli.selection.select import launch_as_data

if TYPE_CHECKING:
    from rich.table import Table

CENT = 0.005
"""Half a cent, in USD."""


def price_as_data(per_hour: float | None, name: str = "price") -> dict[str, float | None]:
    """Render an amount in USD per hour as two fields, per hour and per month of 730 hours."""
    if per_hour is None:
        return {f"{name}PerHour": None, f"{name}PerMonth": None}
    month = round(per_hour * MONTH_HOURS, 2)
    return {f"{name}PerHour": round(per_hour, 6), f"{name}PerMonth": month}


def cost_as_data(cost: Cost) -> dict[str, Any]:
    """Render the cost of some nodes."""
    return {
        "nodes": cost.nodes,
        **price_as_data(cost.per_hour),
        "nodesWithoutPrice": cost.without_price,
    }


def money(per_hour: float | None) -> str:
    """Render an amount in USD per hour for a terminal."""
    if per_hour is None:
        return "price unknown"
    return f"{per_hour:.4f} USD per hour, {per_hour * MONTH_HOURS:,.2f} a month"


def saves(per_hour: float) -> str:
    """Render what is saved, as a part of a sentence; savings below a cent a month are none."""
    if abs(per_hour) * MONTH_HOURS < CENT:
        return "saves nothing"
    return f"{'saves' if per_hour > 0 else 'costs'} {money(abs(per_hour))}"


def cost_text(cost: Cost) -> str:
    """Render the cost of some nodes for a terminal."""
    unknown = f", without the {cost.without_price} of unknown price" if cost.without_price else ""
    return f"{counted(cost.nodes, 'node')}: {money(cost.per_hour)}{unknown}"


def step_as_data(step: Step) -> dict[str, Any]:
    """Render a step as JSON."""
    return {
        **picked(step.returned, "nodes", "cause", "reason", podsMoved="moves"),
        "replacementFirst": step.returned.replaced or step.returned.in_place,
        **price_as_data(step.saving, "saving"),
        "launches": [launch_as_data(new) for new in step.launches],
        "allowedNow": step.allowed,
        "at": iso(step.at),
    }


def iso(moment: datetime | None) -> str | None:
    """Render a time for JSON; `never` for one that never comes."""
    if moment is None:
        return None
    return "never" if moment >= FOREVER else moment.isoformat(timespec="seconds")


def utc(moment: datetime) -> str:
    """Render a time for a terminal."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


_OWNERS = {
    OwnerKind.AUTO_SCALING_GROUP: "Auto Scaling groups",
    OwnerKind.MANAGED_NODE_GROUP: "managed node groups",
    OwnerKind.AUTO_MODE: "EKS Auto Mode",
    OwnerKind.KARPENTER: "Karpenter",
    OwnerKind.LEEWAY: "not confirmed",
    OwnerKind.FARGATE: "Fargate",
    OwnerKind.NONE: "other nodes",
}


def cluster_as_data(found: ClusterExplanation, cluster: str, at: datetime) -> dict[str, Any]:
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
            {**picked(one, reason="example", names="nodes"), **cost_as_data(one.cost)}
            for one in found.protected
        ],
        "groups": [_group_as_data(one, cluster) for one in found.groups],
    }


def _group_as_data(group: SpareInGroup, cluster: str) -> dict[str, Any]:
    size = group.size
    return {
        **picked(group, "group", spareNodes="nodes", minimumNeeded="lower_minimum"),
        **price_as_data(group.saving, "saving"),
        "nodesWithoutPrice": group.without_price,
        "minimum": size.minimum if size else None,
        "desired": size.desired if size else None,
        "commands": commands(group, cluster),
    }


def commands(group: SpareInGroup, cluster: str) -> list[str]:
    """Return the commands that make a group smaller. There are none for names that a terminal
    cannot show as they are. With the name of the cluster, `leeway terminate` refuses a node of the
    same name in another cluster: it finds nodes by the kubeconfig."""
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
    of_cluster = f" --cluster {shlex.quote(cluster)}" if cluster else ""
    return [*found, f"leeway terminate {nodes} --ignore-daemonsets --decrement{of_cluster}"]


def show_cluster(found: ClusterExplanation, cluster: str, at: datetime) -> None:
    """Print an explanation."""
    console = stdout_console()
    for part in _parts(found, cluster, at):
        console.print(part, soft_wrap=isinstance(part, str), markup=False)


def _parts(found: ClusterExplanation, cluster: str, at: datetime) -> "Iterator[str | Table]":
    yield f"{f'cluster {cluster}' if cluster else 'the cluster'} at {utc(at)}"
    yield _line("Leeway", cost_text(found.own))
    for kind, cost in found.foreign.items():
        yield _line(_OWNERS[kind], cost_text(cost))
    bound = "unknown: there is no pool"
    if found.bound is not None:
        bound = f"{money(found.bound)}, for the pods on Leeway's nodes"
    yield _line("lower bound", bound)
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
        yield from group_lines(group, cluster)


def _next(found: ClusterExplanation) -> str:
    step = found.next
    if step is None:
        return "none: nothing can be given back"
    reason = f"{step.returned.reason.code}: {step.returned.reason.message}"
    when = "" if step.allowed else f"Not allowed now; from {utc(step.at)} on: "
    return f"{when}{reason} It {saves(step.saving)}."


def _steps(steps: Sequence[Step], now: datetime) -> "Table":
    titles = ("STEP", "WHEN", "CAUSE", "NODES", "PODS", "USD/H", "USD/MONTH", "NEW NODES")
    rows = table(*titles, right={"STEP", "PODS", "USD/H", "USD/MONTH"})
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
        _add(rows, row)
    return rows


def _kept(protected: Sequence[Protected]) -> "Table":
    rows = table("KEPT", "NODES", "USD/H", "BECAUSE", right={"USD/H"})
    for one in protected:
        price = f"{one.cost.per_hour:.4f}"
        _add(rows, (one.example.code, str(len(one.nodes)), price, one.example.message))
    return rows


def group_lines(group: SpareInGroup, cluster: str) -> Iterator[str]:
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
    by_hand = ["by hand: a name has characters that a shell does not take"]
    for command in commands(group, cluster) or by_hand:
        yield f"    {command}"


def _add(rows: "Table", row: Sequence[str]) -> None:
    from rich.text import Text

    rows.add_row(*map(Text, row))  # as Text: a reason may have brackets, as markup has


def _line(title: str, text: str) -> str:
    return f"  {title:<20}{text}"


def node_as_data(found: NodeExplanation) -> dict[str, Any]:
    """Render an explanation as JSON."""
    one, instead, shortfall = found.one, found.instead, found.shortfall
    blockers = [{**picked(each, "reason"), "until": iso(each.until)} for each in found.blockers]
    return {
        **picked(one, "instance", "instance_type", "zone", "capacity_type", "drift", node="name"),
        "owner": {"kind": found.owner.kind.value, "name": found.owner.name},
        **price_as_data(one.price),
        "decision": decision(found),
        "reason": as_json(found.reason),
        "step": step_as_data(found.step) if found.step else None,
        "blockers": blockers,
        "pods": [_pod_as_data(each) for each in one.pods],
        "otherPods": other_pods(found),
        "instead": _instead_as_data(instead) if instead else None,
        "shortfall": picked(
            shortfall,
            "pods",
            savingPerHour="saving",
            leastPerHour="least",
            missingPerHour="missing",
        )
        if shortfall
        else None,
    }


def decision(found: NodeExplanation) -> str:
    """Return what becomes of a node: `goes`, `later`, `kept`, or for a node of another owner
    `spare` or `needed`."""
    if found.owner.kind is not OwnerKind.LEEWAY:
        return "spare" if found.spare else "needed"
    if found.step is None:
        return "kept"
    return "goes" if found.step.allowed else "later"


def other_pods(found: NodeExplanation) -> int:
    """Return how many pods end with the node, as those of DaemonSets do."""
    return max(len(found.one.node.pods) - len(found.one.pods), 0)


def _pod_as_data(movable: MovablePod) -> dict[str, Any]:
    return {
        "pod": movable.pod.name,
        "requests": movable.pod.spec.requests.printed(),
        "protectedUntil": iso(movable.protected_until),
        "blockedBy": list(movable.blocked_by),
    }


def _instead_as_data(instead: Instead) -> dict[str, Any]:
    return {
        "existing": [picked(one, "node", "pods") for one in instead.existing],
        "launches": [launch_as_data(new) for new in instead.launches],
        "unschedulable": [picked(one, "pod", "reason") for one in instead.homeless],
        **price_as_data(instead.price),
    }


def show_node(found: NodeExplanation) -> None:
    """Print an explanation."""
    console = stdout_console()
    for line in _lines(found):
        console.print(line, soft_wrap=True, markup=False)


def _lines(found: NodeExplanation) -> Iterator[str]:
    one = found.one
    offering = " ".join(each for each in (one.instance_type, one.zone, one.capacity_type) if each)
    yield f"node/{one.name} {_verdict(found)}"
    yield _node_line("reason", f"{found.reason.code}: {found.reason.message}")
    if found.step is not None and not found.step.allowed:
        reason = found.step.returned.reason
        when = f"from {utc(found.step.at)} on, after the steps before it"
        yield _node_line("later", f"{when}: {reason.code}: {reason.message}")
    yield _node_line("owner", title_of(found.owner))
    yield _node_line("instance", f"{one.instance or 'unknown'} {offering}".rstrip())
    yield _node_line("price", money(one.price))
    for drifted in one.drift:
        yield _node_line("drifted", drifted)
    for blocker in found.blockers:
        until = f" Until {utc(blocker.until)}." if blocker.until else ""
        yield _node_line("blocked", f"{blocker.reason.code}: {blocker.reason.message}{until}")
    yield from _pods(found)
    if found.instead is not None:
        yield from _instead(found.instead)
    if found.shortfall is not None:
        yield _node_line("worth", _worth(found.shortfall))


def _verdict(found: NodeExplanation) -> str:
    if found.step is not None:
        when = "is given back now" if found.step.allowed else "is kept now, and goes later"
        return f"{when}: it {saves(found.step.saving)}."
    if found.owner.kind is OwnerKind.LEEWAY:
        return "is kept."
    if found.spare:
        return f"could go: its pods fit on other nodes, which saves {money(found.one.price)}."
    return "is needed, or is protected."


def _pods(found: NodeExplanation) -> Iterator[str]:
    others = other_pods(found)
    count = f"{len(found.one.pods)} that would move"
    yield _node_line("pods", f"{count}, {others} that would end with it" if others else count)
    for movable in found.one.pods:
        requests = movable.pod.spec.requests.printed()
        cpu, memory = requests.get("cpu", "0"), requests.get("memory", "0")
        yield f"    - {movable.pod.name} (cpu {cpu}, memory {memory})"


def _instead(instead: Instead) -> Iterator[str]:
    for place in instead.existing:
        yield _node_line("instead", f"{counted(len(place.pods), 'pod')} on node {place.node}")
    for new in instead.launches:
        yield _node_line("instead", new_node(new))
    for homeless in instead.homeless:
        text = f"{homeless.pod} has no place: {homeless.reason.code}: {homeless.reason.message}"
        yield _node_line("instead", text)


def new_node(new: PlannedNode) -> str:
    """Describe a node to launch: its cheapest offering, and the pods that it holds."""
    offered = new.cheapest.offering
    place = f"{offered.capacity_type} in {offered.zone}"
    price = money(offered.price)
    pods = counted(len(new.pods), "pod")
    return f"a new {new.cheapest.type.name} of pool {new.pool} ({place}; {price}) for {pods}"


def _worth(shortfall: Shortfall) -> str:
    saving, pods = shortfall.saving, counted(shortfall.pods, "pod")
    done = f"saves {saving:.4f}" if saving > 0 else f"costs {-saving:.4f}"
    return (
        f"that {done} USD per hour, and the move of {pods} has to save {shortfall.least:.4f}: "
        f"{shortfall.missing:.4f} too little"
    )


def _node_line(title: str, text: str) -> str:
    return f"  {title:<10}{text}"
