"""A switch from Karpenter to Leeway and back: its steps, its refusals, and what a kill leaves."""

import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from leeway.instances.facts import OWNER_TAG, POOL_TAG, OwnerKind
from leeway.switched import Buyer
from leeway_cli.adopt.adoptions import ADOPTION, CLAIM_TIME, Adoption
from leeway_cli.adopt.run import Command
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.output import Format
from leeway_cli.switch.plan import Deployment, Do, plan_switch
from leeway_cli.switch.run import carry_out
from leeway_cli.switch.world import hidden_by

from tests.fakes.table import TableInMemory
from tests.switch.world import KARPENTERS, LEEWAYS, Cluster, Machine, of_karpenter

TO = [Buyer.LEEWAY, Buyer.KARPENTER]


def owners(cluster: Cluster) -> set[OwnerKind]:
    return {one.seen().facts.owner.kind for one in cluster.machines.values()}


def test_leeway_takes_the_nodes_of_a_stopped_karpenter_and_leaves_what_it_wrote() -> None:
    cluster = of_karpenter()
    claims = dict(cluster.claims)
    assert cluster.switched(Buyer.LEEWAY)
    assert owners(cluster) == {OwnerKind.LEEWAY}
    assert cluster.recorded == {*cluster.machines}
    assert cluster.claims == claims
    assert all(KARPENTERS.items() <= one.tags.items() for one in cluster.machines.values())
    assert cluster.leeway_may_launch
    assert (cluster.drained, cluster.ended, cluster.launched) == ([], [], [])


def test_karpenter_gets_its_nodes_back_and_keeps_those_that_leeway_launched() -> None:
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.add("i-new", LEEWAYS)
    assert cluster.switched(Buyer.KARPENTER)
    assert owners(cluster) == {OwnerKind.KARPENTER}
    assert cluster.claims["default-new"] == "i-new"
    assert cluster.deployment.replicas == 2
    assert (cluster.drained, cluster.ended, cluster.launched) == ([], [], [])


def test_a_node_that_karpenter_would_not_keep_is_drained_while_karpenter_runs() -> None:
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.add("i-old", LEEWAYS)
    cluster.unfit["i-old"] = "its NodePool is gone"
    assert cluster.switched(Buyer.KARPENTER)
    assert cluster.drained == ["node-i-old"]
    assert {*cluster.machines} == {"i-0", "i-1"}


def test_an_instance_that_lost_its_nodeclaim_is_drained_and_not_ended_by_karpenter() -> None:
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    del cluster.claims["claim-i-0"]
    cluster.unfit["i-0"] = "its Node is not Ready"
    assert cluster.switched(Buyer.KARPENTER)
    assert (cluster.drained, cluster.ended) == (["node-i-0"], [])


def test_no_nodeclaim_is_written_while_karpenter_runs() -> None:
    """Karpenter would launch an instance for a NodeClaim before its status says that it has one."""
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.add("i-new", LEEWAYS)
    cluster.deployment = replace(cluster.deployment, replicas=1)
    cluster.sleep(1)
    assert cluster.switched(Buyer.KARPENTER)
    assert cluster.drained == ["node-i-new"]


def test_nodes_wait_for_the_lease_of_a_karpenter_that_somebody_has_just_stopped() -> None:
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.add("i-new", LEEWAYS)
    cluster.switched(Buyer.KARPENTER, kill=1)
    cluster.sleep(100)
    cluster.renewed = cluster.now
    assert cluster.switched(Buyer.KARPENTER)
    assert (cluster.drained, cluster.claims["default-new"]) == ([], "i-new")


def test_a_karpenter_that_somebody_starts_again_is_stopped_again() -> None:
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.deployment = replace(cluster.deployment, replicas=3)
    cluster.sleep(100)
    assert not cluster.leeway_may_launch
    assert cluster.ended == []
    assert cluster.switched(Buyer.LEEWAY)
    assert cluster.deployment.replicas == 0
    cluster.switched(Buyer.KARPENTER)
    assert cluster.deployment.replicas == 3


