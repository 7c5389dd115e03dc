"""Pools with limits: no plan counts on a pod that the limits exclude."""

from leeway.selection.labels import ZONE
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import LabelSelector, NodePool, Pod, PodSpec, PodTerm, Spread
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from bench.plan_checker import violations
from tests.selection.workloads import catalog


def zone_of(app: str) -> PodTerm:
    """The zone of the pods of an app."""
    selected = LabelSelector(Requirements([Requirement.of("app", "In", [app])]))
    return PodTerm(ZONE, selected, frozenset({"default"}))


def pod(
    name: str, app: str, cpu: str, *near: str, memory: str = "64Mi", spread: bool = False
) -> Pod:
    spec = PodSpec(
        namespace="default",
        labels={"app": app},
        requests=Resources.parsed({"cpu": cpu, "memory": memory, "pods": "1"}),
        pod_affinity=tuple(map(zone_of, near)),
        spreads=(Spread(zone_of(app), 1),) if spread else (),
    )
    return Pod(f"default/{name}", spec)


def test_no_planned_pod_depends_on_a_pod_that_the_limits_exclude() -> None:
    waiting = [
        pod("web-0", "web", "1500m", "db", memory="1Gi"),
        pod("web-1", "web", "1500m", "db", memory="1Gi"),
        pod("plain", "web", "1500m"),
        pod("db", "db", "100m", "web"),
        pod("even", "web", "100m", spread=True),
    ]
    pools = [NodePool("few", limits={"nodes": 2})]
    plan = pack(waiting, Supply(pools, catalog()))
    assert violations(plan, waiting, pools, []) == []
    assert plan.launches
    assert plan.unschedulable
