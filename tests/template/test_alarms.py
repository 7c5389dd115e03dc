"""The template's alarms: each watches what is emitted, and the docs tell of all of them."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics
from leeway.headroom.kept import Kept
from leeway.reconciliation.reconcile import ClusterReport
from leeway.telemetry import PowertoolsTelemetry
from leeway.upkeep.keep_headroom import HeadroomReport

from tests.template.granted import resources
from tests.template.reached import ROOT, methods_named_by

type Watched = tuple[str, str, frozenset[str]]
"""Namespace and name of a metric, with its dimensions, each as `name=value`."""

FUNCTIONS = sorted(path.parent.name for path in (ROOT / "functions").glob("*/handler.py"))
ALARMS = {n: r for n, r in resources().items() if r["Type"] == "AWS::CloudWatch::Alarm"}

OF_AWS = {
    "AWS/Lambda": (
        "FunctionName",
        "AWS::Lambda::Function",
        {
            "AsyncEventAge",
            "DurableExecutionFailed",
            "DurableExecutionTimedOut",
            "Errors",
            "Throttles",
        },
    ),
    "AWS/SQS": ("QueueName", "AWS::SQS::Queue", {"ApproximateNumberOfMessagesVisible"}),
}
"""What AWS emits: by which dimension, of which resources, which metrics. Sources: AWS Lambda
Developer Guide, "Types of metrics for Lambda functions" and "Monitoring durable functions";
Amazon SQS Developer Guide, "Available CloudWatch metrics"."""

DONE_AGAIN = {"ReconcileFailures"}
"""Queues of runs whose work the next minute's run does."""

PROBLEM = Kept("buffer a/b", "headroom.leeway.sh b", problem="500: a webhook does not answer")
TOLD: dict[str, Callable[[PowertoolsTelemetry], None]] = {
    "headroom_kept": lambda telemetry: telemetry.headroom_kept(
        HeadroomReport("prod", problems=(PROBLEM,), faulty=1)
    ),
    "reconciled": lambda telemetry: telemetry.reconciled(
        [ClusterReport("prod", problems=["the API server is away"])]
    ),
}
"""What functions tell their telemetry, by the method that their code names."""


def watched_by(alarm: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The metrics that an alarm watches, each with its namespace, name and dimensions."""
    if "MetricName" in alarm:
        yield alarm
    for query in alarm.get("Metrics", ()):
        if "MetricStat" in query:
            yield query["MetricStat"]["Metric"]


def emitted_by(function: str) -> set[Watched]:
    """The metrics that a function emits, in the environment that the template gives it."""
    (environment,) = [
        r["Properties"]["Environment"]["Variables"]
        for r in resources().values()
        if r["Type"] == "AWS::Lambda::Function"
        and r["Properties"]["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] == function
    ]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
        for name in ("POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE"):
            patch.setenv(name, environment[name])
        telemetry = PowertoolsTelemetry(Logger(), Metrics())
        for method in sorted(methods_named_by(function) & TOLD.keys()):
            TOLD[method](telemetry)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return {
        (told["Namespace"], metric["Name"], frozenset(f"{d}={line[d]}" for d in dimensions))
        for line in lines
        for told in line.get("_aws", {}).get("CloudWatchMetrics", ())
        for metric in told["Metrics"]
        for dimensions in told["Dimensions"]
    }


@pytest.fixture(scope="module")
def emitted() -> set[Watched]:
    """What Leeway's functions emit."""
    return set().union(*(emitted_by(function) for function in FUNCTIONS))


@pytest.mark.parametrize("name", ALARMS)
def test_an_alarm_watches_metrics_that_are_emitted_with_these_dimensions(
    name: str, emitted: set[Watched]
) -> None:
    watched = list(watched_by(ALARMS[name]["Properties"]))
    assert watched
    for metric in watched:
        namespace, (dimension,) = metric["Namespace"], metric["Dimensions"]
        if namespace not in OF_AWS:
            said = frozenset({f"{dimension['Name']}={dimension['Value']}"})
            assert (namespace, metric["MetricName"], said) in emitted
            continue
        by, kind, names = OF_AWS[namespace]
        value = dimension["Value"]
        resource = value["Ref"] if "Ref" in value else value["Fn::GetAtt"][0]
        assert dimension["Name"] == by
        assert resources()[resource]["Type"] == kind
        assert metric["MetricName"] in names


def test_every_count_of_problems_is_watched_whatever_the_cluster(
    emitted: set[Watched],
) -> None:
    problems = {name for _, name, _ in emitted if "Problems" in name}
    watched = {m["MetricName"] for a in ALARMS.values() for m in watched_by(a["Properties"])}
    assert problems == {"HeadroomProblems", "ManifestProblems", "ReconcileProblems"}
    assert problems <= watched


def test_every_queue_of_what_nothing_does_again_is_watched() -> None:
    queues = {name for name, r in resources().items() if r["Type"] == "AWS::SQS::Queue"}
    watched = [m for a in ALARMS.values() for m in watched_by(a["Properties"])]
    named = {str(m["Dimensions"]) for m in watched if m["Namespace"] == "AWS/SQS"}
    unwatched = {queue for queue in queues if not any(f"'{queue}'" in said for said in named)}
    assert unwatched == DONE_AGAIN


@pytest.mark.parametrize("name", ALARMS)
def test_an_alarm_tells_the_topic_when_it_begins_and_when_it_is_over(name: str) -> None:
    told = {"Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    alarm = ALARMS[name]["Properties"]
    assert (alarm["AlarmActions"], alarm["OKActions"]) == (told, told)
    assert alarm["TreatMissingData"] == "notBreaching"


def test_the_docs_tell_of_every_alarm_and_of_no_other() -> None:
    section = (ROOT / "docs" / "deploy.md").read_text().partition("## When something goes wrong")[2]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+Alarm)`", row.split("|")[1])]
    assert sorted(named) == sorted(ALARMS)
