"""Which addresses are EKS API servers of a region: a token for a cluster is sent to no other.

Source: EKS user guide, "Cluster API server endpoint"; DNS suffixes: botocore's partitions.json.
"""

import re
from urllib.parse import urlsplit

# By how a region's name begins; the longest that fits holds.
_SUFFIXES = {
    "": ("amazonaws.com", "api.aws"),
    "cn-": ("amazonaws.com.cn", "api.amazonwebservices.com.cn"),
    "eu-isoe-": ("cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
    "eusc-": ("amazonaws.eu", "api.amazonwebservices.eu"),
    "us-iso-": ("c2s.ic.gov", "api.aws.ic.gov"),
    "us-isob-": ("sc2s.sgov.gov", "api.aws.scloud"),
    "us-isof-": ("csp.hci.ic.gov", "api.aws.hci.ic.gov"),
}

# A cluster's id, and two or three characters that EKS adds. Without them anybody's name would do
# that AWS gives under the same suffix, as those of API Gateway under api.aws.
_CLUSTER = r"[0-9a-f]{32}\.[0-9a-z]{2,3}"


def dns_suffix(region: str) -> str:
    """Return the DNS suffix of AWS's services in a region, as `amazonaws.com`."""
    return _suffixes(region)[0]


def endpoint_problem(url: str, region: str, also: str = "") -> str:
    """Say why a cluster's token is not sent to an address; empty if it is sent.

    `also` is a host that the configuration names besides EKS's own: that of the endpoint URL which
    AWS's APIs are called at, as in the sandbox.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return f"{url!r} is not an address"
    if parts.scheme != "https":
        return f"{url!r} is not https"
    if "@" in parts.netloc:
        return f"{url!r} has credentials in it"
    if also and host == also.lower():
        return ""
    if port not in {None, 443}:
        return f"{url!r} has a port of its own, which EKS's API servers do not have"
    if not _is_eks(host, region):
        return f"{host!r} is no EKS API server of {region}"
    return ""


def _is_eks(host: str, region: str) -> bool:
    usual, dual_stack = map(re.escape, _suffixes(region))
    place = re.escape(region)
    pattern = rf"{_CLUSTER}\.(?:{place}\.eks\.{usual}|eks-cluster\.{place}\.{dual_stack})"
    return re.fullmatch(pattern, host) is not None


def _suffixes(region: str) -> tuple[str, str]:
    longest = max((start for start in _SUFFIXES if region.startswith(start)), key=len)
    return _SUFFIXES[longest]
