"""Small random workloads: pools, types, nodes and pods with every kind of constraint."""

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from leeway.selection.labels import ARCH, CAPACITY_TYPE, HOSTNAME, ZONE
from leeway.selection.offers.catalog import Catalog, InstanceType, Offering
from leeway.selection.pods import (
    ExistingNode,
    HostPort,
    LabelSelector,
    NodePool,
    Pod,
    PodSpec,
    PodTerm,
    Spread,
    Taint,
    Toleration,
    Weighted,
)
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

MIB, GIB = 1024**2, 1024**3
ZONES = ("a", "b", "c")
APPS = ("web", "db", "job")
ARCHES = ("amd64", "arm64")
NAMESPACE = frozenset({"default"})


def instance_type(
    name: str,
    cpu: int,
    memory: int,
    price: float | None,
    zones: tuple[str, ...] = ZONES,
    arch: str = "amd64",
    spot: float | None = None,
    pods: int = 110,
    devices: dict[str, int] | None = None,
) -> InstanceType:
    """A type of cpu millicores and memory MiB; `spot` is its Spot price where it has one."""
    capacity = Resources({"cpu": cpu, "memory": memory * MIB, "pods": pods, **(devices or {})})
    offerings = [Offering(zone, "on-demand", price) for zone in zones]
    if spot is not None:
        offerings += [Offering(zone, "spot", spot) for zone in zones]
    return InstanceType(name, {ARCH: arch}, capacity, capacity, tuple(offerings))


def catalog(*types: InstanceType) -> Catalog:
    """A catalog of these types, or of a few usual ones."""
    usual = (
        instance_type("small", 2000, 4096, 0.05, spot=0.02),
        instance_type("medium", 4000, 16384, 0.11, spot=0.06),
        instance_type("large", 16000, 32768, 0.4, ("a", "b"), spot=0.3),
        instance_type("arm", 4000, 8192, 0.08, ("c",), arch="arm64"),
    )
    return Catalog.of("test", types or usual)


def spec(cpu: int = 100, memory: int = 128, **settings: object) -> PodSpec:
    """A pod of cpu millicores and memory MiB."""
    requests = Resources({"cpu": cpu, "memory": memory * MIB, "pods": 1})
    return PodSpec(requests=requests, **settings)  # type: ignore[arg-type]


def pods(name: str, count: int, of: PodSpec) -> list[Pod]:
    """Replicas."""
    return [Pod(f"default/{name}-{i}", of) for i in range(count)]


def term(topology: str, **labels: str) -> PodTerm:
    """Pods with these labels, in the default namespace."""
    return PodTerm(topology, LabelSelector(Requirements.from_labels(labels)), NAMESPACE)


@st.composite
def specs(draw: DrawFn) -> PodSpec:
    """Any pod: mostly with one constraint or none."""
    topology = draw(st.sampled_from([ZONE, HOSTNAME]))
    selected = term(topology, app=draw(st.sampled_from(APPS)))
    settings: dict[str, object] = {"labels": {"app": draw(st.sampled_from(APPS))}}
    for kind in draw(
        st.sets(
            st.sampled_from(["spread", "near", "apart", "node", "hope", "prefer", "port", "taint"]),
            max_size=2,
        )
    ):
        match kind:
            case "spread":
                honors_taints = draw(st.booleans())
                spread = Spread(selected, draw(st.integers(1, 2)), honors_taints=honors_taints)
                settings["spreads"] = (spread,)
            case "near":
                settings["pod_affinity"] = (selected,)
            case "apart":
                settings["pod_anti_affinity"] = (selected,)
            case "node":
                settings["terms"] = (draw(node_terms()),)
            case "hope":
                settings["preferred_pod_affinity"] = (Weighted(50, selected),)
            case "prefer":
                settings["preferred_terms"] = (Weighted(50, draw(node_terms())),)
            case "port":
                settings["ports"] = frozenset({HostPort(draw(st.integers(80, 81)))})
            case _:
                settings["tolerations"] = (Toleration("dedicated", "Exists"),)
    return spec(
        draw(st.sampled_from([100, 500, 1500])), draw(st.sampled_from([64, 1024])), **settings
    )


def node_terms() -> SearchStrategy[Requirements]:
    """One term of node affinity."""
    return st.sampled_from(
        [
            Requirements.from_labels({ZONE: "b"}),
            Requirements.from_labels({ARCH: "arm64"}),
            Requirements([Requirement.of(ZONE, "NotIn", ["a"])]),
            Requirements.from_labels({CAPACITY_TYPE: "spot"}),
        ]
    )


@st.composite
def workloads(draw: DrawFn) -> list[Pod]:
    """A few sets of replicas."""
    found: list[Pod] = []
    for number in range(draw(st.integers(1, 5))):
        found += pods(f"set{number}", draw(st.integers(1, 6)), draw(specs()))
    return found


PLAIN = NodePool("plain")
TAINTED = NodePool("tainted", weight=10, taints=(Taint("dedicated", "x"),))
LIMITED = NodePool("limited", weight=10, limits={"cpu": 6000})
FEW = NodePool("few", weight=10, limits={"nodes": 2})


@st.composite
def surroundings(draw: DrawFn) -> tuple[list[NodePool], list[ExistingNode]]:
    """Pools, and nodes that run; no nodes beside pools with limits.

    (A pod on a running node keeps its place where others that its spread by zone counts on find
    none because of a limit.)
    """
    if draw(st.booleans()):
        return draw(st.sampled_from([[PLAIN], [PLAIN, TAINTED]])), draw(node_sets())
    return draw(st.sampled_from([[PLAIN, LIMITED], [FEW], [LIMITED, FEW]])), []


@st.composite
def node_sets(draw: DrawFn) -> list[ExistingNode]:
    """Up to three nodes that run, with a pod or two on them."""
    found = []
    for number in range(draw(st.integers(0, 3))):
        running = [draw(specs()) for _ in range(draw(st.integers(0, 1)))]
        found.append(
            ExistingNode(
                f"node-{number}",
                {ZONE: draw(st.sampled_from(ZONES)), ARCH: draw(st.sampled_from(ARCHES))},
                Resources({"cpu": 4000, "memory": 8 * GIB, "pods": 20}),
                Resources({"cpu": 4000, "memory": 8 * GIB, "pods": 20}),
                taints=draw(st.sampled_from([(), (), TAINTED.taints])),
                pods=tuple(running),
                pool=draw(st.sampled_from(["plain", "limited", "few"])),
            )
        )
    return found
