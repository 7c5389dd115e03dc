"""The outcome of an admission: log line, metric, Leeway event and Kubernetes Event."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from leeway.admission.record import AdmissionResult
from leeway.execution.attempt import Steps
from leeway.pool_pauses import PoolRecord
from leeway.ports.aws import CloudRefused, LeewayEvents
from leeway.ports.kubernetes import (
    Cluster,
    ClusterRefused,
    ClusterUnavailable,
    Event,
    ObjectReference,
)
from leeway.reasons import Reason, ReasonCode, clause
from leeway.telemetry import Telemetry
from leeway.typed_json import to_plain

NOT_REPORTED = ReasonCode(
    "AdmissionNotReported", "Leeway could not write {what}: {error}.", "nodes-are-not-ready"
)


_DETAIL_TYPES = {
    AdmissionResult.ADMITTED: "Leeway Node Admitted",
    AdmissionResult.POOLED: "Leeway Node Pooled",
}
_NOT_ADMITTED = "Leeway Node Not Admitted"


@dataclass(frozen=True, slots=True)
class AdmissionOutcome:
    """An admission that has ended. Times are UTC.

    - `hooks`: the names of the lifecycle hooks that waited for it.
    - `refused`: why Auto Scaling refused answers to them.
    """

    result: AdmissionResult
    instance: str
    cluster: str
    node: str
    attempt: int
    reason: Reason
    noticed_at: datetime
    joined_at: datetime | None
    ended_at: datetime
    deadline: datetime
    hooks: tuple[str, ...]
    refused: tuple[Reason, ...]

    @property
    def duration_seconds(self) -> float:
        """The time from the request to the end of the admission."""
        return (self.ended_at - self.noticed_at).total_seconds()

    @property
    def detail_type(self) -> str:
        """The detail-type of the Leeway event, for EventBridge rules."""
        return _DETAIL_TYPES.get(self.result, _NOT_ADMITTED)

    @property
    def message(self) -> str:
        """What happened to which node or instance, and why."""
        sentences = [f"{self.node or self.instance} {self.result}: {self.reason}"]
        if self.result is AdmissionResult.NOT_READY and self.hooks:
            hooks = ", ".join(self.hooks)
            sentences.append(f"Leeway answered ABANDON to {hooks}; the group ends the instance.")
        return " ".join([*sentences, *map(str, self.refused)])

    @property
    def needs_attention(self) -> bool:
        """Whether an operator should act."""
        failed = {
            AdmissionResult.NOT_READY,
            AdmissionResult.NOT_OBSERVED,
            AdmissionResult.TERMINATED,
            AdmissionResult.OTHER_CLUSTER,
        }
        return self.result in failed or bool(self.refused)

    def to_json(self) -> str:
        """Render the detail of the Leeway event."""
        return json.dumps(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Render the answer of the function: the fields, `code`, `message` and `needs_attention`,
        as the outcome of a retirement has them."""
        rendered: dict[str, Any] = to_plain(self)
        return {
            "code": self.reason.code,
            "message": self.message,
            "needs_attention": self.needs_attention,
            **rendered,
        }

    def as_node_event(self, node_uid: str) -> Event:
        """Render the Kubernetes Event; its name makes a repeated report the same Event."""
        return Event(
            name=f"{self.node}.leeway-admit-{self.instance}-{self.attempt}",
            about=ObjectReference("Node", self.node, node_uid),
            reason=self.reason.code,
            message=self.message,
            warning=self.needs_attention,
        )


@dataclass(frozen=True, slots=True)
class AdmissionTelemetry(Telemetry):
    """Logs and measures admissions."""

    def admitted(self, outcome: AdmissionOutcome) -> None:
        """Log and measure an admission that has ended."""
        log = self.logger.warning if outcome.needs_attention else self.logger.info
        log(
            outcome.message,
            extra={
                "code": outcome.reason.code,
                "result": outcome.result,
                "instance": outcome.instance,
                "cluster": outcome.cluster,
                "node": outcome.node,
                "attempt": outcome.attempt,
                "hooks": list(outcome.hooks),
                "seconds": max(0.0, outcome.duration_seconds),
            },
        )
        if outcome.needs_attention:
            self.count("LaunchProblems", 1)

    def problem(self, cluster: str, reason: Reason, **facts: object) -> None:
        """Log a pause of a pool, or why something was not reported. `facts` name what it is about,
        such as `pool` or `instance`."""
        self.logger.error(reason.message, extra={"code": reason.code, "cluster": cluster, **facts})


class AdmissionReports:
    """Reports admissions and pauses of pools, each report as a step of its own."""

    def __init__(
        self,
        leeway_events: LeewayEvents,
        open_cluster: Callable[[str], Cluster],
        telemetry: AdmissionTelemetry,
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
        self._telemetry.problem(record.cluster, reason, pool=record.pool)
        return reason.message

    def _put_leeway_event(self, outcome: AdmissionOutcome) -> str:
        put = partial(self._leeway_events.publish, outcome.detail_type, outcome.to_json())
        what = "the Leeway event about the admission"
        return self._reported(put, what, outcome.cluster, instance=outcome.instance)

    def _put_pause_event(self, record: PoolRecord, reason: Reason) -> str:
        told = {"code": reason.code, "message": reason.message, "needs_attention": True}
        detail = json.dumps(told | record.model_dump(mode="json"))
        put = partial(self._leeway_events.publish, "Leeway Pool Paused", detail)
        what = "the Leeway event about the pause of the pool"
        return self._reported(put, what, record.cluster, pool=record.pool)

    def _write_node_event(self, outcome: AdmissionOutcome, node_uid: str) -> str:
        event, cluster = outcome.as_node_event(node_uid), outcome.cluster

        def write() -> None:
            self._open_cluster(cluster).write_event(event)

        what = "the Kubernetes Event about the admission"
        return self._reported(write, what, cluster, node=outcome.node, instance=outcome.instance)

    def _reported(self, put: Callable[[], None], what: str, cluster: str, **facts: str) -> str:
        """Report. A refusal stops no other step, nor does an API server that does not answer; if
        EventBridge does not answer, the step is repeated."""
        try:
            put()
        except (CloudRefused, ClusterRefused, ClusterUnavailable) as error:
            problem = NOT_REPORTED(what=what, error=clause(error))
            self._telemetry.problem(cluster, problem, **facts)
            return problem.message
        return what
