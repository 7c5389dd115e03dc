"""Reads user data as far as an AMI family makes a Node of it.

That is the cluster, the labels and taints, and the settings that decide what the node has for pods.
The text that Leeway writes is tested in tests/bootstrap; here an instance that would never join is
found. The syntax of labels, taints and flags is not checked. Sources: `nodeadm/` and
`templates/al2/runtime/bootstrap.sh` of awslabs/amazon-eks-ami,
bottlerocket-os/bottlerocket-settings-sdk, and `cmd/kubelet/app/options/options.go` of Kubernetes.
"""

import base64
import binascii
import email
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

type Family = Literal["AL2", "AL2023", "Bottlerocket", "Windows"]
type Settings = Mapping[str, Any]

_BOOTSTRAP = "/etc/eks/bootstrap.sh"
_MAX_PODS = 110  # the kubelet's own, which bootstrap.sh uses with `--use-max-pods false`
_POWERSHELL = re.compile(r"<powershell>(.*?)</powershell>", re.DOTALL | re.IGNORECASE)
_START = re.compile(
    r"""^\s*&?\s*["']?(?:\S*Start-EKSBootstrap\.ps1|\$EKSBootstrapScriptFile)["']?\s+(.*)$""",
    re.IGNORECASE | re.MULTILINE,
)
_POWERSHELL_WORD = re.compile(r"'((?:[^']|'')*)'|\"([^\"]*)\"|(\S+)")
_OWN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OWN_LABELS = {
    f"{domain}/{name}"
    for domain, names in {
        "beta.kubernetes.io": ("arch", "instance-type", "os"),
        "failure-domain.beta.kubernetes.io": ("region", "zone"),
        "kubernetes.io": ("arch", "hostname", "os"),
        "topology.kubernetes.io": ("region", "zone"),
    }.items()
    for name in names
}


class BootError(Exception):
    """The instance does not become a node. The message is one line: what is wrong, and where."""


@dataclass(frozen=True)
class NodeConfiguration:
    """The cluster that a node joins, and the settings that its Node shows.

    `endpoint` and `authority` (decoded) are both None if the AMI looks them up with
    DescribeCluster. `config` has fields of KubeletConfiguration, only those that the user data
    sets; `flags` names those that a flag sets. The node's name is the instance's private DNS name,
    or its id if `is_named_by_instance`.
    """

    family: Family
    cluster: str
    endpoint: str | None
    authority: bytes | None
    config: Settings
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    flags: frozenset[str]
    is_named_by_instance: bool = False


