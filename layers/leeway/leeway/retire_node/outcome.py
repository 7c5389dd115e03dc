"""What came of a retirement, in the words of its log line, its event and its Kubernetes Event."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from leeway.drain.progress import ENDS, PodProgress, RemovalMethod, Stage
from leeway.notices import NoticeKind
from leeway.ports.kubernetes import NodeEvent
from leeway.retirement.replacement_intent import Method, Successor
from leeway.typed_json import adapter_of

FAILED = "failed"
"""What stands for the replacement where asking for it has not succeeded in time."""


ROOM = 240_000
"""Bytes of an event's detail: an entry of PutEvents may have 256 KB, with its other fields.
Source: EventBridge user guide, "Calculating PutEvents event entry size"."""


class RetirementResult(StrEnum):
    """How a retirement ended."""

    DRAINED = "drained"
    INCOMPLETE = "incomplete"
    NO_NODE = "no-node"
    CORDONED = "cordoned"
    DECLINED = "declined"
    REHEARSED = "rehearsed"
    UNDONE = "undone"


_TITLES = {
    RetirementResult.INCOMPLETE: "Leeway Node Retirement Incomplete",
    RetirementResult.CORDONED: "Leeway Node Cordoned",
    RetirementResult.DECLINED: "Leeway Node Retirement Declined",
    RetirementResult.REHEARSED: "Leeway Node Retirement Rehearsed",
    RetirementResult.UNDONE: "Leeway Node Retirement Undone",
}
_NODE_REASONS = {
    RetirementResult.DRAINED: "LeewayRetired",
    RetirementResult.CORDONED: "LeewayCordoned",
    RetirementResult.UNDONE: "LeewayReleased",
    RetirementResult.DECLINED: "LeewayReleased",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A retirement that has ended. Times are UTC; `hooks` are the lifecycle hooks that told of it,
    `refused` what AWS said to the calls at the end that it refused, `load_balancers` what was said
    to them, `kept` that the instance is still in its group, which is one larger for it,
    `left_running` why an instance that was detached is not terminated, empty where it is,
    `pods_left_out` how many pods are not told of for want of room, `still_attached` the pods that
    went while their volumes stayed, and `successors` what was launched for the instance, as far as
    that is known."""

    result: RetirementResult
    instance: str
    cluster: str
    node: str
    kind: NoticeKind
    attempt: int
    reason: str
    noticed_at: datetime
    cordoned_at: datetime | None
    ended_at: datetime | None
    deadline: datetime | None
    replacement: str
    replacement_reason: str
    hooks: tuple[str, ...]
    terminated: bool
    refused: tuple[str, ...]
    pods: tuple[PodProgress, ...]
    load_balancers: str = ""
    kept: bool = False
    left_running: str = ""
    pods_left_out: int = 0
    still_attached: tuple[str, ...] = ()
    successors: tuple[Successor, ...] = ()

    @property
    def evicted(self) -> int:
        """Pods that went through the Eviction API."""
        return sum(p.way is RemovalMethod.EVICT and p.asked_at is not None for p in self.pods)

    @property
    def deleted(self) -> int:
        """Pods that were deleted past a budget, at their latest moment."""
        return sum(p.way is RemovalMethod.DELETE and p.asked_at is not None for p in self.pods)

    @property
    def failed(self) -> tuple[PodProgress, ...]:
        """Pods that were still there at the end."""
        return tuple(p for p in self.pods if p.stage is Stage.FAILED)

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
    def sentence(self) -> str:
        """What happened, in one sentence for people."""
        if self.result is RetirementResult.NO_NODE:
            said = f"{self.kind}: {self.instance} has no node in {self.cluster}: nothing to drain"
            return "; ".join([said, *self._unended, *self.refused])
        if self.result is RetirementResult.REHEARSED:
            return self._rehearsed
        if self.result in {
            RetirementResult.CORDONED,
            RetirementResult.DECLINED,
            RetirementResult.UNDONE,
        }:
            said = f"{self.kind}: {self.node or self.instance} {self.result}: {self.reason}"
            return "; ".join([said, *self.refused])
        done = f"{self.evicted} pods evicted"
        if self.deleted:
            done += f", {self.deleted} deleted past a budget at their latest moment"
        if self.failed:
            first = self.failed[0]
            done += f", {len(self.failed)} left behind (first {first.pod}: {first.reason})"
        if self.still_attached:
            done += f", {len(self.still_attached)} gone with volumes still attached"
        if kept := next((pod for pod in self.pods if pod.kept_by), None):
            done += f"; {kept.pod} has ended, but finalizers keep it: {', '.join(kept.kept_by)}"
        told = [f"{self.kind}: {self.node or self.instance} {self.result}", done]
        replacement = f"replacement: {self.replacement}"
        told.append(" ".join([replacement, *(one.instance for one in self.successors)]))
        told += self._unended
        if self.kept and self.result is RetirementResult.INCOMPLETE:
            told.append("left in service, since it is not drained")
        if self.result is RetirementResult.INCOMPLETE:
            told.append(self.reason)
        return "; ".join([*told, *self.refused])

    @property
    def _unended(self) -> tuple[str, ...]:
        if self.left_running:
            return (f"detached and left running, {self.left_running}",)
        if self.replacement == Method.DETACH and not self.terminated:
            return ("detached and left to EC2 to end",)
        return ()

    @property
    def _rehearsed(self) -> str:
        going = sum(p.stage not in ENDS for p in self.pods)
        return (
            f"{self.kind}: dry run: {self.node or self.instance} would be retired, {going} of its "
            f"{len(self.pods)} pods would go; replacement: {self.replacement}"
        )

    @property
    def retired(self) -> bool:
        """Whether the node's way out was gone to its end, well or not."""
        return self.result in {
            RetirementResult.DRAINED,
            RetirementResult.INCOMPLETE,
            RetirementResult.NO_NODE,
        }

    @property
    def never_cordoned(self) -> bool:
        """Whether its cluster could not be reached, or refused, until there was no time left."""
        return self.result is RetirementResult.INCOMPLETE and self.cordoned_at is None

    @property
    def troubled(self) -> bool:
        """Whether somebody should look at it."""
        problems = bool(self.refused) or bool(self.left_running)
        return problems or self.result is RetirementResult.INCOMPLETE or self.replacement == FAILED

    def to_json(self) -> str:
        """Render the detail of the Leeway event. Of more pods than it has room for, those that went
        as planned are left out first, and counted."""
        outcomes, pods = adapter_of(Outcome), adapter_of(PodProgress)
        whole = outcomes.dump_json(self)
        if len(whole) <= ROOM:
            return whole.decode()
        room = ROOM - len(outcomes.dump_json(replace(self, pods=())))
        told: list[PodProgress] = []
        for pod in sorted(self.pods, key=_went_as_planned):
            room -= len(pods.dump_json(pod)) + 1
            if room < 0:
                break
            told.append(pod)
        left_out = len(self.pods) - len(told)
        cut = replace(self, pods=tuple(told), pods_left_out=left_out)
        return outcomes.dump_json(cut).decode()

    def to_dict(self) -> dict[str, Any]:
        """Render the answer of the function."""
        rendered: dict[str, Any] = adapter_of(Outcome).dump_python(self, mode="json")
        return rendered

    def as_node_event(self, node_uid: str) -> NodeEvent:
        """Render the Kubernetes Event; its name makes a repeated report the same Event."""
        return NodeEvent(
            name=f"{self.node}.leeway-{self.instance}-{self.attempt}",
            node=self.node,
            node_uid=node_uid,
            reason=_NODE_REASONS.get(self.result, "LeewayRetirementIncomplete"),
            message=f"{self.sentence} ({self.replacement_reason})",
            warning=self.troubled,
        )


def _went_as_planned(pod: PodProgress) -> bool:
    return pod.stage is Stage.LEFT or (pod.stage is Stage.GONE and pod.way is RemovalMethod.EVICT)


def _seconds(start: datetime, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if end else None
