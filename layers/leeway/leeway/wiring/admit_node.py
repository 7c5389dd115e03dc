"""Builds `admit_node`."""

from functools import cache

from leeway.admission.admit_node import STEP_RESULTS, AdmitNode
from leeway.admission.outcome import AdmissionTelemetry
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.wiring.clients import (
    clock,
    groups,
    instances,
    leeway_events,
    logger,
    metrics,
    prepare,
    table,
)
from leeway.wiring.clusters import on_connections


@cache
def admit_node() -> AdmitNode:
    """Build the use case."""
    return AdmitNode(
        table=table(),
        groups=groups(),
        types=instances(),
        instances=instances(),
        leeway_events=leeway_events(),
        open_cluster=on_connections(lambda one: HttpCluster(one, clock())),
        telemetry=AdmissionTelemetry(logger(), metrics()),
        clock=clock(),
    )


prepare(["dynamodb", "autoscaling", "ec2", "events"], STEP_RESULTS)
