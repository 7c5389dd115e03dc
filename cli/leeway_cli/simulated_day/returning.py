"""Gives nodes of a simulated cluster back, by decide_returns."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from leeway.disruption.decide import decide_returns
from leeway.disruption.rules import Cause
from leeway.disruption.snapshot import MovablePod, NodeReturn, OwnNode, Snapshot

from leeway_cli.simulated_day.checks import check_return
from leeway_cli.simulated_day.cluster import MIDNIGHT, Cluster
from leeway_cli.simulated_day.machines import Machine, Retirement, SimulatedPod
from leeway_cli.simulated_day.offers import catalog
from leeway_cli.simulated_day.record import GivenBack

MINUTE = timedelta(minutes=1)

Proposed = Mapping[tuple[str, ...], NodeReturn]
"""The returns of a decision by the nodes that go together."""


def give_back(cluster: Cluster, proposed: Proposed) -> Proposed:
    """Decide, and begin what the decision of the minute before proposed too; return what is
    proposed now."""
    decision = decide_returns(snapshot(cluster))
    for returned in decision.returns:
        if returned.nodes in proposed:
            _begin(cluster, returned)
    return {one.nodes: one for one in decision.returns}


def _begin(cluster: Cluster, returned: NodeReturn) -> None:
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
    return Snapshot(
        now=MIDNIGHT + cluster.minute * MINUTE,
        own=tuple(_own(cluster, one) for one in own),
        others=tuple(one.node() for one in machines if not one.is_ready(cluster.minute)),
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
