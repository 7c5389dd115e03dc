"""Simulates a day of a cluster, minute by minute, with Leeway's pure decisions.

In each minute EC2 interrupts Spot nodes, controllers create and end pods, drains evict, a scheduler
binds, the packing of provision_nodes launches nodes, and decide_returns gives nodes back. A
decision acts only if the next one, a minute later, confirms it.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from leeway.policy.rules import SUCCESSOR_TIMEOUT, UNAVAILABLE_FOR
from leeway.selection.labels import SPOT
from leeway.selection.offers.catalog import Unavailable
from leeway.selection.packing.plan import Plan

from leeway_cli.simulated_day.bound import bound_of
from leeway_cli.simulated_day.buying import launch
from leeway_cli.simulated_day.cluster import Cluster, Options
from leeway_cli.simulated_day.machines import Machine, Retirement
from leeway_cli.simulated_day.record import Moment, Record
from leeway_cli.simulated_day.returning import MINUTE, Proposed, give_back
from leeway_cli.simulated_day.scheduler import bind_pending

WARNING = 2
"""Minutes between the notice of a Spot interruption and the end of the instance."""

HOURS_TO_INTERRUPTION = 40
"""Mean hours of a Spot node until it is interrupted. EC2 interrupts far less often."""


def simulate(options: Options, show: Callable[[Moment], None] = lambda _: None) -> Record:
    """Simulate a day; call `show` after each minute."""
    record = Record()
    for cluster in minutes(options):
        record = cluster.record
        show(record.moments[-1])
    return record


def minutes(options: Options) -> Iterator[Cluster]:
    """Simulate a day; yield its cluster, always the same object, after each minute."""
    cluster = Cluster(options)
    plan: Plan | None = None
    proposed: Proposed = {}
    for minute in range(options.start, options.start + options.minutes):
        cluster.minute = minute
        _reclaim(cluster)
        if options.interruptions:
            _interrupt(cluster)
        cluster.controllers.run(minute, cluster.machines)
        _drain(cluster, plan)
        pending, machines = cluster.controllers.pending, [*cluster.machines.values()]
        cluster.controllers.pending = bind_pending(pending, machines, minute)
        plan = launch(cluster)
        if options.gives_back:
            proposed = give_back(cluster, proposed)
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


def _drain(cluster: Cluster, plan: Plan | None) -> None:
    """Evict within PodDisruptionBudgets the pods of nodes that retire; end nodes without pods."""
    for one in [*cluster.machines.values()]:
        if one.retirement is None or one.reclaimed_at is not None:
            continue
        if not one.retirement.draining:
            one.retirement.draining = _has_successor(cluster, one, one.retirement, plan)
        if one.retirement.draining:
            if not one.pods:
                del cluster.machines[one.name]
            for pod in [*one.pods.values()]:
                if cluster.controllers.allows_eviction(pod):
                    cluster.controllers.evict(pod, one, cluster.minute, lost=False)
                    cluster.record.moved += 1


def _has_successor(
    cluster: Cluster, one: Machine, retirement: Retirement, plan: Plan | None
) -> bool:
    """Whether all pods of a node have a place on Ready nodes, or have waited long enough."""
    if (cluster.minute - retirement.began) * MINUTE >= SUCCESSOR_TIMEOUT:
        return True
    placed = {
        name
        for placement in (plan.existing if plan is not None else ())
        if placement.node in cluster.machines
        and cluster.machines[placement.node].is_open(cluster.minute)
        for name in placement.pods
    }
    return one.pods.keys() <= placed


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
