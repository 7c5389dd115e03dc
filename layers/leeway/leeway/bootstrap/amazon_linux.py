"""User data of Amazon Linux: a MIME archive with the user's own parts before Leeway's.

AL2's last part is a script that calls bootstrap.sh, AL2023's a NodeConfig for nodeadm. cloud-init
reads all parts, nodeadm only the parts of the outermost level: so the user's parts are moved into
Leeway's archive, with all of their headers.

bootstrap.sh reads each value after a space, never after `=`. nodeadm merges the NodeConfigs of an
archive in their order: a later value replaces an earlier one, the kubelet's configuration is merged
deeply, its flags are appended. Sources: amazon-eks-ami's `bootstrap.sh`; nodeadm's documentation of
NodeConfig `node.eks.aws/v1alpha1`, and its merging.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from email.message import Message
from email.parser import HeaderParser
from itertools import chain, count
from typing import Any

import yaml

from leeway.bootstrap.kubelet import (
    AL2_END_OF_LIFE,
    FLAGS,
    NODE_MAY_NOT_JOIN,
    TAINTS,
    config_of,
    flags_of,
    labels_flag,
    labels_left_out,
    setting_warnings,
)
from leeway.bootstrap.node import FIELD, Node, UserDataError, control_plane_sets, quoted, split
from leeway.manifests.documents import Documents, read_documents
from leeway.reasons import Reason
from leeway.selection.pods import Taint

SHELL = 'Content-Type: text/x-shellscript; charset="us-ascii"'
NODE_CONFIG = "Content-Type: application/node.eks.aws"

_HEADER = re.compile(r"[!-9;-~]+:[^\x00-\x08\x0a-\x1f]*|[ \t]+[^\s\x00-\x1f][^\x00-\x08\x0a-\x1f]*")
_WINDOWS_LINE_END = re.compile(r"\r+\n")
_LINE_END = re.compile(r"[\r\n]")
_BEGINS = re.compile(r"(MIME-Version|Content-Type):", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """One part: its header lines, and its content after the empty line."""

    header: str
    body: str

    @property
    def content_type(self) -> str:
        """The media type, such as text/x-shellscript."""
        return _message(self.header).get_content_type()


def with_unix_lines(text: str) -> str:
    """Return user data with `\\n` at each line's end: no shell reads `\\r\\n`."""
    return _WINDOWS_LINE_END.sub("\n", text.removeprefix("\ufeff")).rstrip("\r")


def parts_of(text: str) -> tuple[Part, ...] | None:
    """Split MIME into its parts; None if the text is not MIME. Its lines end with `\\n`.

    Raises:
        UserDataError: it begins like MIME, and is not valid.
    """
    header, _, body = text.lstrip().partition("\n\n")
    message = _message(header)
    is_header = _is_header(header)
    if not _BEGINS.match(header) and not (is_header and "Content-Type" in message):
        return None
    if not is_header:
        raise UserDataError(FIELD, "expected an empty line after the header of the MIME archive")
    if message.get_content_maintype() != "multipart":
        kept = (line for line in _unfolded(header) if not line.lower().startswith("mime-version:"))
        return (Part("\n".join(kept), body),)
    boundary = message.get_boundary()
    if not boundary:
        raise UserDataError(FIELD, "expected a boundary in the Content-Type of the MIME archive")
    return tuple(_part(number, one) for number, one in enumerate(_cut(body, boundary), 1))


def archive(parts: Iterable[Part]) -> str:
    """Join parts, with a boundary that no line of a part begins with."""
    given = tuple(parts)
    lines = {line for part in given for line in _LINE_END.split(part.body) if line.startswith("--")}
    candidates = chain(["//"], (f"leeway-{number}" for number in count(1)))
    boundary = next(
        one for one in candidates if not any(line.startswith(f"--{one}") for line in lines)
    )
    text = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{boundary}"\n\n'
    for part in given:
        header = f"{part.header}\n" if part.header else ""
        text += f"--{boundary}\n{header}\n{part.body}\n"
    return f"{text}--{boundary}--\n"


def _cut(body: str, boundary: str) -> Iterator[str]:
    """The text of each part, without the text before the first part and after the last one. The
    line end before a boundary belongs to the boundary.

    An archive may end with `--boundary` instead of `--boundary--`: Go's mime/multipart, which
    Karpenter and nodeadm read with, finds no further part after it.
    """
    found: list[str] | None = None
    for line in body.split("\n"):
        end = line.rstrip(" \t")
        if end in {f"--{boundary}", f"--{boundary}--"}:
            if found is not None:
                yield "\n".join(found)
            found = []
            if end.endswith(f"{boundary}--"):
                return
        elif found is not None:
            found.append(line)
    if found is None:
        raise UserDataError(FIELD, f"expected the MIME boundary --{boundary} on a line")
    if any(found):
        yield "\n".join(found)


