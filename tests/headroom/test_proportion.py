"""Headroom in proportion to a cluster's size."""

from hypothesis import given
from hypothesis import strategies as st
from leeway.headroom.proportion import ClusterSize, Ladder, Linear, Step, by_ladder, by_line

CLUSTERS = st.builds(ClusterSize, st.integers(0, 5000), st.integers(0, 5_000_000))


def test_the_larger_of_cores_and_nodes_holds_each_begun_replica_whole() -> None:
    linear = Linear(cores_per_replica=10, nodes_per_replica=4)
    assert by_line(linear, ClusterSize(nodes=5, millicores=10_001)).replicas == 2
    assert by_line(linear, ClusterSize(nodes=12, millicores=10_000)).replicas == 3
    assert by_line(linear, ClusterSize(nodes=0, millicores=0)).replicas == 0


def test_a_line_stays_within_its_bounds_and_says_so() -> None:
    linear = Linear(nodes_per_replica=1, minimum=2, maximum=4)
    small, large = (by_line(linear, ClusterSize(n, 0)) for n in (1, 9))
    assert (small.replicas, large.replicas) == (2, 4)
    assert "the minimum" in small.reason
    assert "the maximum" in large.reason


def test_a_ladder_gives_the_highest_step_reached_and_none_below_the_first() -> None:
    ladder = Ladder(cores=(Step(4, 0), Step(16, 2)), nodes=(Step(3, 1),))
    assert by_ladder(ladder, ClusterSize(nodes=2, millicores=15_999)).replicas == 0
    assert by_ladder(ladder, ClusterSize(nodes=3, millicores=4_000)).replicas == 1
    assert by_ladder(ladder, ClusterSize(nodes=3, millicores=16_000)).replicas == 2
    assert by_ladder(Ladder(), ClusterSize(9, 9_000)).replicas == 0


@given(CLUSTERS, st.integers(1, 64), st.integers(1, 64))
def test_a_line_has_one_replica_for_each_share_and_none_too_many(
    cluster: ClusterSize, cores: int, nodes: int
) -> None:
    replicas = by_line(Linear(cores, nodes), cluster).replicas
    assert replicas * cores * 1000 >= cluster.millicores
    assert replicas * nodes >= cluster.nodes
    fewer = replicas - 1
    assert replicas == 0 or (
        fewer * cores * 1000 < cluster.millicores or fewer * nodes < cluster.nodes
    )
