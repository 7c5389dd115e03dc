"""Reports retirements: as Leeway events, and as Kubernetes Events of nodes."""

from leeway.execution.retrying import API_ERRORS
from leeway.ports.aws import CloudRefused, LeewayEvents
from leeway.retire_node.dependencies import Telemetry
from leeway.retire_node.outcome import Outcome
from leeway.retire_node.reasons import LEEWAY_EVENT_NOT_PUBLISHED, NODE_EVENT_NOT_WRITTEN
from leeway.retirement.cordon_result import CordonResult, Course
from leeway.retirement.step_context import StepContext


class RetirementReports:
    """Writes the reports of outcomes."""

    def __init__(self, context: StepContext, events: LeewayEvents, telemetry: Telemetry) -> None:
        self._context = context
        self._events = events
        self._telemetry = telemetry

    def report(self, outcome: Outcome, cordoned: CordonResult) -> str:
        """Write both reports in one step, because every step costs. The Leeway event comes last: it
        may fail and repeat the step, and a repeated Kubernetes Event is the same object."""
        if cordoned.node and cordoned.course is not Course.DRY_RUN:
            self._write_node_event(outcome, cordoned.node_uid)
        return self._publish(outcome)

    def _publish(self, outcome: Outcome) -> str:
        """Publish the Leeway event. Readers recognise a repeated one by instance and attempt; a
        refused one is logged."""
        try:
            self._events.publish(outcome.title, outcome.to_json())
        except CloudRefused as error:
            problem = LEEWAY_EVENT_NOT_PUBLISHED(error=error)
            self._telemetry.retirement_not_reported(outcome, problem)
            return problem.message
        return outcome.title

    def _write_node_event(self, outcome: Outcome, node_uid: str) -> None:
        """Write the Kubernetes Event; a failure is logged and does not delay the rest."""
        event = outcome.as_node_event(node_uid)
        open_cluster = self._context.open_cluster
        try:
            self._context.retry(lambda: open_cluster(outcome.cluster).write_event(event))
        except API_ERRORS as error:
            problem = NODE_EVENT_NOT_WRITTEN(error=error)
            self._telemetry.retirement_not_reported(outcome, problem)
