"""The outcome of a retirement, as the log, the Leeway event and the Kubernetes Event show it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from leeway.execution.retrying import API_ERRORS
from leeway.notices import NoticeKind
from leeway.ports.aws import CloudRefused
from leeway.ports.kubernetes import Event, ObjectReference
from leeway.reasons import Reason
from leeway.retirement.context import Attempt
from leeway.retirement.cordon import CordonResult, Course
from leeway.retirement.progress import FINAL_STAGES, PodProgress, RemovalMethod, Stage
from leeway.retirement.reasons import (
    NODE_CORDONED,
    NODE_DRAIN_INCOMPLETE,
    NODE_DRAINED,
    NODE_NOT_FOUND,
    NOT_REPORTED,
    POD_DOES_NOT_END,
    RETIREMENT_DECLINED,
    RETIREMENT_DRY_RUN,
    RETIREMENT_UNDONE,
    SURGE_REPLACES_POD,
    TARGETS_CUT,
    TARGETS_LEFT,
    TARGETS_NOT_READ,
)
from leeway.retirement.record import Method, Retirement, Successor
from leeway.telemetry import Telemetry
from leeway.typed_json import dumps, to_plain

FAILED = "failed"
"""The replacement of an outcome if the request for it did not succeed in time."""


EVENT_LIMIT = 240_000
"""Bytes of an event's detail: an entry of PutEvents may have 256 KB, with its other fields.
Source: EventBridge user guide, "Calculating PutEvents event entry size"."""


class RetirementResult(StrEnum):
    """How a retirement ended."""

    DRAINED = "drained"
    INCOMPLETE = "incomplete"
    NO_NODE = "no-node"
    CORDONED = "cordoned"
    DECLINED = "declined"
    DRY_RUN = "dry-run"
    UNDONE = "undone"


_TITLES = {
    RetirementResult.INCOMPLETE: "Leeway Node Retirement Incomplete",
    RetirementResult.CORDONED: "Leeway Node Cordoned",
    RetirementResult.DECLINED: "Leeway Node Retirement Declined",
    RetirementResult.DRY_RUN: "Leeway Node Retirement Dry Run",
    RetirementResult.UNDONE: "Leeway Node Retirement Undone",
}
_CODES = {
    RetirementResult.DRAINED: NODE_DRAINED,
    RetirementResult.INCOMPLETE: NODE_DRAIN_INCOMPLETE,
    RetirementResult.NO_NODE: NODE_NOT_FOUND,
    RetirementResult.CORDONED: NODE_CORDONED,
    RetirementResult.DECLINED: RETIREMENT_DECLINED,
    RetirementResult.DRY_RUN: RETIREMENT_DRY_RUN,
    RetirementResult.UNDONE: RETIREMENT_UNDONE,
}


_OF_TARGETS = frozenset({TARGETS_CUT.name, TARGETS_LEFT.name, TARGETS_NOT_READ.name})
"""What load balancers do that the summary has: connections of clients end with the instance."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A retirement that has ended. Times are UTC.

    - `reason`: the last problem of its steps or, without one, why it began.
    - `replacement`: the method of the replacement, or FAILED; `replacement_reason` is why.
    - `hooks`: the lifecycle hooks that announced it. `refused`: the final calls that AWS refused.
    - `terminated`: Leeway requested from EC2 to terminate the instance, which it had detached or
      launched. `left_running`: why it did not.
    - `in_service`: the instance is still in its group, for which a successor was requested.
    - `successors`: the instances that replace it, as far as they are known.
    - `still_attached`: the pods that are gone and whose volumes are still attached.
    - `pods_left_out`: how many pods an event does not list, because it has no room for them.
    """

    result: RetirementResult
    instance: str
    cluster: str
    node: str
    kind: NoticeKind
    attempt: int
    reason: Reason
    noticed_at: datetime
    cordoned_at: datetime | None
    ended_at: datetime
    deadline: datetime | None
    replacement: str
    replacement_reason: Reason
    hooks: tuple[str, ...]
    terminated: bool
    refused: tuple[Reason, ...]
    pods: tuple[PodProgress, ...]
    load_balancers: Reason | None = None
    in_service: bool = False
    left_running: Reason | None = None
    pods_left_out: int = 0
    still_attached: tuple[str, ...] = ()
    successors: tuple[Successor, ...] = ()

    @property
    def evicted(self) -> int:
        """The number of pods that were removed as their budgets ask: by the Eviction API, or after
        an additional pod served."""
        return sum(_is_removed(pod) for pod in self.pods) - self.deleted

    @property
    def deleted(self) -> int:
        """The number of pods that were deleted, without regard to budgets."""
        return sum(
            pod.method is RemovalMethod.DELETE and pod.reason.code != SURGE_REPLACES_POD.name
            for pod in self.pods
            if _is_removed(pod)
        )

    @property
    def blocked(self) -> int:
        """The number of pods whose eviction a budget refused."""
        return sum(pod.blocked_at is not None for pod in self.pods)

    @property
    def failed(self) -> tuple[PodProgress, ...]:
        """The pods that were still on the node at the end."""
        return tuple(pod for pod in self.pods if pod.stage is Stage.FAILED)

    @property
    def seconds_to_cordon(self) -> float | None:
        """From the notice's own time to the cordon."""
        return _seconds(self.noticed_at, self.cordoned_at)

    @property
    def seconds_to_end(self) -> float | None:
        """From the notice's own time to the end of the retirement."""
        return _seconds(self.noticed_at, self.ended_at)

    @property
    def title(self) -> str:
        """The detail-type of the Leeway event: rules can match on it."""
        return _TITLES.get(self.result, "Leeway Node Retired")

    @property
    def summary(self) -> Reason:
        """The outcome's code, and what happened in plain sentences."""
        dry_run = self.result is RetirementResult.DRY_RUN
        to_evict = sum(pod.stage not in FINAL_STAGES for pod in self.pods)
        first = _CODES[self.result](
            node=self.node or self.instance,
            instance=self.instance,
            cluster=self.cluster,
            kind=self.kind,
            evicted=to_evict if dry_run else self.evicted,
            pods=len(self.pods),
        )
        return first.and_then(*self._details())

    def _details(self) -> Iterator[object]:
        match self.result:
            case RetirementResult.DRY_RUN:
                yield self._replacement
            case RetirementResult.DRAINED | RetirementResult.INCOMPLETE:
                yield from self._pod_details()
                yield self._replacement
                yield from self._instance_details()
                if self.load_balancers and self.load_balancers.code in _OF_TARGETS:
                    yield self.load_balancers
                if self.result is RetirementResult.INCOMPLETE:
                    yield self.reason
            case RetirementResult.NO_NODE:
                yield from self._instance_details()
            case _:
                yield self.reason
        yield from self.refused

    def _pod_details(self) -> Iterator[object]:
        if self.deleted:
            yield (
                f"Pods deleted at their latest moment, without regard to budgets: {self.deleted}."
            )
        if self.failed:
            first = self.failed[0]
            yield (f"Pods that remain on the node: {len(self.failed)}; the first is {first.pod}.")
            yield first.reason
        if self.still_attached:
            yield (
                f"Pods whose volumes were still attached at the end: {len(self.still_attached)}."
            )
        if kept := next((pod for pod in self.pods if pod.kept_by), None):
            finalizers = ", ".join(kept.kept_by)
            yield POD_DOES_NOT_END(
                "It has ended, but its finalizers keep the object: "
                f"{f'{finalizers} (pod {kept.pod})'}."
            )

    @property
    def _replacement(self) -> str:
        successors = "".join(f" {one.instance}" for one in self.successors)
        return f"Replacement: {self.replacement}{successors}."

    def _instance_details(self) -> Iterator[object]:
        if self.left_running:
            yield self.left_running
        elif self.terminated and self.result is RetirementResult.INCOMPLETE:
            yield "The instance is terminated, because the time for its drain is over."
        elif self.replacement == Method.DETACH and not self.terminated:
            yield ("The instance is detached from its group, and EC2 terminates it.")
        if self.in_service and self.result is RetirementResult.INCOMPLETE:
            yield ("The instance stays in service in its group, because its node is not drained.")

    @property
    def retired(self) -> bool:
        """Whether the retirement went to its end, complete or not."""
        return self.result in {
            RetirementResult.DRAINED,
            RetirementResult.INCOMPLETE,
            RetirementResult.NO_NODE,
        }

    @property
    def never_cordoned(self) -> bool:
        """Whether the API server failed or refused the cordon until the deadline."""
        return self.result is RetirementResult.INCOMPLETE and self.cordoned_at is None

    @property
    def needs_attention(self) -> bool:
        """Whether an operator has to look at it."""
        problems = bool(self.refused) or self.left_running is not None
        return problems or self.result is RetirementResult.INCOMPLETE or self.replacement == FAILED

    def to_json(self) -> str:
        """Render the detail of the Leeway event, of at most EVENT_LIMIT bytes. If it has no room
        for all pods, it leaves out pods that were evicted as planned first, and counts them."""
        whole = _dump(self.to_dict())
        if len(whole.encode()) <= EVENT_LIMIT:
            return whole
        room = EVENT_LIMIT - len(_dump(replace(self, pods=()).to_dict()).encode())
        # The summary counts pods, so the pods that are left out must not change it.
        room -= len(self.summary.message.encode())
        kept: list[PodProgress] = []
        for pod in sorted(self.pods, key=_went_as_planned):
            room -= len(dumps(pod)) + 1
            if room < 0:
                break
            kept.append(pod)
        left_out = len(self.pods) - len(kept)
        cut = replace(self, pods=tuple(kept), pods_left_out=left_out)
        return _dump(cut.to_dict() | self._summary_fields())

    def to_dict(self) -> dict[str, Any]:
        """Render the answer of the function: the fields, the summary's `code` and `message`, and
        `needs_attention`."""
        rendered: dict[str, Any] = to_plain(self)
        return self._summary_fields() | rendered

    def _summary_fields(self) -> dict[str, Any]:
        summary = self.summary
        return {
            "code": summary.code,
            "message": summary.message,
            "needs_attention": self.needs_attention,
        }

    def as_node_event(self, node_uid: str) -> Event:
        """Render the Kubernetes Event; its name makes a repeated report the same Event."""
        summary = self.summary
        return Event(
            name=f"{self.node}.leeway-{self.instance}-{self.attempt}",
            about=ObjectReference("Node", self.node, node_uid),
            reason=summary.code,
            message=f"{summary.message} {self.replacement_reason.message}",
            warning=self.needs_attention,
        )


