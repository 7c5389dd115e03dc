"""Composes `retire_node`."""

import os
from functools import cache, partial

from leeway.aws.ec2 import Ec2Instances
from leeway.aws.provision_queue import SqsProvisionNodes
from leeway.aws.target_groups import LoadBalancerTargets
from leeway.capacity_requests import ProvisionNodes
from leeway.catalog.unavailable import UnavailableOfferings
from leeway.execution.shared_cache import SharedCache
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.kubernetes.surging import HttpSurgeWorkloads
from leeway.manifests.cluster import Cluster
from leeway.ports.aws import ClusterEndpoint
from leeway.retirement.context import Ports
from leeway.retirement.outcome import RetirementTelemetry
from leeway.retirement.retire_node import STEP_RESULTS
from leeway.wiring.clients import (
    FAIL_FAST_TRIES,
    client,
    clock,
    configuration,
    groups,
    leeway_events,
    logger,
    metrics,
    prepare,
    session,
    settings,
    table,
)
from leeway.wiring.clusters import connect, on_connections, opened


@cache
def _shared_cache() -> SharedCache:
    return SharedCache(table(), clock())


def _cluster_at(endpoint: ClusterEndpoint) -> HttpCluster:
    """Connect to a cluster. In a storm all executions share one count of its Ready nodes."""
    what = f"cluster/{endpoint.name}/ready"
    cache_count = partial(_shared_cache().get_or_read, what, int)
    return HttpCluster(connect(endpoint), clock(), cache_count=cache_count)


def _provision_nodes() -> ProvisionNodes | None:
    """Build the queue of provision_nodes; None if the stack has none."""
    url = settings().provision_queue
    # The drain waits for this call, and provision_nodes finds the request without it.
    return SqsProvisionNodes(partial(client, "sqs", tries=FAIL_FAST_TRIES), url) if url else None


@cache
def ports() -> Ports:
    """Build the ports of all retirements."""
    return Ports(
        open_cluster=opened(_cluster_at).get,
        open_workloads=on_connections(HttpSurgeWorkloads),
        clock=clock(),
        table=table(),
        policies=configuration(),
        groups=groups(),
        cache=_shared_cache(),
        # EC2 allows ten CreateTags per second: in a storm the drain does not wait for that.
        instances=Ec2Instances(partial(client, "ec2", tries=FAIL_FAST_TRIES)),
        events=leeway_events(),
        provision_nodes=_provision_nodes(),
        fast_table=table(tries=FAIL_FAST_TRIES),
        telemetry=RetirementTelemetry(logger(), metrics()),
        targets=LoadBalancerTargets(partial(client, "elbv2")),
        offerings=UnavailableOfferings(table()),
        region=str(session().region_name),
    )


_QUEUES = ["sqs"] if os.environ.get("LEEWAY_PROVISION_QUEUE") else []

prepare(
    ["dynamodb", "autoscaling", "events"],
    [*STEP_RESULTS, Cluster],
    fail_fast=["dynamodb", "ec2", *_QUEUES],
)
