"""Builds `reconcile`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any

from leeway.aws.autoscaling import AutoScalingWaitingActions
from leeway.aws.ec2 import Ec2Sweep
from leeway.aws.fleets import Ec2LaunchTemplates
from leeway.aws.group_templates import AwsGroupTemplates
from leeway.catalog.stored import StoredCatalog
from leeway.costs import CostRecorder, prices_of
from leeway.kubernetes.custom_resources import HttpClusterApi
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.kubernetes.requested import read_use
from leeway.kubernetes.surging import HttpSurgeWorkloads
from leeway.kubernetes.transport import within
from leeway.manifests.in_cluster import COPY_FOR, ManifestCopies
from leeway.ports.aws import CloudRefused
from leeway.reasons import Reason
from leeway.reconciliation.group_rolls import GroupRolls
from leeway.reconciliation.left_launches import LeftLaunches
from leeway.reconciliation.reconcile import Dependencies, ReconcileRequest, Reconciliation
from leeway.reconciliation.report import ReconciliationTelemetry
from leeway.retirement.record import Retirement
from leeway.wiring.clients import (
    DEFAULT_TRIES,
    FAIL_FAST_TRIES,
    LIST_READ_TIMEOUT,
    client,
    clock,
    configuration,
    groups,
    logger,
    metrics,
    prepare,
    session,
    settings,
    table,
)
from leeway.wiring.clusters import connections, on_connections
from leeway.wiring.notices import admissions, event_origin, receive_notice_with, retirements


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
            origin=event_origin(),
            sweep=Ec2Sweep(partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT)),
            hasty_sweep=Ec2Sweep(partial(client, "ec2", tries=FAIL_FAST_TRIES)),
            waiting=AutoScalingWaitingActions(partial(client, "autoscaling", tries=DEFAULT_TRIES)),
            groups=groups(),
            table=table(),
            policies=configuration(),
            receive_notice=receive_notice_with(_NoSchedules()),
            retire_node=retirements(),
            admit_node=admissions(),
            launches=_launches(),
            group_rolls=_group_rolls(),
            copy_manifests=_copy_manifests,
            record_costs=_costs().record,
            open_cluster=on_connections(lambda one: HttpCluster(one, clock())),
            open_workloads=on_connections(HttpSurgeWorkloads),
            clock=clock(),
        )
    )


def _copy_manifests(cluster: str) -> tuple[Sequence[Reason], Reason | None]:
    with within(COPY_FOR.total_seconds()):
        copies = ManifestCopies(table(), on_connections(HttpClusterApi), clock())
        copied = copies.copy(cluster)
    return (copied.problems, copied.held) if copied else ((), None)


def _costs() -> CostRecorder:
    catalog = StoredCatalog(table(), str(session().region_name), clock())
    return CostRecorder(
        table(),
        lambda: prices_of(catalog.read()),
        lambda cluster, labels: read_use(connections().get(cluster), labels),
        clock(),
    )


def _group_rolls() -> GroupRolls:
    templates = AwsGroupTemplates(
        partial(client, "autoscaling", tries=DEFAULT_TRIES),
        partial(client, "ec2", tries=DEFAULT_TRIES),
        partial(client, "ssm", tries=DEFAULT_TRIES),
    )
    return GroupRolls(table(), templates, groups(), retirements(), clock())


def _launches() -> LeftLaunches:
    return LeftLaunches(
        table=table(),
        admit_node=admissions(),
        retire_node=retirements(),
        templates=Ec2LaunchTemplates(partial(client, "ec2", tries=DEFAULT_TRIES)),
        clock=clock(),
    )


@cache
def telemetry() -> ReconciliationTelemetry:
    """Build the telemetry of reconcile."""
    return ReconciliationTelemetry(logger(), metrics())


prepare(["dynamodb", "autoscaling", "ec2"], [ReconcileRequest, Retirement])
