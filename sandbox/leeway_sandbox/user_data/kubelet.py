"""Decides from configuration and flags whether a kubelet starts, and how it registers.

Sources: `cmd/kubelet/app/options/options.go` (ValidateKubeletFlags),
`pkg/kubelet/apis/config/validation/validation.go`, `pkg/kubelet/eviction/helpers.go` and
`pkg/util/taints/taints.go` of Kubernetes. A kubelet logs unknown fields of its configuration file
and starts; a field of another type or an unknown flag ends it.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leeway_sandbox.user_data.configuration import BootError, KubeletConfiguration, Taint
from leeway_sandbox.user_data.fields import Type, check
from leeway_sandbox.user_data.kubelet_fields import FIELDS, FLAGS

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUANTITY = re.compile(
    r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?"  # resource.ParseQuantity
)
_EFFECTS = {"NoSchedule", "PreferNoSchedule", "NoExecute"}
_SIGNALS = {
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
    "allocatableMemory.available",
}
_RESERVABLE = {"cpu", "memory", "ephemeral-storage", "pid"}
_OWN_LABELS = {
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
}
_OWN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_TRUE, _FALSE = {"true", "t", "1"}, {"false", "f", "0"}
_FIELD_OF = {
    "max-pods": "maxPods",
    "pods-per-core": "podsPerCore",
    "kube-reserved": "kubeReserved",
    "system-reserved": "systemReserved",
}
_SHORT = {"-v": "--v", "-h": "--help"}


@dataclass
class _Flags:
    """The flags of a command line, those that the Node object shows apart from the others."""

    labels: dict[str, str] = field(default_factory=dict)
    taints: list[Taint] | None = None
    fields: dict[str, Any] = field(default_factory=dict)  # fields of the configuration


def start(
    config: Mapping[str, Any], arguments: Sequence[str]
) -> tuple[KubeletConfiguration, list[str]]:
    """The kubelet that a configuration file and a command line start; flags win over the file.

    Also returns the paths of unknown fields. Raises BootError if the kubelet does not start, or
    if the API server refuses its Node.
    """
    ignored = check(dict(config), FIELDS, "kubelet configuration")
    flags = _parse(arguments)
    merged = {key: value for key, value in config.items() if value is not None} | flags.fields
    _validate(merged)
    taints = flags.taints
    if taints is None:
        taints = [_taint(one) for one in merged.get("registerWithTaints") or ()]
    if merged.get("registerNode") is False:
        raise BootError("the kubelet does not register the node: registerNode is false")
    maximum = merged.get("maxPods")
    configuration = KubeletConfiguration(
        labels=flags.labels,
        taints=tuple(taints),
        max_pods=maximum or None,
        pods_per_core=merged.get("podsPerCore") or 0,
        cluster_dns=tuple(merged.get("clusterDNS") or ()),
        kube_reserved=dict(merged.get("kubeReserved") or {}),
        system_reserved=dict(merged.get("systemReserved") or {}),
        eviction_hard=dict(merged.get("evictionHard") or {}),
        set_by_flags=tuple(sorted(flags.fields)),
    )
    return configuration, ignored


def _parse(arguments: Sequence[str]) -> _Flags:
    """Read the command line as pflag does."""
    flags, rest = _Flags(), list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        name = _SHORT.get(name, name)
        if not name.startswith("--") or name == "--":
            raise BootError(f"the kubelet exits: unknown command {word!r}")
        name = name.removeprefix("--")
        kind = FLAGS.get(name)
        if kind is None:
            raise BootError(f"the kubelet exits: unknown flag: --{name}")
        if not equals:
            if kind == "bool":
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                raise BootError(f"the kubelet exits: flag needs an argument: --{name}")
        _set(flags, name, kind, value)
    return flags


def _set(flags: _Flags, name: str, kind: Type, value: str) -> None:
    _check_flag(name, kind, value)
    match name:
        case "node-labels":
            flags.labels |= _labels(value)
        case "register-with-taints":
            flags.taints = [_taint_of(text) for text in value.split(",") if text]
        case "max-pods" | "pods-per-core":
            flags.fields[_FIELD_OF[name]] = int(value)
        case "cluster-dns":
            flags.fields["clusterDNS"] = [text.strip() for text in value.split(",") if text]
        case "kube-reserved" | "system-reserved":
            flags.fields[_FIELD_OF[name]] = _pairs(name, value, "=")
        case "eviction-hard":
            flags.fields["evictionHard"] = _pairs(name, value, "<")
        case "register-node":
            flags.fields["registerNode"] = value.lower() in _TRUE


def _check_flag(name: str, kind: Type, value: str) -> None:
    if kind == "number" and not re.fullmatch(r"[-+]?\d+", value):
        raise BootError(f"the kubelet exits: --{name}: expected a number, got {value!r}")
    if kind == "bool" and value.lower() not in _TRUE | _FALSE:
        raise BootError(f"the kubelet exits: --{name}: expected true or false, got {value!r}")
    if kind == "duration":
        check(value, "duration", f"the kubelet exits: --{name}")
    if name == "hostname-override":
        raise BootError(
            f"the kubelet registers as {value!r}, but EKS authenticates it by the private DNS name "
            "of its instance"
        )
    if name in {"help", "version"}:
        raise BootError(f"the kubelet exits: --{name} prints text and starts nothing")


def _pairs(name: str, text: str, sign: str) -> dict[str, str]:
    found = {}
    for pair in filter(None, text.split(",")):
        key, found_sign, value = pair.partition(sign)
        if not found_sign:
            raise BootError(f"the kubelet exits: --{name}: malformed pair, expect key{sign}value")
        found[key.strip()] = value.strip()
    return found


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for pair in text.split(","):
        key, _, value = pair.partition("=")
        if pair.strip():
            labels[key.strip()] = value.strip()
    check_labels(labels)
    return labels


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise BootError for labels with which a kubelet does not start."""
    foreign = sorted(key for key in labels if _is_reserved(key))
    if foreign:
        raise BootError(
            "the kubelet exits: unknown 'kubernetes.io' or 'k8s.io' labels specified with "
            f"--node-labels: {', '.join(foreign)}"
        )
    for key, value in labels.items():
        _check_name(key, "label")
        if value and not _NAME.fullmatch(value):
            raise BootError(f"the kubelet exits: invalid value of label {key}: {value[:80]!r}")


