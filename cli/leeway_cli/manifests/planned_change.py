"""Plans the change of a stored manifest: created, configured, unchanged or a conflict."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from leeway import __version__
from leeway.manifests.configuration import StoredManifest

from leeway_cli.errors import BadInputError

if TYPE_CHECKING:
    from leeway.manifests.reading import Written


CLUSTER = "cluster.leeway.sh"


class Change(StrEnum):
    """The result for a manifest, as kubectl names it."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change of a manifest from `before` to `after`. `conflict` is the reason why it must not be
    made."""

    change: Change
    title: str
    before: StoredManifest | None
    after: StoredManifest | None
    conflict: str = ""


def plan_change(
    written: "Written", stored: Sequence[StoredManifest], now: datetime
) -> PlannedChange:
    """Compare a manifest with the stored manifests of its cluster."""
    resource, namespace, name = written.kind.resource, written.namespace, written.name
    before = find(stored, resource, namespace, name)
    planned = plan_body(before, resource, name, written.body, now, namespace, written.original)
    expected = written.manifest.metadata.resource_version
    if expected is None or planned.change is Change.UNCHANGED:
        return planned
    if before is None:
        return replace(planned, conflict=f"resourceVersion {expected} was deleted")
    if expected != str(before.version):
        changed = f"resourceVersion {expected} was replaced by {before.version}"
        return replace(planned, conflict=changed)
    return planned


def plan_body(
    before: StoredManifest | None,
    resource: str,
    name: str,
    body: str,
    now: datetime,
    namespace: str = "",
    original: str = "",
) -> PlannedChange:
    """Compare the JSON of a manifest with the stored one. `original` is the JSON that `body` was
    converted from, empty if it was not."""
    if (
        before is not None
        and _same(before.body, body)
        and _same(before.as_written, original or body)
    ):
        return PlannedChange(Change.UNCHANGED, before.title, before, before)
    after = StoredManifest(
        resource=resource,
        namespace=namespace,
        name=name,
        body=body,
        # Not 1: a version that was read before a deletion must not match the new manifest.
        version=before.version + 1 if before else int(now.timestamp() * 1000),
        written_by=__version__,
        written_at=now,
        original=original,
    )
    change = Change.CONFIGURED if before else Change.CREATED
    return PlannedChange(change, after.title, before, after)


def _same(stored: str, body: str) -> bool:
    try:
        return bool(json.loads(stored) == json.loads(body))
    except ValueError:
        return False  # the stored manifest is damaged


def find(
    stored: Iterable[StoredManifest], resource: str, namespace: str, name: str
) -> StoredManifest | None:
    """Find a manifest among the stored ones."""
    wanted = (resource, namespace, name)
    return next((s for s in stored if (s.resource, s.namespace, s.name) == wanted), None)


def check_names(written: Iterable["Written"], cluster: str) -> None:
    """Check that a manifest of the whole cluster has the cluster's name.

    Raises:
        BadInputError: a manifest has the name of another cluster.
    """
    for one in written:
        if one.kind.singleton and one.name != cluster:
            raise BadInputError(
                f"{one.source}:{one.line}: metadata.name: expected {cluster} (the option "
                f"--cluster), got {one.name}."
            )
