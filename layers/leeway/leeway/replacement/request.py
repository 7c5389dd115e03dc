"""How a retirement gets its instance replaced: asks, and waits for the successor."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from leeway.execution.attempt import AttemptId, Phase
from leeway.execution.retrying import API_ERRORS
from leeway.execution.steps import Steps
from leeway.instances.groups import GroupFacts, in_service
from leeway.instances.owners import OwnerKind
from leeway.lifecycle_hooks.actions import LifecycleActions
from leeway.lifecycle_hooks.held_hooks import HeldHook
from leeway.policy.rules import SUCCESSOR_TIMEOUT, VOLUNTARY, Replacement
from leeway.ports.aws import CloudRefused, CloudUnavailable, GroupInstances, Groups
from leeway.replacement.cache import GroupCache
from leeway.replacement.decide import Decision, decide_replacement, decide_without_group
from leeway.replacement.launch import SuccessorLaunch
from leeway.replacement.track import SuccessorStatus, SuccessorTracker
from leeway.retirement.disruption_budget import start_drain
from leeway.retirement.hooks_of_record import held_for
from leeway.retirement.node_marks import marks_of
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Method, ReplacementIntent, Successor, ZoneChoice
from leeway.retirement.step_context import StepContext

LOOK_EVERY = 10
"""Seconds between two looks for the successor, in which the execution is suspended."""

LOOKS = int(SUCCESSOR_TIMEOUT.total_seconds()) // LOOK_EVERY

_ACTING = frozenset({Method.TERMINATE_IN_GROUP, Method.LAUNCH, Method.DETACH})

_CLOUD_TROUBLE = (CloudUnavailable, CloudRefused)


@dataclass(frozen=True, slots=True)
class ReplacementResult:
    """Where a retirement stands with its replacement.

    `rest` is how many seconds to wait before looking for the successor again, 0 where it is not
    waited for, or no longer. `held` are the lifecycle hooks that are kept waiting meanwhile.
    """

    settled: bool
    record: Retirement | None
    method: Method = Method.NOTHING
    reason: str = ""
    successors: tuple[Successor, ...] = ()
    rest: int = 0
    held: tuple[HeldHook, ...] = ()


class ReplacementStep:
    """Gets instances replaced."""

    def __init__(
        self,
        context: StepContext,
        groups: Groups,
        instances: GroupInstances,
        known_groups: GroupCache,
        launching: SuccessorLaunch,
        actions: LifecycleActions,
    ) -> None:
        self._context = context
        self._groups = groups
        self._known_groups = known_groups
        self._launching = launching
        self._actions = actions
        self._awaiting = SuccessorTracker(context, groups, instances)

    def succeed(self, order: AttemptId, record: Retirement, steps: Steps) -> ReplacementResult:
        """Ask for the successor and, where there is time, wait until it is Ready: after that the
        pods may be asked to go."""
        replaced = steps.run("replace", ReplacementResult, partial(self.ask, order, record))
        if record.kind not in VOLUNTARY:
            return replaced
        look = 0
        while replaced.record is not None and replaced.rest:
            look += 1
            steps.wait(f"wait-for-successor-{look}", replaced.rest)
            work = partial(self._look, order, replaced, look)
            replaced = steps.run(f"successor-{look}", ReplacementResult, work)
        if replaced.record is None:
            return replaced
        return steps.run("begin", ReplacementResult, partial(self._begin, order, replaced))

    def ask(self, order: AttemptId, record: Retirement) -> ReplacementResult:
        """Ask for the successor; again where that failed or may have."""
        try:
            return self._context.retry(partial(self._ask, order, record))
        except _CLOUD_TROUBLE as error:
            early = record.kind in VOLUNTARY and record.begun_at is None
            waits = early and record.replacement is Replacement.BEFORE
            return ReplacementResult(
                False, record, reason=str(error), rest=LOOK_EVERY if waits else 0
            )

    def _ask(
        self, order: AttemptId, record: Retirement, afresh: bool = False, refused: str = ""
    ) -> ReplacementResult:
        """Write down what is going to be asked, then ask. What an attempt before this one wrote
        shows as a changed record; whether it still got to ask, as the instance's state."""
        decide = partial(self._with_replacement, order, afresh, refused)
        written = self._context.write(order, record, decide)
        if written is None:
            return ReplacementResult(settled=False, record=None)
        running, (decision, group) = written
        if group is not None and decision.method in _ACTING:
            try:
                carried_out = self._carry_out(order, running, decision, group)
            except CloudRefused as error:
                by_name = decision.method is Method.LAUNCH
                if not group.from_cache and not by_name:
                    raise
                # The group, or the instance in it, is not what it was taken for. Or it was, and is
                # detached by now: the answer to an attempt before got lost.
                if decision.method is not Method.DETACH:
                    unasked = self._context.write(order, running, _not_asked)
                    if unasked is None:
                        return ReplacementResult(settled=False, record=None)
                    running = unasked[0]
                return self._ask(order, running, True, str(error) if by_name else "")
            if carried_out is None:
                return ReplacementResult(settled=False, record=None)
            running = carried_out
        method, reason = decision.method, decision.reason
        intent = running.replacement_intent
        if intent is not None and _still_holds(intent, group):
            method, reason = intent.method, intent.reason
            reason = "; ".join([reason, *map(str, intent.successors)])
        return ReplacementResult(
            True, running, method, reason, rest=LOOK_EVERY if decision.before else 0
        )

    def _with_replacement(
        self, order: AttemptId, afresh: bool, refused: str, record: Retirement
    ) -> tuple[Retirement, tuple[Decision, GroupFacts | None]]:
        """Decide how the instance is replaced."""
        since = record.running_at or self._context.clock.now()
        running = record.model_copy(update={"phase": Phase.RUNNING, "running_at": since})
        known = record.replacement_intent
        begun = record.begun_at is not None
        wanted = record.replacement
        if begun and wanted is Replacement.BEFORE:
            wanted = Replacement.WITH
        owner = record.facts.owner
        taken = True  # a notice about another owner's instance is not received unless it is
        settled = decide_without_group(record.kind, wanted, owner, taken)
        if settled is not None and known is None:
            return running, (settled, None)
        group = self._groups.facts(order.instance) if afresh else self._group_of(record)
        asked = known.method if known else None
        decide = partial(decide_replacement, record.kind, wanted, owner, group, asked, taken)
        decision = decide(refused)
        zones: tuple[ZoneChoice, ...] = ()
        asks_anew = known is None or known.method != decision.method
        if group is not None and decision.method is Method.LAUNCH and asks_anew:
            zones = self._launching.zones_for(record, group)
            if not zones:
                lacks = f"no zone of group {group.name} has capacity, as EC2 said some minutes ago"
                decision = decide(lacks)
        if group is None or decision.method not in _ACTING:
            return running, (decision, group)
        to_restore = decision.method is Method.LAUNCH
        if known is not None and known.method == decision.method:
            intent = known.model_copy(update={"to_restore": to_restore})
            return running.model_copy(update={"replacement_intent": intent}), (decision, group)
        intent = ReplacementIntent(
            method=decision.method,
            reason=decision.reason,
            asked_at=self._context.clock.now(),
            group=group.name,
            zones=zones,
            attempt=record.attempt,
            units=group.units,
            desired=group.desired + group.units,
            to_restore=to_restore,
        )
        return running.model_copy(update={"replacement_intent": intent}), (decision, group)

    def _group_of(self, record: Retirement) -> GroupFacts | None:
        """Read the instance's group, as it is now. Of an instance that EC2 takes, and of which
        nobody has heard anything else, its group's rules of some seconds ago will do."""
        owner = record.facts.owner
        untouched = record.replacement_intent is None and not record.hooks
        grouped = owner.kind is OwnerKind.AUTO_SCALING_GROUP
        if record.ec2_terminates and untouched and grouped:
            # Refused where the group is gone, or is not to be read: the instance itself tells.
            with suppress(CloudRefused):
                return in_service(self._known_groups.rules_of(owner.name))
        return self._groups.facts(record.instance)

    def _carry_out(
        self, order: AttemptId, record: Retirement, decision: Decision, group: GroupFacts
    ) -> Retirement | None:
        """Ask; returns the record, with the successor where that is known, None where a newer
        attempt has taken over."""
        instance = order.instance
        match decision.method:
            case Method.TERMINATE_IN_GROUP:
                self._groups.terminate_in_group(instance)
            case Method.DETACH:
                self._groups.detach(instance, group.name)
            case Method.LAUNCH:
                # Without a hook to keep it, the instance is ended when it is drained.
                ends = record.kind not in VOLUNTARY and group.terminate_hook_waits
                again = record.replacement_intent is not None and record.replacement_intent.ending
                launched = {"successors": self._launching.launch(record), "ending": ends}
                noted = self._context.write(order, record, partial(_with_intent, launched))
                if noted is None:
                    return None
                record = noted[0]
                if ends:
                    with suppress(CloudRefused):  # asked again at the end, which says so
                        self._launching.end(record, again=again)
        return record

    def _look(self, order: AttemptId, replaced: ReplacementResult, look: int) -> ReplacementResult:
        """Look whether the successor is Ready; ask again where asking failed."""
        record = self._context.read(order)
        if record is None:
            return replace(replaced, record=None)
        now = self._context.clock.now()
        held = self._actions.send_heartbeats(order.instance, held_for(record, replaced.held, now))
        if not replaced.settled:
            again = replace(self.ask(order, record), held=held)
            return replace(again, rest=0) if look >= LOOKS else again
        replaced = replace(replaced, record=record, held=held)
        try:
            looked = self._context.retry(partial(self._awaiting.look, record))
        except API_ERRORS:
            looked = SuccessorStatus()
        if looked.ready:
            names = ", ".join(one.instance for one in looked.ready)
            reason = f"{replaced.reason}; its successor {names} is Ready"
            return replace(replaced, successors=looked.ready, reason=reason, rest=0)
        if looked.failed:
            failed = {"successors": (), "zones": ()}
            written = self._context.write(order, record, partial(_with_intent, failed))
            reason = f"{replaced.reason}; {looked.failed}: its group launches another one"
            replaced = replace(replaced, record=written[0] if written else None, reason=reason)
        if look < LOOKS:
            return replaced
        minutes = SUCCESSOR_TIMEOUT.total_seconds() / 60
        reason = f"{replaced.reason}; no successor was Ready in {minutes:g} minutes"
        return replace(replaced, reason=reason, rest=0)

    def _begin(self, order: AttemptId, replaced: ReplacementResult) -> ReplacementResult:
        """Note that the pods are asked to go from now on."""
        if replaced.record is None:
            return replaced
        begin = partial(self._begun, replaced.successors)
        written = self._context.write(order, replaced.record, begin)
        if written is None:
            return replace(replaced, record=None)
        record, _ = written
        try:
            self._context.retry(partial(self._mark, record))
        except API_ERRORS as error:
            return replace(replaced, settled=False, record=record, reason=str(error), rest=0)
        return replace(replaced, record=record)

    def _begun(
        self, successors: tuple[Successor, ...], record: Retirement
    ) -> tuple[Retirement, None]:
        if record.begun_at is not None:
            return record, None
        on = start_drain(record, self._context.clock.now())
        return _with_intent({"successors": successors}, on) if successors else (on, None)

    def _mark(self, record: Retirement) -> None:
        cluster, node = self._context.node_of(record)
        if node is not None:
            cluster.cordon(node.name, marks_of(record))


def _not_asked(record: Retirement) -> tuple[Retirement, None]:
    return record.model_copy(update={"replacement_intent": None}), None


def _with_intent(fields: dict[str, Any], record: Retirement) -> tuple[Retirement, None]:
    intent = (
        record.replacement_intent.model_copy(update=fields) if record.replacement_intent else None
    )
    return record.model_copy(update={"replacement_intent": intent}), None


def _still_holds(intent: ReplacementIntent, group: GroupFacts | None) -> bool:
    """Whether what was once intended is what happened: an instance that is to be detached has left
    its group or is leaving it. One that is still in service was not detached."""
    if group is None or intent.method is not Method.DETACH:
        return True
    return group.lifecycle_state in {"Detaching", "Detached"}
