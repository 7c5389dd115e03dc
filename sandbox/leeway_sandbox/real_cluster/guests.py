"""What a sandbox leaves in a real cluster while it runs: access rules, and marks of its drains.

The objects of `rbac/` are created with a label. An object of the same name without that label is
somebody else's: another Leeway works on the cluster, and the sandbox does not start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import yaml

from leeway_sandbox.errors import SandboxError
from leeway_sandbox.real_cluster.observer import CORDONED, NODES
from leeway_sandbox.real_cluster.target import LABEL
from leeway_sandbox.real_cluster.upstream import MERGE_PATCH, Object, RefusedRequestError, Upstream

MARKS = "leeway.sh/"
_PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Namespace": "namespaces",
    "PriorityClass": "priorityclasses",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
_log = logging.getLogger(__name__)


class Guests:
    """The objects of the sandbox in a real cluster, and the Nodes as they were before."""

    def __init__(self, upstream: Upstream, rbac: Path, nodes: tuple[str, ...]) -> None:
        self._upstream = upstream
        self._rules = list(_documents(rbac))
        self._names = nodes
        self._before: dict[str, Object] = {}
        self._created: list[str] = []

    async def arrive(self) -> None:
        """Create the access rules, and remember the Nodes.

        Raises:
            SandboxError: the cluster has access rules of another Leeway.
        """
        for name in self._names:
            self._before[name] = await self._upstream.call("GET", f"{NODES}/{name}")
        for rule in self._rules:
            path = _path(rule)
            found = await self._upstream.find(f"{path}/{rule['metadata']['name']}")
            if found is not None:
                if LABEL not in (found["metadata"].get("labels") or {}):
                    what = f"{rule['kind']} {rule['metadata']['name']}"
                    raise SandboxError(
                        f"The cluster has a {what} that this sandbox did not create. Take Leeway's "
                        "access rules out of the cluster first, or use another test cluster."
                    )
                if rule["kind"] != "Namespace":  # one that goes cannot be created until it has gone
                    await self._upstream.call("DELETE", f"{path}/{rule['metadata']['name']}")
            if found is None or rule["kind"] != "Namespace":
                await self._upstream.call("POST", path, _labelled(rule))
            self._created.append(f"{path}/{rule['metadata']['name']}")

    async def leave(self) -> None:
        """Delete the access rules, and undo the marks of drains on Nodes that are still there."""
        for path in reversed(self._created):
            try:
                await self._upstream.call("DELETE", path)
            except (httpx.HTTPError, RefusedRequestError) as error:
                _log.warning("%s", error)
        self._created.clear()
        for name, before in self._before.items():
            try:
                found = await self._upstream.find(f"{NODES}/{name}")
                if found is not None and (change := undone(found, before)):
                    await self._upstream.call("PATCH", f"{NODES}/{name}", change, MERGE_PATCH)
            except (httpx.HTTPError, RefusedRequestError) as error:
                _log.warning("%s", error)


def _documents(rbac: Path) -> Iterator[Object]:
    for file in sorted(rbac.glob("*.yaml")) if rbac.is_dir() else [rbac]:
        try:
            documents = list(yaml.safe_load_all(file.read_text()))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            problem = " ".join(str(error).split())
            raise SandboxError(f"The access rules in {file} cannot be read: {problem}") from error
        yield from (one for one in documents if one is not None)


def _path(rule: Object) -> str:
    group = rule["apiVersion"]
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    namespace = rule["metadata"].get("namespace")
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{inside}/{_PLURALS[rule['kind']]}"


def _labelled(rule: Object) -> Object:
    metadata = rule["metadata"]
    labels = {**(metadata.get("labels") or {}), LABEL: "true"}
    return {**rule, "metadata": {**metadata, "labels": labels}}


def undone(node: Object, before: Object) -> Object:
    """Return the patch that removes Leeway's marks from a Node; empty if it has none."""
    change: Object = {}
    for field in ("labels", "annotations"):
        marks = {
            key: (before["metadata"].get(field) or {}).get(key)
            for key in node["metadata"].get(field) or {}
            if key.startswith(MARKS)
        }
        if marks:
            change.setdefault("metadata", {})[field] = marks
    spec, past = node["spec"], before["spec"]
    taints = [one for one in spec.get("taints") or () if _stays(one, past)]
    if taints != (spec.get("taints") or []):
        change.setdefault("spec", {})["taints"] = taints or None
    if spec.get("unschedulable") and not past.get("unschedulable"):
        change.setdefault("spec", {})["unschedulable"] = None
    return change


def _stays(taint: Object, before: Object) -> bool:
    ours = taint["key"].startswith(MARKS)
    if taint["key"] == CORDONED:
        ours = not before.get("unschedulable")
    return not ours
