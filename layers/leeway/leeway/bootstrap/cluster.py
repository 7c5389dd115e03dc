"""The connection details of a cluster, from a Cluster manifest or from EKS's DescribeCluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Network, ip_network
from typing import Any

from pydantic import ValidationError

from leeway.bootstrap.problems import UserDataError
from leeway.manifests.cluster import Cluster, ClusterMetadata, ControlPlane

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
