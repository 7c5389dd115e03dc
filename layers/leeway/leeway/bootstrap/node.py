"""The values that user data is made of: from a pool, its node class, a machine and a cluster."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from leeway.bootstrap.cluster import ClusterDetails
from leeway.bootstrap.labels import control_plane_sets
from leeway.bootstrap.problems import UserDataError
from leeway.manifests.base import Manifest
from leeway.manifests.kubelet import KubeletSettings
from leeway.manifests.node_class import EC2NodeClass
from leeway.manifests.node_pool import NodePool
from leeway.manifests.pools import pools_of
from leeway.selection.labels import JOINED, WELL_KNOWN
from leeway.selection.offers.allocatable import eviction_hard, kube_reserved, max_pods
from leeway.selection.offers.machines import Machine
from leeway.selection.offers.node_class import AmiFamily
from leeway.selection.pools import NodePool as Pool
from leeway.selection.pools import Taint
from leeway.selection.requirements import BadRequirement, check_key, check_value

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """The manifests' values for the nodes of one pool.

    Selection may plan with a variant of the pool, which has more labels: put it into `pool` before
    the user data is rendered.
    """

    pool: Pool
    kubelet: KubeletSettings
    user_data: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """The values of a node's user data, all validated.

    `max_pods` and `kube_reserved` depend on the machine: None and empty without one.
    `local_disks`: the machine's local NVMe disks become the node's storage.
    """

    family: AmiFamily
    cluster: ClusterDetails
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    kubelet: KubeletSettings
    max_pods: int | None
    kube_reserved: Mapping[str, str]
    eviction_hard: Mapping[str, str]
    local_disks: bool
    user_data: str


def templates_of(manifests: Iterable[Manifest]) -> tuple[NodeTemplate, ...]:
    """Return a template for each NodePool, the pool of the largest weight first. A pool that names
    a node class which is not given has the defaults of the Cluster."""
    given = tuple(manifests)
    classes = {m.metadata.name: m for m in given if isinstance(m, EC2NodeClass)}
    pools = {m.metadata.name: m for m in given if isinstance(m, NodePool)}
    found = []
    for pool in pools_of(given):
        manifest = pools[pool.name]
        node_class = classes.get(manifest.spec.template.spec.node_class_ref.name)
        kubelet = manifest.kubelet() or (node_class and node_class.spec.kubelet)
        user_data = (node_class and node_class.spec.user_data) or ""
        found.append(NodeTemplate(pool, kubelet or KubeletSettings(), user_data))
    return tuple(found)


def node_of(template: NodeTemplate, cluster: ClusterDetails, machine: Machine | None) -> Node:
    """Gather the values of a node's user data.

    Raises:
        UserDataError: a label or a taint is not valid.
    """
    node_class = template.pool.node_class
    reserved = kube_reserved(machine, node_class).printed() if machine else {}
    return Node(
        family=node_class.family,
        cluster=cluster,
        labels=dict(_labels(template.pool)),
        taints=tuple(_taints(template.pool)),
        kubelet=template.kubelet,
        max_pods=max_pods(machine, node_class) if machine else None,
        kube_reserved=reserved,
        eviction_hard=eviction_hard(node_class),
        local_disks=node_class.raid0 and (machine is None or machine.disks > 0),
        user_data=template.user_data,
    )


def _labels(pool: Pool) -> Iterator[tuple[str, str]]:
    """The labels of the pool, and those that its requirements leave one value. `JOINED` is left
    out: admission puts these labels on when the node has reached that state."""
    required = {
        requirement.key: next(iter(requirement.values))
        for requirement in pool.requirements.values()
        if not requirement.complement
        and len(requirement.values) == 1
        and requirement.key not in WELL_KNOWN
        and not control_plane_sets(requirement.key)
    }
    for key, value in sorted({**required, **pool.labels}.items()):
        if key in JOINED:
            continue
        _check(f"label {key}", key, value)
        yield key, value


def _taints(pool: Pool) -> Iterator[Taint]:
    """Every taint once: a node has one value for a key and an effect."""
    found: dict[tuple[str, str], Taint] = {}
    for taint in (*pool.taints, *pool.startup_taints):
        name = f"taint {taint.key}:{taint.effect}"
        _check(name, taint.key, taint.value)
        if taint.effect not in EFFECTS:
            raise UserDataError(name, f"expected one of {', '.join(EFFECTS)} as its effect")
        other = found.setdefault((taint.key, taint.effect), taint)
        if other is taint:
            yield taint
        elif other != taint:
            raise UserDataError(
                name, f"expected one value, the pool has {other.value!r} and {taint.value!r}"
            )


def _check(name: str, key: str, value: str) -> None:
    try:
        check_key(key)
        check_value(value)
    except BadRequirement as error:
        raise UserDataError(name, str(error)) from None
