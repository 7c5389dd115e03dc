"""The log lines and metrics of every feature, for the results with the most to report."""

import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from itertools import count
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics
from leeway.admission.outcome import AdmissionOutcome, AdmissionTelemetry
from leeway.admission.readiness import NODE_NOT_JOINED
from leeway.admission.record import AdmissionResult as Admission
from leeway.catalog.refresh import (
    CATALOG_PART_NOT_READ,
    CatalogRefresh,
    CatalogTelemetry,
    PartRefresh,
)
from leeway.headroom.keep_headroom import HeadroomReport, HeadroomTelemetry
from leeway.headroom.reasons import OBJECT_UNAVAILABLE
from leeway.headroom.reconciler import HeadroomStatus
from leeway.interruption.receive_notice import InstanceOutcome, NoticeOutcome, NoticeTelemetry
from leeway.interruption.receive_notice import NoticeResult as Became
from leeway.notices import NoticeKind
from leeway.notices.parse import parse_notice
from leeway.pod_watch.watch_pods import PodWatchTelemetry
from leeway.policy.rules import POLICY_ACTION
from leeway.provision_run import CATALOG_MISSING
from leeway.provisioning.receive_messages import MESSAGE_DROPPED
from leeway.provisioning.report import ProvisioningReport, ProvisioningTelemetry
from leeway.reconciliation.lost_events import EVENT_LOST
from leeway.reconciliation.report import (
    RECONCILE_INCOMPLETE,
    ClusterReport,
    HandledFinding,
    ReconciliationTelemetry,
)
from leeway.retirement.outcome import Outcome, RetirementResult, RetirementTelemetry
from leeway.retirement.reasons import (
    NODE_NOT_CORDONED,
    PODS_NOT_LISTED,
    REPLACEMENT_DECIDED,
    RETIREMENT_STARTED,
)
from leeway.selection.offers.survey import Part

from tests.retirement.retirements import FACTS, NOTICED


class AllTelemetry(
    NoticeTelemetry,
    RetirementTelemetry,
    AdmissionTelemetry,
    ReconciliationTelemetry,
    HeadroomTelemetry,
    CatalogTelemetry,
    PodWatchTelemetry,
    ProvisioningTelemetry,
):
    """Every feature's telemetry in one object."""


type Report = Callable[[AllTelemetry], None]

