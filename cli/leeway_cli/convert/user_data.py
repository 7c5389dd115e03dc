"""Reads the user data of a launch template: what belongs into a pool, and what stays.

User data of a group has the cluster, the labels and the taints of its nodes. Leeway writes these
itself, so they move to the NodePool, and the kubelet's settings to the EC2NodeClass.
"""

import re
import tomllib
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import tomli_w
from leeway.bootstrap.amazon_linux import NODE_CONFIG_TYPE, archive, node_configs, users_parts
from leeway.bootstrap.node import UserDataError
from leeway.manifests.documents import as_yaml
from leeway.selection.offers.allocatable import AmiFamily

type Document = dict[str, Any]


@dataclass(slots=True)
class Read:
    """What user data says. `kept` is the user data without it; `problem` says why it could not be
    read, empty if it could."""

    labels: dict[str, str] = field(default_factory=dict)
    taints: list[Document] = field(default_factory=list)
    kubelet: Document = field(default_factory=dict)
    kept: str = ""
    problem: str = ""


def family_of(encoded: str) -> AmiFamily | None:
    """Guess the family of the image that this user data, in base64, is for."""
    text = _decoded(encoded)
    if text is None:
        return None
    if "node.eks.aws/" in text:
        return AmiFamily.AL2023
    if "/etc/eks/bootstrap.sh" in text:
        return AmiFamily.AL2
    return AmiFamily.BOTTLEROCKET if "[settings.kubernetes" in text else None


def read_user_data(encoded: str, family: AmiFamily) -> Read:
    """Read user data in base64."""
    text = _decoded(encoded)
    if text is None:
        return Read(problem="it is not text")
    try:
        match family:
            case AmiFamily.CUSTOM:
                return Read(kept=text)
            case AmiFamily.BOTTLEROCKET:
                return _bottlerocket(text)
            case AmiFamily.AL2023:
                return _al2023(text)
            case AmiFamily.AL2:
                found = Read(problem="Leeway calls the bootstrap script itself" if text else "")
                _read_flags(text.replace("\\\n", " "), found)
                return found
            case _:
                return Read(problem="Leeway calls the bootstrap script itself" if text else "")
    except (UserDataError, ValueError) as error:
        return Read(problem=f"it cannot be read ({error})")


def _decoded(encoded: str) -> str | None:
    try:
        return b64decode(encoded, validate=True).decode()
    except (NotBase64, UnicodeDecodeError, ValueError):
        return None


def _al2023(text: str) -> Read:
    found, kept = Read(), []
    for part in users_parts(text):
        if part.content_type != NODE_CONFIG_TYPE:
            kept.append(part)
            continue
        rest = [left for one in node_configs((part,)) if (left := _read_node_config(one, found))]
        if rest:
            kept.append(replace(part, body="---\n".join(map(as_yaml, rest))))
    found.kept = kept[0].body if len(kept) == 1 else archive(kept) if kept else ""
    return found


def _read_node_config(config: Mapping[str, Any], found: Read) -> Document | None:
    """Move the labels, the taints and the kubelet's settings out of a NodeConfig. Returns the rest;
    None if nothing is left."""
    spec = {k: v for k, v in _table(config, "spec").items() if k != "cluster"}
    kubelet = _table(spec, "kubelet")
    found.kubelet |= {k: v for k, v in _table(kubelet, "config").items() if k != "clusterDNS"}
    for taint in _listed(found.kubelet.pop("registerWithTaints", None)):
        if isinstance(taint, Mapping):
            found.taints.append(
                {k: str(v) for k, v in taint.items() if k in {"key", "value", "effect"} and v}
            )
    flags = [str(flag) for flag in _listed(kubelet.get("flags"))]
    for flag in flags:
        _read_flags(flag, found)
    others = [flag for flag in flags if not flag.startswith(_MOVED)]
    spec["kubelet"] = {"flags": others} if others else {}
    left = {name: value for name, value in spec.items() if value}
    return {**config, "spec": left} if left else None


_MOVED = ("--node-labels", "--register-with-taints", "--max-pods")
_LABELS = re.compile(r"--node-labels[= ]([^\s'\"]+)")
_TAINTS = re.compile(r"--register-with-taints[= ]([^\s'\"]+)")
_MAX_PODS = re.compile(r"--max-pods[= ](\d{1,6})")


def _read_flags(text: str, found: Read) -> None:
    """Read the kubelet's flags for labels, taints and the number of pods."""
    for match in _LABELS.finditer(text):
        pairs = (one.partition("=") for one in match[1].split(",") if _is_plain(one))
        found.labels |= {key: value for key, _, value in pairs}
    for match in _TAINTS.finditer(text):
        for one in match[1].split(","):
            if _is_plain(one):
                found.taints.append(taint_of(one))
    for match in _MAX_PODS.finditer(text):
        found.kubelet["maxPods"] = int(match[1])


def _is_plain(text: str) -> bool:
    """Whether a shell reads the text as it is written."""
    return bool(text) and "$" not in text and "`" not in text


def taint_of(text: str) -> Document:
    """Read a taint as the kubelet does: `key=value:effect` or `key:effect`."""
    of, _, effect = text.rpartition(":")
    key, _, value = of.partition("=")
    return {"key": key} | ({"value": value} if value else {}) | {"effect": effect}


_OF_CLUSTER = ("api-server", "cluster-certificate", "cluster-name", "cluster-dns-ip")


def _bottlerocket(text: str) -> Read:
    found = Read()
    document = tomllib.loads(text)
    settings = dict(_table(document, "settings"))
    kubernetes = dict(_table(settings, "kubernetes"))
    found.labels = {k: str(v) for k, v in _table(kubernetes, "node-labels").items()}
    for key, values in _table(kubernetes, "node-taints").items():
        for one in _listed(values) or [values]:
            value, _, effect = str(one).rpartition(":")
            found.taints.append(
                {"key": key} | ({"value": value} if value else {}) | {"effect": effect}
            )
    for name in (*_OF_CLUSTER, "node-labels", "node-taints"):
        kubernetes.pop(name, None)
    most = kubernetes.pop("max-pods", None)
    if isinstance(most, int):
        found.kubelet["maxPods"] = most
    settings["kubernetes"] = kubernetes
    left = {name: value for name, value in settings.items() if value}
    rest = {**document, "settings": left} if left else {}
    found.kept = tomli_w.dumps(rest) if rest else ""
    return found


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
