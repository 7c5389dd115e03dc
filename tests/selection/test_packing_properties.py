"""Any plan keeps every constraint, by a checker that shares no code with packing."""

from hypothesis import given, settings
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod

from bench.plan_checker import violations
from tests.selection.workloads import catalog, surroundings, workloads

CATALOG = catalog()


@settings(max_examples=100)
@given(workloads(), surroundings())
def test_any_plan_keeps_every_constraint(
    pods: list[Pod], around: tuple[list[NodePool], list[ExistingNode]]
) -> None:
    pools, nodes = around
    plan = pack(pods, Supply(pools, CATALOG), nodes)
    assert violations(plan, pods, pools, nodes) == []
    assert plan.price >= plan.bound - 1e-9 or plan.unschedulable
    assert all(miss.reason for miss in plan.unschedulable)
