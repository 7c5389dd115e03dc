"""The choice of the nodes that a storm interrupts."""

from leeway_cli.demo.storm import CandidateNode, candidate_nodes, choose_targets, workloads_of
from leeway_sandbox.scenario import demo_scenario

from tests.cli.journals import BY_HAND, NODE, WEB, Journal

WORKLOADS = workloads_of(demo_scenario())
EVERYWHERE = frozenset({"Deployment/shop/web", "DaemonSet/kube-system/node-agent"})


def candidates(rare: str = "Deployment/shop/ledger") -> list[CandidateNode]:
    found = [
        CandidateNode(f"node-{at}", f"i-{at}", ("hooked", "plain")[at % 2], EVERYWHERE)
        for at in range(10)
    ]
    found[7] = CandidateNode("node-7", "i-7", "plain", EVERYWHERE | {rare})
    return found


def test_the_same_seed_chooses_the_same_nodes() -> None:
    first, second, other = (choose_targets(candidates(), 4, WORKLOADS, s) for s in (1, 1, 2))

    assert first == second
    assert first != other


def test_a_node_with_a_rare_workload_is_chosen_first() -> None:
    chosen = choose_targets(candidates(), 2, WORKLOADS, seed=3)

    assert "node-7" in {target.node for target in chosen}


def test_nodes_are_chosen_from_both_groups() -> None:
    chosen = choose_targets(candidates(), 4, WORKLOADS, seed=3)

    assert sorted(target.group for target in chosen) == ["hooked", "hooked", "plain", "plain"]


def test_some_targets_get_their_notice_twice() -> None:
    chosen = choose_targets(candidates(), 5, WORKLOADS, seed=3)

    assert sorted(target.copies for target in chosen) == [1, 1, 1, 2, 2]


def test_candidate_nodes_are_read_from_the_journals() -> None:
    journal = Journal().add(-50, "instance-state", instance="i-1", state="running", group="g")
    journal.node(NODE, "i-1", -49, -48).runs("shop/web-1", WEB).runs("staging/by-hand", BY_HAND)
    journal.runs("shop/web-0", WEB).ended(-1, "shop/web-0", WEB)

    (node,) = candidate_nodes(journal.entries)
    assert node == CandidateNode(NODE, "i-1", "g", frozenset({WEB.owner, BY_HAND.owner}))


def test_nodes_of_pools_are_candidates() -> None:
    journal = Journal().add(
        -60,
        "fleet",
        tags={"leeway.sh/nodepool": "web"},
        launched=[{"instance": "i-1"}],
        refused=[],
    )
    journal.add(-50, "instance-state", instance="i-1", state="running", group=None)
    journal.node(NODE, "i-1", -49, -48).runs("shop/web-1", WEB)

    (node,) = candidate_nodes(journal.entries)
    assert (node.group, node.pool) == ("", "web")


def test_nodes_are_chosen_from_groups_and_pools_in_turn() -> None:
    of_a_pool = [CandidateNode(f"own-{at}", f"i-own-{at}", "", EVERYWHERE, "web") for at in (1, 2)]
    chosen = choose_targets([*candidates(), *of_a_pool], 3, WORKLOADS, seed=3)

    assert sorted(target.owner for target in chosen) == ["hooked", "plain", "web"]


def test_a_demo_with_pools_has_their_workloads() -> None:
    scenario = demo_scenario(nodes=10, of_pools=2)
    (pool,) = scenario.pools

    assert scenario.nodes + pool.nodes == 10
    assert pool.pods == 6
    assert "Deployment/orders/orders" in workloads_of(scenario)


def test_the_workloads_of_the_demo_are_read_by_owner() -> None:
    assert WORKLOADS["Deployment/media/transcode"].grace == 300
    assert WORKLOADS["Deployment/kube-system/coredns"].critical
    assert WORKLOADS["DaemonSet/kube-system/node-agent"].daemon
    assert "Pod/staging/migration-by-hand" in WORKLOADS
