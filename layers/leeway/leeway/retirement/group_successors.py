"""Successors from Auto Scaling groups: their zones, their launch, and the capacity of the group."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from leeway.catalog.unavailable import Offering
from leeway.execution.retrying import API_ERRORS
from leeway.instances.facts import GroupFacts, stays_in_group
from leeway.policy.rules import SUCCESSOR_TIMEOUT, UNAVAILABLE_FOR
from leeway.ports.aws import CloudRefused, LaunchError
from leeway.ports.kubernetes import Cluster
from leeway.ports.kubernetes_objects import Node
from leeway.reasons import Reason, counted
from leeway.retirement.context import Attempt
from leeway.retirement.pods import keeps_node_in_use
from leeway.retirement.reasons import SUCCESSOR_FOUND, SUCCESSOR_KEPT
from leeway.retirement.record import Method, ReplacementIntent, Retirement, Successor, ZoneChoice
from leeway.selection.labels import INITIALIZED, is_startup_taint
from leeway.selection.offers.catalog import Unavailable


@dataclass(frozen=True, slots=True)
class SuccessorNeeds:
    """What a successor needs: `zone` is the zone of the retiring instance, `types` are the instance
    types that may be launched, `capacity_type` is spot or on-demand. `bound` are the pods that can
    only run in the zone, each with the cause."""

    zone: str
    types: tuple[str, ...]
    capacity_type: str
    bound: Sequence[tuple[str, str]] = ()


def order_zones(
    zones: Sequence[str], needs: SuccessorNeeds, unavailable: Collection[Unavailable]
) -> tuple[ZoneChoice, ...]:
    """Order a group's zones for a successor, without the zones in which all types are unavailable.

    Every constraint that binds a pod to a zone (a volume, node or pod affinity, a topology spread)
    is satisfied in the zone where the pod runs. So the instance's own zone comes first. It also
    keeps the balance of the group, which EC2 Auto Scaling would otherwise restore.
    """
    available = [zone for zone in zones if not _lacks_capacity(zone, needs, unavailable)]
    ordered = sorted(available, key=lambda zone: zone != needs.zone)
    return tuple(ZoneChoice(zone, _why(zone, needs)) for zone in ordered)


def _lacks_capacity(zone: str, needs: SuccessorNeeds, unavailable: Collection[Unavailable]) -> bool:
    """Whether every type that the successor may have is known to be unavailable in a zone."""
    place = (zone, needs.capacity_type)
    lacking = {one.instance_type for one in unavailable if (one.zone, one.capacity_type) == place}
    return bool(needs.types) and lacking.issuperset(needs.types)


def _why(zone: str, needs: SuccessorNeeds) -> Reason:
    others = len(needs.bound) - 1
    if zone == needs.zone:
        if not needs.bound:
            return SUCCESSOR_FOUND(
                "This is the instance's own zone, which keeps the balance of the group."
            )
        pod, need = needs.bound[0]
        more = f", and {others} more of its pods need it" if others else ""
        return SUCCESSOR_FOUND(
            f"This is the instance's own zone: pod {pod} needs it because of {need}{more}."
        )
    if not needs.bound:
        return SUCCESSOR_FOUND(
            f"This is another zone of the group, because {needs.zone} has no capacity now."
        )
    pod, need = needs.bound[0]
    more = f" and {others} more" if others else ""
    return SUCCESSOR_FOUND(
        f"This is another zone of the group, because {needs.zone} has "
        "no capacity "
        f"now{f'; pod {pod}{more} needs {needs.zone} ({need})'}."
    )


class GroupLacksCapacity(CloudRefused):
    """EC2 has no capacity for any of the types of a group, in any of the requested zones."""


def choose_zones(attempt: Attempt, record: Retirement, group: GroupFacts) -> tuple[ZoneChoice, ...]:
    """Decide in which of the group's zones a successor is launched. If the table or the cluster
    cannot be read, the decision is made without it."""
    facts = record.facts
    needs = SuccessorNeeds(
        facts.zone,
        group.types or (facts.instance_type,),
        facts.capacity_type,
        tuple(_bound_pods(attempt, record)),
    )
    return order_zones(
        group.zones,
        needs,
        _unavailable(
            attempt,
        ),
    )


def lacks_capacity(attempt: Attempt, record: Retirement, group: GroupFacts) -> bool:
    """Whether EC2 has reported within the last minutes that it has no capacity for any type of
    the group, in any of its zones. False if the table cannot be read."""
    facts = record.facts
    types = group.types or (facts.instance_type,)
    needs = SuccessorNeeds(facts.zone, types, facts.capacity_type)
    return bool(group.zones) and not order_zones(
        group.zones,
        needs,
        _unavailable(
            attempt,
        ),
    )


def _unavailable(attempt: Attempt) -> frozenset[Unavailable]:
    with suppress(*API_ERRORS):
        return attempt.ports.offerings.now(attempt.ports.region, attempt.now())
    return frozenset()


def _bound_pods(attempt: Attempt, record: Retirement) -> Iterator[tuple[str, str]]:
    """Yield the pods that can only run in the zone where they run, each with the cause."""
    with suppress(*API_ERRORS):
        cluster, node = attempt.node_of(record, by_name=True)
        if node is None:
            return
        attached = {one.claim for one in cluster.attachments_on(node.name) if one.claim}
        for pod in cluster.pods_on(node.name):
            if attached.intersection(pod.claims):
                yield pod.key, "a volume"
            elif pod.bound_to_zone:
                yield pod.key, pod.bound_to_zone


def launch_successor(attempt: Attempt, record: Retirement) -> tuple[Successor, ...]:
    """Launch the successor, if that is not recorded yet, in the first zone with capacity.

    The client tokens are the same in every attempt, and the record has the order of the zones.
    So the successor is launched once, also if the function crashes in between.

    Raises:
        CloudUnavailable: the launch may have succeeded; a retry with the same token tells.
        GroupLacksCapacity: no zone has capacity.
        CloudRefused: the group refuses LaunchInstances, or launches nothing for other reasons.
    """
    intent = record.replacement_intent
    if intent is None:
        return ()
    if intent.successors or not intent.zones:
        return intent.successors
    failures: list[LaunchError] = []
    for choice in intent.zones:
        token = f"{record.instance}-{intent.attempt}-{choice.zone}"
        answer = attempt.ports.groups.launch(intent.group, choice.zone, intent.units, token)
        _mark_unavailable(attempt, record, answer.errors)
        if answer.instances:
            return tuple(
                Successor(one.instance, one.instance_type, one.zone, choice.why)
                for one in answer.instances
            )
        failures += answer.errors
    named = (f"{one.code} for {one.instance_type} in {one.zone}" for one in failures)
    lacks = bool(failures) and all(one.lacks_capacity for one in failures)
    error = GroupLacksCapacity if lacks else CloudRefused
    raise error(f"group {intent.group} launched no instance: {', '.join(named)}")


def _mark_unavailable(attempt: Attempt, record: Retirement, errors: Iterable[LaunchError]) -> None:
    """Record the offerings for which EC2 has no capacity. A failed write is ignored."""
    until = attempt.now() + UNAVAILABLE_FOR
    for error in errors:
        if not error.lacks_capacity:
            continue
        capacity_type = record.facts.capacity_type
        offering = Offering(attempt.ports.region, error.instance_type, error.zone, capacity_type)
        with suppress(*API_ERRORS):
            attempt.ports.offerings.mark(offering, error.code, until)


@dataclass(frozen=True, slots=True)
class RestoredCapacity:
    """The result of restoring a group's capacity.

    - `record`: the latest record; None if a newer attempt has superseded this one.
    - `refused`: what AWS refused, or why a successor stays. `restored`: nothing is left to do.
    - `hook_waits`: a lifecycle hook keeps the instance now, whose notice is still to come.
    """

    record: Retirement | None
    refused: tuple[Reason, ...] = ()
    restored: bool = False
    hook_waits: bool = False


def restore_capacity(
    attempt: Attempt, record: Retirement, stays: bool = False, repeated: bool = False
) -> RestoredCapacity:
    """Restore the desired capacity of a group for which a successor was launched in addition, or
    whose instance nodes of Leeway's pools replace.

    The group terminates this instance with a decrement. If the instance is gone or `stays`, the
    group terminates the successor with a decrement instead, or the instance that it has launched in
    place of this one. While the instance is in service, the record says so before.

    `repeated`: the record said so already, so an earlier try may have had the instance or the
    successor terminated.

    Raises:
        CloudUnavailable, CloudRefused: the termination may have been requested.
        ClusterUnavailable, ClusterRefused: the node of the successor cannot be read.
    """
    intent = record.replacement_intent
    if intent is None:
        return RestoredCapacity(record, restored=True)
    group = attempt.ports.groups.facts(record.instance)
    in_service = group is not None and group.lifecycle_state == "InService"
    if group is not None and in_service and not stays:
        return _end_instance(attempt, record, intent, group)
    if repeated and not in_service:
        waits = group is not None and group.terminate_hook_waits
        return RestoredCapacity(record, restored=True, hook_waits=waits)
    if intent.method is Method.REQUEST_CAPACITY:
        return RestoredCapacity(record, restored=True)
    successors = [*_in_group(attempt, _find_successors(attempt, record))]
    if not in_service:
        successors = [one for one in successors if one[1].desired >= intent.desired]
    elif not successors and record.follows_template and not repeated:
        successors = [*_booting(attempt, intent)][:1]
    ends, kept = _which_end(attempt, intent, successors, gone=not in_service)
    marked: Retirement | None = record
    if in_service and ends:
        marked = _mark_ending(attempt, record, tuple(successor for successor, _ in successors))
    if marked is None:
        return RestoredCapacity(None)
    for instance, decrement in ends.items():
        attempt.ports.groups.terminate_in_group(instance, decrement)
    return RestoredCapacity(marked, kept, restored=True)


def _end_instance(
    attempt: Attempt, record: Retirement, intent: ReplacementIntent, group: GroupFacts
) -> RestoredCapacity:
    """Terminate an instance that is in service with a decrement. There is none, so that the group
    launches a replacement, if there is no successor, or if another client has lowered the desired
    capacity and the successor is gone."""
    launched, lowered = bool(intent.successors), False
    if intent.method is not Method.REQUEST_CAPACITY:
        successors = _find_successors(attempt, record)
        launched = bool(successors) or not intent.zones
        lowered = group.desired < intent.desired and not any(_in_group(attempt, successors))
    marked = _mark_ending(attempt, record, intent.successors)
    if marked is None:
        return RestoredCapacity(None)
    decrement = launched and group.may_shrink and not lowered
    attempt.ports.groups.terminate_in_group(record.instance, decrement=decrement)
    return RestoredCapacity(marked, restored=True, hook_waits=group.terminate_hook_waits)


def _mark_ending(
    attempt: Attempt, record: Retirement, successors: tuple[Successor, ...]
) -> Retirement | None:
    """Record that the group is asked to terminate the instance, or these successors, now: a
    repeated step must not end another one. None if a newer attempt has superseded this one."""
    intent = record.replacement_intent
    if intent is not None and intent.ending:
        return record
    return attempt.update(record, ending=True, successors=successors)


def _which_end(
    attempt: Attempt,
    intent: ReplacementIntent,
    successors: Iterable[tuple[Successor, GroupFacts]],
    gone: bool,
) -> tuple[Mapping[str, bool], tuple[Reason, ...]]:
    """Return which instances end instead of successors or as them, each with whether the group
    shrinks by it, and why other successors are kept.

    If pods may run on a successor and the retiring instance is `gone`, the group has launched
    another one for it, which ends instead while it boots. Otherwise such a successor ends only if a
    terminate hook keeps it: the notice of the hook drains its node.
    """
    ends: dict[str, bool] = {}
    kept: list[Reason] = []
    for successor, group in successors:
        ending = successor.instance
        if _may_have_pods(attempt, ending):
            instead = _launched_instead(attempt, intent, group) if gone else ""
            ending = instead or (ending if group.terminate_hook_waits else "")
        if ending:
            ends[ending] = group.may_shrink
        else:
            kept.append(SUCCESSOR_KEPT(group=group.name, instance=successor.instance))
    return ends, tuple(kept)


def _launched_instead(attempt: Attempt, intent: ReplacementIntent, group: GroupFacts) -> str:
    """Return the instance that the group has launched in place of the retiring one, if it has no
    pods yet; empty if there is none. If another client has changed the desired capacity, a new
    instance may be one that it has launched, such as the successor of another retirement."""
    if group.desired != intent.desired:
        return ""
    until = attempt.now() + VISIBLE_AFTER
    while attempt.ports.groups.missing(intent.group) and attempt.now() < until:
        attempt.ports.clock.sleep(CHECK_GROUP_EVERY)
    for launched, now in _booting(attempt, intent):
        if (now.desired, now.units) == (intent.desired, group.units):
            return launched.instance
    return ""


def _booting(attempt: Attempt, intent: ReplacementIntent) -> Iterator[tuple[Successor, GroupFacts]]:
    """Yield the instances that a group has launched since the request, and that have no pods
    yet."""
    since = max(intent.requested_at, attempt.now() - LOOK_BACK)
    for one in attempt.ports.instances.launched_in(intent.group, since):
        attempt.ports.described[one.instance] = one
        if not _may_have_pods(attempt, one.instance):
            found = Successor(one.instance, one.instance_type, one.zone, intent.reason)
            yield from _in_group(attempt, [found])


def _may_have_pods(attempt: Attempt, instance: str) -> bool:
    """Whether pods may run on an instance of a group: its node, also one with an unexpected name,
    takes pods, or has some although it takes none now."""
    cluster, now = attempt.ports.open_cluster(attempt.id.cluster), attempt.now()
    node = attempt.successor_node(instance, cluster) or cluster.node_of(instance, ())
    if node is None or takes_pods(node, in_group=True):
        return node is not None
    return any(keeps_node_in_use(pod, now) for pod in cluster.pods_on(node.name))


def _find_successors(attempt: Attempt, record: Retirement) -> tuple[Successor, ...]:
    """Return the successors. If they are not recorded, a launch with the same token tells."""
    with suppress(CloudRefused):
        return launch_successor(attempt, record)
    return ()


def _in_group(
    attempt: Attempt, successors: Iterable[Successor]
) -> Iterator[tuple[Successor, GroupFacts]]:
    for successor in successors:
        group = attempt.ports.groups.facts(successor.instance)
        if group is not None and group.stays_in_group:
            yield successor, group


JOIN_TIMEOUT = SUCCESSOR_TIMEOUT / 2
"""How long a successor may take until it has a node; after that its group replaces it."""

_JOIN_MINUTES = counted(JOIN_TIMEOUT.total_seconds() / 60, "minute")

VISIBLE_AFTER = timedelta(seconds=30)
"""How long Auto Scaling may take to list an instance that it launched."""

CHECK_GROUP_EVERY = 2.0
"""Seconds between two reads of a group that is about to launch an instance."""

LOOK_BACK = timedelta(hours=1)
"""How long ago an instance that counts as a group's own replacement may have been launched."""


