"""What users wrote, in the table, by boto3.

Keys: `pk` = MANIFESTS#<cluster>, `sk` = <kind>.<group>#<namespace>/<name>. Nothing else is under
these keys, so that whoever may write manifests can write nothing else. The items have no attribute
`cluster`, and so stay out of the index `by-cluster`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.aws.query import query_partition
from leeway.manifests.ports import StoredManifest
from leeway.ports.table import RecordChanged


class DynamoManifests:
    """The StoredManifests Protocol; `client` makes boto3's DynamoDB client when first asked."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def of(self, cluster: str, resource: str = "") -> tuple[StoredManifest, ...]:
        """Read a cluster's manifests, all or those of a kind, as they are now: one Query, in as
        many pages as it takes."""
        prefix = f"{resource}#" if resource else ""
        items = query_partition(self._client(), self._table, _partition(cluster), prefix)
        return tuple(_read(item) for item in items)


class DynamoManifestWriting:
    """The ManifestWriting Protocol; `client` makes boto3's DynamoDB client when first asked."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def write(self, cluster: str, manifest: StoredManifest, replaces: int) -> None:
        """Write a manifest in place of the version that was read; 0 says that there was none.

        Raises:
            RecordChanged: the stored version is another one.
        """
        item = {
            **_key(cluster, manifest),
            "body": {"S": manifest.body},
            "version": {"N": str(manifest.version)},
            "written_by": {"S": manifest.written_by},
            "written_at": {"S": manifest.written_at.isoformat()},
        }
        with _locked(manifest):
            self._client().put_item(TableName=self._table, Item=item, **_unchanged(replaces))

    def delete(self, cluster: str, manifest: StoredManifest) -> None:
        """Delete this very version of a manifest.

        Raises:
            RecordChanged: the stored version is another one, or it is gone.
        """
        with _locked(manifest):
            self._client().delete_item(
                TableName=self._table, Key=_key(cluster, manifest), **_unchanged(manifest.version)
            )


@contextmanager
def _locked(manifest: StoredManifest) -> Iterator[None]:
    with aws_errors():
        try:
            yield
        except ClientError as error:
            if code_of(error) == "ConditionalCheckFailedException":
                raise RecordChanged(manifest.title) from error
            raise


def _key(cluster: str, manifest: StoredManifest) -> dict[str, Any]:
    sk = f"{manifest.resource}#{manifest.namespace}/{manifest.name}"
    return {"pk": {"S": _partition(cluster)}, "sk": {"S": sk}}


def _partition(cluster: str) -> str:
    return f"MANIFESTS#{cluster}"


def _unchanged(version: int) -> dict[str, Any]:
    """The condition that the stored version is this one; 0: that nothing is stored, or something
    without a version."""
    named = {"ExpressionAttributeNames": {"#version": "version"}}
    if version == 0:
        return {"ConditionExpression": "attribute_not_exists(#version)", **named}
    return {
        "ConditionExpression": "#version = :read",
        "ExpressionAttributeValues": {":read": {"N": str(version)}},
        **named,
    }


def _read(item: dict[str, Any]) -> StoredManifest:
    """Read an item. One that somebody has written by hand is a manifest all the same, though with
    an empty body it is one that nobody can make sense of: it must not hide the others, and a policy
    that is there must not count as none."""
    resource, _, rest = item["sk"]["S"].partition("#")
    namespace, _, name = rest.partition("/")
    version = item.get("version", {}).get("N", "0")
    return StoredManifest(
        resource=resource,
        namespace=namespace,
        name=name,
        body=item.get("body", {}).get("S", ""),
        version=int(version) if version.isdigit() else 0,
        written_by=item.get("written_by", {}).get("S", "nobody knows whom"),
        written_at=_moment(item.get("written_at", {}).get("S", "")),
    )


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
