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


class _NoSchedules:
    """The Schedules Protocol for lost events, which are all handled at once."""

    def put(self, name: str, at: datetime, event: Mapping[str, Any]) -> None:
        """Raise CloudRefused."""
        raise CloudRefused(f"{name}: a lost event cannot be scheduled for {at}")

    def remove(self, name: str) -> None:
        """Do nothing: there are no schedules."""


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
            receive_notice=reception_with(_NoSchedules()),
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
