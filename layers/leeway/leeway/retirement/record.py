"""The retirement record of an instance, with the replacement that it requests."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.capacity_requests import PriceLimit
from leeway.execution.attempt import KEPT_FOR, Phase
from leeway.instances.facts import InstanceFacts, OwnerKind
from leeway.notices import LifecycleHook, NoticeKind
from leeway.policy.rules import BUDGET_TIMEOUT, SUCCESSOR_TIMEOUT, Action, OnBlocked, Replacement
from leeway.ports.aws import HookResult
from leeway.reasons import Reason
from leeway.table import OPEN, Record


@dataclass(frozen=True, slots=True)
class ZoneChoice:
    """A zone of the group in which the replacement may be launched, and why."""

    zone: str
    why: Reason


class Method(StrEnum):
    """How a retirement gets its instance replaced.

    - `nothing`: no replacement is requested.
    - `left-to-owner`: the owner of the instance replaces it.
    - `terminate-in-group`: TerminateInstanceInAutoScalingGroup without a decrement. The group
      launches a replacement at once, and a terminate hook holds the instance during the drain.
    - `launch-successor`: LaunchInstances adds one instance to the group, and returns its id. After
      the drain, the instance is terminated with a decrement.
    - `detach`: DetachInstances without a decrement. Leeway terminates the instance after the drain.
    - `request-capacity`: provision_nodes launches nodes of Leeway's pools for the pods of the node.
    """

    NOTHING = "nothing"
    LEFT_TO_OWNER = "left-to-owner"
    TERMINATE_IN_GROUP = "terminate-in-group"
    LAUNCH = "launch-successor"
    DETACH = "detach"
    REQUEST_CAPACITY = "request-capacity"


@dataclass(frozen=True, slots=True)
class Successor:
    """The instance that replaces a retiring instance; `why` says why it is in this zone."""

    instance: str
    instance_type: str
    zone: str
    why: Reason


class ReplacementIntent(BaseModel):
    """The replacement that a retirement requests; written before the request.

    With the method `launch-successor`, the retirement calls LaunchInstances in `zones`, one zone
    after the other, with client tokens of this `attempt`. Other methods have no zones.

    - `group`: the group of the instance, empty if it has none.

    - `units`: how much of the group's capacity the instance is. `desired`: the least desired
      capacity of the group after the launch, in the same units.
    - `to_restore`: a successor was requested in addition to the group's desired capacity, so the
      group must still terminate the instance with a decrement. `ending`: this request is being
      made.
    - `to_terminate`: Leeway itself terminates the instance after the drain, because its group has
      detached it or because Leeway has launched it. It terminates no other instance itself.
    - `settled`: Leeway has nothing more to do for this termination. `failures`: how often the node
      was drained and the termination failed.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    method: Method
    reason: Reason
    requested_at: AwareDatetime
    group: str = ""
    zones: tuple[ZoneChoice, ...] = ()
    attempt: int = 1
    units: int = 1
    desired: int = 0
    successors: tuple[Successor, ...] = ()
    to_restore: bool = False
    ending: bool = False
    to_terminate: bool = False
    settled: bool = False
    failures: Annotated[int, Field(ge=0)] = 0


TERMINATED_WITHIN = timedelta(minutes=1)
"""How long after a retirement is closed its detached instance may still run. Leeway terminates the
instance right after it closes the record, and retries."""

MAX_EXECUTION_TIME = timedelta(days=7)
"""How long Lambda lets an execution run: the ExecutionTimeout of retire_node in the template."""

UNDONE_WITHIN = timedelta(hours=1)
"""How long an execution retries to undo a retirement: the durable engine repeats a failing step for
less than this."""

INTERRUPTIONS = frozenset({NoticeKind.SPOT_INTERRUPTION, NoticeKind.CAPACITY_RESERVATION})
"""Notices with which EC2 interrupts an instance."""

OVER = frozenset({Phase.FINISHED, Phase.UNDONE})
"""The last phases of a retirement."""


NODE_DELETED = "NodeDeleted"
"""The cause of returning an instance that Leeway launched and whose Node somebody deleted."""


ENDED_WITHOUT_NODE_AFTER = timedelta(minutes=15)
"""How long an instance that Leeway launched may run after its Node was deleted: as long as it may
take to join."""


