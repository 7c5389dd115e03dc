"""Of random mixes, no fewer pods find a place than in the worst of 25 orders of kube-scheduler."""

from dataclasses import replace
from itertools import batched

import pytest
from leeway.selection.labels import HOSTNAME, ZONE
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod
from leeway.selection.requirements import Requirement, Requirements

from bench.plan_checker import violations
from bench.scheduler_simulation import reaches_worst
from tests.selection.mixes import mix
from tests.selection.workloads import TEAM, TEAMS, catalog

NONE = Supply([], catalog())
SUPPLY = Supply([NodePool("plain")], catalog())
OF_TEAMS = Supply([NodePool("plain", Requirements([Requirement.of(TEAM, "In", TEAMS)]))], catalog())
"""Its nodes have one of two values of a label."""
SEPARATE = Supply(
    [
        NodePool(f"of-{team}", Requirements.from_labels({TEAM: team}), labels={TEAM: team})
        for team in TEAMS
    ],
    catalog(),
)
"""The same nodes for the model, which chooses no values of labels."""
MIXES = list(batched(range(90), 30, strict=True))


def on_existing(plan: Plan) -> int:
    return sum(len(placement.pods) for placement in plan.existing)


def planned(pods: list[Pod], supply: Supply, nodes: list[ExistingNode]) -> tuple[Plan, int]:
    """A plan that is right, and how many pods it has a place for."""
    plan = pack(pods, supply, nodes)
    assert violations(plan, pods, supply.pools, nodes) == []
    return plan, len(pods) - len(plan.unschedulable)


def may_share_a_new_node(pods: list[Pod]) -> bool:
    """Whether pods that have to share a node may all go to a new one, if there is room for all of
    them on no existing one."""
    return any(t.topology == HOSTNAME for pod in pods for t in pod.spec.pod_affinity)


@pytest.mark.parametrize("seeds", MIXES)
def test_no_fewer_pods_go_to_existing_nodes(seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        pods, nodes = mix(seed)
        _, placed = planned(pods, NONE, nodes)
        assert reaches_worst(placed, pods, nodes), seed


@pytest.mark.parametrize("seeds", MIXES)
def test_no_fewer_pods_get_a_node_if_nodes_are_launched_too(seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        pods, nodes = mix(seed)
        plan, placed = planned(pods, SUPPLY, nodes)
        assert reaches_worst(placed, pods, nodes, SUPPLY.candidates), seed
        if not may_share_a_new_node(pods):
            assert reaches_worst(on_existing(plan), pods, nodes), seed


@pytest.mark.parametrize("seeds", MIXES)
def test_no_fewer_pods_get_a_node_if_its_label_has_a_value_for_them(seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        pods, nodes = mix(seed, (TEAM, TEAM, ZONE, HOSTNAME))
        _, placed = planned(pods, OF_TEAMS, nodes)
        assert reaches_worst(placed, pods, nodes, SEPARATE.candidates), seed


@pytest.mark.parametrize("seeds", MIXES)
def test_no_fewer_pods_get_a_node_on_new_nodes_alone(seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        pods, _ = mix(seed)
        _, placed = planned(pods, SUPPLY, [])
        assert reaches_worst(placed, pods, [], SUPPLY.candidates), seed


def ending(node: ExistingNode) -> ExistingNode:
    """The node while its first pod terminates."""
    if not node.pods:
        return node
    first, *others = node.pods
    held = (first.held,)
    return replace(node, pods=(*others,), terminating=first.requests, terminating_pods=held)


@pytest.mark.parametrize("seeds", MIXES)
def test_no_fewer_pods_get_a_node_while_pods_terminate(seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        pods, running = mix(seed)
        nodes = [ending(node) for node in running]
        _, placed = planned(pods, SUPPLY, nodes)
        assert reaches_worst(placed, pods, nodes, SUPPLY.candidates), seed