def test_a_launch_that_has_not_joined_is_waited_for() -> None:
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.add("i-new", LEEWAYS)
    cluster.machines["i-new"].joined = False
    asked = []

    def join_later() -> None:
        asked.append(cluster.now)
        if len(asked) == 60:
            cluster.machines["i-new"].joined = True

    cluster.others = join_later
    assert cluster.switched(Buyer.KARPENTER)
    assert "default-new" in cluster.claims
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.machines["i-new"] = Machine("i-new", dict(LEEWAYS), joined=False)
    with pytest.raises(CannotBeDoneError, match="takes too long"):
        cluster.switched(Buyer.KARPENTER)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"managed": False}, "leeway adopt prod"),
        ({"in_cluster": False}, "--manifests cluster"),
        ({"dry_run": True}, "spec.dryRun"),
        ({"deployments": ()}, "no Deployment of Karpenter"),
        (
            {
                "deployments": (
                    Deployment("kube-system", "k", 1, 1),
                    Deployment("karpenter", "k", 0, 0),
                )
            },
            "several Deployments",
        ),
        ({"deployments": (Deployment("infra", "k", 1, 1),)}, "infra/k is in another namespace"),
        (
            {"deployments": (Deployment("karpenter", "k", 0, 0, hidden="another Lease (X=y)"),)},
            r"karpenter/k has another Lease \(X=y\), so Leeway would not see that Karpenter runs",
        ),
        ({"alive": None}, "renews no Lease karpenter-leader-election"),
        ({"problems": ("NodePool default: spec.replicas: expected 0",)}, "cannot launch from it"),
        ({"disrupted": ("node-i-0",)}, "Karpenter drains node node-i-0 now"),
    ],
)
def test_a_switch_to_leeway_is_refused_before_anything_changes(
    changed: dict[str, object], why: str
) -> None:
    cluster = of_karpenter()
    cluster.settings = changed
    with pytest.raises(CannotBeDoneError, match=why):
        cluster.switched(Buyer.LEEWAY)
    assert cluster.switch is None
    assert cluster.deployment.replicas == 2


@pytest.mark.parametrize(
    ("container", "hidden"),
    [
        ({}, ""),
        ({"env": [{"name": "DISABLE_LEADER_ELECTION", "value": "false"}]}, ""),
        ({"env": [{"name": "DISABLE_LEADER_ELECTION", "value": "true"}]}, "leader election"),
        ({"env": [{"name": "CLUSTER_NAME", "valueFrom": {}}]}, ""),
        ({"args": ["--disable-leader-election"]}, "leader election disabled"),
        ({"args": ["--disable-leader-election=false"]}, ""),
        ({"command": ["/controller", "-leader-election-name=mine"]}, "NAME=mine"),
        ({"env": [{"name": "LEADER_ELECTION_NAMESPACE", "value": "infra"}]}, "NAMESPACE=infra"),
        ({"env": [{"name": "LEADER_ELECTION_NAMESPACE", "value": "karpenter"}]}, ""),
    ],
)
def test_a_deployment_tells_that_leeway_would_not_see_its_lease(
    container: dict[str, object], hidden: str
) -> None:
    """Also while it is scaled to zero, when no Lease can tell."""
    found = hidden_by({"spec": {"template": {"spec": {"containers": [container]}}}})
    assert hidden in found
    assert bool(found) is bool(hidden)


def test_karpenter_finishes_what_it_has_begun_before_a_switch() -> None:
    cluster = of_karpenter()
    cluster.machines["i-0"].joined = False
    cluster.deleting.add("claim-i-1")
    plan = plan_switch(cluster.read(), Buyer.LEEWAY)
    first, second = plan.refusals
    assert first.startswith("The node of NodeClaim claim-i-0 has not joined. Run the command again")
    assert second.startswith("Karpenter ends NodeClaim claim-i-1 now. Run the command again")


def test_what_karpenter_began_in_the_last_moment_is_left_and_named() -> None:
    cluster = of_karpenter()
    cluster.deployment = replace(cluster.deployment, replicas=0, running=0)
    cluster.sleep(100)
    cluster.machines["i-0"].joined = False
    cluster.deleting.add("claim-i-1")
    cluster.claims["claim-gone"] = "i-gone"
    cluster.registered.add("claim-gone")
    cluster.add("i-orphan", KARPENTERS)
    left = "\n".join(plan_switch(cluster.read(), Buyer.LEEWAY).left)
    assert "NodeClaim claim-i-0 stays Karpenter's: its node has not joined" in left
    assert "`leeway terminate node-i-1`" in left
    assert "i-gone is no instance that runs" in left
    assert "Instance i-orphan stays as it is" in left
    assert cluster.switched(Buyer.LEEWAY)
    assert cluster.machines["i-0"].tags == KARPENTERS
    assert cluster.machines["i-orphan"].tags == KARPENTERS


