"""The leftovers of terminated instances in memory: nodes by name, and their attached volumes.

tests/kubernetes/test_cluster_leftovers.py is its contract, for the Kubernetes adapter too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from leeway.ports.kubernetes import ClusterUnavailable
from leeway.ports.kubernetes_objects import Attachment, Node
from leeway.selection.labels import (
    CAPACITY_TYPE,
    INITIALIZED,
    LAUNCHED,
    ON_DEMAND,
    RESERVATION_LABELS,
    RESERVED,
)


@dataclass
class LeftoversInMemory:
    """The ClusterLeftovers Protocol.

    - `marked`: the names of the nodes that are marked as retiring.
    - `stuck`: volumes stay attached although the node has the out-of-service taint.
    - `down`: every read fails. `before_failure`: called first; then the read times out.
    - `tainted`: the nodes that got the out-of-service taint.
    - `listed`: the nodes whose attachments were listed.
    - `deleted`: the deleted nodes, with the number of volumes that were still attached.
    """

    by_name: dict[str, Node] = field(default_factory=dict)
    volumes: dict[str, list[Attachment]] = field(default_factory=dict)
    marked: list[str] = field(default_factory=list)
    stuck: bool = False
    down: bool = False
    before_failure: Callable[[], object] | None = None
    tainted: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    deleted: list[tuple[str, int]] = field(default_factory=list)

    def names(self) -> frozenset[str]:
        self._fail_if_down()
        return frozenset(self.by_name)

    def nodes(self) -> list[Node]:
        self._fail_if_down()
        return list(self.by_name.values())

    def uninitialized(self) -> list[Node]:
        self._fail_if_down()
        own = (one for one in self.by_name.values() if one.labels.get(LAUNCHED) == "true")
        return [one for one in own if one.labels.get(INITIALIZED) != "true"]

    def unready(self) -> list[Node]:
        self._fail_if_down()
        return [one for one in self.by_name.values() if not one.ready]

    def retiring(self) -> list[str]:
        self._fail_if_down()
        return self.marked

    def node(self, name: str) -> Node | None:
        self._fail_if_down()
        return self.by_name.get(name)

    def nodes_with_volumes(self) -> frozenset[str]:
        self._fail_if_down()
        return frozenset(name for name, volumes in self.volumes.items() if volumes)

    def attachments_on(self, node: str) -> list[Attachment]:
        self._fail_if_down()
        self.listed.append(node)
        return list(self.volumes.get(node, []))

    def mark_out_of_service(self, node: Node) -> bool:
        if not self._is_unchanged(node):
            return False
        self.tainted.append(node.name)
        self.write(node.name)
        if not self.stuck:
            self.volumes.pop(node.name, None)
        return True

    def label_on_demand(self, node: Node) -> bool:
        self._fail_if_down()
        current = self.by_name.get(node.name)
        if current is None or current.uid != node.uid:
            return False
        kept = {k: v for k, v in current.labels.items() if k not in RESERVATION_LABELS}
        if current.labels.get(CAPACITY_TYPE) == RESERVED:
            labels = {**kept, CAPACITY_TYPE: ON_DEMAND}
            self.by_name[node.name] = replace(current, labels=labels)
        return True

    def delete_node(self, node: Node) -> bool:
        if not self._is_unchanged(node):
            return False
        self.deleted.append((node.name, len(self.volumes.get(node.name, []))))
        del self.by_name[node.name]
        return True

    def write(self, name: str) -> None:
        """Change the version of a Node object, as a write of another client does."""
        current = self.by_name[name]
        self.by_name[name] = replace(current, version=f"{int(current.version or 0) + 1}")

    def _is_unchanged(self, node: Node) -> bool:
        current = self.by_name.get(node.name)
        return current is not None and (current.uid, current.version) == (node.uid, node.version)

    def _fail_if_down(self) -> None:
        if self.before_failure is not None:
            self.before_failure()
            raise ClusterUnavailable("read timed out")
        if self.down:
            raise ClusterUnavailable("connection refused")
