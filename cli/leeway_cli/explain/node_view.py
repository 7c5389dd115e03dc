"""Renders the explanation of a node as JSON or for a terminal."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from leeway.disruption.explain import title_of
from leeway.instances.owners import OwnerKind

from leeway_cli.explain.money import counted, money, price_as_data, saves
from leeway_cli.explain.step_view import iso, step_as_data, utc
from leeway_cli.output import stdout_console
from leeway_cli.selection.select import launch_as_data

if TYPE_CHECKING:
    from leeway.disruption.explain import Instead, NodeExplanation, Shortfall
    from leeway.disruption.protection import Blocker
    from leeway.disruption.snapshot import MovablePod
    from leeway.selection.packing.plan import PlannedNode


def node_as_data(found: "NodeExplanation") -> dict[str, Any]:
    """Render an explanation as JSON."""
    one, step = found.one, found.step
    return {
        "node": one.name,
        "instance": one.instance or None,
        "owner": {"kind": found.owner.kind.value, "name": found.owner.name},
        "instanceType": one.instance_type or None,
        "zone": one.zone or None,
        "capacityType": one.capacity_type or None,
        **price_as_data(one.price),
        "decision": decision(found),
        "reason": asdict(found.reason),
        "step": step_as_data(step) if step else None,
        "drift": list(one.drift),
        "blockers": [_blocker_as_data(each) for each in found.blockers],
        "pods": [_pod_as_data(each) for each in one.pods],
        "otherPods": other_pods(found),
        "instead": _instead_as_data(found.instead) if found.instead else None,
        "shortfall": _shortfall_as_data(found.shortfall) if found.shortfall else None,
    }


def decision(found: "NodeExplanation") -> str:
    """Return what becomes of a node: `goes`, `later`, `kept`, or for a node of another owner
    `spare` or `needed`."""
    if found.owner.kind is not OwnerKind.LEEWAY:
        return "spare" if found.spare else "needed"
    if found.step is None:
        return "kept"
    return "goes" if found.step.allowed else "later"


def other_pods(found: "NodeExplanation") -> int:
    """Return how many pods end with the node, as those of DaemonSets do."""
    return max(len(found.one.node.pods) - len(found.one.pods), 0)


def _blocker_as_data(blocker: "Blocker") -> dict[str, Any]:
    return {"reason": asdict(blocker.reason), "until": iso(blocker.until)}


def _pod_as_data(movable: "MovablePod") -> dict[str, Any]:
    return {
        "pod": movable.pod.name,
        "requests": movable.pod.spec.requests.printed(),
        "protectedUntil": iso(movable.protected_until),
        "blockedBy": list(movable.blocked_by),
    }


def _instead_as_data(instead: "Instead") -> dict[str, Any]:
    return {
        "existing": [{"node": one.node, "pods": list(one.pods)} for one in instead.existing],
        "launches": [launch_as_data(new) for new in instead.launches],
        "unschedulable": [
            {"pod": one.pod, "reason": asdict(one.reason)} for one in instead.homeless
        ],
        **price_as_data(instead.price),
    }


def _shortfall_as_data(shortfall: "Shortfall") -> dict[str, Any]:
    return {
        "pods": shortfall.pods,
        "savingPerHour": round(shortfall.saving, 6),
        "leastPerHour": round(shortfall.least, 6),
        "missingPerHour": round(shortfall.missing, 6),
    }


def show_node(found: "NodeExplanation") -> None:
    """Print an explanation."""
    console = stdout_console()
    for line in _lines(found):
        console.print(line, soft_wrap=True, markup=False)


def _lines(found: "NodeExplanation") -> Iterator[str]:
    one = found.one
    offering = " ".join(each for each in (one.instance_type, one.zone, one.capacity_type) if each)
    yield f"node/{one.name} {_verdict(found)}"
    yield _line("reason", f"{found.reason.code}: {found.reason.message}")
    if found.step is not None and not found.step.allowed:
        reason = found.step.returned.reason
        when = f"from {utc(found.step.at)} on, after the steps before it"
        yield _line("later", f"{when}: {reason.code}: {reason.message}")
    yield _line("owner", title_of(found.owner))
    yield _line("instance", f"{one.instance or 'unknown'} {offering}".rstrip())
    yield _line("price", money(one.price))
    for drifted in one.drift:
        yield _line("drifted", drifted)
    for blocker in found.blockers:
        until = f" Until {utc(blocker.until)}." if blocker.until else ""
        yield _line("blocked", f"{blocker.reason.code}: {blocker.reason.message}{until}")
    yield from _pods(found)
    if found.instead is not None:
        yield from _instead(found.instead)
    if found.shortfall is not None:
        yield _line("worth", _worth(found.shortfall))


def _verdict(found: "NodeExplanation") -> str:
    if found.step is not None:
        when = "is given back now" if found.step.allowed else "is kept now, and goes later"
        return f"{when}: it {saves(found.step.saving)}."
    if found.owner.kind is OwnerKind.LEEWAY:
        return "is kept."
    if found.spare:
        return f"could go: its pods fit on other nodes, which saves {money(found.one.price)}."
    return "is needed, or is protected."


def _pods(found: "NodeExplanation") -> Iterator[str]:
    others = other_pods(found)
    count = f"{len(found.one.pods)} that would move"
    yield _line("pods", f"{count}, {others} that would end with it" if others else count)
    for movable in found.one.pods:
        requests = movable.pod.spec.requests.printed()
        cpu, memory = requests.get("cpu", "0"), requests.get("memory", "0")
        yield f"    - {movable.pod.name} (cpu {cpu}, memory {memory})"


def _instead(instead: "Instead") -> Iterator[str]:
    for place in instead.existing:
        yield _line("instead", f"{counted(len(place.pods), 'pod')} on node {place.node}")
    for new in instead.launches:
        yield _line("instead", new_node(new))
    for homeless in instead.homeless:
        text = f"{homeless.pod} has no place: {homeless.reason.code}: {homeless.reason.message}"
        yield _line("instead", text)


def new_node(new: "PlannedNode") -> str:
    """Describe a node to launch: its cheapest offering, and the pods that it holds."""
    offered = new.cheapest.offering
    place = f"{offered.capacity_type} in {offered.zone}"
    price = money(offered.price)
    pods = counted(len(new.pods), "pod")
    return f"a new {new.cheapest.type.name} of pool {new.pool} ({place}; {price}) for {pods}"


def _worth(shortfall: "Shortfall") -> str:
    saving, pods = shortfall.saving, counted(shortfall.pods, "pod")
    done = f"saves {saving:.4f}" if saving > 0 else f"costs {-saving:.4f}"
    return (
        f"that {done} USD per hour, and the move of {pods} has to save {shortfall.least:.4f}: "
        f"{shortfall.missing:.4f} too little"
    )


def _line(title: str, text: str) -> str:
    return f"  {title:<10}{text}"