def _part(number: int, text: str) -> Part:
    if text.startswith("\n"):
        return Part("", text.removeprefix("\n"))
    header, empty_line, body = text.partition("\n\n")
    if not empty_line or not _is_header(header):
        raise UserDataError(
            FIELD, f"expected a header and an empty line in part {number} of the MIME archive"
        )
    return Part(header, body)


def _is_header(text: str) -> bool:
    lines = text.split("\n")
    return all(map(_HEADER.fullmatch, lines)) and not lines[0].startswith((" ", "\t"))


def _message(header: str) -> Message:
    return HeaderParser().parsestr(f"{header}\n\n")


def _unfolded(header: str) -> list[str]:
    return re.sub(r"\n[ \t]+", " ", header).split("\n")


# Content types of text that is not a script, by its first line.
_BY_FIRST_LINE = {
    "#cloud-config": "Content-Type: text/cloud-config",
    "#cloud-boothook": "Content-Type: text/cloud-boothook",
}
_NODE_CONFIG = re.compile(r"""^apiVersion:[ \t]*["']?node\.eks\.aws/""", re.MULTILINE)
NODE_CONFIG_TYPE = "application/node.eks.aws"


def users_parts(user_data: str) -> tuple[Part, ...]:
    """Return the parts of the user's own data: MIME has several, a NodeConfig is one, and any
    other text is a script.

    Raises:
        UserDataError: it is MIME or a NodeConfig that cannot be read.
    """
    text = with_unix_lines(user_data)
    if not text.strip():
        return ()
    parts = parts_of(text)
    if parts is not None:
        return parts
    if _NODE_CONFIG.search(text) and not text.startswith("#!"):
        _checked(read_documents(text, FIELD))
        return (Part(NODE_CONFIG, text),)
    return (Part(_BY_FIRST_LINE.get(text.split("\n", 1)[0].strip(), SHELL), text),)


def node_configs(parts: tuple[Part, ...]) -> tuple[dict[str, object], ...]:
    """Return the NodeConfigs among parts, in their order. nodeadm also reads a part in base64; such
    a part is not among them.

    Raises:
        UserDataError: one is not valid YAML.
    """
    found = []
    for part in parts:
        if part.content_type == NODE_CONFIG_TYPE:
            for value in _checked(read_documents(part.body, FIELD)).values:
                plain = value.plain()
                if isinstance(plain, dict):
                    found.append(plain)
    return tuple(found)


def script_warnings(parts: tuple[Part, ...]) -> tuple[Reason, ...]:
    """Warn of scripts without an interpreter."""
    scripts = [part for part in parts if part.content_type == "text/x-shellscript"]
    # cloud-init skips empty lines before the first one.
    if all(part.body.lstrip().startswith("#!") or not part.body.strip() for part in scripts):
        return ()
    said = "A script of userData does not begin with an interpreter, such as #!/bin/bash"
    return (NODE_MAY_NOT_JOIN(why=f"{said}: cloud-init does not run it"),)


def _checked(documents: Documents) -> Documents:
    for problem in documents.problems:
        line = f" (line {problem.line})" if problem.line else ""
        raise UserDataError(FIELD, f"expected a NodeConfig in YAML: it {problem.message}{line}")
    return documents


def al2(node: Node) -> tuple[str, tuple[Reason, ...]]:
    """Render the user data.

    Raises:
        UserDataError: the user's own data cannot be read.
    """
    parts = users_parts(node.user_data)
    warnings = [AL2_END_OF_LIFE(), *script_warnings(parts)]
    if any(part.content_type == NODE_CONFIG_TYPE for part in parts):
        warnings.append(
            NODE_MAY_NOT_JOIN(
                why="AL2 does not read the NodeConfig of userData: use AL2023, or write a script"
            )
        )
    lines = " \\\n  ".join(_arguments(node))
    script = f"#!/bin/bash\nset -o errexit\n/etc/eks/bootstrap.sh {lines}\n"
    return archive((*parts, Part(SHELL, script))), tuple(warnings)


def _arguments(node: Node) -> Iterator[str]:
    cluster, config = node.cluster, config_of(node)
    yield quoted(cluster.name)
    yield f"--apiserver-endpoint {quoted(cluster.endpoint)}"
    yield f"--b64-cluster-ca {quoted(cluster.certificate_authority)}"
    if cluster.ipv6:
        yield "--ip-family ipv6"
        yield f"--service-ipv6-cidr {quoted(cluster.service_cidr)}"
    yield f"--dns-cluster-ip {quoted(','.join(config.pop('clusterDNS')))}"
    yield "--container-runtime containerd"
    if "maxPods" in config:
        yield "--use-max-pods false"
    flags = [*flags_of(node, config).values(), *labels_flag(split(node.labels).kubelet)]
    if flags:
        yield f"--kubelet-extra-args {quoted(*flags)}"
    if node.local_disks:
        yield "--local-disks raid0"


_SETTING = {flag: name for name, flag in FLAGS.items()}

