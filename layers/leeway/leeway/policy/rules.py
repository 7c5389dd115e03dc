"""What Leeway does about each kind of notice: the table of defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from leeway.instances.owners import Owner, OwnerKind
from leeway.notices import InterruptionAction, Notice, NoticeKind


class Action(StrEnum):
    """What a notice leads to: nothing, a node that takes no new pods, a node that goes, or one that
    comes."""

    IGNORE = "ignore"
    ADMIT = "admit"
    CORDON = "cordon"
    RETIRE = "retire"


class Replacement(StrEnum):
    """When the node's replacement is asked for: never, as the drain begins, or before it, so that
    pods are evicted when it is Ready."""

    NONE = "none"
    WITH = "with"
    BEFORE = "before"


class OnBlocked(StrEnum):
    """What becomes of a pod that a budget still blocks at its latest moment."""

    DELETE = "delete"
    WAIT = "wait"
    FAIL = "fail"


class StatusCheck(StrEnum):
    """EC2's status checks of an instance. Source: EC2 user guide, "Instance status checks"."""

    INSTANCE = "instance"
    SYSTEM = "system"
    ATTACHED_EBS = "attached-ebs"


@dataclass(frozen=True, slots=True)
class Policy:
    """What to do about one kind of notice.

    `within` is how long a retirement or an admission may take: from the notice on, or, where
    nothing happens to the instance by itself, from the moment when its pods are first asked to go.
    Where the notice says when the instance goes, the earlier of the two holds, and where it says so
    weeks ahead, `lead` is how long before that the retirement begins. `tolerates` is how long EC2's
    status `checks` may fail before they are a notice.
    """

    action: Action
    within: timedelta | None = None
    replacement: Replacement = Replacement.NONE
    on_blocked: OnBlocked = OnBlocked.WAIT
    lead: timedelta | None = None
    tolerates: timedelta = timedelta(0)
    checks: frozenset[StatusCheck] = frozenset()


# EC2 takes an interrupted Spot instance back two minutes after the warning's `time`.
# Source: EC2 user guide, "Spot Instance interruption notices".
SPOT_WARNING = timedelta(seconds=120)

# What is kept back of the two minutes: clocks differ, and EC2 is sometimes early.
SAFETY_MARGIN = timedelta(seconds=5)

LAST_CHANCE = timedelta(seconds=15)
"""What a retirement is given that is told of its end only when that should have been. The instance
may go at any moment: its pods are asked at once, and have as long as it lasts."""

DEFAULTS: dict[NoticeKind, Policy] = {
    NoticeKind.SPOT_INTERRUPTION: Policy(
        Action.RETIRE, SPOT_WARNING - SAFETY_MARGIN, Replacement.WITH, OnBlocked.DELETE
    ),
    NoticeKind.CAPACITY_RESERVATION: Policy(
        Action.RETIRE, None, Replacement.WITH, OnBlocked.DELETE
    ),
    NoticeKind.REBALANCE: Policy(
        Action.RETIRE, timedelta(minutes=30), Replacement.BEFORE, OnBlocked.WAIT
    ),
    NoticeKind.TERMINATE_HOOK: Policy(
        Action.RETIRE, timedelta(minutes=60), Replacement.NONE, OnBlocked.DELETE
    ),
    NoticeKind.STATE_CHANGE: Policy(
        Action.RETIRE, timedelta(seconds=60), Replacement.NONE, OnBlocked.DELETE
    ),
    # EC2 stops or restarts the instance at the announced time, whatever runs on it.
    NoticeKind.SCHEDULED_CHANGE: Policy(
        Action.RETIRE, None, Replacement.BEFORE, OnBlocked.DELETE, timedelta(hours=4)
    ),
    # As Karpenter: after two minutes, with the drain at once, and without the checks of attached
    # volumes, which may be those of one pod. Source: karpenter-provider-aws, instancestatus.go.
    NoticeKind.IMPAIRED_STATUS: Policy(
        Action.RETIRE,
        timedelta(minutes=15),
        Replacement.WITH,
        OnBlocked.WAIT,
        tolerates=timedelta(minutes=2),
        checks=frozenset({StatusCheck.INSTANCE, StatusCheck.SYSTEM}),
    ),
    NoticeKind.LAUNCH_HOOK: Policy(Action.ADMIT, timedelta(minutes=15)),
    NoticeKind.TEST_NOTIFICATION: Policy(Action.IGNORE),
}


VOLUNTARY = frozenset(
    {NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE, NoticeKind.IMPAIRED_STATUS}
)
"""Notices that leave the choice when the node goes, for a while at least. Pausing and the churn cap
hold for these, and annotations that forbid disruption for rebalance recommendations."""

