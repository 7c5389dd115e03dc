"""Use case: a notice arrives, is written down, and starts the retirements it asks for."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from leeway.cloud.ports import CloudUnavailable, Instances, RecordChanged, Records, RetireNode
from leeway.notices import InstanceId, Notice
from leeway.notices.parse import parse_notice
from leeway.policies import DEFAULTS, Action, Ruling, rule
from leeway.records import InstanceFacts, Retirement, receive

LOCK_TRIES = 6
"""How often a record is read again when another notice for it was written in between."""


class Result(StrEnum):
    """What became of a notice for one instance."""

    STARTED = "started"
    KNOWN = "known"
    NOT_OURS = "not-ours"
    LEFT_TO_OWNER = "left-to-owner"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a notice for one instance, and why."""

    result: Result
    reason: str
    instance: str = ""
    cluster: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """A notice and what became of it, for each instance that it names."""

    notice: Notice
    instances: tuple[Received, ...]

    def to_dict(self) -> dict[str, Any]:
        """Render the answer of the function."""
        return {
            "notice": self.notice.id,
            "kind": self.notice.kind.value,
            "instances": [asdict(one) for one in self.instances],
        }


class NotAllReceived(Exception):
    """Some of a notice's instances could not be seen to; `receipt` has the others."""

    def __init__(self, receipt: Receipt, failures: Sequence[Exception]) -> None:
        super().__init__("; ".join(f"{type(e).__name__}: {e}" for e in failures))
        self.receipt = receipt


class Reception:
    """Receives notices. `clusters` are the names of the clusters under Leeway's care."""

    def __init__(
        self,
        records: Records,
        instances: Instances,
        retire_node: RetireNode,
        clusters: Iterable[str],
    ) -> None:
        self._records = records
        self._instances = instances
        self._retire_node = retire_node
        self._clusters = frozenset(clusters)

    def receive(self, event: Any) -> Receipt:
        """Take in one EventBridge event. Receiving it again changes nothing.

        Raises:
            MalformedNotice, UnknownNotice: it is not a notice.
            NotAllReceived: some instance could not be seen to; the others have been, and
                receiving the event again does the rest.
        """
        notice = parse_notice(event)
        ruling = rule(notice, DEFAULTS[notice.kind])
        if ruling.action is Action.IGNORE:
            return Receipt(notice, (Received(Result.IGNORED, ruling.reason),))
        received: list[Received] = []
        failures: list[Exception] = []
        for instance in notice.instances:
            try:
                received.append(self._receive_for(instance, notice, ruling))
            except Exception as error:  # noqa: BLE001 (raised below, when all had their turn)
                failures.append(error)
        receipt = Receipt(notice, tuple(received))
        if failures:
            raise NotAllReceived(receipt, failures)
        return receipt

    def _receive_for(self, instance: InstanceId, notice: Notice, ruling: Ruling) -> Received:
        for _ in range(LOCK_TRIES):
            known = self._records.known(instance)
            stored = known.retirement
            facts = stored.facts if stored else known.facts or self._instances.describe(instance)
            if facts is None:
                return Received(
                    Result.NOT_OURS, "no such instance, or its tags name no cluster", instance
                )
            if declined := self._decline(facts):
                return declined
            try:
                return self._settle(stored, notice, ruling, facts)
            except RecordChanged:
                continue
        raise CloudUnavailable(f"{instance}: its record changed {LOCK_TRIES} times in a row")

    def _decline(self, facts: InstanceFacts) -> Received | None:
        if facts.cluster not in self._clusters:
            reason = f"cluster {facts.cluster} is not under Leeway's care"
            return Received(Result.NOT_OURS, reason, facts.instance, facts.cluster)
        if facts.owner.retires_itself:
            reason = f"{facts.owner.kind} {facts.owner.name} drains and replaces its own nodes"
            return Received(Result.LEFT_TO_OWNER, reason, facts.instance, facts.cluster)
        return None

    def _settle(
        self, stored: Retirement | None, notice: Notice, ruling: Ruling, facts: InstanceFacts
    ) -> Received:
        reception = receive(stored, notice, ruling, facts)
        record = reception.record
        if reception.write:
            self._records.write(record)
        if reception.start:
            self._retire_node.start(record.instance, facts.cluster, record.generation)
        result = Result.STARTED if reception.start else Result.KNOWN
        return Received(result, reception.reason, record.instance, facts.cluster, record.generation)
