"""Receives a notice: parses the event, and handles it for each of its instances."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from leeway.execution.retrying import retry_conflicts
from leeway.interruption.announced_changes import AnnouncedChanges
from leeway.interruption.clean_up import CleanUpRequests
from leeway.interruption.dependencies import Dependencies
from leeway.interruption.handle_instance import HandleInstance
from leeway.interruption.instance_notice import InstanceNotice
from leeway.interruption.late import LateNotices
from leeway.interruption.outcome import (
    InstanceOutcome,
    NotAllInstancesReceived,
    NoticeOutcome,
    NoticeResult,
)
from leeway.interruption.reasons import (
    CLUSTER_NOT_MANAGED,
    EVENT_REPLAYED,
    INSTANCE_NOT_IN_A_CLUSTER,
    NO_RETIREMENT_TO_UNDO,
    OTHER_ACCOUNT_OR_REGION,
    RESERVATION_EMPTY,
)
from leeway.interruption.start_admission import StartAdmission
from leeway.interruption.start_retirement import StartRetirement
from leeway.notices import InstanceId, Notice
from leeway.notices.parse import parse_notice
from leeway.parallel import in_parallel
from leeway.policy.rules import DEFAULTS, Action, rule
from leeway.reasons import Reason

INSTANCE_CONCURRENCY = 16
"""Instances of a notice that are handled at the same time. AWS Health names hundreds in one event,
and the function has a minute."""


class ReceiveNotice:
    """Receives notices."""

    def __init__(self, deps: Dependencies) -> None:
        self._origin = deps.origin
        self._clusters = deps.clusters
        self._clock = deps.clock
        self._policies = deps.policies
        self._records = deps.records
        self._instances = deps.instances
        self._current = deps.current
        self._handler = HandleInstance(
            LateNotices(deps.current, deps.changes),
            AnnouncedChanges(deps.schedules, deps.changes),
            StartRetirement(deps.records, deps.retire_node, deps.offerings, deps.clock),
            StartAdmission(deps.admissions, deps.admit_node),
            CleanUpRequests(deps.clean_up, deps.claims, deps.clock),
            deps.clock,
        )

    def receive(self, event: Any, begun: Action | None = None) -> NoticeOutcome:
        """Receive one EventBridge event. To receive an event again is safe.

        `begun` is an action that Leeway has begun for the instance: it applies instead of the
        action of the policy, which may have changed since.

        Raises:
            MalformedNotice, UnknownNotice: the event is not a notice.
            NotAllInstancesReceived: some instances failed. The others are done, and receiving the
                event again does the rest.
        """
        notice = parse_notice(event)
        if reason := self._why_not_for_us(notice):
            return _ignored(notice, reason)
        if notice.reservation and not notice.instances:
            found = self._current.in_reservation(notice.reservation)
            if not found:
                return _ignored(notice, RESERVATION_EMPTY(reservation=notice.reservation))
            notice = replace(notice, instances=tuple(map(InstanceId, found)))
        if not notice.instances:
            return _ignored(notice, rule(notice, DEFAULTS[notice.kind]).reason)

        def receive_for(instance: InstanceId) -> InstanceOutcome | Exception:
            try:
                return retry_conflicts(
                    f"the record of {instance}",
                    lambda: self._receive_for(instance, notice, event, begun),
                )
            except Exception as error:  # noqa: BLE001 (raised below, after all instances)
                return error

        results = in_parallel(receive_for, notice.instances, INSTANCE_CONCURRENCY)
        receipt = NoticeOutcome(
            notice, tuple(one for one in results if isinstance(one, InstanceOutcome))
        )
        if failures := [one for one in results if isinstance(one, Exception)]:
            raise NotAllInstancesReceived(receipt, failures)
        return receipt

    def _why_not_for_us(self, notice: Notice) -> Reason | None:
        """Return why the whole notice is ignored; None if its instances are handled."""
        if notice.replay:
            return EVENT_REPLAYED(replay=notice.replay)
        own = self._origin
        if (notice.account, notice.region) == (own.account, own.region):
            return None
        return OTHER_ACCOUNT_OR_REGION(
            account=notice.account,
            region=notice.region,
            own_account=own.account,
            own_region=own.region,
        )

    def _receive_for(
        self, instance: InstanceId, notice: Notice, event: Mapping[str, Any], begun: Action | None
    ) -> InstanceOutcome:
        known = self._records.known(instance)
        retirement = known.retirement
        if retirement is None and notice.state == "running":
            # EC2 sends this event for every launch, so no call is made for it.
            return InstanceOutcome(NoticeResult.IGNORED, NO_RETIREMENT_TO_UNDO(), instance)
        # The index is never older than the record: the instance may have left its group since.
        facts = known.facts or (
            retirement.facts if retirement else self._instances.describe(instance)
        )
        if facts is None:
            return InstanceOutcome(NoticeResult.NOT_OURS, INSTANCE_NOT_IN_A_CLUSTER(), instance)
        if facts.cluster not in self._clusters:
            reason = CLUSTER_NOT_MANAGED(cluster=facts.cluster)
            return InstanceOutcome(NoticeResult.NOT_OURS, reason, instance, facts.cluster)
        cluster_policy = self._policies.policy_of(facts.cluster)
        policy = cluster_policy.notices[notice.kind]
        if begun is not None:
            policy = replace(policy, action=begun)
        # A timestamp in the future is clamped to now: one of two clocks is wrong.
        clamped = replace(notice, time=min(notice.time, self._clock.now()))
        return self._handler.handle(
            InstanceNotice(
                event, clamped, retirement, known.admission, facts, policy, cluster_policy
            )
        )


def _ignored(notice: Notice, reason: Reason) -> NoticeOutcome:
    return NoticeOutcome(notice, (InstanceOutcome(NoticeResult.IGNORED, reason),))
