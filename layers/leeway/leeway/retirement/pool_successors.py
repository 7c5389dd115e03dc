"""Requests nodes of Leeway's pools for the pods of a retiring node, and reads the answer."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from leeway.capacity_requests import CAPACITY_REQUEST, CapacityAnswer, CapacityRequest
from leeway.execution.retrying import API_ERRORS, Conflicts
from leeway.instances.facts import OwnerKind
from leeway.ports.kubernetes import Cluster
from leeway.reasons import Reason, clause
from leeway.retirement.context import Attempt
from leeway.retirement.group_successors import SuccessorStatus, takes_pods
from leeway.retirement.reasons import CAPACITY_REQUEST_FAILED, SUCCESSOR_FOUND
from leeway.retirement.record import Retirement, Successor, latest_end

OPEN_AT_MOST = timedelta(hours=1)
"""How long a request stays open if its retirement lasts longer: a drain that a budget blocks for
days must not keep launching nodes. Pods that are evicted later are pending pods like others."""

OPEN_AT_LEAST = timedelta(minutes=1)
"""How long a request stays open although the deadline is earlier: until the next scheduled run of
provision_nodes, which finds it if the message is lost."""

REASONS_SHOWN = 3
"""How many reasons for pods without a node an outcome shows."""


GROUPS = frozenset({OwnerKind.AUTO_SCALING_GROUP, OwnerKind.MANAGED_NODE_GROUP})
"""The owners whose nodes nobody labels as initialized."""


@dataclass(frozen=True, slots=True)
class Requested:
    """The result of a request: whether it is `written`, and what failed."""

    written: bool
    problem: Reason | None = None


@dataclass(frozen=True, slots=True)
class CapacityResult:
    """What came of a request.

    - `answered`: provision_nodes has answered it.
    - `complete`: every pod of the node has a place.
    - `successors`: the instances that were launched for the pods.
    - `reasons`: where the pods go, and why some have no place.
    """

    answered: bool = False
    complete: bool = False
    successors: tuple[Successor, ...] = ()
    reasons: tuple[str, ...] = ()


def request_nodes(attempt: Attempt, record: Retirement, node: str | None) -> Requested:
    """Write the request of this attempt, if it is not written yet, and wake provision_nodes.
    `node` is the name of the node, empty if the instance has none, None if it is not known."""
    if node is None:
        return _failed(
            attempt,
            record,
            CAPACITY_REQUEST_FAILED("the node of the instance cannot be read"),
        )
    try:
        _write(attempt, record, node)
    except API_ERRORS as error:
        return _failed(
            attempt,
            record,
            CAPACITY_REQUEST_FAILED(
                f"it cannot be written to the table: {clause(error)}. The drain does not wait"
            ),
        )
    name = f"node {node}" if node else f"instance {record.instance} without a node"
    return Requested(True, wake_provision_nodes(attempt, record, f"{name} retires"))


def wake_provision_nodes(attempt: Attempt, record: Retirement, why: str) -> Reason | None:
    """Wake provision_nodes; return what failed."""
    if attempt.ports.provision_nodes is None:
        return None
    try:
        attempt.ports.provision_nodes.wake(record.facts.cluster, why)
    except API_ERRORS as error:
        problem = CAPACITY_REQUEST_FAILED(
            "the function provision_nodes cannot be woken: "
            f"{clause(error)}. It finds the request in its next run, within "
            "a minute"
        )
        attempt.ports.telemetry.capacity_problem(record, problem)
        return problem
    return None


def _failed(attempt: Attempt, record: Retirement, problem: Reason) -> Requested:
    attempt.ports.telemetry.capacity_problem(record, problem)
    return Requested(False, problem)


def _write(attempt: Attempt, record: Retirement, node: str) -> None:
    """Write the request. The first try reads nothing: the request is usually new, and the drain
    waits for this call."""
    conflicts = Conflicts(f"the capacity request of {record.instance}")
    while True:
        with conflicts:
            stored = None if conflicts.first else _stored(attempt, record)
            wanted = _request_of(attempt, record, node, stored)
            if wanted is not None:
                attempt.ports.fast_table.put(CAPACITY_REQUEST, wanted)
            return


def _request_of(
    attempt: Attempt, record: Retirement, node: str, stored: CapacityRequest | None
) -> CapacityRequest | None:
    """Return the request to write; None if it is stored. A newer attempt keeps the answer to a
    request that is still open: nodes are launched once for both."""
    facts, now = record.facts, attempt.now()
    is_open = stored is not None and stored.is_open(now)
    if stored is not None and is_open and stored.attempt == record.attempt:
        return None
    latest = min(latest_end(record), now + OPEN_AT_MOST)
    kept = stored if is_open else None
    return CapacityRequest(
        cluster=facts.cluster,
        instance=facts.instance,
        node=node,
        instance_type=facts.instance_type,
        zone=facts.zone,
        capacity_type=facts.capacity_type,
        attempt=record.attempt,
        requested_at=kept.requested_at if kept else now,
        ends_at=max(latest, now + OPEN_AT_LEAST),
        version=stored.version + 1 if stored else 1,
        answer=kept.answer if kept else None,
        keeps_offering=record.returns is not None,
        price_limit=record.returns.price_limit if record.returns else None,
        in_place=record.returns is not None and record.returns.in_place,
    )


def _stored(attempt: Attempt, record: Retirement) -> CapacityRequest | None:
    return attempt.ports.fast_table.get(
        CAPACITY_REQUEST, cluster=record.cluster, instance=record.instance
    )


def is_answered(attempt: Attempt, record: Retirement) -> bool:
    """Whether the request is answered; False if that cannot be read."""
    with suppress(*API_ERRORS):
        request = _stored(attempt, record)
        return request is not None and request.answer is not None
    return False


def read_capacity(attempt: Attempt, record: Retirement) -> CapacityResult:
    """Read the answer; an empty result if it cannot be read."""
    return _answered_by(_stored, attempt, record)


def _answered_by(
    read: Callable[[Attempt, Retirement], CapacityRequest | None],
    attempt: Attempt,
    record: Retirement,
) -> CapacityResult:
    try:
        request = read(attempt, record)
    except API_ERRORS as error:
        problem = CAPACITY_REQUEST_FAILED(
            f"it cannot be read or ended: {clause(error)}. It ends by itself"
        )
        attempt.ports.telemetry.capacity_problem(record, problem)
        return CapacityResult(reasons=(problem.message,))
    return _result_of(attempt, request.answer if request else None)


def track_nodes(attempt: Attempt, record: Retirement, cluster: Cluster) -> SuccessorStatus:
    """Check the answer of provision_nodes: every pod has a place, and the nodes that were launched
    for them take pods. A later answer replaces one that gives some pods no place."""
    result = read_capacity(attempt, record)
    if not (result.answered and result.complete):
        return SuccessorStatus()
    for successor in result.successors:
        facts = attempt.describe(successor.instance)
        in_group = facts is not None and facts.owner.kind in GROUPS
        if not takes_pods(attempt.successor_node(successor.instance, cluster), in_group):
            return SuccessorStatus()
    if not result.successors:
        return SuccessorStatus(without_successor=result.reasons)
    return SuccessorStatus(ready=result.successors)


def end_request(attempt: Attempt, record: Retirement) -> CapacityResult:
    """End the request of this attempt: provision_nodes launches nothing more for it. Return
    what came of it."""
    return _answered_by(_ended, attempt, record)


def _ended(attempt: Attempt, record: Retirement) -> CapacityRequest | None:
    conflicts = Conflicts(f"the capacity request of {record.instance}")
    while True:
        with conflicts:
            stored = _stored(attempt, record)
            now = attempt.now()
            if stored is None or not stored.is_open(now) or stored.attempt > record.attempt:
                return stored
            ended = stored.ended(now)
            attempt.ports.fast_table.put(CAPACITY_REQUEST, ended)
            return ended


def _result_of(attempt: Attempt, answer: CapacityAnswer | None) -> CapacityResult:
    if answer is None:
        return CapacityResult(
            reasons=(("The function provision_nodes has not answered the request for nodes."),)
        )
    successors = tuple(_successor(attempt, one) for one in answer.launched)
    reasons = [successor.why.message for successor in successors]
    if answer.existing or not (answer.launched or answer.without_node):
        reasons.append(f"Pods that have a place on existing nodes: {answer.existing}.")
    if answer.without_node:
        reasons.append(_without_node(answer.without_node))
    return CapacityResult(True, not answer.without_node, successors, tuple(reasons))


def _successor(attempt: Attempt, instance: str) -> Successor:
    """Describe an instance that was launched; only its id is known if EC2 does not answer."""
    facts = None
    with suppress(*API_ERRORS):
        facts = attempt.describe(instance)
    if facts is None:
        why = SUCCESSOR_FOUND(f"Pool of Leeway launches {instance} (unknown).")
        return Successor(instance, "", "", why)
    offering = f"{facts.instance_type}, {facts.zone}"
    why = SUCCESSOR_FOUND(f"Pool {facts.owner.name} launches {instance} ({offering}).")
    return Successor(instance, facts.instance_type, facts.zone, why)


def _without_node(reasons: Iterable[Reason]) -> str:
    messages = list(dict.fromkeys(clause(reason) for reason in reasons))
    more = len(messages) - REASONS_SHOWN
    shown = "; ".join(messages[:REASONS_SHOWN])
    return (
        "No replacement for some pods, because: "
        f"{f'{shown}; and {more} more' if more > 0 else shown}."
    )
