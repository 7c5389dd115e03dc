"""Manifests as text, and what is read from them."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from leeway.manifests.base import Manifest
from leeway.manifests.node_class import EC2NodeClass
from leeway.manifests.node_pool import pools_of
from leeway.manifests.reading import Reading, Written, read_manifests
from leeway.selection.pods import NodePool


def read(*texts: str) -> Reading:
    """What valid manifests say."""
    found = read_manifests("---\n".join(texts), "pools.yaml")
    assert not found.problems, [str(problem) for problem in found.problems]
    return found


def written(*documents: Mapping[str, Any]) -> tuple[Written, ...]:
    """The documents as Leeway reads and stores them."""
    return _read("\n---\n".join(map(json.dumps, documents)))


@cache
def _read(text: str) -> tuple[Written, ...]:
    """Read a text once: many tests have the same documents."""
    reading = read_manifests(text, "test.yaml")
    assert not reading.problems, reading.problems
    return reading.written


def manifests(*documents: Mapping[str, Any]) -> list[Manifest]:
    """The manifests as Leeway reads them."""
    return [one.manifest for one in written(*documents)]


def problems(text: str) -> list[str]:
    return [str(problem) for problem in read_manifests(text, "pools.yaml").problems]


def pool(*texts: str) -> NodePool:
    """The one pool of some manifests."""
    (found,) = pools_of(one.manifest for one in read(*texts).written)
    return found


def node_class(text: str) -> EC2NodeClass:
    """The one manifest of a text, a node class."""
    (written,) = read(text).written
    assert isinstance(written.manifest, EC2NodeClass)
    return written.manifest
