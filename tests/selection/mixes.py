"""Random pending pods and existing nodes, the same in every run."""

import random
from dataclasses import replace

from leeway.selection.labels import ARCH, CAPACITY_TYPE, HOSTNAME, ZONE
from leeway.selection.pods import ExistingNode, HostPort, Pod, PodSpec, Spread, Taint, Toleration
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from tests.selection.workloads import APPS, GIB, TEAM, TEAMS, ZONES, pods, spec, term

DEDICATED = Taint("dedicated", "x")
TERMS = (
    Requirements.from_labels({ZONE: "b"}),
    Requirements([Requirement.of(ZONE, "NotIn", ["a"])]),
    Requirements([Requirement.of(ZONE, "In", ["a", "b"])]),
    Requirements.from_labels({ARCH: "amd64"}),
    Requirements.from_labels({ARCH: "arm64"}),
    Requirements.from_labels({CAPACITY_TYPE: "on-demand"}),
)
CONSTRAINTS = (
    *("spread", "spread", "spreads", "near", "apart", "node", "port", "taint"),
    *("none", "none"),
)
TOPOLOGIES = (ZONE, ZONE, HOSTNAME, HOSTNAME, TEAM, ARCH, CAPACITY_TYPE)


def mix(
    seed: int, topologies: tuple[str, ...] = TOPOLOGIES
) -> tuple[list[Pod], list[ExistingNode]]:
    """One to six sets of replicas, and one to five nodes with up to three pods on each."""
    dice = random.Random(seed)  # noqa: S311
    waiting: list[Pod] = []
    for number in range(dice.randint(1, 6)):
        waiting += pods(f"set{number}", dice.randint(1, 6), _spec(dice, topologies))
    nodes = [_node(dice, number, topologies) for number in range(dice.randint(1, 5))]
    return waiting, nodes


def _spec(dice: random.Random, topologies: tuple[str, ...]) -> PodSpec:
    app = dice.choice(APPS)
    revision = {"pod-template-hash": dice.choice(["1", "2"])} if dice.random() < 0.2 else {}
    topology = dice.choice(topologies)
    settings: dict[str, object] = {"labels": {"app": app, **revision}}
    for kind in dice.sample(CONSTRAINTS, dice.choice([0, 1, 1, 2])):
        selected = term(topology, app=app if dice.random() < 0.7 else dice.choice(APPS))
        match kind:
            case "spread":
                settings["spreads"] = (_spread(dice, topology, app, revision),)
            case "spreads":
                several = dice.sample(sorted(set(topologies)), min(2, len(set(topologies))))
                settings["spreads"] = tuple(_spread(dice, by, app, revision) for by in several)
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


def _spread(dice: random.Random, topology: str, app: str, revision: dict[str, str]) -> Spread:
    """A spread of the pod's own app or another one. With a revision, the selector has its labels,
    as with matchLabelKeys."""
    selected = app if dice.random() < 0.7 else dice.choice(APPS)
    return Spread(
        term(topology, app=selected, **revision),
        dice.choice([1, 1, 2]),
        honors_taints=dice.random() < 0.3,
        honors_affinity=dice.random() < 0.8,
        min_domains=dice.choice([1, 1, 1, 2, 3]),
    )


def _node(dice: random.Random, number: int, topologies: tuple[str, ...]) -> ExistingNode:
    size = Resources({"cpu": 4000, "memory": 8 * GIB, "pods": 20})
    labels = {
        ARCH: "arm64" if dice.random() < 0.2 else "amd64",
        CAPACITY_TYPE: dice.choice(["spot", "on-demand"]),
    }
    if dice.random() < 0.9:
        labels[ZONE] = dice.choice(ZONES)
    if dice.random() < 0.6:
        labels[TEAM] = dice.choice(TEAMS)
    taints = (DEDICATED,) if dice.random() < 0.25 else ()
    running = [_spec(dice, topologies) for _ in range(dice.choice([0, 0, 1, 1, 2, 3]))]
    running[1:] = [replace(each, ports=frozenset()) for each in running[1:]]
    return ExistingNode(f"node-{number}", labels, size, size, taints, tuple(running), pool="plain")
