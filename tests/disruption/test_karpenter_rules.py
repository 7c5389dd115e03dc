"""The rules of Karpenter, beside which a day of Leeway is measured, do what its suites state."""

from dataclasses import replace
from datetime import timedelta

import pytest
from leeway.disruption.rules import Budget, Cause
from leeway.selection.labels import ON_DEMAND, SPOT
from leeway.selection.packing.supply import Candidate
from leeway.selection.pods import Pod, PodSpec
from leeway.selection.resources import Resources
from leeway_cli.simulated_day.cluster import Cluster, Machine, Options, SimulatedPod
from leeway_cli.simulated_day.day import drain, simulate, start
from leeway_cli.simulated_day.workload import Job, supply

from bench.karpenter_rules import SPOT_TYPES, Karpenter

MIB = 1024**2
CALM = Options(start=60, after=timedelta(minutes=5), budgets=(Budget("100%"),), choices=1)


def cluster(**changes: object) -> Cluster:
    """A cluster without pods and nodes."""
    return Cluster(replace(CALM, **changes))  # type: ignore[arg-type]


def offering(kind: str, market: str, zone: str | None = None) -> Candidate:
    for each in supply(CALM.seed, CALM.start // 60).candidates:
        found = each.offering
        if (each.type.name, found.capacity_type, each.pool.name) == (kind, market, "general") and (
            zone is None or found.zone == zone
        ):
            return each
    raise AssertionError(f"{kind} is not offered")


def node(of: Cluster, kind: str, market: str, *cpus: int, memory: int = 128) -> Machine:
    """A Ready and quiet node with pods of these millicores."""
    offered = supply(CALM.seed, of.hour)
    machine = start(of, offering(kind, market), offered, [])
    machine.ready_at = machine.quiet_since = machine.launched_at = of.minute - 30
    for cpu in cpus:
        machine.bind(pod(of, cpu, memory), of.minute - 30)
    return machine


def pod(of: Cluster, cpu: int, memory: int = 128) -> SimulatedPod:
    """A pod without a node, of its own owner."""
    name = f"job-{len(of.controllers.pods)}"
    spec = PodSpec(requests=Resources({"cpu": cpu, "memory": memory * MIB, "pods": 1}))
    made = SimulatedPod(Pod(f"default/{name}", spec), name, 0, job=Job(name, spec, 0, 600))
    of.controllers.pods[made.pod.name] = made
    return made


def pend(of: Cluster, *cpus: int) -> list[SimulatedPod]:
    made = [pod(of, cpu) for cpu in cpus]
    of.controllers.pending += made
    return made


def going(of: Cluster) -> set[str]:
    return {one.name for one in of.machines.values() if one.going}


def test_pending_pods_take_nodes_that_exist_before_a_new_one_is_launched() -> None:
    of = cluster()
    node(of, "m5.large", ON_DEMAND)
    pend(of, 1000, 700)
    Karpenter().launch(of)
    assert len(of.machines) == 1
    pend(of, 1900)
    Karpenter().launch(of)
    assert len(of.machines) == 2, "the three together do not fit"


def test_a_launch_prefers_spot() -> None:
    of = cluster()
    pend(of, 500)
    Karpenter().launch(of)
    assert [one.kind[1] for one in of.machines.values()] == [SPOT]


def test_pods_of_a_node_that_goes_are_planned_elsewhere() -> None:
    of = cluster()
    lost = node(of, "m5.large", SPOT, 1500)
    lost.reclaimed_at = of.minute + 2
    Karpenter().launch(of)
    assert len(of.machines) == 2


def test_empty_nodes_go_within_the_budget() -> None:
    of = cluster(budgets=(Budget("2"),))
    for _ in range(3):
        node(of, "m5.large", SPOT)
    Karpenter().give_back(of)
    assert len(going(of)) == 2
    assert {one.cause for one in of.record.given_back} == {Cause.EMPTY}


def test_a_node_goes_only_after_consolidate_after() -> None:
    of = cluster()
    node(of, "m5.large", SPOT).quiet_since = of.minute - 4
    Karpenter().give_back(of)
    assert not going(of)


def test_nodes_inside_their_own_consolidate_after_receive_no_moved_pods() -> None:
    of = cluster()
    small = node(of, "m5.large", SPOT, 200)
    large = node(of, "m5.2xlarge", SPOT, 6000, 500)
    large.quiet_since = of.minute - 1
    Karpenter().give_back(of)
    assert not going(of)
    large.quiet_since = of.minute - 5
    Karpenter().give_back(of)
    assert going(of) == {small.name}


def test_spot_is_replaced_with_spot_only_by_the_gate_and_with_enough_cheaper_types() -> None:
    of = cluster()
    node(of, "m5.2xlarge", SPOT, 300)
    Karpenter().give_back(of)
    assert not going(of)
    Karpenter(spot_to_spot=True).give_back(of)
    assert len(going(of)) == 1
    cheap = cluster()
    prices = sorted(
        {
            each.type.name: each.price
            for each in reversed(supply(CALM.seed, 1).candidates)
            if each.offering.capacity_type == SPOT and each.pool.name == "general"
        }.items(),
        key=lambda one: one[1],
    )
    node(cheap, prices[SPOT_TYPES - 5][0], SPOT, 300)
    Karpenter(spot_to_spot=True).give_back(cheap)
    assert not going(cheap)


def test_an_on_demand_node_is_replaced_with_cheaper_spot_and_its_drain_waits_for_it() -> None:
    of = cluster()
    old = node(of, "m5.2xlarge", ON_DEMAND, 300)
    by = Karpenter()
    by.give_back(of)
    (new,) = (one for one in of.machines.values() if one.name != old.name)
    assert new.kind[1] == SPOT
    assert old.retirement is not None
    assert not by.may_drain(of, old)
    of.minute = new.ready_at
    assert by.may_drain(of, old)


def test_a_node_stays_if_ec2_takes_its_successor() -> None:
    of = cluster()
    old = node(of, "m5.2xlarge", ON_DEMAND, 300)
    by = Karpenter()
    by.give_back(of)
    (new,) = (one for one in of.machines.values() if one.name != old.name)
    del of.machines[new.name]
    drain(of, by)
    assert old.retirement is None
    assert old.pods


def test_several_nodes_are_replaced_by_one_but_never_with_one_of_their_own_type() -> None:
    of = cluster()
    for _ in range(4):
        node(of, "m5.xlarge", ON_DEMAND, 900, memory=2048)
    Karpenter().give_back(of)
    new = [one for one in of.machines.values() if not one.going]
    assert len(new) < 4
    for launched in of.record.launched[4:]:
        assert launched.kind != ("m5.xlarge", ON_DEMAND)


@pytest.mark.parametrize(("balanced", "moved"), [(False, 1), (True, 0)])
def test_balanced_refuses_moves_that_save_little_for_what_they_disrupt(
    balanced: bool, moved: int
) -> None:
    of = cluster()
    node(of, "m5.large", SPOT, *[40] * 12)
    for _ in range(3):
        node(of, "m5.2xlarge", SPOT, 7000)
    room = node(of, "c5.2xlarge", SPOT, 6500)
    room.bind(pod(of, 100), of.minute - 30)
    for one in room.pods.values():
        one.protected = True
    Karpenter(balanced=balanced).give_back(of)
    assert len(going(of)) == moved


def test_a_morning_keeps_the_budgets_and_gives_every_pod_a_node() -> None:
    options = Options(
        start=17 * 60, minutes=60, scale=0.2, interruptions=True, after=timedelta(minutes=3)
    )
    record = simulate(options, decisions=Karpenter(spot_to_spot=True))
    assert not record.faults
    assert record.causes["Underutilized"] + record.causes["Underutilized, replaced"]
    assert record.moments[-1].pending < record.moments[-1].pods / 10
