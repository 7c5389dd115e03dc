"""Builds `watch_pods`."""

import os
from functools import cache, partial
from uuid import uuid4

from leeway.aws.provision_queue import SqsProvisionNodes
from leeway.kubernetes.watches import manifest_watches, pod_watches
from leeway.pod_watch.watch_pods import Lease, PodWatchTelemetry, WatchPods, mode_of
from leeway.wiring.clients import (
    client,
    clock,
    configuration,
    logger,
    metrics,
    prepare,
    settings,
    table,
)
from leeway.wiring.clusters import connections


@cache
def watch_pods() -> WatchPods:
    """Build the use case."""
    queue = os.environ["LEEWAY_PROVISION_QUEUE"]
    return WatchPods(
        mode_of=partial(mode_of, configuration(), table()),
        watches=pod_watches(connections().get),
        of_manifests=manifest_watches(connections().get),
        table=table(),
        provisioning=SqsProvisionNodes(partial(client, "sqs"), queue),
        telemetry=PodWatchTelemetry(logger(), metrics()),
        clock=clock(),
        new_id=lambda: uuid4().hex,
    )


def clusters() -> tuple[str, ...]:
    """Return the names of the managed clusters."""
    return settings().clusters


prepare(["dynamodb", "eks", "sqs"], [Lease])
