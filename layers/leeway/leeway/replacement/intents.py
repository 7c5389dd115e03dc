"""Decides how an instance is replaced, and what its record says of that before the request."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from leeway.execution.attempt import Phase
from leeway.execution.retrying import API_ERRORS
from leeway.instances.groups import GroupFacts, in_service
from leeway.instances.owners import OwnerKind
from leeway.policy.ports import ClusterPolicies
from leeway.policy.rules import Replacement
from leeway.ports.aws import CloudRefused, Groups
from leeway.reasons import Reason
from leeway.replacement.cache import GroupCache
from leeway.replacement.decide import (
    BY_GROUP,
    ReplacementDecision,
    decide_replacement,
    decide_without_group,
)
from leeway.replacement.launch import SuccessorLaunch
from leeway.replacement.reasons import NO_ZONE_WITH_CAPACITY, NOT_NEEDED
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Method, ReplacementIntent, ZoneChoice
from leeway.retirement.step_context import StepContext

ACTING = BY_GROUP | {Method.REQUEST_CAPACITY}
"""The methods with a request, which the record announces."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """AWS has refused a request: the next decision reads fresh facts.

    - `launch`: why `LaunchInstances` was refused; None if the request was another one.
    - `lacks_capacity`: EC2 has no capacity for the group in any zone.
    """

    launch: Reason | None
    lacks_capacity: bool


class ReplacementIntents:
    """Decides for records."""

    def __init__(
        self,
        context: StepContext,
        groups: Groups,
        group_cache: GroupCache,
        launch: SuccessorLaunch,
        policies: ClusterPolicies,
    ) -> None:
        self._context = context
        self._groups = groups
        self._group_cache = group_cache
        self._launch = launch
        self._policies = policies

    def decided(
        self, node: str | None, refused: Refusal | None, record: Retirement
    ) -> tuple[Retirement, tuple[ReplacementDecision, GroupFacts | None]]:
        """Decide how the instance is replaced, and add the intent to the record. `node` is the name
        of its node, empty if there is none, None if the cluster could not be read."""
        now = self._context.clock.now()
        running = record.model_copy(
            update={
                "phase": Phase.RUNNING,
                "replacement_began_at": record.replacement_began_at or now,
            }
        )
        known, owner, when = record.replacement_intent, record.facts.owner, record.replacement
        if record.drain_began_at is not None and when is Replacement.BEFORE:
            when = Replacement.WITH
        # receive_notice starts a retirement of another owner's instance only if the policy says so.
        decided = decide_without_group(record.kind, when, owner, leeway_retires=True)
        if decided is not None and owner.kind is OwnerKind.LEEWAY:
            return self._decided_for_pool(running, decided, node)
        if decided is not None and known is None:
            return running, (decided, None)
        group = self._groups.facts(record.instance) if refused else self._group_of(record)
        requested = known.method if known else None
        decide = partial(decide_replacement, record.kind, when, owner, group, requested, True)
        may_use_pools = partial(self._may_use_pools, record, node)
        launch_refused = refused.launch if refused else None
        lacks_capacity = refused is not None and refused.lacks_capacity
        decision = decide(launch_refused, lacks_capacity and may_use_pools())
        zones: tuple[ZoneChoice, ...] = ()
        is_new = known is None or known.method != decision.method
        if group is not None and decision.method is Method.LAUNCH and is_new:
            zones = self._launch.choose_zones(record, group)
            if not zones:
                decision = decide(NO_ZONE_WITH_CAPACITY(group=group.name), may_use_pools())
        elif (
            group is not None
            and is_new
            and not launch_refused
            and self._should_use_pools(record, node, group, decision.method)
        ):
            decision = decide(NO_ZONE_WITH_CAPACITY(group=group.name), True)
        if group is None or decision.method not in ACTING:
            return running, (decision, group)
        intent = self._intent(record, decision, group, zones)
        return running.model_copy(update={"replacement_intent": intent}), (decision, group)

    def _should_use_pools(
        self, record: Retirement, node: str | None, group: GroupFacts, method: Method
    ) -> bool:
        """Whether Leeway's pools replace a node that the group would replace at a time of its own,
        because EC2 has just had no capacity for it. Only a cluster that allows it costs a read."""
        if method not in BY_GROUP or not self._may_use_pools(record, node):
            return False
        return self._launch.lacks_capacity(record, group)

    def _may_use_pools(self, record: Retirement, node: str | None) -> bool:
        """Whether Leeway's pools may replace the node of a group. False if the policy cannot be
        read, or if the node is not known: the request names it."""
        with suppress(*API_ERRORS):
            return (
                bool(node) and self._policies.policy_of(record.facts.cluster).groups_may_use_pools
            )
        return False

    def _decided_for_pool(
        self, running: Retirement, decision: ReplacementDecision, node: str | None
    ) -> tuple[Retirement, tuple[ReplacementDecision, None]]:
        """Add the intent for an instance that Leeway launched. If it has no node, it has no pods
        that need another one."""
        if decision.method is not Method.REQUEST_CAPACITY:
            return running, (decision, None)
        if node is None:
            return running, (decision, None)
        if not node:
            reason = NOT_NEEDED(pool=running.facts.owner.name)
            return running, (ReplacementDecision(Method.NOTHING, reason), None)
        intent = self._intent(running, decision, None, ())
        return running.model_copy(update={"replacement_intent": intent}), (decision, None)

    def _intent(
        self,
        record: Retirement,
        decision: ReplacementDecision,
        group: GroupFacts | None,
        zones: tuple[ZoneChoice, ...],
    ) -> ReplacementIntent:
        """Return the intent to record; the recorded one if an earlier attempt decided the same."""
        known, in_addition = record.replacement_intent, {Method.LAUNCH, Method.REQUEST_CAPACITY}
        to_restore = group is not None and decision.method in in_addition
        if known is not None and known.method == decision.method:
            return known.model_copy(update={"to_restore": to_restore})
        return ReplacementIntent(
            method=decision.method,
            reason=decision.reason,
            requested_at=self._context.clock.now(),
            group=group.name if group else "",
            zones=zones,
            attempt=record.attempt,
            units=group.units if group else 1,
            desired=group.desired + group.units if group else 0,
            to_restore=to_restore,
        )

    def _group_of(self, record: Retirement) -> GroupFacts | None:
        """Read the instance's group. For an instance that EC2 takes back and that has no other
        request or hook, the cached rules of its group are sufficient."""
        owner = record.facts.owner
        untouched = record.replacement_intent is None and not record.hooks
        grouped = owner.kind is OwnerKind.AUTO_SCALING_GROUP
        if record.ec2_terminates and untouched and grouped:
            # Refused if the group is gone or may not be read: then read the instance itself.
            with suppress(CloudRefused):
                return in_service(self._group_cache.rules_of(owner.name))
        return self._groups.facts(record.instance)
