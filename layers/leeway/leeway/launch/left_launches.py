"""Use case of reconcile: continue launches that were left undone, and remove what they leave."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial

from leeway.admission.record import AdmissionRequest, Admissions, apply_request
from leeway.clock import Clock
from leeway.execution.retrying import API_ERRORS, retry_conflicts
from leeway.instances.facts import InstanceFacts
from leeway.instances.observed import ObservedInstance
from leeway.launch import reasons
from leeway.launch.intent import LaunchIntent
from leeway.launch.left_instances import (
    check_deleted_node,
    check_left_instance,
    has_joined,
    have_vanished,
    may_be_left,
)
from leeway.launch.ports import LaunchIntents, OwnedLaunchTemplates
from leeway.launch.unused_templates import unused_templates
from leeway.notices import InstanceId, Notice, NoticeKind
from leeway.parallel import in_parallel
from leeway.policy.rules import Action, OnBlocked, Replacement, Ruling
from leeway.pool_pauses.ports import PoolRecords
from leeway.ports.functions import AdmitNode, RetireNode
from leeway.ports.table import Claims
from leeway.reasons import Reason, clause
from leeway.reconciliation.clean_up import ClusterNodes
from leeway.reconciliation.find_lost_events import Records
from leeway.reconciliation.reasons import FINDING_NOT_HANDLED
from leeway.reconciliation.report import HandledFinding, LaunchCheck
from leeway.retirement.attempts import apply_notice
from leeway.retirement.reasons import NODE_DELETED
from leeway.retirement.record import Records as RetirementRecords
from leeway.retirement.record import ReturnTerms

TEMPLATES_CHECKED_EVERY = timedelta(minutes=59)
"""How long a check of a cluster's launch templates is claimed."""

AT_ONCE = 8

MOST_NAMED = 10
"""Instances that a sentence about many names."""


