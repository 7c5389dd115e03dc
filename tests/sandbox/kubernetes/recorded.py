"""Recorded answers of a real API server, and their comparison with those of the sandbox."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "recordings"
_CUT = re.compile(r"\.\.\. \d+ more")
# Fields that an answer may have in addition: the nodes of the recording were objects without
# machines, its pods had no addresses, and managedFields were removed.
_MAY_BE_MORE = frozenset(
    (
        "managedFields",
        "annotations",
        "addresses",
        "taints",
        "podIP",
        "message",
        "reason",
        "observedGeneration",
        "remainingItemCount",
        "status.unavailableReplicas",
    )
)


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One request and the answer of the real server."""

    label: str
    method: str
    path: str
    content_type: str | None
    sent: Any
    status: int
    answer_type: str
    answer: Any
    accept: str = "application/json"

    @property
    def content(self) -> bytes | None:
        """Return the bytes of the request's body."""
        if self.sent is None:
            return None
        return (self.sent if isinstance(self.sent, str) else json.dumps(self.sent)).encode()


def exchanges(name: str) -> list[Exchange]:
    """Read a file of recordings."""
    return [
        Exchange(
            label=one["label"],
            method=one["request"]["method"],
            path=one["request"]["path"],
            content_type=one["request"].get("contentType"),
            sent=one["request"].get("body"),
            status=one["response"]["status"],
            answer_type=one["response"]["headers"]["Content-Type"],
            answer=one["response"]["body"],
            accept=one["request"].get("accept", "application/json"),
        )
        for one in json.loads((_FOLDER / f"{name}.json").read_text())
    ]


def document(name: str) -> Any:
    """Read a file of recordings without parsing its exchanges."""
    return json.loads((_FOLDER / f"{name}.json").read_text())


def differences(recorded: Any, live: Any) -> list[str]:
    """Return the differences of an answer from the recorded one; errors must be equal."""
    if isinstance(recorded, dict) and recorded.get("kind") == "Status":
        return [] if recorded == live else [f"{live} is not {recorded}"]
    return list(_shape(recorded, live, ""))


def _shape(recorded: Any, live: Any, path: str) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(live, dict):
        for name in recorded.keys() - live.keys():
            yield f"{path}.{name} is missing"
        for name in live.keys() - recorded.keys() - _MAY_BE_MORE:
            yield f"{path}.{name} is not in the recording"
        for name in recorded.keys() & live.keys():
            free_form = name in ("labels", "annotations", "matchLabels", "nodeInfo")
            if not free_form:
                yield from _shape(recorded[name], live[name], f"{path}.{name}")
    elif isinstance(recorded, list) and isinstance(live, list):
        whole = [one for one in recorded if not (isinstance(one, str) and _CUT.fullmatch(one))]
        if whole and not live:
            yield f"{path} is empty"
        for item in live[: len(whole)]:
            if not any(not list(_shape(one, item, path)) for one in whole):
                yield from _shape(whole[0], item, f"{path}[]")
    elif type(recorded) is not type(live):
        yield f"{path} is {live!r}, recorded {recorded!r}"
