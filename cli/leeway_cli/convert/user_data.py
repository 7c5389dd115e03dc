"""Reads the user data of a launch template: what belongs into a pool, and what stays.

User data of a group has the cluster, the labels and the taints of its nodes. Leeway writes these
itself, so they move to the NodePool, and the kubelet's settings to the EC2NodeClass.
"""

import re
import tomllib
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import tomli_w
from leeway.bootstrap.amazon_linux import NODE_CONFIG_TYPE, archive, node_configs, users_parts
from leeway.bootstrap.node import UserDataError
from leeway.manifests.documents import as_yaml
from leeway.printable import printable
from leeway.selection.offers.allocatable import AmiFamily

type Document = dict[str, Any]


@dataclass(slots=True)
class Read:
    """What user data says. `kept` is the user data without it; `problem` says why it could not be
    read, empty if it could. `unread` has the entries of flags that could not be read."""

    labels: dict[str, str] = field(default_factory=dict)
    taints: list[Document] = field(default_factory=list)
    kubelet: Document = field(default_factory=dict)
    kept: str = ""
    problem: str = ""
    unread: list[str] = field(default_factory=list)

    @property
    def advice(self) -> str:
        """What to do about the entries that could not be read; empty if there are none."""
        if not self.unread:
            return ""
        return (
            f"Leeway cannot read {printable(', '.join(self.unread))}: write labels and taints into "
            "the NodePool, and settings of the kubelet as spec.kubelet of the EC2NodeClass."
        )


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
    return Read(problem="it is not text") if text is None else read_text(text, family)


def read_text(text: str, family: AmiFamily) -> Read:
    """Read user data."""
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
                _move_flags(_flags_of_script(text), found)
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
    stay = _move_flags(flags, found)
    rest = {k: v for k, v in kubelet.items() if k not in {"config", "flags"}}
    spec["kubelet"] = rest | ({"flags": stay} if stay else {})
    left = {name: value for name, value in spec.items() if value}
    return {**config, "spec": left} if left else None


_MOVED = ("--node-labels", "--register-with-taints", "--max-pods")
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_ARGUMENT = re.compile(r"-*[A-Za-z_][\w-]*=(?=--)", re.ASCII)
_ENTRIES = {
    "--node-labels": re.compile(r"[\w./-]+=[\w.-]*", re.ASCII),
    "--register-with-taints": re.compile(
        r"[\w./-]+(=[\w.-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)", re.ASCII
    ),
    "--max-pods": re.compile(r"\d{1,6}", re.ASCII),
}


def _flags_of_script(text: str) -> list[str]:
    """The flags in the arguments of AL2's bootstrap script, such as `--kubelet-extra-args`."""
    found = []
    for line in text.replace("\\\n", " ").split("\n"):
        if any(name in line for name in _MOVED) and not line.lstrip().startswith("#"):
            found += [_ARGUMENT.sub("", _unquoted(word)) for word in _words(line)]
    return found


def _words(text: str) -> list[str]:
    """Split text at the spaces outside quotes, which stay. Text whose quotes do not match is one
    word."""
    return [text] if _WORD.sub("", text).strip() else _WORD.findall(text)


def _unquoted(word: str) -> str:
    return _QUOTED.sub(lambda found: found[1] or found[2] or "", word)


def _move_flags(flags: Iterable[str], found: Read) -> list[str]:
    """Move the labels, the taints and the number of pods out of the kubelet's flags. Returns the
    flags that stay: a flag with an entry that cannot be read does.

    A flag may have its value in the next one, and several flags may be in one text: the unit of the
    kubelet splits them at spaces and reads their quotes.
    """
    stay = []
    words = iter([word for flag in flags for word in _words(flag)])
    for word in words:
        name, equals, value = word.partition("=")
        if name in _MOVED:
            text = _unquoted(value if equals else next(words, ""))
            unread = _move(name, text, found)
            if unread:
                stay.append(f"{name}={text}")
                found.unread += [f"{name}={one}" for one in unread]
        else:
            stay.append(word)
            if any(one in word for one in _MOVED):
                found.unread.append(word)
    return stay


def _move(name: str, text: str, found: Read) -> list[str]:
    """Move the entries of a flag. Returns those that cannot be read, as a shell would replace them,
    or the kubelet refuses them."""
    unread = []
    for one in filter(None, text.split(",")):
        if not _ENTRIES[name].fullmatch(one):
            unread.append(one)
        elif name == "--node-labels":
            key, _, value = one.partition("=")
            found.labels[key] = value
        elif name == "--register-with-taints":
            if (taint := taint_of(one)) not in found.taints:
                found.taints.append(taint)
        else:
            found.kubelet["maxPods"] = int(one)
    return unread


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
