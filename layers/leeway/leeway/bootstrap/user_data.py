"""Renders the user data of a node."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from leeway.bootstrap.amazon_linux import al2, al2023
from leeway.bootstrap.bottlerocket import bottlerocket
from leeway.bootstrap.kubelet import (
    CUSTOM_TAINTS_LATE,
    INSTANCE_TYPE_UNKNOWN,
    NODE_MAY_NOT_JOIN,
    WINDOWS_LIMITS,
    config_of,
    flags_of,
    labels_flag,
    settings_without_effect,
)
from leeway.bootstrap.node import (
    FIELD,
    ClusterDetails,
    Node,
    NodeTemplate,
    UserDataError,
    node_of,
    quoted,
    split,
)
from leeway.manifests.node_class import EC2NodeClass
from leeway.manifests.node_pool import Defaults, node_class_of
from leeway.reasons import Reason
from leeway.selection.offers.allocatable import AmiFamily
from leeway.selection.offers.machines import Machine
from leeway.selection.pods import NodePool, Taint

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


LARGEST = 16 * 1024
"""Bytes of user data before base64. Source: EC2's user guide, "User data"."""


@dataclass(frozen=True, slots=True)
class UserData:
    """The user data of a node, as text.

    The kubelet registers the node without `labels_for_admission` and `taints_for_admission`:
    admission puts these on. There are such taints only if the user data is all the user's own.
    """

    text: str
    labels_for_admission: Mapping[str, str] = field(default_factory=dict)
    taints_for_admission: tuple[Taint, ...] = ()
    warnings: tuple[Reason, ...] = ()


def render(
    template: NodeTemplate,
    cluster: ClusterDetails,
    machine: Machine | None = None,
) -> UserData:
    """Render the user data of a template's nodes on a machine.

    Without a machine, the values that depend on it are left out. Equal arguments give equal text.

    Raises:
        UserDataError: a value is not valid, the user's own data cannot be read, or it is too large.
    """
    node = node_of(template, cluster, machine)
    _check_size(node.user_data)
    if node.family is AmiFamily.CUSTOM:
        return _custom(node)
    text, warnings = _RENDERED.get(node.family, windows)(node)
    _check_size(text)
    if node.family is not AmiFamily.AL2023 and (passed := node.kubelet.model_extra):
        settings = [f"spec.kubelet.{name}" for name in sorted(passed)]
        warnings = (*warnings, settings_without_effect(settings, node.family))
    unknown = () if machine else (INSTANCE_TYPE_UNKNOWN(),)
    return UserData(text, split(node.labels).admission, (), (*warnings, *unknown))


def check_user_data(node_class: EC2NodeClass) -> tuple[Reason, ...]:
    """Return the warnings that a node class's own user data causes on nodes of any pool.

    Raises:
        UserDataError: nodes cannot be launched with this user data.
    """
    settings = node_class_of(node_class, Defaults())
    pool = NodePool("any", node_class=settings)
    cluster = ClusterDetails("any", "https://example.com", "YW55", "10.100.0.0/16")
    of = NodeTemplate(pool, node_class.spec.kubelet)
    without = render(of, cluster).warnings
    own = render(replace(of, user_data=node_class.spec.user_data or ""), cluster).warnings
    return tuple(one for one in own if one not in without)


_RENDERED: Mapping[AmiFamily, Callable[[Node], tuple[str, tuple[Reason, ...]]]] = {
    AmiFamily.AL2: al2,
    AmiFamily.AL2023: al2023,
    AmiFamily.BOTTLEROCKET: bottlerocket,
}


def _custom(node: Node) -> UserData:
    warnings = []
    if not node.user_data.strip():
        warnings.append(
            NODE_MAY_NOT_JOIN(
                why="The AMI family is Custom and userData is empty: the image itself has to join "
                "the cluster"
            )
        )
    if node.taints:
        warnings.append(CUSTOM_TAINTS_LATE())
    return UserData(node.user_data, dict(sorted(node.labels.items())), node.taints, tuple(warnings))


def _check_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UserDataError(FIELD, "expected text that can be written in UTF-8") from None
    if size > LARGEST:
        raise UserDataError(
            FIELD,
            f"expected at most {LARGEST:,} bytes of user data before base64, got {size:,}: shorten "
            f"it by {size - LARGEST:,}",
        )
