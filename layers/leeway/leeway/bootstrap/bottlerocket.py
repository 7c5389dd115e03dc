"""User data of Bottlerocket: TOML, the user's own tables with Leeway's settings in them.

Sources: Bottlerocket's settings reference, `settings.kubernetes`; its modeled types; the settings
that Karpenter 1.14 keeps, `pkg/providers/amifamily/bootstrap/bottlerocketsettings.go`.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from leeway.bootstrap.kubelet import (
    NODE_MAY_NOT_JOIN,
    SETTING_LEFT_OUT,
    TAINTS,
    config_of,
    labels_left_out,
    setting_warnings,
    settings_without_effect,
)
from leeway.bootstrap.node import (
    FIELD,
    Node,
    UserDataError,
    control_plane_sets,
    kubelet_may_set,
    labels_of_kubelet,
)
from leeway.printable import printable
from leeway.reasons import Reason
from leeway.selection.offers.allocatable import AmiFamily

type Table = dict[str, Any]

SETTINGS = {
    "maxPods": "max-pods",
    "clusterDNS": "cluster-dns-ip",
    "systemReserved": "system-reserved",
    "kubeReserved": "kube-reserved",
    "evictionHard": "eviction-hard",
    "evictionSoft": "eviction-soft",
    "evictionSoftGracePeriod": "eviction-soft-grace-period",
    "evictionMaxPodGracePeriod": "eviction-max-pod-grace-period",
    "imageGCHighThresholdPercent": "image-gc-high-threshold-percent",
    "imageGCLowThresholdPercent": "image-gc-low-threshold-percent",
    "cpuCFSQuota": "cpu-cfs-quota-enforced",
}
"""The name in `settings.kubernetes` of each of the kubelet's settings that Bottlerocket has."""

_OTHERS = """api-server cluster-certificate cluster-name cloud-provider credential-providers
    node-labels static-pods allowed-unsafe-sysctls server-tls-bootstrap registry-qps
    registry-burst event-qps event-burst kube-api-qps
    kube-api-burst container-log-max-size container-log-max-files container-log-max-workers
    container-log-monitor-interval cpu-manager-policy cpu-manager-policy-options
    cpu-manager-reconcile-period memory-manager-policy memory-manager-reserved-memory
    topology-manager-scope topology-manager-policy topology-manager-policy-options ids-per-pod
    shutdown-grace-period shutdown-grace-period-for-critical-pods cluster-domain seccomp-default
    pod-pids-limit device-ownership-from-security-context single-process-oom-kill
    hostname-override-source log-level"""
_KEPT = frozenset((*SETTINGS.values(), *_OTHERS.split()))
"""The user's own settings that stay. Bottlerocket refuses all of the user data for one setting that
it does not know, and the settings that Karpenter leaves out have never reached a node of a pool."""

_AS_TEXT = frozenset({"imageGCHighThresholdPercent", "imageGCLowThresholdPercent"})
_THRESHOLDS = frozenset({"evictionHard", "evictionSoft"})
_AMOUNTS = frozenset({"systemReserved", "kubeReserved"})

# Bottlerocket refuses all of the user data if one value does not match.
_QUANTITY = re.compile(r"[0-9.]+(e?[0-9]*|[EPTGMK]i?|[numk])")
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")

_MOUNT = "000-mount-local-disks"
_MOUNTING = {
    "commands": [
        ["apiclient", "ephemeral-storage", "init"],
        [
            "apiclient",
            "ephemeral-storage",
            "bind",
            "--dirs",
            "/var/lib/containerd",
            "/var/lib/kubelet",
            "/var/log/pods",
        ],
    ],
    "essential": True,
    "mode": "always",
}


def bottlerocket(node: Node) -> tuple[str, tuple[Reason, ...]]:
    """Render the user data.

    Raises:
        UserDataError: the user's own data is not TOML of settings, or Bottlerocket refuses a
            value.
    """
    if not _CLUSTER_NAME.fullmatch(node.cluster.name):
        raise UserDataError(
            "cluster: name",
            "expected at most 63 characters that end with a letter or a digit, for Bottlerocket",
        )
    document = _read(node.user_data)
    settings = _table(document, "settings")
    kubernetes = _table(settings, "kubernetes", "settings.")
    of_user = {name: kubernetes[key] for name, key in SETTINGS.items() if key in kubernetes}
    if "node-taints" in kubernetes:
        of_user[TAINTS] = kubernetes["node-taints"]
    labels = _table(kubernetes, "node-labels", "settings.kubernetes.")
    warnings = [*setting_warnings(node, of_user), *_warnings(settings, labels)]
    config = config_of(node, of_user)
    warnings += _left_out(config, kubernetes)
    kept = {name: value for name, value in kubernetes.items() if name in _KEPT}
    if labels:
        kept["node-labels"] = {k: v for k, v in labels.items() if not control_plane_sets(k)}
    settings["kubernetes"] = {**kept, **_kubernetes(node, kept, config)}
    _adjust(node, settings)
    document["settings"] = settings
    try:
        return tomli_w.dumps(document), tuple(warnings)
    except (RecursionError, ValueError) as error:
        raise UserDataError(FIELD, f"expected settings in TOML: {error}") from None


