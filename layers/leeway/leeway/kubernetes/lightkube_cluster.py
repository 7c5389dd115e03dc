"""The Cluster Protocol over HTTP, with lightkube."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import quote

import httpx2
from lightkube import ApiError
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Event, PersistentVolume
from lightkube.resources.core_v1 import Node as NodeObject
from lightkube.resources.core_v1 import Pod as PodObject
from lightkube.resources.storage_v1 import VolumeAttachment
from lightkube.types import PatchType

from leeway.clock import Clock, ClockOffset
from leeway.drain.decide_pod import DAEMONSET
from leeway.kubernetes.budgets import Budgets
from leeway.kubernetes.connection import Connection, raise_unless_object
from leeway.kubernetes.names import is_segment, is_subdomain
from leeway.kubernetes.node_marks import (
    EXCLUDED_LABEL,
    cordoned,
    excluded,
    out_of_service,
    released,
)
from leeway.kubernetes.pod_feed import WatchedPods
from leeway.kubernetes.translate import to_node, to_pod
from leeway.kubernetes.transport import within
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable, Marks, NodeEvent
from leeway.ports.kubernetes_objects import RETIRING, Attachment, Node, Pod, Response
from leeway.printable import printable

PAGE = 500
JUST_NOW = 1.0
"""Seconds for which a node that was read is taken for what it is now, where a patch
depends on it."""

FEW_SECONDS = 3.0
VOLUMES_SECONDS = 10.0
"""What requests may take together while a drain waits for them: little is answered to most, but the
list of volumes is long in a large cluster."""

EVICTION_SECONDS = 20.0
"""What an eviction may take. An API server holds one for ten seconds and more while others write
the same budget. Whoever disconnects meanwhile may have spent the budget's slot for nothing: the pod
stays, and the slot is not available for two minutes. Source: Kubernetes, EvictionsRetry."""

LIVES_FOR = 60.0
"""Seconds for which a DaemonSet that was seen is taken to exist: a node's pods are listed again and
again, and the function that lists them lives for hours."""

CONFLICTS = 5
"""How often a node is read again when somebody else wrote it in between."""


def _count_alone(count: Callable[[], int]) -> int:
    return count()


class LightkubeCluster:
    """One cluster's API server. Safe to use from several threads.

    The times of pods are given by `clock`, whatever the API server's own clock shows. `for_all`
    may know from somebody else what a count of nodes would find.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        page: int = PAGE,
        for_all: Callable[[Callable[[], int]], int] = _count_alone,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._for_all = for_all
        self._lead = ClockOffset()
        self._page = page
        self._just_read: tuple[float, NodeObject] | None = None
        self._living_daemonsets: dict[tuple[str, str], float] = {}
        self._lookup_failed: tuple[float, str] = (-math.inf, "")
        self._claims: dict[str, str] = {}
        self._budgets = Budgets(connection, lambda: clock.now() + self._lead.ahead)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def node_of(self, instance: str, names: tuple[str, ...]) -> Node | None:
        """Find an instance's node by name, else by looking at every node's provider id.

        Whoever may create nodes can copy a provider id, and an empty copy would count as drained.
        Of several nodes the one that is Ready is taken.

        Raises:
            ClusterUnavailable: several nodes name the instance, and not just one of them is Ready.
        """
        for name in names:
            node = self.node(name)
            if node is not None and node.runs_on(instance):
                return node
        found = [node for node in self._nodes() if node.runs_on(instance)]
        if len(found) > 1:
            said = ", ".join(sorted(node.name for node in found))
            found = [node for node in found if node.ready]
            if len(found) != 1:
                raise ClusterUnavailable(f"several nodes name the instance {instance}: {said}")
        return found[0] if found else None

    def node(self, name: str) -> Node | None:
        """Read a node by name."""
        with within(FEW_SECONDS):
            node = self._get_node(name)
        if node is None:
            return None
        self._just_read = (time.monotonic(), node)
        return to_node(node)

    def _get_node(self, name: str) -> NodeObject | None:
        if not is_subdomain(name):
            return None
        try:
            found = self._connection.call(lambda c: c.typed.get(NodeObject, name))
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise ClusterUnavailable(str(error)) from error
        if found.metadata is None or found.metadata.name != name:
            raise ClusterUnavailable(f"node {name} was asked for, and something else came")
        return found

    def _known_node(self, name: str) -> NodeObject | None:
        """Return a node as somebody here read it a moment ago, once: whoever looked for a node to
        cordon it need not read it twice. A patch of what has changed since is refused."""
        last, self._just_read = self._just_read, None
        if last is not None:
            read_at, node = last
            named = node.metadata is not None and node.metadata.name == name
            if named and time.monotonic() - read_at < JUST_NOW:
                return node
        return self._get_node(name)

    def _nodes(self) -> Iterator[Node]:
        listed = self._connection.call(lambda c: list(c.typed.list(NodeObject, chunk_size=PAGE)))
        return (to_node(node) for node in listed)

    def cordon(self, node: str, marks: Marks | None, dry_run: bool = False, uid: str = "") -> None:
        """Cordon, taint, label and annotate in one patch that fails if the node changed. With a
        UID, another Node of the name is left alone."""
        if not self._change_node(node, lambda found: cordoned(found, marks), uid, dry_run=dry_run):
            raise ClusterRefused(f"node {node} is gone")

    def release(self, node: str, attempt: int | None = None) -> bool:
        """Take off what Leeway's own annotations say that it put there."""
        return self._change_node(node, lambda found: released(found, attempt), if_any=True)

    def exclude_from_load_balancers(self, node: str) -> bool:
        """Label the node, unless it and all that may come before it would be too many.

        The node has been marked as retiring before. Of any nodes that do this at once, the one that
        was marked last sees all others here, so that together they never exceed the half.
        """
        with within(FEW_SECONDS):
            ready = self._for_all(self.ready_nodes)
            others = self._ready_others(node)
            if 2 * (len(list(islice(others, ready // 2 + 1))) + 1) > ready:
                current = self._get_node(node)
                return current is not None and excluded(current) is None
            return self._change_node(node, excluded)

    def _ready_others(self, node: str) -> Iterator[str]:
        """List the Ready nodes beside this one that are left out or may come before it: those that
        are retiring, and those that somebody else left out."""
        for selector in (RETIRING, f"{EXCLUDED_LABEL},!{RETIRING}"):
            for name, status in self._rows(selector):
                if name != node and _says_ready(status):
                    yield name

    def label(self, node: str, labels: Mapping[str, str]) -> None:
        """Put labels on a node by a patch that names these only."""
        if not self._patch_node(node, {"metadata": {"labels": dict(labels)}}):
            raise ClusterRefused(f"node {node} is gone")

    def mark_out_of_service(self, node: Node) -> bool:
        """Taint the node as non-gracefully shut down."""
        return self._change_node(node.name, out_of_service, node.uid, version=node.version)

    def delete_node(self, node: Node) -> bool:
        """Delete the Node object by its name, UID and resource version."""
        options = _delete_options(node.uid, None, dry_run=False)
        options["preconditions"]["resourceVersion"] = node.version
        path = f"/api/v1/nodes/{node.name}"
        try:
            self._connection.call(
                lambda c: raise_unless_object(c.plain.request("DELETE", path, json=options))
            )
        except ApiError:
            return False
        return True

    def _change_node(
        self,
        name: str,
        change: Callable[[NodeObject], dict[str, Any] | None],
        uid: str = "",
        if_any: bool = False,
        dry_run: bool = False,
        version: str = "",
    ) -> bool:
        """Patch a node as it is now, again if somebody else wrote it meanwhile. With a version, it
        is patched at that version only.

        Returns whether the node is there, with `if_any` whether there was anything to change.
        """
        for attempt in range(CONFLICTS):
            current = self._get_node(name) if attempt else self._known_node(name)
            if current is None or (uid and to_node(current).uid != uid):
                return False
            if version and to_node(current).version != version:
                return False
            patch = change(current)
            if patch is None:
                return not if_any
            metadata = patch.setdefault("metadata", {})
            metadata["resourceVersion"] = current.metadata and current.metadata.resourceVersion
            if self._patch_node(name, patch, dry_run):
                return True
        raise ClusterUnavailable(f"node {name} was written by others {CONFLICTS} times in a row")

    def _patch_node(self, name: str, patch: dict[str, Any], dry_run: bool = False) -> bool:
        """Patch a node; False says that it changed, or went, since it was read."""
        try:
            self._connection.call(
                lambda c: c.typed.patch(
                    NodeObject, name, patch, patch_type=PatchType.MERGE, dry_run=dry_run
                )
            )
        except ApiError:
            return False
        return True

    def nodes(self) -> list[Node]:
        """List all nodes, page by page."""
        return list(self._nodes())

    def unready(self) -> list[Node]:
        """Look through a table of all nodes, and read those that are not Ready in it."""
        found = (self.node(name) for name, status in self._rows("") if not _says_ready(status))
        return [node for node in found if node is not None and not node.ready]

    def ready_nodes(self) -> int:
        """Count them in a table: a Node object has ten kilobytes and more, its row some hundred
        bytes."""
        return sum(_says_ready(status) for _, status in self._rows(""))

    def retiring(self) -> list[str]:
        """List the names of the nodes that Leeway has marked as retiring."""
        return self.select_nodes(RETIRING)

    def select_nodes(self, selector: str) -> list[str]:
        """List the names of the nodes that a label selector selects."""
        return [name for name, _ in self._rows(selector)]

    def _rows(self, selector: str) -> Iterator[tuple[str, str]]:
        """List nodes as `kubectl get` does: each one's name and status."""
        params: dict[str, str | int] = {"limit": PAGE, "includeObject": "None"}
        if selector:
            params["labelSelector"] = selector
        following = ""
        while True:
            page = {**params, "continue": following} if following else params
            table = self._connection.call(partial(_node_table, params=page))
            titles = [column["name"] for column in table["columnDefinitions"]]
            name, status = titles.index("Name"), titles.index("Status")
            yield from ((row["cells"][name], row["cells"][status]) for row in table["rows"])
            following = table["metadata"].get("continue", "")
            if not following:
                return

    def attachments_on(self, node: str) -> list[Attachment]:
        """List VolumeAttachments; the API can't select them by node."""
        with within(VOLUMES_SECONDS):
            volumes = [
                one.spec.source.persistentVolumeName or ""
                for one in self._attachments()
                if one.spec.nodeName == node
            ]
            return [Attachment(volume, self._claim_of(volume)) for volume in volumes]

    def nodes_with_volumes(self) -> frozenset[str]:
        """List the names of the nodes that some volume is attached to, all at once."""
        with within(VOLUMES_SECONDS):
            return frozenset(one.spec.nodeName for one in self._attachments())

    def _attachments(self) -> list[VolumeAttachment]:
        return self._connection.call(
            lambda c: list(c.typed.list(VolumeAttachment, chunk_size=PAGE))
        )

    def _claim_of(self, volume: str) -> str:
        """Look up which claim a volume is bound to, which never changes."""
        if not is_segment(volume):
            return ""
        if volume not in self._claims:
            try:
                found = self._connection.call(lambda c: c.typed.get(PersistentVolume, volume))
            except ApiError as error:
                if error.status.code != 404:
                    raise ClusterUnavailable(str(error)) from error
                return ""
            claim = found.spec.claimRef if found.spec else None
            self._claims[volume] = f"{claim.namespace}/{claim.name}" if claim else ""
        return self._claims[volume]

    def pods_on(self, node: str, selector: str = "") -> list[Pod]:
        """List a node's pods page by page; look up whether their DaemonSets still exist."""
        with self.watch_pods(node, selector) as feed:
            return feed.refresh()

    def watch_pods(self, node: str, selector: str = "") -> WatchedPods:
        """Follow a node's pods, and for each see whether its DaemonSet still exists."""
        return WatchedPods(
            self._connection,
            node,
            selector,
            self._page,
            self._to_pod,
            self._clock,
            self._lead,
        )

    def _to_pod(self, found: PodObject) -> Pod:
        pod = to_pod(found)
        if pod.deletion is not None:
            pod = replace(pod, deletion=pod.deletion - self._lead.ahead)
        return self._with_daemonset(pod)

    def _with_daemonset(self, pod: Pod) -> Pod:
        """See whether a pod's DaemonSet exists. One that can't be looked up concerns its own pods:
        those of others are drained."""
        controller = pod.controller
        if controller is None or controller.kind != DAEMONSET or pod.mirror:
            return pod
        if controller.exists is not None:
            return pod
        failed_at, said = self._lookup_failed
        if time.monotonic() - failed_at < FEW_SECONDS:
            return replace(pod, controller=replace(controller, problem=said))
        try:
            with within(FEW_SECONDS):
                exists = self._daemonset_exists(pod.namespace, controller.name)
        except (ClusterUnavailable, ClusterRefused) as error:
            # A list must not wait for each DaemonSet in vain.
            self._lookup_failed = time.monotonic(), str(error)
            return replace(pod, controller=replace(controller, problem=str(error)))
        return replace(pod, controller=replace(controller, exists=exists))

    def _daemonset_exists(self, namespace: str, name: str) -> bool:
        """Look a DaemonSet up. One that was seen is not looked up again for a while: pods of a
        DaemonSet that is deleted meanwhile are deleted with it, unless somebody orphans them."""
        seen_at = self._living_daemonsets.get((namespace, name), -math.inf)
        if time.monotonic() - seen_at > LIVES_FOR:
            self._living_daemonsets.pop((namespace, name), None)
            try:
                self._connection.call(lambda c: c.typed.get(DaemonSet, name, namespace=namespace))
            except ApiError as error:
                if error.status.code == 404:
                    return False
                raise ClusterUnavailable(str(error)) from error
            self._living_daemonsets[namespace, name] = time.monotonic()
        return True

    def evict(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        """Post a policy/v1 Eviction that holds for this very pod only."""
        path = f"{_path_of(pod)}/eviction"
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": _delete_options(pod.uid, grace, dry_run),
        }
        return self._connection.answer(
            lambda c: raise_unless_object(c.post(path, eviction, EVICTION_SECONDS))
        )

    def delete(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        """Delete this very pod, whatever its budgets say."""
        return self._connection.answer(
            lambda c: raise_unless_object(_delete(c, _path_of(pod), pod.uid, grace, dry_run))
        )

    def budgets_of(self, pod: Pod) -> tuple[str, ...]:
        """Find the budgets whose selectors match the pod."""
        return self._budgets.names_for(pod)

    def eviction_is_granted(self, pod: Pod) -> bool:
        """Read it from the status of the pod's budget."""
        return self._budgets.has_granted(pod)

    def write_event(self, event: NodeEvent) -> None:
        """Write a core/v1 Event in `default`, where Events about nodes are kept."""
        now = datetime.now(UTC)
        body = Event(
            metadata=ObjectMeta(name=event.name, namespace="default"),
            involvedObject=ObjectReference(
                apiVersion="v1", kind="Node", name=event.node, uid=event.node_uid
            ),
            reason=event.reason,
            message=printable(event.message)[:1024],
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


def _says_ready(status: str) -> bool:
    """Read the status of a node as tables show it, such as `Ready,SchedulingDisabled`."""
    return status.partition(",")[0] == "Ready"


def _path_of(pod: Pod) -> str:
    return f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"


def _delete(
    connection: Connection, path: str, uid: str, grace: int | None = None, dry_run: bool = False
) -> httpx2.Response:
    """Delete the object of this very UID, which lightkube's own delete can't say."""
    return connection.plain.request("DELETE", path, json=_delete_options(uid, grace, dry_run))


def _delete_options(uid: str, grace: int | None, dry_run: bool) -> dict[str, Any]:
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
    }
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if dry_run:
        options["dryRun"] = ["All"]
    return options


def _node_table(connection: Connection, params: dict[str, str | int]) -> dict[str, Any]:
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    response = connection.plain.request("GET", "/api/v1/nodes", params=params, headers=headers)
    raise_unless_object(response)
    table: dict[str, Any] = response.json()
    if table.get("kind") != "Table":
        raise ValueError(f"a table of nodes was asked for, and a {table.get('kind')} came")
    return table
