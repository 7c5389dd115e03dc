"""Puts together `reconcile`."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache, partial
from typing import Any

from leeway.aws.index import DynamoIndex
from leeway.aws.sweep import Ec2Sweep
from leeway.aws.waiting_hooks import AutoScalingWaitingActions
from leeway.ports.aws import CloudRefused
from leeway.reconciliation.reconcile import Dependencies, ReconcileRequest, Reconciliation
from leeway.reconciliation.telemetry import ReconciliationTelemetry
from leeway.retirement.record import Retirement
from leeway.wiring.clients import (
    HASTY_TRIES,
    LISTS_WITHIN,
    TRIES,
    client,
    clock,
    configuration,
    groups,
    logger,
    metrics,
    prepare,
    records,
    settings,
)
from leeway.wiring.clusters import open_cluster
from leeway.wiring.reception import admissions, place, reception_with, retirements


class _NothingAhead:
    """The Schedules Protocol for notices of what is, none of which is to come weeks later."""

    def put(self, name: str, at: datetime, event: Mapping[str, Any]) -> None:
        """Refuse: what is found is made good now."""
        raise CloudRefused(f"{name}: what was found is not to be received again at {at}")

    def remove(self, name: str) -> None:
        """Do nothing: nothing was put."""


@cache
def reconciliation() -> Reconciliation:
    """Build the use case."""
    return Reconciliation(
        Dependencies(
            clusters=frozenset(settings().clusters),
            origin=place(),
            sweep=Ec2Sweep(partial(client, "ec2", answers_within=LISTS_WITHIN)),
            hasty_sweep=Ec2Sweep(partial(client, "ec2", tries=HASTY_TRIES)),
            waiting=AutoScalingWaitingActions(partial(client, "autoscaling", tries=TRIES)),
            groups=groups(),
            index=DynamoIndex(partial(client, "dynamodb"), settings().table),
            records=records(),
            policies=configuration(),
            receive_notice=reception_with(_NothingAhead()),
            retire_node=retirements(),
            admit_node=admissions(),
            open_cluster=open_cluster,
            clock=clock(),
        )
    )


@cache
def telemetry() -> ReconciliationTelemetry:
    """Build the telemetry of reconcile."""
    return ReconciliationTelemetry(logger(), metrics())


prepare(["dynamodb", "autoscaling", "ec2"], [ReconcileRequest, Retirement])
