"""Renders the plan for a pod as JSON or for a terminal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leeway.provisioning.cluster_state import DEFAULT_SCHEDULER
from leeway.reasons import counted

from leeway_cli.output import as_json, picked, some, stdout_console
from leeway_cli.selection.select import launch_as_data

if TYPE_CHECKING:
    from leeway_cli.explain.plan_pod import PodPlan, PoolMiss

_MOST_NAMES = 5


def pod_as_data(name: str, pod: Mapping[str, Any], plan: "PodPlan | None") -> dict[str, Any]:
    """Render a pod and its plan for JSON. A pod that does not wait for a node has no plan."""
    if plan is None:
        return {"pod": name, "decision": "none", "node": _node_of(pod), "why": not_waiting(pod)}
    decision = "unschedulable"
    if plan.node:
        decision = "joining" if plan.joining else "existing"
    elif plan.launch:
        decision = "launch"
    return {
        "pod": name,
        "decision": decision,
        "node": plan.node or None,
        "launch": launch_as_data(plan.launch) if plan.launch else None,
        "reason": as_json(plan.reason),
        "nearest": plan.misses[0].pool if plan.misses else None,
        "pools": [picked(one, "pool", "unmet", "reason") for one in plan.misses],
    }


def _node_of(pod: Mapping[str, Any]) -> str | None:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return spec.get("nodeName") or status.get("nominatedNodeName") or None


def not_waiting(pod: Mapping[str, Any]) -> str:
    """Say why a pod does not wait for a node."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    metadata = pod.get("metadata") or {}
    if status.get("phase") in {"Succeeded", "Failed"}:
        return f"It has ended: {status['phase']}."
    if metadata.get("deletionTimestamp"):
        return "It is being deleted."
    if node := spec.get("nodeName"):
        return f"It is on node {node}."
    if gates := spec.get("schedulingGates"):
        names = ", ".join(str(gate.get("name")) for gate in gates)
        return f"Its scheduling gates keep it from every node: {names}."
    if any(owner.get("kind") == "DaemonSet" for owner in metadata.get("ownerReferences") or ()):
        return "It belongs to a DaemonSet, which has chosen its node already."
    if node := status.get("nominatedNodeName"):
        return f"kube-scheduler preempts pods for it on node {node}."
    if (scheduler := spec.get("schedulerName")) not in (None, "", DEFAULT_SCHEDULER):
        return f"Its scheduler {scheduler} has not reported that no node holds it."
    return "Leeway cannot read it; see the warning."


def show_pod(name: str, pod: Mapping[str, Any], plan: "PodPlan | None") -> None:
    """Print a pod and its plan."""
    console = stdout_console()

    def show(line: str) -> None:
        console.print(line, soft_wrap=True, markup=False)

    if plan is None:
        show(f"pod/{name} waits for no node. {not_waiting(pod)}")
    elif plan.node:
        joining = ", which was launched and has not joined yet" if plan.joining else ""
        show(f"pod/{name} gets a place on node {plan.node}{joining}.")
    elif plan.launch is not None:
        first = plan.launch.choices[0]
        price = "unknown" if first.price is None else f"{first.price:.4f} USD per hour"
        show(f"pod/{name} gets a new node of pool {plan.launch.pool}.")
        show(f"  types     {some(first.instance_types, _MOST_NAMES)}")
        show(f"  zones     {some(first.zones, _MOST_NAMES)}")
        show(f"  capacity  {first.capacity_type}")
        show(f"  price     {price}")
        show(f"  pods      {some(plan.launch.pods, _MOST_NAMES)}")
    elif plan.reason is not None:
        show(f"pod/{name} gets no node: {plan.reason.code}: {plan.reason.message}")
        for number, miss in enumerate(plan.misses):
            show(_miss_line(miss, nearest=number == 0 and len(plan.misses) > 1))
            for text in miss.unmet:
                show(f"    - {text}")


def _miss_line(miss: "PoolMiss", *, nearest: bool) -> str:
    title = f"  pool {miss.pool}{' (nearest)' if nearest else ''}"
    if miss.unmet:
        return f"{title}: {counted(len(miss.unmet), 'requirement')} not met"
    return f"{title}: {miss.reason.code}: {miss.reason.message}"
