"""Puts together `retire_node`."""

from functools import cache

from leeway.clock import SystemClock
from leeway.retirement import STEP_RESULTS, RetireNode
from leeway.wiring.clients import announcements, groups, instances, prepare, records, telemetry
from leeway.wiring.clusters import cluster_named


@cache
def retire_node() -> RetireNode:
    """Build the use case."""
    return RetireNode(
        records=records(),
        groups=groups(),
        instances=instances(),
        announcements=announcements(),
        cluster_named=cluster_named,
        telemetry=telemetry(),
        clock=SystemClock(),
    )


prepare(["dynamodb", "autoscaling", "ec2", "events"], STEP_RESULTS)
