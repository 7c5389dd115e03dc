"""Simulates a day of a cluster, minute by minute, with Leeway's pure decisions or those of others.

In each minute EC2 interrupts Spot nodes, controllers create and end pods, drains evict, a scheduler
binds, and then somebody launches nodes and gives nodes back.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from leeway.disruption.decide import decide_returns
from leeway.disruption.rules import Cause
from leeway.disruption.snapshot import (
    MovablePod,
    NodeReturn,
    OwnNode,
    ReturnDecision,
    Snapshot,
)
from leeway.policy.rules import SUCCESSOR_TIMEOUT, UNAVAILABLE_FOR
from leeway.selection.labels import SPOT
from leeway.selection.offers.catalog import Unavailable
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import LAUNCHES, pack
from leeway.selection.packing.supply import Candidate, Supply

from leeway_cli.simulated_day.bound import bound_of
from leeway_cli.simulated_day.cluster import (
    MIDNIGHT,
    Cluster,
    Machine,
    Options,
    Retirement,
    SimulatedPod,
    bind_pending,
)
from leeway_cli.simulated_day.record import GivenBack, Launched, Moment, Record
from leeway_cli.simulated_day.workload import catalog, supply

MINUTE = timedelta(minutes=1)
WARNING = 2
"""Minutes between the notice of a Spot interruption and the end of the instance."""

HOURS_TO_INTERRUPTION = 40
"""Mean hours of a Spot node until it is interrupted. EC2 interrupts far less often."""


class Decisions(Protocol):
    """Who decides about the nodes of a cluster during one day."""

    def may_drain(self, cluster: Cluster, one: Machine) -> bool:
        """Whether the drain of a node that retires may begin: its successor is there."""
        ...

    def launch(self, cluster: Cluster) -> None:
        """Launch nodes for pods without a place."""
        ...

    def give_back(self, cluster: Cluster) -> None:
        """Retire nodes that are not needed."""
        ...


def simulate(
    options: Options,
    show: Callable[[Moment], None] = lambda _: None,
    decisions: Decisions | None = None,
) -> Record:
    """Simulate a day; call `show` after each minute."""
    record = Record()
    for cluster in minutes(options, decisions):
        record = cluster.record
        show(record.moments[-1])
    return record


def minutes(options: Options, decisions: Decisions | None = None) -> Iterator[Cluster]:
    """Simulate a day with somebody's decisions, Leeway's by default; yield its cluster, always the
    same object, after each minute."""
    cluster = Cluster(options)
    by = decisions or Leeway()
    for minute in range(options.start, options.start + options.minutes):
        cluster.minute = minute
        _reclaim(cluster)
        if options.interruptions:
            _interrupt(cluster)
        cluster.controllers.run(minute, cluster.machines)
        drain(cluster, by)
        pending, machines = cluster.controllers.pending, [*cluster.machines.values()]
        cluster.controllers.pending = bind_pending(pending, machines, minute)
        by.launch(cluster)
        if options.gives_back:
            by.give_back(cluster)
        cluster.record.moments.append(_moment(cluster))
        yield cluster


def _reclaim(cluster: Cluster) -> None:
    for one in [*cluster.machines.values()]:
        if one.reclaimed_at is not None and one.reclaimed_at <= cluster.minute:
            del cluster.machines[one.name]


def _interrupt(cluster: Cluster) -> None:
    for one in [*cluster.machines.values()]:
        spot = one.kind[1] == SPOT and one.is_ready(cluster.minute) and one.reclaimed_at is None
        if not spot or cluster.dice.random() >= 1 / 60 / HOURS_TO_INTERRUPTION:
            continue
        one.reclaimed_at = cluster.minute + WARNING
        closed = Unavailable(one.kind[0], one.offering.offering.zone, SPOT)
        cluster.unavailable[closed] = cluster.minute + UNAVAILABLE_FOR // MINUTE
        cluster.record.interrupted += 1
        cluster.record.lost += len(one.pods)
        for pod in [*one.pods.values()]:
            cluster.controllers.evict(pod, one, cluster.minute, lost=True)


def drain(cluster: Cluster, by: Decisions) -> None:
    """Evict within PodDisruptionBudgets the pods of nodes that retire; end nodes without pods."""
    for one in [*cluster.machines.values()]:
        retirement = one.retirement
        if retirement is None or one.reclaimed_at is not None:
            continue
        if not retirement.draining:
            retirement.draining = by.may_drain(cluster, one)
        if retirement.draining:
            if not one.pods:
                del cluster.machines[one.name]
            for pod in [*one.pods.values()]:
                if cluster.controllers.allows_eviction(pod):
                    cluster.controllers.evict(pod, one, cluster.minute, lost=False)
                    cluster.record.moved += 1


def _moment(cluster: Cluster) -> Moment:
    machines, pods = cluster.machines.values(), cluster.controllers.pods.values()
    specs = (one.pod.spec for one in pods)
    options = cluster.options
    return Moment(
        minute=cluster.minute,
        price=sum(cluster.price(one) for one in machines),
        bound=bound_of(specs, options.seed, cluster.hour) if options.bounds else 0.0,
        kinds=Counter(one.kind for one in machines),
        pods=len(pods),
        pending=len(cluster.controllers.pending),
    )


def check_return(cluster: Cluster, one: Machine, cause: Cause) -> Iterator[str]:
    """Yield a sentence for each rule that the return of a node, which begins now, breaks: nothing
    protected goes, no node goes before consolidateAfter is over, and budgets hold."""
    at, name = cluster.minute, f"{one.name} ({cause})"
    if one.going:
        yield f"Minute {at}: {name} goes already."
    protected = [pod.pod.name for pod in one.pods.values() if pod.protected]
    if protected:
        yield f"Minute {at}: {name} has the protected pod {protected[0]}."
    if (at - one.quiet_since) * MINUTE < cluster.options.after:
        yield f"Minute {at}: {name} is not quiet for consolidateAfter."
    fellows = [
        each
        for each in cluster.machines.values()
        if each.is_ready(at) and each.offering.pool.name == one.offering.pool.name
    ]
    disrupted = sum(each.going for each in fellows)
    for budget in cluster.options.budgets:
        limit = budget.limit(len(fellows))
        if budget.applies(cause, MIDNIGHT + at * MINUTE) and disrupted >= limit:
            yield f"Minute {at}: {name} goes, and {disrupted} of {limit} nodes are disrupted."


BOOT = (1, 3)
"""The least and the most minutes from a launch until its node is Ready."""


def start(
    cluster: Cluster,
    chosen: Candidate,
    offered: Supply,
    pods: Collection[SimulatedPod],
    replaces: Iterable[str] = (),
) -> Machine:
    """Launch a node of an offering for pods, in place of the nodes on which they still run."""
    ready = cluster.minute + cluster.dice.randint(*BOOT)
    number = len(cluster.record.launched)
    machine = Machine(
        name=f"ip-10-0-{number // 200}-{number % 200 + 10}",
        offering=chosen,
        labels=offered.labels(offered.candidates.index(chosen)),
        launched_at=cluster.minute,
        ready_at=ready,
        quiet_since=ready,
        free=chosen.type.allocatable,
    )
    cluster.machines[machine.name] = machine
    cluster.record.launched.append(
        Launched(
            minute=cluster.minute,
            node=machine.name,
            kind=machine.kind,
            pods=len(pods),
            lost=sum(one.lost for one in pods),
            moved=sum(one.moved and not one.node for one in pods),
            replaces=frozenset(replaces),
            requested=cluster.requested(chosen.pool),
        )
    )
    return machine


def chosen_by_ec2(
    cluster: Cluster, pool: str, types: Sequence[str], cheapest: Candidate, offered: Supply
) -> Candidate:
    """Return what EC2 launches for a request of these types: for Spot one of those that are the
    cheapest in the zone of the cheapest offering."""
    zone, market = cheapest.offering.zone, cheapest.offering.capacity_type
    if market != SPOT:
        return cheapest
    there = {
        each.type.name: each
        for each in offered.candidates
        if each.pool.name == pool and each.offering.zone == zone
        if each.offering.capacity_type == SPOT
    }
    able = sorted((there[name] for name in types if name in there), key=lambda one: one.price)
    return cluster.dice.choice(able[: cluster.options.choices])


EFFORT = replace(LAUNCHES, improvements=20)
"""provision_nodes makes plans cheaper for a second; a simulated day has many plans."""


class Leeway:
    """The packing of provision_nodes launches nodes, and decide_returns gives nodes back: a
    decision acts if the next one, a minute later, confirms it. `decision` is the last one."""

    def __init__(self) -> None:
        self.decision = ReturnDecision()
        self._plan: Plan | None = None
        self._proposed: Mapping[tuple[str, ...], NodeReturn] = {}

    def may_drain(self, cluster: Cluster, one: Machine) -> bool:
        """Whether all pods of a node have a place on Ready nodes, or have waited long enough."""
        began = one.retirement.began if one.retirement else cluster.minute
        if (cluster.minute - began) * MINUTE >= SUCCESSOR_TIMEOUT:
            return True
        placed = {
            name
            for placement in (self._plan.existing if self._plan is not None else ())
            if placement.node in cluster.machines
            and cluster.machines[placement.node].is_open(cluster.minute)
            for name in placement.pods
        }
        return one.pods.keys() <= placed

    def launch(self, cluster: Cluster) -> None:
        """Launch nodes for pods without a place: pending ones, and those of nodes that wait for
        their successor."""
        retiring = [
            one
            for one in cluster.machines.values()
            if one.retirement and one.retirement.replaced and one.reclaimed_at is None
        ]
        moving = [pod for one in retiring for pod in one.pods.values()]
        homeless = {pod.pod.name: pod for pod in (*cluster.controllers.pending, *moving)}
        self._plan = None
        if not homeless:
            return
        offered = _offered(cluster, retiring)
        pods = [one.pod for one in homeless.values()]
        self._plan = pack(pods, offered, [*cluster.nodes], EFFORT)
        for planned in self._plan.launches:
            held = [homeless[name] for name in planned.pods]
            types = planned.choices[0].instance_types
            chosen = chosen_by_ec2(cluster, planned.pool, types, planned.cheapest, offered)
            start(cluster, chosen, offered, held, (one.node for one in held if one.node))

    def give_back(self, cluster: Cluster) -> None:
        """Decide, and begin what the decision of the minute before proposed too."""
        decision = self.decision = decide_returns(snapshot(cluster))
        for returned in decision.returns:
            if returned.nodes in self._proposed:
                begin(cluster, returned)
        self._proposed = {one.nodes: one for one in decision.returns}


def _offered(cluster: Cluster, retiring: list[Machine]) -> Supply:
    """Everything but offerings without capacity and those of retiring nodes."""
    own = {Unavailable(one.kind[0], one.offering.offering.zone, one.kind[1]) for one in retiring}
    closed, seed = cluster.closed | own, cluster.options.seed
    if not closed:
        return supply(seed, cluster.hour)
    return Supply(cluster.pools, catalog(seed, cluster.hour), closed)


def begin(cluster: Cluster, returned: NodeReturn) -> None:
    """Begin the retirement of nodes."""
    for name in returned.nodes:
        one = cluster.machines[name]
        cluster.record.faults += check_return(cluster, one, returned.cause)
        one.retirement = Retirement(
            returned.cause,
            returned.reason,
            returned.replaced,
            began=cluster.minute,
            draining=not returned.replaced,
        )
        cluster.record.given_back.append(
            GivenBack(
                minute=cluster.minute,
                node=name,
                kind=one.kind,
                cause=returned.cause,
                reason=returned.reason.message,
                saving=returned.saving * (len(one.pods) / returned.moves if returned.moves else 1),
                pods=len(one.pods),
                replaced=returned.replaced,
                requested=cluster.requested(one.offering.pool),
            )
        )


def snapshot(cluster: Cluster) -> Snapshot:
    """Return the snapshot of a cluster now."""
    machines, options = cluster.machines.values(), cluster.options
    own = [one for one in machines if one.is_ready(cluster.minute)]
    starting = [one.node() for one in machines if not one.is_ready(cluster.minute)]
    return Snapshot(
        now=MIDNIGHT + cluster.minute * MINUTE,
        own=tuple(_own(cluster, one) for one in own),
        others=tuple(starting),
        starting=frozenset(one.name for one in starting),
        waiting=tuple(one.pod for one in cluster.controllers.pending),
        pools=cluster.pools,
        catalog=catalog(options.seed, cluster.hour),
        rules={pool.name: options.rules for pool in cluster.pools},
        unavailable=cluster.closed,
        worth=options.worth,
        most=_left_of_churn(cluster, len(own)),
    )


def _left_of_churn(cluster: Cluster, nodes: int) -> int:
    churn = cluster.options.churn
    since = cluster.minute - churn.within // MINUTE
    given = cluster.record.given_back
    recent = sum(one.minute > since and one.cause is not Cause.EMPTY for one in given)
    return max(max(nodes * churn.percent // 100, churn.at_least) - recent, 0)


def _own(cluster: Cluster, one: Machine) -> OwnNode:
    return OwnNode(
        node=one.node(),
        instance=one.name,
        pool=one.offering.pool.name,
        instance_type=one.kind[0],
        zone=one.offering.offering.zone,
        capacity_type=one.kind[1],
        price=cluster.price(one),
        created_at=MIDNIGHT + one.launched_at * MINUTE,
        quiet_since=MIDNIGHT + one.quiet_since * MINUTE,
        pods=tuple(_movable(cluster, pod) for pod in one.pods.values()),
        going=one.going,
    )


def _movable(cluster: Cluster, pod: SimulatedPod) -> MovablePod:
    until = datetime.max.replace(tzinfo=UTC) if pod.protected else None
    blocked = () if cluster.controllers.allows_eviction(pod) else (pod.owner,)
    return MovablePod(pod.pod, until, blocked)