def test_a_deployment_that_git_owns_is_scaled_by_a_person() -> None:
    cluster = of_karpenter()
    cluster.deployment = replace(cluster.deployment, git="Argo CD (karpenter)")
    with pytest.raises(CannotBeDoneError, match=r"scale deployment karpenter --replicas 0"):
        cluster.switched(Buyer.LEEWAY)
    assert not cluster.leeway_may_launch, "the record names Karpenter"
    cluster.deployment = replace(cluster.deployment, replicas=0)
    assert cluster.switched(Buyer.LEEWAY)
    with pytest.raises(CannotBeDoneError, match=r"Set spec\.replicas to 2 there"):
        cluster.switched(Buyer.KARPENTER)
    cluster.deployment = replace(cluster.deployment, replicas=2)
    assert cluster.switched(Buyer.KARPENTER)


def test_the_plan_names_every_step_before_the_first_one_is_done() -> None:
    plan = plan_switch(of_karpenter().read(), Buyer.LEEWAY)
    assert plan.found == (
        "NodePool default, EC2NodeClass default",
        "NodeClaim claim-i-0: instance i-0, node node-i-0",
        "NodeClaim claim-i-1: instance i-1, node node-i-1",
    )
    steps = plan.steps
    expected = [Do.NAME_KARPENTER, Do.SCALE, Do.WAIT, Do.NAME_LEEWAY, Do.RECORD, Do.TAG]
    assert [one.do for one in steps] == expected
    assert steps[-1].instances == ("i-0", "i-1")
    assert dict(steps[-1].tags)[POOL_TAG] == "default"


def test_a_write_without_effect_ends_with_an_error() -> None:
    cluster = of_karpenter()
    cluster.tag = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(CannotBeDoneError, match="tag 2 instances of pool default"):
        carry_out(cluster, Buyer.LEEWAY, lambda _: None, cluster.sleep)


RUNS = st.lists(
    st.tuples(
        st.sampled_from(TO),
        st.integers(0, 14) | st.none(),
        st.booleans(),
        st.sampled_from([0.0, 30.0, 120.0]),
    ),
    max_size=5,
)


@settings(max_examples=50, deadline=None)
@given(runs=RUNS, last=st.sampled_from(TO), own=st.integers(0, 2))
def test_kills_and_changes_of_direction_end_as_one_run_does(
    runs: list[tuple[Buyer, int | None, bool, float]], last: Buyer, own: int
) -> None:
    """Never may two launch, and Karpenter, which acts after each write and as time passes, ends no
    instance. A NodeClaim without its status is completed before Karpenter runs again."""
    cluster, nodes = of_karpenter(), {"i-0", "i-1"}
    for direction, kill, torn, pause in runs:
        cluster.switched(direction, kill=kill, torn=torn)
        if cluster.leeway_may_launch and len(nodes) < 2 + own:
            nodes.add(name := f"i-{len(nodes)}")
            cluster.add(name, LEEWAYS)
        cluster.sleep(pause)
    assert cluster.switched(last)
    for buyer in (last, last):
        assert cluster.switched(buyer), "a second run changes nothing"
    expected = OwnerKind.LEEWAY if last is Buyer.LEEWAY else OwnerKind.KARPENTER
    assert owners(cluster) == {expected}
    assert {*cluster.machines} == nodes
    assert cluster.leeway_may_launch is (last is Buyer.LEEWAY)
    assert cluster.karpenter_runs is (last is Buyer.KARPENTER)
    assert (cluster.drained, cluster.ended, cluster.launched) == ([], [], [])


MOVES = st.lists(st.sampled_from([None, None, None, 0, 1, 3]), max_size=40)


