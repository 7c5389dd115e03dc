"""In which zones a successor is asked for, and why."""

from hypothesis import given
from hypothesis import strategies as st
from leeway.replacement.zones import Wanted, order_zones
from leeway.selection.offers.unavailable import Unavailable

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
WANTED = Wanted(B, ("m5.large",), "spot")


def lacking(zone: str, instance_type: str = "m5.large", sold_as: str = "spot") -> Unavailable:
    return Unavailable(instance_type, zone, sold_as)


def test_its_own_zone_comes_first_and_the_others_in_the_groups_order() -> None:
    order = order_zones((A, B, C), WANTED, ())
    assert [choice.zone for choice in order] == [B, A, C]
    assert order[0].why == "the instance's own zone, which keeps its group's balance"
    assert order[1].why == f"another zone of its group, since {B} has no capacity now"


def test_the_pods_that_need_the_zone_are_the_reason() -> None:
    bound = (("shop/db-0", "a volume"), ("shop/web-1", "topology spread"))
    order = order_zones((A, B), Wanted(B, ("m5.large",), "spot", bound), ())
    assert order[0].why == f"shop/db-0 needs {B} (a volume), as 1 more of its pods do"
    assert order[1].why.endswith(f"; {order[0].why}")


def test_a_zone_that_lacks_every_type_is_not_asked() -> None:
    assert [one.zone for one in order_zones((A, B), WANTED, {lacking(B)})] == [A]
    assert order_zones((A, B), WANTED, {lacking(A), lacking(B)}) == ()
    two = Wanted(B, ("m5.large", "m6i.large"), "spot")
    assert [one.zone for one in order_zones((A, B), two, {lacking(B)})] == [B, A]
    assert [one.zone for one in order_zones((A, B), WANTED, {lacking(B, sold_as="on-demand")})] == [
        B,
        A,
    ]


@given(st.permutations([A, B, C]), st.sets(st.sampled_from([A, B, C])))
def test_no_zone_is_asked_twice_or_without_being_the_groups(
    zones: list[str], full: set[str]
) -> None:
    order = [one.zone for one in order_zones(zones, WANTED, {lacking(zone) for zone in full})]
    assert sorted(order) == sorted({*zones} - full)
    assert B in full or order[0] == B
