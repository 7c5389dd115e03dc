"""The outcome of a notice, for each of its instances."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from leeway.notices import Notice
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.reasons import Reason

MAX_ERRORS = 10
"""How many errors the message of an exception contains: together with the event, it must fit into a
message of the dead-letter queue."""


class NoticeResult(StrEnum):
    """What Leeway does with a notice for one instance."""

    STARTED = "started"
    KNOWN = "known"
    SCHEDULED = "scheduled"
    UNDOING = "undoing"
    NOT_OURS = "not-ours"
    LEFT_TO_OWNER = "left-to-owner"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class InstanceOutcome:
    """What Leeway does with a notice for one instance, and why. `instance` is empty if the outcome
    is about the whole notice; `attempt` is 0 if there is no record."""

    result: NoticeResult
    reason: Reason
    instance: str = ""
    cluster: str = ""
    attempt: int = 0

    def with_side_effect(self, failure: str, work: Callable[[], str]) -> "InstanceOutcome":
        """Do `work`, which the notice can do without, and return the outcome.

        `work` returns why it did nothing, or an empty string. That, or its error, is added to the
        reason after `failure`. The error is not raised: during a storm, EventBridge would deliver
        the notice again for it.
        """
        try:
            why = work()
        except (CloudUnavailable, CloudRefused) as error:
            why = str(error)
        return replace(self, reason=self.reason.and_then(f"{failure}: {why}.")) if why else self


@dataclass(frozen=True, slots=True)
class NoticeOutcome:
    """A notice and its outcome for each of its instances."""

    notice: Notice
    instances: tuple[InstanceOutcome, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the response of the function receive_notice."""
        return {
            "notice": self.notice.id,
            "kind": self.notice.kind.value,
            "instances": [asdict(one) for one in self.instances],
        }


class NotAllInstancesReceived(Exception):
    """Receiving failed for some instances of a notice; `receipt` has the outcome of the others."""

    def __init__(self, receipt: NoticeOutcome, failures: Sequence[Exception]) -> None:
        errors = [f"{type(error).__name__}: {error}" for error in failures[:MAX_ERRORS]]
        hidden = len(failures) - MAX_ERRORS
        more = [f"and {hidden} more"] if hidden > 0 else []
        super().__init__("; ".join([*errors, *more]))
        self.receipt = receipt
