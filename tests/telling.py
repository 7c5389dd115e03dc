"""What functions tell their telemetry, as it goes badly, and the lines that come of it."""

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
from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.readiness import AdmissionResult as Admission
from leeway.admission.telemetry import AdmissionTelemetry
from leeway.catalog.refresh import PartRead, Surveyed
from leeway.catalog.telemetry import CatalogTelemetry
from leeway.drain.reasons import PODS_NOT_LISTED
from leeway.headroom.keep_headroom import HeadroomReport
from leeway.headroom.status import HeadroomStatus
from leeway.headroom.telemetry import HeadroomTelemetry
from leeway.interruption.outcome import InstanceOutcome, NoticeOutcome
from leeway.interruption.outcome import NoticeResult as Became
from leeway.interruption.telemetry import NoticeTelemetry
from leeway.notices import NoticeKind
from leeway.notices.parse import parse_notice
from leeway.policy.reasons import POLICY_ACTION
from leeway.reconciliation.reconcile import ClusterReport, Found
from leeway.reconciliation.telemetry import ReconciliationTelemetry
from leeway.replacement.reasons import LEFT_GROUP
from leeway.retire_node.outcome import Outcome, RetirementResult
from leeway.retire_node.reasons import NODE_NOT_CORDONED
from leeway.retire_node.telemetry import RetirementTelemetry
from leeway.retirement.reasons import FIRST_NOTICE
from leeway.selection.offers.survey import Part

from tests.retirement.retirements import FACTS, NOTICED


class AllTelemetry(
    NoticeTelemetry,
    RetirementTelemetry,
    AdmissionTelemetry,
    ReconciliationTelemetry,
    HeadroomTelemetry,
    CatalogTelemetry,
):
    """Every feature's telemetry in one object."""


type Told = Callable[[AllTelemetry], None]

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
    (InstanceOutcome(Became.STARTED, FIRST_NOTICE(), FACTS.instance, FACTS.cluster, 1),),
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
    replacement_reason=LEFT_GROUP(),
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
    reason=NODE_NOT_CORDONED(error="ClusterRefused: 403: nodes is forbidden"),
)
LEFT_BEHIND = replace(
    DRAINED,
    result=RetirementResult.INCOMPLETE,
    reason=PODS_NOT_LISTED(error="503"),
)
NOT_READY = AdmissionOutcome(
    result=Admission.NOT_READY,
    instance=FACTS.instance,
    cluster=FACTS.cluster,
    node="",
    attempt=1,
    reason="no node has joined",
    asked_at=NOTICED,
    joined_at=None,
    ended_at=NOTICED + timedelta(minutes=15),
    deadline=NOTICED + timedelta(minutes=15),
    hooks=("leeway-admit",),
    refused=(),
)
PROBLEM = HeadroomStatus(
    "buffer a/b", "headroom.leeway.sh b", problem="500: a webhook does not answer"
)
REPORT = ClusterReport(
    FACTS.cluster,
    instances=12,
    found=[Found(FACTS.instance, "it waits, and nobody said so", "started")],
    problems=["the API server is away"],
)
SURVEYED = Surveyed(
    "us-east-1",
    tuple(PartRead(part, 1, "AccessDenied: pricing:GetProducts") for part in Part),
    40_000,
)

ALL: dict[str, Told] = {
    "received": lambda telemetry: telemetry.received(RECEIPT),
    "retired": lambda telemetry: telemetry.retired(LOCKED_OUT),
    "admitted": lambda telemetry: telemetry.admitted(NOT_READY),
    "reconciled": lambda telemetry: telemetry.reconciled([REPORT], of_all=True),
    "headroom_kept": lambda telemetry: telemetry.headroom_kept(
        HeadroomReport(FACTS.cluster, problems=(PROBLEM,), replicas=3, faulty=1)
    ),
    "surveyed": lambda telemetry: telemetry.surveyed(SURVEYED),
}
"""By the method of the telemetry; of each the case in which it has the most to count."""


_LOGGERS = count()


def lines_of(*told: Told, service: str = "test") -> list[dict[str, Any]]:
    """The lines that are written when a function of this name tells all this."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
        patch.setenv("POWERTOOLS_SERVICE_NAME", service)
        patch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Leeway")
        # A logger keeps the stream that the first of its name was given.
        logger = Logger(service=f"{service}-{next(_LOGGERS)}", stream=out)
        telemetry = AllTelemetry(logger, Metrics())
        for tell in told:
            tell(telemetry)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def metrics_in(lines: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Every metric in the lines: its name, its dimensions, its value."""
    for line in lines:
        for told in line.get("_aws", {}).get("CloudWatchMetrics", ()):
            for names in told["Dimensions"]:
                for metric in told["Metrics"]:
                    (value,) = line[metric["Name"]]
                    yield metric["Name"], {name: line[name] for name in names}, value
