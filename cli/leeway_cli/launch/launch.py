"""Waits for launched nodes, and prints the launch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leeway.execution.retrying import API_ERRORS
from leeway.ports.kubernetes import Cluster
from leeway.ports.kubernetes_objects import Node
from leeway.reasons import Reason, counted, some
from leeway.selection.labels import INITIALIZED
from leeway.wiring.clients import clock

from leeway_cli.errors import as_clause
from leeway_cli.output import picked, stderr_console, stdout_console, table
from leeway_cli.terminal import ProgressBars

if TYPE_CHECKING:
    from leeway.launch.intent import LaunchOutcome
    from leeway.launch.launch_nodes import LaunchPreview
    from leeway.launch.prepare import PreparedLaunch


CHECKED_EVERY = 5.0
"""Seconds between two lists of the nodes."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A launched instance: `problem` is None if its node is admitted and Ready."""

    instance: str
    node: str
    problem: str | None


def wait_for_nodes(
    instances: Iterable[str],
    cluster: Cluster,
    until: datetime,
    on_end: Callable[[Joined], None],
) -> list[Joined]:
    """Wait until each node is admitted and Ready, at most until this time. `on_end` is called for
    each."""
    waiting = {one: Joined(one, "", "it has not joined the cluster") for one in instances}
    ended: list[Joined] = []
    while waiting:
        try:
            nodes = cluster.nodes()
        except API_ERRORS as error:
            waiting = {one: replace(w, problem=as_clause(error)) for one, w in waiting.items()}
        else:
            for node in nodes:
                for one in [one for one in waiting if node.runs_on(one)]:
                    waiting[one] = Joined(one, node.name, _unmet(node))
        left = (until - clock().now()).total_seconds()
        for one, joined in list(waiting.items()):
            if joined.problem is None or left <= 0:
                problem = joined.problem and _not_ready(one, joined.problem)
                ended.append(replace(joined, problem=problem))
                on_end(ended[-1])
                del waiting[one]
        if waiting:
            clock().sleep(min(CHECKED_EVERY, left))
    return ended


def _unmet(node: Node) -> str | None:
    """Return why a node is not admitted and Ready; None if it is."""
    if not node.ready:
        return f"the kubelet of node {node.name} reports that it is not Ready"
    if node.labels.get(INITIALIZED) != "true":
        return (
            f"admit_node has not admitted node {node.name}: reconcile starts that within a minute "
            "after the launch"
        )
    return None


def _not_ready(instance: str, problem: str) -> str:
    return (
        f"Instance {instance} was launched, and its node is not Ready: {problem}. Read its "
        f"boot log with `aws ec2 get-console-output --latest --instance-id {instance}`."
    )


class LaunchProgress(ProgressBars):
    """A context with a bar on a terminal, and with one line for each step elsewhere."""

    def __init__(self) -> None:
        super().__init__(stderr_console(), "{task.completed}/{task.total}")
        self._task = self._bars.add_task("Launching", total=None)

    def launched(self, count: int) -> None:
        """Show that so many instances were launched."""
        self._bars.update(self._task, description="Ready nodes", completed=0, total=count)
        if not self._console.is_terminal:
            self._console.print(f"Launched {counted(count, 'instance')}; waiting for Ready nodes")

    def ended(self, joined: Joined) -> None:
        """Show that one instance is a Ready node, or will not be one in time."""
        self._bars.advance(self._task)
        if not self._console.is_terminal and joined.problem is None:
            self._console.print(f"Node {joined.node} ({joined.instance}) is Ready")


def print_preview(preview: "LaunchPreview") -> None:
    """Print the fleet requests of a preview as a table."""
    console = stdout_console()
    titles = ("POOL", "NODES", "CAPACITY", "TYPES", "ZONES", "TEMPLATES")
    rows = table(*titles, right={"NODES"})
    for one in preview.prepared:
        request = one.intent.request
        if request is not None:
            kinds = list(dict.fromkeys(each.instance_type for each in request.overrides))
            zones = sorted({each.zone for each in request.overrides})
            templates = [each.name for each in one.templates]
            where = (some(kinds), some(zones), some(templates, 1))
            rows.add_row(one.intent.pool, str(request.count), request.capacity_type, *where)
    if preview.prepared:
        console.print(rows)
    for placement in preview.plan.existing:
        console.print(f"on {placement.node}: {some(placement.pods, 8)}", soft_wrap=True)
    for miss in preview.outcome.without_node:
        console.print(miss.reason.message, soft_wrap=True, markup=False)


def preview_as_data(preview: "LaunchPreview") -> dict[str, Any]:
    """Render a preview for JSON."""
    return {
        "launches": [_prepared(one) for one in preview.prepared],
        **outcome_as_data(preview.outcome),
    }


def print_launch(outcome: "LaunchOutcome", joined: "Sequence[Joined]") -> None:
    """Print the launched instances and their nodes as a table."""
    console = stdout_console()
    rows = table("NODE", "INSTANCE", "POOL", "TYPE", "ZONE", "CAPACITY")
    nodes = {one.instance: one.node for one in joined if one.problem is None}
    for one in outcome.launched:
        launched = one.instance
        node = nodes.get(launched.instance, "not Ready")
        place = (launched.instance_type, launched.zone, launched.capacity_type)
        rows.add_row(node, launched.instance, one.pool, *place)
    if outcome.launched:
        console.print(rows)
    else:
        console.print("Leeway launched no node.")


def launch_as_data(outcome: "LaunchOutcome", joined: "Sequence[Joined]") -> dict[str, Any]:
    """Render a launch for JSON."""
    nodes = [
        {**picked(one, "instance", "node", reason="problem"), "ready": one.problem is None}
        for one in joined
    ]
    return {**outcome_as_data(outcome), "nodes": nodes}


def outcome_as_data(outcome: "LaunchOutcome") -> dict[str, Any]:
    """Render an outcome for JSON."""
    instance = ("instance", "instance_type", "zone", "capacity_type")
    return {
        "launched": [
            picked(one.instance, *instance) | picked(one, "intent", nodePool="pool")
            for one in outcome.launched
        ],
        "placed": [picked(one, "node", "pods") for one in outcome.placed],
        "withoutNode": [picked(one, "pod") | _reason(one.reason) for one in outcome.without_node],
        "reasons": [_reason(one) for one in outcome.reasons],
    }


def _reason(one: Reason) -> dict[str, Any]:
    return picked(one, "code", reason="message")


def _prepared(one: "PreparedLaunch") -> dict[str, Any]:
    request = one.intent.request
    return {
        **picked(one.intent, "pods", nodePool="pool"),
        "count": request.count if request is not None else 0,
        "capacityType": request.capacity_type if request is not None else "",
        "launchTemplates": [
            {
                "name": each.template,
                "overrides": [
                    picked(override, "instance_type", "zone", "subnet")
                    for override in each.overrides
                ],
            }
            for each in (request.templates if request is not None else ())
        ],
        "warnings": [_reason(each) for each in one.warnings],
    }