def _is_reserved(key: str) -> bool:
    """Whether a label is in a domain of Kubernetes, and none that a kubelet may set itself."""
    domain = key.rpartition("/")[0]
    ours = any(domain == one or domain.endswith(f".{one}") for one in ("kubernetes.io", "k8s.io"))
    allowed = any(domain == one or domain.endswith(f".{one}") for one in _OWN_DOMAINS)
    return ours and not allowed and key not in _OWN_LABELS


def _check_name(key: str, what: str) -> None:
    domain, slash, name = key.rpartition("/")
    valid = _NAME.fullmatch(name) and (
        not slash or (len(domain) <= 253 and _DOMAIN.fullmatch(domain))
    )
    if not valid:
        raise BootError(f"the kubelet exits: invalid {what} key {key[:80]!r}")


def _taint_of(text: str) -> Taint:
    """A taint as --register-with-taints has it: KEY=VALUE:EFFECT or KEY:EFFECT."""
    head, colon, effect = text.strip().rpartition(":")
    key, _, value = head.partition("=")
    if not colon:
        raise BootError(
            f"the kubelet exits: invalid taint {text[:80]!r}: expected KEY=VALUE:EFFECT"
        )
    return _checked(Taint(key, value, effect))


def _taint(document: Mapping[str, Any]) -> Taint:
    key, value = document.get("key") or "", document.get("value") or ""
    return _checked(Taint(key, value, document.get("effect") or ""))


def _checked(taint: Taint) -> Taint:
    _check_name(taint.key, "taint")
    if taint.value and not _NAME.fullmatch(taint.value):
        raise BootError(f"the kubelet exits: invalid value of taint {taint.key}: {taint.value!r}")
    if taint.effect not in _EFFECTS:
        raise BootError(f"the kubelet exits: invalid effect of taint {taint.key}: {taint.effect!r}")
    return taint


def _validate(config: Mapping[str, Any]) -> None:
    """Apply the rules of ValidateKubeletConfiguration for fields that users set."""
    for name in ("maxPods", "podsPerCore"):
        if (config.get(name) or 0) < 0:
            raise BootError(f"the kubelet exits: {name} must not be a negative number")
    for address in config.get("clusterDNS") or ():
        try:
            ipaddress.ip_address(address)
        except ValueError as error:
            raise BootError(f"clusterDNS: {address!r} is no IP address") from error
    for name in ("kubeReserved", "systemReserved"):
        for resource, quantity in (config.get(name) or {}).items():
            if resource not in _RESERVABLE:
                raise BootError(f"the kubelet exits: {name}: cannot reserve {resource!r}")
            _check_quantity(quantity, f"{name}.{resource}")
    _check_thresholds(config)
    low, high = config.get("imageGCLowThresholdPercent"), config.get("imageGCHighThresholdPercent")
    if (80 if low is None else low) >= (85 if high is None else high):
        raise BootError(
            "the kubelet exits: imageGCLowThresholdPercent must be less than "
            "imageGCHighThresholdPercent"
        )


def _check_thresholds(config: Mapping[str, Any]) -> None:
    for name in ("evictionHard", "evictionSoft"):
        for signal, threshold in (config.get(name) or {}).items():
            if signal not in _SIGNALS:
                raise BootError(f"the kubelet exits: {name}: unknown eviction signal {signal!r}")
            if not re.fullmatch(r"\d+(\.\d+)?%", threshold):
                _check_quantity(threshold, f"{name}.{signal}")
    periods: Iterable[str] = config.get("evictionSoftGracePeriod") or {}
    for signal in config.get("evictionSoft") or ():
        if signal not in periods:
            raise BootError(
                f"the kubelet exits: evictionSoft: {signal} has no evictionSoftGracePeriod"
            )


def _check_quantity(text: str, at: str) -> None:
    if not _QUANTITY.fullmatch(text):
        raise BootError(f"the kubelet exits: {at}: {text!r} is no quantity")
