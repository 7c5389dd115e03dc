"""The configuration of a node that its user data describes, and the error for user data that
describes none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

type Family = Literal["AL2", "AL2023", "Bottlerocket", "Windows"]


class BootError(Exception):
    """The instance does not become a node. The message is one line: what is wrong, and where."""


@dataclass(frozen=True)
class Taint:
    """A taint with which the kubelet registers the node."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True)
class KubeletConfiguration:
    """What a kubelet is started with, of the settings that the Node object shows.

    `max_pods` None is the AMI's figure for the instance type. `kube_reserved` and
    `eviction_hard` have only what the user data sets: the AMI has defaults for the rest, unless
    `set_by_flags` names the field. Quantities are Kubernetes quantities.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    max_pods: int | None = None
    pods_per_core: int = 0
    cluster_dns: tuple[str, ...] = ()
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: Mapping[str, str] = field(default_factory=dict)
    set_by_flags: tuple[str, ...] = ()  # fields of the kubelet's configuration file


@dataclass(frozen=True)
class NodeConfiguration:
    """The cluster that a node joins, and how its kubelet is configured.

    `endpoint` and `certificate_authority` (decoded) are both None if the AMI looks them up with
    DescribeCluster. `ignored` names parts of the user data that the AMI ignores without an
    error, such as a misspelt field. The node's name is the instance's private DNS name, unless
    `is_named_by_instance` is set: then it is the instance's id.
    """

    family: Family
    cluster: str
    endpoint: str | None
    certificate_authority: bytes | None
    kubelet: KubeletConfiguration
    is_named_by_instance: bool = False
    ignored: tuple[str, ...] = ()
