"""User data of Windows: PowerShell, the user's own first, that calls Start-EKSBootstrap.ps1.

Sources: EKS's user guide, "Deploy Windows nodes on EKS clusters"; EC2Launch's user data.
"""

import re
from collections.abc import Iterator

from leeway.bootstrap.kubelet import WINDOWS_LIMITS, config_of, flags_of, labels_flag
from leeway.bootstrap.node import FIELD, Node, UserDataError, quoted, split
from leeway.reasons import Reason

_TAG = re.compile(r"</?powershell>", re.IGNORECASE)
_SCRIPT = r'[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"'


def windows(node: Node) -> tuple[str, tuple[Reason, ...]]:
    """Render the user data.

    Raises:
        UserDataError: the user's own data is not one block of PowerShell.
    """
    own, outside = _own(node.user_data)
    config = config_of(node)
    dns = config.pop("clusterDNS")
    flags = [*flags_of(node, config).values(), *labels_flag(split(node.labels).kubelet)]
    call = " ".join(
        (
            "& $EKSBootstrapScriptFile",
            f"-EKSClusterName {quoted(node.cluster.name)}",
            f"-APIServerEndpoint {quoted(node.cluster.endpoint)}",
            f"-Base64ClusterCA {quoted(node.cluster.certificate_authority)}",
            f"-DNSClusterIP {quoted(dns[0])}",
            *([f"-KubeletExtraArgs {quoted(*flags)}"] if flags else []),
        )
    )
    text = f"<powershell>\n{own}{_SCRIPT}\n{call}\n</powershell>\n{outside}"
    return text, tuple(WINDOWS_LIMITS(limit=limit) for limit in _limits(node, len(dns)))


def _own(user_data: str) -> tuple[str, str]:
    """The user's PowerShell, and the text outside of its tags, such as `<persist>`."""
    tags = [tag.lower() for tag in _TAG.findall(user_data)]
    before, inside, after = "", user_data, ""
    if tags:
        if tags != ["<powershell>", "</powershell>"]:
            raise UserDataError(
                FIELD, "expected PowerShell, with or without one pair of <powershell> tags"
            )
        before, inside, after = _TAG.split(user_data)
    inside = inside.strip("\r\n")
    outside = "\n".join(text for text in (before.strip(), after.strip()) if text)
    return (f"{inside}\n" if inside.strip() else "", f"{outside}\n" if outside else "")


def _limits(node: Node, dns: int) -> Iterator[str]:
    yield (
        "Pods on Windows nodes have no security groups of their own and no custom networking: a "
        "SecurityGroupPolicy and an ENIConfig do not apply to them"
    )
    if node.cluster.ipv6:
        yield (
            "Windows nodes do not support IPv6, the family of the cluster: pods on them get no "
            "address"
        )
    if node.local_disks:
        yield (
            "The field instanceStorePolicy has no effect on Windows: the kubelet uses the root "
            "volume"
        )
    if dns > 1:
        yield "Windows nodes take one DNS server: Leeway leaves the others out"
    yield (
        "Windows nodes need a Linux or Fargate node for CoreDNS, the group eks:kube-proxy-windows "
        "for their role, and enable-windows-ipam in the ConfigMap amazon-vpc-cni: Leeway has not "
        "checked that the cluster has them"
    )
