"""How a retirement gets its instance replaced: asks, and waits for the successor."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

from leeway.cloud.ports import CloudRefused, CloudUnavailable
from leeway.execution.orders import Order
from leeway.execution.steps import Steps
from leeway.owners import OwnerKind
from leeway.policies import SUCCESSOR_WITHIN, VOLUNTARY, Replacement
from leeway.records.retirement import Phase, ReplacementIntent, Retirement
from leeway.records.turns import begun
from leeway.replacement import (
    Decision,
    GroupFacts,
    Method,
    decide_replacement,
    decide_without_group,
    in_service,
)
from leeway.retirement.entering import marks_of
from leeway.retirement.recollection import KnownGroups
from leeway.retirement.results import Replaced
from leeway.retirement.succession import Succession
from leeway.retirement.surging import Surging
from leeway.retirement.surroundings import TROUBLE, Surroundings

LOOK_EVERY = 10
"""Seconds between two looks for the successor, in which the execution is suspended."""

LOOKS = int(SUCCESSOR_WITHIN.total_seconds()) // LOOK_EVERY

_ACTING = frozenset({Method.TERMINATE_IN_GROUP, Method.RAISE_DESIRED, Method.DETACH})

_CLOUD_TROUBLE = (CloudUnavailable, CloudRefused)


class Replacing:
    """Gets instances replaced."""

    def __init__(self, world: Surroundings, known_groups: KnownGroups, surging: Surging) -> None:
        self._world = world
        self._known_groups = known_groups
        self._surging = surging
        self._succession = Succession(world)

    def succeed(self, order: Order, record: Retirement, steps: Steps) -> Replaced:
        """Ask for the successor and, where there is time, wait until it is Ready: after that the
        pods may be asked to go."""
        replaced = steps.run("replace", Replaced, partial(self.ask, order, record))
        if record.kind not in VOLUNTARY:
            return replaced
        look = 0
        while replaced.record is not None and replaced.rest:
            look += 1
            steps.wait(f"wait-for-successor-{look}", replaced.rest)
            work = partial(self._look, order, replaced, look)
            replaced = steps.run(f"successor-{look}", Replaced, work)
        if replaced.record is None:
            return replaced
        return steps.run("begin", Replaced, partial(self._begin, order, replaced))

    def ask(self, order: Order, record: Retirement) -> Replaced:
        """Ask for the successor; again where that failed or may have."""
        try:
            return self._world.patiently(partial(self._ask, order, record))
        except _CLOUD_TROUBLE as error:
            early = record.kind in VOLUNTARY and record.begun_at is None
            waits = early and record.replacement is Replacement.BEFORE
            return Replaced(False, record, reason=str(error), rest=LOOK_EVERY if waits else 0)

    def _ask(self, order: Order, record: Retirement, afresh: bool = False) -> Replaced:
        """Write down what is going to be asked, then ask. What an attempt before this one wrote
        shows as a changed record; whether it still got to ask, as the instance's state."""
        decide = partial(self._with_replacement, order, afresh)
        written = self._world.write(order, record, decide)
        if written is None:
            return Replaced(settled=False, record=None)
        running, (decision, group) = written
        if group is not None and decision.method in _ACTING:
            try:
                self._carry_out(order, running, decision, group)
            except CloudRefused:
                if not group.recalled:
                    raise
                # The group, or the instance in it, is not what it was taken for. Or it was, and is
                # detached by now: the answer to an attempt before got lost.
                if decision.method is not Method.DETACH:
                    unasked = self._world.write(order, running, _not_asked)
                    running = unasked[0] if unasked else running
                return self._ask(order, running, afresh=True)
        method, reason = decision.method, decision.reason
        intent = running.replaced
        if intent is not None and _still_holds(intent, group):
            method, reason = intent.method, intent.reason
        return Replaced(True, running, method, reason, rest=LOOK_EVERY if decision.before else 0)

    def _with_replacement(
        self, order: Order, afresh: bool, record: Retirement
    ) -> tuple[Retirement, tuple[Decision, GroupFacts | None]]:
        """Decide how the instance is replaced."""
        since = record.running_at or self._world.clock.now()
        running = record.model_copy(update={"phase": Phase.RUNNING, "running_at": since})
        known = record.replaced
        begun = record.begun_at is not None
        wanted = record.replacement
        if begun and wanted is Replacement.BEFORE:
            wanted = Replacement.WITH
        owner = record.facts.owner
        taken = True  # a notice about another owner's instance is not received unless it is
        settled = decide_without_group(record.kind, wanted, owner, taken)
        if settled is not None and known is None:
            return running, (settled, None)
        group = self._world.groups.facts(order.instance) if afresh else self._group_of(record)
        asked = known.method if known else None
        decision = decide_replacement(record.kind, wanted, owner, group, asked, taken)
        if group is None or decision.method not in _ACTING:
            return running, (decision, group)
        owed = decision.method is Method.RAISE_DESIRED
        if known is not None and known.method == decision.method:
            intent = known.model_copy(update={"owed": owed})
            return running.model_copy(update={"replaced": intent}), (decision, group)
        wait_from = self._succession.wait_from
        members = wait_from(record.instance, group.name) if decision.before else ()
        intent = ReplacementIntent(
            method=decision.method,
            reason=decision.reason,
            asked_at=self._world.clock.now(),
            group=group.name,
            members=members,
            owed=owed,
        )
        return running.model_copy(update={"replaced": intent}), (decision, group)

    def _group_of(self, record: Retirement) -> GroupFacts | None:
        """Read the instance's group, as it is now. Of an instance that EC2 takes, and of which
        nobody has heard anything else, its group's rules of some seconds ago will do."""
        owner = record.facts.owner
        untouched = record.replaced is None and not record.hooks
        grouped = owner.kind is OwnerKind.AUTO_SCALING_GROUP
        if record.ec2_takes_it and untouched and grouped:
            # Refused where the group is gone, or is not to be read: the instance itself tells.
            with suppress(CloudRefused):
                return in_service(self._known_groups.rules_of(owner.name))
        return self._world.groups.facts(record.instance)

    def _carry_out(
        self, order: Order, record: Retirement, decision: Decision, group: GroupFacts
    ) -> None:
        instance = order.instance
        match decision.method:
            case Method.TERMINATE_IN_GROUP:
                self._world.groups.terminate_in_group(instance)
            case Method.DETACH:
                self._world.groups.detach(instance, group.name)
            case Method.RAISE_DESIRED:
                if not self._surging.raise_for(instance, group.name):
                    self._world.write(order, record, _not_asked)
                    raise CloudUnavailable(f"group {group.name} filled up meanwhile")
                # Without a hook to keep it, the instance is ended when it is drained.
                if record.kind not in VOLUNTARY and group.holds:
                    self._surging.lower_for(instance, group.name)

    def _look(self, order: Order, replaced: Replaced, look: int) -> Replaced:
        """Look whether the successor is Ready; ask again where asking failed."""
        record = self._world.read_patiently(order)
        if record is None:
            return replace(replaced, record=None)
        if not replaced.settled:
            again = self.ask(order, record)
            return replace(again, rest=0) if look >= LOOKS else again
        try:
            successor = self._world.patiently(partial(self._succession.successor_of, record))
        except TROUBLE:
            successor = ""
        if successor:
            reason = f"{replaced.reason}; its successor {successor} is Ready"
            return replace(replaced, record=record, successor=successor, reason=reason, rest=0)
        if look < LOOKS:
            return replace(replaced, record=record)
        minutes = SUCCESSOR_WITHIN.total_seconds() / 60
        reason = f"{replaced.reason}; no successor was Ready in {minutes:g} minutes"
        return replace(replaced, record=record, reason=reason, rest=0)

    def _begin(self, order: Order, replaced: Replaced) -> Replaced:
        """Note that the pods are asked to go from now on."""
        if replaced.record is None:
            return replaced
        begin = partial(self._begun, replaced.successor)
        written = self._world.write(order, replaced.record, begin)
        if written is None:
            return replace(replaced, record=None)
        record, _ = written
        try:
            self._world.patiently(partial(self._mark, record))
        except TROUBLE as error:
            return replace(replaced, settled=False, record=record, reason=str(error), rest=0)
        return replace(replaced, record=record)

    def _begun(self, successor: str, record: Retirement) -> tuple[Retirement, None]:
        if record.begun_at is not None:
            return record, None
        on = begun(record, self._world.clock.now())
        if successor and on.replaced is not None:
            asked = on.replaced.model_copy(update={"successor": successor})
            on = on.model_copy(update={"replaced": asked})
        return on, None

    def _mark(self, record: Retirement) -> None:
        cluster, node = self._world.node_of(record)
        if node is not None:
            cluster.cordon(node.name, marks_of(record))


def _not_asked(record: Retirement) -> tuple[Retirement, None]:
    return record.model_copy(update={"replaced": None}), None


def _still_holds(intent: ReplacementIntent, group: GroupFacts | None) -> bool:
    """Whether what was once intended is what happened: an instance that is to be detached has left
    its group or is leaving it. One that is still in service was not detached."""
    if group is None or intent.method is not Method.DETACH:
        return True
    return group.lifecycle_state in {"Detaching", "Detached"}
