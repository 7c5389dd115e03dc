"""What is measured: where it is easily measured wrongly, and what it costs."""

import json
import logging
from contextlib import redirect_stdout
from io import StringIO

import pytest
from leeway.execution.attempt import parse_attempt_id
from leeway.headroom.keep_headroom import HeadroomReport
from leeway.manifests.telemetry import ManifestTelemetry
from leeway.reconciliation.reconcile import ClusterReport
from leeway.retire_node.outcome import Outcome
from leeway.wiring.clients import log_execution, logger, metrics

from tests.telling import ALL, DRAINED, LEFT_BEHIND, LOCKED_OUT, lines_of, metrics_in

FORTY = [f"cluster-{number}" for number in range(40)]


def counted(name: str, outcome: Outcome) -> list[tuple[dict[str, str], float]]:
    told = lines_of(lambda telemetry: telemetry.retired(outcome))
    return [(by, value) for metric, by, value in metrics_in(told) if metric == name]


def test_only_a_run_that_looked_at_a_cluster_tells_how_many_instances_it_has() -> None:
    tick = lines_of(
        lambda telemetry: telemetry.reconciled([ClusterReport("prod", instances=12)], of_all=True)
    )
    told = [(by["Cluster"], value) for name, by, value in metrics_in(tick) if name == "Instances"]
    assert told == [("prod", 12.0)]
    after_one_instance = lines_of(lambda t: t.reconciled([ClusterReport("prod")], of_all=False))
    assert {name for name, *_ in metrics_in(after_one_instance)} == {"ReconcileProblems"}


def test_a_run_of_all_clusters_counts_once_though_there_are_none() -> None:
    told = lines_of(lambda telemetry: telemetry.reconciled([], of_all=True))
    assert [(by, value) for name, by, value in metrics_in(told) if name == "NoticesFound"] == [
        ({"service": "test"}, 0.0)
    ]


def test_no_metric_is_by_instance_pod_or_anything_else_that_there_are_many_of() -> None:
    by = {name for _, by, _ in metrics_in(lines_of(*ALL.values())) for name in by}
    assert by == {"service", "Cluster", "Kind", "Result"}


def test_forty_clusters_with_nothing_to_say_pay_for_one_metric_each() -> None:
    quiet = lines_of(
        lambda t: t.reconciled([ClusterReport(name, instances=9) for name in FORTY], of_all=True),
        *(lambda t, name=name: t.headroom_kept(HeadroomReport(name)) for name in FORTY),
    )
    metrics = {(name, *by.values()) for name, by, _ in metrics_in(quiet)}
    assert len([name for name, *_ in metrics if name == "Instances"]) == len(FORTY)
    assert {name for name, *_ in metrics} == {"Instances", "NoticesFound", "ReconcileProblems"}
    assert len(metrics) == len(FORTY) + 2


def test_a_retirement_that_could_not_even_cordon_is_told_apart_from_one_that_left_pods() -> None:
    (locked_out,) = counted("NodesNotCordoned", LOCKED_OUT)
    (left_behind,) = counted("NodesNotCordoned", LEFT_BEHIND)
    assert (locked_out, left_behind) == (({"service": "test"}, 1.0), ({"service": "test"}, 0.0))


@pytest.mark.parametrize("outcome", [LOCKED_OUT, LEFT_BEHIND])
def test_a_retirement_that_somebody_should_look_at_is_counted_for_an_alarm(
    outcome: Outcome,
) -> None:
    assert counted("RetirementProblems", outcome) == [({"service": "test"}, 1.0)]
    assert counted("RetirementProblems", DRAINED) == []


def test_a_line_about_a_retirement_names_instance_cluster_and_attempt() -> None:
    said = [line for line in lines_of(ALL["retired"]) if "message" in line]
    (line,) = said
    assert line["level"] == "WARNING"
    assert {"instance", "cluster", "node", "kind", "result", "attempt"} <= line.keys()
    assert (line["code"], line["reason"]) == ("NodeDrainIncomplete", "NodeNotCordoned")


def test_all_that_an_interruption_logs_beside_its_pods_is_a_few_kilobytes() -> None:
    told = lines_of(ALL["received"], lambda telemetry: telemetry.retired(DRAINED))
    assert sum(len(str(line)) for line in told) < 4_000


def test_what_fails_in_the_durable_sdk_is_told_in_one_line_that_names_the_execution(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_the_sdk = logging.getLogger("aws_durable_execution_sdk_python")
    monkeypatch.setattr(of_the_sdk, "handlers", [])
    monkeypatch.setattr(of_the_sdk, "propagate", True)
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
    told = json.loads(line)
    assert (told["level"], told["message"]) == ("ERROR", "It failed")
    assert told["execution"] == "arn:…/retire-i-0b662ef9931388ba0-1/…"
    assert "attempt" in told["exception"]


def test_a_log_line_shows_what_a_terminal_would_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "others-text")
    said = "\x1b[2J\x9b31m\u202e"
    with redirect_stdout(StringIO()) as written:
        ManifestTelemetry(logger.__wrapped__(), metrics()).misconfigured(
            "prod", "headroom.leeway.sh a", said
        )
    line = written.getvalue().splitlines()[0]
    assert line.isascii()
    assert line.isprintable()
    assert said in json.loads(line).values()
