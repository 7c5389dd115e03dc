"""Manifests as text, and what is read from them."""

from leeway.manifests.node_class import EC2NodeClass
from leeway.manifests.node_pool import pools_of
from leeway.manifests.reading import Reading, read_manifests
from leeway.selection.pods import NodePool


def read(*texts: str) -> Reading:
    """What valid manifests say."""
    found = read_manifests("---\n".join(texts), "pools.yaml")
    assert not found.problems, [str(problem) for problem in found.problems]
    return found


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
