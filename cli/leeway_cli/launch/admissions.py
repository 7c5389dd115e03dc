"""Admits launched nodes from a terminal, as the function `admit_node` does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

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
from leeway_cli.output import write_stderr

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