def _dump(rendered: dict[str, Any]) -> str:
    return json.dumps(rendered, ensure_ascii=False, separators=(",", ":"))


def _is_removed(pod: PodProgress) -> bool:
    """Whether Leeway removed a pod that nobody else had removed before."""
    return pod.requested_at is not None and pod.method is not RemovalMethod.SHORTEN


def _went_as_planned(pod: PodProgress) -> bool:
    evicted = pod.stage is Stage.GONE and pod.method is RemovalMethod.EVICT
    return pod.stage is Stage.LEFT or evicted


def _seconds(start: datetime, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if end else None


@dataclass(frozen=True, slots=True)
class RetirementTelemetry(Telemetry):
    """Logs and measures retirements."""

    def waiting(self, record: Retirement, reason: Reason) -> None:
        """Log that a retirement waits for the disruption budget."""
        self.logger.info(reason.message, extra=_about(record, reason))

    def surged(self, record: Retirement, reason: Reason) -> None:
        """Log that a workload gets an additional pod, or loses it again."""
        self.logger.info(reason.message, extra=_about(record, reason))

    def capacity_problem(self, record: Retirement, reason: Reason) -> None:
        """Log that a request for nodes could not be written, read or announced."""
        self.logger.warning(reason.message, extra=_about(record, reason))

    def retired(self, outcome: Outcome) -> None:
        """Log and measure a retirement that has ended."""
        level = self.logger.warning if outcome.needs_attention else self.logger.info
        summary = outcome.summary
        level(
            summary.message,
            extra={
                "code": summary.code,
                "reason": outcome.reason.code,
                "result": outcome.result,
                "kind": outcome.kind,
                "instance": outcome.instance,
                "cluster": outcome.cluster,
                "node": outcome.node,
                "attempt": outcome.attempt,
                "replacement": outcome.replacement,
                "replacement_code": outcome.replacement_reason.code,
                "replacement_reason": outcome.replacement_reason.message,
                "hooks": list(outcome.hooks),
                "terminated": outcome.terminated,
                "evicted": outcome.evicted,
                "blocked_by_budgets": outcome.blocked,
                "deleted_past_budget": outcome.deleted,
                "seconds_to_cordon": outcome.seconds_to_cordon,
                "seconds_to_end": outcome.seconds_to_end,
                "seconds_spare": _seconds(outcome.ended_at, outcome.deadline),
                "left_behind": [f"{pod.pod}: {pod.reason}" for pod in outcome.failed],
            },
        )
        self.count("RetirementProblems", int(outcome.needs_attention))
        self.count("NodesNotCordoned", int(outcome.needs_attention and outcome.never_cordoned))

    def retirement_not_reported(self, outcome: Outcome, reason: Reason) -> None:
        """Log that the Leeway event or the Kubernetes Event of a retirement was not accepted."""
        self.logger.warning(
            reason.message,
            extra={
                "code": reason.code,
                "cluster": outcome.cluster,
                "node": outcome.node,
                "instance": outcome.instance,
                "attempt": outcome.attempt,
            },
        )


def _about(record: Retirement, reason: Reason) -> dict[str, Any]:
    return {
        "code": reason.code,
        "kind": record.kind,
        "instance": record.instance,
        "cluster": record.facts.cluster,
        "attempt": record.attempt,
    }


def report_outcome(attempt: Attempt, outcome: Outcome, cordoned: CordonResult) -> str:
    """Write both reports in one step, because every step costs. The Leeway event comes last: it
    may fail and repeat the step, and a repeated Kubernetes Event is the same object."""
    if cordoned.node and cordoned.course is not Course.DRY_RUN:
        _write_node_event(attempt, outcome, cordoned.node_uid)
    return _publish(attempt, outcome)


def _publish(attempt: Attempt, outcome: Outcome) -> str:
    """Publish the Leeway event. Readers recognise a repeated one by instance and attempt; a
    refused one is logged."""
    try:
        attempt.ports.events.publish(outcome.title, outcome.to_json())
    except CloudRefused as error:
        problem = NOT_REPORTED(f"EventBridge refuses the Leeway event: {error}")
        attempt.ports.telemetry.retirement_not_reported(outcome, problem)
        return problem.message
    return outcome.title


def _write_node_event(attempt: Attempt, outcome: Outcome, node_uid: str) -> None:
    """Write the Kubernetes Event; a failure is logged and does not delay the rest."""
    event = outcome.as_node_event(node_uid)
    again = attempt.again()
    try:
        while True:
            with again:
                attempt.ports.open_cluster(outcome.cluster).write_event(event)
                return
    except API_ERRORS as error:
        problem = NOT_REPORTED(f"the Kubernetes Event could not be written: {error}")
        attempt.ports.telemetry.retirement_not_reported(outcome, problem)
