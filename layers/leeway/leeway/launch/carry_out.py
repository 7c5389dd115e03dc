"""Carries out launch intents: write, request, write the answer, start the admissions.

A run may end at any call. The request of an intent without an answer is repeated with its client
token, so EC2 launches nothing twice.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from leeway.admission.record import ADMISSION, AdmissionRequest, Launch, apply_request
from leeway.clock import Clock
from leeway.execution.retrying import API_ERRORS, Conflicts, WhileUnavailable
from leeway.instances.facts import InstanceFacts, Owner, OwnerKind
from leeway.launch.fleets import FleetAnswer, FleetError, FleetInstance, FleetRequest, Fleets
from leeway.launch.intent import INTENT, JOIN_WITHIN, LaunchIntent
from leeway.parallel import in_parallel
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.functions import AdmitNode
from leeway.reasons import Reason, ReasonCode, clause
from leeway.table import Record, RecordChanged, Table

LAUNCH_UNANSWERED = ReasonCode(
    "LaunchUnanswered",
    "EC2 did not answer a launch of {count:node} of pool {pool} ({error}): the next run repeats "
    "the request or finds its instances, so that nothing is launched twice.",
    "a-launch-is-refused",
)
LAUNCH_INTENT_REFUSED = ReasonCode(
    "LaunchIntentRefused",
    "The table of Leeway refuses the record of a launch of {count:node} of pool {pool}, so Leeway "
    "launches nothing from the pool in this run ({error}).",
    "a-launch-is-refused",
)
LAUNCHED_NODE_NOT_ADMITTED = ReasonCode(
    "LaunchedNodeNotAdmitted",
    "Leeway launched {instance} and could not start its admission ({error}): the next run starts "
    "it.",
)
NODE_LAUNCHED = ReasonCode("NodeLaunched", "Leeway launched {instance} for pool {pool}.")


LISTED_WITHIN = timedelta(minutes=1)
"""After which time EC2 lists an instance that it has launched: a list may be incomplete for a
while. Source: EC2 API reference, "Eventual consistency"."""

ADMITTED_AT_ONCE = 16
"""Admissions that a run starts at the same time: each takes three calls."""

type AdmissionLabels = Callable[[LaunchIntent, FleetInstance], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """An intent after its request. `unanswered` says that EC2 did not answer: its instances may
    have been launched. `refused` says that the table did not take the intent: nothing was
    requested."""

    intent: LaunchIntent
    errors: tuple[FleetError, ...] = ()
    unanswered: Reason | None = None
    refused: Reason | None = None


def unanswered(results: Iterable[CarriedOut]) -> tuple[Reason, ...]:
    """Return why EC2 did not answer, of the results that have no answer."""
    return tuple(one.unanswered for one in results if one.unanswered is not None)


class IntentExecutor:
    """Carries out intents of one kind. Without `admit_node`, reconcile starts the admissions."""

    def __init__(
        self,
        fleets: Fleets,
        table: Table,
        intents: Record[LaunchIntent],
        admit_node: AdmitNode | None,
        clock: Clock,
    ) -> None:
        self._fleets = fleets
        self._table = table
        self._intents = intents
        self._admit_node = admit_node
        self._clock = clock

    def carry_out(self, intent: LaunchIntent, new: bool = True) -> CarriedOut:
        """Write a new intent, request its instances, and write the answer. Of an intent that is
        not new, request the instances again if that may be, else find them by their tag. A request
        of `leeway launch` is not repeated: who may write it may not have the rights of this caller.

        Raises:
            CloudUnavailable: the table does not answer; nothing was launched.
        """
        request = intent.request
        if request is None:
            return CarriedOut(intent)
        count, pool = request.count, intent.pool
        try:
            if new:
                self._table.put(self._intents, intent)
        except CloudRefused as error:
            refused = LAUNCH_INTENT_REFUSED(count=count, pool=pool, error=clause(error))
            return CarriedOut(intent, refused=refused)
        try:
            answer = self._answer(intent, request, repeats=new or self._intents is INTENT)
        except CloudUnavailable as error:
            reason = LAUNCH_UNANSWERED(count=count, pool=pool, error=clause(error))
            return CarriedOut(intent, unanswered=reason)
        answered = intent.answered(answer.instances)
        # Another run may have had the same answer.
        with suppress(RecordChanged):
            self._table.put(self._intents, answered)
        return CarriedOut(answered, answer.errors)

    def _answer(self, intent: LaunchIntent, request: FleetRequest, repeats: bool) -> FleetAnswer:
        again = WhileUnavailable(self._clock)
        while True:
            with again:
                now = self._clock.now()
                if not (repeats and intent.may_repeat(now)):
                    left = min(intent.created_at + LISTED_WITHIN - now, LISTED_WITHIN)
                    if left > timedelta():
                        self._clock.sleep(left.total_seconds())
                    return FleetAnswer(tuple(self._fleets.launched_by(intent.id)))
                answer = self._fleets.create(request, intent.token)
                errors = answer.errors
                if answer.instances or (errors and all(one.override for one in errors)):
                    return answer
                # EC2 refuses to repeat a request if its template is gone, for example.
                found = tuple(self._fleets.launched_by(intent.id))
                if not (found or errors):
                    raise CloudUnavailable("CreateFleet answered with neither instances nor errors")
                return FleetAnswer(found, errors)

    def admit(
        self,
        intent: LaunchIntent,
        facts: Mapping[str, InstanceFacts],
        labels_of: AdmissionLabels,
    ) -> tuple[LaunchIntent, tuple[Reason, ...]]:
        """Start the admission of each instance that has none; return the intent, and why an
        admission could not be started. `facts` are those of the instances that EC2 describes."""

        def failure(instance: FleetInstance) -> Reason | None:
            known = facts.get(instance.instance) or _facts_of(intent, instance)
            try:
                self._admit(intent, known, labels_of(intent, instance))
            except API_ERRORS as error:
                name, why = instance.instance, clause(error)
                return LAUNCHED_NODE_NOT_ADMITTED(instance=name, error=why)
            return None

        waiting = intent.to_admit
        failures = in_parallel(failure, waiting, ADMITTED_AT_ONCE)
        pairs = zip(waiting, failures, strict=True)
        started = [one.instance for one, failed in pairs if failed is None]
        if started:
            intent = intent.with_admissions(started)
            with suppress(RecordChanged):
                self._table.put(self._intents, intent)
        return intent, tuple(failed for failed in failures if failed is not None)

    def _admit(self, intent: LaunchIntent, facts: InstanceFacts, labels: Mapping[str, str]) -> None:
        admit_node, instance = self._admit_node, facts.instance
        if admit_node is None:
            return
        request = AdmissionRequest(
            id=f"launch-{intent.id}",
            requested_at=intent.created_at,
            deadline=intent.created_at + JOIN_WITHIN,
            reason=NODE_LAUNCHED(instance=instance, pool=intent.pool),
            launch=Launch(intent=intent.id, pool=intent.pool, at=intent.created_at),
            labels=labels,
            annotations=intent.annotations,
            taints=intent.taints_for_admission,
            startup_taints=intent.startup_taints,
            promised=intent.promised,
        )
        conflicts = Conflicts(f"the admission of {instance}")
        while True:
            with conflicts:
                stored = self._table.get(ADMISSION, cluster=facts.cluster, instance=instance)
                change = apply_request(stored, request, facts)
                if change.write:
                    self._table.put(ADMISSION, change.record)
                if change.start:
                    admit_node.start(instance, intent.cluster, change.record.attempt)
                return


def _facts_of(intent: LaunchIntent, instance: FleetInstance) -> InstanceFacts:
    """The facts of an instance that EC2 does not describe yet. Without its private DNS name,
    admission finds its node in the list of all nodes."""
    return InstanceFacts(
        instance=instance.instance,
        cluster=intent.cluster,
        private_dns_name="",
        zone=instance.zone,
        instance_type=instance.instance_type,
        capacity_type=instance.capacity_type,
        reservation=instance.reservation,
        owner=Owner(OwnerKind.LEEWAY, intent.pool),
    )
