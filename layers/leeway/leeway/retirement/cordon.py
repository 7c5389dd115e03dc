"""The first durable steps of a retirement: the disruption budget, and the cordon of the node."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

from leeway.execution.attempt import Phase
from leeway.execution.retrying import API_ERRORS, LONGEST_RETRY, Conflicts
from leeway.instances.facts import GroupFacts, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.repair import too_many, why_unhealthy
from leeway.policy.rules import (
    BUDGET_TIMEOUT,
    SUCCESSOR_TIMEOUT,
    VOLUNTARY,
    Action,
    ClusterPolicy,
    Replacement,
)
from leeway.ports.kubernetes import Cluster, ClusterRefused, ClusterUnavailable, Marks
from leeway.ports.kubernetes_objects import (
    DO_NOT_CONSOLIDATE,
    DO_NOT_DISRUPT,
    PROTECTS_POD,
    Node,
    Pod,
)
from leeway.reasons import Reason, clause, counted
from leeway.retirement.context import Attempt, publish_problem
from leeway.retirement.decide_replacement import why_group_replaces, why_no_successor_first
from leeway.retirement.decide_surge import SurgeAction, SurgeDecision
from leeway.retirement.disruption_budget import (
    LEDGER,
    BudgetDecision,
    BudgetVerdict,
    decide_disruption,
    decide_without_node,
    decline_after_timeout,
    is_voluntary,
    read_ledger,
    retry_pause,
)
from leeway.retirement.plan import pause_before_next_pass
from leeway.retirement.pods import keeps_node_in_use, read_answer
from leeway.retirement.reasons import (
    DISRUPTION_NOT_DECIDED,
    INSTANCE_ENTERS_SERVICE,
    NODE_KEPT,
    NODE_NOT_CORDONED,
    NODE_NOT_FOUND,
    NODE_PROTECTED,
    REPAIRS_HELD,
    REPLACEMENT_DECIDED,
    RETIREMENT_CANCELLED,
)
from leeway.retirement.record import INTERRUPTIONS, Retirement, ReturnTerms, latest_end
from leeway.retirement.surge import preview, why_not_read
from leeway.switched import switch_of, switched_block


class Course(StrEnum):
    """How a retirement continues after its cordon step."""

    RETIRE = "retire"
    CORDON = "cordon"
    WAIT = "wait"
    DECLINE = "decline"
    DRY_RUN = "dry-run"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class CordonResult:
    """The result of a retirement's cordon step.

    - `settled`: the node is in the state that the course requires, or does not exist (`node` is
      empty).
    - `record`: the latest record; None if a newer attempt has superseded this one.
    - `problem`: why the step is not settled, or why the retirement waits or is declined.
    - `pause`: seconds to wait before the step is repeated; 0 if the next step runs meanwhile.
    """

    settled: bool
    record: Retirement | None = None
    node: str = ""
    node_uid: str = ""
    cordoned_at: datetime | None = None
    problem: Reason | None = None
    course: Course = Course.RETIRE
    pause: int = 0

    @property
    def known_node(self) -> str | None:
        """The name of the node, empty if the instance has none, None if it is not known."""
        return self.node if self.node or self.settled else None


def marks_of(record: Retirement) -> Marks:
    """Return the marks of a retirement. A deadline that counts from the begin of the drain is left
    out until then."""
    known = record.drain_began_at is not None or not record.deadline_from_begin
    deadline = record.deadline.isoformat() if known and record.deadline else None
    return Marks(record.kind, record.attempt, deadline)


FIND_LATE_NODE_EVERY = timedelta(seconds=5)
"""Between two searches for the node of an interrupted instance that may still be booting."""

FIND_NODE_EVERY = 10
NODE_SEARCHES = int(SUCCESSOR_TIMEOUT.total_seconds()) // FIND_NODE_EVERY
"""Seconds between two searches for the node of an instance that may be booting, in which the
execution is suspended, and how many searches there are."""

SUPERSEDED_ATTEMPT_ENDS = timedelta(seconds=20)
"""How long an attempt may continue a step after a newer attempt has superseded it."""


def wait_for_budget(attempt: Attempt, result: CordonResult) -> CordonResult:
    """Wait for the disruption budget after the first cordon step, if it does, and remove the marks
    again of a node that stays."""
    request = 0
    while result.pause and result.record is not None:
        request += 1
        work = partial(_request_again, attempt)
        attempt.steps.wait(f"wait-for-disruption-budget-{request}", result.pause)
        result = attempt.steps.run(f"request-disruption-{request}", CordonResult, work)
    undone = result.course is Course.UNDO and result.record is not None
    if undone or (result.course is Course.DECLINE and result.node):
        pause = int(SUPERSEDED_ATTEMPT_ENDS.total_seconds())
        # A superseded attempt may have marked the node after the marks were removed.
        attempt.steps.wait("wait-for-superseded-attempt", pause)
        repeat = partial(_remove_marks_again, attempt, result)
        result = attempt.steps.run("remove-marks-again", CordonResult, repeat)
    return result


def _request_again(attempt: Attempt) -> CordonResult:
    """Decide and cordon, after a step that has published why it could not."""
    result = decide_and_cordon(attempt)
    if result.problem is None and result.record is not None:
        publish_problem(attempt, None, result.node)
    return result


def decide_and_cordon(attempt: Attempt) -> CordonResult:
    """Ask for the disruption budget and cordon the node, or return another course."""
    record = attempt.read()
    if record is None:
        return CordonResult(settled=False)
    if record.phase is Phase.UNDOING:
        undo = CordonResult(True, record, course=Course.UNDO)
        return _remove_marks(attempt, undo)
    policy = attempt.ports.policies.policy_of(record.facts.cluster)
    if policy.dry_run:
        return _dry_run(attempt, record)
    if record.drain_began_at is None and is_voluntary(record, attempt.now()):
        decision = request_disruption(attempt, record, policy)
        if decision.verdict is not BudgetVerdict.GO:
            return _wait_or_decline(attempt, record, decision)
        return _confirmed(attempt, try_cordon(attempt, record))
    if record.drain_began_at is None and record.kind in VOLUNTARY:
        # It waited until it can wait no longer. A switch may have taken the node meanwhile.
        switched = _decide_switched(attempt, record, policy)
        if switched is not None and switched.verdict is BudgetVerdict.DECLINE:
            return _wait_or_decline(attempt, record, switched)
    return try_cordon(attempt, record, just_read=True)


def _confirmed(attempt: Attempt, cordoned: CordonResult) -> CordonResult:
    """Confirm that a node may be given back, now that it gets no new pods; else uncordon it and
    end the retirement. Other retirements are as they are."""
    record = cordoned.record
    if record is None or record.returns is None or record.replacement_intent is not None:
        return cordoned
    reason = cordoned.problem
    if record.returns.without_node:
        if cordoned.settled and not cordoned.node:
            return cordoned
        if cordoned.node:
            reason = NODE_KEPT(f"Instance {record.instance} has Node {cordoned.node} again.")
    elif cordoned.settled and cordoned.node:
        try:
            reason = _why_kept(attempt, record, record.returns)
        except API_ERRORS as error:
            reason = NODE_KEPT(
                f"Leeway could not confirm that node {cordoned.node} may be "
                f"given back: {clause(error)}."
            )
        if reason is None:
            return cordoned
    kept = replace(cordoned, settled=False, problem=reason, course=Course.DECLINE)
    return _remove_marks(attempt, kept)


def _why_kept(attempt: Attempt, record: Retirement, terms: ReturnTerms) -> Reason | None:
    again = attempt.again()
    while True:
        with again:
            cluster, node = attempt.node_of(record)
            if node is not None:
                surges = _surges_of(attempt, record)
                return confirm_return(cluster, node, terms, attempt.now(), surges)
            return NODE_KEPT(
                f"Leeway could not confirm that node {record.instance} may be "
                "given back: it has no Node."
            )


type AskSurge = Callable[[Pod, tuple[str, ...]], SurgeDecision | None]
"""Decides about the workload of a pod that these budgets keep; None if nobody asked for surges."""


def _surges_of(attempt: Attempt, record: Retirement) -> AskSurge:
    """Return what decides whether the workload of a blocked pod gets one more pod."""
    cluster = record.facts.cluster

    def ask(pod: Pod, budgets: tuple[str, ...]) -> SurgeDecision | None:
        by_policy = attempt.ports.policies.policy_of(cluster).surges
        workloads = attempt.ports.open_workloads(cluster)
        try:
            return preview(workloads, by_policy, pod.workload, budgets)
        except (ClusterRefused, ClusterUnavailable) as error:
            reason = why_not_read(pod.workload, error)
            return SurgeDecision(SurgeAction.LEAVE, reason) if by_policy else None

    return ask


def uncordon(attempt: Attempt, cordoned: CordonResult, reason: Reason) -> CordonResult:
    """Uncordon a node that was to be given back, and that may as well stay."""
    record = attempt.read()
    if record is None:
        return CordonResult(settled=False)
    kept = replace(cordoned, settled=False, record=record, problem=reason, course=Course.DECLINE)
    return _remove_marks(attempt, kept)


def wait_for_node(attempt: Attempt, cordoned: CordonResult) -> CordonResult:
    """Wait for a node that was not found, before anything is requested from the instance's
    group. A booting machine joins within minutes; a machine that never joins may not belong to
    the cluster. The node is cordoned when it joins."""
    search = 0
    while never_joined(cordoned) and search < NODE_SEARCHES:
        search += 1
        attempt.steps.wait(f"wait-for-node-{search}", FIND_NODE_EVERY)
        work = partial(_find_node, attempt, by_name=search < NODE_SEARCHES)
        cordoned = attempt.steps.run(f"find-node-{search}", CordonResult, work)
    return cordoned


def _find_node(attempt: Attempt, by_name: bool) -> CordonResult:
    record = attempt.read()
    if record is None:
        return CordonResult(settled=False)
    return try_cordon(attempt, record, by_name=by_name)


def find_late_node(
    attempt: Attempt, cordoned: CordonResult, record: Retirement | None, replaced: bool
) -> CordonResult:
    """Search again for a node that was not found, because a booting machine may have joined.

    If the retirement waited for a successor, pods may run on the node by now. In an
    interruption the machine may join within the two minutes, and would receive new pods.
    """
    search = 0
    if record is None or record.kind not in VOLUNTARY | INTERRUPTIONS:
        return cordoned
    while cordoned.settled and not cordoned.node:
        search += 1
        work = partial(_find_late_node, attempt, record, replaced)
        cordoned = attempt.steps.run(f"find-late-node-{search}", CordonResult, work)
        if not cordoned.pause:
            break
        attempt.steps.wait(f"wait-for-late-node-{search}", cordoned.pause)
    return cordoned


def _find_late_node(attempt: Attempt, record: Retirement, replaced: bool) -> CordonResult:
    # Interruptions come by the hundred, and the first search has just listed all nodes.
    result = try_cordon(attempt, record, by_name=record.kind in INTERRUPTIONS)
    latest = result.record
    if result.node or not result.settled or latest is None or latest.deadline is None:
        return result
    if not replaced or not _may_still_join(latest):
        return result
    left = latest.deadline - attempt.now()
    pause = min(FIND_LATE_NODE_EVERY, left)
    return replace(result, pause=max(0, int(pause.total_seconds())))


def try_cordon(
    attempt: Attempt,
    record: Retirement,
    just_read: bool = False,
    by_name: bool = False,
) -> CordonResult:
    """Cordon the node; this may be repeated. A record that was just read is not read again
    before the first try, so that the cordon is not delayed."""
    again = attempt.again()
    try:
        while True:
            with again:
                current = record if just_read else attempt.current()
                just_read = False
                if current is None:
                    return CordonResult(settled=False)
                course = course_of(current)
                cluster, node = attempt.node_of(current, by_name)
                if node is None:
                    cluster_name, kind = current.facts.cluster, current.kind
                    problem = NODE_NOT_FOUND(
                        instance=current.instance, cluster=cluster_name, kind=kind
                    )
                    return CordonResult(True, current, problem=problem, course=course)
                cluster.cordon(node.name, marks_of(current))
                cordoned_at = attempt.now()
                return CordonResult(True, current, node.name, node.uid, cordoned_at, course=course)
    except API_ERRORS as error:
        problem = NODE_NOT_CORDONED(
            f"Leeway cannot cordon the node: {f'{type(error).__name__}: {error}'}."
        )
        return _not_cordoned(attempt, record, problem)


def retry_cordon(attempt: Attempt, record: Retirement) -> CordonResult:
    """Cordon the node after a try that failed."""
    result = try_cordon(attempt, record)
    if result.settled:
        publish_problem(attempt, None, result.node)
    return result


def _not_cordoned(attempt: Attempt, record: Retirement, problem: Reason) -> CordonResult:
    """Return the result of a cordon that failed. A retirement continues without it and retries
    it in the drain; a retirement that only cordons retries it until its time is up."""
    publish_problem(attempt, problem)
    now, course = attempt.now(), course_of(record)
    latest = min(latest_end(record), record.noticed_at + BUDGET_TIMEOUT)
    pause = 0
    if course is Course.CORDON and now < latest:
        until_next = pause_before_next_pass(record.noticed_at, now, deadline=None)
        pause = int(max(until_next.total_seconds(), LONGEST_RETRY))
    return CordonResult(False, record, problem=problem, course=course, pause=pause)


def _remove_marks(attempt: Attempt, result: CordonResult) -> CordonResult:
    """Remove the marks of this attempt and earlier ones from the node. Errors are raised, so
    that the step repeats: otherwise a node that stays would remain cordoned. A node that a
    policy had cordoned before stays cordoned."""
    if result.record is None or result.record.stays_cordoned:
        return result
    cluster, node = attempt.node_of(result.record)
    if node is None:
        return result
    cluster.release(node.name, attempt.id.attempt)
    return replace(result, node=node.name, node_uid=node.uid)


def _dry_run(attempt: Attempt, record: Retirement) -> CordonResult:
    again = attempt.again()
    try:
        while True:
            with again:
                _, node = attempt.node_of(record)
                name, uid = (node.name, node.uid) if node else ("", "")
                return CordonResult(True, record, name, uid, course=Course.DRY_RUN)
    except API_ERRORS as error:
        problem = NODE_NOT_CORDONED(f"Leeway cannot read the node: {error}.")
        return CordonResult(False, record, problem=problem, course=Course.DRY_RUN)


def _wait_or_decline(
    attempt: Attempt, record: Retirement, decision: BudgetDecision
) -> CordonResult:
    reason = decision.reason
    if decision.verdict is BudgetVerdict.DECLINE:
        declined = CordonResult(False, record, problem=reason, course=Course.DECLINE)
        return _remove_marks_if_staying(attempt, declined)
    if reason != record.reason:  # reconcile has logged it once
        attempt.ports.telemetry.waiting(record, reason)
    publish_problem(attempt, reason)
    with suppress(*API_ERRORS):  # the next request tries it again
        _remove_marks_if_staying(attempt, CordonResult(False, record))
    pause = retry_pause(record, attempt.now())
    return CordonResult(
        settled=False,
        record=record,
        problem=reason,
        course=Course.WAIT,
        pause=max(1, int(pause.total_seconds())),
    )


def _remove_marks_if_staying(attempt: Attempt, result: CordonResult) -> CordonResult:
    """Remove the marks from a node that stays, at least for now. An earlier attempt may have
    marked it, or this one before its function died. The marks stay if a successor is requested
    or the group is already terminating the instance."""
    record = result.record
    if record is None or record.replacement_intent is not None:
        return result
    if record.attempt == 1 and not _is_marked(attempt, record):
        return result
    if _is_leaving(attempt):
        return result
    return _remove_marks(attempt, result)


def _is_marked(attempt: Attempt, record: Retirement) -> bool:
    _, node = attempt.node_of(record)
    return node is not None and node.marked


def _remove_marks_again(attempt: Attempt, result: CordonResult) -> CordonResult:
    record = attempt.read()
    if record is None:
        return CordonResult(settled=False)
    return _remove_marks(attempt, replace(result, record=record))


def _is_leaving(attempt: Attempt) -> bool:
    group = attempt.ports.groups.facts(attempt.id.instance)
    return group is not None and not group.stays_in_group


def _may_still_join(record: Retirement) -> bool:
    """Whether the instance runs until EC2 takes it back: neither its group nor Leeway terminates it
    earlier."""
    return record.kind in INTERRUPTIONS and not record.hooks and record.replacement_intent is None


def never_joined(cordoned: CordonResult) -> bool:
    """Whether nothing shows that the instance is a node of the cluster, and nothing is requested
    from its group yet. A voluntary retirement can wait with that."""
    record = cordoned.record
    if record is None or not cordoned.settled or cordoned.node:
        return False
    untouched = record.replacement_intent is None and not record.facts.joined
    return record.kind in VOLUNTARY and untouched


def course_of(record: Retirement) -> Course:
    """Return the course of a retirement that may begin."""
    return Course.CORDON if record.action is Action.CORDON else Course.RETIRE


MOST_TRIED = 100
"""Pods of a node whose eviction is tried; a node of EC2 seldom has more."""


def confirm_return(
    cluster: Cluster, node: Node, terms: ReturnTerms, now: datetime, surges: AskSurge
) -> Reason | None:
    """Return why a cordoned node is kept; None if nothing keeps it. A pod that a budget keeps does
    not keep the node if its workload gets one more pod first.

    Raises:
        ClusterUnavailable, ClusterRefused: the pods cannot be read.
    """
    pods = [one for one in cluster.pods_on(node.name) if keeps_node_in_use(one, now)]
    if reason := why_kept(node, pods, terms, now):
        return reason
    if terms.forced:
        return None
    for pod in pods[:MOST_TRIED]:
        answer = cluster.evict(pod, None, dry_run=True)
        if answer.status in {200, 201, 404, 409}:
            continue
        budgets = read_answer(answer).budgets
        surge = surges(pod, budgets) if budgets else None
        if surge is not None and surge.action is SurgeAction.SCALE_UP:
            continue
        problem = answer.message or f"status {answer.status}"
        kept = NODE_KEPT(
            f"The API server refuses to evict pod {pod.key} from node {node.name} now ({problem})."
        )
        return kept.and_then(surge.reason) if surge is not None else kept
    return None


def why_kept(node: Node, pods: Sequence[Pod], terms: ReturnTerms, now: datetime) -> Reason | None:
    """Decide by the pods that keep the node from being empty; terminating pods are among them."""
    if terms.pods is not None and len(pods) > terms.pods:
        return NODE_KEPT(
            f"Node {node.name} has {counted(len(pods), 'pod')} now, and {terms.pods} "
            f"when Leeway decided to give it back ({terms.cause})."
        )
    is_protected = node.annotations.get(DO_NOT_DISRUPT) == "true"
    if is_protected and (terms.optional or not terms.forced):
        return NODE_PROTECTED(protections=f"node {node.name} has the annotation {DO_NOT_DISRUPT}")
    consolidated = node.annotations.get(DO_NOT_CONSOLIDATE) != "true"
    if terms.cause == "Underutilized" and not consolidated:
        named = f"node {node.name} has the annotation {DO_NOT_CONSOLIDATE}"
        return NODE_PROTECTED(protections=named)
    if terms.forced:
        return None
    for pod in pods:
        if terms.cause == "Hibernation" and pod.controller is None:
            return NODE_KEPT(
                f"Pod {pod.key} on node {node.name} has no controller, so nothing would create it "
                "again."
            )
        if pod.protected_until is not None and now < pod.protected_until:
            return NODE_PROTECTED(protections=f"pod {pod.key} has the annotation {PROTECTS_POD}")
    return None


def request_disruption(
    attempt: Attempt, record: Retirement, policy: ClusterPolicy
) -> BudgetDecision:
    """Decide whether a voluntary retirement may begin, and record it in the ledger if so."""
    again, decision = attempt.again(), None
    try:
        while decision is None:
            with again:
                decision = _decide_disruption(attempt, record, policy)
    except API_ERRORS as error:
        # A voluntary retirement is not urgent: it waits for what cannot be read.
        problem = DISRUPTION_NOT_DECIDED(error=f"{type(error).__name__}: {error}")
        decision = BudgetDecision(BudgetVerdict.WAIT, problem)
    return decline_after_timeout(record, decision, attempt.now())


def _decide_disruption(
    attempt: Attempt, record: Retirement, policy: ClusterPolicy
) -> BudgetDecision:
    if (switched := _switched(attempt, record, policy)) is not None:
        return switched
    begun = record.replacement_intent is not None
    if not begun and (by_group := _decide_by_group(attempt, record)) is not None:
        return by_group
    if record.returns is not None and record.returns.without_node:
        return _decide_without_node(attempt, record, policy)
    cluster, node = attempt.node_of(record)
    protections = _protections(attempt, cluster, node) if node else []
    decision = decide_disruption(record, policy, protections)
    returns = record.returns
    if record.kind is NoticeKind.UNHEALTHY_NODE and node is None and not begun:
        # An API server that was restored from a backup may lack its Node.
        reason = RETIREMENT_CANCELLED(f"Instance {record.instance} has no Node any more.")
        return BudgetDecision(BudgetVerdict.DECLINE, reason)
    # An empty node moves no pod: confirm_return sees after the cordon that it is empty.
    empty = returns is not None and returns.pods == 0
    if decision.verdict is not BudgetVerdict.GO or node is None or begun or empty:
        return decision
    if record.kind is NoticeKind.UNHEALTHY_NODE:
        return _decide_repair(attempt, record, cluster, node, policy)
    return _request_from_ledger(attempt, record, policy, cluster.count_nodes().ready)


def _decide_switched(
    attempt: Attempt, record: Retirement, policy: ClusterPolicy
) -> BudgetDecision | None:
    """Decide as `_switched`. A drain that can wait no longer does not wait for what cannot be
    read."""
    again = attempt.again()
    try:
        while True:
            with again:
                return _switched(attempt, record, policy)
    except API_ERRORS:
        return None


def _switched(attempt: Attempt, record: Retirement, policy: ClusterPolicy) -> BudgetDecision | None:
    """Decide about a node of Leeway in a cluster that `leeway switch` hands to Karpenter: it waits,
    and stays when it is Karpenter's. Nodes of groups are not handed over."""
    if record.facts.owner.kind is not OwnerKind.LEEWAY:
        return None
    cluster = record.facts.cluster
    reason = switched_block(switch_of(attempt.ports.table, cluster), cluster)
    if reason is None:
        return None
    facts = attempt.ports.instances.describe(record.instance)
    if facts is not None and not policy.retires_nodes_of(facts.owner):
        reason = RETIREMENT_CANCELLED(
            f"Instance {record.instance} is of {facts.owner.kind} {facts.owner.name} now, which "
            "retires its nodes itself."
        )
        return BudgetDecision(BudgetVerdict.DECLINE, reason)
    return BudgetDecision(BudgetVerdict.WAIT, reason)


