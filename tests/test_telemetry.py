"""Log lines and metrics: values that are easily wrong, and the number of metrics, which costs."""

import json
import logging
from contextlib import redirect_stdout
from io import StringIO

import pytest
from leeway.costs import NodeCount, Returned
from leeway.execution.attempt import parse_attempt_id
from leeway.headroom.keep_headroom import HeadroomReport
from leeway.manifests.configuration import MANIFEST_INVALID, ManifestTelemetry
from leeway.manifests.in_cluster import MANIFESTS_HELD
from leeway.provision_run import CATALOG_MISSING
from leeway.provisioning.kept_objects import OBJECT_NOT_READABLE
from leeway.provisioning.report import ProvisioningReport
from leeway.reasons import Reason
from leeway.reconciliation.report import ClusterReport
from leeway.retirement.outcome import Outcome
from leeway.wiring.clients import log_execution, logger, metrics

from tests.log_lines import (
    DRAINED,
    LEFT_BEHIND,
    LOCKED_OUT,
    RECEIPT,
    REPORT,
    REPORTS,
    lines_of,
    metrics_in,
)

FORTY = [f"cluster-{number}" for number in range(40)]


def counted(name: str, outcome: Outcome) -> list[tuple[dict[str, str], float]]:
    lines = lines_of(lambda telemetry: telemetry.retired(outcome))
    return [(by, value) for metric, by, value in metrics_in(lines) if metric == name]


def test_only_a_run_of_all_clusters_counts_findings() -> None:
    full = lines_of(lambda telemetry: telemetry.reconciled([REPORT], all_clusters=True))
    assert {name for name, *_ in metrics_in(full)} == {"ClusterProblems", "MinorProblems"}
    single = lines_of(lambda telemetry: telemetry.reconciled([REPORT], all_clusters=False))
    assert {name for name, *_ in metrics_in(single)} == {"ClusterProblems"}


def test_planned_replacements_of_a_roll_are_logged_and_wake_nobody() -> None:
    begun = ClusterReport("prod", begun=REPORT.findings)
    (line,) = lines_of(lambda telemetry: telemetry.reconciled([begun], all_clusters=True))
    assert (line["level"], line["instance"]) == ("INFO", REPORT.findings[0].instance)


def test_nodes_and_returns_are_logged_as_dashboards_read_them() -> None:
    report = ClusterReport(
        "prod",
        counts=(NodeCount("leeway/web", 3, 0.5, 1.5, {"m5.large spot": 2, "c5.large spot": 1}),),
        returned={"Empty": Returned(2, 0.25)},
    )
    unknown = ClusterReport("prod", counts=(NodeCount("leeway/web", 1, 0.0, 0.0, {}),))
    (line,) = lines_of(lambda telemetry: telemetry.reconciled([unknown], all_clusters=False))
    assert line["message"] == "leeway/web has 1 node of unknown price."
    nodes, back = lines_of(lambda telemetry: telemetry.reconciled([report], all_clusters=True))
    assert nodes["message"] == "leeway/web has 3 nodes for 0.5000 USD per hour."
    assert nodes["types"] == "2 m5.large spot, 1 c5.large spot"
    assert (nodes["cluster"], nodes["on_demand_usd_per_hour"]) == ("prod", 1.5)
    assert back["message"] == "Empty: Leeway gave back 2 nodes of 0.2500 USD per hour."
    assert (back["cause"], back["given_back"], back["saved_usd_per_hour"]) == ("Empty", 2, 0.25)


def test_invalid_manifests_of_tenants_fill_no_log_and_page_nobody() -> None:
    bad = [MANIFEST_INVALID(problem=f"headroom {n}: no", author="") for n in range(60)]
    held = MANIFESTS_HELD(what="All", cluster="prod", first="nodepool/web", count=1)
    report = ClusterReport("prod", problems=[held], invalid_manifests=bad)
    lines = lines_of(lambda telemetry: telemetry.reconciled([report], all_clusters=True))
    warnings = [line["message"] for line in lines if line.get("level") == "WARNING"]
    assert warnings == [
        *(one.message for one in bad[:20]),
        "Leeway can't read 40 further manifests.",
    ]
    assert [line["code"] for line in lines if line.get("level") == "ERROR"] == ["ManifestsHeld"]
    counts = {name: value for name, _, value in metrics_in(lines)}
    assert counts == {"ClusterProblems": 1, "MinorProblems": 60}


