"""Builds `admit_node`."""

from functools import cache, partial

from leeway.admission.admit_node import STEP_RESULTS, AdmitNode
from leeway.admission.outcome import LoggedAdmissions
from leeway.aws.pool_records import DynamoPoolRecords
from leeway.wiring.clients import (
    client,
    clock,
    groups,
    instances,
    leeway_events,
    logger,
    metrics,
    prepare,
    records,
    settings,
)
from leeway.wiring.clusters import open_cluster


@cache
def admit_node() -> AdmitNode:
    """Build the use case."""
    return AdmitNode(
        admissions=records(),
        groups=groups(),
        types=instances(),
        instances=instances(),
        pools=DynamoPoolRecords(partial(client, "dynamodb"), settings().table),
        leeway_events=leeway_events(),
        open_cluster=open_cluster,
        telemetry=LoggedAdmissions(logger(), metrics()),
        clock=clock(),
    )


prepare(["dynamodb", "autoscaling", "ec2", "events"], STEP_RESULTS)