def _read(text: str) -> Table:
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise UserDataError(FIELD, f"expected settings in TOML: {error}") from None
    except RecursionError:
        raise UserDataError(
            FIELD, "expected settings in TOML that are not nested as deep"
        ) from None


def _table(inside: Table, name: str, path: str = "") -> Table:
    found = inside.get(name, {})
    if not isinstance(found, dict):
        raise UserDataError(FIELD, f"expected {path}{name} to be a table")
    return dict(found)


def _kubernetes(node: Node, of_user: Table, config: Mapping[str, Any]) -> Table:
    ours: Table = {
        "api-server": node.cluster.endpoint,
        "cluster-certificate": node.cluster.certificate_authority,
        "cluster-name": node.cluster.name,
    }
    for name, key in SETTINGS.items():
        if name in config:
            value = _value(name, config[name])
            both = isinstance(value, dict) and isinstance(of_user.get(key), dict)
            ours[key] = {**of_user[key], **value} if both else value
    labels = labels_of_kubelet(node.labels)
    if labels:
        ours["node-labels"] = {**of_user.get("node-labels", {}), **labels}
    taints: dict[str, list[str]] = {}
    for taint in node.taints:
        taints.setdefault(taint.key, []).append(f"{taint.value}:{taint.effect}")
    return {**ours, "node-taints": taints} if taints else ours


def _value(name: str, value: Any) -> Any:
    """A setting as Bottlerocket writes it."""
    if name == "clusterDNS":
        return value[0] if len(value) == 1 else value
    if name in _THRESHOLDS:
        return {key: _threshold(f"{name}.{key}", text) for key, text in value.items()}
    if name in _AMOUNTS:
        kept = {key: text for key, text in value.items() if key != "pid"}
        return {key: _amount(f"{name}.{key}", text) for key, text in kept.items()}
    return str(value) if name in _AS_TEXT else value


def _threshold(name: str, text: str) -> str:
    """A threshold. 0 % and 100 % both turn one off, and Bottlerocket takes only the first."""
    if not text.endswith("%"):
        return _amount(name, text)
    return "0%" if float(text.removesuffix("%")) == 100 else text


def _amount(name: str, text: str) -> str:
    if not _QUANTITY.fullmatch(text):
        raise UserDataError(
            f"spec.kubelet.{name}", f"expected an amount like 500m, 2 or 1Gi, got {text!r}"
        )
    return text


def _adjust(node: Node, settings: Table) -> None:
    """Turn off a setting that keeps a node from joining, and add the local disks."""
    autoscaling = settings.get("autoscaling")
    if isinstance(autoscaling, dict) and autoscaling.get("should-wait"):
        settings["autoscaling"] = {**autoscaling, "should-wait": False}
    if node.local_disks:
        commands = _table(settings, "bootstrap-commands", "settings.")
        settings["bootstrap-commands"] = {**commands, _MOUNT: _MOUNTING}


def _warnings(settings: Table, labels: Table) -> Iterator[Reason]:
    autoscaling = settings.get("autoscaling")
    if isinstance(autoscaling, dict) and autoscaling.get("should-wait"):
        yield SETTING_LEFT_OUT(
            setting="Leeway sets settings.autoscaling.should-wait of userData to false: the node "
            "belongs to no Auto Scaling group, and its kubelet would not start"
        )
    if left_out := sorted(filter(control_plane_sets, labels)):
        yield labels_left_out(left_out)
    refused = sorted(key for key in labels if not kubelet_may_set(key))
    if refused:
        yield NODE_MAY_NOT_JOIN(
            why=f"A kubelet may not set {printable(', '.join(refused))} of userData, and does not "
            "start with them: set labels in spec.template.metadata of the NodePool"
        )


def _left_out(config: Mapping[str, Any], of_user: Table) -> Iterator[Reason]:
    names = ["podsPerCore"] if "podsPerCore" in config else []
    names += [f"{name}.pid" for name in sorted(_AMOUNTS) if "pid" in config.get(name, {})]
    unknown = sorted(of_user.keys() - _KEPT - {"node-taints"})
    names += [f"settings.kubernetes.{printable(name)}" for name in unknown]
    if names:
        yield settings_without_effect(names, AmiFamily.BOTTLEROCKET)
