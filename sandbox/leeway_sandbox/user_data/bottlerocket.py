"""Reads user data as Bottlerocket does: TOML settings, which its API server checks before use.

Source: bottlerocket-os/bottlerocket-settings-sdk (the settings models, which refuse unknown fields)
and `sources/early-boot-config` of bottlerocket-os/bottlerocket. If one setting is wrong the host
takes none of them, and its kubelet does not start.
"""

import base64
import binascii
import re
import tomllib
from collections.abc import Mapping
from typing import Any, NoReturn

from leeway_sandbox.user_data import kubelet
from leeway_sandbox.user_data.configuration import BootError, NodeConfiguration
from leeway_sandbox.user_data.fields import ListOf, MapOf, Type, check, named
from leeway_sandbox.user_data.parts import inflated, text_of

_TEXTS = MapOf("string")
_KUBERNETES: Mapping[str, Type] = {
    **named(
        "string",
        """cluster-name cluster-certificate api-server authentication-mode bootstrap-token
        cloud-provider container-log-max-size container-log-monitor-interval cpu-manager-policy
        cpu-manager-reconcile-period topology-manager-scope topology-manager-policy provider-id
        server-certificate server-key shutdown-grace-period
        shutdown-grace-period-for-critical-pods memory-manager-policy reserved-cpus
        memory-swap-behavior hostname-override-source cluster-domain node-ip
        pod-infra-container-image hostname-override""",
    ),
    **named(
        "bool",
        """standalone-mode server-tls-bootstrap cpu-cfs-quota-enforced seccomp-default
        device-ownership-from-security-context single-process-oom-kill
        static-pods-enabled""",
    ),
    **named(
        "int32",
        """registry-qps registry-burst event-qps event-burst kube-api-qps kube-api-burst
        container-log-max-files container-log-max-workers""",
    ),
    **named(
        _TEXTS,
        """node-labels eviction-hard eviction-soft eviction-soft-grace-period kube-reserved
        system-reserved""",
    ),
    **named(
        "any",
        """node-taints eviction-max-pod-grace-period image-gc-high-threshold-percent
        image-gc-low-threshold-percent cluster-dns-ip""",
    ),
    "static-pods": MapOf({"enabled": "bool", "manifest": "string"}),
    "allowed-unsafe-sysctls": ListOf("string"),
    "cpu-manager-policy-options": ListOf("string"),
    "credential-providers": MapOf("any"),
    "memory-manager-reserved-memory": MapOf("any"),
    "pod-pids-limit": "int64",
    "log-level": "u8",
    "max-pods": "u32",
}
_HOST_CONTAINER: Mapping[str, Type] = {
    "source": "string",
    "enabled": "bool",
    "superpowered": "bool",
    "user-data": "string",
    "command": ListOf("string"),
}
_SETTINGS: Mapping[str, Type] = {
    **named(
        MapOf("any"),
        """autoscaling aws boot bootstrap-commands bootstrap-containers cloudformation
        container-registry container-runtime container-runtime-plugins dns
        image-verifier-plugins kernel kubelet-device-plugins kubelet-dra-drivers measurement
        metrics network ntp nvidia-container-runtime oci-defaults oci-hooks pki updates""",
    ),
    "motd": "string",
    "host-containers": MapOf(_HOST_CONTAINER),
    "kubernetes": _KUBERNETES,
}
_CLUSTER_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}")
_LABEL_KEY = re.compile(r"([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_TAINT_VALUE = re.compile(
    r"(?P<value>([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?):(?P<effect>[A-Za-z0-9]{1,253})"
)
_RESERVABLE = {"cpu", "memory", "ephemeral-storage"}
_REQUIRED = ("cluster-name", "api-server", "cluster-certificate")
_AT = "settings.kubernetes"