def test_a_run_logs_a_limited_number_of_objects_that_cannot_be_read() -> None:
    bad = [OBJECT_NOT_READABLE(kind="Pod", name=f"shop/{n}", problem="spec") for n in range(60)]
    report = ProvisioningReport("prod", "test", bad[0], unreadable=tuple(bad))
    lines = lines_of(lambda telemetry: telemetry.provisioned(report))
    warnings = [line for line in lines if line.get("level") == "WARNING"]
    assert [line["code"] for line in warnings[:-1]] == ["ObjectNotReadable"] * 50
    assert warnings[-1]["message"] == "Leeway can't read 10 further objects."


def test_no_metric_has_a_dimension_with_many_values() -> None:
    by = {name for _, by, _ in metrics_in(lines_of(*REPORTS.values())) for name in by}
    assert by == {"service"}


def test_a_minute_without_problems_has_no_metric() -> None:
    quiet = lines_of(
        lambda t: t.reconciled(
            [ClusterReport(name, instances=9) for name in FORTY], all_clusters=True
        ),
        *(lambda t, name=name: t.headroom_reconciled(HeadroomReport(name)) for name in FORTY),
        lambda t: t.watch_problems(0),
        lambda t: t.provisioned(ProvisioningReport("prod", "test", CATALOG_MISSING(cluster="a"))),
        lambda t: t.retired(DRAINED),
        lambda t: t.received(RECEIPT),
    )
    assert list(metrics_in(quiet)) == []


def test_a_retirement_without_a_cordon_and_one_that_left_pods_are_counted_apart() -> None:
    assert counted("NodesNotCordoned", LOCKED_OUT) == [({"service": "leeway"}, 1.0)]
    assert counted("NodesNotCordoned", LEFT_BEHIND) == []


@pytest.mark.parametrize("outcome", [LOCKED_OUT, LEFT_BEHIND])
def test_a_retirement_with_a_problem_is_counted_for_an_alarm(
    outcome: Outcome,
) -> None:
    assert counted("RetirementProblems", outcome) == [({"service": "leeway"}, 1.0)]
    assert counted("RetirementProblems", DRAINED) == []


def test_a_line_about_a_retirement_names_instance_cluster_and_attempt() -> None:
    (line,) = [line for line in lines_of(REPORTS["retired"]) if "message" in line]
    assert line["level"] == "WARNING"
    assert {"instance", "cluster", "node", "kind", "result", "attempt"} <= line.keys()
    assert (line["code"], line["reason"]) == ("NodeDrainIncomplete", "NodeNotCordoned")


def test_the_lines_of_an_interruption_without_pods_are_a_few_kilobytes() -> None:
    lines = lines_of(REPORTS["received"], lambda telemetry: telemetry.retired(DRAINED))
    assert lines
    assert sum(len(str(line)) for line in lines) < 4_000


def test_an_error_of_the_durable_sdk_is_one_line_with_the_execution(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sdk_logger = logging.getLogger("aws_durable_execution_sdk_python")
    monkeypatch.setattr(sdk_logger, "handlers", [])
    monkeypatch.setattr(sdk_logger, "propagate", True)
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "retire_node_of_this_test")
    logger.cache_clear()
    log_execution("arn:…/retire-i-0b662ef9931388ba0-1/…")
    try:
        parse_attempt_id({"instance": "i-0b662ef9931388ba0", "cluster": "demo", "attempt": 0})
    except ValueError:
        logging.getLogger("aws_durable_execution_sdk_python.execution").exception("It failed")
    finally:
        logger.cache_clear()
    (line,) = capsys.readouterr().out.splitlines()
    logged = json.loads(line)
    assert (logged["level"], logged["message"]) == ("ERROR", "It failed")
    assert logged["execution"] == "arn:…/retire-i-0b662ef9931388ba0-1/…"
    assert "attempt" in logged["exception"]


def test_a_log_line_escapes_control_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "escapes")
    text = "\x1b[2J\x9b31m\u202e"
    with redirect_stdout(StringIO()) as written:
        ManifestTelemetry(logger.__wrapped__(), metrics()).manifest_problem(
            "prod", "headroom.leeway.sh a", Reason("ManifestInvalid", text)
        )
    line = written.getvalue().splitlines()[0]
    assert line.isascii()
    assert line.isprintable()
    assert text in json.loads(line).values()


CODES = {
    "admitted": {"NodeNotJoined"},
    "reconciled": {"EventLost", "ReconcileIncomplete"},
    "headroom_reconciled": {"HeadroomObjectUnavailable"},
    "catalog_refreshed": {"CatalogPartlyRefreshed", "CatalogPartNotRead"},
}
"""The reason codes in the log lines of each report."""


@pytest.mark.parametrize("name", CODES)
def test_every_log_line_has_the_code_of_its_reason(name: str) -> None:
    lines = [line for line in lines_of(REPORTS[name]) if "message" in line]
    assert lines
    assert {line["code"] for line in lines} == CODES[name]
    assert all(line["message"].endswith(".") for line in lines)
