"""Leeway's table in the sandbox's AWS, and manifests to put into it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leeway.aws.table import DynamoTable
from leeway.manifests.configuration import StoredManifest
from leeway_sandbox.template import parse_template

TABLE = "leeway"
WRITTEN_AT = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def create_table(dynamodb: Any) -> None:
    """Create the table with the keys and indexes of the template."""
    template = parse_template((Path(__file__).parents[2] / "template.yaml").read_text())
    properties = template["Resources"]["Table"]["Properties"]
    names = ("AttributeDefinitions", "BillingMode", "GlobalSecondaryIndexes", "KeySchema")
    dynamodb.create_table(TableName=TABLE, **{name: properties[name] for name in names})


def table_in(aws: Any, table: str = TABLE) -> DynamoTable:
    """Return a table of a sandbox."""
    return DynamoTable(lambda: aws.client("dynamodb"), table)


def manifest(name: str = "prod", version: int = 1, **changes: Any) -> StoredManifest:
    """Return a stored Cluster manifest; `changes` set its `spec` and its fields."""
    spec = changes.pop("spec", {})
    document = {
        "apiVersion": "leeway.sh/v1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": spec,
    }
    fields: dict[str, Any] = {
        "resource": "cluster.leeway.sh",
        "namespace": "",
        "body": json.dumps(document),
        "written_by": "0.1.0",
        "written_at": WRITTEN_AT,
    }
    return StoredManifest(name=name, version=version, **(fields | changes))
