"""An API server whose objects a test sets, and whose lists and watches fail as the test says."""

import contextlib
import json
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from leeway.kubernetes.cluster_states import PATHS

from tests.kubernetes.faulty_server import FaultyServer, Request
from tests.provisioning.cluster_documents import Objects, key

KINDS = {path: kind for kind, path in PATHS.items()}


@dataclass(frozen=True)
class Change:
    """An event of a watch."""

    version: int
    kind: str
    type: str
    document: dict[str, Any]


class CannedCluster:
    """The objects of a cluster with all their changes.

    - `oldest`: a watch from an older version ends with the error 410.
    - `silent`: kinds whose watches send nothing.
    - `lost`: versions that no watch sends.
    - `replays`: watches send all changes, each one twice.
    - `late`: versions that every watch sends again after its backlog.
    - `drops`: kinds whose watches end in the middle of their first event.
    - `refused`: the status with which watches are refused; 0 for none.
    - `bookmarks`: watches send a bookmark after their backlog.
    - `failing`: the status of lists and watches of kinds.
    - `prefix`: text before each resource version.
    """

    def __init__(self, server: FaultyServer) -> None:
        self.server = server
        self.objects: Objects = {}
        self.changes: list[Change] = []
        self.version = 100
        self.oldest = 0
        self.silent: set[str] = set()
        self.lost: set[int] = set()
        self.drops: set[str] = set()
        self.late: set[int] = set()
        self.replays = False
        self.bookmarks = False
        self.refused = 0
        self.prefix = ""
        self.failing: dict[str, int] = {}
        server.by_default(self._answer)

    def put(self, kind: str, document: dict[str, Any]) -> None:
        """Create or replace an object."""
        at = kind, key(kind, document)
        self._change(kind, "MODIFIED" if at in self.objects else "ADDED", document)
        self.objects[at] = self.changes[-1].document

    def delete(self, kind: str, name: str) -> None:
        """Delete an object; nothing happens if there is none."""
        found = self.objects.pop((kind, name), None)
        if found is not None:
            self._change(kind, "DELETED", found)

    def _change(self, kind: str, type_: str, document: dict[str, Any]) -> None:
        self.version += 1
        metadata = document.get("metadata")
        if isinstance(metadata, dict):
            version = f"{self.prefix}{self.version}"
            document = {**document, "metadata": {**metadata, "resourceVersion": version}}
        self.changes.append(Change(self.version, kind, type_, document))

    def restore(self, version: int) -> None:
        """Go back to the state at a version, as etcd does with a backup."""
        self.changes = [change for change in self.changes if change.version <= version]
        self.version = version
        self.objects = {}
        for change in self.changes:
            at = change.kind, key(change.kind, change.document)
            self.objects.pop(at, None)
            if change.type != "DELETED":
                self.objects[at] = change.document

    def lists(self, kind: str) -> int:
        """Count the lists of a kind, without those of the pods without a node."""
        return sum(
            (verb, path) == ("GET", PATHS[kind]) and "fieldSelector" not in query
            for verb, path, query in self.server.requests
        )

    def _answer(self, request: Request) -> None:
        kind = KINDS[urlsplit(request.path).path]
        refused = self.failing.get(kind, self.refused if request.query.get("watch") else 0)
        if refused == 404:  # an API server without the API group of a kind answers in plain text
            request.send(b"404 page not found\n", refused, "text/plain; charset=utf-8")
        elif refused:
            body = {"kind": "Status", "code": refused, "reason": "Refused", "message": "no"}
            request.send(json.dumps(body).encode(), refused)
        elif not request.query.get("watch"):
            self._list(request, kind)
        else:
            self._watch(request, kind)

    def _list(self, request: Request, kind: str) -> None:
        items = [d for (of, _), d in sorted(self.objects.items(), key=_at) if of == kind]
        if "fieldSelector" in request.query:
            items = [each for each in items if not each["spec"].get("nodeName")]
        start, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 0))
        page = items[start : start + limit] if limit else items
        metadata = {"resourceVersion": f"{self.prefix}{self.version}"}
        if limit and start + limit < len(items):
            metadata["continue"] = str(start + limit)
        body: dict[str, Any] = {"kind": f"{kind}List", "apiVersion": "v1", "metadata": metadata}
        body["items"] = page
        if "as=PartialObjectMetadataList" in request.headers.get("Accept", ""):
            # An empty list of metadata is null.
            named = [{"metadata": each["metadata"]} for each in page] or None
            body |= {"kind": "PartialObjectMetadataList", "items": named}
        request.send(json.dumps(body).encode())

    def _watch(self, request: Request, kind: str) -> None:
        sent = int(request.query["resourceVersion"])
        until = time.monotonic() + int(request.query["timeoutSeconds"])
        request.start_stream()
        if sent < self.oldest:
            status = {"kind": "Status", "code": 410, "reason": "Expired"}
            request.wfile.write(_line("ERROR", status))
            return
        sent = 0 if self.replays else sent
        while time.monotonic() < until and not _is_closed(request):
            for change in self._since(kind, sent):
                line = _line(change.type, change.document)
                if kind in self.drops:
                    request.wfile.write(line[: len(line) // 2])
                    return
                request.wfile.write(line * (1 + self.replays))
            for change in self.changes:
                if change.kind == kind and change.version in self.late:
                    request.wfile.write(_line(change.type, change.document))
            sent = max(sent, self.version)
            if self.bookmarks and sent == self.version:
                metadata = {"resourceVersion": str(sent)}
                request.wfile.write(_line("BOOKMARK", {"kind": kind, "metadata": metadata}))
            time.sleep(0.01)

    def _since(self, kind: str, version: int) -> Iterator[Change]:
        if kind in self.silent:
            return
        for change in list(self.changes):
            if change.kind == kind and change.version > version and change.version not in self.lost:
                yield change


def _at(item: tuple[tuple[str, str], Any]) -> tuple[str, str]:
    return item[0]


def _line(type_: str, document: Any) -> bytes:
    return json.dumps({"type": type_, "object": document}).encode() + b"\n"


def _is_closed(request: Request) -> bool:
    """Whether the client has closed the connection of a watch."""
    with contextlib.suppress(OSError, ValueError):
        return bool(select.select([request.connection], [], [], 0)[0])
    return True
