"""Receives a batch of the provisioning queue: one run for each cluster.

A cluster whose run fails keeps its messages, and SQS delivers them again. The messages of other
clusters are deleted. A message for later is hidden until its time, and then sent on as one for now:
SQS has no delay for single messages of a FIFO queue.
"""

import math
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from leeway.capacity_requests.ports import ProvisionNodes
from leeway.clock import Clock
from leeway.execution.retrying import API_ERRORS
from leeway.provisioning.messages import (
    ClusterMessages,
    ProvisionMessage,
    SqsRecord,
    read_batch,
)
from leeway.provisioning.ports import MessageVisibility
from leeway.provisioning.provision_nodes import FOR_THE_END, NodeProvisioning
from leeway.provisioning.reasons import NO_TIME_FOR_CLUSTER
from leeway.provisioning.report import ProvisioningReport
from leeway.reasons import Reason

RETRY_AFTER = timedelta(seconds=15)
"""When SQS delivers the messages of a failed run again."""

LONGEST_DELAY = timedelta(minutes=2)
"""How long a message for later is hidden at most before it is looked at again."""

SAFETY = timedelta(seconds=2)
"""How long before Lambda ends the invocation a run is over."""


class Telemetry(Protocol):
    """Logs and metrics of provisioning."""

    def provisioned(self, report: ProvisioningReport) -> None:
        """Log and measure a run."""
        ...

    def dropped(self, reason: Reason) -> None:
        """Log and count a message that is dropped."""
        ...


class MessageReceiver:
    """Receives batches. `clusters` are those of the stack."""

    def __init__(
        self,
        provisioning: NodeProvisioning,
        visibility: MessageVisibility,
        queue: ProvisionNodes,
        clusters: Collection[str],
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._provisioning = provisioning
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
            if not self._run(messages, until):
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

    def _run(self, messages: ClusterMessages, until: datetime) -> bool:
        """Run for one cluster; return whether its messages are done."""
        if self._clock.now() + FOR_THE_END >= until:
            reason = NO_TIME_FOR_CLUSTER(cluster=messages.cluster)
            report = ProvisioningReport(messages.cluster, messages.why, reason, retry=True)
        else:
            report = self._provisioning.run(messages.cluster, messages.why, until)
        self._telemetry.provisioned(report)
        if report.retry:
            self._hide(messages.receipts, RETRY_AFTER)
        return not report.retry

    def _hide(self, receipts: Sequence[str], during: timedelta) -> None:
        """Set when SQS delivers messages again. Without that, it is the timeout of the queue."""
        try:
            self._visibility.hide(receipts, int(during.total_seconds()))
        except API_ERRORS:
            return
