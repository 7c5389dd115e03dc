"""Decides whether a voluntary retirement may begin now, within the cluster's disruption budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict

from leeway.execution.attempt import Phase
from leeway.notices import NoticeKind
from leeway.policy.rules import (
    BUDGET_TIMEOUT,
    VOLUNTARY,
    ChurnCap,
    ClusterPolicy,
    OnBlocked,
)
from leeway.reasons import Reason, counted
from leeway.retirement.hooks import LONGEST_WAIT
from leeway.retirement.reasons import (
    BUDGET_EXHAUSTED,
    CLUSTER_PAUSED,
    DISRUPTION_ALLOWED,
    DISRUPTION_NOT_DECIDED,
    NODE_KEPT,
    NODE_PROTECTED,
)
from leeway.retirement.record import ENDED_WITHOUT_NODE_AFTER, Retirement
from leeway.table import Record, Table

INVOLUNTARY_BEFORE = timedelta(hours=1)
"""How long before its deadline a scheduled change ceases to be voluntary: EC2 stops the instance
then, even if a policy forbids disruption."""

RETRY_FIRST, RETRY_LATER = timedelta(seconds=60), timedelta(minutes=5)
RETRY_AFTER_A_DAY = timedelta(minutes=20)
"""How often a retirement that waits is retried: during its first hour, its first day, and after
that. A durable execution has at most 3,000 operations."""

UNREAD_AT_MOST = timedelta(minutes=3)
"""How long a return waits for what it cannot read. It is confirmed again after that; a declined
return is not tried again for longer."""


class BudgetVerdict(StrEnum):
    """The answer to a retirement that requests to begin."""

    GO = "go"
    WAIT = "wait"
    DECLINE = "decline"


@dataclass(frozen=True, slots=True)
class BudgetDecision:
    """The answer to a retirement that requests to begin, and why."""

    verdict: BudgetVerdict
    reason: Reason


ALLOWED = BudgetDecision(BudgetVerdict.GO, DISRUPTION_ALLOWED())


class DisruptionLedger(BaseModel):
    """The voluntary retirements that began in a cluster: instance id → time.

    `version` counts writes and is the optimistic lock.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: str
    version: int = 0
    begun: dict[str, AwareDatetime] = {}

    def left(self, nodes: int, cap: ChurnCap, now: datetime) -> int:
        """Return how many more retirements may begin now in a cluster of `nodes` nodes."""
        recent = sum(now - at < cap.within for at in self.begun.values())
        return max(0, _allowed(nodes, cap) - recent)

    def request(
        self, instance: str, nodes: int, cap: ChurnCap, now: datetime
    ) -> tuple["DisruptionLedger | None", BudgetDecision]:
        """Request to begin a retirement in a cluster of `nodes` nodes.

        Returns the ledger to write, None if it does not change, and the decision. A repeated
        request for an instance that is in the ledger is allowed again.
        """
        recent = {name: at for name, at in self.begun.items() if now - at < cap.within}
        if instance in recent:
            return None, ALLOWED
        allowed = _allowed(nodes, cap)
        if len(recent) >= allowed:
            minutes = cap.within.total_seconds() / 60
            reason = BUDGET_EXHAUSTED(
                disrupted=len(recent), nodes=nodes, minutes=minutes, allowed=allowed
            )
            return None, BudgetDecision(BudgetVerdict.WAIT, reason)
        begun = {**recent, instance: now}
        changed = self.model_copy(update={"begun": begun, "version": self.version + 1})
        return changed, ALLOWED


LEDGER = Record(
    DisruptionLedger, "CHURN#{cluster}", "CHURN", versioned=True, kept_for=timedelta(days=7)
)
"""Kept for longer than a retirement lasts."""


def read_ledger(table: Table, cluster: str) -> DisruptionLedger:
    """Read the ledger of a cluster; an empty one if there is none."""
    return table.get(LEDGER, cluster=cluster) or DisruptionLedger(cluster=cluster)


