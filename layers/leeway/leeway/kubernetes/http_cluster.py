"""The Cluster Protocol, over HTTP, with the PodDisruptionBudgets of a warm function."""

import json
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import quote

import httpx2
from msgspec.json import Decoder

from leeway.clock import Clock, ClockOffset
from leeway.execution.retrying import Conflicts
from leeway.kubernetes.connection import (
    FIELD_MANAGER,
    MERGE,
    NO_LAST_WORD,
    ApiError,
    Connection,
    is_unknown_path,
    raise_for_status,
    raise_unless_object,
    without_nulls,
)
from leeway.kubernetes.events import write_event
from leeway.kubernetes.list_watch import PAGE, list_objects, read_json
from leeway.kubernetes.objects import (
    BUDGETS,
    NODE,
    NODES,
    PERSISTENT_VOLUME,
    VOLUME_ATTACHMENTS,
    Budget,
    LabelSelector,
    Requirement,
    VolumeAttachment,
)
from leeway.kubernetes.objects import Node as NodeObject
from leeway.kubernetes.objects import Pod as PodObject
from leeway.kubernetes.pod_feed import WatchedPods
from leeway.kubernetes.translate import (
    EXCLUDED_LABEL,
    cordoned,
    excluded,
    is_segment,
    is_subdomain,
    no_more_reserved,
    out_of_service,
    released,
    set_up,
    to_node,
    to_pod,
)
from leeway.kubernetes.transport import within
from leeway.ports.kubernetes import (
    EVICTION_SECONDS,
    EVICTION_SETTLES_SECONDS,
    ClusterRefused,
    ClusterUnavailable,
    Event,
    Marks,
    NodeCount,
)
from leeway.ports.kubernetes_objects import RETIRING, Attachment, Node, Pod, Response, Taint
from leeway.retirement.pods import DAEMONSET
from leeway.selection.labels import INITIALIZED, LAUNCHED
from leeway.table import RecordChanged


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Match labels. An empty selector selects everything, a missing one nothing.

    Source: Kubernetes API, `LabelSelector` and `PodDisruptionBudgetSpec.selector`.
    """
    if selector is None:
        return False
    equal = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return equal and all(_matches(one, labels) for one in selector.match_expressions or ())


def _matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in (requirement.values or ())
        case "NotIn":
            return value not in (requirement.values or ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


DELETION_TIMEOUT = timedelta(minutes=2)
"""How long a budget's status names a pod that was not deleted. Source: Kubernetes, disruption
controller, DeletionTimeout."""

CACHE_SECONDS = 2.0
"""How long the budgets of a namespace are cached."""

LIST_SECONDS = 3.0


class Budgets:
    """The budgets of one cluster, with a cache. Safe to use from several threads.

    `now` returns the time of the API server's clock.
    """

    def __init__(self, connection: Connection, now: Callable[[], datetime]) -> None:
        self._connection = connection
        self._now = now
        self._cache: dict[str, tuple[float, list[Budget]]] = {}
        self._listing = threading.Lock()

    def names_for(self, pod: Pod) -> tuple[str, ...]:
        """Return the names of the budgets whose selectors match the pod."""
        budgets = self._cached(pod.namespace) or self._list(pod.namespace)
        return tuple(name for name, _ in _selecting(budgets, pod))

    def has_granted(self, pod: Pod) -> bool:
        """Whether the pod's budget counts it as disrupted although it was not deleted.

        Also False while another thread lists budgets: a later pass repeats the check. A budget
        names pods without UIDs: an entry older than the pod belongs to an earlier pod of this name,
        for example of a StatefulSet, and does not count.
        """
        budgets = self._cached(pod.namespace)
        if budgets is None and self._listing.acquire(blocking=False):
            try:
                budgets = self._list(pod.namespace)
            finally:
                self._listing.release()
        selecting = list(_selecting(budgets or [], pod))
        if len(selecting) != 1 or pod.created is None:
            return False
        ((_, budget),) = selecting
        disrupted = (budget.status and budget.status.disrupted_pods) or {}
        at = disrupted.get(pod.name)
        return at is not None and pod.created < at and self._now() - at < DELETION_TIMEOUT

    def _cached(self, namespace: str) -> list[Budget] | None:
        listed_at, budgets = self._cache.get(namespace, (0.0, []))
        is_fresh = listed_at and time.monotonic() - listed_at < CACHE_SECONDS
        return budgets if is_fresh else None

    def _list(self, namespace: str) -> list[Budget]:
        listed_at = time.monotonic()
        path = f"/apis/policy/v1/namespaces/{quote(namespace, safe='')}"
        with within(LIST_SECONDS):
            budgets = self._connection.call(
                lambda c: list_objects(c, f"{path}/poddisruptionbudgets", BUDGETS)
            )
        self._cache[namespace] = (listed_at, budgets)
        return budgets


def _selecting(budgets: list[Budget], pod: Pod) -> Iterator[tuple[str, Budget]]:
    for budget in budgets:
        name = budget.metadata and budget.metadata.name
        if name and budget.spec and selects(budget.spec.selector, pod.labels):
            yield name, budget


NODE_CACHE_SECONDS = 1.0
"""How long a node that was read may be the base of a patch without another read."""

SMALL_REQUEST_SECONDS = 3.0
VOLUME_LIST_SECONDS = 10.0
"""Timeouts of requests that a drain waits for, for all pages together. Most answers are small; the
list of volumes is long in a large cluster."""

DAEMONSET_CACHE_SECONDS = 60.0
"""How long a DaemonSet that was found counts as existing. A drain lists a node's pods often."""


