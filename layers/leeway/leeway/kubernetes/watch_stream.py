"""A watch in its own thread."""

import threading
from collections.abc import Callable, Mapping

from leeway.kubernetes.connection import Connection
from leeway.kubernetes.watch_request import WATCH_SECONDS, WatchRequest


def _ignore_start(_: "WatchStream") -> None:
    return


class WatchStream:
    """A running watch; the arguments are those of WatchRequest. It calls, in its thread:

    - `started` when the API server has accepted the watch,
    - `receive` with the lines of one or more events,
    - `ended` once, with the error, or None if the server ended the watch.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        parameters: Mapping[str, str],
        receive: "Callable[[WatchStream, list[bytes]], None]",
        ended: "Callable[[WatchStream, Exception | None], None]",
        started: "Callable[[WatchStream], None]" = _ignore_start,
        seconds: float = WATCH_SECONDS,
    ) -> None:
        self._request = WatchRequest(connection, path, parameters, seconds)
        self._receive = receive
        self._ended = ended
        self._started = started
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch; its thread ends soon after."""
        self._request.stop()

    def join(self, seconds: float) -> None:
        """Wait until its thread has ended."""
        self._thread.join(seconds)

    def _run(self) -> None:
        error: Exception | None = None
        try:
            self._request.read(
                lambda lines: self._receive(self, lines), lambda: self._started(self)
            )
        except Exception as caught:  # noqa: BLE001 (`ended` receives it)
            error = caught
        self._ended(self, error)
