"""Random pods and existing nodes: seeded mixes, and batches with all that changes a plan."""

import random
from dataclasses import replace

from hypothesis import strategies as st
from leeway.selection.labels import ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.catalog import Unavailable
from leeway.selection.offers.overlays import Overlay, in_order
from leeway.selection.offers.reservations import Reservation, ReservedCapacity
from leeway.selection.pods import (
    ExistingNode,
    HostPort,
    NodePool,
    OnDemandShare,
    Pod,
    PodSpec,
    Spread,
    Taint,
    Toleration,
)
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from bench.launch_checker import Batch
from tests.selection.workloads import (
    APPS,
    FEW,
    GIB,
    GPU,
    LIMITED,
    PLAIN,
    TAINTED,
    TEAM,
    TEAMS,
    ZONES,
    instance_type,
    node_sets,
    pods,
    spec,
    term,
    workloads,
)

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


FLEXIBLE = NodePool(
    "flexible", Requirements([Requirement.of(INSTANCE_TYPE, "Exists", min_values=2)]), weight=5
)
BOUNDED = replace(FLEXIBLE, name="bounded", limits={"cpu": 24_000, "memory": 48 * GIB}, weight=15)
EITHER = NodePool(
    "either",
    Requirements([Requirement.of(CAPACITY_TYPE, "In", ["spot", "on-demand"], min_values=2)]),
)
OF_TEAMS = NodePool("teams", Requirements([Requirement.of(TEAM, "In", TEAMS)]))
OF_X = NodePool("of-x", Requirements.from_labels({TEAM: "x"}), weight=5)
LASTING = NodePool("lasting", Requirements.from_labels({CAPACITY_TYPE: "on-demand"}))
SHARED = NodePool("shared", on_demand=OnDemandShare(base=2000, percent=50))
HESITANT = NodePool("hesitant", taints=(Taint("busy", effect="PreferNoSchedule"),), weight=20)
POOLS = (
    *(PLAIN, TAINTED, LIMITED, FEW, FLEXIBLE, BOUNDED, EITHER),
    *(OF_TEAMS, OF_X, LASTING, SHARED, HESITANT),
)

TYPES = (
    instance_type("small", 2000, 4096, 0.05, spot=0.02),
    instance_type("medium", 4000, 16384, 0.11, spot=0.06),
    instance_type("large", 16000, 32768, 0.4, ("a", "b"), spot=0.3),
    instance_type("arm", 4000, 8192, 0.08, ("c",), arch="arm64"),
    instance_type("warm", 4000, 8192, 0.09, ("a", "c"), arch="arm64", spot=0.1),
    instance_type("many", 8000, 8192, 0.2, ("b",), devices={GPU: 2}),
)
OVERLAYS = (
    Overlay("cheap", Requirements.from_labels({INSTANCE_TYPE: "large"}), price="-60%"),
    Overlay("dear", Requirements.from_labels({ZONE: "a"}), 5, "+0.07"),
    Overlay("free", Requirements.from_labels({CAPACITY_TYPE: "spot"}), 5, "0.01"),
    Overlay("gpus", Requirements.from_labels({ARCH: "arm64"}), capacity=Resources({GPU: 1})),
)
DAEMONS = (
    spec(200, 256),
    spec(100, 64, tolerations=(Toleration("dedicated", "Exists"),)),
    spec(500, 64, terms=(Requirements.from_labels({ARCH: "amd64"}),)),
    spec(50, 64, ports=frozenset({HostPort(80)}), terms=(Requirements.from_labels({ZONE: "a"}),)),
    spec(1500, 64, terms=(Requirements.from_labels({CAPACITY_TYPE: "spot"}),)),
)
UNAVAILABLE = (
    Unavailable("small", "a", "spot"),
    Unavailable("medium", "b", "on-demand"),
    Unavailable("arm", "c", "on-demand"),
)


@st.composite
def reservations(draw: st.DrawFn) -> tuple[Reservation, ...]:
    """A few reservations, some of the same type and zone, some without room."""
    kinds, zones = st.sampled_from(("small", "medium", "large")), st.sampled_from(ZONES)
    found = draw(st.lists(st.tuples(kinds, zones, st.integers(0, 3)), max_size=4))
    return tuple(
        Reservation(ReservedCapacity(f"cr-{n}"), kind, zone, free)
        for n, (kind, zone, free) in enumerate(found)
    )


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """A batch of every kind of constraint, for pools with and without limits, minValues, labels,
    overlays and reservations, beside DaemonSets and nodes that run."""
    overlays = in_order(draw(st.lists(st.sampled_from(OVERLAYS), max_size=2, unique=True)))
    reserved = draw(reservations())
    pools = [
        replace(
            pool,
            node_class=NodeClass(overlays=overlays if draw(st.booleans()) else ()),
            reservations=() if draw(st.integers(0, 3)) == 3 else reserved,
        )
        for pool in draw(st.lists(st.sampled_from(POOLS), min_size=1, max_size=3, unique=True))
    ]
    some = st.lists(st.sampled_from(DAEMONS), max_size=2, unique=True)
    refused = st.lists(st.sampled_from(UNAVAILABLE), max_size=2, unique=True)
    return Batch(draw(workloads()), draw(node_sets()), pools, draw(some), TYPES, draw(refused))
