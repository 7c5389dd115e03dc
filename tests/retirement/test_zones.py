"""The order of the zones for a successor, with the reason for each zone."""

from hypothesis import given
from hypothesis import strategies as st
from leeway.retirement.group_successors import SuccessorNeeds, order_zones
from leeway.retirement.reasons import SUCCESSOR_FOUND
from leeway.selection.offers.catalog import Unavailable

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
NEEDS = SuccessorNeeds(B, ("m5.large",), "spot")


def lacking(zone: str, instance_type: str = "m5.large", capacity_type: str = "spot") -> Unavailable:
    return Unavailable(instance_type, zone, capacity_type)


def test_the_instances_own_zone_is_first_and_the_others_keep_the_groups_order() -> None:
    order = order_zones((A, B, C), NEEDS, ())
    assert [choice.zone for choice in order] == [B, A, C]
    assert order[0].why == SUCCESSOR_FOUND(
        "This is the instance's own zone, which keeps the balance of the group."
    )
    assert order[1].why == SUCCESSOR_FOUND(
        f"This is another zone of the group, because {B} has no capacity now."
    )


def test_the_pods_that_need_the_zone_are_the_reason() -> None:
    bound = (("shop/db-0", "a volume"), ("shop/web-1", "topology spread"))
    order = order_zones((A, B), SuccessorNeeds(B, ("m5.large",), "spot", bound), ())
    assert "the instance's own zone: pod" in order[0].why.message
    assert "pod shop/db-0 needs it because of a volume, and 1 more" in order[0].why.message
    assert f"pod shop/db-0 and 1 more needs {B} (a volume)" in order[1].why.message


def test_a_zone_without_capacity_for_every_type_is_left_out() -> None:
    assert [one.zone for one in order_zones((A, B), NEEDS, {lacking(B)})] == [A]
    assert order_zones((A, B), NEEDS, {lacking(A), lacking(B)}) == ()
    two = SuccessorNeeds(B, ("m5.large", "m6i.large"), "spot")
    assert [one.zone for one in order_zones((A, B), two, {lacking(B)})] == [B, A]
    assert [
        one.zone for one in order_zones((A, B), NEEDS, {lacking(B, capacity_type="on-demand")})
    ] == [
        B,
        A,
    ]


@given(st.permutations([A, B, C]), st.sets(st.sampled_from([A, B, C])))
def test_every_zone_of_the_group_with_capacity_comes_once(zones: list[str], full: set[str]) -> None:
    order = [one.zone for one in order_zones(zones, NEEDS, {lacking(zone) for zone in full})]
    assert sorted(order) == sorted({*zones} - full)
    assert B in full or order[0] == B