@dataclass(frozen=True, slots=True)
class SuccessorStatus:
    """The status of a successor: `ready` if pods can run on it, `failed` is why it never will be
    Ready, `without_successor` are the places of the pods if they need no successor. If all are
    empty, the retirement waits."""

    ready: tuple[Successor, ...] = ()
    failed: str = ""
    without_successor: tuple[str, ...] = ()


def takes_pods(node: Node | None, in_group: bool) -> bool:
    """Whether the node of a successor is ready for pods. Its condition Ready does not say so: its
    devices may be missing, and it may have startup taints.

    A node of a pool is ready with the label INITIALIZED, which admission puts on, or Karpenter on
    its own nodes. Nobody labels a node `in_group`, and only taints that any node may have while it
    starts are known of it. Source: Karpenter documentation, "Disruption Controller", which goes on
    when its replacements are initialized.
    """
    if node is None or not node.ready or node.unschedulable:
        return False
    if in_group:
        return not any(is_startup_taint(one.key) for one in node.taints)
    return node.labels.get(INITIALIZED) == "true"


def track_in_group(
    attempt: Attempt, intent: ReplacementIntent, cluster: Cluster, ends_late: bool = True
) -> SuccessorStatus:
    """Return the status of the successor that was launched with LaunchInstances, or of the
    instances that the group launched itself. `ends_late`: a successor that does not join in time is
    terminated, so that its group launches another one."""
    if intent.successors:
        return _launched_with_api(attempt, intent, cluster, ends_late)
    return _launched_by_group(attempt, intent, cluster)


