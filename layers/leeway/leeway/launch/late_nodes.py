"""Instances that were launched and have no Node yet, and pools whose instances fail to join.

Most nodes join within two minutes, and `admit_node` gives up after fifteen. People hear of it after
five, while the instance still runs and can be looked at.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.launch.intent import LaunchIntent, LaunchOutcome, PodWithoutNode
from leeway.pool_pauses import PoolRecord
from leeway.reasons import Reason, ReasonCode

LATE_AFTER = timedelta(minutes=5)
"""How long after its launch an instance without a Node is late."""

NODES_JOIN_LATE = ReasonCode(
    "NodesJoinLate",
    "No Node has joined the cluster for {instances} of pool {pool}, launched at {time:%H:%M} UTC. "
    "The usual causes are the user data, a security group or a subnet without a way to the API "
    "server, and a missing access entry of the node role. `leeway explain instance {first} "
    "--console` shows what the instance has printed.",
    "nodes-are-not-ready",
)

_MOST_SHOWN = 3


class LatePool(BaseModel):
    """A pool with instances that are late: the ids of some, how many there are, and when the first
    of them was launched."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    pool: str
    instances: Annotated[tuple[str, ...], Field(min_length=1)]
    count: int
    since: AwareDatetime

    @property
    def reason(self) -> Reason:
        """What is usually wrong, and how to look at it."""
        named = self.instances[:_MOST_SHOWN]
        more = self.count - len(named)
        shown = ", ".join(named) + (f" and {more} more" if more > 0 else "")
        return NODES_JOIN_LATE(pool=self.pool, instances=shown, first=named[0], time=self.since)

    def shown(self, most: int) -> "LatePool":
        """Return the pool with the ids of so many instances."""
        return self.model_copy(update={"instances": self.instances[:most]})


def late_pools(
    intents: Iterable[LaunchIntent], known: Collection[str], now: datetime
) -> tuple[LatePool, ...]:
    """Return the pools with instances that are late, in the order of their names. `known` are
    instances that have a Node, have ended or retire."""
    late: dict[str, list[LaunchIntent]] = {}
    for one in sorted(intents, key=lambda each: each.created_at):
        if one.may_join(now) and now - one.created_at >= LATE_AFTER:
            late.setdefault(one.pool, []).append(one)
    found = []
    for pool, some in sorted(late.items()):
        missing = [
            (one.created_at, each.instance)
            for one in some
            for each in one.instances
            if each.instance not in known
        ]
        if missing:
            names = tuple(instance for _, instance in missing)
            first = missing[0][0]
            found.append(LatePool(pool=pool, instances=names, count=len(names), since=first))
    return tuple(found)


def pods_of_late_nodes(
    pools: Iterable[LatePool], outcome: LaunchOutcome
) -> tuple[PodWithoutNode, ...]:
    """Return the pods that have their place on an instance that is late, each with the reason of
    its pool."""
    reasons = {instance: one.reason for one in pools for instance in one.instances}
    return tuple(
        PodWithoutNode(
            pod,
            Reason(cause.code, f"Pod {pod} waits for {placement.node}. {cause.message}"),
            cause=cause,
        )
        for placement in outcome.placed
        if (cause := reasons.get(placement.node)) is not None
        for pod in placement.pods
    )


DOUBTED_FOR = timedelta(hours=1)
"""How long after a failed launch of a pool no node is emptied for a new one of this pool."""


def doubted_pools(
    records: Iterable[PoolRecord],
    intents: Iterable[LaunchIntent],
    known: Collection[str],
    now: datetime,
) -> frozenset[str]:
    """Return the pools that are no destination for pods of a node that works: they are paused, an
    instance of the last hour has failed to join or to become ready without a success since, or one
    is late."""
    failed = {
        one.pool
        for one in records
        if one.paused is not None
        or any(now - each.launched_at < DOUBTED_FOR for each in (*one.failures, *one.unready))
    }
    return frozenset(failed | {one.pool for one in late_pools(intents, known, now)})