@settings(max_examples=60, deadline=None)
@example(runs=[(Buyer.KARPENTER, 3, False, 0.0)], last=Buyer.LEEWAY, own=1, moves=[])
@given(runs=RUNS, last=st.sampled_from(TO), own=st.integers(0, 2), moves=MOVES)
def test_somebody_who_starts_and_stops_karpenter_in_between_lets_no_two_act(
    runs: list[tuple[Buyer, int | None, bool, float]],
    last: Buyer,
    own: int,
    moves: list[int | None],
) -> None:
    """After each write and each wait the world checks that Karpenter does not run while Leeway may
    launch. Karpenter ends no instance and launches none; only nodes of Leeway may be drained. All
    of it begins after a switch to Leeway, which has launched `own` nodes since."""
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    for number in range(own):
        cluster.add(f"i-{2 + number}", LEEWAYS)
    nodes = {*cluster.machines}
    cluster.moves = moves
    for direction, kill, torn, pause in runs:
        with suppress(CannotBeDoneError):
            cluster.switched(direction, kill=kill, torn=torn)
        cluster.sleep(pause)
    with suppress(CannotBeDoneError):
        cluster.switched(last)
    cluster.moves = []
    for _ in range(2):
        cluster.sleep(120)
        assert cluster.switched(last)
    expected = OwnerKind.LEEWAY if last is Buyer.LEEWAY else OwnerKind.KARPENTER
    assert owners(cluster) == {expected}
    drained = {one.removeprefix("node-") for one in cluster.drained}
    assert {*cluster.machines} == nodes - drained
    assert not drained & {"i-0", "i-1"}
    assert {*cluster.claims} <= cluster.registered, "no NodeClaim is left that nobody deletes"
    assert cluster.leeway_may_launch is (last is Buyer.LEEWAY)
    assert cluster.karpenter_runs is (last is Buyer.KARPENTER)
    assert (cluster.ended, cluster.launched) == ([], [])


@pytest.mark.parametrize("kill", range(1, 8))
@pytest.mark.parametrize("torn", [False, True])
def test_a_nodeclaim_of_a_killed_switch_is_gone_after_the_way_back(kill: int, torn: bool) -> None:
    """Nobody would delete it with its instance: the Node does not name it."""
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.add("i-new", LEEWAYS)
    cluster.switched(Buyer.KARPENTER, kill=kill, torn=torn)
    if cluster.karpenter_runs:
        return
    assert cluster.switched(Buyer.LEEWAY)
    assert "default-new" not in cluster.claims
    assert cluster.machines["i-new"].tags == LEEWAYS, "Karpenter would end it without a NodeClaim"
    assert len(cluster.claims) == 2


def test_a_nodeclaim_without_a_status_is_gone_before_karpenter_starts() -> None:
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.add("i-new", LEEWAYS)
    cluster.switched(Buyer.KARPENTER, kill=1, torn=True)
    assert cluster.claims["default-new"] == ""
    cluster.unfit["i-new"] = "its Node is not Ready"
    assert cluster.switched(Buyer.KARPENTER)
    assert (cluster.drained, cluster.launched) == (["node-i-new"], [])


def test_leeways_launches_are_quiet_before_karpenter_runs() -> None:
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    began = cluster.now
    cluster.switched(Buyer.KARPENTER)
    assert cluster.now - began > timedelta(seconds=60)
    assert all(OWNER_TAG not in one.tags for one in cluster.machines.values())


def test_a_command_that_has_lost_its_claim_writes_nothing_more() -> None:
    cluster = of_karpenter()

    def lost(_: float) -> None:
        raise CannotBeDoneError("Another process has taken over cluster prod.")

    with pytest.raises(CannotBeDoneError, match="taken over"):
        carry_out(cluster, Buyer.LEEWAY, lambda _: None, lost)
    assert (cluster.switch, cluster.deployment.replicas) == (None, 2)


def test_a_claim_is_renewed_while_a_node_is_drained() -> None:
    table = TableInMemory()
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    first, second = (Adoption(table, "prod", lambda: now, name) for name in ("first", "second"))
    command = Command(yes=True, dry_run=False, output=Format.TABLE)
    with command.claimed(first), command.renewing(every=0.001):
        now += 2 * CLAIM_TIME
        until = now + CLAIM_TIME
        while (found := table.get(ADOPTION, cluster="prod")) is None or found.until < until:
            time.sleep(0.001)
        with pytest.raises(CannotBeDoneError, match="first works on cluster prod"):
            second.claim()


def test_a_lost_claim_stays_lost() -> None:
    table = TableInMemory()
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    first, second = (Adoption(table, "prod", lambda: now, name) for name in ("first", "second"))
    first.claim()
    now += 2 * CLAIM_TIME
    second.claim()
    for _ in range(2):
        with pytest.raises(CannotBeDoneError, match="Another process"):
            first.record([])
    first.leave()
    second.record([])


