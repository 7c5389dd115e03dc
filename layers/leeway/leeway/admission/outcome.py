"""What came of an admission, in the words of its log line, its event and its Kubernetes Event."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from leeway.admission.readiness import AdmissionResult
from leeway.ports.kubernetes import NodeEvent
from leeway.typed_json import adapter_of

_WORDS = {AdmissionResult.ADMITTED: "Admitted", AdmissionResult.POOLED: "Pooled"}
_OTHERWISE = "Not Admitted"


@dataclass(frozen=True, slots=True)
class AdmissionOutcome:
    """An admission that has ended. Times are UTC; `hooks` are the lifecycle hooks that waited for
    it, `refused` what AWS said to the answers that it refused."""

    result: AdmissionResult
    instance: str
    cluster: str
    node: str
    attempt: int
    reason: str
    asked_at: datetime
    joined_at: datetime | None
    ended_at: datetime
    deadline: datetime
    hooks: tuple[str, ...]
    refused: tuple[str, ...]

    @property
    def seconds_to_end(self) -> float:
        """From when it was asked for to its end."""
        return (self.ended_at - self.asked_at).total_seconds()

    @property
    def title(self) -> str:
        """The detail-type of the Leeway event: rules can match on it."""
        return f"Leeway Node {_WORDS.get(self.result, _OTHERWISE)}"

    @property
    def sentence(self) -> str:
        """What happened, in one sentence for people."""
        told = [f"{self.node or self.instance} {self.result}: {self.reason}"]
        if self.result is AdmissionResult.NOT_READY and self.hooks:
            told.append(f"abandoned, so that its group ends it ({', '.join(self.hooks)})")
        return "; ".join([*told, *self.refused])

    @property
    def troubled(self) -> bool:
        """Whether somebody should look at it."""
        return self.result in {AdmissionResult.NOT_READY, AdmissionResult.UNSEEN} or bool(
            self.refused
        )

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
            reason="Leeway" + _WORDS.get(self.result, _OTHERWISE).replace(" ", ""),
            message=self.sentence,
            warning=self.troubled,
        )
