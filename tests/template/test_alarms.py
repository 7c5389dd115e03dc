"""Each alarm of the template watches an emitted metric and has a section in the runbook."""

import re

import pytest

from tests.log_lines import REPORTS, lines_of, metrics_in
from tests.template.granted import resources
from tests.template.reached import ROOT, reports_reached_by
from tests.template.translation import translated

type Watched = tuple[str, str, frozenset[str]]
"""The namespace and name of a metric with its dimensions (`name=value`)."""

FUNCTIONS = sorted(path.parent.name for path in (ROOT / "functions").glob("*/handler.py"))
ALARMS = {n: r for n, r in resources().items() if r["Type"] == "AWS::CloudWatch::Alarm"}

OF_AWS = {
    "AWS/Lambda": (
        "FunctionName",
        "AWS::Lambda::Function",
        {
            "AsyncEventAge",
            "Errors",
            "Throttles",
        },
    ),
    "AWS/SQS": (
        "QueueName",
        "AWS::SQS::Queue",
        {"ApproximateAgeOfOldestMessage", "ApproximateNumberOfMessagesVisible"},
    ),
}
"""The metrics that AWS emits, by dimension and resource. Sources: AWS Lambda Developer Guide,
"Types of metrics for Lambda functions" and "Monitoring durable functions"; Amazon SQS Developer
Guide, "Available CloudWatch metrics"."""

DONE_AGAIN = {"ProvisionFailures", "ReconcileFailures"}
"""Queues whose work the run of the next minute repeats."""

CAN_WAIT = {
    "CatalogNotRefreshedAlarm",
    "MinorProblemsAlarm",
    "RetirementProblemsAlarm",
}
"""Alarms that can wait until the morning: nodes are drained and replaced in spite of them."""

BY_THE_CLOCK = {
    "CatalogNotRefreshedAlarm",
    "HeadroomNotKeptAlarm",
    "ReconcileNotDoneAlarm",
    "WatchPodsNotDoneAlarm",
}
"""Alarms of scheduled functions, for which missing data is the failure."""


