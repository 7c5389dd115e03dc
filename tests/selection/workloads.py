"""Small random workloads: pools, types, nodes and pods with every kind of constraint."""

from dataclasses import replace

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
from leeway.selection.resources import EBS_VOLUMES, Resources

GPU = "nvidia.com/gpu"
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
    own = {EBS_VOLUMES: 3, **(devices or {})}
    capacity = Resources({"cpu": cpu, "memory": memory * MIB, "pods": pods, **own})
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


TEAM = "example.com/team"
TEAMS = ("x", "y")
KINDS = ("spread", "spreads", "near", "apart", "both", "against")
OTHER_KINDS = ("node", "either", "volume", "hope", "prefer", "port", "taint", "hostile")
UNUSUAL = ("urgent", "elsewhere", "gpu")
TOPOLOGIES = (ZONE, HOSTNAME, ZONE, HOSTNAME, ARCH, CAPACITY_TYPE, TEAM)


@st.composite
def specs(draw: DrawFn) -> PodSpec:
    """Any pod: mostly with one constraint or none. It may select itself, exclude the pods that it
    has to be near, and spread over nodes that its own requirements exclude."""
    app = draw(st.sampled_from(APPS))
    topology = draw(st.sampled_from(TOPOLOGIES))
    selected = term(topology, app=draw(st.sampled_from((app, *APPS))))
    settings: dict[str, object] = {"labels": {"app": app}}
    kinds = draw(st.sets(st.sampled_from(KINDS + OTHER_KINDS + UNUSUAL), max_size=3))
    for kind in sorted(kinds):
        match kind:
            case "spread":
                settings["spreads"] = (draw(spreads(selected)),)
            case "spreads":
                other = replace(selected, topology=draw(st.sampled_from(TOPOLOGIES)))
                settings["spreads"] = (draw(spreads(selected)), draw(spreads(other)))
            case "near" | "apart" | "both" | "against":
                settings |= draw(near_and_apart(kind, selected))
            case "hope":
                settings["preferred_pod_affinity"] = (Weighted(50, selected),)
            case "hostile":
                settings["preferred_pod_anti_affinity"] = (Weighted(50, selected),)
            case _:
                settings |= draw(of_nodes(kind))
    found = spec(
        draw(st.sampled_from([100, 500, 1500])), draw(st.sampled_from([64, 1024])), **settings
    )
    if "volume" in kinds:
        found = with_volume(found, draw(st.sampled_from((*ZONES, None))))
    if "gpu" in kinds:
        found = replace(found, requests=found.requests + Resources({GPU: 1}))
    return found


@st.composite
def of_nodes(draw: DrawFn, kind: str) -> dict[str, object]:
    """Constraints that concern no other pods, and what these see of the pod."""
    match kind:
        case "node":
            return {"terms": (draw(node_terms()),)}
        case "either":
            return {"terms": (draw(node_terms()), draw(node_terms()))}
        case "prefer":
            return {"preferred_terms": (Weighted(50, draw(node_terms())),)}
        case "port":
            return {"ports": frozenset({HostPort(draw(st.integers(80, 81)))})}
        case "taint":
            return {"tolerations": (Toleration("dedicated", "Exists"),)}
        case "urgent":
            return {"priority": 10}
        case "elsewhere":
            return {"namespace": "other"}
        case _:
            return {}


def with_volume(found: PodSpec, zone: str | None) -> PodSpec:
    """The pod with an EBS volume, in a zone if it is bound."""
    found = replace(found, requests=found.requests + Resources({EBS_VOLUMES: 1}))
    if zone is None:
        return found
    there = Requirements.from_labels({ZONE: zone})
    terms = tuple(one.intersection(there) for one in found.terms or (Requirements(),))
    return replace(found, terms=terms, affinity=found.terms)


@st.composite
def near_and_apart(draw: DrawFn, kind: str, selected: PodTerm) -> dict[str, object]:
    """Affinity to these pods, anti-affinity, or both: to the same pods, or to any other ones."""
    other = term(draw(st.sampled_from(TOPOLOGIES)), app=draw(st.sampled_from(APPS)))
    near: dict[str, object] = {} if kind == "apart" else {"pod_affinity": (selected,)}
    if kind == "near":
        return near
    return {**near, "pod_anti_affinity": (other if kind == "against" else selected,)}


def spreads(selected: PodTerm) -> SearchStrategy[Spread]:
    """Spread constraints of these pods."""
    return st.builds(
        Spread,
        st.just(selected),
        st.integers(1, 2),
        required=st.sampled_from([True, True, True, False]),
        min_domains=st.sampled_from([1, 1, 1, 2, 3]),
        honors_affinity=st.sampled_from([True, True, False]),
        honors_taints=st.booleans(),
    )


def node_terms() -> SearchStrategy[Requirements]:
    """One term of node affinity."""
    return st.sampled_from(
        [
            Requirements.from_labels({ZONE: "b"}),
            Requirements.from_labels({ARCH: "arm64"}),
            Requirements([Requirement.of(ZONE, "NotIn", ["a"])]),
            Requirements.from_labels({CAPACITY_TYPE: "spot"}),
            Requirements.from_labels({TEAM: "x"}),
            Requirements.from_labels({ZONE: "a", ARCH: "amd64"}),
            Requirements.from_labels({ZONE: "c", CAPACITY_TYPE: "on-demand"}),
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
def node_sets(draw: DrawFn) -> list[ExistingNode]:
    """Up to three nodes that run, with a pod or two on them. Some have no zone."""
    found = []
    for number in range(draw(st.integers(0, 3))):
        running = [draw(specs()) for _ in range(draw(st.integers(0, 2)))]
        running[1:] = [replace(each, ports=frozenset()) for each in running[1:]]
        zone = draw(st.sampled_from((*ZONES, *ZONES, "elsewhere", None)))
        labels = {
            ARCH: draw(st.sampled_from(ARCHES)),
            CAPACITY_TYPE: draw(st.sampled_from(("spot", "on-demand"))),
        }
        if draw(st.booleans()):
            labels[TEAM] = draw(st.sampled_from(TEAMS))
        size = Resources({"cpu": 4000, "memory": 8 * GIB, "pods": 20, EBS_VOLUMES: 3, GPU: 2})
        found.append(
            ExistingNode(
                f"node-{number}",
                {**labels, ZONE: zone} if zone else labels,
                size,
                size,
                taints=draw(st.sampled_from([(), (), TAINTED.taints])),
                pods=tuple(running),
                pool=draw(st.sampled_from(["plain", "limited", "few"])),
            )
        )
    return found
