"""Puts together `retire_node`."""

from functools import cache, partial

from leeway.clock import SystemClock
from leeway.cloud.dynamodb import RememberedClusters
from leeway.cloud.eks import EksClusters
from leeway.cloud.eventbridge import EventBridgeAnnouncements
from leeway.cluster.eks import eks_connection
from leeway.cluster.lightkube_cluster import LightkubeCluster
from leeway.cluster.ports import Cluster
from leeway.retirement import STEP_RESULTS, RetireNode
from leeway.wiring.clients import (
    client,
    groups,
    instances,
    prepare,
    records,
    session,
    settings,
    telemetry,
)


@cache
def _cluster_named(name: str) -> Cluster:
    """Open an EKS cluster's API, once per warm function."""
    clusters = RememberedClusters(
        partial(client, "dynamodb"), settings().table, EksClusters(partial(client, "eks"))
    )
    return LightkubeCluster(eks_connection(clusters.endpoint(name), session()))


@cache
def retire_node() -> RetireNode:
    """Build the use case."""
    return RetireNode(
        records=records(),
        groups=groups(),
        instances=instances(),
        announcements=EventBridgeAnnouncements(partial(client, "events")),
        cluster_named=_cluster_named,
        telemetry=telemetry(),
        clock=SystemClock(),
    )


prepare(["dynamodb", "autoscaling", "ec2", "events"], STEP_RESULTS)