def _decide_repair(
    attempt: Attempt, record: Retirement, cluster: Cluster, node: Node, policy: ClusterPolicy
) -> BudgetDecision:
    """Decide about an unhealthy node by a fresh read: since reconcile found it, it may have
    recovered, or the whole cluster may have lost its network."""
    if why_unhealthy(node.conditions) is None:
        reason = RETIREMENT_CANCELLED(f"Node {node.name} is healthy again.")
        return BudgetDecision(BudgetVerdict.DECLINE, reason)
    count = cluster.count_nodes()
    unready = count.total - count.ready
    if too_many(unready, count.total):
        where = f"cluster {record.facts.cluster}"
        reason = REPAIRS_HELD(where=where, unhealthy=unready, nodes=count.total)
        return BudgetDecision(BudgetVerdict.WAIT, reason)
    return _request_from_ledger(attempt, record, policy, count.ready)


def _decide_without_node(
    attempt: Attempt, record: Retirement, policy: ClusterPolicy
) -> BudgetDecision:
    """Decide about an instance whose Node was deleted. Its names are looked up here; the step
    that follows searches all Nodes."""
    cluster, node = attempt.node_of(record, by_name=True)
    name, now = node.name if node else "", attempt.now()
    decision = decide_without_node(record, policy, name, now)
    if decision.verdict is not BudgetVerdict.GO:
        return decision
    return _request_from_ledger(attempt, record, policy, cluster.count_nodes().ready)


