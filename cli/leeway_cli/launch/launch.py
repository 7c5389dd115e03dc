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
from leeway_cli.output import picked, some, stderr_console, stdout_console, table, write_stderr
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
    table_name: str,
    cluster: Cluster,
    until: datetime,
    on_end: Callable[[Joined], None],
) -> list[Joined]:
    """Admit nodes until each is Ready, at most until this time. `on_end` is called for each."""
    dynamodb = partial(client, "dynamodb")
    use_case = AdmitNode(
        admissions=DynamoRecords(dynamodb, table_name),
        groups=AutoScalingGroups(partial(client, "autoscaling")),
        types=Ec2Instances(partial(client, "ec2")),
        instances=Ec2Instances(partial(client, "ec2")),
        pools=DynamoPoolRecords(dynamodb, table_name),
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
