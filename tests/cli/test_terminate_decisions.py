"""Which instances `leeway terminate` may end, and by which call."""

import pytest
from leeway.instances.facts import GroupFacts, InstanceFacts, Owner, OwnerKind
from leeway.ports.kubernetes_objects import Node
from leeway_cli.stack import same_server
from leeway_cli.terminate.run import (
    Call,
    Ending,
    InstanceNow,
    Target,
    decide_ending,
    find_target,
)

INSTANCE = "i-0123456789abcdef0"


def node(name: str = "node-1", provider_id: str = f"aws:///z/{INSTANCE}", **labels: str) -> Node:
    return Node(name, "uid", provider_id, False, True, labels)


def now(owner: Owner, group: GroupFacts | None = None, state: str = "running") -> InstanceNow:
    facts = InstanceFacts(
        instance=INSTANCE,
        cluster="prod",
        private_dns_name="",
        zone="z",
        instance_type="m5.large",
        capacity_type="spot",
        owner=owner,
    )
    return InstanceNow(state, facts, group)


def web(state: str = "InService", units: int = 1, desired: int = 3, minimum: int = 1) -> GroupFacts:
    return GroupFacts(
        name="web",
        capacity_rebalance=False,
        refreshing=False,
        suspended=frozenset(),
        terminate_hooks=(),
        lifecycle_state=state,
        desired=desired,
        minimum=minimum,
        maximum=9,
        units=units,
    )


GROUPED = Owner(OwnerKind.AUTO_SCALING_GROUP, "web")
NONE = Owner(OwnerKind.NONE)


def decided(
    found: InstanceNow, decrement: bool = False, freed: int = 0, on: Node | None = None
) -> object:
    target = Target(INSTANCE, on or node())
    return decide_ending(target, found, region="r", decrement=decrement, freed=freed)


def test_a_group_that_terminates_the_instance_already_is_not_asked_again() -> None:
    ending = decided(now(GROUPED, web("Terminating:Wait")), decrement=True)
    assert ending == Ending(Call.NONE, "auto-scaling-group web", "web")


def test_an_instance_that_has_left_its_group_is_terminated_alone() -> None:
    assert decided(now(GROUPED, None)) == Ending(Call.TERMINATE, "auto-scaling-group web")


@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_an_instance_that_ends_already_needs_no_node(state: str) -> None:
    ending = decide_ending(
        Target(INSTANCE, None), now(NONE, state=state), region="r", decrement=False
    )
    assert ending == Ending(Call.NONE, "none", over=True)


def test_a_running_instance_without_a_node_is_refused() -> None:
    outcome = decide_ending(Target(INSTANCE, None), now(NONE), region="r", decrement=False)
    assert isinstance(outcome, str)
    assert "no node of the cluster names it" in outcome


def test_the_units_of_an_instance_count_against_the_minimum() -> None:
    assert "below its minimum of" in str(decided(now(GROUPED, web(units=3)), decrement=True))
    ending = decided(now(GROUPED, web(units=2)), decrement=True)
    assert ending == Ending(Call.IN_GROUP, "auto-scaling-group web", "web", freed=2)


def test_nodes_of_one_command_count_together_against_the_minimum() -> None:
    assert isinstance(decided(now(GROUPED, web()), decrement=True, freed=1), Ending)
    assert "below its minimum of" in str(decided(now(GROUPED, web()), decrement=True, freed=2))


def test_an_instance_that_somebody_else_ends_is_refused() -> None:
    by_kubectl, in_group = "Run `kubectl delete node node-1`", "Run `aws autoscaling terminate-"
    for kind, instead in (
        (OwnerKind.KARPENTER, by_kubectl),
        (OwnerKind.AUTO_MODE, by_kubectl),
        (OwnerKind.MANAGED_NODE_GROUP, in_group),
    ):
        refused = str(decided(now(Owner(kind, "general"))))
        assert "drains and terminates it" in refused, kind
        assert instead in refused, kind
    of_no_cluster = str(decided(InstanceNow("running", None, None)))
    assert "is not terminated: its tags do not name exactly one cluster" in of_no_cluster


def test_a_node_of_auto_mode_is_known_by_its_label_too() -> None:
    labels = {"eks.amazonaws.com/compute-type": "auto"}
    assert "drains and terminates it" in str(decided(now(NONE), on=node(**labels)))


@pytest.mark.parametrize(
    "provider_id",
    [
        "",
        "aws:///us-east-1a/0123/fargate-ip-10-0-0-1.ec2.internal",
        "eks-hybrid:///eu-west-1/prod/mi-0123456789abcdef0",
        "gce://project/zone/i-0123456789abcdef0",
        f"aws:///a/b/{INSTANCE}",
        f"aws:///a/{INSTANCE}\n",
        "aws:///a/i-0123456789ABCDEF0",
    ],
)
def test_a_provider_id_that_is_not_ec2s_names_no_instance(provider_id: str) -> None:
    outcome = find_target("node-1", [node(provider_id=provider_id)])
    assert isinstance(outcome, str)
    assert "names no EC2 instance" in outcome
    assert outcome.isprintable()


def test_a_node_whose_name_is_an_instance_id_does_not_stand_for_that_instance() -> None:
    other = "i-00000000000000001"
    impostor = node(INSTANCE, f"aws:///z/{other}")
    assert find_target(INSTANCE, [impostor, node()]) == Target(INSTANCE, node())
    assert find_target(INSTANCE, [impostor]) == Target(INSTANCE, None)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("https://ABC.eks.amazonaws.com", "https://abc.eks.amazonaws.com/", True),
        ("https://abc.eks.amazonaws.com:443", "https://abc.eks.amazonaws.com", True),
        ("https://abc.eks.amazonaws.com", "https://abd.eks.amazonaws.com", False),
        ("https://127.0.0.1:6443", "https://127.0.0.1:6444", False),
    ],
)
def test_two_urls_of_one_api_server(first: str, second: str, same: bool) -> None:
    assert same_server(first, second) is same
