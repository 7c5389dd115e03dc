"""One node's pods, kept up to date by one list and one watch."""

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import httpx2
import msgspec
from lightkube import ApiError
from lightkube.core.decoders import decode_object, decode_watch_event
from lightkube.resources.core_v1 import Pod as PodObject

from leeway.clock import Clock, ClockOffset
from leeway.kubernetes.connection import Connection, raise_for_status
from leeway.kubernetes.decoders import PodList
from leeway.kubernetes.transport import TOTAL, within
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Pod

PODS = "/api/v1/pods"

WATCH_SECONDS = 50
"""How long one watch lasts. After it the pods are listed again, so that a connection that has died
without a word misleads nobody for longer."""

_WATCH_ENDS = WATCH_SECONDS + 10
_TIMEOUT = httpx2.Timeout(10.0, connect=3.0, read=_WATCH_ENDS)

LIST_EVERY = 1.0
"""Seconds between two lists at least, where no watch can be had."""

LIST_SECONDS = 20.0
"""What a list may take, with all its pages."""


@dataclass(frozen=True, slots=True)
class _Changed:
    watch: "_Watch"
    gone: bool
    pod: PodObject


@dataclass(frozen=True, slots=True)
class _Ended:
    """The watch is over; `error` says why, where that was not its time."""

    watch: "_Watch"
    error: Exception | None


# What may end a watch from outside; OSError where its socket was shut under it.
_OUTSIDE = (ApiError, ClusterUnavailable, ClusterRefused, OSError)

type _News = _Changed | _Ended | None
"""None wakes and says nothing."""


class WatchedPods:
    """Lists when asked for pods it has no news of; a thread reads the watch in between.

    `lead` learns from the lists how far the API server's clock is ahead of `clock`. Everything but
    `wake` is to be called from one thread.
    """

    def __init__(
        self,
        connection: Connection,
        node: str,
        selector: str,
        page: int,
        translate: Callable[[PodObject], Pod],
        clock: Clock,
        lead: ClockOffset,
    ) -> None:
        self._connection = connection
        self._node = node
        self._page = page
        self._selection = {"fieldSelector": f"spec.nodeName={node}"}
        if selector:
            self._selection["labelSelector"] = selector
        self._translate = translate
        self._clock = clock
        self._lead = lead
        self._pods: dict[str, Pod] = {}
        self._news: SimpleQueue[_News] = SimpleQueue()
        self._waited_for: list[_News] = []
        self._watch: _Watch | None = None
        self._may_watch = True
        self._watch_from: str | None = None
        self._list_again_at = 0.0
        self._problem: ClusterUnavailable | ClusterRefused | None = None

    def __enter__(self) -> "WatchedPods":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_watching()

    def pods(self, seconds: float = math.inf) -> list[Pod]:
        """Return the pods: by the watch, or by a list where there is none."""
        self._take_in()
        if self._watch is None:
            if time.monotonic() >= self._list_again_at:
                self._list(seconds)
            elif self._problem is not None:
                raise self._problem
            self._begin_watch()
        return list(self._pods.values())

    def refresh(self, seconds: float = math.inf) -> list[Pod]:
        """List now. The watch begins anew after it, so that no old news overtakes the list."""
        self._stop_watching()
        self._list(seconds)
        return list(self._pods.values())

    def wait(self, seconds: float) -> None:
        """Wait for news, from the watch or by `wake`."""
        with contextlib.suppress(Empty):
            self._waited_for.append(self._news.get(timeout=max(seconds, 0)))

    def wake(self) -> None:
        """End a wait."""
        self._news.put(None)

    def _begin_watch(self) -> None:
        """Watch from the list on, once: a watch that ends early is not begun again where it began,
        since it would tell its news again, and end early again."""
        if self._watch_from is None or not self._may_watch:
            return
        asked = {"resourceVersion": self._watch_from, "timeoutSeconds": str(WATCH_SECONDS)}
        self._watch_from = None
        self._watch = _Watch(self._connection, self._selection | asked, self._news)

    def _take_in(self) -> None:
        news, self._waited_for = self._waited_for, []
        with contextlib.suppress(Empty):
            while True:
                news.append(self._news.get_nowait())
        for one in news:
            if one is None or one.watch is not self._watch:
                continue
            if isinstance(one, _Changed):
                self._apply(one)
                continue
            self._watch = None
            self._may_watch = not isinstance(one.error, ClusterRefused)
            if one.error is not None and not isinstance(one.error, _OUTSIDE):
                raise one.error

    def _apply(self, change: _Changed) -> None:
        if change.gone:
            self._pods.pop((change.pod.metadata and change.pod.metadata.uid) or "", None)
            return
        try:
            self._pods |= self._ours([change.pod])
        except (ClusterUnavailable, ClusterRefused) as error:
            # The rest of the news is lost with it, maybe that the watch is over: a list has to
            # tell what is there.
            self._stop_watching()
            self._problem = error
            raise

    def _ours(self, pods: Iterable[PodObject]) -> dict[str, Pod]:
        """Translate pods, by UID. To have another node's pods go is the worst that a drain may do:
        so it is not left to the API server's selection alone that they are this node's.

        Raises:
            ClusterUnavailable: something else was found, or what belongs to a pod can't be seen.
            ClusterRefused: it may not be seen.
        """
        ours = {}
        for found in pods:
            if found.spec is None or found.spec.nodeName != self._node:
                named = (found.metadata and found.metadata.name) or "a pod"
                raise ClusterUnavailable(f"{named} was listed, which is not on {self._node}")
            pod = self._translate(found)
            ours[pod.uid] = pod
        return ours

    def _list(self, seconds: float) -> None:
        self._list_again_at = time.monotonic() + LIST_EVERY
        try:
            with within(min(seconds, LIST_SECONDS)):
                pods, version = self._connection.call(self._list_all)
                self._pods = self._ours(pods)
        except ApiError as error:
            self._problem = ClusterUnavailable(str(error))
            raise self._problem from error
        except (ClusterUnavailable, ClusterRefused) as error:
            self._problem = error
            raise
        self._problem, self._watch_from = None, version

    def _list_all(self, connection: Connection) -> tuple[list[PodObject], str]:
        """List page by page; return the pods and the version from which to watch.

        Where the pages that follow have expired, all is listed at once: so long a list as was read
        in vain would expire again. Source: Kubernetes API, "Retrieving large results sets in
        chunks".
        """
        params = self._selection | ({"limit": str(self._page)} if self._page else {})
        pods: list[PodObject] = []
        page = params
        while True:
            try:
                found = self._list_page(connection, page)
            except ApiError as error:
                if error.response.status_code != 410 or page == self._selection:
                    raise
                params = page = self._selection
                pods = []
                continue
            pods += found.items
            following = found.metadata.following
            if not following:
                return pods, found.metadata.resourceVersion
            if following == page.get("continue"):
                raise ValueError("the list of pods goes round in circles")
            page = params | {"continue": following}

    def _list_page(self, connection: Connection, page: dict[str, str]) -> PodList:
        sent = self._clock.now()
        response = connection.plain.request("GET", PODS, params=page)
        raise_for_status(response)
        self._lead.observe(response.headers.get("Date", ""), sent, self._clock.now())
        return msgspec.json.decode(response.content, type=PodList)

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None


