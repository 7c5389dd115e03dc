"""An API server that misbehaves as it is told, over HTTP: what the sandbox's never does."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

type Query = dict[str, str]
type Answer = Callable[["Asked"], None]


class Asked(BaseHTTPRequestHandler):
    """One request; an answer writes to it what it likes."""

    protocol_version = "HTTP/1.1"
    wayward: "Wayward"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        self.query: Query = dict(parse_qsl(url.query))
        verb = "WATCH" if self.query.get("watch") else self.command
        self.wayward.seen.append((verb, url.path, self.query))
        self.wayward.agents.add(self.headers.get("User-Agent", ""))
        with contextlib.suppress(OSError):  # whoever asked has gone
            self.wayward.answer_to(verb, url.path)(self)

    do_GET = do_POST = do_DELETE = do_PATCH = _answer  # noqa: N815 (http.server's names)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""

    def send(self, body: bytes, status: int = 200, kind: str = "application/json") -> None:
        """Answer as servers do."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        """Answer by a stream of lines that ends when the connection does."""
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")

    def trickle(self, start: bytes, drop: bytes) -> None:
        """Send a start, and then the same byte over and over, until nobody listens any more."""
        self.close_connection = True
        self.wfile.write(start)
        while not self.wayward.over.wait(0.05):
            self.wfile.write(drop)


class Wayward:
    """An API server whose answers a test sets, by verb and path."""

    def __init__(self, folder: Path) -> None:
        self._answers: dict[tuple[str, str], Answer] = {}
        self._otherwise: Answer = plain(404, "404 page not found\n", "text/plain")
        self.seen: list[tuple[str, str, Query]] = []
        self.agents: set[str] = set()
        self.over = threading.Event()
        handler = type("Handler", (Asked,), {"wayward": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.kubeconfig = folder / "wayward"
        server = f"http://127.0.0.1:{self._server.server_port}"
        cluster = {"server": server, "insecure-skip-tls-verify": True}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "wayward", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": "a"}}],
            "contexts": [{"name": "wayward", "context": {"cluster": "wayward", "user": "admin"}}],
            "current-context": "wayward",
        }
        self.kubeconfig.write_text(json.dumps(content))

    def on(self, verb: str, path: str, answer: Answer) -> None:
        """Answer so from now on."""
        self._answers[verb, path] = answer

    def otherwise(self, answer: Answer) -> None:
        """Answer so whatever is not answered otherwise."""
        self._otherwise = answer

    def answer_to(self, verb: str, path: str) -> Answer:
        """Return how a request is to be answered."""
        return self._answers.get((verb, path), self._otherwise)

    def count(self, verb: str, path: str) -> int:
        """Count the requests so far."""
        return sum((verb, path) == (by, to) for by, to, _ in self.seen)

    def close(self) -> None:
        """End, with all answers that never would."""
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def wayward_server(folder: Path) -> Iterator[Wayward]:
    """Run one for as long as the context lasts."""
    server = Wayward(folder)
    try:
        yield server
    finally:
        server.close()


def plain(status: int, body: str, kind: str) -> Answer:
    """Answer with a text of some kind."""
    return lambda asked: asked.send(body.encode(), status, kind)


def said(body: object, status: int = 200) -> Answer:
    """Answer with JSON."""
    return lambda asked: asked.send(json.dumps(body).encode(), status)


def pod(name: str, node: str = "node-1", **metadata: Any) -> dict[str, Any]:
    """Return a pod as an API server shows it."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "pause"}]},
        "status": {"phase": "Running"},
    }


def pods(*items: dict[str, Any], following: str = "") -> dict[str, Any]:
    """Return a page of pods."""
    metadata = {"resourceVersion": "7", **({"continue": following} if following else {})}
    return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": list(items)}


def watched(*events: tuple[str, dict[str, Any]], stays: bool = True) -> Answer:
    """Answer a watch with these events, and stay silent then, or end."""

    def answer(asked: Asked) -> None:
        asked.begin()
        for kind, about in events:
            line = json.dumps({"type": kind, "object": about}, ensure_ascii=False)
            asked.wfile.write(f"{line}\n".encode())
        if stays:
            asked.wayward.over.wait(30)

    return answer
