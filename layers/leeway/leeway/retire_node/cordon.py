"""How a retirement begins: it waits for its turn, where it can, and cordons its node."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial

from leeway.drain.executor import pause_before_next
from leeway.execution.attempt import AttemptId, Phase
from leeway.execution.retrying import API_ERRORS, LONGEST_RETRY
from leeway.execution.steps import Steps
from leeway.policy.ports import ClusterPolicies
from leeway.policy.rules import BUDGET_TIMEOUT, SUCCESSOR_TIMEOUT, VOLUNTARY, Action
from leeway.ports.aws import Groups
from leeway.replacement.request import ReplacementResult
from leeway.retire_node.dependencies import Telemetry
from leeway.retire_node.request_disruption import DisruptionRequests
from leeway.retirement.cordon_result import CordonResult, Course
from leeway.retirement.disruption_budget import (
    BudgetDecision,
    BudgetVerdict,
    is_voluntary,
    retry_pause,
)
from leeway.retirement.node_marks import marks_of
from leeway.retirement.record import INTERRUPTIONS, Retirement, latest_end
from leeway.retirement.step_context import StepContext

JOINS = timedelta(seconds=5)
"""Between two looks for the node of an interrupted instance that may still be booting."""

JOIN_EVERY = 10
JOIN_LOOKS = int(SUCCESSOR_TIMEOUT.total_seconds()) // JOIN_EVERY
"""Seconds between two looks for the node of an instance that may be booting, in which the execution
is suspended, and how many looks there are."""

SETTLES_IN = timedelta(seconds=20)
"""After which nothing that an execution began before it was superseded is still under way."""


class CordonStep:
    """Begins retirements."""

    def __init__(
        self,
        context: StepContext,
        policies: ClusterPolicies,
        turns: DisruptionRequests,
        groups: Groups,
        telemetry: Telemetry,
    ) -> None:
        self._context = context
        self._policies = policies
        self._turns = turns
        self._groups = groups
        self._telemetry = telemetry

    def enter(self, order: AttemptId, steps: Steps) -> CordonResult:
        """Wait for the retirement's turn and cordon the node, or learn that it is not to be."""
        located = steps.run("cordon", CordonResult, partial(self._enter, order))
        turn = 0
        while located.rest and located.record is not None:
            turn += 1
            steps.wait(f"wait-for-turn-{turn}", located.rest)
            located = steps.run(f"turn-{turn}", CordonResult, partial(self._enter, order))
        undone = located.course is Course.UNDO and located.record is not None
        if undone or (located.course is Course.DECLINE and located.node):
            # What the attempt before was doing when it was superseded may have come after.
            steps.wait("settle", int(SETTLES_IN.total_seconds()))
            again = partial(self._released_again, order, located)
            located = steps.run("undo-again", CordonResult, again)
        return located

    def _enter(self, order: AttemptId) -> CordonResult:
        record = self._context.read(order)
        if record is None:
            return CordonResult(settled=False)
        if record.phase is Phase.UNDOING:
            return self._undo(order, record)
        policy = self._policies.policy_of(record.facts.cluster)
        if policy.dry_run:
            return self._rehearse(record)
        if record.begun_at is None and is_voluntary(record, self._context.clock.now()):
            told = self._turns.ask(record, policy)
            if told.verdict is not BudgetVerdict.GO:
                return self._not_now(order, record, told)
            return self.cordon(order, record)
        return self.cordon(order, record, just_read=True)

    def await_node(self, order: AttemptId, located: CordonResult, steps: Steps) -> CordonResult:
        """Wait for a node that was not there, before anything is asked of the instance's group: a
        machine that is booting joins within minutes, and one that never does may be none of the
        cluster's. Its node is cordoned when it joins."""
        look = 0
        while never_joined(located) and look < JOIN_LOOKS:
            look += 1
            steps.wait(f"wait-to-join-{look}", JOIN_EVERY)
            work = partial(self._joined, order, by_name=look < JOIN_LOOKS)
            located = steps.run(f"join-{look}", CordonResult, work)
        return located

    def _joined(self, order: AttemptId, by_name: bool) -> CordonResult:
        record = self._context.read(order)
        if record is None:
            return CordonResult(settled=False)
        return self.cordon(order, record, by_name=by_name)

    def expect(
        self, order: AttemptId, located: CordonResult, replaced: ReplacementResult, steps: Steps
    ) -> CordonResult:
        """Look again for a node that was not there: a machine that was booting may have joined.

        Of one that waited for its successor, pods would be lost with it; and one that EC2 leaves
        its two minutes may join within them, and would take pods to the end.
        """
        record, look = replaced.record, 0
        if record is None or record.kind not in VOLUNTARY | INTERRUPTIONS:
            return located
        while located.settled and not located.node:
            look += 1
            expected = partial(self._expected, order, record, replaced.settled)
            located = steps.run(f"expect-{look}", CordonResult, expected)
            if not located.rest:
                break
            steps.wait(f"wait-for-node-{look}", located.rest)
        return located

    def _expected(self, order: AttemptId, record: Retirement, patient: bool) -> CordonResult:
        # All nodes were listed a moment ago for an interruption, which come by the hundred.
        located = self.cordon(order, record, by_name=record.kind in INTERRUPTIONS)
        latest = located.record
        if located.node or not located.settled or latest is None or latest.deadline is None:
            return located
        if not patient or not _may_still_join(latest):
            return located
        left = latest.deadline - self._context.clock.now()
        return replace(located, rest=max(0, int(min(JOINS, left).total_seconds())))

    def cordon(
        self, order: AttemptId, record: Retirement, just_read: bool = False, by_name: bool = False
    ) -> CordonResult:
        """Cordon the node; again where it is cordoned already. A record that was just read is not
        read again before the first try: nothing is to come before a cordon that need not."""
        latest = [record] if just_read else []

        def find_and_cordon() -> CordonResult:
            current = latest.pop() if latest else self._context.current(order)
            return self._find_and_cordon(current, by_name)

        try:
            return self._context.retry(find_and_cordon)
        except API_ERRORS as error:
            return self._not_cordoned(record, f"{type(error).__name__}: {error}")

    def _not_cordoned(self, record: Retirement, problem: str) -> CordonResult:
        """A node that is to go is drained meanwhile; where nothing else is to be done, the cordon
        is tried again until the time is up."""
        now, course = self._context.clock.now(), course_of(record)
        rest = 0
        if course is Course.CORDON and now < min(
            latest_end(record), record.noticed_at + BUDGET_TIMEOUT
        ):
            paced = pause_before_next(record.noticed_at, now, deadline=None)
            rest = int(max(paced.total_seconds(), LONGEST_RETRY))
        return CordonResult(False, record, problem=problem, course=course, rest=rest)

    def _find_and_cordon(self, record: Retirement | None, by_name: bool) -> CordonResult:
        if record is None:
            return CordonResult(settled=False)
        cluster, node = self._context.node_of(record, by_name)
        course = course_of(record)
        if node is None:
            problem = "the instance has no node in the cluster"
            return CordonResult(True, record, problem=problem, course=course)
        cluster.cordon(node.name, marks_of(record))
        cordoned_at = self._context.clock.now()
        return CordonResult(True, record, node.name, node.uid, cordoned_at, course=course)

    def _undo(self, order: AttemptId, record: Retirement) -> CordonResult:
        return self._released(order, CordonResult(True, record, course=Course.UNDO))

    def _released(self, order: AttemptId, located: CordonResult) -> CordonResult:
        """Take off what attempts up to this one put on the node. Nothing but success will do:
        a node that stays would be left cordoned. One that a policy had cordoned is to be left so.
        """
        if located.record is None or located.record.stays_cordoned:
            return located
        cluster, node = self._context.node_of(located.record)
        if node is None:
            return located
        cluster.release(node.name, order.attempt)
        return replace(located, node=node.name, node_uid=node.uid)

    def _rehearse(self, record: Retirement) -> CordonResult:
        try:
            _, node = self._context.retry(partial(self._context.node_of, record))
        except API_ERRORS as error:
            return CordonResult(False, record, problem=str(error), course=Course.REHEARSE)
        name, uid = (node.name, node.uid) if node else ("", "")
        return CordonResult(True, record, name, uid, course=Course.REHEARSE)

    def _not_now(self, order: AttemptId, record: Retirement, told: BudgetDecision) -> CordonResult:
        if told.verdict is BudgetVerdict.DECLINE:
            declined = CordonResult(False, record, problem=told.reason, course=Course.DECLINE)
            return self._unmarked(order, declined)
        self._telemetry.waiting(record, told.reason)
        with suppress(*API_ERRORS):  # tried again when its turn is asked for again
            self._unmarked(order, CordonResult(False, record))
        rest = retry_pause(record, self._context.clock.now())
        return CordonResult(
            settled=False,
            record=record,
            problem=told.reason,
            course=Course.WAIT,
            rest=max(1, int(rest.total_seconds())),
        )

    def _unmarked(self, order: AttemptId, located: CordonResult) -> CordonResult:
        """Leave no node cordoned that stays, for now at least: an attempt before this one may
        have marked it, or be about to; or this one has, before its function died. One whose
        successor is asked for, or that its group has in hand already, keeps its marks to the end.
        """
        record = located.record
        if record is None or record.replacement_intent is not None:
            return located
        if record.attempt == 1 and not self._is_marked(record):
            return located
        if self._is_leaving(order.instance):
            return located
        return self._released(order, located)

    def _is_marked(self, record: Retirement) -> bool:
        _, node = self._context.node_of(record)
        return node is not None and node.marked

    def _released_again(self, order: AttemptId, located: CordonResult) -> CordonResult:
        record = self._context.read(order)
        if record is None:
            return CordonResult(settled=False)
        return self._released(order, replace(located, record=record))

    def _is_leaving(self, instance: str) -> bool:
        group = self._groups.facts(instance)
        return group is not None and group.lifecycle_state != "InService"


def _may_still_join(record: Retirement) -> bool:
    """Whether EC2 leaves the instance its time: neither its group ends it before, nor Leeway."""
    return record.kind in INTERRUPTIONS and not record.hooks and record.replacement_intent is None


def never_joined(located: CordonResult) -> bool:
    """Whether nothing shows that the instance is one of the cluster's nodes, and nothing has been
    asked of its group yet: nor need it be, for what can wait."""
    record = located.record
    if record is None or not located.settled or located.node:
        return False
    return (
        record.kind in VOLUNTARY and record.replacement_intent is None and not record.facts.joined
    )


def course_of(record: Retirement) -> Course:
    """Return what a retirement comes to whose turn has come."""
    return Course.CORDON if record.action is Action.CORDON else Course.RETIRE