class _Watch:
    """A watch under way, in a thread of its own."""

    def __init__(
        self, connection: Connection, parameters: dict[str, str], news: "SimpleQueue[_News]"
    ) -> None:
        self._connection = connection
        self._parameters = {"watch": "true", **parameters}
        self._news = news
        self._socket: socket.socket | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch. A read that waits for the server returns at once."""
        self._stopped.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        error: Exception | None = None
        try:
            self._connection.call(self._read)
        except Exception as ended:  # noqa: BLE001 (told to whoever waits, whatever it is)
            error = ended
        self._news.put(_Ended(self, error))

    def _read(self, connection: Connection) -> None:
        with connection.plain.stream(
            "GET",
            PODS,
            params=self._parameters,
            timeout=_TIMEOUT,
            extensions={TOTAL: _WATCH_ENDS},
        ) as response:
            if response.is_error:
                response.read()
            raise_for_status(response)
            self._socket = response.extensions["network_stream"].get_extra_info("socket")
            if self._stopped.is_set():
                return
            for gone, pod in _changes(response):
                self._news.put(_Changed(self, gone, pod))


def _changes(response: httpx2.Response) -> Iterator[tuple[bool, PodObject]]:
    """Read a watch's lines up to one that says that it can't go on: whether a pod is gone, and the
    pod."""
    for line in _lines(response):
        event = decode_watch_event(line)
        if event.type == "ERROR":
            raise ClusterUnavailable(f"watch: {bytes(event.object)[:200]!r}")
        if event.type != "BOOKMARK":
            yield event.type == "DELETED", decode_object(bytes(event.object), PodObject)


def _lines(response: httpx2.Response) -> Iterator[bytes]:
    """Split a watch where the API server does. httpx2's own lines end at characters, too, that a
    pod's annotations may hold as they are, such as U+0085."""
    begun = b""
    for read in response.iter_bytes():
        *lines, begun = (begun + read).split(b"\n")
        yield from lines
