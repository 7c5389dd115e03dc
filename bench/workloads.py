"""The pods and the instance types of the packing measurements.

The diverse pods are those of Karpenter's own benchmark: a fifth each of pods without constraints,
spread over zones, spread over nodes, with affinity by zone to the pods of their own label, and with
anti-affinity by node. Source: `makeDiversePods` in its `scheduling_benchmark_test.go`.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from leeway.selection.labels import ARCH, HOSTNAME, INITIALIZED, ZONE
from leeway.selection.offers.catalog import Catalog, InstanceType, Offering
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, LabelSelector, Pod, PodSpec, PodTerm, Spread
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources

MIB, GIB = 1024**2, 1024**3
CPU = (100, 250, 500, 1000, 1500)  # millicores
MEMORY = (100, 256, 512, 1024, 2048, 4096)  # MiB
VALUES = "abcdefg"
NAMESPACE = frozenset({"default"})
TYPE_OF_NODES, PODS_OF_A_NODE = "m6i.2xlarge", 10
KINDS = ("generic", "zone-spread", "host-spread", "zone-affinity", "host-anti-affinity")


def generic_pods(count: int, seed: int = 42) -> list[Pod]:
    """Return pods without constraints."""
    dice = random.Random(seed)
    return [Pod(f"default/generic-{i}", _generic(dice)) for i in range(count)]


def diverse_pods(count: int, seed: int = 42) -> list[Pod]:
    """Return a fifth of each kind; the remainder is generic."""
    dice = random.Random(seed)
    pods = []
    for kind in KINDS:
        each = range(count // len(KINDS))
        pods += [Pod(f"default/{kind}-{i}", _of_kind(kind, dice)) for i in each]
    while len(pods) < count:
        pods.append(Pod(f"default/generic-{len(pods)}", _generic(dice)))
    return pods


def equal_pods(deployments: int, seed: int = 7) -> Callable[[int], list[Pod]]:
    """Return a function that makes pods of this number of Deployments, without constraints."""

    def make(count: int) -> list[Pod]:
        dice = random.Random(seed)
        specs = [PodSpec(requests=_requests(dice)) for _ in range(deployments)]
        return [Pod(f"default/pod-{i}", specs[i % deployments]) for i in range(count)]

    return make


def spread_pods(count: int, deployments: int = 20, seed: int = 7) -> list[Pod]:
    """Return pods of this number of Deployments, each spread over the zones."""
    dice = random.Random(seed)
    specs = []
    for number in range(deployments):
        labels = {"app": f"web-{number}"}
        spread = (Spread(_term(ZONE, labels), max_skew=1),)
        specs.append(PodSpec(labels=labels, requests=_requests(dice), spreads=spread))
    return [Pod(f"default/spread-{i}", specs[i % deployments]) for i in range(count)]


def huge_pods(count: int) -> list[Pod]:
    """Return pods that fit nowhere, each of another size."""
    sizes = ({"cpu": 10**7 + i, "memory": GIB, "pods": 1} for i in range(count))
    return [Pod(f"default/huge-{i}", PodSpec(requests=Resources(s))) for i, s in enumerate(sizes)]


def synthetic_catalog(types: int = 400, zones: tuple[str, ...] = ("a", "b", "c")) -> Catalog:
    """Return types of i cores, 2i GiB and 10i pods at proportional prices, on demand in every zone.

    A node reserves 100m and 10 MiB, as in Karpenter's benchmark.
    """
    return Catalog.of("synthetic", _synthetic(types, zones))


def existing_nodes(
    supply: Supply, count: int, with_room: bool, seed: int = 7
) -> list[ExistingNode]:
    """Return nodes of one type in all zones, with ten pods each of the kinds of `diverse_pods`,
    without anti-affinity by node. The pods leave room for a few more, or for none. Equal pods share
    one value, as those of a template do when a cluster is read."""
    dice = random.Random(seed)
    offerings = [at for at, each in enumerate(supply.candidates) if each.type.name == TYPE_OF_NODES]
    used = Resources({"cpu": 500 if with_room else 785, "memory": 2 * GIB, "pods": 1})
    nodes, known = [], dict[PodSpec, PodSpec]()
    for number in range(count):
        offering = dice.choice(offerings)
        candidate = supply.candidates[offering]
        kinds = [dice.choice(KINDS[:-1]) for _ in range(PODS_OF_A_NODE)]
        specs = [replace(_of_kind(kind, dice), requests=used) for kind in kinds]
        nodes.append(
            ExistingNode(
                f"node-{number}",
                {**supply.labels(offering), HOSTNAME: f"node-{number}", INITIALIZED: "true"},
                candidate.type.allocatable,
                candidate.type.capacity,
                pods=tuple(known.setdefault(spec, spec) for spec in specs),
                pool=candidate.pool.name,
            )
        )
    return nodes


def _synthetic(types: int, zones: tuple[str, ...]) -> Iterator[InstanceType]:
    for i in range(1, types + 1):
        capacity = Resources({"cpu": 1000 * i, "memory": 2 * i * GIB, "pods": 10 * i})
        price = 0.1 * i + 0.1 * 2 * i * GIB / 10**9
        yield InstanceType(
            f"fake-it-{i}",
            {ARCH: "amd64"},
            capacity,
            capacity - Resources({"cpu": 100, "memory": 10 * MIB}),
            tuple(Offering(f"zone-{zone}", "on-demand", price) for zone in zones),
        )


def _of_kind(kind: str, dice: random.Random) -> PodSpec:
    match kind:
        case "zone-spread":
            return _spread(dice, ZONE)
        case "host-spread":
            return _spread(dice, HOSTNAME)
        case "zone-affinity":
            labels = {"my-affinity": dice.choice(VALUES)}
            near = (_term(ZONE, labels),)
            return PodSpec(labels=labels, requests=_requests(dice), pod_affinity=near)
        case "host-anti-affinity":
            labels = {"app": "nginx"}
            apart = (_term(HOSTNAME, labels),)
            return PodSpec(labels=labels, requests=_requests(dice), pod_anti_affinity=apart)
        case _:
            return _generic(dice)


def _generic(dice: random.Random) -> PodSpec:
    return PodSpec(labels={"my-label": dice.choice(VALUES)}, requests=_requests(dice))


def _spread(dice: random.Random, topology: str) -> PodSpec:
    spread = Spread(_term(topology, {"my-label": dice.choice(VALUES)}), max_skew=1)
    labels = {"my-label": dice.choice(VALUES)}
    return PodSpec(labels=labels, requests=_requests(dice), spreads=(spread,))


def _term(topology: str, labels: dict[str, str]) -> PodTerm:
    return PodTerm(topology, LabelSelector(Requirements.from_labels(labels)), NAMESPACE)


def _requests(dice: random.Random) -> Resources:
    memory = dice.choice(MEMORY) * MIB
    return Resources({"cpu": dice.choice(CPU), "memory": memory, "pods": 1})
