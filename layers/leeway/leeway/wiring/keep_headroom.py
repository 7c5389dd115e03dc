"""Builds `keep_headroom`."""

from functools import cache, partial

from leeway.headroom.keep_headroom import HeadroomTelemetry, KeepHeadroom
from leeway.kubernetes.workloads import HttpWorkloads
from leeway.manifests.headroom import desired_headroom
from leeway.wiring.clients import clock, configuration, logger, metrics, prepare, settings, table
from leeway.wiring.clusters import on_connections


@cache
def keep_headroom() -> KeepHeadroom:
    """Build the use case."""
    return KeepHeadroom(
        desired=partial(desired_headroom, configuration()),
        count_invalid=configuration().faulty,
        table=table(),
        workloads_in=on_connections(HttpWorkloads),
        report=HeadroomTelemetry(logger(), metrics()).headroom_reconciled,
        clock=clock(),
    )


def clusters() -> tuple[str, ...]:
    """Return the names of the managed clusters."""
    return settings().clusters


prepare(["dynamodb", "eks"], [])