class HttpCluster:
    """One cluster's API server. Safe to use from several threads.

    The times of pods are converted from the API server's clock to `clock`. `cache_count` returns
    the cached result of a count of nodes, or calls it.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        page: int = PAGE,
        cache_count: Callable[[Callable[[], int]], int] = lambda count: count(),
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._cache_count = cache_count
        self._offset = ClockOffset()
        self._page = page
        self._cached_node: tuple[float, NodeObject] | None = None
        self._found_daemonsets: dict[tuple[str, str], float] = {}
        self._lookup_failed: tuple[float, str] = (-math.inf, "")
        self._claims: dict[str, str] = {}
        self._evicting: dict[str, float] = {}
        self._evicting_lock = threading.Lock()
        self._budgets = Budgets(connection, lambda: clock.now() + self._offset.ahead)

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._connection.server

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def node_of(self, instance: str, names: tuple[str, ...]) -> Node | None:
        """Find an instance's node: one GET for each name, then a list of all nodes.

        A user who may create nodes can copy a provider id, and a copy without pods would count as
        drained. If several nodes match, the Ready one is returned.

        Raises:
            ClusterUnavailable: several nodes match, and none or more than one of them is Ready.
        """
        for name in names:
            node = self.node(name)
            if node is not None and node.runs_on(instance):
                return node
        found = [node for node in self._nodes() if node.runs_on(instance)]
        if len(found) > 1:
            names_found = ", ".join(sorted(node.name for node in found))
            found = [node for node in found if node.ready]
            if len(found) != 1:
                raise ClusterUnavailable(
                    f"several nodes name the instance {instance}: {names_found}"
                )
        return found[0] if found else None

    def node(self, name: str) -> Node | None:
        """Read a node by name."""
        with within(SMALL_REQUEST_SECONDS):
            node = self._get_node(name)
        if node is None:
            return None
        self._cached_node = (time.monotonic(), node)
        return to_node(node)

    def _read[T](self, path: str, decoder: Decoder[T]) -> T:
        def read(connection: Connection) -> T:
            response = connection.plain.get(path)
            raise_for_status(response)
            return read_json(response.content, decoder)

        return self._connection.call(read)

    def _get_node(self, name: str) -> NodeObject | None:
        if not is_subdomain(name):
            return None
        try:
            found = self._read(f"/api/v1/nodes/{name}", NODE)
        except ApiError as error:
            if error.response.status_code == 404:
                return None
            raise ClusterUnavailable(str(error)) from error
        if found.metadata is None or found.metadata.name != name:
            raise ClusterUnavailable(f"node {name}: the answer is another object")
        return found

    def _take_node(self, name: str) -> NodeObject | None:
        """Return the node of the last read, once, or read it. This saves a GET between finding and
        cordoning a node. The API server refuses a patch if the node has changed since."""
        last, self._cached_node = self._cached_node, None
        if last is not None:
            read_at, node = last
            is_same = node.metadata is not None and node.metadata.name == name
            if is_same and time.monotonic() - read_at < NODE_CACHE_SECONDS:
                return node
        return self._get_node(name)

    def _nodes(self, selector: str = "") -> Iterator[Node]:
        selection = {"labelSelector": selector} if selector else None
        listed = self._connection.call(
            lambda c: list_objects(c, "/api/v1/nodes", NODES, selection=selection)
        )
        return (to_node(node) for node in listed)

    def cordon(self, node: str, marks: Marks | None, dry_run: bool = False, uid: str = "") -> None:
        """Cordon, taint, label and annotate a node in one patch with its resource version. With a
        UID, a Node of the same name and another UID is not changed."""
        if not self._change_node(node, lambda found: cordoned(found, marks), uid, dry_run=dry_run):
            raise ClusterRefused(f"node {node} is gone")

    def release(self, node: str, attempt: int | None = None) -> bool:
        """Remove the changes that Leeway's annotations on the node record."""
        return self._change_node(node, lambda found: released(found, attempt), if_changed=True)

    def exclude_from_load_balancers(self, node: str) -> bool:
        """Label the node, unless more than half of the Ready nodes would then be excluded.

        The node has the retiring mark already. If several nodes are excluded at the same time, the
        last one to be marked counts all others, so together they never exceed the half.
        """
        with within(SMALL_REQUEST_SECONDS):
            ready = self._cache_count(lambda: self.count_nodes().ready)
            others = self._ready_others(node)
            if 2 * (len(list(islice(others, ready // 2 + 1))) + 1) > ready:
                current = self._get_node(node)
                return current is not None and excluded(current) is None
            return self._change_node(node, excluded)

    def _ready_others(self, node: str) -> Iterator[str]:
        """List the other Ready nodes that are excluded or may be: retiring nodes, and nodes with
        another user's label."""
        for selector in (RETIRING, f"{EXCLUDED_LABEL},!{RETIRING}"):
            for name, status in self._rows(selector):
                if name != node and _is_ready(status):
                    yield name

    def set_up(
        self,
        node: Node,
        labels: Mapping[str, str],
        taints: Sequence[Taint] = (),
        without: Collection[str] = (),
        annotations: Mapping[str, str] | None = None,
    ) -> bool:
        """Label, taint and annotate the node by one merge patch."""
        change = partial(
            set_up, labels=labels, taints=taints, without=without, annotations=annotations or {}
        )
        return self._change_node(node.name, change, node.uid)

    def label_on_demand(self, node: Node) -> bool:
        """Replace the labels of reserved capacity by one merge patch."""
        return self._change_node(node.name, no_more_reserved, node.uid)

    def mark_out_of_service(self, node: Node) -> bool:
        """Taint the node as non-gracefully shut down."""
        return self._change_node(node.name, out_of_service, node.uid, version=node.version)

    def delete_node(self, node: Node) -> bool:
        """Delete the Node object by its name, UID and resource version, and the NodeClaim of a node
        that Leeway has taken over from Karpenter."""
        options = _delete_options(node.uid, None, dry_run=False)
        options["preconditions"]["resourceVersion"] = node.version
        path = f"/api/v1/nodes/{node.name}"
        try:
            left = self._connection.request("DELETE", path, body=options)
        except ApiError:
            return False
        release_claim(self._connection, left)
        return True

    def _change_node(
        self,
        name: str,
        change: Callable[[NodeObject], dict[str, Any] | None],
        uid: str = "",
        if_changed: bool = False,
        dry_run: bool = False,
        version: str = "",
    ) -> bool:
        """Patch a node at its resource version; after a conflict read it again. With a `version`,
        patch it at that version only.

        Returns whether the node exists; with `if_changed`, whether there was anything to change.
        """

        conflicts = Conflicts(f"node {name}", error=ClusterUnavailable)
        while True:
            with conflicts:
                current = self._take_node(name)
                if current is None or (uid and to_node(current).uid != uid):
                    return False
                if version and to_node(current).version != version:
                    return False
                patch = change(current)
                if patch is None:
                    return not if_changed
                metadata = patch.setdefault("metadata", {})
                metadata["resourceVersion"] = current.metadata and current.metadata.resource_version
                if not self._patch_node(name, patch, dry_run):
                    raise RecordChanged(name)
                return True

    def _patch_node(self, name: str, patch: dict[str, Any], dry_run: bool = False) -> bool:
        """Patch a node; False if it has changed or was deleted since it was read."""
        try:
            self._connection.call(lambda c: raise_for_status(_patched(c, name, patch, dry_run)))
        except ApiError:
            return False
        return True

    def nodes(self) -> list[Node]:
        """List all nodes, page by page."""
        return list(self._nodes())

    def uninitialized(self) -> list[Node]:
        """List the nodes that Leeway launched and that are not initialized."""
        return list(self._nodes(f"{LAUNCHED}=true,{INITIALIZED}!=true"))

    def names(self) -> frozenset[str]:
        """List the names of all nodes in a table."""
        return frozenset(name for name, _ in self._rows(""))

    def unready(self) -> list[Node]:
        """List all nodes as a table, and read the nodes that are not Ready in it."""
        found = (self.node(name) for name, status in self._rows("") if not _is_ready(status))
        return [node for node in found if node is not None and not node.ready]

    def count_nodes(self) -> NodeCount:
        """Count the nodes in a table: a row has some hundred bytes, a Node object ten kilobytes and
        more."""
        ready = [_is_ready(status) for _, status in self._rows("")]
        return NodeCount(len(ready), sum(ready))

    def retiring(self) -> list[str]:
        """List the names of the nodes that have the retiring mark."""
        return self.select_nodes(RETIRING)

    def select_nodes(self, selector: str) -> list[str]:
        """List the names of the nodes that a label selector selects."""
        return [name for name, _ in self._rows(selector)]

    def _rows(self, selector: str) -> Iterator[tuple[str, str]]:
        """List nodes as a table, as `kubectl get` does: name and status of each."""
        params: dict[str, str | int] = {"limit": PAGE, "includeObject": "None"}
        if selector:
            params["labelSelector"] = selector
        next_page = ""
        while True:
            page = {**params, "continue": next_page} if next_page else params
            table = self._connection.call(partial(_node_table, params=page))
            titles = [column["name"] for column in table["columnDefinitions"]]
            name, status = titles.index("Name"), titles.index("Status")
            yield from ((row["cells"][name], row["cells"][status]) for row in table["rows"])
            next_page = table["metadata"].get("continue", "")
            if not next_page:
                return

    def attachments_on(self, node: str) -> list[Attachment]:
        """List all VolumeAttachments and filter them: the API can't select them by node. One GET
        for each volume whose claim is not cached."""
        with within(VOLUME_LIST_SECONDS):
            volumes = [
                one.spec.source.persistent_volume_name or ""
                for one in self._attachments()
                if one.spec.node_name == node
            ]
            return [Attachment(volume, self._claim_of(volume)) for volume in volumes]

    def nodes_with_volumes(self) -> frozenset[str]:
        """List the names of all nodes that have an attached volume."""
        with within(VOLUME_LIST_SECONDS):
            return frozenset(one.spec.node_name for one in self._attachments())

    def _attachments(self) -> list[VolumeAttachment]:
        path = "/apis/storage.k8s.io/v1/volumeattachments"
        return self._connection.call(lambda c: list_objects(c, path, VOLUME_ATTACHMENTS))

    def _claim_of(self, volume: str) -> str:
        """Read the claim that a volume is bound to; it never changes, so it is cached."""
        if not is_segment(volume):
            return ""
        if volume not in self._claims:
            try:
                found = self._read(f"/api/v1/persistentvolumes/{volume}", PERSISTENT_VOLUME)
            except ApiError as error:
                if error.response.status_code != 404:
                    raise ClusterUnavailable(str(error)) from error
                return ""
            claim = found.spec.claim_ref if found.spec else None
            self._claims[volume] = f"{claim.namespace}/{claim.name}" if claim else ""
        return self._claims[volume]

    def pods_on(self, node: str, selector: str = "") -> list[Pod]:
        """List a node's pods page by page, and look up their DaemonSets."""
        with self.watch_pods(node, selector) as feed:
            return feed.refresh()

    def watch_pods(self, node: str, selector: str = "") -> WatchedPods:
        """Watch a node's pods, and look up their DaemonSets."""
        return WatchedPods(
            self._connection,
            node,
            selector,
            self._page,
            self._to_pod,
            self._clock,
            self._offset,
        )

    def _to_pod(self, found: PodObject) -> Pod:
        pod = to_pod(found)
        if pod.deletion is not None:
            pod = replace(pod, deletion=pod.deletion - self._offset.ahead)
        return self._with_daemonset(pod)

    def _with_daemonset(self, pod: Pod) -> Pod:
        """Look up whether a pod's DaemonSet exists. A lookup that fails is reported on the pod
        only, so that the drain of other pods continues."""
        controller = pod.controller
        if controller is None or controller.kind != DAEMONSET or pod.mirror:
            return pod
        if controller.exists is not None:
            return pod
        failed_at, problem = self._lookup_failed
        if time.monotonic() - failed_at < SMALL_REQUEST_SECONDS:
            return replace(pod, controller=replace(controller, problem=problem))
        try:
            with within(SMALL_REQUEST_SECONDS):
                exists = self._daemonset_exists(pod.namespace, controller.name)
        except (ClusterUnavailable, ClusterRefused) as error:
            # The other lookups of the list fail immediately, instead of one timeout for each pod.
            self._lookup_failed = time.monotonic(), str(error)
            return replace(pod, controller=replace(controller, problem=str(error)))
        return replace(pod, controller=replace(controller, exists=exists))

    def _daemonset_exists(self, namespace: str, name: str) -> bool:
        """Look up a DaemonSet. A found one is cached: if it is deleted meanwhile, its pods are
        deleted with it, unless the deletion orphans them."""
        found_at = self._found_daemonsets.get((namespace, name), -math.inf)
        if time.monotonic() - found_at > DAEMONSET_CACHE_SECONDS:
            self._found_daemonsets.pop((namespace, name), None)
            try:
                path = f"/apis/apps/v1/namespaces/{quote(namespace, safe='')}/daemonsets/{name}"
                self._connection.call(lambda c: raise_unless_object(c.plain.get(path)))
            except ApiError as error:
                if error.response.status_code == 404:
                    return False
                raise ClusterUnavailable(str(error)) from error
            self._found_daemonsets[namespace, name] = time.monotonic()
        return True

    def evict(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        """Post a policy/v1 Eviction with the pod's UID as a precondition. Two posts for one pod
        would count two disruptions, so none is made while an earlier one may be under way: until
        its answer, or for some time after its connection was lost."""
        if dry_run:
            return self._post_eviction(pod, grace, dry_run)
        now = time.monotonic()
        with self._evicting_lock:
            self._evicting = {uid: until for uid, until in self._evicting.items() if until > now}
            if until := self._evicting.get(pod.uid):
                return Response(
                    0, "an earlier eviction may be under way", retry_after=math.ceil(until - now)
                )
            longest = EVICTION_SECONDS + EVICTION_SETTLES_SECONDS
            self._evicting[pod.uid] = now + longest
        response = self._post_eviction(pod, grace, dry_run)
        settles = response.retry_after if response.status in NO_LAST_WORD else None
        with self._evicting_lock:
            self._evicting[pod.uid] = time.monotonic() + (settles or 0.0)
        return response

    def _post_eviction(self, pod: Pod, grace: int | None, dry_run: bool) -> Response:
        path = f"{_path_of(pod)}/eviction"
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": _delete_options(pod.uid, grace, dry_run),
        }
        return self._connection.answer(
            lambda c: raise_unless_object(c.post(path, eviction, EVICTION_SECONDS)),
            settles=math.ceil(EVICTION_SETTLES_SECONDS),
        )

    def delete(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        """Delete a pod with its UID as a precondition; budgets do not apply."""
        return self._connection.answer(
            lambda c: raise_unless_object(_delete(c, _path_of(pod), pod.uid, grace, dry_run))
        )

    def budgets_of(self, pod: Pod) -> tuple[str, ...]:
        """Return the budgets that select the pod, from a list that may be two seconds old."""
        return self._budgets.names_for(pod)

    def eviction_is_granted(self, pod: Pod) -> bool:
        """Read the status of the pod's budget, which may be two seconds old."""
        return self._budgets.has_granted(pod)

    def write_event(self, event: Event) -> None:
        """Create an Event about a node."""
        write_event(self._connection, event)


def _is_ready(status: str) -> bool:
    """Read the status column of a table of nodes, for example `Ready,SchedulingDisabled`."""
    return status.partition(",")[0] == "Ready"


def _path_of(pod: Pod) -> str:
    return f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"


def _delete(
    connection: Connection, path: str, uid: str, grace: int | None = None, dry_run: bool = False
) -> httpx2.Response:
    """Delete an object with its UID as a precondition."""
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


def _patched(
    connection: Connection, node: str, patch: dict[str, Any], dry_run: bool
) -> httpx2.Response:
    params = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
    content, headers = json.dumps(patch), {"Content-Type": MERGE}
    path = f"/api/v1/nodes/{node}"
    return connection.plain.patch(path, content=content, params=params, headers=headers)


def _node_table(connection: Connection, params: dict[str, str | int]) -> dict[str, Any]:
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    response = connection.plain.request("GET", "/api/v1/nodes", params=params, headers=headers)
    raise_unless_object(response)
    table: dict[str, Any] = {"rows": [], "metadata": {}, **without_nulls(response.json())}
    if table.get("kind") != "Table":
        raise ValueError(f"expected a table of nodes, got a {table.get('kind')}")
    return table


TERMINATION = "karpenter.sh/termination"
_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"


def release_claim(connection: Connection, node: dict[str, Any]) -> None:
    """End what Karpenter left on a node whose instance is terminated: `leeway switch` leaves
    NodeClaims as they are. Both the NodeClaim and the Node have the finalizer TERMINATION, which
    keeps a deleted object until its controller removes it. Karpenter does so after it has ended the
    instance. Source: Karpenter, nodeclaim lifecycle and node termination controllers.

    Delete the NodeClaim of a Node that is being deleted, then the finalizers of both. The Node
    goes last: while it exists, the next clean-up finds what this one has not done.

    `node` is the answer to the deletion: another object if the Node is gone.

    Raises:
        ClusterUnavailable, ClusterRefused: the next clean-up goes on.
    """
    metadata = node.get("metadata") or {}
    if node.get("kind") != "Node" or TERMINATION not in (metadata.get("finalizers") or ()):
        return
    for owner in metadata.get("ownerReferences") or ():
        if owner["kind"] == "NodeClaim" and owner["apiVersion"].startswith("karpenter.sh/"):
            path, uid = f"{_CLAIMS}/{owner['name']}", owner["uid"]
            if _request(connection, "DELETE", path, {"preconditions": {"uid": uid}}) is not None:
                _finalize(connection, path, uid)
    _finalize(connection, f"/api/v1/nodes/{metadata['name']}", metadata["uid"])


def _finalize(connection: Connection, path: str, uid: str) -> None:
    """Remove Karpenter's finalizer from an object that is being deleted, and no other one."""

    conflicts = Conflicts(path, ClusterUnavailable)
    while True:
        with conflicts:
            found = (_request(connection, "GET", path) or {}).get("metadata") or {}
            finalizers = found.get("finalizers") or []
            ours = found.get("uid") == uid and "deletionTimestamp" in found
            if not (ours and TERMINATION in finalizers):
                return
            left = [one for one in finalizers if one != TERMINATION]
            patch = {"metadata": {"resourceVersion": found["resourceVersion"], "finalizers": left}}
            done = _request(connection, "PATCH", path, patch) is not None
            if not done and _request(connection, "GET", path):
                raise RecordChanged(path)
            return


def _request(
    connection: Connection, method: str, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Make one request; None if the object is gone, or is another one now."""
    content = MERGE if method == "PATCH" else "application/json"
    try:
        return connection.request(method, path, body=body, content=content)
    except ApiError:
        return None
    except ClusterUnavailable as error:
        if is_unknown_path(error):
            return None
        raise