def read_user_data(family: Family, data: bytes) -> NodeConfiguration:
    """The node that user data (decoded from EC2's base64) describes on an AMI of this family.

    Raises BootError if an instance with it does not become a node.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BootError(f"the user data is not UTF-8 text: {error}") from error
    match family:
        case "AL2023":
            return _al2023(text)
        case "Bottlerocket":
            return _bottlerocket(text)
        case "AL2":
            return _al2(text)
        case "Windows":
            return _windows(text)


def _al2023(text: str) -> NodeConfiguration:
    spec: dict[str, Any] = {}
    for part in _parts(text, "application/node.eks.aws"):
        spec = _merged(spec, _node_config(part))
    if not spec:
        raise BootError("nodeadm exits: the user data has no NodeConfig")
    cluster, kubelet = spec.get("cluster") or {}, spec.get("kubelet") or {}
    for name, words in {
        "name": "Name",
        "apiServerEndpoint": "Apiserver endpoint",
        "certificateAuthority": "Certificate authority",
        "cidr": "CIDR",
    }.items():
        if not cluster.get(name):
            raise BootError(f"nodeadm exits: {words} is missing in cluster configuration")
    return _node(
        "AL2023",
        (cluster["name"], cluster["apiServerEndpoint"], cluster["certificateAuthority"]),
        kubelet.get("config") or {},
        _words(" ".join(kubelet.get("flags") or ())),
        is_named_by_instance=bool((spec.get("featureGates") or {}).get("InstanceIdNodeName")),
    )


def _node_config(text: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise BootError(f"nodeadm exits: the NodeConfig is not YAML: {problem}") from error
    if not isinstance(document, dict):
        return {}
    kind, version = document.get("kind"), document.get("apiVersion")
    if (kind, version) != ("NodeConfig", "node.eks.aws/v1alpha1"):
        raise BootError(f'nodeadm exits: no kind "{kind}" is registered for version "{version}"')
    return document.get("spec") or {}


def _merged(first: Settings, second: Settings) -> dict[str, Any]:
    """Two NodeConfigs as one: the second wins where it sets a value, and flags are appended."""
    result = dict(first)
    for key, value in second.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = _merged(old, value)
        elif key == "flags" and isinstance(old, list):
            result[key] = [*old, *(value or ())]
        elif value is not None and value != "":
            result[key] = value
    return result


def _parts(text: str, content_type: str) -> list[str]:
    """The parts of this type of a MIME document; the text itself if it is none."""
    message = email.message_from_string(text)
    if message.get_content_maintype() != "multipart":
        return [text]
    if message.defects:
        raise BootError(f"the MIME document is malformed: {type(message.defects[0]).__name__}")
    found = (one for one in message.walk() if one.get_content_type() == content_type)
    return [str(one.get_payload()) for one in found if one.get("Content-Type")]


def _bottlerocket(text: str) -> NodeConfiguration:
    try:
        document = tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise BootError(f"early-boot-config exits: the user data is not TOML: {error}") from error
    settings = document.get("settings", {}).get("kubernetes") or {}
    required = ("cluster-name", "api-server", "cluster-certificate")
    for name in required:
        if not settings.get(name):
            raise BootError(f"the kubelet does not start: settings.kubernetes.{name} is not set")
    names = {
        "maxPods": "max-pods",
        "kubeReserved": "kube-reserved",
        "systemReserved": "system-reserved",
        "evictionHard": "eviction-hard",
    }
    config = {name: settings[key] for name, key in names.items() if key in settings}
    config["registerWithTaints"] = [
        {"key": key, "value": value, "effect": effect}
        for key, texts in (settings.get("node-taints") or {}).items()
        for value, _, effect in (one.partition(":") for one in texts)
    ]
    labels = (settings.get("node-labels") or {}).items()
    flags = ["--node-labels=" + ",".join(f"{key}={value}" for key, value in labels)]
    cluster, endpoint, authority = (settings[name] for name in required)
    return _node("Bottlerocket", (cluster, endpoint, authority), config, flags if labels else [])


def _al2(text: str) -> NodeConfiguration:
    for script in _parts(text, "text/x-shellscript"):
        for line in script.replace("\r\n", "\n").replace("\\\n", "").split("\n"):
            if line.startswith(_BOOTSTRAP):
                return _bootstrap_sh(_words(line)[1:])
    raise BootError(f"no command of the user data runs {_BOOTSTRAP}")


def _bootstrap_sh(arguments: list[str]) -> NodeConfiguration:
    """An option takes its value from the next word; the first other word is the cluster."""
    options, positional = {}, []
    while arguments:
        word = arguments.pop(0)
        if not word.startswith("--"):
            positional.append(word)
        elif arguments:
            options[word] = arguments.pop(0)
        else:
            raise BootError(f"bootstrap.sh exits: {word} has no value")
    if not positional:
        raise BootError("bootstrap.sh exits: cluster name is not defined")
    config = {} if options.get("--use-max-pods", "true") == "true" else {"maxPods": _MAX_PODS}
    found = (options.get("--apiserver-endpoint"), options.get("--b64-cluster-ca"))
    flags = _words(options.get("--kubelet-extra-args", ""))
    return _node("AL2", (positional[0], *found), config, flags)


def _windows(text: str) -> NodeConfiguration:
    blocks = "\n".join(_POWERSHELL.findall(text)).replace("\r\n", "\n").replace("`\n", " ")
    started = _START.search(blocks)
    if started is None:
        raise BootError("no command of the user data runs Start-EKSBootstrap.ps1")
    words = [
        literal.replace("''", "'") or quoted or bare
        for literal, quoted, bare in _POWERSHELL_WORD.findall(started[1])
    ]
    given = {name.lower(): value for name, value in zip(words[::2], words[1::2], strict=False)}
    if not (name := given.get("-eksclustername")):
        raise BootError("Start-EKSBootstrap.ps1 exits: EKSClusterName is missing")
    found = (given.get("-apiserverendpoint"), given.get("-base64clusterca"))
    return _node("Windows", (name, *found), {}, _words(given.get("-kubeletextraargs", "")))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BootError(f"the arguments {text[:80]!r} cannot be split: {error}") from error


def _node(
    family: Family,
    cluster: tuple[str, str | None, str | None],
    config: Settings,
    arguments: list[str],
    *,
    is_named_by_instance: bool = False,
) -> NodeConfiguration:
    """The node of a kubelet with this configuration and these flags, which win."""
    name, endpoint, authority = cluster
    flags = dict(_flags(arguments))
    labels = _pairs(flags.get("node-labels", ""), "=")
    _check_labels(labels)
    taints = config.get("registerWithTaints") or ()
    if "register-with-taints" in flags:
        taints = [_taint(one) for one in flags["register-with-taints"].split(",") if one]
    by_flag = _config_of(flags)
    config = {**config, **by_flag}
    for key in ("maxPods", "podsPerCore"):
        if type(config.get(key, 0)) is not int or config.get(key, 0) < 0:
            raise BootError(f"the kubelet exits: {key}: expected a whole number")
    is_given = bool(endpoint and authority)
    try:
        decoded = base64.b64decode(authority or "", validate=True)
    except binascii.Error as error:
        raise BootError("the certificate authority is not base64") from error
    return NodeConfiguration(
        family=family,
        cluster=name,
        endpoint=endpoint if is_given else None,
        authority=decoded if is_given else None,
        config=config,
        labels=labels,
        taints=tuple(taints),
        flags=frozenset(by_flag),
        is_named_by_instance=is_named_by_instance,
    )


def _flags(arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Flags by name; labels of a repeated flag are added, of others the last one wins."""
    labels = []
    for word in arguments:
        name, _, value = word.partition("=")
        if name == "--node-labels":
            labels.append(value)
        else:
            yield name.removeprefix("--"), value
    yield "node-labels", ",".join(labels)