def _launched_with_api(
    attempt: Attempt, intent: ReplacementIntent, cluster: Cluster, ends_late: bool
) -> SuccessorStatus:
    for successor in intent.successors:
        node = attempt.successor_node(successor.instance, cluster)
        if takes_pods(node, in_group=True):
            continue
        failed = _failure(attempt, intent, successor, node, cluster, ends_late)
        return SuccessorStatus(failed=failed)
    return SuccessorStatus(ready=intent.successors)


def _failure(
    attempt: Attempt,
    intent: ReplacementIntent,
    successor: Successor,
    node: Node | None,
    cluster: Cluster,
    ends_late: bool,
) -> str:
    """Return why a successor will not be Ready; empty if it still may be. With `ends_late`, one
    that has no node after JOIN_TIMEOUT is terminated, so that its group launches another one."""
    groups, waited = attempt.ports.groups, attempt.now() - intent.requested_at
    if waited < VISIBLE_AFTER:
        return ""
    group = groups.facts(successor.instance)
    if group is None or not group.stays_in_group:
        return (
            f"Successor {successor.instance} left group {intent.group} "
            "before it was Ready; the group launches another one."
        )
    if node is not None or waited < JOIN_TIMEOUT:
        return ""
    if cluster.node_of(successor.instance, ()) is not None:
        return ""
    late = f"Successor {successor.instance} had no node after {_JOIN_MINUTES}"
    if not ends_late:
        return f"{late}."
    groups.terminate_in_group(successor.instance)
    return f"{late} and was terminated; the group launches another one."


def _launched_by_group(
    attempt: Attempt, intent: ReplacementIntent, cluster: Cluster
) -> SuccessorStatus:
    """Check whether the group has launched its desired capacity and all new nodes take pods.
    A group does not say which instance replaces which, so concurrent retirements wait for each
    other's successors. An instance that fills up the group's warm pool replaces none."""
    since = max(intent.requested_at, attempt.now() - LOOK_BACK)
    if attempt.ports.groups.missing(intent.group):
        return SuccessorStatus()
    launched = attempt.ports.instances.launched_in(intent.group, since)
    states = attempt.ports.groups.lifecycle_states([one.instance for one in launched])
    ready: list[Successor] = []
    for found in launched:
        if not stays_in_group(states.get(found.instance, "Pending")):
            continue
        attempt.ports.described[found.instance] = found
        node = attempt.successor_node(found.instance, cluster)
        if node is not None and node.ready and node.unschedulable:
            continue  # a cordoned node is itself being retired
        if not takes_pods(node, in_group=True):
            return SuccessorStatus()
        why = SUCCESSOR_FOUND("The group launched it after the replacement was requested.")
        ready.append(Successor(found.instance, found.instance_type, found.zone, why))
    return SuccessorStatus(tuple(ready[:1]))
