"""Puts together `retire_node`."""

from functools import cache, partial

from leeway.aws.disruption_ledger import DynamoDisruptionLedgers
from leeway.aws.drain_states import DynamoDrainStates
from leeway.aws.ec2 import Ec2Instances
from leeway.aws.shared_cache import DynamoSharedCache
from leeway.aws.unavailable_offerings import DynamoUnavailableOfferings
from leeway.execution.shared_cache import SharedCache
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.lightkube_cluster import LightkubeCluster
from leeway.retire_node.dependencies import Dependencies
from leeway.retire_node.retire_node import RetireNode
from leeway.retire_node.step_results import STEP_RESULTS
from leeway.retire_node.telemetry import RetirementTelemetry
from leeway.retirement.step_context import StepContext
from leeway.wiring.clients import (
    HASTY_TRIES,
    announcements,
    client,
    clock,
    configuration,
    groups,
    logger,
    metrics,
    prepare,
    records,
    session,
    settings,
)
from leeway.wiring.clusters import connection_to


@cache
def _shared_cache() -> SharedCache:
    return SharedCache(DynamoSharedCache(partial(client, "dynamodb"), settings().table), clock())


def _open_cluster(name: str) -> LightkubeCluster:
    """Open a cluster's nodes and pods, once for each connection to it. In a storm its nodes are
    counted once for all that retire."""
    return _cluster_on(connection_to(name), name)


@cache
def _cluster_on(connection: Connection, name: str) -> LightkubeCluster:
    counted = partial(_shared_cache().get_or_read, f"cluster/{name}/ready", int)
    return LightkubeCluster(connection, clock(), for_all=counted)


@cache
def retire_node() -> RetireNode:
    """Build the use case."""
    return RetireNode(
        Dependencies(
            context=StepContext(records(), _open_cluster, clock()),
            ledgers=DynamoDisruptionLedgers(partial(client, "dynamodb"), settings().table),
            policies=configuration(),
            groups=groups(),
            cache=_shared_cache(),
            # EC2 allows ten tags a second: in a storm nobody waits for that before the pods go.
            instances=Ec2Instances(partial(client, "ec2", tries=HASTY_TRIES)),
            events=announcements(),
            drains=DynamoDrainStates(
                partial(client, "dynamodb", tries=HASTY_TRIES), settings().table
            ),
            telemetry=RetirementTelemetry(logger(), metrics()),
            offerings=DynamoUnavailableOfferings(partial(client, "dynamodb"), settings().table),
            region=str(session().region_name),
        )
    )


prepare(["dynamodb", "autoscaling", "events"], STEP_RESULTS, hasty=["dynamodb", "ec2"])
