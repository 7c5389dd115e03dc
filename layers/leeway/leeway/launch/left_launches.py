"""Use case of reconcile: continue launches that were left undone, and remove what they leave."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial

from leeway.admission.ports import Admissions
from leeway.admission.record import AdmissionRequest, apply_request
from leeway.clock import Clock
from leeway.execution.retrying import API_ERRORS, retry_conflicts
from leeway.instances.facts import InstanceFacts
from leeway.instances.observed import ObservedInstance
from leeway.launch import reasons
from leeway.launch.intent import LaunchIntent
from leeway.launch.left_instances import check_left_instance, may_be_left
from leeway.launch.ports import LaunchIntents, OwnedLaunchTemplates
from leeway.launch.unused_templates import unused_templates
from leeway.parallel import in_parallel
from leeway.pool_pauses.ports import PoolRecords
from leeway.ports.functions import AdmitNode
from leeway.ports.table import Claims
from leeway.reasons import Reason, clause
from leeway.reconciliation.launches import LaunchCheck
from leeway.reconciliation.ports import Records
from leeway.reconciliation.report import HandledFinding

TEMPLATES_CHECKED_EVERY = timedelta(minutes=59)
"""How long a check of a cluster's launch templates is claimed."""

AT_ONCE = 8


class LeftLaunches:
    """The Launches Protocol of reconcile."""

    def __init__(
        self,
        intents: LaunchIntents,
        records: Records,
        admissions: Admissions,
        admit_node: AdmitNode,
        templates: OwnedLaunchTemplates,
        pools: PoolRecords,
        claims: Claims,
        clock: Clock,
    ) -> None:
        self._intents = intents
        self._records = records
        self._admissions = admissions
        self._admit_node = admit_node
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
