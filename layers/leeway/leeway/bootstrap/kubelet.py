"""The kubelet's settings of a node, as its configuration file and as its flags; and the warnings
about user data, which docs/bootstrap.md lists.

Sources: KubeletConfiguration `kubelet.config.k8s.io/v1beta1`, and the kubelet's command line.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from leeway.bootstrap.node import Node
from leeway.printable import printable
from leeway.reasons import Reason, ReasonCode
from leeway.selection.offers.allocatable import AmiFamily
from leeway.selection.pods import Taint

AL2_END_OF_LIFE = ReasonCode(
    "Al2EndOfLife",
    "AL2 reached its end of life for EKS on 2025-11-26 and gets no new images: use AL2023 or "
    "Bottlerocket.",
)
CUSTOM_TAINTS_LATE = ReasonCode(
    "CustomTaintsLate",
    "The AMI family is Custom: admission puts taints on after the node has registered, and pods "
    "may start before. Register the taints in userData.",
)
INSTANCE_TYPE_UNKNOWN = ReasonCode(
    "InstanceTypeUnknown",
    "The instance type is not known: the image decides how many pods the node takes and how much "
    "it reserves.",
)
NODE_MAY_NOT_JOIN = ReasonCode("NodeMayNotJoin", "{why}.")
SETTING_LEFT_OUT = ReasonCode("SettingLeftOut", "{setting}.")
USER_DATA_NOT_COUNTED = ReasonCode(
    "UserDataNotCounted",
    "Selection does not count with {settings} of userData, so pods may not fit on the node: set "
    "{instead} instead.",
)
WINDOWS_LIMITS = ReasonCode("WindowsLimits", "{limit}.")

type Config = dict[str, Any]
"""Settings by their names in KubeletConfiguration."""

FLAGS = {
    "maxPods": "--max-pods",
    "podsPerCore": "--pods-per-core",
    "systemReserved": "--system-reserved",
    "kubeReserved": "--kube-reserved",
    "evictionHard": "--eviction-hard",
    "evictionSoft": "--eviction-soft",
    "evictionSoftGracePeriod": "--eviction-soft-grace-period",
    "evictionMaxPodGracePeriod": "--eviction-max-pod-grace-period",
    "imageGCHighThresholdPercent": "--image-gc-high-threshold",
    "imageGCLowThresholdPercent": "--image-gc-low-threshold",
    "cpuCFSQuota": "--cpu-cfs-quota",
    "clusterDNS": "--cluster-dns",
    "registerWithTaints": "--register-with-taints",
}
"""The flag of each setting. A flag wins over the configuration file."""

COUNTED = (
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "registerWithTaints",
)
"""Settings that decide which pods fit: selection counts with them."""


TAINTS = "registerWithTaints"
"""Always those of the pool: selection places pods by them."""


def stated(node: Node) -> Config:
    """Return the settings of the node class."""
    written = node.kubelet.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {name: value for name, value in written.items() if value not in ({}, [])}


def config_of(node: Node, of_user: Mapping[str, Any] | None = None) -> Config:
    """Return all settings of a node except its taints.

    The node class has precedence over the settings in the user's own data (`of_user`), and these
    over the values that selection computed. Only the number of pods is always selection's.
    """
    computed: Config = {
        "clusterDNS": list(node.cluster.dns_addresses),
        "kubeReserved": node.kube_reserved,
        "evictionHard": node.eviction_hard,
    }
    config = {
        name: left
        for name, value in computed.items()
        if (left := _without(value, (of_user or {}).get(name, {})))
    }
    for name, value in stated(node).items():
        config[name] = {**config.get(name, {}), **value} if isinstance(value, dict) else value
    if node.max_pods is not None:
        config["maxPods"] = node.max_pods
    return {name: config[name] for name in FLAGS if name in config}


def _without(computed: Any, of_user: Any) -> Any:
    """What was computed, without the parts that the user's own data sets."""
    if not isinstance(of_user, Mapping):
        return None
    if not of_user:
        return computed
    if not isinstance(computed, Mapping):
        return None
    return {key: value for key, value in computed.items() if key not in of_user}


def setting_warnings(node: Node, of_user: Collection[str]) -> Iterator[Reason]:
    """Warn of settings in the user's own data that belong into the node class or the pool."""
    ours = {*stated(node), TAINTS, *(["maxPods"] if node.max_pods is not None else [])}
    counted = [name for name in COUNTED if name in of_user]
    if names := [name for name in counted if name in ours]:
        replaced = f"Leeway's values replace {', '.join(names)} of userData"
        yield SETTING_LEFT_OUT(setting=f"{replaced}: set {_instead(names)} instead")
    if names := [name for name in counted if name not in ours]:
        yield USER_DATA_NOT_COUNTED(settings=", ".join(names), instead=_instead(names))


def _instead(names: Collection[str]) -> str:
    places = ["spec.template.spec.taints of the NodePool"] if TAINTS in names else []
    if any(name != TAINTS for name in names):
        places.insert(0, "spec.kubelet of the EC2NodeClass")
    return " and ".join(places)


def labels_left_out(labels: Iterable[str]) -> Reason:
    """Warn of labels in the user's own data that are Leeway's to put on."""
    listed = printable(", ".join(labels))
    said = f"Leeway leaves {listed} of userData out: it puts these labels on itself"
    return SETTING_LEFT_OUT(setting=said)


def settings_without_effect(names: Iterable[str], family: AmiFamily) -> Reason:
    """Warn of settings that nodes of a family do not have."""
    said = f"Leeway leaves {', '.join(names)} out: it does not set this on {family}"
    return SETTING_LEFT_OUT(setting=said)


def taint_text(taint: Taint) -> str:
    """Write a taint as the kubelet's flag has it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def flags_of(node: Node, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the flags of settings, of the node's taints and of the labels, by setting."""
    flags = {name: f"{FLAGS[name]}={_flag_text(name, value)}" for name, value in config.items()}
    if node.taints:
        flags[TAINTS] = f"{FLAGS[TAINTS]}={','.join(map(taint_text, node.taints))}"
    return flags


def labels_flag(labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the flag of labels, if there are any."""
    if labels:
        yield "--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items())


def _flag_text(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        between = "<" if name in {"evictionHard", "evictionSoft"} else "="
        return ",".join(f"{key}{between}{value[key]}" for key in sorted(value))
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
