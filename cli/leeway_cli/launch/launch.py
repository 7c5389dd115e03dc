"""Admits launched nodes from a terminal, as `admit_node` does, and prints the launch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from leeway.admission.admit_node import AdmitNode, NodeCheck
from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.record import AdmissionResult
from leeway.aws.autoscaling import AutoScalingGroups
from leeway.aws.ec2 import Ec2Instances
from leeway.aws.eventbridge import EventBridgeLeewayEvents
from leeway.aws.pool_records import DynamoPoolRecords
from leeway.aws.records import DynamoRecords
from leeway.clock import Clock
from leeway.execution.attempt import AttemptId
from leeway.execution.retrying import API_ERRORS
from leeway.parallel import in_parallel
from leeway.ports.kubernetes import Cluster
from leeway.reasons import Reason
from leeway.wiring.clients import client, clock

from leeway_cli.errors import as_clause
from leeway_cli.output import stderr_console, stdout_console, write_stderr
from leeway_cli.terminal import ProgressBars

if TYPE_CHECKING:
    from leeway.launch.intent import LaunchOutcome
    from leeway.launch.launch_nodes import LaunchPreview
    from leeway.launch.prepare import PreparedLaunch

AT_ONCE = 32


@dataclass
class RequestedAdmissions:
    """The AdmitNode Protocol: keeps the admissions that the command runs itself."""

    requested: list[AttemptId] = field(default_factory=list)

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        """Keep an admission; a repeated one is the same."""
        one = AttemptId(instance, cluster, attempt)
        if one not in self.requested:
            self.requested.append(one)


@dataclass(frozen=True, slots=True)
class Joined:
    """A launched instance after its admission: `problem` is None if its node is Ready."""

    instance: str
    node: str
    problem: str | None


def admit(
    requested: Sequence[AttemptId],
    table: str,
    cluster: Cluster,
    until: datetime,
    on_end: Callable[[Joined], None],
) -> list[Joined]:
    """Admit nodes until each is Ready, at most until this time. `on_end` is called for each."""
    dynamodb = partial(client, "dynamodb")
    use_case = AdmitNode(
        admissions=DynamoRecords(dynamodb, table),
        groups=AutoScalingGroups(partial(client, "autoscaling")),
        types=Ec2Instances(partial(client, "ec2")),
        instances=Ec2Instances(partial(client, "ec2")),
        pools=DynamoPoolRecords(dynamodb, table),
        leeway_events=EventBridgeLeewayEvents(partial(client, "events")),
        open_cluster=lambda _: cluster,
        telemetry=_Messages(),
        clock=clock(),
    )

    def work(one: AttemptId) -> Joined:
        joined = _admit(use_case, one, until)
        on_end(joined)
        return joined

    return in_parallel(work, requested, AT_ONCE)


def _admit(use_case: AdmitNode, one: AttemptId, until: datetime) -> Joined:
    steps = _LocalSteps(clock(), until)
    try:
        outcome = use_case.admit(one, steps)
    except _TimeIsUp:
        return Joined(one.instance, steps.check.node, _not_ready(one, steps.problem))
    except API_ERRORS as error:
        return Joined(one.instance, "", _not_ready(one, as_clause(error)))
    if outcome is None:
        return Joined(one.instance, "", _not_ready(one, "another run admits it"))
    if outcome.result is AdmissionResult.ADMITTED:
        return Joined(one.instance, outcome.node, None)
    return Joined(one.instance, outcome.node, _not_ready(one, as_clause(outcome.reason)))


def _not_ready(one: AttemptId, problem: str) -> str:
    return (
        f"Instance {one.instance} was launched, and its node is not Ready: {problem}. Read its "
        f"boot log with `aws ec2 get-console-output --latest --instance-id {one.instance}`."
    )


class _TimeIsUp(Exception):
    """The command waits no longer."""


@dataclass
class _LocalSteps:
    """The Steps Protocol in one process. Only the latest check of the node is kept."""

    clock: Clock
    until: datetime
    check: NodeCheck = field(default_factory=lambda: NodeCheck(None))

    @property
    def problem(self) -> str:
        """Why the node was not Ready at the latest check."""
        unmet = [as_clause(reason.message) for reason in self.check.unmet]
        return "; ".join(unmet) or self.check.problem or "it has not joined the cluster"

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        """Call `work`."""
        result = work()
        if isinstance(result, NodeCheck):
            self.check = result
        return result

    def wait(self, name: str, seconds: int) -> None:
        """Sleep; after the time is up, end the admission."""
        left = (self.until - self.clock.now()).total_seconds()
        if left <= 0:
            raise _TimeIsUp
        self.clock.sleep(min(seconds, left))


class _Messages:
    """The AdmissionTelemetry Protocol, on stderr."""

    def admitted(self, outcome: AdmissionOutcome) -> None:
        """Print nothing: the command prints the result."""

    def problem(self, cluster: str, reason: Reason, **facts: object) -> None:
        """Print why a pool is paused, or a report was not delivered."""
        write_stderr(f"warning: {reason.code}: {reason.message}")


class LaunchProgress(ProgressBars):
    """A context with a bar on a terminal, and with one line for each step elsewhere."""

    def __init__(self) -> None:
        super().__init__(stderr_console(), "{task.completed}/{task.total}")
        self._task = self._bars.add_task("Launching", total=None)

    def launched(self, count: int) -> None:
        """Show that so many instances were launched."""
        self._bars.update(self._task, description="Ready nodes", completed=0, total=count)
        if not self._console.is_terminal:
            self._console.print(f"Launched {count} instances; waiting for their nodes")

    def ended(self, joined: Joined) -> None:
        """Show that one instance is a Ready node, or will not be one in time."""
        self._bars.advance(self._task)
        if not self._console.is_terminal and joined.problem is None:
            self._console.print(f"Node {joined.node} ({joined.instance}) is Ready")


def print_preview(preview: "LaunchPreview") -> None:
    """Print the fleet requests of a preview as a table."""
    from rich.table import Table

    console = stdout_console()
    table = Table(box=None, pad_edge=False)
    for title in ("POOL", "NODES", "CAPACITY", "TYPES", "ZONES", "TEMPLATES"):
        table.add_column(title, overflow="fold", justify="right" if title == "NODES" else "left")
    for one in preview.prepared:
        request = one.intent.request
        if request is not None:
            kinds = list(dict.fromkeys(each.instance_type for each in request.overrides))
            zones = sorted({each.zone for each in request.overrides})
            templates = [each.name for each in one.templates]
            table.add_row(
                one.intent.pool,
                str(request.count),
                request.capacity_type,
                _some(kinds),
                _some(zones),
                _some(templates, 1),
            )
    if preview.prepared:
        console.print(table)
    for placement in preview.plan.existing:
        console.print(f"on {placement.node}: {_some(placement.pods, 8)}", soft_wrap=True)
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
    from rich.table import Table

    console = stdout_console()
    table = Table(box=None, pad_edge=False)
    for title in ("NODE", "INSTANCE", "POOL", "TYPE", "ZONE", "CAPACITY"):
        table.add_column(title, overflow="fold")
    nodes = {one.instance: one.node for one in joined if one.problem is None}
    for one in outcome.launched:
        launched = one.instance
        node = nodes.get(launched.instance, "not Ready")
        place = (launched.instance_type, launched.zone, launched.capacity_type)
        table.add_row(node, launched.instance, one.pool, *place)
    if outcome.launched:
        console.print(table)
    else:
        console.print("Leeway launched no node.")


def launch_as_data(outcome: "LaunchOutcome", joined: "Sequence[Joined]") -> dict[str, Any]:
    """Render a launch for JSON."""
    nodes = [
        {
            "instance": one.instance,
            "node": one.node or None,
            "ready": one.problem is None,
            "reason": one.problem,
        }
        for one in joined
    ]
    return {**outcome_as_data(outcome), "nodes": nodes}


def outcome_as_data(outcome: "LaunchOutcome") -> dict[str, Any]:
    """Render an outcome for JSON."""
    return {
        "launched": [
            {
                "instance": one.instance.instance,
                "instanceType": one.instance.instance_type,
                "zone": one.instance.zone,
                "capacityType": one.instance.capacity_type,
                "nodePool": one.pool,
                "intent": one.intent,
            }
            for one in outcome.launched
        ],
        "placed": [{"node": one.node, "pods": list(one.pods)} for one in outcome.placed],
        "withoutNode": [
            {"pod": one.pod, "code": one.reason.code, "reason": one.reason.message}
            for one in outcome.without_node
        ],
        "reasons": [{"code": one.code, "reason": one.message} for one in outcome.reasons],
    }


def _prepared(one: "PreparedLaunch") -> dict[str, Any]:
    request = one.intent.request
    overrides = request.templates if request is not None else ()
    return {
        "nodePool": one.intent.pool,
        "pods": list(one.intent.pods),
        "count": request.count if request is not None else 0,
        "capacityType": request.capacity_type if request is not None else "",
        "launchTemplates": [
            {
                "name": each.template,
                "overrides": [
                    {
                        "instanceType": override.instance_type,
                        "zone": override.zone,
                        "subnet": override.subnet,
                    }
                    for override in each.overrides
                ],
            }
            for each in overrides
        ],
        "warnings": [{"code": each.code, "reason": each.message} for each in one.warnings],
    }


def _some(names: Sequence[str], most: int = 3) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
