"""Reads user data as nodeadm does, the bootstrap of AL2023's AMIs.

Source: `nodeadm/` of awslabs/amazon-eks-ami. nodeadm reads a NodeConfig, or every NodeConfig part
of a MIME multipart document, and merges them: later values win, `kubelet.flags` are appended, and
`kubelet.config` is merged object by object. It ignores unknown fields (issue 2553 there), and
looks nothing up: all of `spec.cluster` must be given.
"""

import base64
import binascii
import ipaddress
import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from leeway_sandbox.user_data import kubelet
from leeway_sandbox.user_data.configuration import BootError, NodeConfiguration
from leeway_sandbox.user_data.fields import ListOf, MapOf, Type, check
from leeway_sandbox.user_data.parts import multipart, text_of, unpacked

_API_VERSION = "node.eks.aws/v1alpha1"
_MEDIA_TYPE = "application/node.eks.aws"
_STRATEGIES = {"RAID0", "RAID10", "Mount"}
_REQUIRED = {
    "name": "Name",
    "apiServerEndpoint": "Apiserver endpoint",
    "certificateAuthority": "Certificate authority",
    "cidr": "CIDR",
}
_SPEC: Mapping[str, Type] = {
    "cluster": {
        "name": "string",
        "apiServerEndpoint": "string",
        "certificateAuthority": "string",
        "cidr": "string",
        "enableOutpost": "bool",
        "id": "string",
    },
    "containerd": {"config": "string", "baseRuntimeSpec": MapOf("any")},
    "instance": {
        "localStorage": {
            "strategy": "string",
            "mountPath": "string",
            "disabledMounts": ListOf("string"),
        },
        "environment": MapOf(MapOf("string")),
    },
    "kubelet": {"config": MapOf("any"), "flags": ListOf("string")},
    "featureGates": MapOf("bool"),
}
_NODE_CONFIG: Mapping[str, Type] = {
    "apiVersion": "string",
    "kind": "string",
    "metadata": "any",
    "spec": _SPEC,
}


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: what looks like a date is a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse(data: bytes) -> NodeConfiguration:
    """The node that this user data describes; raises BootError if nodeadm or the kubelet fails."""
    spec: dict[str, Any] = {}
    ignored: list[str] = []
    for number, document in enumerate(_documents(unpacked(data)), start=1):
        found, unknown = _decode(document)
        spec = merged(spec, found)
        ignored += [f"NodeConfig {number}: {path}" for path in unknown]
    cluster = spec.get("cluster") or {}
    _validate(cluster)
    options = spec.get("kubelet") or {}
    arguments = _words(options.get("flags") or [])
    config = {"clusterDNS": [_dns_address(cluster["cidr"])]} | (options.get("config") or {})
    configuration, unknown = kubelet.start(config, arguments)
    return NodeConfiguration(
        family="AL2023",
        cluster=cluster["name"],
        endpoint=cluster["apiServerEndpoint"],
        certificate_authority=_decoded(cluster["certificateAuthority"]),
        kubelet=configuration,
        is_named_by_instance=bool((spec.get("featureGates") or {}).get("InstanceIdNodeName")),
        ignored=(*ignored, *unknown),
    )


def _documents(data: bytes) -> list[bytes]:
    parts = multipart(data)
    if parts is None:
        return [data]
    found = [unpacked(part.content) for part in parts if part.content_type == _MEDIA_TYPE]
    if not found:
        raise BootError(f"nodeadm exits: no part of the user data has the type {_MEDIA_TYPE}")
    return found


def _decode(data: bytes) -> tuple[dict[str, Any], list[str]]:
    """The `spec` of one NodeConfig, and the paths of its unknown fields."""
    text = text_of(data)
    try:
        document = next(iter(yaml.load_all(text, _Loader)), None)
    except yaml.YAMLError as error:
        raise BootError(f"nodeadm exits: the NodeConfig is not YAML: {_line(error)}") from error
    if not isinstance(document, dict):
        raise BootError("nodeadm exits: the user data has no NodeConfig")
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind != "NodeConfig" or version != _API_VERSION:
        raise BootError(
            f'nodeadm exits: no kind "{kind}" is registered for version "{version}", expected '
            f"NodeConfig of {_API_VERSION}"
        )
    try:
        unknown = check(document, _NODE_CONFIG, "")
    except BootError as error:
        raise BootError(f"nodeadm exits: NodeConfig: {error}") from error
    strategy = ((document.get("spec") or {}).get("instance") or {}).get("localStorage") or {}
    if (name := strategy.get("strategy")) and name not in _STRATEGIES:
        raise BootError(
            f"nodeadm exits: NodeConfig: spec.instance.localStorage.strategy: expected one of "
            f"{', '.join(sorted(_STRATEGIES))}, got {name!r}"
        )
    return document.get("spec") or {}, unknown


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two NodeConfigs' `spec` as one: the second wins where it sets a value."""
    result = _deep(first, second)
    flags = [
        flag for spec in (first, second) for flag in (spec.get("kubelet") or {}).get("flags") or ()
    ]
    if flags:
        result["kubelet"] = {**(result.get("kubelet") or {}), "flags": flags}
    return result


def _deep(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(first)
    for key, value in second.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = _deep(old, value)
        elif value is not None and value != "":
            result[key] = value
    return result


def _validate(cluster: Mapping[str, Any]) -> None:
    for name, words in _REQUIRED.items():
        if not cluster.get(name):
            raise BootError(f"nodeadm exits: {words} is missing in cluster configuration")


def _dns_address(cidr: str) -> str:
    """The cluster's DNS service, as nodeadm derives it from the CIDR of services."""
    try:
        network = ipaddress.ip_interface(cidr)
    except ValueError as error:
        raise BootError(f"nodeadm exits: {cidr!r} is not a valid CIDR") from error
    if "/" not in cidr:
        raise BootError(f"nodeadm exits: {cidr!r} is not a valid CIDR")
    if network.version == 4:
        return f"{cidr.rpartition('.')[0]}.10"
    return f"{cidr.partition('/')[0]}a"


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError) as error:
        message = "spec.cluster.certificateAuthority: expected base64"
        raise BootError(f"nodeadm exits: NodeConfig: {message}") from error


def _words(flags: list[str]) -> list[str]:
    """The kubelet's arguments: systemd splits at spaces what nodeadm writes as one variable."""
    try:
        return shlex.split(" ".join(flags))
    except ValueError as error:
        raise BootError(f"systemd cannot read the kubelet's flags: {error}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
