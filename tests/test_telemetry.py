"""What is measured, where it is easily measured wrongly."""

import json
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics
from leeway.reconciliation.reconcile import ClusterReport
from leeway.telemetry import PowertoolsTelemetry


def told(*reports: ClusterReport) -> list[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
        patch.setenv("POWERTOOLS_SERVICE_NAME", "reconcile")
        patch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Leeway")
        PowertoolsTelemetry(Logger(), Metrics()).reconciled(reports)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return [line for line in lines if "_aws" in line]


def test_only_a_run_that_looked_at_a_cluster_tells_how_many_instances_it_has() -> None:
    tick = [line for line in told(ClusterReport("prod", instances=12)) if "Instances" in line]
    assert [(line["Cluster"], line["Instances"]) for line in tick] == [("prod", [12.0])]
    after_one_instance = told(ClusterReport("prod"))
    assert after_one_instance
    assert not any("Instances" in line for line in after_one_instance)
