"""The outcome of an admission, for its log line, its Leeway event and its Kubernetes Event."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from leeway.admission.readiness import AdmissionResult
from leeway.ports.kubernetes import NodeEvent
from leeway.reasons import Reason
from leeway.typed_json import adapter_of

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
        }
        return self.result in failed or bool(self.refused)

    def to_json(self) -> str:
        """Render the detail of the Leeway event."""
        return adapter_of(AdmissionOutcome).dump_json(self).decode()

    def to_dict(self) -> dict[str, Any]:
        """Render the answer of the function."""
        rendered: dict[str, Any] = adapter_of(AdmissionOutcome).dump_python(self, mode="json")
        return rendered

    def as_node_event(self, node_uid: str) -> NodeEvent:
        """Render the Kubernetes Event; its name makes a repeated report the same Event."""
        return NodeEvent(
            name=f"{self.node}.leeway-admit-{self.instance}-{self.attempt}",
            node=self.node,
            node_uid=node_uid,
            reason=self.reason.code,
            message=self.message,
            warning=self.needs_attention,
        )
