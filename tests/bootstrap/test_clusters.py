"""The connection details of a cluster: from a Cluster manifest, and from DescribeCluster."""

from dataclasses import replace
from typing import Any

import pytest
from leeway.bootstrap.node import ClusterDetails, UserDataError, described, details_of
from leeway.manifests.cluster import Cluster
from leeway.manifests.reading import read_manifests

from tests.bootstrap.nodes import CLUSTER

MANIFEST = """\
apiVersion: leeway.sh/v1
kind: Cluster
metadata: {name: prod}
spec:
  controlPlane:
    endpoint: https://A2FAB60F0DBB94CD.yl4.ap-northeast-2.eks.amazonaws.com
    certificateAuthority: Y2VydGlmaWNhdGVBdXRob3JpdHk=
    serviceCIDR: 172.20.0.0/16
"""

DESCRIPTION: dict[str, Any] = {
    "name": "prod",
    "endpoint": CLUSTER.endpoint,
    "certificateAuthority": {"data": CLUSTER.certificate_authority},
    "kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16", "ipFamily": "ipv4"},
}


def cluster(text: str) -> Cluster:
    (one,) = read_manifests(text, "cluster.yaml").written
    assert isinstance(one.manifest, Cluster)
    return one.manifest


def test_a_manifest_and_eks_give_the_same_details() -> None:
    assert details_of(cluster(MANIFEST)) == described(DESCRIPTION) == CLUSTER


def test_the_dns_server_is_the_tenth_address_unless_the_manifest_names_others() -> None:
    assert CLUSTER.dns_addresses == ("172.20.0.10",)
    assert replace(CLUSTER, service_cidr="10.100.5.128/25").dns_addresses == ("10.100.5.138",)
    named = details_of(cluster(f"{MANIFEST}    clusterDNS: [10.0.0.2, 10.0.0.3]\n"))
    assert named.dns_addresses == ("10.0.0.2", "10.0.0.3")


def test_an_ipv6_cluster_is_described_by_its_ipv6_range() -> None:
    network = {"serviceIpv6Cidr": "fd30:1c53:5f8a::/108", "ipFamily": "ipv6"}
    found = described({**DESCRIPTION, "kubernetesNetworkConfig": network})
    assert found.ipv6
    assert found.dns_addresses == ("fd30:1c53:5f8a::a",)


def test_a_manifest_without_a_control_plane_names_the_command_that_shows_it() -> None:
    with pytest.raises(UserDataError, match="aws eks describe-cluster --name prod"):
        details_of(cluster("{apiVersion: leeway.sh/v1, kind: Cluster, metadata: {name: prod}}"))


@pytest.mark.parametrize("gone", ["endpoint", "certificateAuthority", "kubernetesNetworkConfig"])
def test_a_cluster_that_is_still_created_is_refused(gone: str) -> None:
    left = {name: value for name, value in DESCRIPTION.items() if name != gone}
    with pytest.raises(UserDataError, match=rf"cluster\.{gone}: expected .* ACTIVE"):
        described(left)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "prod'; reboot"),
        ("name", ""),
        ("name", "p" * 101),
        ("endpoint", "http://example.com"),
        ("endpoint", "https://example.com/path"),
        ("endpoint", "https://example.com,x"),
        ("endpoint", "https://example.com\n"),
        ("endpoint", "https://$(reboot)"),
        ("certificate_authority", "not base64"),
        ("certificate_authority", "abc"),
        ("certificate_authority", "YWJj\n"),
        ("service_cidr", "172.20.0.0"),
        ("service_cidr", "172.20.0.1/16"),
        ("service_cidr", "172.20.0.0/30"),
        ("service_cidr", "fd00::%';reboot/64"),
        ("dns", ("10.0.0",)),
        ("dns", ("fe80::1%';reboot",)),
    ],
)
def test_a_value_that_is_not_valid_is_refused(field: str, value: Any) -> None:
    with pytest.raises(UserDataError, match=r"^cluster: ") as refused:
        replace(CLUSTER, **{field: value})
    assert "\n" not in str(refused.value)


def test_details_are_equal_by_value() -> None:
    assert replace(CLUSTER) == ClusterDetails(
        CLUSTER.name, CLUSTER.endpoint, CLUSTER.certificate_authority, CLUSTER.service_cidr
    )
