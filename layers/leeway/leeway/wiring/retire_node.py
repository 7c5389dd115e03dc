"""Puts together `retire_node`."""

from functools import cache, partial

from leeway.cloud.group_memory import DynamoGroupMemory
from leeway.cloud.ledgers import DynamoLedgers
from leeway.cloud.progress import DynamoDrainStates
from leeway.retirement import STEP_RESULTS, RetireNode, Surroundings
from leeway.wiring.clients import (
    announcements,
    client,
    clock,
    configuration,
    groups,
    instances,
    prepare,
    records,
    settings,
    telemetry,
)
from leeway.wiring.clusters import cluster_named


@cache
def retire_node() -> RetireNode:
    """Build the use case."""
    return RetireNode(
        Surroundings(
            records=records(),
            ledgers=DynamoLedgers(partial(client, "dynamodb"), settings().table),
            policies=configuration(),
            groups=groups(),
            group_memory=DynamoGroupMemory(partial(client, "dynamodb"), settings().table),
            instances=instances(),
            announcements=announcements(),
            cluster_named=cluster_named,
            drains=DynamoDrainStates(partial(client, "dynamodb", tries=2), settings().table),
            telemetry=telemetry(),
            clock=clock(),
        )
    )


prepare(["dynamodb", "autoscaling", "ec2", "events"], STEP_RESULTS)
