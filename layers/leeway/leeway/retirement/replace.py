"""The durable steps of a retirement that request a replacement and wait for it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from leeway.execution.attempt import Phase
from leeway.execution.retrying import API_ERRORS
from leeway.instances.facts import GroupFacts, OwnerKind, in_service
from leeway.notices import NoticeKind
from leeway.policy.rules import SUCCESSOR_TIMEOUT, VOLUNTARY, Replacement
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.reasons import Reason, clause, counted
from leeway.retirement.context import Attempt, publish_problem, with_intent
from leeway.retirement.cordon import marks_of
from leeway.retirement.decide_replacement import (
    BY_GROUP,
    ReplacementDecision,
    decide_replacement,
    decide_without_group,
)
from leeway.retirement.disruption_budget import start_drain
from leeway.retirement.group_successors import (
    GroupLacksCapacity,
    SuccessorStatus,
    choose_zones,
    lacks_capacity,
    launch_successor,
    restore_capacity,
    track_in_group,
)
from leeway.retirement.hooks import HeldHook, with_new_hooks
from leeway.retirement.pool_successors import is_answered, request_nodes, track_nodes
from leeway.retirement.reasons import (
    NODE_KEPT,
    NODE_NOT_CORDONED,
    REPLACEMENT_DECIDED,
    REPLACEMENT_REFUSED,
    SUCCESSOR_NOT_READ,
    SUCCESSOR_NOT_READY,
    SUPERSEDED,
)
from leeway.retirement.record import (
    DETACHED,
    Method,
    ReplacementIntent,
    Retirement,
    Successor,
    ZoneChoice,
)

CHECK_SUCCESSOR_EVERY = 10
"""Seconds between two checks of the successor, in which the execution is suspended."""

SUCCESSOR_CHECKS = int(SUCCESSOR_TIMEOUT.total_seconds()) // CHECK_SUCCESSOR_EVERY

CHECK_ANSWER_EVERY = 5
"""Seconds between two checks of the answer after the drain, in which the execution is suspended."""

ANSWER_CHECKS = 5
"""How often the answer is checked after the drain. A run of provision_nodes that has the request
takes some seconds; one that a queue of others delays reports its launches itself."""

_CLOUD_ERRORS = (CloudUnavailable, CloudRefused)


ACTING = BY_GROUP | {Method.REQUEST_CAPACITY}
"""The methods with a request, which the record announces."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """AWS has refused a request: the next decision reads fresh facts.

    - `launch`: why `LaunchInstances` was refused; empty if the request was another one.
    - `lacks_capacity`: EC2 has no capacity for the group in any zone.
    """

    launch: str
    lacks_capacity: bool


@dataclass(frozen=True, slots=True)
class ReplacementResult:
    """The result of a replacement step.

    `settled` says that the request succeeded, or that none is needed. There is no record if a newer
    attempt has superseded this one. `pause` is how many seconds to wait before the next check of
    the successor, 0 if the retirement does not wait for it (any longer). `held` are the lifecycle
    hooks that are held open meanwhile. `unread`: the last check failed. `called_off` is why a
    return of capacity ends here: its node may as well stay, and no successor takes pods in time.
    """

    settled: bool
    record: Retirement | None
    reason: Reason
    method: Method = Method.NOTHING
    successors: tuple[Successor, ...] = ()
    pause: int = 0
    held: tuple[HeldHook, ...] = ()
    called_off: Reason | None = None
    unread: bool = False


def wait_for_successor(
    attempt: Attempt, record: Retirement, node: str | None, result: ReplacementResult
) -> ReplacementResult:
    """Wait until the successor takes pods, if there is time: after that the drain may begin. `node`
    is as for `request_replacement`. A node that follows its template stays until a read says that
    its successor takes pods: if too many checks fail, the result has a `pause` still."""
    if record.kind not in VOLUNTARY:
        return result
    check = unread = 0
    while result.record is not None and result.pause and unread < SUCCESSOR_CHECKS:
        check += 1
        attempt.steps.wait(f"wait-for-successor-{check}", result.pause)
        last = check - unread >= SUCCESSOR_CHECKS
        work = partial(_check_successor, attempt, result, node, last)
        result = attempt.steps.run(f"check-successor-{check}", ReplacementResult, work)
        unread += result.unread and record.follows_template
    if result.record is None or result.called_off is not None:
        return result
    if result.pause:
        failed = f"{unread} of {check} reads failed"
        return replace(result, reason=SUCCESSOR_NOT_READ(error=failed))
    work = partial(_begin_drain, attempt, result)
    return attempt.steps.run("begin-drain", ReplacementResult, work)


def request_replacement(
    attempt: Attempt, record: Retirement, node: str | None
) -> ReplacementResult:
    """Request the replacement; also after a request that failed or may have. `node` is the name of
    the node, empty if there is none, None if the cluster could not be read."""
    if node is None and record.facts.owner.kind is OwnerKind.LEEWAY:
        node = _find_node(attempt, record)
    again = attempt.again()
    try:
        while True:
            with again:
                return _decide_and_request(attempt, record, node)
    except _CLOUD_ERRORS as error:
        before_drain = record.kind in VOLUNTARY and record.drain_began_at is None
        waits = before_drain and record.replacement is Replacement.BEFORE
        pause = CHECK_SUCCESSOR_EVERY if waits else 0
        reason = REPLACEMENT_REFUSED(
            f"AWS did not carry out the request for the successor: {error}. "
            "Leeway retries until the deadline."
        )
        return ReplacementResult(False, record, reason, pause=pause)


def _find_node(attempt: Attempt, record: Retirement) -> str | None:
    with suppress(*API_ERRORS):
        _, node = attempt.node_of(record, by_name=True)
        return node.name if node else None
    return None


def wait_for_answer(attempt: Attempt, record: Retirement, result: ReplacementResult) -> None:
    """Wait a moment for the answer to a request for nodes, so that the outcome names the
    successors and a group knows whether it has one. A node with few pods is drained before
    provision_nodes has launched, and nothing waits for the outcome."""
    if result.method is not Method.REQUEST_CAPACITY or not result.settled:
        return
    for check in range(1, ANSWER_CHECKS + 1):
        work = partial(is_answered, attempt, record)
        if attempt.steps.run(f"check-answer-{check}", bool, work) or check == ANSWER_CHECKS:
            return
        attempt.steps.wait(f"wait-for-answer-{check}", CHECK_ANSWER_EVERY)


def _decide_and_request(
    attempt: Attempt,
    record: Retirement,
    node: str | None,
    refused: Refusal | None = None,
) -> ReplacementResult:
    """Record the intended request, then make it. The record shows the intent of an earlier
    attempt, and the instance's state shows whether that attempt made the request."""
    read = {record.version: _group_of(attempt, record, refused)}
    written = attempt.write(record, partial(decide_intent, attempt, node, refused, read))
    if written is None:
        return _superseded()
    running, (decision, group) = written
    if decision.method is Method.REQUEST_CAPACITY:
        return _request_capacity(attempt, running, decision, node)
    if node == "" and record.facts.owner.kind is OwnerKind.LEEWAY:
        return _withdraw_promise(attempt, running, decision)
    if group is not None and _must_find_node_first(running, node, decision.method):
        reason = REPLACEMENT_REFUSED(
            f"Group {group.name} launches the successor only if it ends the instance. EC2 may only "
            "reboot it, and Leeway cannot read its node yet. Leeway retries until the deadline."
        )
        return ReplacementResult(False, running, reason)
    if group is not None and decision.method in ACTING:
        try:
            requested = _carry_out(attempt, running, decision, group)
        except CloudRefused as error:
            return _decide_again(attempt, running, node, decision, group, error)
        if requested is None:
            return _superseded()
        running = requested
    method: Method = decision.method
    reason = decision.reason
    intent = running.replacement_intent
    if intent is not None and _is_carried_out(intent, group):
        method, reason = intent.method, intent.reason
        launched = (
            f"Successor {one.instance} is of type {one.instance_type} in zone {one.zone}. {one.why}"
            for one in intent.successors
        )
        reason = reason.and_then(*launched)
    if running.follows_template and method is not Method.LAUNCH:
        kept = NODE_KEPT(reason.message)
        return ReplacementResult(True, running, reason, method, called_off=kept)
    pause = CHECK_SUCCESSOR_EVERY if decision.before else 0
    return ReplacementResult(True, running, reason, method, pause=pause)


