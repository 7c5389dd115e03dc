"""The plan checker finds every kind of violation."""

from dataclasses import replace

import pytest
from leeway.selection.labels import ARCH, HOSTNAME, ZONE
from leeway.selection.packing.plan import Placement, Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, HostPort, NodePool, Pod, PodSpec, Spread, Taint
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources

from bench.plan_checker import violations
from tests.selection.workloads import GIB, catalog, pods, spec, term

PLAIN = NodePool("plain")


def onto_one_node(waiting: list[Pod], pool: NodePool = PLAIN) -> Plan:
    """A plan that puts everybody onto one node, whatever they say."""
    plan = pack(pods("any", 1, spec(3500)), Supply([pool], catalog()))
    (node,) = plan.launches
    together = replace(node, pods=tuple(pod.name for pod in waiting))
    return replace(plan, launches=(together,))


WEB = {"app": "web"}
APART = (term(HOSTNAME, app="web"),)


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (spec(3000), "requested"),
        (spec(labels=WEB, pod_anti_affinity=APART), "violates its anti-affinity"),
        (spec(pod_affinity=(term(ZONE, app="db"),)), "no pod of its affinity"),
        (spec(labels=WEB, spreads=(Spread(term(HOSTNAME, app="web"), 1),)), "skew 2"),
        (spec(ports=frozenset({HostPort(80)})), "port 80"),
        (spec(terms=(Requirements.from_labels({ARCH: "riscv"}),)), "matches no affinity term"),
    ],
)
def test_a_broken_rule_is_found(of: PodSpec, words: str) -> None:
    waiting = pods("web", 2, of)
    found = violations(onto_one_node(waiting), waiting, [PLAIN])
    assert any(words in line for line in found)


def test_a_valid_plan_has_no_violations() -> None:
    waiting = pods("web", 2, spec())
    assert violations(onto_one_node(waiting), waiting, [PLAIN]) == []


def test_missing_and_duplicate_pods_are_found() -> None:
    waiting = pods("web", 2, spec())
    plan = onto_one_node(waiting)
    assert violations(plan, [*waiting, *pods("lost", 1, spec())], [PLAIN])
    assert violations(replace(plan, launches=plan.launches * 2), waiting, [PLAIN])


def test_a_limit_that_is_exceeded_and_a_taint_that_is_not_tolerated_are_found() -> None:
    waiting = pods("web", 1, spec())
    plan = onto_one_node(waiting)
    assert violations(plan, waiting, [replace(PLAIN, limits={"cpu": 1000})])
    tainted = replace(PLAIN, taints=(Taint("dedicated"),))
    node = replace(plan.launches[0], cheapest=replace(plan.launches[0].cheapest, pool=tainted))
    assert violations(replace(plan, launches=(node,)), waiting, [tainted])


def test_an_order_in_which_one_pod_makes_room_for_another_is_found() -> None:
    """The second pod with a spread waits until the last node has a pod that it counts."""
    alone = (term(HOSTNAME, **WEB),)
    even = spec(labels=WEB, spreads=(Spread(term(HOSTNAME, **WEB), 1, min_domains=2),))
    size = Resources({"cpu": 4000, "memory": 8 * GIB, "pods": 20})
    running = (spec(labels=WEB),)
    nodes = [ExistingNode(f"node-{n}", {}, size, size, (), running[: n == 1]) for n in range(3)]
    waiting = [
        *pods("alone", 1, spec(labels=WEB, pod_anti_affinity=alone)),
        *pods("even", 2, even),
        *pods("web", 6, spec(labels=WEB)),
    ]
    together = tuple(pod.name for pod in waiting[1:])
    placed = (Placement("node-0", together), Placement("node-2", (waiting[0].name,)))
    assert violations(Plan((), placed, (), 0.0, 0.0), waiting, [PLAIN], nodes) == []