def _decide_by_group(attempt: Attempt, record: Retirement) -> BudgetDecision | None:
    """Decide by the group of the instance; None if it lets the retirement begin."""
    unreplaced = record.replacement is Replacement.NONE or record.action is Action.CORDON
    if unreplaced and not record.follows_template:
        return None
    group = attempt.ports.groups.facts(record.instance)
    if group is not None and group.lifecycle_state.startswith("Pending"):
        # The group replaces no instance that enters service.
        enters = INSTANCE_ENTERS_SERVICE(group=group.name, state=group.lifecycle_state)
        return BudgetDecision(BudgetVerdict.WAIT, enters)
    why_group = _why_group_launches_none if record.follows_template else _why_group_replaces
    reason = why_group(record, group)
    return BudgetDecision(BudgetVerdict.DECLINE, reason) if reason else None


def _why_group_replaces(record: Retirement, group: GroupFacts | None) -> Reason | None:
    """Return why the group replaces the instance itself; its terminate hook then notifies
    Leeway."""
    if group is None or not group.terminate_hook_waits:
        return None
    reason = why_group_replaces(record.kind, group)
    return (
        REPLACEMENT_DECIDED(
            "The Auto Scaling group replaces the instance itself, and its "
            f"terminate hook starts the drain: {clause(reason)}."
        )
        if reason
        else None
    )


