"""Decides whether a launched instance whose node has not joined in time is terminated.

The tags of an instance can be written by everybody with the right to tag instances. So the tags are
compared with the record of the launch, which only Leeway writes.
"""

from collections.abc import Iterator
from datetime import timedelta

from leeway.admission.readiness import AdmissionResult, Readiness
from leeway.admission.reasons import (
    INSTANCE_ENDED_BEFORE_JOIN,
    INSTANCE_NEVER_JOINED,
    INSTANCE_NOT_OF_LAUNCH,
    NODE_NAME_TAKEN,
)
from leeway.admission.record import Admission, Launch
from leeway.instances.observed import ObservedInstance
from leeway.instances.owners import OwnerKind

CLOCKS_DIFFER_BY = timedelta(minutes=5)
"""By how much Leeway's clock may be ahead of EC2's launch times."""

_EXISTS = frozenset({"pending", "running"})


def decide_unjoined(
    record: Admission, launch: Launch, observed: ObservedInstance | None, name_taken: str
) -> Readiness:
    """Decide how the admission of an instance ends for which the API server has no node, by a read
    that succeeded: TERMINATED if it is to be terminated, INSTANCE_ENDED if EC2 has ended it,
    NOT_READY if it is kept.

    `observed` is the result of a fresh read. `name_taken` is the name of a Node that the instance
    would have, but that is another instance's; empty if there is none. An instance that starts
    with the address of an ended one uses the Node of that one.
    """
    if observed is None or observed.state not in _EXISTS:
        state = "unknown" if observed is None else observed.state
        return Readiness(AdmissionResult.INSTANCE_ENDED, INSTANCE_ENDED_BEFORE_JOIN(state=state))
    difference = next(_differences(record, launch, observed), "")
    if difference:
        return Readiness(AdmissionResult.NOT_READY, INSTANCE_NOT_OF_LAUNCH(difference=difference))
    if name_taken:
        return Readiness(AdmissionResult.NOT_READY, NODE_NAME_TAKEN(node=name_taken))
    reason = INSTANCE_NEVER_JOINED(pool=launch.pool, time=launch.at)
    return Readiness(AdmissionResult.TERMINATED, reason)


def _differences(record: Admission, launch: Launch, observed: ObservedInstance) -> Iterator[str]:
    facts = observed.facts
    if facts.cluster != record.facts.cluster:
        yield f"its tags name cluster {facts.cluster}"
    if facts.joined:
        yield "the tag of EKS says that it has joined a cluster"
    if observed.group:
        yield f"it is in the Auto Scaling group {observed.group}"
    if facts.owner.kind is not OwnerKind.LEEWAY:
        yield f"its tags name the owner {facts.owner.kind}"
    if facts.owner.name != launch.pool:
        yield f"its tags name the pool {facts.owner.name}, not {launch.pool}"
    if observed.intent != launch.intent:
        yield "its tag names another launch intent"
    if observed.launched_at < launch.at - CLOCKS_DIFFER_BY:
        yield f"it was launched before its launch intent, at {observed.launched_at:%H:%M} UTC"
