"""Hashes of the settings that nodes are launched with, which each instance has in a tag.

By them it is known later which settings of the manifests have changed. They are hashes of the
settings as the manifests have them, not of the user data that is made of them: a release of Leeway
that renders the same settings in another way must not replace all nodes. Subnets, security groups
and the AMI are not among them: what they select is compared with the instance itself.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from leeway.launch.node_settings import NodeSettings

VERSION = "v1"
"""The version of this way to hash. If it changes, instances with hashes of another version have not
changed by them. Source: Karpenter's design "Drift Hash Versioning"."""

_LENGTH = 8


def settings_hashes(settings: NodeSettings) -> Mapping[str, str]:
    """Return a hash for each part of a pool's settings, by the name of the part."""
    return {name: _hash(value) for name, value in _parts(settings)}


def tag_value(hashes: Mapping[str, str]) -> str:
    """Return the value of the tag, in characters that EC2 allows in tags, at most 256 of them."""
    return " ".join((VERSION, *(f"{name}={value}" for name, value in sorted(hashes.items()))))


def read_tag_value(value: str) -> Mapping[str, str]:
    """Return the hashes in the value of a tag, which anybody may have written; empty if there are
    none of this version."""
    version, *parts = value.split(" ")
    if version != VERSION:
        return {}
    return {name: text for name, found, text in (one.partition("=") for one in parts) if found}


def _parts(settings: NodeSettings) -> Iterator[tuple[str, Any]]:
    """Fields with their defaults are left out, so that a new field changes no hash."""
    template, node_class = settings.template, settings.template.pool.node_class
    kubelet = template.kubelet.model_dump(mode="json", exclude_defaults=True)
    devices = [one.model_dump(mode="json", exclude_defaults=True) for one in settings.block_devices]
    tags: dict[str, str] = {}
    for setting in settings.tags:
        tags |= setting.value
    yield "block-devices", sorted(map(_text, devices))
    yield "kubelet", [kubelet, node_class.prefix_delegation]
    yield "metadata-options", settings.metadata.model_dump(mode="json", exclude_defaults=True)
    yield "monitoring", settings.detailed_monitoring
    yield "public-address", settings.public_address
    yield "role", [one and one.value for one in (settings.role, settings.profile)]
    yield "tags", tags
    yield "user-data", [node_class.family, node_class.raid0, template.user_data]


def _hash(value: Any) -> str:
    return hashlib.sha256(_text(value).encode()).hexdigest()[:_LENGTH]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
