"""Reports of admissions: log lines, Leeway events, Kubernetes Events."""

from collections.abc import Callable
from functools import partial

from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.ports import Telemetry
from leeway.admission.reasons import (
    ADMISSION_EVENT_NOT_PUT,
    ADMISSION_NODE_EVENT_NOT_WRITTEN,
    PAUSE_EVENT_NOT_PUT,
)
from leeway.execution.retrying import API_ERRORS
from leeway.execution.steps import Steps
from leeway.pool_pauses import PoolRecord
from leeway.ports.aws import CloudRefused, LeewayEvents
from leeway.ports.kubernetes import Cluster
from leeway.reasons import Reason, clause
from leeway.typed_json import adapter_of


class AdmissionReports:
    """Reports admissions and pauses of pools, each report as a step of its own."""

    def __init__(
        self,
        leeway_events: LeewayEvents,
        open_cluster: Callable[[str], Cluster],
        telemetry: Telemetry,
    ) -> None:
        self._leeway_events = leeway_events
        self._open_cluster = open_cluster
        self._telemetry = telemetry

    def report(self, outcome: AdmissionOutcome, node_uid: str, steps: Steps) -> None:
        """Log and publish the outcome."""
        steps.run("log", str, partial(self._log, outcome))
        steps.run("put-leeway-event", str, partial(self._put_leeway_event, outcome))
        if outcome.node:
            write = partial(self._write_node_event, outcome, node_uid)
            steps.run("write-node-event", str, write)

    def report_pause(self, paused: PoolRecord | None, steps: Steps) -> None:
        """Log and publish the pause of a pool, if there is one."""
        if paused is not None and (reason := paused.paused) is not None:
            steps.run("log-pause", str, partial(self._log_pause, paused, reason))
            steps.run("put-pause-event", str, partial(self._put_pause_event, paused, reason))

    def _log(self, outcome: AdmissionOutcome) -> str:
        self._telemetry.admitted(outcome)
        return outcome.message

    def _log_pause(self, record: PoolRecord, reason: Reason) -> str:
        self._telemetry.pool_paused(record, reason)
        return reason.message

    def _put_leeway_event(self, outcome: AdmissionOutcome) -> str:
        """Put the Leeway event; a refusal stops no other step."""
        try:
            self._leeway_events.publish(outcome.detail_type, outcome.to_json())
        except CloudRefused as error:
            problem = ADMISSION_EVENT_NOT_PUT(error=error)
            self._telemetry.admission_not_reported(outcome, problem)
            return problem.message
        return outcome.detail_type

    def _put_pause_event(self, record: PoolRecord, reason: Reason) -> str:
        """Put the Leeway event about a pause; a refusal stops no other step."""
        detail = adapter_of(PoolRecord).dump_json(record).decode()
        try:
            self._leeway_events.publish("Leeway Pool Paused", detail)
        except CloudRefused as error:
            problem = PAUSE_EVENT_NOT_PUT(error=clause(error))
            self._telemetry.pool_paused(record, problem)
            return problem.message
        return reason.message

    def _write_node_event(self, outcome: AdmissionOutcome, node_uid: str) -> str:
        """Write the Kubernetes Event; a failure stops no other step."""
        event = outcome.as_node_event(node_uid)
        try:
            self._open_cluster(outcome.cluster).write_event(event)
        except API_ERRORS as error:
            problem = ADMISSION_NODE_EVENT_NOT_WRITTEN(error=error)
            self._telemetry.admission_not_reported(outcome, problem)
            return problem.message
        return event.name