def _allowed(nodes: int, cap: ChurnCap) -> int:
    return max(cap.at_least, nodes * cap.percent // 100)


def is_voluntary(record: Retirement, now: datetime) -> bool:
    """Return whether the instance would keep running for now if Leeway did nothing."""
    if record.kind not in VOLUNTARY:
        return False
    if record.kind is NoticeKind.SCHEDULED_CHANGE and record.deadline is not None:
        return now < record.deadline - INVOLUNTARY_BEFORE
    return True


def decide_disruption(
    record: Retirement, policy: ClusterPolicy, protections: Sequence[str]
) -> BudgetDecision:
    """Decide whether the policy and the node allow a voluntary retirement to begin. The ledger
    decides about the number of retirements.

    `protections` are sentences, each about an annotation that forbids to disrupt the node.
    """
    if policy.paused:
        reason = CLUSTER_PAUSED(cluster=record.facts.cluster)
        return BudgetDecision(BudgetVerdict.WAIT, reason)
    # A scheduled change ends protected pods too; a drain before that ends them gracefully.
    forced = record.returns is not None and record.returns.forced
    protects = record.kind in {NoticeKind.REBALANCE, NoticeKind.CAPACITY_RETURN}
    if protections and protects and not forced:
        more = f" (and {len(protections) - 1} more)" if len(protections) > 1 else ""
        reason = NODE_PROTECTED(protections=f"{protections[0]}{more}")
        return BudgetDecision(BudgetVerdict.WAIT, reason)
    return ALLOWED


def decide_without_node(
    record: Retirement, policy: ClusterPolicy, node: str, now: datetime
) -> BudgetDecision:
    """Decide whether an instance whose Node was deleted may end. The ledger decides about the
    number of such instances. `node` is the name of its Node, empty if there is none."""
    if node:
        reason = NODE_KEPT(f"Instance {record.instance} has Node {node} again.")
        return BudgetDecision(BudgetVerdict.DECLINE, reason)
    if now < record.noticed_at + ENDED_WITHOUT_NODE_AFTER:
        return BudgetDecision(BudgetVerdict.WAIT, record.reason)
    return decide_disruption(record, policy, ())


def decline_after_timeout(
    record: Retirement, decision: BudgetDecision, now: datetime
) -> BudgetDecision:
    """Decline a retirement that has waited for BUDGET_TIMEOUT.

    Capacity that is given back does not wait: by then, the decision is outdated. Only for what
    could not be read it waits a little. An instance without a Node waits: it costs money as long
    as it runs.
    A scheduled change and a retirement that has requested its replacement wait on: the instance of
    the first ends anyway, and the second has begun.
    """
    can_decline = record.deadline_from_begin and record.replacement_intent is None
    returns = record.returns
    unread = decision.reason.code == DISRUPTION_NOT_DECIDED.name
    waits = unread and now - record.noticed_at < UNREAD_AT_MOST
    at_once = returns is not None and not returns.without_node and not waits
    if decision.verdict is BudgetVerdict.WAIT and can_decline and at_once:
        return BudgetDecision(BudgetVerdict.DECLINE, decision.reason)
    timed_out = now - record.noticed_at >= BUDGET_TIMEOUT
    if decision.verdict is not BudgetVerdict.WAIT or not (can_decline and timed_out):
        return decision
    hours = BUDGET_TIMEOUT.total_seconds() / 3600
    reason = decision.reason.and_then(
        f"The retirement was not allowed to begin within {counted(hours, 'hour')} and is declined."
    )
    return BudgetDecision(BudgetVerdict.DECLINE, reason)


def retry_pause(record: Retirement, now: datetime) -> timedelta:
    """Return how long a retirement waits before it requests to begin again."""
    waited = now - record.noticed_at
    if waited < timedelta(hours=1):
        pause = RETRY_FIRST
    else:
        pause = RETRY_LATER if waited < timedelta(days=1) else RETRY_AFTER_A_DAY
    if record.kind is NoticeKind.SCHEDULED_CHANGE and record.deadline is not None:
        until_involuntary = record.deadline - INVOLUNTARY_BEFORE - now
        pause = min(pause, max(until_involuntary, timedelta(seconds=1)))
    return pause


def start_drain(record: Retirement, now: datetime) -> Retirement:
    """Return the record of a retirement whose drain begins now.

    A deadline that counts from the begin of the drain is set from now. If the group terminates the
    instance and the policy waits for blocked pods, the drain waits as long as a lifecycle hook can
    hold the instance. Pods that are still blocked then are deleted: otherwise they would be lost
    with the instance, without their grace period.
    """
    if record.drain_began_at is not None:
        return record
    fields: dict[str, Any] = {"drain_began_at": now, "phase": Phase.RUNNING}
    if record.deadline_from_begin and record.deadline is not None:
        fields["deadline"] = now + (record.deadline - record.noticed_at)
        if record.group_terminates and record.on_blocked is OnBlocked.WAIT:
            fields |= {"deadline": now + LONGEST_WAIT, "on_blocked": OnBlocked.DELETE}
    return record.model_copy(update=fields)
