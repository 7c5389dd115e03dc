"""Puts together `retire_node`."""

from functools import cache, partial

from leeway.cloud.ec2 import Ec2Instances
from leeway.cloud.ledgers import DynamoLedgers
from leeway.cloud.memory import DynamoMemory
from leeway.cloud.progress import DynamoDrainStates
from leeway.cloud.unavailable import DynamoUnavailableOfferings
from leeway.cluster.connection import Connection
from leeway.cluster.lightkube_cluster import LightkubeCluster
from leeway.retirement.recollection import Recollection
from leeway.retirement.results import STEP_RESULTS
from leeway.retirement.retire_node import RetireNode
from leeway.retirement.surroundings import Surroundings
from leeway.wiring.clients import (
    HASTY_TRIES,
    announcements,
    client,
    clock,
    configuration,
    groups,
    prepare,
    records,
    session,
    settings,
    telemetry,
)
from leeway.wiring.clusters import connection_to


@cache
def _recollection() -> Recollection:
    return Recollection(DynamoMemory(partial(client, "dynamodb"), settings().table), clock())


def _cluster_named(name: str) -> LightkubeCluster:
    """Open a cluster's nodes and pods, once for each connection to it. In a storm its nodes are
    counted once for all that retire."""
    return _cluster_on(connection_to(name), name)


@cache
def _cluster_on(connection: Connection, name: str) -> LightkubeCluster:
    counted = partial(_recollection().recall, f"cluster/{name}/ready", int)
    return LightkubeCluster(connection, clock(), for_all=counted)


@cache
def retire_node() -> RetireNode:
    """Build the use case."""
    return RetireNode(
        Surroundings(
            records=records(),
            ledgers=DynamoLedgers(partial(client, "dynamodb"), settings().table),
            policies=configuration(),
            groups=groups(),
            recollection=_recollection(),
            # EC2 allows ten tags a second: in a storm nobody waits for that before the pods go.
            instances=Ec2Instances(partial(client, "ec2", tries=HASTY_TRIES)),
            announcements=announcements(),
            cluster_named=_cluster_named,
            drains=DynamoDrainStates(
                partial(client, "dynamodb", tries=HASTY_TRIES), settings().table
            ),
            telemetry=telemetry(),
            clock=clock(),
            offerings=DynamoUnavailableOfferings(partial(client, "dynamodb"), settings().table),
            region=str(session().region_name),
        )
    )


prepare(["dynamodb", "autoscaling", "events"], STEP_RESULTS, hasty=["dynamodb", "ec2"])