# A label in the value of `--node-labels`. The kubelet takes an empty one between two commas.
_LABEL = re.compile(r"""([\w./-]+/[\w.-]+)=[^,\s"']*""", re.ASCII)


def al2023(node: Node) -> tuple[str, tuple[Reason, ...]]:
    """Render the user data.

    Raises:
        UserDataError: the user's own data cannot be read.
    """
    parts, left_out = _without_labels(users_parts(node.user_data))
    config, flags = _kubelet_of(node_configs(parts))
    ours = Part(NODE_CONFIG, _yaml(_node_config(node, config, flags)))
    of_user = {**config, **dict.fromkeys(flags)}
    warnings = [*script_warnings(parts), *setting_warnings(node, of_user)]
    if left_out:
        warnings.append(labels_left_out(left_out))
    return archive((*parts, ours)), tuple(warnings)


def _without_labels(parts: Iterable[Part]) -> tuple[tuple[Part, ...], list[str]]:
    """The user's parts without the labels of `--node-labels` that are Leeway's to put on, and the
    keys of these labels. Only a NodeConfig that has one of them is written anew."""
    kept, found = [], set[str]()
    for part in parts:
        configs = node_configs((part,)) if part.content_type == NODE_CONFIG_TYPE else ()
        keys = {key for config in configs for key in _cut_labels(config)}
        found |= keys
        body = "---\n".join(map(_yaml, configs)) if keys else part.body
        kept.append(replace(part, body=body))
    return tuple(kept), sorted(found)


def _cut_labels(config: Mapping[str, Any]) -> set[str]:
    """Cut the labels out of the flags of a NodeConfig; return their keys."""
    flags = _mapping(_mapping(config, "spec"), "kubelet").get("flags")
    cut = set[str]()

    def without(found: re.Match[str]) -> str:
        if not control_plane_sets(found[1]):
            return found[0]
        cut.add(found[1])
        return ""

    if not isinstance(flags, list):
        return cut
    of_labels = False
    for at, flag in enumerate(flags):
        if isinstance(flag, str) and (of_labels or "--node-labels" in flag):
            flags[at] = _LABEL.sub(without, flag)
        of_labels = flag == "--node-labels"
    return cut


def _kubelet_of(configs: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], frozenset[str]]:
    """The kubelet's settings of the user's NodeConfigs: those of its configuration file, and the
    names of those that are set by flags."""
    merged: dict[str, Any] = {}
    flags: set[str] = set()
    for one in configs:
        kubelet = _mapping(_mapping(one, "spec"), "kubelet")
        merged = _merged(merged, _mapping(kubelet, "config"))
        given = kubelet.get("flags")
        names = (str(flag).partition("=")[0] for flag in (given if isinstance(given, list) else ()))
        flags |= {_SETTING[name] for name in names if name in _SETTING}
    return merged, frozenset(flags)


def _node_config(node: Node, of_user: Mapping[str, Any], by_flag: frozenset[str]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "cluster": {
            "name": node.cluster.name,
            "apiServerEndpoint": node.cluster.endpoint,
            "certificateAuthority": node.cluster.certificate_authority,
            "cidr": node.cluster.service_cidr,
        },
        "kubelet": _kubelet(node, of_user, by_flag),
    }
    if node.local_disks:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}


def _kubelet(node: Node, of_user: Mapping[str, Any], by_flag: frozenset[str]) -> dict[str, Any]:
    config = config_of(node, {**of_user, **dict.fromkeys(by_flag)})
    # A flag of the user's wins over any configuration file: Leeway's value becomes a flag too.
    repeated = flags_of(node, config)
    flags = [
        *labels_flag(split(node.labels).kubelet),
        *(repeated[name] for name in sorted(by_flag & repeated.keys())),
    ]
    if node.taints:
        config[TAINTS] = [_taint(taint) for taint in node.taints]
    elif TAINTS in of_user or TAINTS in by_flag:
        # nodeadm does not let an empty list replace the user's taints.
        flags.append(f"{FLAGS[TAINTS]}=")
    passed = node.kubelet.model_extra or {}
    config |= {name: value for name, value in passed.items() if value is not None}
    return {"config": config, "flags": flags} if flags else {"config": config}


def _taint(taint: Taint) -> dict[str, str]:
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": taint.effect}


def _mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Merge deeply; of two values that are no mappings, the second one stays."""
    merged = dict(first)
    for name, value in second.items():
        other = merged.get(name)
        if isinstance(other, Mapping) and isinstance(value, Mapping):
            merged[name] = _merged(other, value)
        else:
            merged[name] = value
    return merged


class _Text(str):
    """A value that YAML gets between quotes: go-yaml and PyYAML disagree on which plain scalars are
    numbers (`1e3`) or booleans."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes block style, and every value that is text between double quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(
    _Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), '"')
)


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.dump(
        _marked(document), Dumper=_Dumper, sort_keys=False, width=1_000_000, allow_unicode=False
    )


def _marked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _marked(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked(member) for member in value]
    return _Text(value) if isinstance(value, str) else value
