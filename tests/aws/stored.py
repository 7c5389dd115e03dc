"""Leeway's table in the sandbox's AWS, and manifests to put into it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leeway.manifests.ports import StoredManifest
from samtranslator.yaml_helper import yaml_parse

TABLE = "leeway"
WRITTEN_AT = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def create_table(dynamodb: Any) -> None:
    """The table, with its keys and indexes, as the template has it."""
    template = yaml_parse((Path(__file__).parents[2] / "template.yaml").read_text())
    properties = template["Resources"]["Table"]["Properties"]
    asked = ("AttributeDefinitions", "BillingMode", "GlobalSecondaryIndexes", "KeySchema")
    dynamodb.create_table(TableName=TABLE, **{name: properties[name] for name in asked})


def manifest(name: str = "prod", version: int = 1, **more: Any) -> StoredManifest:
    """A Cluster manifest as it is stored; `spec` and others may be told."""
    spec = more.pop("spec", {})
    document = {
        "apiVersion": "leeway.sh/v1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": spec,
    }
    told: dict[str, Any] = {
        "resource": "cluster.leeway.sh",
        "namespace": "",
        "body": json.dumps(document),
        "written_by": "0.1.0",
        "written_at": WRITTEN_AT,
    }
    return StoredManifest(name=name, version=version, **(told | more))
