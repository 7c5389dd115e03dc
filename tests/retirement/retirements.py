"""Retirement records and notices for tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from leeway.execution.attempt import Phase, RecordChange
from leeway.instances.facts import InstanceFacts, Owner, OwnerKind
from leeway.notices import InstanceId, InterruptionAction, LifecycleHook, Notice, NoticeKind
from leeway.policy.rules import DEFAULTS, rule
from leeway.ports.aws import HookResult
from leeway.retirement.attempts import apply_notice
from leeway.retirement.reasons import REPLACEMENT_DECIDED, SUCCESSOR_FOUND
from leeway.retirement.record import ReplacementIntent, Retirement, ZoneChoice

NOTICED = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
FACTS = InstanceFacts(
    instance="i-0b662ef9931388ba0",
    cluster="prod",
    private_dns_name="ip-10-0-0-1.ec2.internal",
    zone="us-east-1a",
    instance_type="m5.large",
    capacity_type="spot",
    owner=Owner(OwnerKind.AUTO_SCALING_GROUP, "ng"),
)
HOOK = LifecycleHook("ng", "leeway-drain")
REQUESTED = ReplacementIntent(
    method="launch-successor",
    reason=REPLACEMENT_DECIDED("An earlier attempt requested the successor from group ng."),
    requested_at=NOTICED,
    group="ng",
    zones=(
        ZoneChoice(
            "us-east-1a",
            SUCCESSOR_FOUND(
                "This is the instance's own zone, which keeps the balance of the group."
            ),
        ),
    ),
)
STOP = {"action": InterruptionAction.STOP}
ENDS = {Phase.NOTICED: Phase.RUNNING, Phase.RUNNING: Phase.FINISHED, Phase.UNDOING: Phase.UNDONE}


def notice(kind: NoticeKind, id: str, **more: Any) -> Notice:  # noqa: A002
    at = NOTICED + timedelta(seconds=more.pop("after", 0))
    instances = (InstanceId(FACTS.instance),)
    return Notice(id, kind, "123456789012", "us-east-1", at, instances, **more)


def take(
    stored: Retirement | None,
    kind: NoticeKind,
    id: str,  # noqa: A002
    **more: Any,
) -> RecordChange[Retirement]:
    announced = notice(kind, id, **more)
    return apply_notice(stored, announced, rule(announced, DEFAULTS[kind]), FACTS)


def interrupted(phase: Phase = Phase.RUNNING) -> Retirement:
    record = take(None, NoticeKind.SPOT_INTERRUPTION, "n-1").record
    return at(record, phase)


def at(record: Retirement, phase: Phase) -> Retirement:
    """A retirement in this phase; a finished one had an effect."""
    answer = HookResult.CONTINUE if phase is Phase.FINISHED else None
    return record.model_copy(update={"phase": phase, "answer": answer})
