"""What applying a manifest comes to: created, configured, unchanged, or somebody else's change."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from leeway import __version__
from leeway.manifests.ports import StoredManifest

from cli.errors import BadInputError

if TYPE_CHECKING:
    from leeway.manifests.interpreting import Written


CLUSTER = "cluster.leeway.sh"


class Change(StrEnum):
    """What becomes of a manifest, in kubectl's words."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Planned:
    """A change, what the table has, and what it would have then. `conflict` says why it must not
    be made."""

    change: Change
    title: str
    before: StoredManifest | None
    after: StoredManifest | None
    conflict: str = ""


def plan(written: "Written", stored: Sequence[StoredManifest], now: datetime) -> Planned:
    """Compare a manifest with what is stored of its cluster."""
    resource, namespace, name = written.kind.resource, written.namespace, written.name
    before = find(stored, resource, namespace, name)
    planned = plan_body(before, resource, name, written.body, now, namespace)
    expected = written.manifest.metadata.resource_version
    if expected is None or planned.change is Change.UNCHANGED:
        return planned
    if before is None:
        return replace(planned, conflict=f"resourceVersion {expected} has been deleted since")
    if expected != str(before.version):
        since = f"it has changed since resourceVersion {expected}, to {before.version}"
        return replace(planned, conflict=since)
    return planned


def plan_body(
    before: StoredManifest | None,
    resource: str,
    name: str,
    body: str,
    now: datetime,
    namespace: str = "",
) -> Planned:
    """Compare the JSON of a manifest with the stored one."""
    if before is not None and _same(before.body, body):
        return Planned(Change.UNCHANGED, before.title, before, before)
    after = StoredManifest(
        resource=resource,
        namespace=namespace,
        name=name,
        body=body,
        # Not 1: whoever read a version that has been deleted since must not match the new one.
        version=before.version + 1 if before else int(now.timestamp() * 1000),
        written_by=__version__,
        written_at=now,
    )
    change = Change.CONFIGURED if before else Change.CREATED
    return Planned(change, after.title, before, after)


def _same(stored: str, body: str) -> bool:
    try:
        return bool(json.loads(stored) == json.loads(body))
    except ValueError:
        return False  # what is stored is damaged


def find(
    stored: Iterable[StoredManifest], resource: str, namespace: str, name: str
) -> StoredManifest | None:
    """Find a manifest among those of its cluster."""
    wanted = (resource, namespace, name)
    return next((s for s in stored if (s.resource, s.namespace, s.name) == wanted), None)


def check_names(written: Iterable["Written"], cluster: str) -> None:
    """See that what is about the cluster as a whole carries its name.

    Raises:
        BadInputError: a manifest is about another cluster.
    """
    for one in written:
        if one.kind.singleton and one.name != cluster:
            place = f"{one.source}:{one.line}"
            raise BadInputError(
                f"{place}: metadata.name: expected {cluster}, the cluster that it is applied to,"
                f" got {one.name}"
            )