class ReturnTerms(BaseModel):
    """Why Leeway gives a node of its own back, or replaces one of a group that launches other nodes
    now, as it was decided.

    - `cause`: as in disruption budgets, such as `Empty`, or NODE_DELETED. `pods`: the most pods
      that the node may have at its cordon, None for any number.
    - `forced`: the pool bounds the drain (terminationGracePeriod) or expires its nodes forcefully,
      so neither an annotation of a pod nor a PodDisruptionBudget keeps the node, and an annotation
      of the Node only an `optional` one. They still keep pods, until the bound.
    - `saving`: USD per hour.
    - `optional`: the node may as well stay. It is uncordoned and kept if its successor is not Ready
      in time, or if its drain ends incomplete. The successor of a group's node has pods by then, so
      its drain goes on.
    - `price_limit`: that of its successor, None for none.
    - `in_place`: its static pool launches a successor whether or not the node has pods.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    cause: str
    pods: Annotated[int, Field(ge=0)] | None = None
    forced: bool = False
    saving: float = 0.0
    optional: bool = False
    price_limit: PriceLimit | None = None
    in_place: bool = False

    @property
    def without_node(self) -> bool:
        """Whether the instance is returned because the cluster has no Node for it."""
        return self.cause == NODE_DELETED


class Retirement(BaseModel):
    """One instance's retirement, with all its attempts.

    - `version` counts writes and is the optimistic lock. `attempt` counts starts of `retire_node`.
    - `stops`: the instance is only stopped, and may run again.
    - `stays_cordoned`: a policy cordoned the node, and did no more, for an earlier notice. The node
      stays cordoned after this retirement too, until the instance runs again.
    - `replacement_began_at`: when an execution of this attempt first requested a replacement.
    - `drain_began_at`: when the drain began, if the drain waited for the disruption budget or for a
      replacement; None if it began at once.
    - `ended_at`: when the retirement was last closed.
    - `node_is_empty`: when the retirement was closed, its node had no pod and no volume.
    - `answer`: the answer for the lifecycle `hooks`. None until the retirement has ended, and if it
      ended without effect (declined, undone, dry run), since no hook waits for that.
    - `event`: the id of the scheduled change that the notice announced, empty for other notices.
    - `terms`: those of a `capacity-return`, None for other notices.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    facts: InstanceFacts
    attempt: Annotated[int, Field(ge=1)]
    version: Annotated[int, Field(ge=1)] = 1
    phase: Phase
    kind: NoticeKind
    noticed_at: AwareDatetime
    deadline: AwareDatetime | None
    on_blocked: OnBlocked
    replacement: Replacement
    reason: Reason
    notices: tuple[str, ...]
    action: Action = Action.RETIRE
    stops: bool = False
    stays_cordoned: bool = False
    replacement_began_at: AwareDatetime | None = None
    drain_began_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    node_is_empty: bool = False
    hooks: tuple[LifecycleHook, ...] = ()
    answer: HookResult | None = None
    event: str = ""
    terms: ReturnTerms | None = None
    replacement_intent: ReplacementIntent | None = None

    @property
    def instance(self) -> str:
        """The id of the instance."""
        return self.facts.instance

    @property
    def cluster(self) -> str:
        """The cluster of the instance."""
        return self.facts.cluster

    @property
    def returns(self) -> ReturnTerms | None:
        """The terms on which Leeway gives the node back; None if it retires for another reason."""
        return self.terms if self.kind is NoticeKind.CAPACITY_RETURN else None

    @property
    def follows_template(self) -> bool:
        """Whether the node retires because its Auto Scaling group launches other nodes now. It
        stays, unless the group launches its successor first."""
        return self.returns is not None and self.facts.owner.kind is OwnerKind.AUTO_SCALING_GROUP

    @property
    def ec2_terminates(self) -> bool:
        """Whether EC2 terminates the instance within minutes. Such notices come by the thousand, so
        Leeway makes few calls for each."""
        return self.kind in INTERRUPTIONS and not self.stops

    @property
    def deadline_from_begin(self) -> bool:
        """Whether the deadline counts from the begin of the drain: the instance has no announced
        end, so the time that the retirement waits for the disruption budget does not count."""
        return self.kind in {
            NoticeKind.REBALANCE,
            NoticeKind.IMPAIRED_STATUS,
            NoticeKind.UNHEALTHY_NODE,
            NoticeKind.CAPACITY_RETURN,
        }

    @property
    def ends_at_deadline(self) -> bool:
        """Whether the instance ends at the end of the time for the drain, although pods are left:
        its node is unhealthy and its policy deletes pods, or it has to go and its pool bounds the
        drain."""
        if self.kind is NoticeKind.UNHEALTHY_NODE:
            return self.on_blocked is OnBlocked.DELETE
        return self.returns is not None and self.returns.forced and not self.returns.optional

    @property
    def must_restore_capacity(self) -> bool:
        """Whether a successor was requested in addition to the desired capacity of the group, which
        is not lowered yet. The retirement stays open until it is, even if its phase is the last
        one."""
        return self.replacement_intent is not None and self.replacement_intent.to_restore

    @property
    def is_open(self) -> bool:
        """Whether Leeway still has work to do for the retirement."""
        return self.phase not in OVER or self.must_restore_capacity or self.needs_termination

    @property
    def needs_termination(self) -> bool:
        """Whether Leeway must still terminate the instance: it is detached, or Leeway's own."""
        intent = self.replacement_intent
        return intent is not None and intent.to_terminate and not intent.settled

    @property
    def hooks_wait_since(self) -> datetime | None:
        """When the record's hook began to wait, None if the record does not say. A request that an
        earlier attempt made to the group may have failed, so its time is not used."""
        if self.kind is NoticeKind.TERMINATE_HOOK:
            return self.noticed_at
        intent = self.replacement_intent
        if intent is None or intent.method is not Method.TERMINATE_IN_GROUP:
            return None
        return intent.requested_at if intent.requested_at >= self.noticed_at else None

    @property
    def is_terminated(self) -> bool:
        """Whether the retirement has ended, and Leeway has had its instance terminated."""
        intent = self.replacement_intent
        ended = self.phase is Phase.FINISHED and not self.is_open
        return ended and intent is not None and intent.to_terminate and not intent.failures

    @property
    def group_terminates(self) -> bool:
        """Whether the retirement has requested the termination of the instance from its group, so
        that a terminate hook holds the instance."""
        intent = self.replacement_intent
        if intent is None or intent.method in {Method.DETACH, Method.NOTHING}:
            return False
        if intent.method is Method.REQUEST_CAPACITY and not intent.group:
            return False
        return intent.ending or not intent.to_restore

    @property
    def left_empty_node(self) -> bool:
        """Whether the retirement has finished and left no pod and no volume on the node."""
        return self.phase is Phase.FINISHED and self.node_is_empty

    @property
    def had_no_effect(self) -> bool:
        """Whether the retirement has ended and changed nothing: declined, undone or a dry run."""
        return self.phase in OVER and self.answer is None