WARNING = {
    "version": "0",
    "id": "9b3f6a52-0d1c-4e7b-a7a4-51c6f2d0e8b3",
    "detail-type": "EC2 Spot Instance Interruption Warning",
    "source": "aws.ec2",
    "account": "123456789012",
    "time": "2026-11-20T09:45:12Z",
    "region": "us-east-1",
    "resources": [],
    "detail": {"instance-id": FACTS.instance, "instance-action": "terminate"},
}
RECEIPT = NoticeOutcome(
    parse_notice(WARNING),
    (
        InstanceOutcome(
            Became.STARTED,
            RETIREMENT_STARTED("The notice starts the first retirement of the instance."),
            FACTS.instance,
            FACTS.cluster,
            1,
        ),
    ),
)
DRAINED = Outcome(
    result=RetirementResult.DRAINED,
    instance=FACTS.instance,
    cluster=FACTS.cluster,
    node=FACTS.private_dns_name,
    kind=NoticeKind.SPOT_INTERRUPTION,
    attempt=1,
    reason=POLICY_ACTION(kind=NoticeKind.SPOT_INTERRUPTION, action="retire"),
    noticed_at=NOTICED,
    cordoned_at=NOTICED + timedelta(seconds=1),
    ended_at=NOTICED + timedelta(seconds=60),
    deadline=NOTICED + timedelta(seconds=115),
    replacement="detach",
    replacement_reason=REPLACEMENT_DECIDED(
        "The instance has left its group, and its successor is requested already."
    ),
    hooks=(),
    terminated=False,
    refused=(),
    pods=(),
)
LOCKED_OUT = replace(
    DRAINED,
    result=RetirementResult.INCOMPLETE,
    node="",
    cordoned_at=None,
    reason=NODE_NOT_CORDONED(
        "Leeway cannot cordon the node: ClusterRefused: 403: nodes is forbidden."
    ),
)
LEFT_BEHIND = replace(
    DRAINED,
    result=RetirementResult.INCOMPLETE,
    reason=PODS_NOT_LISTED("Leeway cannot list the pods of the node: 503."),
)
NOT_READY = AdmissionOutcome(
    result=Admission.NOT_READY,
    instance=FACTS.instance,
    cluster=FACTS.cluster,
    node="",
    attempt=1,
    reason=NODE_NOT_JOINED(),
    noticed_at=NOTICED,
    joined_at=None,
    ended_at=NOTICED + timedelta(minutes=15),
    deadline=NOTICED + timedelta(minutes=15),
    hooks=("leeway-admit",),
    refused=(),
)
PROBLEM = HeadroomStatus(
    "buffer a/b",
    "headroom.leeway.sh b",
    problem=OBJECT_UNAVAILABLE(error="500: a webhook does not answer"),
)
REPORT = ClusterReport(
    FACTS.cluster,
    instances=12,
    findings=[
        HandledFinding(
            FACTS.instance,
            EVENT_LOST(what="Instance i-1 waits for lifecycle hook leeway-drain"),
            "Leeway started attempt 1 again.",
        )
    ],
    problems=[RECONCILE_INCOMPLETE(what="read the nodes", error="the API server does not answer")],
)
REFRESHED = CatalogRefresh(
    "us-east-1",
    tuple(
        PartRefresh(
            part,
            1,
            CATALOG_PART_NOT_READ(part=part, region="us-east-1", error="AccessDenied: GetProducts"),
        )
        for part in Part
    ),
    40_000,
)
UNPROVISIONED = ProvisioningReport(
    FACTS.cluster,
    "2 pods are pending",
    CATALOG_MISSING(cluster=FACTS.cluster),
    pods=2,
    failures=(CATALOG_MISSING(cluster=FACTS.cluster),),
    retry=True,
)

REPORTS: dict[str, Report] = {
    "received": lambda telemetry: telemetry.received(RECEIPT),
    "retired": lambda telemetry: telemetry.retired(LOCKED_OUT),
    "admitted": lambda telemetry: telemetry.admitted(NOT_READY),
    "reconciled": lambda telemetry: telemetry.reconciled([REPORT], all_clusters=True),
    "headroom_reconciled": lambda telemetry: telemetry.headroom_reconciled(
        HeadroomReport(FACTS.cluster, problems=(PROBLEM,), replicas=3, invalid_manifests=1)
    ),
    "catalog_refreshed": lambda telemetry: telemetry.catalog_refreshed(REFRESHED),
    "watch_problems": lambda telemetry: telemetry.watch_problems(1),
    "provisioned": lambda telemetry: telemetry.provisioned(UNPROVISIONED),
    "dropped": lambda telemetry: telemetry.dropped(MESSAGE_DROPPED(problem="other")),
}
"""By the method of the telemetry: the report with the most metrics."""


_LOGGERS = count()


def lines_of(*reports: Report, service: str = "test") -> list[dict[str, Any]]:
    """Return the lines that a function with this name writes for some reports."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
        patch.setenv("POWERTOOLS_SERVICE_NAME", service)
        patch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Leeway")
        # Loggers with the same name share the stream of the first.
        logger = Logger(service=f"{service}-{next(_LOGGERS)}", stream=out)
        telemetry = AllTelemetry(logger, Metrics())
        for report in reports:
            report(telemetry)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def metrics_in(lines: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield every metric in the lines: its name, its dimensions, its value."""
    for line in lines:
        for directive in line.get("_aws", {}).get("CloudWatchMetrics", ()):
            for names in directive["Dimensions"]:
                for metric in directive["Metrics"]:
                    (value,) = line[metric["Name"]]
                    yield metric["Name"], {name: line[name] for name in names}, value
