"""User data of AL2023: a MIME archive in which Leeway's NodeConfig comes last.

nodeadm merges the NodeConfigs of an archive in their order: a later value replaces an earlier one,
the kubelet's configuration is merged deeply, its flags are appended. Sources: nodeadm's
documentation of NodeConfig `node.eks.aws/v1alpha1`, and its merging.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import yaml

from leeway.bootstrap.kubelet import (
    FLAGS,
    TAINTS,
    config_of,
    flags_of,
    labels_flag,
    setting_warnings,
)
from leeway.bootstrap.labels import control_plane_sets, split
from leeway.bootstrap.mime import NODE_CONFIG, Part, archive
from leeway.bootstrap.node import Node
from leeway.bootstrap.parts import NODE_CONFIG_TYPE, node_configs, script_warnings, users_parts
from leeway.bootstrap.reasons import LABELS_LEFT_OUT
from leeway.printable import printable
from leeway.reasons import Reason
from leeway.selection.pools import Taint

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
        warnings.append(LABELS_LEFT_OUT(labels=printable(", ".join(left_out))))
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