RETIREMENT = Record(
    Retirement,
    "RETIREMENT#{cluster}#{instance}",
    "RETIREMENT",
    versioned=True,
    kept_for=KEPT_FOR,
    indexes={OPEN: lambda one: one.cluster if one.is_open else None},
)


DETACHED = Record(str, "DETACHED#{cluster}#{instance}", "GROUP", kept_for=KEPT_FOR)
"""The group from which retire_node has detached an instance, written before the call. Several
functions write retirements, and only retire_node writes this: without it, a retirement terminates
no instance that was in a group."""


def latest_end(stored: Retirement) -> datetime:
    """Return the latest time at which a retirement ends if its execution is alive. The execution of
    a retirement that is still open OVERDUE after that is dead."""
    if stored.phase in {Phase.UNDOING, Phase.UNDONE}:
        return stored.noticed_at + UNDONE_WITHIN
    longest = stored.noticed_at + MAX_EXECUTION_TIME
    if stored.deadline is None:
        return longest
    if stored.drain_began_at is not None or not stored.deadline_from_begin:
        return min(longest, stored.deadline)
    duration = SUCCESSOR_TIMEOUT + (stored.deadline - stored.noticed_at)
    began = stored.replacement_began_at or stored.noticed_at + BUDGET_TIMEOUT
    return min(longest, began + duration)
