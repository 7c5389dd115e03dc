"""An HTTP server whose answers a test sets: faults that the sandbox's API server never has."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

type Query = dict[str, str]
type Answer = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request; an Answer writes to it."""

    protocol_version = "HTTP/1.1"
    faulty: "FaultyServer"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        self.query: Query = dict(parse_qsl(url.query))
        verb = "WATCH" if self.query.get("watch") else self.command
        self.faulty.requests.append((verb, url.path, self.query))
        self.faulty.user_agents.add(self.headers.get("User-Agent", ""))
        with contextlib.suppress(OSError):  # the client has disconnected
            self.faulty.answer_to(verb, url.path)(self)

    do_GET = do_POST = do_DELETE = do_PATCH = _answer  # noqa: N815 (http.server's names)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""

    def send(self, body: bytes, status: int = 200, kind: str = "application/json") -> None:
        """Send a complete answer."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def start_stream(self) -> None:
        """Send the head of an answer without a length: it ends with the connection."""
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")

    def trickle(self, start: bytes, byte: bytes) -> None:
        """Send a start and then single bytes, until the server stops or the client disconnects."""
        self.close_connection = True
        self.wfile.write(start)
        while not self.faulty.stopped.wait(0.05):
            self.wfile.write(byte)


class FaultyServer:
    """An API server whose answers a test sets, by verb and path."""

    def __init__(self, folder: Path) -> None:
        self._answers: dict[tuple[str, str], Answer] = {}
        self._default: Answer = text_answer(404, "404 page not found\n", "text/plain")
        self.requests: list[tuple[str, str, Query]] = []
        self.user_agents: set[str] = set()
        self.stopped = threading.Event()
        handler = type("Handler", (Request,), {"faulty": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.kubeconfig = folder / "kubeconfig"
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "server", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": "a"}}],
            "contexts": [{"name": "server", "context": {"cluster": "server", "user": "admin"}}],
            "current-context": "server",
        }
        self.kubeconfig.write_text(json.dumps(content))

    def on(self, verb: str, path: str, answer: Answer) -> None:
        """Set the answer to a verb and a path."""
        self._answers[verb, path] = answer

    def by_default(self, answer: Answer) -> None:
        """Set the answer to all other requests."""
        self._default = answer

    def answer_to(self, verb: str, path: str) -> Answer:
        """Return the answer to a request."""
        return self._answers.get((verb, path), self._default)

    def count(self, verb: str, path: str) -> int:
        """Count the requests with a verb and a path."""
        return sum((verb, path) == (by, to) for by, to, _ in self.requests)

    def close(self) -> None:
        """Stop the server and all answers that still run."""
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def running_faulty_server(folder: Path) -> Iterator[FaultyServer]:
    """Run a server for the duration of the context."""
    server = FaultyServer(folder)
    try:
        yield server
    finally:
        server.close()


def text_answer(status: int, body: str, kind: str) -> Answer:
    """Answer with a text and its content type."""
    return lambda request: request.send(body.encode(), status, kind)


def json_answer(body: object, status: int = 200) -> Answer:
    """Answer with JSON."""
    return lambda request: request.send(json.dumps(body).encode(), status)


def pod(name: str, node: str = "node-1", **metadata: Any) -> dict[str, Any]:
    """Return a Pod object."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "pause"}]},
        "status": {"phase": "Running"},
    }


def pods(*items: dict[str, Any], next_page: str = "") -> dict[str, Any]:
    """Return a page of pods."""
    metadata = {"resourceVersion": "7", **({"continue": next_page} if next_page else {})}
    return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": list(items)}


def watch_answer(*events: tuple[str, dict[str, Any]], stays_open: bool = True) -> Answer:
    """Answer a watch with these events; then keep the connection open, or end."""

    def answer(request: Request) -> None:
        request.start_stream()
        for kind, about in events:
            line = json.dumps({"type": kind, "object": about}, ensure_ascii=False)
            request.wfile.write(f"{line}\n".encode())
        if stays_open:
            request.faulty.stopped.wait(30)

    return answer
