"""User data of Windows: PowerShell, the user's own first, that calls Start-EKSBootstrap.ps1.

Sources: EKS's user guide, "Deploy Windows nodes on EKS clusters"; EC2Launch's user data.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from leeway.bootstrap.kubelet import config_of, flags_of, labels_flag
from leeway.bootstrap.labels import split
from leeway.bootstrap.mime import FIELD
from leeway.bootstrap.node import Node
from leeway.bootstrap.problems import BootWarning, UserDataError
from leeway.bootstrap.quoting import quoted

_TAG = re.compile(r"</?powershell>", re.IGNORECASE)
_SCRIPT = r'[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"'


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


def windows(node: Node, support: WindowsSupport) -> tuple[str, tuple[BootWarning, ...]]:
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


def _warnings(node: Node, dns: int, support: WindowsSupport) -> Iterator[BootWarning]:
    yield BootWarning(
        "WindowsNoPodSecurityGroups",
        "Pods on Windows nodes have no security groups of their own and no custom networking: a "
        "SecurityGroupPolicy and an ENIConfig do not apply to them.",
    )
    if node.cluster.ipv6:
        yield BootWarning(
            "WindowsNoIPv6",
            "The cluster's family is IPv6, which Windows nodes do not support: pods on them get no "
            "address.",
        )
    if node.local_disks:
        yield BootWarning(
            "WindowsNoLocalDisks",
            "instanceStorePolicy has no effect on Windows: the kubelet uses the root volume.",
        )
    if dns > 1:
        yield BootWarning(
            "WindowsOneDNSServer", "Windows nodes take one DNS server: the others are left out."
        )
    yield from _of_cluster(support)


@dataclass(frozen=True, slots=True)
class _Need:
    """A need of Windows nodes, and the command that shows whether a cluster meets it."""

    code: str
    reason: str
    command: str


_LINUX = _Need(
    "WindowsNeedsLinux",
    "Windows nodes need a Linux or Fargate node in the cluster: CoreDNS runs on Linux only.",
    "kubectl get nodes -l kubernetes.io/os=linux",
)
_KUBE_PROXY = _Need(
    "WindowsNeedsKubeProxyGroup",
    "The role of Windows nodes needs the group eks:kube-proxy-windows, by an access entry of type "
    "EC2_WINDOWS or by aws-auth: without it, DNS fails in pods on Windows.",
    "aws eks describe-access-entry --cluster-name CLUSTER --principal-arn ROLE",
)
_IPAM = _Need(
    "WindowsNeedsIPAM",
    'Pods on Windows get addresses only if enable-windows-ipam is "true" in the ConfigMap '
    "amazon-vpc-cni of kube-system.",
    "kubectl get configmap -n kube-system amazon-vpc-cni -o yaml",
)


def _of_cluster(support: WindowsSupport) -> Iterator[BootWarning]:
    for met, need in (
        (support.linux_nodes, _LINUX),
        (support.kube_proxy_group, _KUBE_PROXY),
        (support.windows_ipam, _IPAM),
    ):
        if met is None:
            text = f"{need.reason} Leeway has not checked it: `{need.command}` shows it."
            yield BootWarning(need.code, text)
        elif not met:
            yield BootWarning(need.code, f"{need.reason} This cluster does not meet it.")
