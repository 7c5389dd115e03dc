"""The host names of EKS API servers: functions send a cluster's token to no other host.

Source: EKS user guide, "Cluster API server endpoint"; DNS suffixes: botocore's partitions.json.
"""

import re
from urllib.parse import urlsplit

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
