"""The CloudWatch dashboard shows what the functions write: fields of log lines, and metrics."""

import ast
import json
import re
from dataclasses import fields
from functools import cache
from typing import Any

import pytest
from leeway.costs import NodeCount
from leeway_sandbox.intrinsics import Resolver
from leeway_sandbox.template import read_template

from tests.template.granted import resources
from tests.template.translation import TEMPLATE, translated
from tools.dashboard import GRAFANA, SOURCE, for_grafana, with_body

LAYER = TEMPLATE.parent / "layers" / "leeway" / "leeway"
BY_LOGGER = {"level", "service", "message", "@timestamp"}
"""Fields that powertools and CloudWatch Logs write themselves."""


@cache
def body() -> dict[str, Any]:
    """The dashboard of a stack `leeway`."""
    resolver = Resolver(
        translated(), {"Dashboard": "true"}, stack="leeway", region="eu-west-1", account="1" * 12
    )
    written = resolver.properties("OverviewDashboard")["DashboardBody"]
    parsed: dict[str, Any] = json.loads(written)
    return parsed


def queries() -> list[str]:
    return [one["properties"]["query"] for one in body()["widgets"] if one["type"] == "log"]


def metrics() -> list[list[str]]:
    found = [one for one in body()["widgets"] if one["type"] == "metric"]
    return [metric for one in found for metric in one["properties"]["metrics"]]


@cache
def logged_fields() -> frozenset[str]:
    """The names that the layer passes to its log lines as `extra`, or builds for it."""
    found = {one.name for one in fields(NodeCount)} | BY_LOGGER
    for path in LAYER.rglob("*.py"):
        if "logger" in (code := path.read_text()):
            nodes = ast.walk(ast.parse(code))
            keys = [key for node in nodes if isinstance(node, ast.Dict) for key in node.keys]
            found |= {str(key.value) for key in keys if isinstance(key, ast.Constant)}
    return frozenset(found)


def test_the_template_has_the_body_of_the_file() -> None:
    """If this fails, run `make dashboards`."""
    assert with_body(TEMPLATE.read_text(), SOURCE.read_text()) == TEMPLATE.read_text()


def test_grafana_shows_the_panels_of_cloudwatch() -> None:
    """If this fails, run `make dashboards`."""
    assert for_grafana(SOURCE.read_text()) == GRAFANA.read_text()
    text = GRAFANA.read_text().replace("${stack}", "leeway")
    board = json.loads(text)
    assert {one["name"] for one in board["templating"]["list"]} == {"source", "region", "stack"}
    assert set(re.findall(r"\$\{([^}]+)\}", text)) == {"source", "region"}
    for panel, widget in zip(board["panels"], body()["widgets"], strict=True):
        shown = widget["properties"]
        assert panel["title"] == shown["title"]
        if widget["type"] == "log":
            (target,) = panel["targets"]
            sources = [f"SOURCE '{name}'" for name in target["logGroupNames"]]
            assert " | ".join([*sources, target["expression"]]) == shown["query"]
            assert bool(target["statsGroups"]) == (panel["type"] == "timeseries")
        else:
            assert [
                [one["namespace"], one["metricName"], *next(iter(one["dimensions"].items()))]
                for one in panel["targets"]
            ] == shown["metrics"]


def test_a_stack_has_no_dashboard_by_default() -> None:
    assert resources()["OverviewDashboard"]["Condition"] == "HasDashboard"
    assert translated()["Parameters"]["Dashboard"]["Default"] == "false"
    assert read_template(TEMPLATE, {"Dashboard": "true"}).functions, "the sandbox takes it"


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for one in body()["widgets"]:
        cells = {
            (x, y)
            for x in range(one["x"], one["x"] + one["width"])
            for y in range(one["y"], one["y"] + one["height"])
        }
        assert not cells & taken, one["properties"]["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert one["properties"]["region"] == "eu-west-1"


def test_queries_read_log_groups_of_the_stack() -> None:
    groups = {
        f"/aws/lambda/leeway-{name.replace('_', '-')}"
        for name in (path.parent.name for path in TEMPLATE.parent.glob("functions/*/handler.py"))
    }
    named = {group for query in queries() for group in re.findall(r"SOURCE '([^']+)'", query)}
    assert named == groups, "the panel of errors reads all of them"


@pytest.mark.parametrize("query", queries(), ids=range(len(queries())))
def test_a_query_reads_fields_that_functions_log(query: str) -> None:
    rest = " ".join(part for part in query.split(" | ") if not part.startswith("SOURCE"))
    rest = re.sub(r"'[^']*'", "", rest)
    made = set(re.findall(r" as (\w+)", rest))
    words = set(re.findall(r"(?<![\w@])@?[A-Za-z_]\w*", rest)) - made
    syntax = {"filter", "ispresent", "stats", "sum", "as", "by", "bin", "latest", "sort", "desc"}
    syntax |= {"max", "min", "pct", "count", "limit"}
    assert words - syntax - logged_fields() == set()
    assert not made & logged_fields(), "an alias with the name of a field hides it"
    if "bin(" in rest:
        assert re.search(r"by bin\(\d+m\)$", rest), "only one group makes a time series"


def test_metrics_are_those_that_exist() -> None:
    counted: set[str] = set()
    for path in LAYER.rglob("*.py"):
        counted |= set(re.findall(r'self\.count\(\s*"(\w+)"', path.read_text()))
    names = {
        one["Properties"]["FunctionName"]["Fn::Sub"].replace("${AWS::StackName}", "leeway")
        for one in resources().values()
        if one["Type"] == "AWS::Lambda::Function"
    }
    own = {metric[1] for metric in metrics() if metric[0] == "Leeway"}
    assert own <= counted
    assert own >= {"NodesNotCordoned", "RetirementProblems", "ClusterProblems", "LaunchProblems"}
    for metric in metrics():
        if metric[0] == "AWS/Lambda":
            assert metric[2] == "FunctionName"
            assert metric[3] in names
    assert {metric[3] for metric in metrics() if metric[1] == "Errors"} == names
