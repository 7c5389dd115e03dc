"""Reads what all clusters of the account and region share: instances, quotas, the catalog."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from leeway.aws.ec2 import PAGE
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.instances.owners import GROUP_TAG, POOL_TAG, cluster_of
from leeway.selection.offers.survey import UnknownForm, unpacked
from leeway.wiring.clients import LIST_READ_TIMEOUT, client

from leeway_cli.doctor.facts import CatalogFacts, InstanceUse


def instances() -> tuple[InstanceUse, ...]:
    """Read the instances of the account that count against its quotas: one call for a thousand."""
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    pages = client("ec2", read_timeout=LIST_READ_TIMEOUT).get_paginator("describe_instances")
    return tuple(
        _use(one)
        for page in pages.paginate(Filters=states, MaxResults=PAGE)
        for reservation in page["Reservations"]
        for one in reservation["Instances"]
    )


def _use(described: Mapping[str, Any]) -> InstanceUse:
    tags = {tag["Key"]: tag["Value"] for tag in described.get("Tags", [])}
    options = described.get("CpuOptions", {})
    return InstanceUse(
        instance_type=described["InstanceType"],
        market="spot" if described.get("InstanceLifecycle") == "spot" else "on-demand",
        vcpus=int(options.get("CoreCount") or 1) * int(options.get("ThreadsPerCore") or 1),
        group=tags.get(GROUP_TAG, ""),
        cluster=cluster_of(tags) or "",
        pool=tags.get(POOL_TAG, ""),
    )


def ec2_quotas() -> Mapping[str, float]:
    """Read EC2's quotas by their codes."""
    return {one["QuotaCode"]: float(one["Value"]) for one in _quotas()}


def _quotas() -> Iterator[Mapping[str, Any]]:
    pages = client("service-quotas").get_paginator("list_service_quotas")
    for page in pages.paginate(ServiceCode="ec2"):
        yield from page["Quotas"]


def catalog(table: str, region: str) -> CatalogFacts:
    """Read when each part of the stored catalog was read."""
    packed = DynamoTable(partial(client, "dynamodb"), table).get(SURVEY, region=region)
    if packed is None:
        return CatalogFacts(None)
    try:
        return CatalogFacts({part.value: at for part, at in unpacked(packed).read_at.items()})
    except UnknownForm:
        return CatalogFacts(None)
