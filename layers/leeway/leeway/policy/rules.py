"""Decides what Leeway does about each kind of notice, and what a move of pods is worth; holds the
default policies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from leeway.instances.facts import Owner, OwnerKind
from leeway.notices import InterruptionAction, Notice, NoticeKind
from leeway.reasons import Reason, ReasonCode


@dataclass(frozen=True, slots=True)
class Worth:
    """What a move of pods is worth: `saving per hour x horizon` must reach `per_pod x pods moved`.

    - `horizon`: how long a plan is expected to hold, until the pods change so much that they would
      be moved again.
    - `per_pod`: the price in USD of moving one pod.
    - `share`: the least part of the old price that a replacement saves. Spot prices change by a few
      percent all the time, and the next plan must not undo this one.
    - `least_age`: nodes with pods are kept until they are so old, and a replacement pays for its
      moves within this time. So no plan moves the pods of a replacement before it has paid.
    - `per_preference`: the price in USD of a move after which a pod's preferences, which held, hold
      no more; None: no plan breaks them.
    """

    horizon: timedelta = timedelta(hours=4)
    per_pod: float = 0.005
    share: float = 0.05
    least_age: timedelta = timedelta(minutes=30)
    per_preference: float | None = None

    def gain(self, saving: float, pods: int, quiet: timedelta) -> float:
        """Return what it gains in USD to move this many pods to save so many USD per hour.

        `quiet` is for how long no pod has come to the nodes or left them: the pods are expected to
        stay as they are for as long again, `horizon` at most.
        """
        hours = min(self.horizon, quiet) / timedelta(hours=1)
        return saving * hours - self.per_pod * pods

    def pays(self, saving: float, pods: int, quiet: timedelta, broken: int = 0) -> bool:
        """Whether it is worth to move this many pods, of which `broken` lose preferences, in order
        to save so many USD per hour."""
        if broken and self.per_preference is None:
            return False
        lost = broken * (self.per_preference or 0.0)
        return saving > 0 and self.gain(saving, pods, quiet) >= lost

    def pays_replacement(
        self, saving: float, price: float, pods: int, quiet: timedelta, broken: int = 0
    ) -> bool:
        """The same for nodes of this price in USD per hour, if a new one is launched for them."""
        soon = min(quiet, self.least_age)
        return saving >= self.share * price and self.pays(saving, pods, soon, broken)

    def least_saving(self, pods: int, quiet: timedelta, price: float | None = None) -> float | None:
        """Return the USD per hour from which it pays to move this many pods; None if nothing pays
        yet. `price` is that of the nodes in USD per hour, None if no new one is launched."""
        expected = min(self.horizon, quiet)
        if price is not None:
            expected = min(expected, self.least_age)
        if pods and not expected:
            return None
        by_moves = self.per_pod * pods / (expected / timedelta(hours=1)) if pods else 0.0
        return max(self.share * (price or 0.0), by_moves)


USUAL = Worth()
"""What a move is worth if the manifest says nothing else."""


POLICY_ACTION = ReasonCode("PolicyAction", "The policy for {kind} notices has the action {action}.")

NOTICE_IGNORED = ReasonCode("NoticeIgnored", "The notice is ignored: {why}.")


class Action(StrEnum):
    """What Leeway does for a notice: nothing, admit the new node, only cordon the node, or retire
    it (cordon, replace, drain, finish)."""

    IGNORE = "ignore"
    ADMIT = "admit"
    CORDON = "cordon"
    RETIRE = "retire"


class Replacement(StrEnum):
    """When a retirement requests the replacement: never, at the same time as the drain, or before
    the drain, which then waits until the new node is ready for pods."""

    NONE = "none"
    WITH = "with"
    BEFORE = "before"


class OnBlocked(StrEnum):
    """What a drain does with a pod that a PodDisruptionBudget still blocks at its latest moment."""

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
    """The policy for one kind of notice.

    - `within`: how long a retirement or an admission may take. It counts from the notice; for
      rebalance recommendations, failing status checks and unhealthy nodes it counts from the begin
      of the drain. If the notice announces an end, the earlier of the two is the deadline.
    - `lead`: how long before an announced end the retirement begins; None begins it at once.
    - `tolerates`: how long the status `checks` may fail before reconcile sends a notice.
    - `groups`: whether unhealthy nodes of other owners than Leeway are repaired, too.
    """

    action: Action
    within: timedelta | None = None
    replacement: Replacement = Replacement.NONE
    on_blocked: OnBlocked = OnBlocked.WAIT
    lead: timedelta | None = None
    tolerates: timedelta = timedelta(0)
    checks: frozenset[StatusCheck] = frozenset()
    groups: bool = False


# EC2 interrupts a Spot instance two minutes after the `time` of the warning.
# Source: EC2 user guide, "Spot Instance interruption notices".
SPOT_WARNING = timedelta(seconds=120)

# Subtracted from an announced end: clocks differ, and EC2 is sometimes early.
SAFETY_MARGIN = timedelta(seconds=5)

PAST_END_TIME = timedelta(seconds=15)
"""The time of a retirement whose announced end is already past. The instance may end at any moment,
so the drain evicts all pods at once."""

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
    # EC2 stops or reboots the instance at the announced time, even if pods still run on it.
    NoticeKind.SCHEDULED_CHANGE: Policy(
        Action.RETIRE, None, Replacement.BEFORE, OnBlocked.DELETE, timedelta(hours=4)
    ),
    # As Karpenter does: after two minutes, and without the check of attached volumes, which may
    # belong to one pod. Source: karpenter-provider-aws, instancestatus.go.
    NoticeKind.IMPAIRED_STATUS: Policy(
        Action.RETIRE,
        timedelta(minutes=15),
        Replacement.WITH,
        OnBlocked.WAIT,
        tolerates=timedelta(minutes=2),
        checks=frozenset({StatusCheck.INSTANCE, StatusCheck.SYSTEM}),
    ),
    # The replacement is for pods that have waited for half an hour, and a dead kubelet ends none.
    NoticeKind.UNHEALTHY_NODE: Policy(
        Action.RETIRE, timedelta(minutes=10), Replacement.WITH, OnBlocked.DELETE
    ),
    NoticeKind.LAUNCH_HOOK: Policy(Action.ADMIT, timedelta(minutes=15)),
    NoticeKind.TEST_NOTIFICATION: Policy(Action.IGNORE),
    # The pool decides how long the drain may take (terminationGracePeriod).
    NoticeKind.CAPACITY_RETURN: Policy(Action.RETIRE, None, Replacement.BEFORE, OnBlocked.WAIT),
}


VOLUNTARY = frozenset(
    {
        NoticeKind.REBALANCE,
        NoticeKind.SCHEDULED_CHANGE,
        NoticeKind.IMPAIRED_STATUS,
        NoticeKind.UNHEALTHY_NODE,
        NoticeKind.CAPACITY_RETURN,
    }
)
"""Notices for which Leeway chooses when the node is disrupted. A pause of the cluster and the
disruption budget apply to them; annotations that forbid disruption apply to rebalance
recommendations and to capacity that is given back."""

BUDGET_TIMEOUT = timedelta(hours=24)
"""How long a retirement waits until the disruption budget allows it, if the instance has no
announced end. Then it is declined."""

SUCCESSOR_TIMEOUT = timedelta(minutes=10)
"""How long a drain waits until the replacement is ready for pods before it begins anyway."""

UNAVAILABLE_FOR = timedelta(minutes=3)
"""How long Leeway launches nothing from an offering that has no capacity or was interrupted."""


MOST_LAUNCHES = 200
"""Instances that Leeway launches in a cluster in ten minutes, if the manifest sets no maximum: a
brake for faults such as a controller that doubles its pods. It is above what a scale-up of a
thousand pods needs."""

USD_PER_HOUR = 100.0
"""What the nodes that Leeway launched in a cluster may cost together in USD per hour, if the
manifest sets nothing: some hundred usual nodes. Larger clusters have to say what they cost."""

COST_LABELS = ("app.kubernetes.io/name",)
"""The labels of pods by which costs are split, if the manifest sets none."""


@dataclass(frozen=True, slots=True)
class ChurnCap:
    """How many voluntary retirements may begin in a cluster `within` a time: `percent` of its
    nodes, rounded down, and always `at_least` this many."""

    percent: int = 10
    at_least: int = 1
    within: timedelta = timedelta(minutes=10)


class MaintenanceWindow(Protocol):
    """A recurring window of time; headroom's windows are such."""

    def is_open(self, at: datetime) -> bool:
        """Whether it is open at an aware instant."""
        ...

    def next_opening(self, after: datetime) -> datetime | None:
        """Return when it opens next (UTC), None if that is years ahead."""
        ...


