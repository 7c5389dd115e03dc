"""The Cluster Protocol over HTTP, with lightkube."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from lightkube import ApiError
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Event, PodEviction
from lightkube.resources.core_v1 import Node as NodeObject
from lightkube.resources.core_v1 import Pod as PodObject
from lightkube.types import PatchType

from leeway.cluster.connection import Connection, raise_for_status
from leeway.cluster.ports import (
    ClusterRefused,
    ClusterUnavailable,
    Marks,
    Node,
    NodeEvent,
)
from leeway.cluster.translate import to_node, to_pod
from leeway.drain.answers import Response
from leeway.drain.pods import Controller, Pod

TAINT = "leeway.sh/retiring"
GENERATION_ANNOTATION = "leeway.sh/generation"
DEADLINE_ANNOTATION = "leeway.sh/deadline"
CORDONED_ANNOTATION = "leeway.sh/cordoned"
"""Set where the cordon is Leeway's, so that undoing does not lift somebody else's."""

PAGE = 500
CONFLICTS = 5
"""How often a node is read again when somebody else wrote it in between."""


class LightkubeCluster:
    """One cluster's API server. Safe to use from several threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._living_daemonsets: set[tuple[str, str]] = set()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def node_of(self, instance: str, names: tuple[str, ...]) -> Node | None:
        """Find an instance's node by name, else by looking at every node's provider id."""
        for name in names:
            node = self.node(name)
            if node is not None and _runs_on(node, instance):
                return node
        return next((node for node in self._nodes() if _runs_on(node, instance)), None)

    def node(self, name: str) -> Node | None:
        """Read a node by name."""
        node = self._get_node(name)
        return to_node(node) if node is not None else None

    def _get_node(self, name: str) -> NodeObject | None:
        try:
            return self._connection.call(lambda c: c.typed.get(NodeObject, name))
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise ClusterUnavailable(str(error)) from error

    def _nodes(self) -> Iterator[Node]:
        listed = self._connection.call(lambda c: list(c.typed.list(NodeObject, chunk_size=PAGE)))
        return (to_node(node) for node in listed)

    def cordon(self, node: str, marks: Marks | None) -> None:
        """Cordon, taint and annotate in one patch that fails if the node changed meanwhile."""
        for _ in range(CONFLICTS):
            current = self._get_node(node)
            if current is None:
                raise ClusterRefused(f"node {node} is gone")
            patch = _cordoned(current, marks)
            if patch is None or self._patch_node(node, patch):
                return
        raise ClusterUnavailable(f"node {node} was written by others {CONFLICTS} times in a row")

    def _patch_node(self, name: str, patch: dict[str, Any]) -> bool:
        """Patch a node; False says that somebody else wrote it since it was read."""
        try:
            self._connection.call(
                lambda c: c.typed.patch(NodeObject, name, patch, patch_type=PatchType.MERGE)
            )
        except ApiError as error:
            if error.status.code == 404:
                raise ClusterRefused(f"node {name} is gone") from error
            return False
        return True

    def pods_on(self, node: str) -> list[Pod]:
        """List a node's pods page by page; look up whether their DaemonSets still exist."""
        listed = self._connection.call(
            lambda c: list(
                c.typed.list(
                    PodObject, namespace="*", fields={"spec.nodeName": node}, chunk_size=PAGE
                )
            )
        )
        return [self._with_daemonset(to_pod(pod)) for pod in listed]

    def _with_daemonset(self, pod: Pod) -> Pod:
        if pod.controller is None or pod.controller.kind != "DaemonSet" or pod.mirror:
            return pod
        exists = self._daemonset_exists(pod.namespace, pod.controller.name)
        return replace(pod, controller=Controller("DaemonSet", pod.controller.name, exists))

    def _daemonset_exists(self, namespace: str, name: str) -> bool:
        """Look a DaemonSet up. One that was seen is not looked up again: pods of a DaemonSet
        that is deleted meanwhile are deleted with it."""
        if (namespace, name) not in self._living_daemonsets:
            try:
                self._connection.call(lambda c: c.typed.get(DaemonSet, name, namespace=namespace))
            except ApiError as error:
                if error.status.code == 404:
                    return False
                raise ClusterUnavailable(str(error)) from error
            self._living_daemonsets.add((namespace, name))
        return True

    def evict(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        """Post a policy/v1 Eviction that holds for this very pod only."""
        eviction = PodEviction(
            metadata=ObjectMeta(name=pod.name, namespace=pod.namespace),
            deleteOptions=DeleteOptions(
                gracePeriodSeconds=grace,
                preconditions=Preconditions(uid=pod.uid),
                dryRun=["All"] if dry_run else None,
            ),
        )
        return self._connection.answer(
            lambda c: c.typed.create(eviction, pod.name, namespace=pod.namespace)
        )

    def delete(self, pod: Pod, grace: int | None) -> Response:
        """Delete this very pod: lightkube's own delete knows no UID precondition."""
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": pod.uid},
        }
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"

        return self._connection.answer(
            lambda c: raise_for_status(c.plain.request("DELETE", path, json=options))
        )

    def note(self, event: NodeEvent) -> None:
        """Write a core/v1 Event in `default`, where Events about nodes are kept."""
        now = datetime.now(UTC)
        body = Event(
            metadata=ObjectMeta(name=event.name, namespace="default"),
            involvedObject=ObjectReference(
                apiVersion="v1", kind="Node", name=event.node, uid=event.node_uid
            ),
            reason=event.reason,
            message=event.message[:1024],
            type="Warning" if event.warning else "Normal",
            source=EventSource(component="leeway"),
            reportingComponent="leeway",
            firstTimestamp=now,
            lastTimestamp=now,
            count=1,
        )
        try:
            self._connection.call(lambda c: c.typed.create(body, namespace="default"))
        except ApiError as error:
            if error.status.code != 409:
                raise ClusterUnavailable(str(error)) from error


def _runs_on(node: Node, instance: str) -> bool:
    return node.provider_id.rsplit("/", 1)[-1] == instance


def _taints(node: NodeObject) -> list[dict[str, Any]]:
    taints = (node.spec.taints if node.spec else None) or []
    return [taint.to_dict() for taint in taints]


def _cordoned(node: NodeObject, marks: Marks | None) -> dict[str, Any] | None:
    meta = node.metadata or ObjectMeta()
    annotations = dict(meta.annotations or {})
    already = bool(node.spec and node.spec.unschedulable)
    patch: dict[str, Any] = {"spec": {"unschedulable": True}}
    wanted: dict[str, str | None] = {}
    if marks is None:
        return None if already else patch
    taint = {"key": TAINT, "value": marks.kind, "effect": "NoSchedule"}
    others = [t for t in _taints(node) if t["key"] != TAINT]
    patch["spec"]["taints"] = [*others, taint]
    wanted[GENERATION_ANNOTATION] = str(marks.generation)
    wanted[DEADLINE_ANNOTATION] = marks.deadline
    if not already:
        wanted[CORDONED_ANNOTATION] = "true"
    unchanged = taint in _taints(node) and all(annotations.get(k) == v for k, v in wanted.items())
    if already and unchanged:
        return None
    patch["metadata"] = {
        "resourceVersion": meta.resourceVersion,
        "annotations": wanted,
    }
    return patch
