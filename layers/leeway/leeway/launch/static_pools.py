"""Static pools (NodePool, spec.replicas): how many nodes a pool lacks, and what is launched for it.

Pure. A node counts from its launch until it retires, so a run that comes late or twice launches
nothing again: what an earlier run has launched stands in its intent, and then as a Node.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leeway.launch.intent import LaunchIntent
from leeway.reasons import Reason, ReasonCode
from leeway.selection.packing.plan import Plan, PlannedNode
from leeway.selection.packing.planning import Effort, pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec, Toleration

STATIC_POOL_SHORT = ReasonCode(
    "StaticPoolShort",
    "Pool {pool} has {count} of its {replicas} nodes (spec.replicas), and Leeway launches no "
    "further one now. {why}",
    "a-static-pool-lacks-nodes",
)

_ANY_POD = PodSpec(tolerations=(Toleration(operator="Exists"),))
"""A pod that every node of a pool takes: the nodes of a static pool are any that it allows."""

_SAMPLE = Effort(improvements=0)


@dataclass(frozen=True, slots=True)
class Shortage:
    """A static pool that lacks nodes.

    `count` nodes stand: they neither retire nor are late to join. `launched` more are allowed by
    limits.nodes, which the nodes that retire count against.
    """

    pool: NodePool
    replicas: int
    count: int
    launched: int

    def reason(self, why: object) -> Reason:
        """Say how many nodes the pool has, and why it has no more."""
        return STATIC_POOL_SHORT(why, pool=self.pool.name, count=self.count, replicas=self.replicas)

    @property
    def at_limit(self) -> str:
        """Why fewer nodes are launched than the pool lacks; empty if all are."""
        if self.count + self.launched >= self.replicas:
            return ""
        limit = (self.pool.limits or {}).get("nodes", 0)
        return (
            f"Its limits.nodes is {limit}, and instances that retire count until they have ended: "
            "the next runs go on."
        )


def count_of(pool: NodePool, nodes: Iterable[ExistingNode], leaving: Collection[str]) -> int:
    """Return how many nodes of a pool count for its replicas."""
    return len({one.name for one in nodes if one.pool == pool.name} - set(leaving))


def shortages(
    pools: Iterable[NodePool], nodes: Sequence[ExistingNode], leaving: Collection[str]
) -> tuple[Shortage, ...]:
    """Return the static pools that lack nodes. `nodes` are all that exist, start, or were launched;
    those of the names `leaving` do not count for `replicas`, and count against limits."""
    found = []
    for pool in pools:
        if pool.replicas is None:
            continue
        names = {one.name for one in nodes if one.pool == pool.name}
        count = count_of(pool, nodes, leaving)
        limit = (pool.limits or {}).get("nodes")
        room = pool.replicas if limit is None else max(0, limit - len(names))
        if count < pool.replicas:
            launched = min(pool.replicas - count, room)
            found.append(Shortage(pool, pool.replicas, count, launched))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class StaticPlan:
    """What is launched for static pools.

    - `places`: a planned node names no pod but its place in the pool, which is the name of no pod;
      of a place in which another instance retires, the id of that instance.
    - `problems`: why a pool has no offering, by its name.
    """

    plan: Plan
    places: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, Reason] = field(default_factory=dict)


def plan_static_pools(
    short: Iterable[Shortage],
    retiring: Mapping[str, Sequence[str]],
    supply_of: Callable[[NodePool], Supply],
) -> StaticPlan:
    """Plan the nodes that pools lack: any that the requirements of a pool allow, as if each had one
    pod without requests. `retiring` are the instances of each pool without a replacement, the first
    ones first."""
    launches: list[PlannedNode] = []
    places: dict[str, str] = {}
    problems: dict[str, Reason] = {}
    for one in short:
        if not one.launched:
            continue
        alone = replace(one.pool, replicas=None, limits=None)
        sample = pack([Pod(one.pool.name, _ANY_POD)], supply_of(alone), effort=_SAMPLE)
        if not sample.launches:
            problems[one.pool.name] = sample.unschedulable[0].reason
            continue
        replaced = retiring.get(one.pool.name, ())
        for number in range(one.launched):
            place = f"pool {one.pool.name}, node {one.count + number + 1}"
            places |= {place: replaced[number]} if number < len(replaced) else {}
            launches.append(replace(sample.launches[0], pods=(place,)))
    return StaticPlan(Plan(tuple(launches), (), (), 0.0, 0.0), places, problems)


def replacements(
    intents: Iterable[LaunchIntent], retiring: Collection[str], lost: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return the instances that were launched in the place of each retiring instance, whether or
    not it has pods, without those that are `lost`."""
    found: dict[str, tuple[str, ...]] = {}
    for intent in intents:
        instances = [one.instance for one in intent.instances if one.instance not in lost]
        for one in retiring if instances and not intent.pods else ():
            if one in intent.replaces:
                found[one] = (*found.get(one, ()), *instances)
    return found
