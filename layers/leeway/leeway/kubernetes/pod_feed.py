"""The pods of one node, by one list and one watch."""

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from leeway.clock import Clock, ClockOffset
from leeway.kubernetes.connection import ApiError, Connection, raise_for_status
from leeway.kubernetes.list_watch import ObjectList, WatchStream, events_in, list_pages, read_json
from leeway.kubernetes.objects import POD
from leeway.kubernetes.objects import PODS as POD_LISTS
from leeway.kubernetes.objects import Pod as PodObject
from leeway.kubernetes.transport import within
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Pod

PODS = "/api/v1/pods"

LIST_EVERY = 1.0
"""Minimum seconds between two lists if no watch is possible."""

LIST_SECONDS = 20.0
"""Timeout of a list with all its pages."""


@dataclass(frozen=True, slots=True)
class _Changed:
    watch: WatchStream
    deleted: bool
    pod: PodObject


@dataclass(frozen=True, slots=True)
class _Ended:
    """The watch ended; `error` is None if its time was over."""

    watch: WatchStream
    error: Exception | None


# Errors of the server or the connection that may end a watch.
_WATCH_ERRORS = (ApiError, ClusterUnavailable, ClusterRefused)

type _Message = _Changed | _Ended | None
"""None ends a wait without a change."""


class WatchedPods:
    """The PodFeed Protocol: lists pods, and applies the changes that a watch thread reads.

    `offset` measures by the lists how far the API server's clock is ahead of `clock`. Call all
    methods except `wake` from one thread.
    """

    def __init__(
        self,
        connection: Connection,
        node: str,
        selector: str,
        page: int,
        translate: Callable[[PodObject], Pod],
        clock: Clock,
        offset: ClockOffset,
    ) -> None:
        self._connection = connection
        self._node = node
        self._page = page
        self._selection = {"fieldSelector": f"spec.nodeName={node}"}
        if selector:
            self._selection["labelSelector"] = selector
        self._translate = translate
        self._clock = clock
        self._offset = offset
        self._pods: dict[str, Pod] = {}
        self._messages: SimpleQueue[_Message] = SimpleQueue()
        self._received: list[_Message] = []
        self._watch: WatchStream | None = None
        self._may_watch = True
        self._watch_from: str | None = None
        self._list_again_at = 0.0
        self._problem: ClusterUnavailable | ClusterRefused | None = None

    def __enter__(self) -> "WatchedPods":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_watching()

    def pods(self, seconds: float = math.inf) -> list[Pod]:
        """Return the pods: by the watch, or by a list if no watch runs."""
        self._apply_messages()
        if self._watch is None:
            if time.monotonic() >= self._list_again_at:
                self._list(seconds)
            elif self._problem is not None:
                raise self._problem
            self._begin_watch()
        return list(self._pods.values())

    def refresh(self, seconds: float = math.inf) -> list[Pod]:
        """List now, without a watch. The next `pods` starts a watch from this list, so that no
        older change is applied to it."""
        self._stop_watching()
        self._list(seconds)
        return list(self._pods.values())

    def wait(self, seconds: float) -> None:
        """Wait for a message of the watch, or for `wake`."""
        with contextlib.suppress(Empty):
            self._received.append(self._messages.get(timeout=max(seconds, 0)))

    def wake(self) -> None:
        """End a wait."""
        self._messages.put(None)

    def _begin_watch(self) -> None:
        """Start a watch from the last list, once for each list: a watch that ended early would
        repeat its changes from the same version, and end early again. After a watch that ended in
        time the pods are listed, too: the feed of a drain must not miss anything."""
        if self._watch_from is None or not self._may_watch:
            return
        start = {"resourceVersion": self._watch_from}
        self._watch_from = None
        self._watch = WatchStream(
            self._connection,
            PODS,
            self._selection | start,
            self._receive,
            self._end,
        )

    def _receive(self, watch: WatchStream, lines: list[bytes]) -> None:
        for event in events_in(lines):
            if event.type != "BOOKMARK":
                pod = read_json(event.object, POD)
                self._messages.put(_Changed(watch, event.type == "DELETED", pod))

    def _end(self, watch: WatchStream, error: Exception | None) -> None:
        self._messages.put(_Ended(watch, error))

    def _apply_messages(self) -> None:
        messages, self._received = self._received, []
        with contextlib.suppress(Empty):
            while True:
                messages.append(self._messages.get_nowait())
        for message in messages:
            if message is None or message.watch is not self._watch:
                continue
            if isinstance(message, _Changed):
                self._apply(message)
                continue
            self._watch = None
            self._may_watch = not isinstance(message.error, ClusterRefused)
            if message.error is not None and not isinstance(message.error, _WATCH_ERRORS):
                raise message.error

    def _apply(self, change: _Changed) -> None:
        if change.deleted:
            self._pods.pop((change.pod.metadata and change.pod.metadata.uid) or "", None)
            return
        try:
            self._pods |= self._of_node([change.pod])
        except (ClusterUnavailable, ClusterRefused) as error:
            # The remaining messages are lost, maybe the end of the watch as well: list again.
            self._stop_watching()
            self._problem = error
            raise

    def _of_node(self, pods: Iterable[PodObject]) -> dict[str, Pod]:
        """Translate pods, by UID. The node's name is checked here again, although the API server
        filters by it: a drain must never evict pods of another node.

        Raises:
            ClusterUnavailable: a pod is on another node, or its DaemonSet can't be read.
            ClusterRefused: a right to read the DaemonSet is missing.
        """
        translated = {}
        for found in pods:
            if found.spec is None or found.spec.node_name != self._node:
                name = (found.metadata and found.metadata.name) or "without a name"
                raise ClusterUnavailable(
                    f"the list of pods on node {self._node} has pod {name} of another node"
                )
            pod = self._translate(found)
            translated[pod.uid] = pod
        return translated

    def _list(self, seconds: float) -> None:
        self._list_again_at = time.monotonic() + LIST_EVERY
        try:
            with within(min(seconds, LIST_SECONDS)):
                pods, version = self._connection.call(self._list_all)
                self._pods = self._of_node(pods)
        except ApiError as error:
            self._problem = ClusterUnavailable(str(error))
            raise self._problem from error
        except (ClusterUnavailable, ClusterRefused) as error:
            self._problem = error
            raise
        self._problem, self._watch_from = None, version

    def _list_all(self, connection: Connection) -> tuple[list[PodObject], str]:
        """List page by page; return the pods and the version from which to watch."""
        pods: list[PodObject] = []
        version = ""
        for first, page in list_pages(
            partial(self._list_page, connection), self._selection, self._page
        ):
            pods = [*page.items] if first else [*pods, *page.items]
            version = page.metadata.resourceVersion
        return pods, version

    def _list_page(self, connection: Connection, page: dict[str, str]) -> ObjectList[PodObject]:
        sent = self._clock.now()
        response = connection.plain.request("GET", PODS, params=page)
        raise_for_status(response)
        self._offset.observe(response.headers.get("Date", ""), sent, self._clock.now())
        listed = read_json(response.content, POD_LISTS)
        if listed.kind != "PodList":
            raise ValueError(f"expected a PodList, got {listed.kind[:60]}")
        return listed

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