def test_a_cluster_in_which_leeway_drains_nodes_is_not_given_back_yet() -> None:
    seen = replace(of_karpenter().read(), retiring=("ip-10-0-0-1",))
    plan = plan_switch(seen, Buyer.KARPENTER)
    assert plan.steps == ()
    assert "Leeway drains 1 node (ip-10-0-0-1)." in plan.refusals[0]
    assert plan_switch(seen, Buyer.LEEWAY).refusals == ()


def test_a_node_that_leeway_drains_since_the_switch_began_stays_leeways_until_it_is_gone() -> None:
    """Leeway answers a rebalance, a scheduled change and a failed check also while the record names
    Karpenter. Its evictions may wait for pods that start again, so Karpenter runs meanwhile."""
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.add("i-new", LEEWAYS)
    cluster.add("i-kept", LEEWAYS)
    begun: list[datetime] = []

    def leeway_drains() -> None:
        if cluster.switch is None or cluster.switch.buyer is Buyer.LEEWAY:
            return
        if not begun:
            begun.append(cluster.now)
            cluster.settings = {"retiring": ("node-i-new", "node-i-0")}
        elif cluster.settings and cluster.karpenter_runs and len(begun) < 30:
            begun.append(cluster.now)
        elif len(begun) == 30 and cluster.settings:
            assert "default-new" not in cluster.claims
            assert cluster.machines["i-new"].tags == LEEWAYS
            assert cluster.machines["i-0"].tags[OWNER_TAG] == "leeway"
            assert OWNER_TAG not in cluster.machines["i-1"].tags, "the others do not wait"
            assert "default-kept" in cluster.claims
            del cluster.machines["i-new"], cluster.machines["i-0"], cluster.claims["claim-i-0"]
            cluster.settings = {}

    cluster.others = leeway_drains
    assert cluster.switched(Buyer.KARPENTER)
    assert len(begun) == 30
    assert (cluster.drained, cluster.ended, cluster.launched) == ([], [], [])
    assert owners(cluster) == {OwnerKind.KARPENTER}


@pytest.mark.parametrize("kill", [None, 1])
def test_nothing_is_drained_while_the_class_of_a_node_is_not_ready(kill: int | None) -> None:
    """Karpenter takes an empty status for an error, and replaces no node for it."""
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.add("i-new", LEEWAYS)
    if kill is not None:
        cluster.switched(Buyer.KARPENTER, kill=kill)
    cluster.unfit["i-new"] = "the status of its EC2NodeClass does not have the AMI ami-1"
    empty = {"default": "status.amis is empty"}
    cluster.settings = {"not_ready": {**empty, "other": "SubnetsReady is False"}}
    with pytest.raises(CannotBeDoneError, match=r"EC2NodeClass default is not Ready \(status.amis"):
        cluster.switched(Buyer.KARPENTER)
    assert cluster.drained == []
    del cluster.unfit["i-new"]
    cluster.settings = {"not_ready": empty}
    assert cluster.switched(Buyer.KARPENTER), "its node may stay whatever the class has"
    assert (cluster.drained, cluster.claims["default-new"]) == ([], "i-new")


def test_karpenter_is_not_stopped_while_the_class_of_its_nodes_is_not_ready() -> None:
    cluster = of_karpenter()
    cluster.settings = {
        "pools": {"default": "default", "unused": "other"},
        "not_ready": {"other": "status.amis is empty"},
    }
    assert not plan_switch(cluster.read(), Buyer.LEEWAY).refusals, "no node has this class"
    cluster.settings["not_ready"] = {"default": "SubnetsReady is False"}
    with pytest.raises(CannotBeDoneError, match=r"default is not Ready \(SubnetsReady is False\)"):
        cluster.switched(Buyer.LEEWAY)
    assert cluster.karpenter_runs


def test_a_node_that_karpenter_began_to_drain_is_named_at_the_end() -> None:
    cluster = of_karpenter()
    cluster.switched(Buyer.LEEWAY)
    cluster.settings = {"disrupted": ("node-i-0", "node-i-1")}
    cluster.deleting = {"claim-i-1"}
    left = plan_switch(cluster.read(), Buyer.LEEWAY).left
    (said,) = [one for one in left if "karpenter.sh/disrupted" in one]
    assert said.startswith("Node node-i-0 has the taint karpenter.sh/disrupted still")
    assert any("leeway terminate node-i-1" in one for one in left)