def _request_capacity(
    attempt: Attempt, running: Retirement, decision: ReplacementDecision, node: str | None
) -> ReplacementResult:
    """Request nodes of Leeway's pools. A request that fails is repeated before the next pass of
    the drain, and neither delays it nor prolongs it."""
    requested = request_nodes(attempt, running, node)
    reason = decision.reason
    if requested.problem is not None:
        reason = reason.and_then(requested.problem)
    pause = CHECK_SUCCESSOR_EVERY if decision.before else 0
    method = Method.REQUEST_CAPACITY
    return ReplacementResult(requested.written, running, reason, method, pause=pause)


def _withdraw_promise(
    attempt: Attempt, running: Retirement, decision: ReplacementDecision
) -> ReplacementResult:
    """Tell provision_nodes of an instance that has not joined and that EC2 takes back: it
    launches another one for the pods that wait for it. If that fails, provision_nodes sees the
    end of the instance in EC2, minutes later."""
    reason = decision.reason
    if running.kind not in VOLUNTARY:
        problem = request_nodes(attempt, running, "").problem
        reason = reason.and_then(problem) if problem else reason
    return ReplacementResult(True, running, reason, decision.method)


def _decide_again(
    attempt: Attempt,
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
        without_intent = attempt.write(running, _without_intent)
        if without_intent is None:
            return _superseded()
        running = without_intent[0]
    launch = f"LaunchInstances was refused: {error}." if with_launch_instances else ""
    refused = Refusal(launch, lacks_capacity=isinstance(error, GroupLacksCapacity))
    return _decide_and_request(attempt, running, node, refused)


def _carry_out(
    attempt: Attempt,
    record: Retirement,
    decision: ReplacementDecision,
    group: GroupFacts,
) -> Retirement | None:
    """Make the request; return the record, with the successor if it is known, or None if a
    newer attempt has superseded this one."""
    instance = attempt.id.instance
    match decision.method:
        case Method.TERMINATE_IN_GROUP:
            attempt.ports.groups.terminate_in_group(instance)
        case Method.DETACH:
            cluster = attempt.id.cluster
            attempt.ports.table.put(DETACHED, group.name, cluster=cluster, instance=instance)
            attempt.ports.groups.detach(instance, group.name)
        case Method.LAUNCH:
            # No hook keeps the instance otherwise: it is terminated after the drain.
            ends = record.kind not in VOLUNTARY and group.terminate_hook_waits
            intent = record.replacement_intent
            repeated = intent is not None and intent.ending
            successors = launch_successor(attempt, record)
            launched = attempt.update(record, successors=successors, ending=ends)
            if launched is None:
                return None
            record = launched
            if ends:
                # The finish step repeats this, and reports a refusal.
                with suppress(CloudRefused, ClusterRefused, ClusterUnavailable):
                    restore_capacity(attempt, record, repeated=repeated)
    return record


def _check_successor(
    attempt: Attempt, result: ReplacementResult, node: str | None, last: bool
) -> ReplacementResult:
    """Check whether the successor takes pods; repeat a request that failed. The `last` check ends
    the wait, unless the node stays for as long as the successor cannot be read."""
    record = attempt.read()
    if record is None:
        return replace(result, record=None)
    now = attempt.now()
    held = with_new_hooks(result.held, record.hooks, record.hooks_wait_since, now)
    held = attempt.hooks.send_heartbeats(attempt.id.instance, held)
    if not result.settled:
        repeated = replace(request_replacement(attempt, record, node), held=held)
        return _without_successor(repeated, record) if last else repeated
    result = replace(result, record=record, held=held)
    try:
        status = _track_successor(attempt, record)
    except API_ERRORS as error:
        what = SUCCESSOR_NOT_READ(error=clause(f"{type(error).__name__}: {error}"))
        publish_problem(attempt, what, node or "")
        status, result = SuccessorStatus(), replace(result, unread=True)
    else:
        if result.unread:
            publish_problem(attempt, None, node or "")
        result = replace(result, unread=False)
    if status.without_successor:
        reason = result.reason.and_then(*status.without_successor)
        return replace(result, reason=reason, pause=0)
    if status.ready:
        instances = ", ".join(one.instance for one in status.ready)
        reason = result.reason.and_then(f"Successor {instances} is ready for pods.")
        return replace(result, successors=status.ready, reason=reason, pause=0)
    if status.failed and record.follows_template:
        reason = SUCCESSOR_NOT_READY(why=status.failed)
        return replace(result, called_off=reason, pause=0)
    if status.failed:
        written = attempt.update(record, successors=(), zones=())
        reason = result.reason.and_then(status.failed)
        result = replace(result, record=written, reason=reason)
    if not last:
        return result
    return _without_successor(result, record)


def _track_successor(attempt: Attempt, record: Retirement) -> SuccessorStatus:
    intent = record.replacement_intent
    if intent is None:
        return SuccessorStatus()
    again = attempt.again()
    while True:
        with again:
            cluster = attempt.ports.open_cluster(record.facts.cluster)
            if intent.method is Method.REQUEST_CAPACITY:
                return track_nodes(attempt, record, cluster)
            return track_in_group(attempt, intent, cluster, ends_late=not record.follows_template)


def _begin_drain(attempt: Attempt, result: ReplacementResult) -> ReplacementResult:
    """Record that the drain begins now, and write its deadline to the node."""
    if result.record is None:
        return result
    begin = partial(_begun, attempt, result.successors)
    written = attempt.write(result.record, begin)
    if written is None:
        return replace(result, record=None)
    record, _ = written
    try:
        _update_marks(attempt, record)
    except API_ERRORS as error:
        reason = NODE_NOT_CORDONED(
            f"Leeway cannot write the deadline to the node's annotation: {error}. It retries."
        ).and_then(result.reason)
        return replace(result, settled=False, record=record, reason=reason, pause=0)
    return replace(result, record=record)


def _begun(
    attempt: Attempt, successors: tuple[Successor, ...], record: Retirement
) -> tuple[Retirement, None]:
    if record.drain_began_at is not None:
        return record, None
    begun = start_drain(record, attempt.now())
    return with_intent({"successors": successors}, begun) if successors else (begun, None)


def _update_marks(attempt: Attempt, record: Retirement) -> None:
    again = attempt.again()
    while True:
        with again:
            cluster, node = attempt.node_of(record)
            if node is not None:
                cluster.cordon(node.name, marks_of(record))
            return


def _without_successor(result: ReplacementResult, record: Retirement) -> ReplacementResult:
    """Return the result of the last check: the drain begins without a successor that takes pods, or
    a return whose node may as well stay is called off."""
    minutes = SUCCESSOR_TIMEOUT.total_seconds() / 60
    if record.follows_template and result.settled and result.unread:  # it may take pods
        return result
    if record.follows_template and result.settled:
        why = f"No successor was ready for pods within {counted(minutes, 'minute')}."
        return replace(result, called_off=SUCCESSOR_NOT_READY(why=why), pause=0)
    if record.returns is not None and record.returns.optional:
        within = counted(minutes, "minute")
        reason = NODE_KEPT(f"No replacement was ready for all of its pods within {within}.")
        return replace(result, called_off=reason, pause=0)
    if not result.settled:
        return replace(result, pause=0)
    reason = result.reason.and_then(
        f"No successor was ready for pods within {counted(minutes, 'minute')}; the drain begins "
        "without it."
    )
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


def decide_intent(
    attempt: Attempt,
    node: str | None,
    refused: Refusal | None,
    read: Mapping[int, GroupFacts | None],
    record: Retirement,
) -> tuple[Retirement, tuple[ReplacementDecision, GroupFacts | None]]:
    """Decide how the instance is replaced, and add the intent to the record. `node` is the name
    of its node, empty if there is none, None if the cluster could not be read; `read` is what
    `_group_of` returned for a version of the record."""
    now = attempt.now()
    running = record.model_copy(
        update={
            "phase": Phase.RUNNING,
            "replacement_began_at": record.replacement_began_at or now,
        }
    )
    known, owner, when = record.replacement_intent, record.facts.owner, _replaced_when(record)
    decided = _decided_without_group(record)
    if decided is not None and owner.kind is OwnerKind.LEEWAY:
        return _decided_for_pool(attempt, running, decided, node)
    if decided is not None and known is None:
        return running, (decided, None)
    version = record.version
    group = read[version] if version in read else _group_of(attempt, record, refused)
    requested = known.method if known else None
    decide = partial(decide_replacement, record.kind, when, owner, group, requested)
    may_use_pools = partial(_may_use_pools, attempt, record, node)
    launch_refused = refused.launch if refused else ""
    lacks_capacity = refused is not None and refused.lacks_capacity
    decision = decide(launch_refused, lacks_capacity and may_use_pools())
    zones: tuple[ZoneChoice, ...] = ()
    is_new = known is None or known.method != decision.method
    if group is not None and decision.method is Method.LAUNCH and is_new:
        zones = choose_zones(attempt, record, group)
        if not zones:
            decision = decide(
                (
                    "EC2 reported within the last minutes that no zone of group "
                    f"{group.name} has capacity."
                ),
                may_use_pools(),
            )
    elif (
        group is not None
        and is_new
        and not launch_refused
        and _should_use_pools(attempt, record, node, group, decision.method)
    ):
        decision = decide(
            (
                "EC2 reported within the last minutes that no zone of group "
                f"{group.name} has capacity."
            ),
            True,
        )
    if group is None or decision.method not in ACTING:
        return running, (decision, group)
    if _must_find_node_first(record, node, decision.method):
        return running, (decision, group)
    intent = _intent(attempt, record, decision, group, zones)
    return running.model_copy(update={"replacement_intent": intent}), (decision, group)


def _must_find_node_first(record: Retirement, node: str | None, method: Method) -> bool:
    """Whether a group must not end an instance yet: its scheduled change may be a reboot, after
    which the pods start again, and only pods of a node that was read can be drained before."""
    unread = record.kind is NoticeKind.SCHEDULED_CHANGE and node is None
    known = record.replacement_intent
    requested = known is not None and known.method is method
    return unread and method is Method.TERMINATE_IN_GROUP and not requested


def _should_use_pools(
    attempt: Attempt, record: Retirement, node: str | None, group: GroupFacts, method: Method
) -> bool:
    """Whether Leeway's pools replace a node that the group would replace at a time of its own,
    because EC2 has just had no capacity for it. Only a cluster that allows it costs a read."""
    if method not in BY_GROUP or not _may_use_pools(attempt, record, node):
        return False
    return lacks_capacity(attempt, record, group)


def _may_use_pools(attempt: Attempt, record: Retirement, node: str | None) -> bool:
    """Whether Leeway's pools may replace the node of a group. False if the policy cannot be
    read, or if the node is not known: the request names it."""
    with suppress(*API_ERRORS):
        return (
            bool(node)
            and attempt.ports.policies.policy_of(record.facts.cluster).groups_may_use_pools
        )
    return False


def _decided_for_pool(
    attempt: Attempt, running: Retirement, decision: ReplacementDecision, node: str | None
) -> tuple[Retirement, tuple[ReplacementDecision, None]]:
    """Add the intent for an instance that Leeway launched. If it has no node, it has no pods
    that need another one."""
    if decision.method is not Method.REQUEST_CAPACITY:
        return running, (decision, None)
    if node is None:
        return running, (decision, None)
    if not node:
        reason = REPLACEMENT_DECIDED(
            f"The instance of Leeway's pool {running.facts.owner.name} has "
            "no node, so no pod needs another place."
        )
        return running, (ReplacementDecision(Method.NOTHING, reason), None)
    intent = _intent(attempt, running, decision, None, ())
    return running.model_copy(update={"replacement_intent": intent}), (decision, None)


def _intent(
    attempt: Attempt,
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
        requested_at=attempt.now(),
        group=group.name if group else "",
        zones=zones,
        attempt=record.attempt,
        units=group.units if group else 1,
        desired=group.desired + group.units if group else 0,
        to_restore=to_restore,
    )


def _replaced_when(record: Retirement) -> Replacement:
    began = record.drain_began_at is not None
    waits = record.replacement is Replacement.BEFORE
    return Replacement.WITH if began and waits else record.replacement


def _decided_without_group(record: Retirement) -> ReplacementDecision | None:
    # receive_notice starts a retirement of another owner's instance only if the policy says so.
    return decide_without_group(record.kind, _replaced_when(record), record.facts.owner)


def _group_of(attempt: Attempt, record: Retirement, refused: Refusal | None) -> GroupFacts | None:
    """Read the instance's group, if the decision needs it. For an instance that EC2 takes back and
    that has no other request or hook, the cached rules of its group are sufficient."""
    owner = record.facts.owner
    if refused is not None:
        return attempt.ports.groups.facts(record.instance)
    is_alone = owner.kind is OwnerKind.LEEWAY or record.replacement_intent is None
    if is_alone and _decided_without_group(record) is not None:
        return None
    untouched = record.replacement_intent is None and not record.hooks
    grouped = owner.kind is OwnerKind.AUTO_SCALING_GROUP
    if record.ec2_terminates and untouched and grouped:
        # Refused if the group is gone or may not be read: then read the instance itself.
        with suppress(CloudRefused):
            return in_service(attempt.group_cache.rules_of(owner.name))
    return attempt.ports.groups.facts(record.instance)
