"""The values of --lose."""

import random

import pytest
from leeway_cli.rehearse.cluster import NodeFacts
from leeway_cli.rehearse.rounds import Losses, UnknownLoss, read_losses

NODES = [
    NodeFacts(f"node-{n}", f"us-east-1{'ab'[n % 2]}", "m5.large", groups=("blue",) if n else ())
    for n in range(10)
]


def drawn_by(losses: Losses, seed: int) -> frozenset[str]:
    return losses.draw(random.Random(seed))  # noqa: S311 - repeatable on purpose


def named(*lose: str) -> list[str]:
    return sorted(read_losses(lose, NODES).named)


def test_nodes_zones_types_and_groups() -> None:
    assert named("node-1,node-3") == ["node-1", "node-3"]
    assert named("zone/us-east-1a") == ["node-0", "node-2", "node-4", "node-6", "node-8"]
    assert len(named("type/m5.large")) == 10
    assert len(named("group/blue")) == 9


@pytest.mark.parametrize(("share", "count"), [("30%", 3), ("1%", 1), ("100%", 10), ("14.9%", 1)])
def test_a_share_is_drawn_by_the_seed(share: str, count: int) -> None:
    losses = read_losses([share], NODES)
    drawn = [drawn_by(losses, seed) for seed in (1, 1, 2)]

    assert [len(one) for one in drawn] == [count] * 3
    assert drawn[0] == drawn[1]


def test_a_share_comes_on_top_of_named_nodes() -> None:
    losses = read_losses(["20%", "node-5"], NODES)

    assert len(drawn_by(losses, 0)) == 3
    assert "node-5" in drawn_by(losses, 0)


@pytest.mark.parametrize(
    ("lose", "expected"),
    [
        ("0%", "a share above 0%"),
        ("101%", "a share above 0%"),
        ("x%", "a share above 0%"),
        ("-5%", "a share above 0%"),
        ("30 %", "a share above 0%"),
        ("zone/us-east-1c", "a zone of the nodes (us-east-1a, us-east-1b)"),
        ("zone/", "a zone of the nodes"),
        ("type/m6.large", "an instance type of the nodes (m5.large)"),
        ("group/green", "a node group or pool of the nodes (blue)"),
        ("pod/web", "zone/NAME, type/NAME, group/NAME or a node"),
        ("nod-1", "a node of the cluster (node-0, node-1"),
        ("", "a share such as 30%"),
        ("\x1b[2J", "\\u001b[2J"),
    ],
)
def test_a_loss_that_matches_nothing_says_what_there_is(lose: str, expected: str) -> None:
    with pytest.raises(UnknownLoss) as caught:
        read_losses([lose], NODES)

    assert expected in str(caught.value)
    assert "\x1b" not in str(caught.value)
