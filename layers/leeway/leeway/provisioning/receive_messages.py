"""Receives a batch of the provisioning queue: one run for each cluster.

A cluster whose run fails keeps its messages, and SQS delivers them again. The messages of other
clusters are deleted. A message for later is hidden until its time, and then sent on as one for now:
SQS has no delay for single messages of a FIFO queue.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from leeway.capacity_requests import ProvisionNodes
from leeway.clock import Clock
from leeway.execution.retrying import API_ERRORS
from leeway.manifests.cluster import NAME
from leeway.printable import printable
from leeway.provisioning.report import ProvisioningReport, ProvisioningTelemetry
from leeway.reasons import Reason, ReasonCode

MESSAGE_DROPPED = ReasonCode(
    "MessageDropped",
    "Leeway dropped a message of the provisioning queue: {problem}.",
    "clusterproblemsalarm",
)

NO_TIME_FOR_CLUSTER = ReasonCode(
    "NoTimeForCluster",
    "The invocation has no time left for cluster {cluster}: SQS delivers the message again.",
)


class MessageVisibility(Protocol):
    """When SQS delivers messages again that are not deleted."""

    def hide(self, receipts: Sequence[str], seconds: int) -> None:
        """Deliver these messages again after so many seconds, unless they are deleted before."""
        ...


RETRY_AFTER = timedelta(seconds=15)
"""When SQS delivers the messages of a failed run again."""

LONGEST_DELAY = timedelta(minutes=2)
"""How long a message for later is hidden at most before it is looked at again."""

FOR_THE_END = timedelta(seconds=15)
"""The time that a run keeps after its last launch, for answers, Events and the status."""

SAFETY = timedelta(seconds=2)
"""How long before Lambda ends the invocation a run is over."""


class ProvisionMessage(BaseModel):
    """A request for a run, at the time `at` (epoch seconds) if that is later. `why` is for logs and
    the status."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: Annotated[str, StringConstraints(pattern=NAME)]
    why: str = ""
    at: Annotated[int, Field(ge=0)] = 0


class SqsRecord(BaseModel):
    """A message in the form of Lambda's event source mapping."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    message_id: Annotated[str, Field(alias="messageId")]
    receipt: Annotated[str, Field(alias="receiptHandle")] = ""
    body: str


@dataclass(frozen=True, slots=True)
class ClusterMessages:
    """The messages of one batch for one cluster: one run serves them all."""

    cluster: str
    why: str
    ids: tuple[str, ...]
    receipts: tuple[str, ...]


class MessageReceiver:
    """Receives batches. `run` makes the run for a cluster, at most until a time: it raises nothing.
    `clusters` are those of the stack."""

    def __init__(
        self,
        run: Callable[[str, str, datetime], ProvisioningReport],
        visibility: MessageVisibility,
        queue: ProvisionNodes,
        clusters: Collection[str],
        telemetry: ProvisioningTelemetry,
        clock: Clock,
    ) -> None:
        self._run_for = run
        self._visibility = visibility
        self._queue = queue
        self._clusters = clusters
        self._telemetry = telemetry
        self._clock = clock

    def receive(self, event: Any, seconds: float) -> tuple[str, ...]:
        """Run for each cluster of a batch, in `seconds` at most; return the ids of the messages
        that SQS delivers again.

        Raises:
            ValidationError: the event is not one of SQS.
        """
        until = self._clock.now() + timedelta(seconds=seconds) - SAFETY
        batch = read_batch(event, self._clusters)
        for reason in batch.dropped:
            self._telemetry.dropped(reason)
        receipts = [one for messages in batch.clusters for one in messages.receipts]
        # A run that dies leaves its messages hidden for the visibility timeout of the queue, which
        # is much longer than an invocation. No other run can begin before this invocation ends.
        self._hide(receipts, timedelta(seconds=seconds) + SAFETY)
        failed = [
            record.message_id
            for record, message in batch.later
            if not self._sent_on(record, message)
        ]
        for messages in batch.clusters:
            if self._clock.now() + FOR_THE_END >= until:
                reason = NO_TIME_FOR_CLUSTER(cluster=messages.cluster)
                report = ProvisioningReport(messages.cluster, messages.why, reason, retry=True)
            else:
                report = self._run_for(messages.cluster, messages.why, until)
            self._telemetry.provisioned(report)
            if report.retry:
                self._hide(messages.receipts, RETRY_AFTER)
                failed += messages.ids
        return tuple(failed)

    def _sent_on(self, record: SqsRecord, message: ProvisionMessage) -> bool:
        """Send a message on whose time has come, or hide it until then; return whether it is done.
        One that is delivered twice wakes the cluster twice, which is harmless."""
        left = timedelta(seconds=message.at - self._clock.now().timestamp())
        if left <= timedelta(0):
            try:
                self._queue.wake(message.cluster, message.why)
            except API_ERRORS:
                left = RETRY_AFTER
            else:
                return True
        whole = timedelta(seconds=math.ceil(left.total_seconds()))
        self._hide([record.receipt], min(whole, LONGEST_DELAY))
        return False

    def _hide(self, receipts: Sequence[str], during: timedelta) -> None:
        """Set when SQS delivers messages again. Without that, it is the timeout of the queue."""
        try:
            self._visibility.hide(receipts, int(during.total_seconds()))
        except API_ERRORS:
            return


LONGEST_WHY = 200
"""Characters of the reasons of a run in its log line and status."""


class SqsEvent(BaseModel):
    """A batch of messages."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    records: Annotated[tuple[SqsRecord, ...], Field(alias="Records")]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch by cluster, its messages for later, and why some of its messages are dropped."""

    clusters: tuple[ClusterMessages, ...]
    later: tuple[tuple[SqsRecord, ProvisionMessage], ...]
    dropped: tuple[Reason, ...]


def read_batch(event: Any, clusters: Collection[str]) -> Batch:
    """Read a batch. `clusters` are those of the stack: a message for another one is dropped, as one
    that is not valid is, because a repetition would not help.

    Raises:
        ValidationError: the event is not one of SQS.
    """
    found: dict[str, list[tuple[SqsRecord, str]]] = {}
    later = []
    dropped = []
    for record in SqsEvent.model_validate(event).records:
        try:
            message = ProvisionMessage.model_validate_json(record.body)
        except ValidationError as error:
            dropped.append(MESSAGE_DROPPED(problem=_first(error)))
            continue
        if message.cluster in clusters and message.at:
            later.append((record, message))
        elif message.cluster in clusters:
            found.setdefault(message.cluster, []).append((record, message.why))
        else:
            problem = f"add cluster {message.cluster} to the stack's ClusterNames"
            dropped.append(MESSAGE_DROPPED(problem=problem))
    return Batch(
        tuple(
            ClusterMessages(
                cluster,
                _merged(why for _, why in messages),
                tuple(record.message_id for record, _ in messages),
                tuple(record.receipt for record, _ in messages if record.receipt),
            )
            for cluster, messages in found.items()
        ),
        tuple(later),
        tuple(dropped),
    )


def _merged(reasons: Iterable[str]) -> str:
    return printable("; ".join(dict.fromkeys(filter(None, reasons))))[:LONGEST_WHY]


def _first(error: ValidationError) -> str:
    """The first error, without the message's own text: a sender could write lines of a log."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "body"
    return f"{place}: {first['type']}"
