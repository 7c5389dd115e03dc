"""Which Node of the real cluster stands for which instance of the sandbox's EC2.

A Node's `spec.providerID` cannot be changed, and that of kind or k3d has no instance. So whoever
reads a Node through the sandbox finds the providerID of its instance, and the labels that EKS's
nodes have where this Node has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

type Object = dict[str, Any]


@dataclass
class Links:
    """The links between instances and Nodes. `free` are Nodes without an instance, in order."""

    free: list[str]
    _manifests: dict[str, Object] = field(default_factory=dict)
    _instances: dict[str, str] = field(default_factory=dict)

    def take(self, instance: str, manifest: Object) -> str | None:
        """Link an instance to the next free Node, and return that; None if none is free."""
        if not self.free:
            return None
        name = self.free.pop(0)
        self.link(instance, name, manifest)
        return name

    def link(self, instance: str, name: str, manifest: Object) -> None:
        """Link an instance to a Node; `manifest` is the Node as EC2 describes it."""
        self._instances[name] = instance
        self._manifests[name] = manifest

    def node_of(self, instance: str) -> str | None:
        """Return the Node of an instance; None if it has none."""
        return next((name for name, one in self._instances.items() if one == instance), None)

    def instance_of(self, name: str) -> str | None:
        """Return the instance of a Node; None if it has none."""
        return self._instances.get(name)

    def unlink(self, name: str) -> None:
        """Forget the instance of a Node that is gone."""
        self._instances.pop(name, None)
        self._manifests.pop(name, None)

    def shown(self, node: Object) -> Object:
        """Return a Node as the functions read it. An object of another kind, or of a Node without
        an instance, stays as it is."""
        metadata = node.get("metadata") or {}
        manifest = self._manifests.get(str(metadata.get("name")))
        if manifest is None or "spec" not in node:
            return node
        labels = {**manifest["metadata"].get("labels", {}), **(metadata.get("labels") or {})}
        spec = {**node["spec"], "providerID": manifest["spec"]["providerID"]}
        return {**node, "metadata": {**metadata, "labels": labels}, "spec": spec}