@dataclass(frozen=True, slots=True)
class GroupDrift:
    """How the nodes of Auto Scaling groups are replaced if their group launches others now.

    - `automatic`: Leeway does it without a request of a person.
    - `max_unavailable`: how many nodes of a group may be unavailable at once: a number, or a
      percentage of its nodes, rounded up, such as `33%`.
    - `node_timeout`: how long the drain of a node may take.
    - `force`: pods that a budget or an annotation protects are deleted at their latest moment.
    - `windows`: when it begins with a node; none: at all times.
    """

    automatic: bool = False
    max_unavailable: str = "1"
    node_timeout: timedelta = timedelta(minutes=15)
    force: bool = False
    windows: tuple[MaintenanceWindow, ...] = ()

    def limit(self, nodes: int) -> int:
        """Return how many of a group's nodes may be unavailable."""
        if self.max_unavailable.endswith("%"):
            return max(1, -(-nodes * int(self.max_unavailable[:-1]) // 100))
        return int(self.max_unavailable)


@dataclass(frozen=True, slots=True)
class ClusterPolicy:
    """The policy of one cluster.

    - `paused`: no voluntary retirement begins; interrupted instances are still drained.
    - `dry_run`: Leeway decides and reports, and changes nothing.
    - `churn`: the disruption budget.
    - `retires_for`: owners that drain their own nodes, but whose nodes Leeway retires too.
    - `groups_may_use_pools`: Leeway's pools launch for the pods of a group's node if EC2 has no
      capacity for the group.
    - `watches_pods`: pending pods are found by a watch, and not only once a minute.
    - `most_launches`: how many instances Leeway launches in ten minutes at most.
    - `usd_per_hour`: what Leeway's nodes of the cluster may cost together.
    - `worth`: what it must save to move pods.
    - `cost_labels`: the labels of pods by which costs are split.
    - `group_drift`: how nodes of groups follow the launch templates of their groups.
    - `surges`: a workload gets one more pod before a drain evicts one that its budget keeps.
    - `waits_for_targets`: an instance ends only after load balancers have drained its targets.
    """

    notices: Mapping[NoticeKind, Policy] = field(default_factory=lambda: DEFAULTS)
    paused: bool = False
    dry_run: bool = False
    churn: ChurnCap = ChurnCap()
    retires_for: frozenset[OwnerKind] = frozenset()
    groups_may_use_pools: bool = False
    watches_pods: bool = True
    most_launches: int = MOST_LAUNCHES
    usd_per_hour: float = USD_PER_HOUR
    worth: Worth = USUAL
    cost_labels: tuple[str, ...] = COST_LABELS
    group_drift: GroupDrift = GroupDrift()
    surges: bool = False
    waits_for_targets: bool = False

    def retires_nodes_of(self, owner: Owner) -> bool:
        """Return whether Leeway retires the nodes of this owner; never for Fargate."""
        if owner.kind is OwnerKind.FARGATE:
            return False
        return not owner.retires_itself or owner.kind in self.retires_for

    def acts_on(self, kind: NoticeKind) -> bool:
        """Return whether the policy does not ignore notices of this kind."""
        return self.notices[kind].action is not Action.IGNORE


# Notices that announce when AWS stops or ends an instance.
_ANNOUNCED = frozenset(
    {NoticeKind.SPOT_INTERRUPTION, NoticeKind.CAPACITY_RESERVATION, NoticeKind.SCHEDULED_CHANGE}
)

# The states of an instance that stops or ends, and those that follow.
ENDING_STATES = frozenset({"stopping", "stopped", "shutting-down", "terminated"})


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a policy decides for one notice, and why."""

    action: Action
    deadline: datetime | None
    replacement: Replacement
    on_blocked: OnBlocked
    reason: Reason


def rule(notice: Notice, policy: Policy, now: datetime | None = None) -> Ruling:
    """Apply a policy to a notice. The deadline is aware and in UTC.

    `now` is when the notice arrived; None for a preview, which keeps a deadline in the past.
    """
    action, reason = _action(notice, policy)
    deadline = _deadline(notice, policy)
    if now is not None and deadline is not None and _is_past(notice, deadline, now):
        deadline = now + PAST_END_TIME
    return Ruling(action, deadline, policy.replacement, policy.on_blocked, reason)


def _is_past(notice: Notice, deadline: datetime, now: datetime) -> bool:
    """Return whether the announced end is past: AWS has ended the instance, or is late. Hibernation
    is an exception, because it begins with its warning."""
    announced = notice.kind in _ANNOUNCED and notice.action is not InterruptionAction.HIBERNATE
    return announced and deadline + SAFETY_MARGIN <= now


def _action(notice: Notice, policy: Policy) -> tuple[Action, Reason]:
    match notice.kind:
        case NoticeKind.SCHEDULED_CHANGE if not notice.instances:
            return Action.IGNORE, NOTICE_IGNORED(
                "it does not announce that an EC2 instance stops or ends"
            )
        case NoticeKind.TEST_NOTIFICATION:
            why = "Auto Scaling sends it as a test when a lifecycle hook is created"
            return Action.IGNORE, NOTICE_IGNORED(why)
        case NoticeKind.STATE_CHANGE if notice.state not in ENDING_STATES:
            why = f"the instance is {notice.state}, and neither stops nor terminates"
            return Action.IGNORE, NOTICE_IGNORED(why)
        case _ if policy.action is Action.IGNORE:
            return Action.IGNORE, NOTICE_IGNORED(f"the policy ignores {notice.kind} notices")
        case _:
            return policy.action, POLICY_ACTION(kind=notice.kind, action=policy.action)


def begins_at(notice: Notice, policy: Policy) -> datetime | None:
    """Return when the retirement for an announced end begins; None means at once."""
    if notice.effective_at is None or policy.lead is None:
        return None
    return notice.effective_at - policy.lead


def _deadline(notice: Notice, policy: Policy) -> datetime | None:
    if notice.action is InterruptionAction.HIBERNATE:
        # Hibernation begins with the warning: there is no time until the interruption.
        return notice.time
    latest = notice.time + policy.within if policy.within is not None else None
    if notice.effective_at is None:
        return latest
    ends = notice.effective_at - SAFETY_MARGIN
    return min(ends, latest) if latest is not None else ends


class ClusterPolicies(Protocol):
    """The policies that users wrote for their clusters."""

    def policy_of(self, cluster: str) -> ClusterPolicy:
        """Return the policy of a cluster, at most a minute old; the defaults if there is none.

        Raises:
            CloudUnavailable, CloudRefused: the policy cannot be read.
        """
        ...
