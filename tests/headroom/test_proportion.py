"""Headroom in proportion to a cluster's size."""

from hypothesis import given
from hypothesis import strategies as st
from leeway.headroom.plan import ClusterSize, Ladder, Linear, Step, ladder_size, linear_size

CLUSTERS = st.builds(ClusterSize, st.integers(0, 5000), st.integers(0, 5_000_000))


def test_the_larger_of_cores_and_nodes_applies_rounded_up() -> None:
    linear = Linear(cores_per_replica=10, nodes_per_replica=4)
    assert linear_size(linear, ClusterSize(nodes=5, millicores=10_001)).replicas == 2
    assert linear_size(linear, ClusterSize(nodes=12, millicores=10_000)).replicas == 3
    assert linear_size(linear, ClusterSize(nodes=0, millicores=0)).replicas == 0


def test_a_linear_size_stays_within_its_bounds_and_the_reason_names_the_bound() -> None:
    linear = Linear(nodes_per_replica=1, minimum=2, maximum=4)
    small, large = (linear_size(linear, ClusterSize(n, 0)) for n in (1, 9))
    assert (small.replicas, large.replicas) == (2, 4)
    assert "the minimum applies" in small.reason.message
    assert "the maximum applies" in large.reason.message
    assert small.reason.code == large.reason.code == "SizeChosen"


def test_a_ladder_gives_the_highest_step_that_is_reached_and_0_below_the_first() -> None:
    ladder = Ladder(cores=(Step(4, 0), Step(16, 2)), nodes=(Step(3, 1),))
    assert ladder_size(ladder, ClusterSize(nodes=2, millicores=15_999)).replicas == 0
    assert ladder_size(ladder, ClusterSize(nodes=3, millicores=4_000)).replicas == 1
    assert ladder_size(ladder, ClusterSize(nodes=3, millicores=16_000)).replicas == 2
    assert ladder_size(Ladder(), ClusterSize(9, 9_000)).replicas == 0


@given(CLUSTERS, st.integers(1, 64), st.integers(1, 64))
def test_a_linear_size_covers_every_share_without_an_extra_replica(
    cluster: ClusterSize, cores: int, nodes: int
) -> None:
    replicas = linear_size(Linear(cores, nodes), cluster).replicas
    assert replicas * cores * 1000 >= cluster.millicores
    assert replicas * nodes >= cluster.nodes
    fewer = replicas - 1
    assert replicas == 0 or (
        fewer * cores * 1000 < cluster.millicores or fewer * nodes < cluster.nodes
    )