def parse(data: bytes) -> NodeConfiguration:
    """The node that these settings describe; BootError if Bottlerocket or the kubelet fails."""
    try:
        document = tomllib.loads(text_of(inflated(data)).replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise BootError(f"early-boot-config exits: the user data is not TOML: {error}") from error
    settings = document.get("settings")
    if settings is None:
        raise BootError("early-boot-config exits: TOML data did not contain 'settings' section")
    unknown = _checked(settings)
    if unknown:
        raise BootError(f"Bottlerocket refuses all settings: unknown field {unknown[0]}")
    kubernetes = settings.get("kubernetes") or {}
    _validate(kubernetes)
    labels = kubernetes.get("node-labels") or {}
    kubelet.check_labels(labels)
    configuration, _ = kubelet.start(_kubelet_config(kubernetes), _label_flags(labels))
    return NodeConfiguration(
        family="Bottlerocket",
        cluster=kubernetes["cluster-name"],
        endpoint=kubernetes["api-server"],
        certificate_authority=_decoded(kubernetes["cluster-certificate"]),
        kubelet=configuration,
        ignored=tuple(sorted(set(document) - {"settings"})),
    )


def _checked(settings: Any) -> list[str]:
    try:
        return check(settings, _SETTINGS, "settings")
    except BootError as error:
        raise BootError(f"Bottlerocket refuses all settings: {error}") from error


def _label_flags(labels: Mapping[str, str]) -> list[str]:
    pairs = ",".join(f"{key}={value}" for key, value in labels.items())
    return [f"--node-labels={pairs}"] if pairs else []


def _kubelet_config(settings: Mapping[str, Any]) -> dict[str, Any]:
    addresses = settings.get("cluster-dns-ip") or []
    names = {
        "maxPods": "max-pods",
        "kubeReserved": "kube-reserved",
        "systemReserved": "system-reserved",
        "evictionHard": "eviction-hard",
        "evictionSoft": "eviction-soft",
        "evictionSoftGracePeriod": "eviction-soft-grace-period",
    }
    config = {name: settings[key] for name, key in names.items() if key in settings}
    config["clusterDNS"] = [addresses] if isinstance(addresses, str) else addresses
    config["registerWithTaints"] = [
        {"key": key, "value": value, "effect": effect}
        for key, texts in (settings.get("node-taints") or {}).items()
        for value, effect in map(_taint, _as_list(texts))
    ]
    return config


def _taint(text: str) -> tuple[str, str]:
    found = _TAINT_VALUE.fullmatch(text)
    assert found, "checked before"
    return found["value"], found["effect"]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _refuse(path: str, why: str) -> NoReturn:
    raise BootError(f"Bottlerocket refuses all settings: {_AT}.{path}: {why}")


def _validate(settings: Mapping[str, Any]) -> None:
    for name in _REQUIRED:
        if not settings.get(name):
            raise BootError(f"the kubelet does not start: {_AT}.{name} is not set")
    if not _CLUSTER_NAME.fullmatch(settings["cluster-name"]):
        _refuse("cluster-name", f"invalid Kubernetes cluster name {settings['cluster-name']!r}")
    _decoded(settings["cluster-certificate"])
    for key, value in (settings.get("node-labels") or {}).items():
        _check_key("node-labels", key)
        if not _LABEL_VALUE.fullmatch(value):
            _refuse(f"node-labels.{key}", f"invalid Kubernetes label value {value!r}")
    _check_taints(settings.get("node-taints") or {})
    for name in ("kube-reserved", "system-reserved"):
        for key in settings.get(name) or ():
            if key not in _RESERVABLE:
                _refuse(f"{name}.{key}", f"expected one of {', '.join(sorted(_RESERVABLE))}")


def _check_key(setting: str, key: str) -> None:
    if not _LABEL_KEY.fullmatch(key):
        _refuse(setting, f"invalid Kubernetes label key {key!r}")


def _check_taints(taints: Any) -> None:
    if not isinstance(taints, dict):
        _refuse("node-taints", "expected a table")
    for key, values in taints.items():
        _check_key("node-taints", key)
        for value in _as_list(values):
            if not (isinstance(value, str) and _TAINT_VALUE.fullmatch(value)):
                _refuse(f"node-taints.{key}", f"expected VALUE:EFFECT, got {value!r}")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        _refuse("cluster-certificate", "expected base64")
