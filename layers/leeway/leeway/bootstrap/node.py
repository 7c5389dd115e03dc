"""The values that user data is made of: from a pool, its node class, a machine and a cluster.

All of them are validated here, before they reach a script or a document."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Network, ip_network
from typing import Any

from pydantic import ValidationError

from leeway.manifests.base import Manifest
from leeway.manifests.cluster import Cluster, ClusterMetadata, ControlPlane
from leeway.manifests.node_class import EC2NodeClass, KubeletSettings
from leeway.manifests.node_pool import NodePool, pools_of
from leeway.printable import printable
from leeway.selection.labels import (
    ARCH,
    HOSTNAME,
    INSTANCE_TYPE,
    JOINED,
    LAUNCHED,
    OS,
    REGION,
    WELL_KNOWN,
    ZONE,
)
from leeway.selection.offers.allocatable import AmiFamily, eviction_hard, kube_reserved, max_pods
from leeway.selection.offers.machines import Machine
from leeway.selection.pods import NodePool as Pool
from leeway.selection.pods import Taint
from leeway.selection.requirements import BadRequirement, check_key, check_value

FIELD = "spec.userData"


class UserDataError(ValueError):
    """User data cannot be rendered. `field` is the manifest's field, `message` names the
    expected value. As text, the error is one line.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(printable(f"{field}: {message}"))
        self.field = field
        self.message = message


# No space, no quote of any kind, no backslash, no `$`, no backtick, no control character.
_WORD = re.compile(r"[A-Za-z0-9._:/=,<%+@\[\]-]+")


def quoted(*words: str) -> str:
    """Quote words, with a space between them, for bash and for PowerShell.

    Raises:
        UserDataError: a word has a character that no value of user data has.
    """
    for word in words:
        if not _WORD.fullmatch(word):
            raise UserDataError("user data", f"expected a value that needs no escape, got {word!r}")
    return f"'{' '.join(words)}'"


_KUBERNETES = ("kubernetes.io", "k8s.io")
_ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_ALLOWED = frozenset(
    {
        ARCH,
        HOSTNAME,
        INSTANCE_TYPE,
        OS,
        REGION,
        ZONE,
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
    }
)

# They name the pool and the capacity type of a node. See docs/adr/0044.
_CONTROL_PLANE = ("karpenter.sh", "karpenter.k8s.aws", "leeway.sh")


def kubelet_may_set(key: str) -> bool:
    """Whether NodeRestriction lets a kubelet set this label on its own node."""
    domain = key.partition("/")[0] if "/" in key else ""
    if _within(domain, _KUBERNETES):
        return key in _ALLOWED or _within(domain, _ALLOWED_DOMAINS)
    return True


def control_plane_sets(key: str) -> bool:
    """Whether a label is Leeway's to put on, although a kubelet may set it: a node that registers
    with one of them would count as another pool's, or as admitted."""
    return "/" in key and _within(key.partition("/")[0], _CONTROL_PLANE)


def labels_of_kubelet(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that the kubelet puts on when it registers, in the order of their keys.
    Every kubelet puts on LAUNCHED."""
    return {
        key: value
        for key, value in sorted({**labels, LAUNCHED: "true"}.items())
        if key == LAUNCHED or (kubelet_may_set(key) and not control_plane_sets(key))
    }


def labels_of_admission(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the other labels, which admission puts on."""
    of_kubelet = labels_of_kubelet(labels)
    return {key: value for key, value in sorted(labels.items()) if key not in of_kubelet}


def _within(domain: str, domains: tuple[str, ...]) -> bool:
    return any(domain == one or domain.endswith(f".{one}") for one in domains)


DESCRIBE = "aws eks describe-cluster --name {name}"
"""The command whose output `described` reads."""


@dataclass(frozen=True, slots=True)
class ClusterDetails:
    """The details that a node needs in order to join a cluster; every value is validated.

    `certificate_authority` is in base64. `dns` are the addresses of the cluster's DNS server;
    by default it has the tenth address of the service range, as EKS assigns it.

    Raises:
        UserDataError: a value is not valid.
    """

    name: str
    endpoint: str
    certificate_authority: str
    service_cidr: str
    dns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            ClusterMetadata.model_validate({"name": self.name})
            ControlPlane.model_validate(
                {
                    "endpoint": self.endpoint,
                    "certificateAuthority": self.certificate_authority,
                    "serviceCIDR": self.service_cidr,
                    "clusterDNS": self.dns,
                }
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            reason = first["msg"].removeprefix("Value error, ")
            field = ".".join(map(str, first["loc"]))
            raise UserDataError(f"cluster: {field}", f"{reason}, got {first['input']!r}") from None

    @property
    def ipv6(self) -> bool:
        """Whether services and pods have IPv6 addresses."""
        return isinstance(ip_network(self.service_cidr), IPv6Network)

    @property
    def dns_addresses(self) -> tuple[str, ...]:
        """The addresses of the cluster's DNS server; at least one."""
        return self.dns or (str(ip_network(self.service_cidr)[10]),)


def details_of(cluster: Cluster) -> ClusterDetails:
    """Read a Cluster manifest.

    Raises:
        UserDataError: it has no `controlPlane`.
    """
    name = cluster.metadata.name
    control_plane = cluster.spec.control_plane
    if control_plane is None:
        raise UserDataError(
            "spec.controlPlane",
            "expected endpoint, certificateAuthority and serviceCIDR of the cluster, as "
            f"`{DESCRIBE.format(name=name)}` prints them",
        )
    return ClusterDetails(
        name=name,
        endpoint=control_plane.endpoint,
        certificate_authority=control_plane.certificate_authority,
        service_cidr=control_plane.service_cidr,
        dns=control_plane.cluster_dns,
    )


def described(cluster: Mapping[str, Any]) -> ClusterDetails:
    """Read the `cluster` of EKS's DescribeCluster.

    Raises:
        UserDataError: a value is missing, as in a cluster that is still being created.
    """
    network = _mapping(cluster, "kubernetesNetworkConfig")
    family = "Ipv6" if network.get("ipFamily") == "ipv6" else "Ipv4"
    return ClusterDetails(
        name=_text(cluster, "name", "name"),
        endpoint=_text(cluster, "endpoint", "endpoint"),
        certificate_authority=_text(
            _mapping(cluster, "certificateAuthority"), "data", "certificateAuthority.data"
        ),
        service_cidr=_text(
            network, f"service{family}Cidr", f"kubernetesNetworkConfig.service{family}Cidr"
        ),
    )


def _mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    if not isinstance(found, Mapping):
        raise UserDataError(f"cluster.{name}", "expected it, as EKS describes an ACTIVE cluster")
    return found


def _text(document: Mapping[str, Any], name: str, path: str) -> str:
    found = document.get(name)
    if not isinstance(found, str) or not found:
        raise UserDataError(f"cluster.{path}", "expected text, as EKS describes an ACTIVE cluster")
    return found


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
    annotations: Mapping[str, str] = field(default_factory=dict)


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
        annotations = manifest.spec.template.metadata.annotations
        found.append(NodeTemplate(pool, kubelet or KubeletSettings(), user_data, annotations))
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