def _config_of(flags: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the kubelet's configuration that flags replace."""
    found: dict[str, Any] = {}
    for name, field, sign in (
        ("kube-reserved", "kubeReserved", "="),
        ("system-reserved", "systemReserved", "="),
        ("eviction-hard", "evictionHard", "<"),
    ):
        if name in flags:
            found[field] = _pairs(flags[name], sign)
    for name, field in (("max-pods", "maxPods"), ("pods-per-core", "podsPerCore")):
        if name in flags:
            found[field] = int(flags[name]) if flags[name].isdecimal() else flags[name]
    return found


def _pairs(text: str, sign: str) -> dict[str, str]:
    found = {}
    for pair in filter(None, text.split(",")):
        key, _, value = pair.partition(sign)
        found[key.strip()] = value.strip()
    return found


def _check_labels(labels: Mapping[str, str]) -> None:
    """Raise BootError for labels with which a kubelet does not start."""
    if foreign := sorted(key for key in labels if _is_reserved(key)):
        raise BootError(
            "the kubelet exits: unknown 'kubernetes.io' or 'k8s.io' labels specified with "
            f"--node-labels: {', '.join(foreign)}"
        )


def _is_reserved(key: str) -> bool:
    """Whether a label is in a domain of Kubernetes, and none that a kubelet may set itself."""
    domain = f".{key.rpartition('/')[0]}"
    ours = domain.endswith((".kubernetes.io", ".k8s.io"))
    allowed = domain.endswith(tuple(f".{one}" for one in _OWN_DOMAINS))
    return ours and not allowed and key not in _OWN_LABELS


def _taint(text: str) -> dict[str, str]:
    """A taint as --register-with-taints has it: KEY=VALUE:EFFECT or KEY:EFFECT."""
    head, _, effect = text.strip().rpartition(":")
    key, _, value = head.partition("=")
    return {"key": key, "value": value, "effect": effect}
