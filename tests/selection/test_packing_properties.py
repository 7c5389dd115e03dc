"""Any plan keeps every constraint, by checkers that share no code with packing."""

from hypothesis import given, settings
from leeway.selection.labels import RESERVED
from leeway.selection.packing.planning import pack

from bench.launch_checker import Batch
from tests.selection.mixes import batches


@settings(max_examples=100)
@given(batches())
def test_any_plan_keeps_every_constraint_on_each_node_that_ec2_may_launch(batch: Batch) -> None:
    plan = pack(batch.pods, batch.supply, batch.nodes)
    assert batch.faults(plan) == []
    assert plan.price >= plan.bound - 1e-9 or plan.unschedulable
    assert all(miss.reason for miss in plan.unschedulable)
    for node in plan.launches:
        first, reservation = node.choices[0], node.cheapest.offering.reservation
        assert first.reservation == reservation
        assert (first.capacity_type == RESERVED) == (reservation is not None)
        assert all(one.reservation is None for one in node.choices[1:])
