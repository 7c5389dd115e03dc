"""receive_notice with a fake for each of its ports, and the events that it receives."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from leeway.admission.record import ADMISSION, Admission
from leeway.execution.attempt import Phase
from leeway.instances.facts import FACTS as FACTS_OF_INSTANCE
from leeway.instances.facts import CurrentInstance, InstanceFacts, ObservedChange, Owner, OwnerKind
from leeway.interruption.receive_notice import NoticeOutcome, NoticeResult, ReceiveNotice
from leeway.notices import NoticeKind
from leeway.policy.rules import DEFAULTS, Action, ClusterPolicy
from leeway.ports.aws import CloudUnavailable
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.table import Key

from tests.fakes.functions import CleanUps, Starts
from tests.fakes.offerings import OfferingsInMemory
from tests.fakes.policies import OnePolicy
from tests.fakes.schedules import SchedulesInMemory
from tests.fakes.table import Stored, TableInMemory
from tests.notices.events import HERE, event
from tests.retirement.retirements import FACTS, at

FIRST, SECOND = "i-0b662ef9931388ba0", "i-0abc1234"
CHANGE_AT = datetime.fromisoformat("2026-12-04T02:00:00Z")
WEEKS_BEFORE = datetime.fromisoformat("2026-11-20T09:45:01Z")
LEAD = CHANGE_AT - timedelta(hours=4)
RUNS = CurrentInstance("running", datetime.fromisoformat("2026-11-01T08:00:00Z"))
AFTERWARDS = datetime.fromisoformat("2026-11-20T12:00:00Z")


@dataclass
class Receiver:
    """receive_notice with a fake for each of its ports. The fake of EC2, of the records and of the
    clock is the receiver itself."""

    now_: datetime = WEEKS_BEFORE
    owner: Owner = field(default_factory=lambda: Owner(OwnerKind.AUTO_SCALING_GROUP, "ng"))
    policies: OnePolicy = field(default_factory=OnePolicy)
    schedules: SchedulesInMemory = field(default_factory=SchedulesInMemory)
    offerings: OfferingsInMemory = field(default_factory=OfferingsInMemory)
    started: list[str] = field(default_factory=list)
    ec2_reads: list[str] = field(default_factory=list)
    unreadable: str = ""
    changes: list[ObservedChange] = field(default_factory=list)
    ec2_fails: bool = False
    current: CurrentInstance | None = RUNS
    reservations: dict[str, list[str]] = field(default_factory=dict)
    admissions: Starts = field(default_factory=Starts)
    clean_ups: CleanUps = field(default_factory=CleanUps)
    table: TableInMemory = field(init=False)

    def __post_init__(self) -> None:
        self.table = TableInMemory(self)
        self.table.before = self._check

    def _check(self, operation: str, key: Key) -> None:
        if self.unreadable and self.unreadable in key[0]:
            raise CloudUnavailable("the table does not answer")

    @property
    def stored(self) -> Stored[Retirement]:
        return self.table.records(RETIREMENT)

    @property
    def admission_records(self) -> Stored[Admission]:
        return self.table.records(ADMISSION)

    @property
    def index(self) -> Stored[InstanceFacts]:
        return self.table.records(FACTS_OF_INSTANCE)

    def now(self) -> datetime:
        return self.now_

    def sleep(self, seconds: float) -> None:
        self.now_ += timedelta(seconds=seconds)

    def describe(self, instance: str) -> InstanceFacts | None:
        self.ec2_reads.append(instance)
        return FACTS.model_copy(update={"instance": instance, "owner": self.owner})

    def changes_of(self, instance: str) -> list[ObservedChange]:
        if self.ec2_fails:
            raise CloudUnavailable("RequestLimitExceeded")
        return [one for one in self.changes if one.instance == instance]

    def current_instance(self, instance: str) -> CurrentInstance | None:
        if self.ec2_fails:
            raise CloudUnavailable("RequestLimitExceeded")
        self.ec2_reads.append(instance)
        return self.current

    def in_reservation(self, reservation: str) -> list[str]:
        return self.reservations.get(reservation, [])

    def terminate(self, instance: str) -> None:
        raise AssertionError("receive_notice terminates no instance")

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        self.started.append(f"{instance}-{attempt}")

    def receive(self, body: dict[str, Any], begun: Action | None = None) -> NoticeOutcome:
        """Receive an event."""
        receiver = ReceiveNotice(
            origin=HERE,
            table=self.table,
            instances=self,
            policies=self.policies,
            retire_node=self,
            schedules=self.schedules,
            offerings=self.offerings,
            clusters=frozenset({"prod"}),
            clock=self,
            admit_node=self.admissions,
            clean_up=self.clean_ups,
        )
        return receiver.receive(body, begun)

    def results(self, body: dict[str, Any]) -> list[NoticeResult]:
        return [one.result for one in self.receive(body).instances]

    def finished(self, instance: str = FIRST) -> None:
        """End the retirement of an instance."""
        record = self.stored[instance]
        ended = record.model_copy(update={"version": record.version + 1})
        self.table.put(RETIREMENT, at(ended, Phase.FINISHED))


class ReceiverInTime(Receiver):
    """A receiver that each event reaches at its own time."""

    def receive(self, body: dict[str, Any], begun: Action | None = None) -> NoticeOutcome:
        self.now_ = max(self.now_, datetime.fromisoformat(body["time"]))
        return super().receive(body, begun)


def state(name: str, time: str, id: str = "") -> dict[str, Any]:  # noqa: A002
    detail = {"instance-id": FIRST, "state": name}
    body = event(detail=detail, time=time, id=id or f"{name}-{time}")
    return body | {"detail-type": "EC2 Instance State-change Notification"}


def warning(time: str, action: str = "terminate", id: str = "") -> dict[str, Any]:  # noqa: A002
    detail = {"instance-id": FIRST, "instance-action": action}
    return event(detail=detail, time=time, id=id or f"warning-{time}")


def policy(**notices: Any) -> ClusterPolicy:
    changed = {NoticeKind(name.replace("_", "-")): value for name, value in notices.items()}
    return ClusterPolicy(notices={**DEFAULTS, **changed})
