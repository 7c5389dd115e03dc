"""What the code of a function can reach agrees with the template: its rights, and its metrics."""

import pytest

from tests.log_lines import REPORTS, lines_of, metrics_in
from tests.template.granted import granted_to, resources, role_of
from tests.template.reached import FUNCTIONS, actions_reached_by, reports_reached_by
from tests.template.test_alarms import ALARMS
from tests.template.test_permissions import DURABLE, FOR_LAUNCHES

type Watched = tuple[str, str, frozenset[str]]
"""The namespace and name of a metric with its dimensions (`name=value`)."""

BY_THE_SERVICE = {
    *FOR_LAUNCHES,
    "iam:PassRole",
    *DURABLE,
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:ReceiveMessage",
    "sqs:SendMessage",
    # EC2 checks them of the caller of CreateFleet and CreateLaunchTemplate.
    "ec2:CreateTags",
    "ec2:RunInstances",
}
"""Calls that Lambda and the durable SDK make for a function, and permissions that services check
when they get a role or launch instances. No adapter contains them."""

OF_AWS = {
    "AWS/Lambda": (
        "FunctionName",
        "AWS::Lambda::Function",
        {"AsyncEventAge", "Errors", "Throttles"},
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


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_role_grants_exactly_the_calls_of_its_functions_code(function: str) -> None:
    granted = granted_to(role_of(function))
    assert granted - BY_THE_SERVICE == actions_reached_by(function) - BY_THE_SERVICE


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
