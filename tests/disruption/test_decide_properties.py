"""Of random clusters: every pod of a node that is given back has a place that it may use."""

from dataclasses import replace
from itertools import batched

import pytest
from leeway.disruption.decide import decide_returns
from leeway.disruption.snapshot import OwnNode, Snapshot
from leeway.selection.pods import ExistingNode, Pod

from bench.scheduler_simulation import schedule
from tests.disruption.snapshots import own_node, snapshot
from tests.selection.mixes import mix
from tests.selection.workloads import ZONES

SEEDS = list(batched(range(120), 30, strict=True))
ORDERS = 25


def running(seed: int) -> tuple[OwnNode, ...]:
    """Nodes of Leeway's own with the pods that kube-scheduler binds to them."""
    pods, _ = mix(seed)
    empty = [own_node(f"own-{seed}-{at}", zone=ZONES[at % 3]) for at in range(6)]
    bound = schedule(pods, [one.node for one in empty], seed=seed).nodes
    there: dict[str, list[Pod]] = {one.name: [] for one in empty}
    for pod in pods:
        if pod.name in bound:
            there[bound[pod.name]].append(pod)
    return tuple(_with(one, there[one.name]) for one in empty)


def _with(one: OwnNode, pods: list[Pod]) -> OwnNode:
    filled = own_node(one.name, *(pod.spec for pod in pods), zone=one.zone)
    named = tuple(replace(movable, pod=pod) for movable, pod in zip(filled.pods, pods, strict=True))
    return replace(filled, pods=named)


def after(given: Snapshot, gone: set[str]) -> tuple[list[Pod], list[ExistingNode]]:
    """The pods that have to move, and the nodes: kube-scheduler compares also those that go, as
    long as they exist."""
    moving = [m.pod for one in given.own if one.name in gone for m in one.pods]
    return moving, [one.node.closed() if one.name in gone else one.node for one in given.own]


@pytest.mark.parametrize("seeds", SEEDS)
def test_pods_of_nodes_that_are_not_needed_find_a_place(seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        given = snapshot(*running(seed))
        gone = {
            name for one in decide_returns(given).returns if not one.replaced for name in one.nodes
        }
        moving, nodes = after(given, gone)
        bound = (len(schedule(moving, nodes, seed=order).nodes) for order in range(ORDERS))
        assert any(count == len(moving) for count in bound), seed