def emitted_by(function: str) -> set[Watched]:
    """Return the metrics that a function emits in the environment of the template."""
    (environment,) = [
        r["Properties"]["Environment"]["Variables"]
        for r in resources().values()
        if r["Type"] == "AWS::Lambda::Function"
        and r["Properties"]["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] == function
    ]
    reports = [REPORTS[method] for method in sorted(reports_reached_by(function) & REPORTS.keys())]
    lines = lines_of(*reports, service=environment["POWERTOOLS_SERVICE_NAME"])
    namespace = environment["POWERTOOLS_METRICS_NAMESPACE"]
    return {
        (namespace, name, frozenset(f"{by}={value}" for by, value in dimensions.items()))
        for name, dimensions, _ in metrics_in(lines)
    }


@pytest.fixture(scope="module")
def emitted() -> set[Watched]:
    """Return the metrics of Leeway's functions."""
    return set().union(*(emitted_by(function) for function in FUNCTIONS))


def test_an_alarm_watches_metrics_that_are_emitted_with_these_dimensions(
    emitted: set[Watched],
) -> None:
    for name, alarm in ALARMS.items():
        metric = alarm["Properties"]
        namespace, (dimension,) = metric["Namespace"], metric["Dimensions"]
        if namespace not in OF_AWS:
            dimensions = frozenset({f"{dimension['Name']}={dimension['Value']}"})
            assert (namespace, metric["MetricName"], dimensions) in emitted, name
            continue
        by, kind, names = OF_AWS[namespace]
        value = dimension["Value"]
        resource = value["Ref"] if "Ref" in value else value["Fn::GetAtt"][0]
        assert dimension["Name"] == by, name
        assert resources()[resource]["Type"] == kind, name
        assert metric["MetricName"] in names, name


def test_every_metric_is_watched_for_all_clusters(
    emitted: set[Watched],
) -> None:
    problems = {name for _, name, _ in emitted if "Problems" in name}
    watched = {a["Properties"]["MetricName"] for a in ALARMS.values()}
    assert problems == {
        "CatalogProblems",
        "ClusterProblems",
        "LaunchProblems",
        "MinorProblems",
        "RetirementProblems",
    }
    assert {name for _, name, _ in emitted} <= watched


def test_every_queue_of_work_that_is_not_repeated_is_watched() -> None:
    queues = {name for name, r in resources().items() if r["Type"] == "AWS::SQS::Queue"}
    watched = [a["Properties"] for a in ALARMS.values()]
    named = {str(m["Dimensions"]) for m in watched if m["Namespace"] == "AWS/SQS"}
    unwatched = {queue for queue in queues if not any(f"'{queue}'" in text for text in named)}
    assert unwatched == DONE_AGAIN


def test_an_alarm_notifies_its_topic_at_its_start_and_end() -> None:
    page = {"Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    later = {"Fn::If": ["HasWarningTopic", [{"Ref": "WarningTopicArn"}], page]}
    for name, alarm in ALARMS.items():
        topics, found = later if name in CAN_WAIT else page, alarm["Properties"]
        assert (found["AlarmActions"], found["OKActions"]) == (topics, topics), name


def test_missing_data_has_the_right_meaning_for_each_alarm() -> None:
    """Metrics of failures have no data without failures. Metrics of scheduled functions have no
    data if they do not run. SQS stops its metrics six hours after the last message."""
    for name, alarm in ALARMS.items():
        of_a_queue = alarm["Properties"].get("Namespace") == "AWS/SQS"
        expected = "ignore" if of_a_queue else "notBreaching"
        if name in BY_THE_CLOCK:
            expected = "breaching"
        assert alarm["Properties"]["TreatMissingData"] == expected, name


def test_every_scheduled_function_has_an_alarm_for_missing_runs() -> None:
    scheduled = {
        r["Properties"]["Target"]["Arn"]["Fn::GetAtt"][0]
        for r in resources().values()
        if r["Type"] == "AWS::Scheduler::Schedule" and "State" not in r["Properties"]
    }
    assert len(scheduled) == len(BY_THE_CLOCK)
    watched = [str(ALARMS[name]["Properties"]["Dimensions"]) for name in BY_THE_CLOCK]
    for function in scheduled:
        variables = resources()[function]["Properties"]["Environment"]["Variables"]
        names = (f"'Ref': '{function}'", f"'{variables['POWERTOOLS_SERVICE_NAME']}'")
        assert [any(name in metrics for name in names) for metrics in watched].count(True) == 1


def test_an_alarm_over_several_minutes_tolerates_one_good_minute() -> None:
    alarms = [a["Properties"] for a in ALARMS.values()]
    patient = [a for a in alarms if a.get("Period", 60) == 60 and a["EvaluationPeriods"] > 1]
    assert patient
    for alarm in patient:
        assert 1 < alarm["DatapointsToAlarm"] < alarm["EvaluationPeriods"]


def sections() -> dict[str, str]:
    """Return the sections of the runbook by alarm."""
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    found = re.findall(r"^## (\w+Alarm)\n(.*?)(?=^## |\Z)", runbook, re.MULTILINE | re.DOTALL)
    return dict(found)


def test_the_runbook_has_a_section_for_every_alarm_and_for_no_other() -> None:
    assert sorted(sections()) == sorted(ALARMS)


def test_a_section_has_the_meaning_the_places_to_check_and_the_actions() -> None:
    for name, section in sections().items():
        for part in ("**Means.**", "**Look.**", "**Do.**"):
            assert section.count(part) == 1, name
        assert ("This alarm can wait until the morning." in section) == (name in CAN_WAIT), name


def test_an_alarms_description_ends_with_the_link_to_its_section() -> None:
    for name, alarm in ALARMS.items():
        text = alarm["Properties"]["AlarmDescription"]["Fn::Sub"]
        sentence, _, link = text.rpartition(". ")
        assert sentence, name
        assert link == f"${{RunbookUrl}}#{name.lower()}"


def test_the_runbook_names_only_existing_functions_and_outputs() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    names = {name.replace("_", "-") for name in FUNCTIONS}
    called = set(re.findall(r"(?:/aws/lambda/|--function-name )leeway-([a-z-]+)", runbook))
    assert "retire-node" in called
    assert called <= names
    template = translated()
    known = template["Outputs"].keys() | template["Parameters"].keys()
    assert set(re.findall(r"`(\w+(?:Url|Arn|Size|Names|Ids))`", runbook)) <= known
