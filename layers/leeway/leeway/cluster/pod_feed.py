"""One node's pods, kept up to date by one list and one watch."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import httpx2
from lightkube import ApiError
from lightkube.core.decoders import decode_list, decode_object, decode_watch_event
from lightkube.resources.core_v1 import Pod as PodObject

from leeway.clock import Clock, Lead
from leeway.cluster.connection import Connection, raise_for_status
from leeway.cluster.ports import ClusterRefused, ClusterUnavailable
from leeway.drain.pods import Pod

PODS = "/api/v1/pods"

WATCH_SECONDS = 50
"""How long one watch lasts. After it the pods are listed again, so that a connection that has died
without a word misleads nobody for longer."""

_TIMEOUT = httpx2.Timeout(10.0, connect=3.0, read=WATCH_SECONDS + 10)

LIST_EVERY = 1.0
"""Seconds between two lists at least, where no watch can be had."""


@dataclass(frozen=True, slots=True)
class _Changed:
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
        lead: Lead,
    ) -> None:
        self._connection = connection
        self._page = page
        self._selection = {"fieldSelector": f"spec.nodeName={node}"}
        if selector:
            self._selection["labelSelector"] = selector
        self._translate = translate
        self._clock = clock
        self._lead = lead
        self._version = ""
        self._pods: dict[str, Pod] = {}
        self._news: SimpleQueue[_News] = SimpleQueue()
        self._waited_for: list[_News] = []
        self._watch: _Watch | None = None
        self._may_watch = True
        self._list_again_at = 0.0
        self._problem: ClusterUnavailable | ClusterRefused | None = None

    def __enter__(self) -> "WatchedPods":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_watching()

    def pods(self) -> list[Pod]:
        """Return the pods: by the watch, or by a list where there is none."""
        self._take_in()
        if self._watch is None:
            if time.monotonic() >= self._list_again_at:
                self._list()
            elif self._problem is not None:
                raise self._problem
            if self._may_watch:
                asked = {"resourceVersion": self._version, "timeoutSeconds": str(WATCH_SECONDS)}
                self._watch = _Watch(self._connection, self._selection | asked, self._news)
        return list(self._pods.values())

    def refresh(self) -> list[Pod]:
        """List now. The watch begins anew after it, so that no old news overtakes the list."""
        self._stop_watching()
        self._list()
        return list(self._pods.values())

    def wait(self, seconds: float) -> None:
        """Wait for news, from the watch or by `wake`."""
        with contextlib.suppress(Empty):
            self._waited_for.append(self._news.get(timeout=max(seconds, 0)))

    def wake(self) -> None:
        """End a wait."""
        self._news.put(None)

    def _take_in(self) -> None:
        news, self._waited_for = self._waited_for, []
        with contextlib.suppress(Empty):
            while True:
                news.append(self._news.get_nowait())
        for one in news:
            match one:
                case _Ended(watch, error) if watch is self._watch:
                    self._watch = None
                    self._may_watch = not isinstance(error, ClusterRefused)
                    if error is not None and not isinstance(error, _OUTSIDE):
                        raise error
                case _Changed(gone, pod) if self._watch is not None:
                    self._apply(gone, pod)

    def _apply(self, gone: bool, found: PodObject) -> None:
        uid = (found.metadata.uid if found.metadata else None) or ""
        if gone:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = self._translate(found)

    def _list(self) -> None:
        self._list_again_at = time.monotonic() + LIST_EVERY
        try:
            pods, self._version = self._connection.call(self._list_all)
        except ApiError as error:
            self._problem = ClusterUnavailable(str(error))
            raise self._problem from error
        except (ClusterUnavailable, ClusterRefused) as error:
            self._problem = error
            raise
        self._problem = None
        self._pods = {pod.uid: pod for pod in map(self._translate, pods)}

    def _list_all(self, connection: Connection) -> tuple[list[PodObject], str]:
        """List page by page; return the pods and the version from which to watch."""
        params = self._selection | ({"limit": str(self._page)} if self._page else {})
        pods: list[PodObject] = []
        page = params
        while True:
            sent = self._clock.now()
            response = connection.plain.request("GET", PODS, params=page)
            raise_for_status(response)
            self._lead.learn(response.headers.get("Date", ""), sent, self._clock.now())
            following, version, found = decode_list(response.content, PodObject)
            pods += found
            if not following:
                return pods, version or ""
            page = params | {"continue": following}

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
            self._take_in()


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
            "GET", PODS, params=self._parameters, timeout=_TIMEOUT
        ) as response:
            if response.is_error:
                response.read()
                raise_for_status(response)
            self._socket = response.extensions["network_stream"].get_extra_info("socket")
            if self._stopped.is_set():
                return
            for change in _changes(response):
                self._news.put(change)


def _changes(response: httpx2.Response) -> Iterator[_Changed]:
    """Read a watch's lines up to one that says that it can't go on."""
    for line in response.iter_lines():
        event = decode_watch_event(line.encode())
        if event.type == "ERROR":
            raise ClusterUnavailable(f"watch: {bytes(event.object)[:200]!r}")
        if event.type != "BOOKMARK":
            yield _Changed(event.type == "DELETED", decode_object(bytes(event.object), PodObject))
