"""Whether a retirement that could as well wait may begin now, and the cap on how many do."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict

from leeway.execution.attempt import Phase
from leeway.lifecycle_hooks.held_hooks import LONGEST_WAIT
from leeway.notices import NoticeKind
from leeway.policy.rules import BUDGET_TIMEOUT, VOLUNTARY, ChurnCap, ClusterPolicy, OnBlocked
from leeway.retirement.record import Retirement

LAST_CALL = timedelta(hours=1)
"""How long before its deadline a scheduled change is waited with no longer: EC2 takes the instance
then, whatever a policy says."""

SOON, LATER = timedelta(seconds=60), timedelta(minutes=5)
"""How often it is asked whether its turn has come: for the first hour, and after that."""


class BudgetVerdict(StrEnum):
    """What a retirement is told that asks for its turn."""

    GO = "go"
    WAIT = "wait"
    DECLINE = "decline"


@dataclass(frozen=True, slots=True)
class BudgetDecision:
    """What it is told, and why."""

    verdict: BudgetVerdict
    reason: str = ""


class DisruptionLedger(BaseModel):
    """Which instances of a cluster went voluntarily, and when each one's turn came.

    `version` counts writes, under which it is locked.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: str
    version: int = 0
    begun: dict[str, AwareDatetime] = {}

    def request(
        self, instance: str, nodes: int, cap: ChurnCap, now: datetime
    ) -> tuple["DisruptionLedger | None", BudgetDecision]:
        """Ask for a turn in a cluster of so many nodes; the ledger is what is to be written, None
        where nothing changes. An instance that asks again has its turn already."""
        taken = {name: at for name, at in self.begun.items() if now - at < cap.within}
        if instance in taken:
            return None, BudgetDecision(BudgetVerdict.GO)
        allowed = max(cap.at_least, nodes * cap.percent // 100)
        if len(taken) >= allowed:
            minutes = cap.within.total_seconds() / 60
            return None, BudgetDecision(
                BudgetVerdict.WAIT,
                f"{len(taken)} of {nodes} nodes went in the last {minutes:g} minutes, and at most "
                f"{allowed} may",
            )
        begun = {**taken, instance: now}
        changed = self.model_copy(update={"begun": begun, "version": self.version + 1})
        return changed, BudgetDecision(BudgetVerdict.GO)


def is_voluntary(record: Retirement, now: datetime) -> bool:
    """Whether the instance would stay if nothing were done, for now."""
    if record.kind not in VOLUNTARY:
        return False
    if record.kind is NoticeKind.SCHEDULED_CHANGE and record.deadline is not None:
        return now < record.deadline - LAST_CALL
    return True


def decide_disruption(
    record: Retirement, policy: ClusterPolicy, protections: Sequence[str]
) -> BudgetDecision:
    """Decide whether a voluntary retirement may begin, but for the churn cap.

    `protections` say, each in words, what on the node forbids to disrupt it.
    """
    held = _held(record, policy, protections)
    return (
        BudgetDecision(BudgetVerdict.GO)
        if held is None
        else BudgetDecision(BudgetVerdict.WAIT, held)
    )


def decline_after_timeout(
    record: Retirement, told: BudgetDecision, now: datetime
) -> BudgetDecision:
    """Decline instead of waiting on, where a day was not enough, whatever the reason. A scheduled
    change comes anyway, and one whose successor is asked for has begun: these wait on."""
    counts = record.deadline_from_begin and record.replacement_intent is None
    if (
        told.verdict is not BudgetVerdict.WAIT
        or not counts
        or now - record.noticed_at < BUDGET_TIMEOUT
    ):
        return told
    hours = BUDGET_TIMEOUT.total_seconds() / 3600
    return BudgetDecision(
        BudgetVerdict.DECLINE, f"its turn has not come in {hours:g} hours: {told.reason}"
    )


def _held(record: Retirement, policy: ClusterPolicy, protections: Sequence[str]) -> str | None:
    if policy.paused:
        return f"cluster {record.facts.cluster} is paused"
    # A scheduled change comes anyway, to protected pods too: they are better off if told.
    if protections and record.kind is NoticeKind.REBALANCE:
        more = f" (and {len(protections) - 1} more)" if len(protections) > 1 else ""
        return f"{protections[0]}{more}"
    return None


def retry_pause(record: Retirement, now: datetime) -> timedelta:
    """Return how long to wait before asking for the turn again."""
    pause = SOON if now - record.noticed_at < timedelta(hours=1) else LATER
    if record.kind is NoticeKind.SCHEDULED_CHANGE and record.deadline is not None:
        last_call = record.deadline - LAST_CALL - now
        pause = min(pause, max(last_call, timedelta(seconds=1)))
    return pause


def start_drain(record: Retirement, now: datetime) -> Retirement:
    """Return a retirement whose pods are asked to go from now on. Its deadline is counted from now
    where it counts from its turn.

    One that its group ends, and whose blocked pods are to be waited for, waits as long as a hook
    can be kept: there is no way back. What is blocked at that end is deleted, which is kinder than
    to be lost with the instance.
    """
    if record.begun_at is not None:
        return record
    fields: dict[str, Any] = {"begun_at": now, "phase": Phase.RUNNING}
    if record.deadline_from_begin and record.deadline is not None:
        fields["deadline"] = now + (record.deadline - record.noticed_at)
        if record.group_terminates and record.on_blocked is OnBlocked.WAIT:
            fields |= {"deadline": now + LONGEST_WAIT, "on_blocked": OnBlocked.DELETE}
    return record.model_copy(update=fields)
