"""Begins the retirement of a node that is given back."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.capacity_requests import CapacityRequest, PriceLimit
from leeway.capacity_return import reasons
from leeway.capacity_return.decision import NodeReturn
from leeway.capacity_return.ports import Dependencies
from leeway.capacity_return.rules import Cause, ReturnRules
from leeway.capacity_return.snapshot import OwnNode
from leeway.execution.attempt import Phase
from leeway.instances.facts import InstanceFacts
from leeway.notices import InstanceId, Notice, NoticeKind
from leeway.policy.rules import Action, OnBlocked, Replacement, Ruling
from leeway.reasons import Reason
from leeway.replacement.request_capacity import OPEN_AT_MOST
from leeway.retirement.attempts import apply_notice
from leeway.retirement.record import Retirement, ReturnTerms

TRIED_AGAIN_AFTER = timedelta(minutes=10)
"""How long after a retirement that was declined its node is not given back again: what kept it is
likely to keep it still."""

START_AGAIN_AFTER = timedelta(minutes=1)
"""How long after its record is written a retirement that shows no progress is started again."""


@dataclass(frozen=True, slots=True)
class PlannedReturn:
    """A node that is given back, with the decision and the rules of its pool. `price` is that of
    all nodes of the decision in USD per hour."""

    node: OwnNode
    decision: NodeReturn
    rules: ReturnRules
    price: float

    @property
    def terms(self) -> ReturnTerms:
        """What has to be true at the cordon."""
        cause = self.decision.cause
        outdated = cause in {Cause.EXPIRED, Cause.DRIFTED, Cause.POOL_DELETED}
        forced = outdated and self.rules.drain_within is not None
        return ReturnTerms(
            cause=cause,
            pods=None if outdated else len(self.node.pods),
            forced=forced,
            saving=self.decision.saving / len(self.decision.nodes),
            optional=cause not in {Cause.EXPIRED, Cause.POOL_DELETED},
            price_limit=self._price_limit if cause is Cause.UNDERUTILIZED else None,
        )

    @property
    def _price_limit(self) -> PriceLimit:
        return PriceLimit(decision=min(self.decision.nodes), below=self.price)


class BeginReturn:
    """Begins retirements."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps

    def why_not(self, instance: str, cluster: str, now: datetime) -> Reason | None:
        """Return why an instance is not given back by its records; None if it may be. A tag makes
        no instance Leeway's: only the record of its launch does."""
        admission = self._deps.records.admission(instance)
        if admission is None or admission.launch is None or admission.facts.cluster != cluster:
            return reasons.LAUNCH_NOT_RECORDED(instance=instance)
        stored = self._deps.records.retirement(instance)
        ended = stored.ended_at if stored is not None and stored.had_no_effect else None
        if ended is not None and stored is not None and now - ended < TRIED_AGAIN_AFTER:
            return reasons.RETURN_DECLINED_BEFORE(instance=instance)
        return None

    def begin(self, planned: PlannedReturn, facts: InstanceFacts, now: datetime) -> bool:
        """Write the record of a retirement and its capacity request, and start it; False if the
        instance retires already.

        The requests of nodes that one new node replaces are all written before the next run of
        provision_nodes, which plans for their pods together.

        Raises:
            RecordChanged: another writer changed the record: something else happens to the node.
            CloudUnavailable, CloudRefused: the table or Lambda failed; `start_again` goes on.
        """
        record = self._record(planned, facts, now)
        if record is None:
            return False
        self._deps.records.write(record)
        if planned.node.pods:
            self._request(record, planned.node.name, now)
        self._deps.retire_node.start(record.instance, record.facts.cluster, record.attempt)
        return True

    def start_again(self, record: Retirement, now: datetime) -> None:
        """Start a retirement whose start may be lost. A repeated start does nothing."""
        waits = record.phase is Phase.NOTICED and now - record.noticed_at > START_AGAIN_AFTER
        if record.returns is not None and waits:
            self._deps.retire_node.start(record.instance, record.facts.cluster, record.attempt)

    def _record(
        self, planned: PlannedReturn, facts: InstanceFacts, now: datetime
    ) -> Retirement | None:
        within = planned.rules.drain_within
        ruling = Ruling(
            action=Action.RETIRE,
            deadline=None if within is None else now + within,
            replacement=Replacement.BEFORE if planned.node.pods else Replacement.NONE,
            on_blocked=OnBlocked.WAIT if within is None else OnBlocked.DELETE,
            reason=planned.decision.reason,
        )
        notice = Notice(
            id=f"return-{facts.instance}-{now.isoformat()}",
            kind=NoticeKind.CAPACITY_RETURN,
            account="",
            region="",
            time=now,
            instances=(InstanceId(facts.instance),),
        )
        stored = self._deps.records.retirement(facts.instance)
        change = apply_notice(stored, notice, ruling, facts)
        if not (change.write and change.start):
            return None
        return change.record.model_copy(update={"terms": planned.terms})

    def _request(self, record: Retirement, node: str, now: datetime) -> None:
        requests, facts = self._deps.requests, record.facts
        stored = requests.of_instance(facts.cluster, facts.instance)
        requests.write(
            CapacityRequest(
                cluster=facts.cluster,
                instance=facts.instance,
                node=node,
                instance_type=facts.instance_type,
                zone=facts.zone,
                capacity_type=facts.capacity_type,
                attempt=record.attempt,
                requested_at=now,
                ends_at=now + OPEN_AT_MOST,
                version=stored.version + 1 if stored else 1,
                keeps_offering=True,
                price_limit=record.terms.price_limit if record.terms else None,
            )
        )
