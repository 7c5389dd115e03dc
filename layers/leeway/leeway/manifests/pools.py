"""Convert manifests to pools, each with its node class."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from leeway.manifests.base import Manifest
from leeway.manifests.cluster import Cluster
from leeway.manifests.node_class import EC2NodeClass
from leeway.manifests.node_pool import NodePool, TaintSpec
from leeway.selection.labels import JOINED, NODE_CLASS, NODEPOOL
from leeway.selection.offers.allocatable import VM_MEMORY_OVERHEAD, AmiFamily, NodeClass
from leeway.selection.pods import NodePool as Pool
from leeway.selection.pods import Taint
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import amount


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults of a Cluster manifest for all nodes."""

    family: AmiFamily = AmiFamily.AL2023
    prefix_delegation: bool = False
    vm_memory_overhead: Fraction = VM_MEMORY_OVERHEAD


def defaults_of(cluster: Cluster | None) -> Defaults:
    """Read the defaults of a Cluster manifest; without a manifest, the built-in ones."""
    if cluster is None:
        return Defaults()
    said = cluster.spec.defaults
    return Defaults(
        family=AmiFamily(said.ami_family),
        prefix_delegation=said.prefix_delegation,
        vm_memory_overhead=Fraction(str(said.vm_memory_overhead_percent)) / 100,
    )


def pools_of(manifests: Iterable[Manifest]) -> tuple[Pool, ...]:
    """Convert each NodePool, ordered by weight. Of other kinds, only node classes and the Cluster's
    defaults are used."""
    given = tuple(manifests)
    clusters = [m for m in given if isinstance(m, Cluster)]
    defaults = defaults_of(clusters[0] if clusters else None)
    classes = {m.metadata.name: m for m in given if isinstance(m, EC2NodeClass)}
    pools = [_pool(m, classes, defaults) for m in given if isinstance(m, NodePool)]
    return tuple(sorted(pools, key=lambda pool: -pool.weight))


def pools_without_limits(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """Return the names of pools without limits, in which pods may launch nodes without end."""
    pools = (one for one in manifests if isinstance(one, NodePool))
    return tuple(one.metadata.name for one in pools if not one.spec.limits)


def node_class_of(
    manifest: EC2NodeClass | None, defaults: Defaults, name: str = "default"
) -> NodeClass:
    """Return the settings that decide a node's allocatable resources."""
    family = (manifest and manifest.spec.family) or defaults.family
    plain = NodeClass(
        name=manifest.metadata.name if manifest else name,
        family=family,
        prefix_delegation=defaults.prefix_delegation,
        vm_memory_overhead=defaults.vm_memory_overhead,
    )
    if manifest is None:
        return plain
    return replace(
        plain,
        kubelet=manifest.spec.kubelet.settings(),
        storage=manifest.storage(family),
        raid0=manifest.spec.instance_store_policy == "RAID0",
        prefix_delegation=defaults.prefix_delegation or bool(manifest.spec.ip_prefix_count),
        public_address=bool(manifest.spec.associate_public_ip_address),
    )


def _pool(manifest: NodePool, classes: Mapping[str, EC2NodeClass], defaults: Defaults) -> Pool:
    spec = manifest.spec.template.spec
    wanted = spec.node_class_ref.name
    labels = {
        NODEPOOL: manifest.metadata.name,
        NODE_CLASS: wanted,
        **JOINED,
        **manifest.spec.template.metadata.labels,
    }
    asked = Requirements(
        Requirement.of(r.key, r.operator, r.values, r.min_values) for r in spec.requirements
    )
    node_class = node_class_of(classes.get(wanted), defaults, wanted)
    if (kubelet := manifest.kubelet()) is not None:
        node_class = replace(node_class, kubelet=kubelet.settings())
    return Pool(
        name=manifest.metadata.name,
        requirements=asked.intersection(Requirements.from_labels(labels)),
        weight=manifest.spec.weight or 0,
        labels=labels,
        taints=tuple(map(_taint, spec.taints)),
        startup_taints=tuple(map(_taint, spec.startup_taints)),
        limits={name: amount(name, text) for name, text in manifest.spec.limits.items()} or None,
        node_class=node_class,
    )


def _taint(spec: TaintSpec) -> Taint:
    return Taint(spec.key, spec.value, spec.effect)
