"""The durable steps of a retirement that request a replacement and wait for it."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from leeway.execution.attempt import AttemptId
from leeway.execution.retrying import API_ERRORS
from leeway.execution.steps import Steps
from leeway.instances.groups import GroupFacts
from leeway.instances.owners import OwnerKind
from leeway.lifecycle_hooks.actions import LifecycleActions
from leeway.lifecycle_hooks.held_hooks import HeldHook
from leeway.policy.ports import ClusterPolicies
from leeway.policy.rules import SUCCESSOR_TIMEOUT, VOLUNTARY, Replacement
from leeway.ports.aws import CloudRefused, CloudUnavailable, GroupInstances, Groups
from leeway.reasons import Reason
from leeway.replacement.cache import GroupCache
from leeway.replacement.decide import ReplacementDecision
from leeway.replacement.intents import ACTING, Refusal, ReplacementIntents
from leeway.replacement.launch import GroupLacksCapacity, SuccessorLaunch
from leeway.replacement.reasons import (
    LAUNCH_REFUSED,
    NODE_NOT_MARKED,
    REPLACEMENT_REFUSED,
    RETURN_WITHOUT_SUCCESSOR,
    SUCCESSOR_LAUNCHED,
    SUCCESSOR_READY,
    SUCCESSOR_TIMEOUT_PASSED,
    SUPERSEDED,
)
from leeway.replacement.request_capacity import RequestCapacity
from leeway.replacement.track import SuccessorStatus, SuccessorTracker
from leeway.retirement.disruption_budget import start_drain
from leeway.retirement.hooks_of_record import held_for
from leeway.retirement.node_marks import marks_of
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Method, ReplacementIntent, Successor
from leeway.retirement.step_context import StepContext, with_intent

CHECK_SUCCESSOR_EVERY = 10
"""Seconds between two checks of the successor, in which the execution is suspended."""

SUCCESSOR_CHECKS = int(SUCCESSOR_TIMEOUT.total_seconds()) // CHECK_SUCCESSOR_EVERY

CHECK_ANSWER_EVERY = 5
"""Seconds between two checks of the answer after the drain, in which the execution is suspended."""

ANSWER_CHECKS = 5
"""How often the answer is checked after the drain. A run of provision_nodes that has the request
takes some seconds; one that a queue of others delays reports its launches itself."""

_CLOUD_ERRORS = (CloudUnavailable, CloudRefused)


@dataclass(frozen=True, slots=True)
class ReplacementResult:
    """The result of a replacement step.

    `settled` says that the request succeeded, or that none is needed. There is no record if a newer
    attempt has superseded this one. `pause` is how many seconds to wait before the next check of
    the successor, 0 if the retirement does not wait for it (any longer). `held` are the lifecycle
    hooks that are held open meanwhile. `called_off` is why a return of capacity ends here: its node
    may as well stay, and the successor is not Ready in time.
    """

    settled: bool
    record: Retirement | None
    reason: Reason
    method: Method = Method.NOTHING
    successors: tuple[Successor, ...] = ()
    pause: int = 0
    held: tuple[HeldHook, ...] = ()
    called_off: Reason | None = None


class ReplacementStep:
    """Requests replacements and waits for them."""

    def __init__(
        self,
        context: StepContext,
        groups: Groups,
        instances: GroupInstances,
        group_cache: GroupCache,
        launch: SuccessorLaunch,
        actions: LifecycleActions,
        capacity: RequestCapacity,
        policies: ClusterPolicies,
    ) -> None:
        self._context = context
        self._capacity = capacity
        self._groups = groups
        self._launch = launch
        self._actions = actions
        self._tracker = SuccessorTracker(context, groups, instances, capacity)
        self._intents = ReplacementIntents(context, groups, group_cache, launch, policies)

    def run(
        self, attempt_id: AttemptId, record: Retirement, node: str | None, steps: Steps
    ) -> ReplacementResult:
        """Request the replacement and, if there is time, wait until the successor is Ready: after
        that the drain may begin. `node` is the name of the node, empty if there is none, None if
        the cluster could not be read."""
        work = partial(self.request, attempt_id, record, node)
        result = steps.run("request-replacement", ReplacementResult, work)
        if record.kind not in VOLUNTARY:
            return result
        check = 0
        while result.record is not None and result.pause:
            check += 1
            steps.wait(f"wait-for-successor-{check}", result.pause)
            work = partial(self._check_successor, attempt_id, result, node, check)
            result = steps.run(f"check-successor-{check}", ReplacementResult, work)
        if result.record is None or result.called_off is not None:
            return result
        work = partial(self._begin_drain, attempt_id, result)
        return steps.run("begin-drain", ReplacementResult, work)

    def request(
        self, attempt_id: AttemptId, record: Retirement, node: str | None
    ) -> ReplacementResult:
        """Request the replacement; also after a request that failed or may have. `node` is as for
        `run`."""
        if node is None and record.facts.owner.kind is OwnerKind.LEEWAY:
            node = self._find_node(record)
        try:
            return self._context.retry(partial(self._decide_and_request, attempt_id, record, node))
        except _CLOUD_ERRORS as error:
            before_drain = record.kind in VOLUNTARY and record.drain_began_at is None
            waits = before_drain and record.replacement is Replacement.BEFORE
            pause = CHECK_SUCCESSOR_EVERY if waits else 0
            reason = REPLACEMENT_REFUSED(error=error)
            return ReplacementResult(False, record, reason, pause=pause)

    def _find_node(self, record: Retirement) -> str | None:
        with suppress(*API_ERRORS):
            _, node = self._context.node_of(record, by_name=True)
            return node.name if node else None
        return None

    def wait_for_answer(self, record: Retirement, result: ReplacementResult, steps: Steps) -> None:
        """Wait a moment for the answer to a request for nodes, so that the outcome names the
        successors and a group knows whether it has one. A node with few pods is drained before
        provision_nodes has launched, and nothing waits for the outcome."""
        if result.method is not Method.REQUEST_CAPACITY or not result.settled:
            return
        for check in range(1, ANSWER_CHECKS + 1):
            work = partial(self._capacity.is_answered, record)
            if steps.run(f"check-answer-{check}", bool, work) or check == ANSWER_CHECKS:
                return
            steps.wait(f"wait-for-answer-{check}", CHECK_ANSWER_EVERY)

    def _decide_and_request(
        self,
        attempt_id: AttemptId,
        record: Retirement,
        node: str | None,
        refused: Refusal | None = None,
    ) -> ReplacementResult:
        """Record the intended request, then make it. The record shows the intent of an earlier
        attempt, and the instance's state shows whether that attempt made the request."""
        decide = partial(self._intents.decided, node, refused)
        written = self._context.write(attempt_id, record, decide)
        if written is None:
            return _superseded()
        running, (decision, group) = written
        if decision.method is Method.REQUEST_CAPACITY:
            return self._request_capacity(running, decision, node)
        if node == "" and record.facts.owner.kind is OwnerKind.LEEWAY:
            return self._withdraw_promise(running, decision)
        if group is not None and decision.method in ACTING:
            try:
                requested = self._carry_out(attempt_id, running, decision, group)
            except CloudRefused as error:
                return self._decide_again(attempt_id, running, node, decision, group, error)
            if requested is None:
                return _superseded()
            running = requested
        method: Method = decision.method
        reason = decision.reason
        intent = running.replacement_intent
        if intent is not None and _is_carried_out(intent, group):
            method, reason = intent.method, intent.reason
            launched = (
                SUCCESSOR_LAUNCHED(
                    instance=one.instance, instance_type=one.instance_type, zone=one.zone
                ).and_then(one.why)
                for one in intent.successors
            )
            reason = reason.and_then(*launched)
        pause = CHECK_SUCCESSOR_EVERY if decision.before else 0
        return ReplacementResult(True, running, reason, method, pause=pause)

    def _request_capacity(
        self, running: Retirement, decision: ReplacementDecision, node: str | None
    ) -> ReplacementResult:
        """Request nodes of Leeway's pools. A request that fails is repeated before the next pass of
        the drain, and neither delays it nor prolongs it."""
        requested = self._capacity.request(running, node)
        reason = decision.reason
        if requested.problem is not None:
            reason = reason.and_then(requested.problem)
        pause = CHECK_SUCCESSOR_EVERY if decision.before else 0
        method = Method.REQUEST_CAPACITY
        return ReplacementResult(requested.written, running, reason, method, pause=pause)

    def _withdraw_promise(
        self, running: Retirement, decision: ReplacementDecision
    ) -> ReplacementResult:
        """Tell provision_nodes of an instance that has not joined and that EC2 takes back: it
        launches another one for the pods that wait for it. If that fails, provision_nodes sees the
        end of the instance in EC2, minutes later."""
        reason = decision.reason
        if running.kind not in VOLUNTARY:
            problem = self._capacity.request(running, "").problem
            reason = reason.and_then(problem) if problem else reason
        return ReplacementResult(True, running, reason, decision.method)

    def _decide_again(
        self,
        attempt_id: AttemptId,
        running: Retirement,
        node: str | None,
        decision: ReplacementDecision,
        group: GroupFacts,
        error: CloudRefused,
    ) -> ReplacementResult:
        """Decide with fresh facts after a refusal.

        The cached facts of the group or of the instance are outdated. Or they are right and the
        instance is detached by now, because the answer to an earlier request was lost.
        """
        with_launch_instances = decision.method is Method.LAUNCH
        if not group.from_cache and not with_launch_instances:
            raise error
        if decision.method is not Method.DETACH:
            without_intent = self._context.write(attempt_id, running, _without_intent)
            if without_intent is None:
                return _superseded()
            running = without_intent[0]
        launch = LAUNCH_REFUSED(error=error) if with_launch_instances else None
        refused = Refusal(launch, lacks_capacity=isinstance(error, GroupLacksCapacity))
        return self._decide_and_request(attempt_id, running, node, refused)

    def _carry_out(
        self,
        attempt_id: AttemptId,
        record: Retirement,
        decision: ReplacementDecision,
        group: GroupFacts,
    ) -> Retirement | None:
        """Make the request; return the record, with the successor if it is known, or None if a
        newer attempt has superseded this one."""
        instance = attempt_id.instance
        match decision.method:
            case Method.TERMINATE_IN_GROUP:
                self._groups.terminate_in_group(instance)
            case Method.DETACH:
                self._groups.detach(instance, group.name)
            case Method.LAUNCH:
                # No hook keeps the instance otherwise: it is terminated after the drain.
                ends = record.kind not in VOLUNTARY and group.terminate_hook_waits
                intent = record.replacement_intent
                repeated = intent is not None and intent.ending
                launched = {"successors": self._launch.launch(record), "ending": ends}
                update = partial(with_intent, launched)
                written = self._context.write(attempt_id, record, update)
                if written is None:
                    return None
                record = written[0]
                if ends:
                    # The finish step repeats this, and reports a refusal.
                    with suppress(CloudRefused):
                        self._launch.restore_capacity(record, repeated=repeated)
        return record

    def _check_successor(
        self, attempt_id: AttemptId, result: ReplacementResult, node: str | None, check: int
    ) -> ReplacementResult:
        """Check whether the successor is Ready; repeat a request that failed."""
        record = self._context.read(attempt_id)
        if record is None:
            return replace(result, record=None)
        now = self._context.clock.now()
        held = held_for(record, result.held, now)
        held = self._actions.send_heartbeats(attempt_id.instance, held)
        last = check >= SUCCESSOR_CHECKS
        if not result.settled:
            repeated = replace(self.request(attempt_id, record, node), held=held)
            return _without_successor(repeated, record) if last else repeated
        result = replace(result, record=record, held=held)
        try:
            status = self._context.retry(partial(self._tracker.track, record))
        except API_ERRORS:
            status = SuccessorStatus()
        if status.without_successor:
            reason = result.reason.and_then(*status.without_successor)
            return replace(result, reason=reason, pause=0)
        if status.ready:
            instances = ", ".join(one.instance for one in status.ready)
            reason = result.reason.and_then(SUCCESSOR_READY(instances=instances))
            return replace(result, successors=status.ready, reason=reason, pause=0)
        if status.failed:
            update = partial(with_intent, {"successors": (), "zones": ()})
            written = self._context.write(attempt_id, record, update)
            reason = result.reason.and_then(status.failed)
            result = replace(result, record=written[0] if written else None, reason=reason)
        if not last:
            return result
        return _without_successor(result, record)

    def _begin_drain(self, attempt_id: AttemptId, result: ReplacementResult) -> ReplacementResult:
        """Record that the drain begins now, and write its deadline to the node."""
        if result.record is None:
            return result
        begin = partial(self._begun, result.successors)
        written = self._context.write(attempt_id, result.record, begin)
        if written is None:
            return replace(result, record=None)
        record, _ = written
        try:
            self._context.retry(partial(self._update_marks, record))
        except API_ERRORS as error:
            reason = NODE_NOT_MARKED(error=error).and_then(result.reason)
            return replace(result, settled=False, record=record, reason=reason, pause=0)
        return replace(result, record=record)

    def _begun(
        self, successors: tuple[Successor, ...], record: Retirement
    ) -> tuple[Retirement, None]:
        if record.drain_began_at is not None:
            return record, None
        begun = start_drain(record, self._context.clock.now())
        return with_intent({"successors": successors}, begun) if successors else (begun, None)

    def _update_marks(self, record: Retirement) -> None:
        cluster, node = self._context.node_of(record)
        if node is not None:
            cluster.cordon(node.name, marks_of(record))


def _without_successor(result: ReplacementResult, record: Retirement) -> ReplacementResult:
    """Return the result of the last check: the drain begins without a Ready successor, or a return
    whose node may as well stay is called off."""
    minutes = SUCCESSOR_TIMEOUT.total_seconds() / 60
    if record.returns is not None and record.returns.optional:
        reason = RETURN_WITHOUT_SUCCESSOR(minutes=minutes)
        return replace(result, called_off=reason, pause=0)
    if not result.settled:
        return replace(result, pause=0)
    reason = result.reason.and_then(SUCCESSOR_TIMEOUT_PASSED(minutes=minutes))
    return replace(result, reason=reason, pause=0)


def _superseded() -> ReplacementResult:
    return ReplacementResult(settled=False, record=None, reason=SUPERSEDED())


def _without_intent(record: Retirement) -> tuple[Retirement, None]:
    return record.model_copy(update={"replacement_intent": None}), None


def _is_carried_out(intent: ReplacementIntent, group: GroupFacts | None) -> bool:
    """Whether the recorded intent was carried out. An instance that was detached has left its group
    or is leaving it; an instance that is still in service was not detached."""
    if group is None or intent.method is not Method.DETACH:
        return True
    return group.lifecycle_state in {"Detaching", "Detached"}