BUDGET_TIMEOUT = timedelta(hours=24)
"""How long a retirement waits for its turn, where nothing happens to the instance by itself."""

SUCCESSOR_TIMEOUT = timedelta(minutes=10)
"""How long a successor is waited for before the pods are asked to go all the same."""

UNAVAILABLE_FOR = timedelta(minutes=3)
"""How long an offering is not launched that EC2 has none of, or takes an instance back from."""


@dataclass(frozen=True, slots=True)
class ChurnCap:
    """How many of a cluster's nodes may leave voluntarily in a while: `percent` of them, rounded
    down, but `at_least` so many."""

    percent: int = 10
    at_least: int = 1
    within: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ClusterPolicy:
    """What Leeway does in one cluster.

    `paused` stops what is voluntary; interruptions are still drained. `dry_run` decides and
    reports, and acts on nothing. `takes` are the owners whose nodes Leeway retires although they
    would do it themselves.
    """

    notices: Mapping[NoticeKind, Policy] = field(default_factory=lambda: DEFAULTS)
    paused: bool = False
    dry_run: bool = False
    churn: ChurnCap = ChurnCap()
    retires_for: frozenset[OwnerKind] = frozenset()

    def retires_nodes_of(self, owner: Owner) -> bool:
        """Whether Leeway retires this owner's nodes. Fargate's it never touches."""
        if owner.kind is OwnerKind.FARGATE:
            return False
        return not owner.retires_itself or owner.kind in self.retires_for

    def acts_on(self, kind: NoticeKind) -> bool:
        """Whether anything is to come of notices of a kind."""
        return self.notices[kind].action is not Action.IGNORE


# Notices by which AWS ends an instance at a moment that it names, whatever runs there.
_ANNOUNCED = frozenset(
    {NoticeKind.SPOT_INTERRUPTION, NoticeKind.CAPACITY_RESERVATION, NoticeKind.SCHEDULED_CHANGE}
)

# The states of an instance that is on its way out; `pending` and `running` are not.
LEAVING_STATES = frozenset({"stopping", "stopped", "shutting-down", "terminated"})


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a policy comes to for one notice, and why in one sentence."""

    action: Action
    deadline: datetime | None
    replacement: Replacement
    on_blocked: OnBlocked
    reason: str


def rule(notice: Notice, policy: Policy, now: datetime | None = None) -> Ruling:
    """Apply a policy to a notice. The deadline is aware and in UTC.

    `now` is when the notice arrived, None where it is only asked what would become of it.
    """
    action, reason = _action(notice, policy)
    deadline = _deadline(notice, policy)
    if now is not None and deadline is not None and _should_have_ended(notice, deadline, now):
        deadline = now + LAST_CHANCE
    return Ruling(action, deadline, policy.replacement, policy.on_blocked, reason)


def _should_have_ended(notice: Notice, deadline: datetime, now: datetime) -> bool:
    """Whether the moment is past at which AWS announced to take the instance, which it has by then,
    or is late with. Hibernation is different: it begins with its warning."""
    announced = notice.kind in _ANNOUNCED and notice.action is not InterruptionAction.HIBERNATE
    return announced and deadline + SAFETY_MARGIN <= now


def _action(notice: Notice, policy: Policy) -> tuple[Action, str]:
    match notice.kind:
        case NoticeKind.SCHEDULED_CHANGE if not notice.instances:
            return Action.IGNORE, "nothing is announced to happen to an instance"
        case NoticeKind.TEST_NOTIFICATION:
            return Action.IGNORE, "a lifecycle hook's test notification asks for nothing"
        case NoticeKind.STATE_CHANGE if notice.state not in LEAVING_STATES:
            return Action.IGNORE, f"an instance that is {notice.state} is not on its way out"
        case _ if policy.action is Action.IGNORE:
            return Action.IGNORE, f"the policy for {notice.kind} says ignore"
        case _:
            return policy.action, f"the policy for {notice.kind} says {policy.action}"


def begins_at(notice: Notice, policy: Policy) -> datetime | None:
    """Return when a retirement for something announced ahead is to begin; None means at once."""
    if notice.effective_at is None or policy.lead is None:
        return None
    return notice.effective_at - policy.lead


def _deadline(notice: Notice, policy: Policy) -> datetime | None:
    if notice.action is InterruptionAction.HIBERNATE:
        # Hibernation begins with the warning: there are no two minutes.
        return notice.time
    latest = notice.time + policy.within if policy.within is not None else None
    if notice.effective_at is None:
        return latest
    ends = notice.effective_at - SAFETY_MARGIN
    return min(ends, latest) if latest is not None else ends
