"""Random pending pods and existing nodes, the same in every run."""

import random

from leeway.selection.labels import ARCH, CAPACITY_TYPE, HOSTNAME, ZONE
from leeway.selection.pods import ExistingNode, HostPort, Pod, PodSpec, Spread, Taint, Toleration
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from tests.selection.workloads import APPS, GIB, ZONES, pods, spec, term

DEDICATED = Taint("dedicated", "x")
TERMS = (
    Requirements.from_labels({ZONE: "b"}),
    Requirements([Requirement.of(ZONE, "NotIn", ["a"])]),
    Requirements([Requirement.of(ZONE, "In", ["a", "b"])]),
    Requirements.from_labels({ARCH: "amd64"}),
)
CONSTRAINTS = ("spread", "spread", "near", "apart", "node", "port", "taint", "none", "none")


def mix(seed: int) -> tuple[list[Pod], list[ExistingNode]]:
    """One to six sets of replicas, and one to five nodes with a pod or none on each."""
    dice = random.Random(seed)  # noqa: S311
    waiting: list[Pod] = []
    for number in range(dice.randint(1, 6)):
        waiting += pods(f"set{number}", dice.randint(1, 6), _spec(dice))
    nodes = [_node(dice, number) for number in range(dice.randint(1, 5))]
    return waiting, nodes


def _spec(dice: random.Random) -> PodSpec:
    app = dice.choice(APPS)
    topology = dice.choice([ZONE, HOSTNAME])
    settings: dict[str, object] = {"labels": {"app": app}}
    for kind in dice.sample(CONSTRAINTS, dice.choice([0, 1, 1, 2])):
        selected = term(topology, app=app if dice.random() < 0.7 else dice.choice(APPS))
        match kind:
            case "spread":
                by = CAPACITY_TYPE if dice.random() < 0.1 else topology
                settings["spreads"] = (_spread(dice, by, app),)
            case "near":
                settings["pod_affinity"] = (selected,)
            case "apart":
                settings["pod_anti_affinity"] = (selected,)
            case "node":
                settings["terms"] = (dice.choice(TERMS),)
            case "port":
                settings["ports"] = frozenset({HostPort(dice.choice([80, 81]))})
            case "taint":
                settings["tolerations"] = (Toleration("dedicated", "Exists"),)
    return spec(dice.choice([100, 500, 1000, 1500]), dice.choice([64, 1024]), **settings)


def _spread(dice: random.Random, topology: str, app: str) -> Spread:
    selected = term(topology, app=app if dice.random() < 0.7 else dice.choice(APPS))
    return Spread(
        selected,
        dice.choice([1, 1, 2]),
        honors_taints=dice.random() < 0.3,
        honors_affinity=dice.random() < 0.8,
        min_domains=dice.choice([1, 1, 1, 2, 3]) if topology != CAPACITY_TYPE else 1,
    )


def _node(dice: random.Random, number: int) -> ExistingNode:
    size = Resources({"cpu": 4000, "memory": 8 * GIB, "pods": 20})
    labels = {
        ZONE: dice.choice(ZONES),
        ARCH: "amd64",
        CAPACITY_TYPE: dice.choice(["spot", "on-demand"]),
    }
    taints = (DEDICATED,) if dice.random() < 0.25 else ()
    running = tuple(_spec(dice) for _ in range(dice.randint(0, 1)))
    return ExistingNode(f"node-{number}", labels, size, size, taints, running, pool="plain")
