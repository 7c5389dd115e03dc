"""The table of kinds: API versions, models, and the names that commands accept."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from leeway.manifests.base import Manifest
from leeway.manifests.problems import listed, near_miss


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind in one version. `model` and `converter` are `module:attribute`, imported on first
    use.

    `converter` is set for superseded versions: a function from the model to a `Converted`. A
    `singleton` exists at most once in a cluster, and has the cluster's name.
    """

    api_version: str
    name: str
    model: str
    plural: str
    short: tuple[str, ...] = ()
    singleton: bool = False
    namespaced: bool = False
    converter: str = ""

    @property
    def group(self) -> str:
        """API group: `leeway.sh` of `leeway.sh/v1`."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """The kind in the form that kubectl prints: `cluster.leeway.sh`."""
        return f"{self.name.lower()}.{self.group}" if self.group else self.name.lower()

    @property
    def words(self) -> frozenset[str]:
        """All names that commands accept, in lower case."""
        names = {self.name.lower(), self.plural, *self.short}
        return frozenset(names | {f"{name}.{self.group}" for name in names})


KINDS: tuple[Kind, ...] = (
    Kind("leeway.sh/v1", "Cluster", "leeway.manifests.cluster:Cluster", "clusters", singleton=True),
    Kind("leeway.sh/v1", "Headroom", "leeway.manifests.headroom:Headroom", "headrooms"),
    Kind(
        "karpenter.sh/v1beta1",
        "NodePool",
        "leeway.manifests.node_pool_v1beta1:NodePoolV1Beta1",
        "nodepools",
        converter="leeway.manifests.node_pool_v1beta1:as_node_pool",
    ),
    Kind(
        "karpenter.k8s.aws/v1beta1",
        "EC2NodeClass",
        "leeway.manifests.node_class_v1beta1:EC2NodeClassV1Beta1",
        "ec2nodeclasses",
        short=("ec2nc", "ec2ncs"),
        converter="leeway.manifests.node_class_v1beta1:as_node_class",
    ),
    Kind("karpenter.sh/v1", "NodePool", "leeway.manifests.node_pool:NodePool", "nodepools"),
    Kind(
        "karpenter.k8s.aws/v1",
        "EC2NodeClass",
        "leeway.manifests.node_class:EC2NodeClass",
        "ec2nodeclasses",
        short=("ec2nc", "ec2ncs"),
    ),
    Kind(
        "karpenter.sh/v1alpha5",
        "Provisioner",
        "leeway.manifests.provisioner:Provisioner",
        "provisioners",
        converter="leeway.manifests.provisioner:as_node_pool",
    ),
    Kind(
        "karpenter.k8s.aws/v1alpha1",
        "AWSNodeTemplate",
        "leeway.manifests.aws_node_template:AWSNodeTemplate",
        "awsnodetemplates",
        converter="leeway.manifests.aws_node_template:as_node_class",
    ),
    Kind(
        "keda.sh/v1alpha1",
        "ScaledObject",
        "leeway.manifests.scaled_object:ScaledObject",
        "scaledobjects",
        short=("so",),
        namespaced=True,
    ),
    *(
        Kind(
            f"autoscaling.x-k8s.io/{version}",
            "CapacityBuffer",
            "leeway.manifests.capacity_buffer:CapacityBuffer",
            "capacitybuffers",
            short=("cb",),
            namespaced=True,
        )
        for version in ("v1alpha1", "v1beta1")
    ),
)
"""Every supported kind; the latest of several versions comes last. A new kind needs a row here and
a model."""


class UnknownKind(ValueError):
    """No supported kind has this apiVersion and kind. The message lists the supported ones;
    `field` is the wrong field."""

    def __init__(self, message: str, field: str = "kind") -> None:
        super().__init__(message)
        self.field = field


def find_kind(api_version: str, name: str) -> Kind:
    """Find the kind of a document's apiVersion and kind.

    Raises:
        UnknownKind: no supported kind has them.
    """
    for kind in KINDS:
        if (kind.api_version, kind.name) == (api_version, name):
            return kind
    versions = [kind.api_version for kind in KINDS if kind.name == name]
    if versions:
        message = f"expected {listed(versions)} for a {name}, got {api_version}"
        raise UnknownKind(message, "apiVersion")
    names = sorted({kind.name for kind in KINDS})
    guess = near_miss(name, names) or f"; expected {listed(names)}"
    raise UnknownKind(f"unknown kind {name} of {api_version}{guess}")


def kinds_called(word: str) -> tuple[Kind, ...]:
    """Find the kinds with a name such as `nodepools` or `nodepool.karpenter.sh`.

    Raises:
        UnknownKind: no supported kind has this name.
    """
    found = tuple(kind for kind in KINDS if word.lower() in kind.words)
    if not found:
        known = sorted({kind.plural for kind in KINDS})
        guess = near_miss(word, {w for kind in KINDS for w in kind.words if "." not in w})
        raise UnknownKind(f"unknown kind {word}{guess or f'; expected {listed(known)}'}")
    return found


def model_of(kind: Kind) -> type[Manifest]:
    """Import the model of a kind."""
    model: type[Manifest] = attribute(kind.model)
    return model


@cache
def attribute(target: str) -> Any:
    """Import `module:attribute`."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)
