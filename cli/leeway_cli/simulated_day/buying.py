"""Launches the nodes of a simulated cluster, with the packing that provision_nodes uses."""

from leeway.selection.labels import SPOT
from leeway.selection.offers.catalog import Unavailable
from leeway.selection.packing.plan import Plan, PlannedNode
from leeway.selection.packing.planning import Effort, pack
from leeway.selection.packing.supply import Candidate, Supply

from leeway_cli.simulated_day.cluster import Cluster
from leeway_cli.simulated_day.machines import Machine
from leeway_cli.simulated_day.offers import catalog, supply
from leeway_cli.simulated_day.record import Launched

BOOT = (1, 3)
"""The least and the most minutes from a launch until its node is Ready."""

EFFORT = Effort(improvements=20)
"""provision_nodes makes plans cheaper for a second; a simulated day has many plans."""


def launch(cluster: Cluster) -> Plan | None:
    """Launch nodes for pods without a place: pending ones, and those of nodes that wait for their
    successor. Return the plan for them; None if every pod has a place."""
    retiring = [
        one
        for one in cluster.machines.values()
        if one.retirement and one.retirement.replaced and one.reclaimed_at is None
    ]
    moving = [pod for one in retiring for pod in one.pods.values()]
    homeless = {pod.pod.name: pod for pod in (*cluster.controllers.pending, *moving)}
    if not homeless:
        return None
    offered = _offered(cluster, retiring)
    plan = pack([one.pod for one in homeless.values()], offered, [*cluster.nodes], EFFORT)
    for planned in plan.launches:
        machine = _launched(cluster, planned, offered)
        cluster.machines[machine.name] = machine
        pods = [homeless[name] for name in planned.pods]
        cluster.record.launched.append(
            Launched(
                minute=cluster.minute,
                node=machine.name,
                kind=machine.kind,
                pods=len(pods),
                lost=sum(one.lost for one in pods),
                moved=sum(one.moved and not one.node for one in pods),
                replaces=frozenset(one.node for one in pods if one.node),
                requested=cluster.requested(machine.offering.pool),
            )
        )
    return plan


def _offered(cluster: Cluster, retiring: list[Machine]) -> Supply:
    """Everything but offerings without capacity and those of retiring nodes."""
    own = {Unavailable(one.kind[0], one.offering.offering.zone, one.kind[1]) for one in retiring}
    closed, seed = cluster.closed | own, cluster.options.seed
    if not closed:
        return supply(seed, cluster.hour)
    return Supply(cluster.pools, catalog(seed, cluster.hour), closed)


def _launched(cluster: Cluster, planned: PlannedNode, offered: Supply) -> Machine:
    chosen = _chosen(cluster, planned, offered)
    ready = cluster.minute + cluster.dice.randint(*BOOT)
    number = len(cluster.record.launched)
    return Machine(
        name=f"ip-10-0-{number // 200}-{number % 200 + 10}",
        offering=chosen,
        labels=offered.labels(offered.candidates.index(chosen)),
        launched_at=cluster.minute,
        ready_at=ready,
        quiet_since=ready,
        free=chosen.type.allocatable,
    )


def _chosen(cluster: Cluster, planned: PlannedNode, offered: Supply) -> Candidate:
    """Return what EC2 launches for a request: for Spot one of the cheapest types."""
    choice, cheapest = planned.choices[0], planned.cheapest
    if choice.capacity_type != SPOT:
        return cheapest
    kind = cluster.dice.choice(choice.instance_types[: cluster.options.choices])
    zone = cheapest.offering.zone
    for each in offered.candidates:
        where = (each.offering.zone, each.offering.capacity_type)
        if (each.pool.name, each.type.name) == (planned.pool, kind) and where == (zone, SPOT):
            return each
    return cheapest