class LeftLaunches:
    """The Launches Protocol of reconcile."""

    def __init__(
        self,
        intents: LaunchIntents,
        records: Records,
        admissions: Admissions,
        admit_node: AdmitNode,
        retirements: RetirementRecords,
        retire_node: RetireNode,
        templates: OwnedLaunchTemplates,
        pools: PoolRecords,
        claims: Claims,
        clock: Clock,
    ) -> None:
        self._intents = intents
        self._records = records
        self._admissions = admissions
        self._admit_node = admit_node
        self._retirements = retirements
        self._retire_node = retire_node
        self._templates = templates
        self._pools = pools
        self._claims = claims
        self._clock = clock

    def check_instances(self, cluster: str, instances: Sequence[ObservedInstance]) -> LaunchCheck:
        """Start the admissions of launched instances that have none or whose execution has died."""
        now = self._clock.now()
        suspects = [one for one in instances if may_be_left(one, now)]
        if not suspects:
            return LaunchCheck()
        intents = self._intents.of_cluster(cluster)
        results = in_parallel(partial(self._check, intents), suspects, AT_ONCE)
        return LaunchCheck(
            tuple(one for one in results if isinstance(one, HandledFinding)),
            tuple(one for one in results if isinstance(one, Reason)),
        )

    def _check(
        self, intents: Collection[LaunchIntent], observed: ObservedInstance
    ) -> HandledFinding | Reason | None:
        """Check one instance; an error is a problem of this instance alone."""
        instance = observed.facts.instance
        try:
            admission = self._records.known(instance).admission
            left = check_left_instance(observed, admission, intents, self._clock.now())
            if left is None or left.request is None:
                return None if left is None else left.reason
            attempt = self._admit(observed.facts, left.request)
        except API_ERRORS as error:
            return reasons.LAUNCHED_NODE_NOT_ADMITTED(instance=instance, error=clause(error))
        return HandledFinding(
            instance, left.reason, reasons.ADMISSION_STARTED_AGAIN(attempt=attempt)
        )

    def _admit(self, facts: InstanceFacts, request: AdmissionRequest) -> int:
        """Start an admission; returns its attempt."""

        def begin() -> int:
            stored = self._records.known(facts.instance).admission
            change = apply_request(stored, request, facts)
            if change.write:
                self._admissions.write(change.record)
            if change.start:
                self._admit_node.start(facts.instance, facts.cluster, change.record.attempt)
            return change.record.attempt

        return retry_conflicts(f"the admission of {facts.instance}", begin)

    def check_nodes(
        self, cluster: str, instances: Sequence[ObservedInstance], nodes: ClusterNodes
    ) -> LaunchCheck:
        """Start the retirement of joined instances whose Node was deleted. If most of them have no
        Node, start none."""
        joined = [one for one in instances if has_joined(one)]
        without = _without_node(joined, nodes) if joined else []
        if have_vanished(len(without), len(joined)):
            some = ", ".join(sorted(one.facts.instance for one in without)[:MOST_NAMED])
            vanished = reasons.NODES_VANISHED(
                count=len(without), launched=len(joined), cluster=cluster, instances=some
            )
            return LaunchCheck(problems=(vanished,))
        results = in_parallel(self._check_node, without, AT_ONCE)
        return LaunchCheck(
            tuple(one for one in results if isinstance(one, HandledFinding)),
            tuple(one for one in results if isinstance(one, Reason)),
        )

    def _check_node(self, observed: ObservedInstance) -> HandledFinding | Reason | None:
        """Check one instance without a Node; an error is a problem of this instance alone."""
        instance, now = observed.facts.instance, self._clock.now()
        try:
            known = self._records.known(instance)
            reason = check_deleted_node(observed, known.admission, known.retirement, now)
            if reason is None or reason.code != NODE_DELETED.name:
                return reason
            attempt = self._retire(observed.facts, reason, now)
        except API_ERRORS as error:
            found = f"Instance {instance} has no Node."
            return FINDING_NOT_HANDLED(finding=found, error=clause(error))
        return HandledFinding(instance, reason, reasons.RETURN_STARTED(attempt=attempt))

    def _retire(self, facts: InstanceFacts, reason: Reason, now: datetime) -> int:
        """Start the retirement of an instance without a Node; returns its attempt."""
        ruling = Ruling(Action.RETIRE, None, Replacement.NONE, OnBlocked.WAIT, reason)
        notice = Notice(
            id=f"node-deleted-{facts.instance}-{now.isoformat()}",
            kind=NoticeKind.CAPACITY_RETURN,
            account="",
            region="",
            time=now,
            instances=(InstanceId(facts.instance),),
        )

        def begin() -> int:
            stored = self._retirements.retirement(facts.instance)
            change = apply_notice(stored, notice, ruling, facts)
            record = change.record
            if change.write:
                terms = ReturnTerms(cause=NODE_DELETED.name)
                record = record.model_copy(update={"terms": terms})
                self._retirements.write(record)
            if change.start:
                self._retire_node.start(facts.instance, facts.cluster, record.attempt)
            return record.attempt

        return retry_conflicts(f"the retirement of {facts.instance}", begin)

    def delete_unused_templates(self, cluster: str) -> Sequence[str]:
        """Delete launch templates that no launch uses, at most once an hour."""
        now = self._clock.now()
        if not self._claims.claim(
            f"launch-templates-{cluster}", now, now + TEMPLATES_CHECKED_EVERY
        ):
            return ()
        owned = self._templates.owned_by(cluster)
        if not owned:
            return ()
        unused = unused_templates(cluster, owned, self._intents.of_cluster(cluster), now)
        in_parallel(lambda name: self._templates.delete(name), unused, AT_ONCE)
        return unused

    def paused_pools(self, cluster: str) -> Sequence[Reason]:
        """Read why pools of a cluster are paused."""
        records = self._pools.pools_of(cluster)
        return [one.paused for one in records if one.paused is not None]


def _without_node(
    joined: Sequence[ObservedInstance], nodes: ClusterNodes
) -> list[ObservedInstance]:
    """Return the instances that the cluster has no Node for. All Nodes are read only if no Node has
    a name of an instance: a user may have chosen other names."""
    names = nodes.names()
    unnamed = [
        one for one in joined if not names & {one.facts.private_dns_name, one.facts.instance}
    ]
    if not unnamed:
        return []
    read = nodes.nodes()
    return [one for one in unnamed if not any(node.runs_on(one.facts.instance) for node in read)]
