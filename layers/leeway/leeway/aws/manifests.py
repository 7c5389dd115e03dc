"""The stored manifests of users in the table, by boto3.

Keys: `pk` = MANIFESTS#<cluster>, `sk` = <kind>.<group>#<namespace>/<name>. These keys hold nothing
else, so the right to write manifests is a right to write nothing else. The items have no attribute
`cluster`, so they are not in the index `by-cluster`.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from leeway.aws.errors import conditional_write
from leeway.aws.query import query_partition
from leeway.manifests.configuration import POOL, StoredManifest

DELETED_KEPT_FOR = timedelta(days=30)
"""How long the table keeps when a pool was deleted."""


class DynamoManifests:
    """The StoredManifests Protocol; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def of(
        self, cluster: str, resource: str = "", deleted: bool = False
    ) -> tuple[StoredManifest, ...]:
        """Read a cluster's manifests, of all kinds or of one, by a consistent Query. With
        `deleted`, also the deleted ones."""
        prefix = f"{resource}#" if resource else ""
        items = query_partition(self._client(), self._table, _partition(cluster), prefix)
        found = map(_read, items)
        return tuple(one for one in found if deleted or one.deleted_at is None)


class DynamoManifestWriting:
    """Changes manifests; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def write(self, cluster: str, manifest: StoredManifest, replaces: int) -> None:
        """Write a manifest if version `replaces` is stored; 0 means that none is stored.

        Raises:
            RecordChanged: another version is stored.
        """
        item = {
            **_key(cluster, manifest),
            "body": {"S": manifest.body},
            "version": {"N": str(manifest.version)},
            "written_by": {"S": manifest.written_by},
            "written_at": {"S": manifest.written_at.isoformat()},
            **({"original": {"S": manifest.original}} if manifest.original else {}),
        }
        with conditional_write(manifest.title):
            self._client().put_item(TableName=self._table, Item=item, **_unchanged(replaces))

    def delete(self, cluster: str, manifest: StoredManifest) -> None:
        """Delete a manifest if its version is stored. Of a pool, the time of the deletion stays:
        its nodes go only if somebody has deleted it, and not if it cannot be found.

        Raises:
            RecordChanged: another version is stored, or none.
        """
        unchanged = _unchanged(manifest.version)
        if manifest.resource != POOL:
            with conditional_write(manifest.title):
                self._client().delete_item(
                    TableName=self._table, Key=_key(cluster, manifest), **unchanged
                )
            return
        now = datetime.now(UTC)
        item = {
            **_key(cluster, manifest),
            "deleted_at": {"S": now.isoformat()},
            "expires": {"N": str(int((now + DELETED_KEPT_FOR).timestamp()))},
        }
        with conditional_write(manifest.title):
            self._client().put_item(TableName=self._table, Item=item, **unchanged)


def _key(cluster: str, manifest: StoredManifest) -> dict[str, Any]:
    sk = f"{manifest.resource}#{manifest.namespace}/{manifest.name}"
    return {"pk": {"S": _partition(cluster)}, "sk": {"S": sk}}


def _partition(cluster: str) -> str:
    return f"MANIFESTS#{cluster}"


def _unchanged(version: int) -> dict[str, Any]:
    """Return the condition that this version is stored. Version 0: no item is stored, or an item
    without a version."""
    names = {"ExpressionAttributeNames": {"#version": "version"}}
    if version == 0:
        return {"ConditionExpression": "attribute_not_exists(#version)", **names}
    return {
        "ConditionExpression": "#version = :read",
        "ExpressionAttributeValues": {":read": {"N": str(version)}},
        **names,
    }


def _read(item: dict[str, Any]) -> StoredManifest:
    """Translate an item. An item that was written by hand may lack attributes: it is returned with
    an empty body, which validation rejects. It must not hide the other manifests, and a stored
    policy must not count as missing."""
    resource, _, rest = item["sk"]["S"].partition("#")
    namespace, _, name = rest.partition("/")
    version = item.get("version", {}).get("N", "0")
    return StoredManifest(
        resource=resource,
        namespace=namespace,
        name=name,
        body=item.get("body", {}).get("S", ""),
        version=int(version) if version.isdigit() else 0,
        written_by=item.get("written_by", {}).get("S", "unknown"),
        written_at=_time(item.get("written_at", {}).get("S", "")),
        deleted_at=_deleted_at(item.get("deleted_at", {}).get("S", "")),
        original=item.get("original", {}).get("S", ""),
    )


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)


def _deleted_at(text: str) -> datetime | None:
    """Translate the time of a deletion. A text that is no time deletes nothing."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None
