"""Renders stored manifests as YAML, JSON or a table."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from leeway.manifests.configuration import StoredManifest

if TYPE_CHECKING:
    from leeway.manifests.reading import Reading

type Document = Mapping[str, Any]


def parsed(body: str) -> Document:
    """Parse a stored manifest. A body that is no JSON object becomes the field `unreadable`."""
    try:
        document = json.loads(body)
    except ValueError:
        return {"unreadable": body}
    return document if isinstance(document, dict) else {"unreadable": document}


def as_yaml(document: Document) -> str:
    """Render a document as YAML, fields in the order of the manifest."""
    import yaml

    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=100)
    return text


def as_document(stored: StoredManifest) -> Document:
    """Render a stored manifest with its version, in the form that `leeway apply` accepts."""
    document = dict(parsed(stored.as_written))
    metadata = document.get("metadata")
    if isinstance(metadata, dict):
        document["metadata"] = {**metadata, "resourceVersion": str(stored.version)}
    written_at = stored.written_at.astimezone(UTC).isoformat(timespec="seconds")
    document["status"] = {
        "writtenBy": f"leeway {stored.written_by}",
        "writtenAt": written_at,
        "problems": [str(problem) for problem in reading_of(stored).problems],
    }
    return document


def as_list(stored: Sequence[StoredManifest]) -> Document:
    """Render several manifests as one document, as kubectl does."""
    items = [as_document(one) for one in stored]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def reading_of(stored: StoredManifest) -> "Reading":
    """Read a stored manifest."""
    from leeway.manifests.reading import read_stored

    return read_stored(stored.body, stored.title)


def rows(stored: Sequence[StoredManifest], now: datetime) -> list[list[list[str]]]:
    """Render a table for each kind: a row of titles, then one for each manifest."""
    tables: list[list[list[str]]] = []
    for resource in sorted({one.resource for one in stored}):
        of_kind = [one for one in stored if one.resource == resource]
        readings = [reading_of(one) for one in of_kind]
        columns = next((r.written[0].manifest.summary_columns for r in readings if r.written), ())
        namespaced = any(one.namespace for one in of_kind)
        titles = [*(["NAMESPACE"] if namespaced else []), "NAME", *columns, "AGE", "PROBLEM"]
        table = [titles]
        for one, reading in zip(of_kind, readings, strict=True):
            summary = (
                reading.written[0].manifest.summary() if reading.written else ["?"] * len(columns)
            )
            problem = str(reading.problems[0]) if reading.problems else ""
            key = [one.namespace, one.title] if namespaced else [one.title]
            table.append([*key, *summary, age(now - one.written_at), problem])
        if all(not row[-1] for row in table[1:]):
            table = [row[:-1] for row in table]
        tables.append(table)
    return tables


def age(since: timedelta) -> str:
    """Render how long ago something was, as kubectl does: its largest unit."""
    seconds = max(0, int(since.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Render rows in columns with three spaces between, as kubectl does."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = (
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
    return "".join(f"{line}\n" for line in lines)
