"""Where a pending pod gets its node, or why no pool has one and which comes nearest."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from leeway.hibernation import POOL_HIBERNATES
from leeway.launch.prices import PriceCeiling
from leeway.pool_pauses import NODES_NEVER_JOINED
from leeway.provisioning.brakes import LAUNCHES_IN_VAIN
from leeway.selection.labels import ARCH, HOSTNAME
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec, Taint
from leeway.selection.reading.claims import DEVICE_CLAIMS_NOT_PLANNED
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources
from leeway_cli.explain.plan_pod import PodPlan, Situation, explain_pod

from tests.selection.workloads import GIB, catalog, spec


def pool(name: str, arch: str = "amd64", **settings: Any) -> NodePool:
    return NodePool(name, Requirements([Requirement.of(ARCH, "In", [arch])]), **settings)


def node(name: str, cpu: int = 4000) -> ExistingNode:
    amounts = Resources({"cpu": cpu, "memory": 16 * GIB, "pods": 110})
    return ExistingNode(name, {HOSTNAME: name, ARCH: "amd64"}, amounts, amounts)


def explained(
    pod: PodSpec,
    pools: Sequence[NodePool] = (),
    nodes: Sequence[ExistingNode] = (),
    joining: Sequence[ExistingNode] = (),
    others: Sequence[PodSpec] = (),
    daemons: Sequence[PodSpec] = (),
    ceiling: PriceCeiling | None = None,
) -> PodPlan:
    """Explain the pod `default/web` beside other pending pods."""
    waiting = [Pod("default/web", pod)]
    waiting += [Pod(f"default/other-{number}", one) for number, one in enumerate(others)]
    situation = Situation(
        waiting, nodes, joining, daemons, pools, catalog(), ceiling=ceiling, cluster="prod"
    )
    return explain_pod("default/web", situation)


def test_a_pod_with_room_on_a_node_gets_that_node() -> None:
    assert explained(spec(), [pool("web")], [node("n1")]) == PodPlan("default/web", node="n1")


def test_a_pod_gets_a_node_that_has_not_joined_yet() -> None:
    found = explained(spec(), [pool("web")], joining=[node("i-1")])
    assert (found.node, found.joining) == ("i-1", True)


def test_a_pod_without_room_gets_a_new_node_with_the_cheapest_choice_first() -> None:
    found = explained(spec(cpu=1500), [pool("web")], [node("n1", cpu=500)])
    assert found.launch is not None
    assert found.launch.pool == "web"
    assert found.launch.choices[0].price == 0.02


def test_a_pod_whose_node_would_exceed_the_price_ceiling_gets_this_reason() -> None:
    found = explained(spec(cpu=1500), [pool("web")], ceiling=PriceCeiling(0.019))
    assert found.launch is None
    assert found.reason is not None
    assert found.reason.code == "PriceCeilingReached"
    assert explained(spec(cpu=1500), [pool("web")], ceiling=PriceCeiling(0.02)).launch is not None


def test_a_pool_at_its_limit_in_money_leaves_the_pod_to_another_pool() -> None:
    full = pool("full", usd_per_hour=0.019, weight=10)
    found = explained(spec(cpu=1500), [full])
    assert found.reason is not None
    assert found.reason.code == "PoolPriceLimitReached"
    assert [miss.pool for miss in found.misses] == ["full"]
    found = explained(spec(cpu=1500), [full, pool("web")])
    assert found.launch is not None
    assert found.launch.pool == "web"
    wide = pool("wide", usd_per_hour=0.03, weight=10)
    found = explained(spec(cpu=1500), [wide], others=[spec(cpu=1500, priority=10)])
    assert found.reason is not None
    assert "cost 0.00 of at most 0.03 USD per hour" in found.reason.message, (
        "the other pod is first"
    )


def test_a_pod_that_no_node_can_take_gets_the_reason_and_no_list_of_pools() -> None:
    devices = replace(spec(), unmet=DEVICE_CLAIMS_NOT_PLANNED())
    found = explained(devices, [pool("web")], [node("n1")])
    assert found == PodPlan("default/web", reason=DEVICE_CLAIMS_NOT_PLANNED())
    assert explained(spec(cpu=3500), [pool("web")], [node("n1")], others=[devices]).node == "n1"


def test_pods_that_are_placed_first_take_the_room_as_they_do_in_provisioning() -> None:
    large = spec(cpu=3500, priority=1000)
    assert explained(spec(cpu=3000), [], [node("n1")]).node == "n1"
    found = explained(spec(cpu=3000), [pool("web")], [node("n1")], others=[large])
    assert found.launch is not None


def test_the_pool_with_the_fewest_unmet_requirements_is_the_nearest() -> None:
    gpu_taint = Taint("gpu", "yes", "NoSchedule")
    far = pool("far", arch="arm64", taints=(gpu_taint, Taint("team", "a", "NoExecute")))
    near = pool("near", taints=(gpu_taint, Taint("soft", "", "PreferNoSchedule")))
    wanted = spec(terms=(Requirements([Requirement.of(ARCH, "In", ["amd64"])]),))
    found = explained(wanted, [far, near])
    assert found.reason is not None
    assert [(miss.pool, len(miss.unmet)) for miss in found.misses] == [("near", 1), ("far", 3)]
    assert found.misses[0].unmet == ("the pod does not tolerate the taint gpu=yes:NoSchedule",)
    assert found.misses[0].reason.code == "NoNodePoolMatches"


def test_the_nearest_of_several_terms_counts() -> None:
    arm = Requirement.of(ARCH, "In", ["arm64"])
    fast = Requirement.of("disk", "In", ["fast"])
    terms = (Requirements([arm, fast]), Requirements([fast]))
    (miss,) = explained(spec(terms=terms), [pool("web")]).misses
    assert len(miss.unmet) == 1
    assert miss.unmet[0].startswith("disk In [fast]: no node of the pool has the label")


def test_a_pod_that_is_too_large_is_compared_with_the_type_that_lacks_least() -> None:
    (miss,) = explained(spec(cpu=20_000, memory=1024), [pool("web")]).misses
    assert miss.unmet == ("the pod needs 20 of cpu, and large has 16",)


def test_daemonsets_count_only_on_the_pools_that_they_tolerate() -> None:
    daemon = spec(cpu=1000)
    pod = spec(cpu=15_500)
    (miss,) = explained(pod, [pool("web")], daemons=[daemon]).misses
    assert "needs 16500m of cpu with the DaemonSets of a node, and" in miss.unmet[0]
    tainted = pool("batch", taints=(Taint("batch"),))
    (miss,) = explained(pod, [tainted], daemons=[daemon]).misses
    assert miss.unmet == ("the pod does not tolerate the taint batch:NoSchedule",)


def test_a_pool_at_its_limit_has_no_unmet_requirement() -> None:
    (miss,) = explained(spec(), [pool("web", limits={"nodes": 0})]).misses
    assert (miss.unmet, miss.distance, miss.reason.code) == ((), 1, "PoolLimitReached")


def test_without_pools_the_reason_says_so() -> None:
    found = explained(spec())
    assert found.reason is not None
    assert (found.reason.code, found.misses) == ("NoNodePool", ())


def test_a_pod_of_a_pool_that_hibernates_gets_until_when_and_another_pool_is_used() -> None:
    asleep = {"dev": POOL_HIBERNATES(pool="dev", until="07:30 Europe/Berlin")}
    pools = [pool("dev", weight=9)]
    waiting, more = [Pod("default/web", spec())], {"cluster": "prod", "stopped": asleep}
    found = explain_pod(
        "default/web",
        Situation(waiting, (), (), (), pools, catalog(), **more),  # type: ignore[arg-type]
    )
    assert found.launch is None
    assert found.reason == asleep["dev"]
    pools.append(pool("other"))
    found = explain_pod(
        "default/web",
        Situation(waiting, (), (), (), pools, catalog(), **more),  # type: ignore[arg-type]
    )
    assert found.launch is not None
    assert found.launch.pool == "other"


def test_each_pool_that_is_stopped_has_its_own_reason() -> None:
    paused = NODES_NEVER_JOINED(pool="web", cluster="prod", count=3, instances="i-1")
    asleep = POOL_HIBERNATES(pool="dev", until="07:30 Europe/Berlin")
    found = explain_pod(
        "default/web",
        Situation(
            [Pod("default/web", spec())],
            (),
            (),
            (),
            [pool("web", weight=9), pool("dev")],
            catalog(),
            stopped={"web": paused, "dev": asleep},
        ),
    )
    assert (found.launch, found.reason) == (None, paused)
    assert {one.pool: one.reason for one in found.misses} == {"web": paused, "dev": asleep}


def test_a_pod_for_which_launches_are_in_vain_gets_that_reason_and_takes_no_room() -> None:
    why = LAUNCHES_IN_VAIN(workload="default/vain", count=3, nodes="n1, n2, n3")
    waiting = [Pod("default/vain", spec(cpu=3500, priority=9)), Pod("default/web", spec(cpu=3500))]
    now = Situation(
        waiting, [node("n9")], (), (), [pool("web")], catalog(), vain={"default/vain": why}
    )
    assert explain_pod("default/vain", now) == PodPlan("default/vain", reason=why)
    assert explain_pod("default/web", now).node == "n9"
