"""User data of Windows: PowerShell, the user's own first, that calls Start-EKSBootstrap.ps1.

Sources: EKS's user guide, "Deploy Windows nodes on EKS clusters"; EC2Launch's user data.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from leeway.bootstrap import reasons
from leeway.bootstrap.kubelet import config_of, flags_of, labels_flag
from leeway.bootstrap.labels import split
from leeway.bootstrap.mime import FIELD
from leeway.bootstrap.node import Node
from leeway.bootstrap.problems import UserDataError
from leeway.bootstrap.quoting import quoted
from leeway.reasons import Reason

_TAG = re.compile(r"</?powershell>", re.IGNORECASE)
_SCRIPT = r'[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"'

# Commands that show whether a cluster meets what Windows nodes need.
_LINUX = "kubectl get nodes -l kubernetes.io/os=linux"
_KUBE_PROXY = "aws eks describe-access-entry --cluster-name CLUSTER --principal-arn ROLE"
_IPAM = "kubectl get configmap -n kube-system amazon-vpc-cni -o yaml"


@dataclass(frozen=True, slots=True)
class WindowsSupport:
    """Whether a cluster supports Windows nodes; None means that it has not been checked.

    `linux_nodes`: it has a Linux or Fargate node. `kube_proxy_group`: the nodes' access entry or
    aws-auth mapping has the group eks:kube-proxy-windows. `windows_ipam`: enable-windows-ipam is
    "true" in the ConfigMap amazon-vpc-cni.
    """

    linux_nodes: bool | None = None
    kube_proxy_group: bool | None = None
    windows_ipam: bool | None = None


def windows(node: Node, support: WindowsSupport) -> tuple[str, tuple[Reason, ...]]:
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
    return text, tuple(_warnings(node, len(dns), support))


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


def _warnings(node: Node, dns: int, support: WindowsSupport) -> Iterator[Reason]:
    yield reasons.WINDOWS_NO_POD_SECURITY_GROUPS()
    if node.cluster.ipv6:
        yield reasons.WINDOWS_NO_IPV6()
    if node.local_disks:
        yield reasons.WINDOWS_NO_LOCAL_DISKS()
    if dns > 1:
        yield reasons.WINDOWS_ONE_DNS_SERVER()
    for met, code, command in (
        (support.linux_nodes, reasons.WINDOWS_NEEDS_LINUX, _LINUX),
        (support.kube_proxy_group, reasons.WINDOWS_NEEDS_KUBE_PROXY_GROUP, _KUBE_PROXY),
        (support.windows_ipam, reasons.WINDOWS_NEEDS_IPAM, _IPAM),
    ):
        if met is None:
            yield code().and_then(f"Leeway has not checked it: `{command}` shows it.")
        elif not met:
            yield code().and_then("This cluster does not meet it.")