def _why_group_launches_none(record: Retirement, group: GroupFacts | None) -> Reason | None:
    """Return why the group does not launch the successor of a node that follows its template."""
    if group is None:
        return NODE_KEPT(f"Instance {record.instance} is in no Auto Scaling group any more.")
    return why_no_successor_first(group)


def _protections(attempt: Attempt, cluster: Cluster, node: Node) -> list[str]:
    now = attempt.now()
    found = [
        f"pod {pod.key} has the annotation {PROTECTS_POD}"
        for pod in cluster.pods_on(node.name)
        if pod.protected_until is not None and now < pod.protected_until
    ]
    if node.annotations.get(DO_NOT_DISRUPT) == "true":
        found.insert(0, f"node {node.name} has the annotation {DO_NOT_DISRUPT}")
    return found


def _request_from_ledger(
    attempt: Attempt, record: Retirement, policy: ClusterPolicy, nodes: int
) -> BudgetDecision:
    table = attempt.ports.table
    conflicts = Conflicts(f"the disruption ledger of {record.facts.cluster}")
    while True:
        with conflicts:
            now = attempt.now()
            ledger = read_ledger(table, record.facts.cluster)
            changed, decision = ledger.request(record.instance, nodes, policy.churn, now)
            if changed is not None:
                table.put(LEDGER, changed)
            return decision
