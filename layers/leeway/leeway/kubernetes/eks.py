"""Connections to EKS clusters, kept open while their endpoints are the same.

Functions send a cluster's token to host names of EKS API servers alone. Source: EKS user guide,
"Cluster API server endpoint"; DNS suffixes: botocore's partitions.json. A function that runs every
minute stays warm for hours. A cluster may be recreated meanwhile with the same name, another
endpoint and another certificate authority."""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import boto3
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from leeway.clock import Clock
from leeway.kubernetes.connection import Connection, TokenTransport, trust_authority
from leeway.ports.aws import CloudUnavailable, ClusterEndpoint, Clusters

# DNS suffixes by the prefix of the region's name; the longest matching prefix applies.
_SUFFIXES = {
    "": ("amazonaws.com", "api.aws"),
    "cn-": ("amazonaws.com.cn", "api.amazonwebservices.com.cn"),
    "eu-isoe-": ("cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
    "eusc-": ("amazonaws.eu", "api.amazonwebservices.eu"),
    "us-iso-": ("c2s.ic.gov", "api.aws.ic.gov"),
    "us-isob-": ("sc2s.sgov.gov", "api.aws.scloud"),
    "us-isof-": ("csp.hci.ic.gov", "api.aws.hci.ic.gov"),
}

# A cluster's id, and two or three characters that EKS adds. A looser pattern would match names of
# other customers under the same suffix, for example those of API Gateway under api.aws.
_CLUSTER = r"[0-9a-f]{32}\.[0-9a-z]{2,3}"


def dns_suffix(region: str) -> str:
    """Return the DNS suffix of AWS's services in a region, for example `amazonaws.com`."""
    return _suffixes(region)[0]


def endpoint_problem(url: str, region: str, extra_host: str = "") -> str:
    """Return why an address gets no token; empty if it gets one.

    `extra_host` is a trusted host besides those of EKS: the host of a configured AWS endpoint URL,
    as in the sandbox.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return f"{url!r} is not an address"
    if parts.scheme != "https":
        return f"{url!r} is not https"
    if "@" in parts.netloc:
        return f"{url!r} contains credentials"
    if extra_host and host == extra_host.lower():
        return ""
    if port not in {None, 443}:
        return f"{url!r} has port {port}; EKS API servers have port 443"
    if not _is_eks(host, region):
        return f"{host!r} is not an EKS API server of {region}"
    return ""


def _is_eks(host: str, region: str) -> bool:
    ipv4, dual_stack = map(re.escape, _suffixes(region))
    name = re.escape(region)
    pattern = rf"{_CLUSTER}\.(?:{name}\.eks\.{ipv4}|eks-cluster\.{name}\.{dual_stack})"
    return re.fullmatch(pattern, host) is not None


def _suffixes(region: str) -> tuple[str, str]:
    longest = max((prefix for prefix in _SUFFIXES if region.startswith(prefix)), key=len)
    return _SUFFIXES[longest]


TOKEN_PREFIX = "k8s-aws-v1."  # noqa: S105 (a format, not a secret)
PRESIGN_SECONDS = 60
CLUSTER_HEADER = "x-k8s-aws-id"


def eks_token(cluster: str, region: str, credentials: Credentials) -> str:
    """Create a token for one cluster. EKS accepts it for 15 minutes.

    Presigning needs no boto3 client and no network call, which keeps cold starts short.
    """
    url = f"https://sts.{region}.{dns_suffix(region)}/?Action=GetCallerIdentity&Version=2011-06-15"
    request = AWSRequest(method="GET", url=url, headers={CLUSTER_HEADER: cluster})
    SigV4QueryAuth(credentials, "sts", region, expires=PRESIGN_SECONDS).add_auth(request)
    encoded = base64.urlsafe_b64encode(request.url.encode()).decode().rstrip("=")
    return TOKEN_PREFIX + encoded


RENEW_AFTER = 10 * 60
"""Seconds. EKS accepts a token for 15 minutes; renewal after 10 leaves time for a slow request."""


def eks_connection(endpoint: ClusterEndpoint, session: boto3.Session) -> Connection:
    """Connect to a cluster. Each token is signed with the session's current credentials."""

    trust = trust_authority(base64.b64decode(endpoint.certificate_authority).decode("ascii"))
    transport = TokenTransport(
        lambda: eks_token(endpoint.name, session.region_name, session.get_credentials()),
        RENEW_AFTER,
        trust,
    )
    return Connection(endpoint.url, transport)


REFRESH_AFTER = timedelta(minutes=5)
"""How long an endpoint counts as unchanged."""

RETRY_AFTER = timedelta(seconds=30)
"""The same after a read that failed. A drain opens its cluster in every pass, and a failed read of
the table or of EKS takes seconds."""


@dataclass(frozen=True, slots=True)
class _Open[C]:
    endpoint: ClusterEndpoint
    cluster: C
    until: datetime


class OpenClusters[C]:
    """Opens clusters: `clusters` returns endpoints, `connect` connects to one."""

    def __init__(
        self, clusters: Clusters, connect: Callable[[ClusterEndpoint], C], clock: Clock
    ) -> None:
        self._clusters = clusters
        self._connect = connect
        self._clock = clock
        self._open: dict[str, _Open[C]] = {}

    def get(self, name: str) -> C:
        """Return an open cluster; connect again if its endpoint has changed. If the endpoint can't
        be read, the last one is used.

        Raises:
            CloudUnavailable: the endpoint can't be read, and the cluster was never open.
            CloudRefused: the cluster does not exist, or it has no endpoint yet.
        """
        known, now = self._open.get(name), self._clock.now()
        if known is not None and now < known.until:
            return known.cluster
        try:
            endpoint = self._clusters.endpoint(name)
        except CloudUnavailable:
            if known is None:
                raise
            self._open[name] = replace(known, until=now + RETRY_AFTER)
            return known.cluster
        if known is not None and known.endpoint == endpoint:
            cluster = known.cluster
        else:
            cluster = self._connect(endpoint)
        self._open[name] = _Open(endpoint, cluster, now + REFRESH_AFTER)
        return cluster
